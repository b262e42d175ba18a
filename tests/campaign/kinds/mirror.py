"""A mirror whose place is taken: by a file, or by a stranger's commit."""

import contextlib
import random
import time
from pathlib import Path

from tests.campaign.arena import Arena
from tests.campaign.kinds.kind import Kind, pause, wait_for

_FOREIGN = '{"commitInfo":{"timestamp":1,"operation":"WRITE","engineInfo":"somebody else"}}\n'


def _log(arena: Arena, rng: random.Random) -> Path:
    return rng.choice(list(arena.locations.values())) / "_delta_log"


def _replace_directory(arena: Arena, rng: random.Random) -> int:
    """Every publication fails, as long as a file stands in the directory's place."""
    log = _log(arena, rng)
    away = log.with_name("_delta_log.away")
    log.rename(away)
    try:
        # Somebody may be faster, and make it anew.
        with contextlib.suppress(OSError):
            log.write_text("not a directory")
        pause(rng, 0.3, 1.5)
    finally:
        _bring_back(log, away)
    return 1


def _bring_back(log: Path, away: Path) -> None:
    """What was published in a directory of the same name meanwhile is the same, since it follows from the catalog."""
    while True:
        try:
            if log.is_dir():
                for path in log.iterdir():
                    path.replace(away / path.name)
                log.rmdir()
            else:
                log.unlink(missing_ok=True)
            away.rename(log)
            return
        except OSError:
            time.sleep(0.001)


def _foreign_commit(arena: Arena, rng: random.Random) -> int:
    """The mirror stops until a person takes it away. Commits go on. Counted when the mirror has come to it."""
    log = _log(arena, rng)
    for ahead in (1, 3, 10, 30, 100):
        versions = [int(path.stem) for path in log.glob("*.json") if path.stem.isdigit()]
        version = max(versions, default=0) + rng.randrange(1, ahead + 1)
        path = log / f"{version:020}.json"
        try:
            with path.open("x") as file:
                file.write(_FOREIGN)
            break
        except FileExistsError:
            continue
    else:
        return 0
    pause(rng, 0.3, 1.0)
    met = wait_for((log / f"{version - 1:020}.json").exists, 1.0)
    if path.read_text() == _FOREIGN:
        path.unlink()
    return int(met)


KINDS = [
    Kind(name="a file in the place of the mirror", strike=_replace_directory, needs=("mirror",)),
    Kind(name="a stranger's commit in the mirror", strike=_foreign_commit, needs=("mirror",)),
]
