"""A catalog whose file is damaged, and stored texts that a terminal would take for commands."""

import contextlib
import os
import pty
import random
import re
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import lakelog
from lakelog import Dataset
from lakelog.actions import AddFile
from tests.campaign.inputs.arguments import text
from tests.campaign.inputs.world import World
from tests.contract.samples import SCHEMA


def damaged(world: World, rng: random.Random) -> None:
    """Some bytes of a SQLite file are others. What can be read is read."""
    place = world.place()
    file = place / "catalog.db"
    _copy(world, file)
    data = bytearray(file.read_bytes())
    for _ in range(rng.choice((1, 5, 50))):
        at = rng.randrange(len(data))
        length = rng.choice((1, 1, 64))
        data[at : at + length] = bytes(rng.randrange(256) for _ in range(min(length, len(data) - at)))
    file.write_bytes(data)
    with lakelog.connect(f"sqlite:///{file}", root=place / "lake", create=False, timeout=2, mirror="manual") as lake:
        for dataset in lake.datasets()[:3]:
            for look in (Dataset.history, Dataset.detail, _some_files):
                with contextlib.suppress(lakelog.LakelogError):
                    look(dataset)
            lake.check(dataset.name, deep=False)


def _some_files(dataset: Dataset) -> None:
    dataset.snapshot().files("id = 3")


def _copy(world: World, target: Path) -> None:
    """By SQLite's own hands: the file alone may lack what is in the WAL."""
    source = f"{world.directory}/catalog.db"
    code = "import sys, apsw; apsw.Connection(sys.argv[1]).execute('VACUUM INTO ?', (sys.argv[2],))"
    subprocess.run([sys.executable, "-c", code, source, str(target)], check=True, capture_output=True)


def on_a_terminal(world: World, rng: random.Random) -> None:
    """The command line, on a terminal of its own, shows no control character but those of its own colours."""
    place = world.place()
    url = f"sqlite:///{place}/catalog.db"
    with lakelog.connect(url, root=place / "lake", mirror="manual") as lake:
        dataset = lake.create_dataset("t", SCHEMA, description=_spelled(rng) or None)
        writer = lakelog.SqlTxnLogWriter(lake)
        for number in range(3):
            file = AddFile(path=f"{number}.parquet", size=1, modification_time=0, stats='{"numRecords":1}')
            with_odd = {"operation": _spelled(rng) or "WRITE", "committer": _spelled(rng) or None}
            writer.commit(dataset.id, number + 1, [file], **with_odd)  # type: ignore[arg-type]
    command = rng.choice((["datasets"], ["history", "t"], ["schema", "t"], ["files", "t"], ["check", "t", "--quick"]))
    shown = _run_on_terminal([sys.executable, "-m", "lakelog", *command, "--catalog", url])
    # Its own colours, and the ends of lines as a terminal has them.
    plain = _without_colours(shown)
    odd = {character for character in plain if character not in "\r\n" and _commands(character)}
    assert not odd, f"{command} shows {odd}"
    shutil.rmtree(place)


def _spelled(rng: random.Random) -> str:
    """A text that can be stored."""
    found = text(rng).replace("\0", "").encode(errors="ignore").decode()[:200]
    return found + rng.choice(("", "\x1b[2J", "\x1b]0;owned\x07", "\x9b31m", "\u202e"))


def _commands(character: str) -> bool:
    """Whether a terminal takes it for more than a character: controls, and what turns the direction of texts."""
    return unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") or unicodedata.bidirectional(character) in (
        *("LRE", "RLE", "LRO", "RLO", "PDF"),
        *("LRI", "RLI", "FSI", "PDI"),
    )


def _without_colours(shown: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", shown)


def _run_on_terminal(command: list[str]) -> str:
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    process = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    found = bytearray()
    while True:
        try:
            part = os.read(leader, 1 << 16)
        except OSError:
            break
        if not part:
            break
        found += part
    os.close(leader)
    process.wait(60)
    return found.decode(errors="replace")
