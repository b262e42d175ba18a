"""A catalog whose file is damaged, and stored texts that a terminal would take for commands."""

import contextlib
import os
import pty
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
from functools import cache
from pathlib import Path

import lakelog
from lakelog import Dataset
from lakelog.actions import AddFile
from tests.campaign.inputs.arguments import text
from tests.campaign.inputs.world import World
from tests.contract.samples import SCHEMA, add, stats


def damaged(world: World, rng: random.Random) -> None:
    """Some bytes of a SQLite file are others. What can be read is read."""
    place = world.place()
    file = place / "catalog.db"
    data = bytearray(_sound())
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


@cache
def _sound() -> bytes:
    """The file of a SQLite catalog with some commits."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "catalog.db")
        with lakelog.connect(f"sqlite:///{file}", root=Path(directory, "lake"), mirror="manual") as lake:
            for name in ("one", "two"):
                dataset = lake.create_dataset(name, SCHEMA, ["day"])
                writer = lakelog.SqlTxnLogWriter(lake)
                for number in range(1, 9):
                    added = add(f"{number}.parquet", stats=stats(3, id=(number, 9)), partition_values={"day": None})
                    writer.commit(dataset.id, number, [added])
        # By SQLite's own hands: the file alone may lack what is in the WAL.
        code = "import sys, apsw; apsw.Connection(sys.argv[1]).execute('VACUUM INTO ?', (sys.argv[2],))"
        copy = Path(directory, "copy.db")
        subprocess.run([sys.executable, "-c", code, str(file), str(copy)], check=True, capture_output=True)
        return copy.read_bytes()


_SHOWN = {
    "datasets": "watched",
    "history": "CREATE TABLE",
    "schema": "int64",
    "files": "3 of 3 files",
    "check": "watched",
    "mirror": "watched",
    "vacuum": "0 orphans",
    "expire": "version",
}
_OPTIONS = {"check": ["--quick"], "vacuum": ["--dry-run"], "expire": ["--keep-last", "1"]}
"""Commands, and what they show of a dataset called ``watched``."""


def on_a_terminal(world: World, rng: random.Random) -> None:
    """The command line, on a terminal of its own, shows no control character but those of its own colours."""
    place = world.place()
    url = world.another_url(place)
    name = f"watched{world.number}{_spelled(rng) if rng.random() < 0.3 else ''}"
    with lakelog.connect(url, root=place / "lake", mirror="manual") as lake:
        dataset = lake.create_dataset(name, SCHEMA, description=_spelled(rng) or None)
        writer = lakelog.SqlTxnLogWriter(lake)
        for number in range(3):
            file = AddFile(path=f"{number}.parquet", size=1, modification_time=0, stats='{"numRecords":1}')
            Path(dataset.location).mkdir(parents=True, exist_ok=True)
            Path(dataset.location, file.path).write_bytes(b"x")
            with_odd = {"operation": _spelled(rng) or "WRITE", "committer": _spelled(rng) or None}
            writer.commit(dataset.id, number + 1, [file], **with_odd)  # type: ignore[arg-type]
    command = rng.choice(list(_SHOWN))
    arguments = [] if command == "datasets" else [name]
    arguments += _OPTIONS.get(command, [])
    code, shown = _run_on_terminal([sys.executable, "-m", "lakelog", command, *arguments, "--catalog", url])
    # Its own colours, and the ends of lines as a terminal has them.
    plain = _without_colours(shown)
    odd = {character for character in plain if character not in "\r\n" and _commands(character)}
    assert not odd, f"{command} of {name!r} shows {odd}"
    assert code == 0, f"{command} of {name!r} ends with {code}: {plain[-500:]}"
    assert "Traceback" not in plain, plain[-1000:]
    assert _SHOWN[command] in plain, f"{command} of {name!r} shows {plain[-500:]}"
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


def _run_on_terminal(command: list[str]) -> tuple[int, str]:
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
    return process.wait(60), found.decode(errors="replace")
