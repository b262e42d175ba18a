"""The other half of ``shim.c``: compiles it, and tells processes that run under it what shall go wrong."""

import ctypes
import errno
import mmap
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any, Self

_SOURCE = Path(__file__).with_name("shim.c")


class Operations(IntFlag):
    """Kinds of operations on files."""

    WRITE = 1
    SYNC = 2
    CREATE = 4
    LINK = 8
    UNLINK = 16
    READ = 32
    TRUNCATE = 64


class Mode(IntEnum):
    FAIL = 1
    TEAR = 2
    """Half of the bytes are written, and then it fails."""
    SHORTEN = 3
    """Half of the bytes are written, which is no error."""
    WAIT = 4


_REAL = (errno.ENOSPC, errno.EROFS, errno.EMFILE, errno.ENOMEM)


class _Rule(ctypes.Structure):
    _fields_ = (
        ("operations", ctypes.c_int32),
        ("mode", ctypes.c_int32),
        ("error", ctypes.c_int32),
        ("pause", ctypes.c_int32),
        ("skip", ctypes.c_int32),
        ("times", ctypes.c_int32),
        ("hits", ctypes.c_int32),
        ("path", ctypes.c_char * 228),
    )


class _Control(ctypes.Structure):
    _fields_ = (
        ("armed", ctypes.c_int32),
        ("threads", ctypes.c_int32),
        ("refused", ctypes.c_int32),
        ("clocks", ctypes.c_int32),
        ("clock", ctypes.c_int64),
        ("real", ctypes.c_int32 * 4),
        ("rules", _Rule * 8),
    )


class Clocks(IntEnum):
    """Whose clock is wrong."""

    ALL = 0
    OF_ODD_PROCESSES = 1
    OF_EVEN_PROCESSES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """Which operations are hit, and how. Of those on paths with ``path`` in them, after ``skip`` that pass."""

    operations: Operations
    path: str
    mode: Mode = Mode.FAIL
    error: int = errno.EIO
    pause: int = 0
    """Milliseconds."""
    skip: int = 0
    times: int = 1


class Control:
    """What processes do wrong that have this block attached. A file in memory, shared with them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(ctypes.sizeof(_Control)))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), ctypes.sizeof(_Control))
        self._block = _Control.from_buffer(self._memory)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.calm()
        del self._block
        self._memory.close()

    def hits(self, slot: int = 0) -> int:
        """How many operations a rule has hit since it was armed."""
        return int(self._block.rules[slot].hits)

    def arm(self, rule: Rule, slot: int = 0) -> None:
        """Lets operations fail, until ``disarm``. Of several rules, each has a slot."""
        found = self._block.rules[slot]
        found.times = found.hits = 0
        found.operations, found.mode, found.error = rule.operations, rule.mode, rule.error
        found.pause, found.skip, found.path = rule.pause, rule.skip, rule.path.encode()
        found.times = rule.times
        self._block.armed = 1

    def disarm(self, slot: int = 0) -> int:
        """How many operations the rule has hit."""
        self._block.rules[slot].times = 0
        self._block.armed = any(rule.times > 0 for rule in self._block.rules)
        return self.hits(slot)

    def calm(self) -> None:
        """Nothing goes wrong any more."""
        for slot in range(len(self._block.rules)):
            self.disarm(slot)
        self._block.threads = self._block.clock = 0

    def set_clock(self, seconds: float, clocks: "Clocks | None" = None) -> None:
        """By how much the wall clock is wrong, of all processes unless some are named."""
        self._block.clocks = Clocks.ALL if clocks is None else clocks
        self._block.clock = int(seconds * 1e9)

    def refuse_threads(self, count: int) -> None:
        """So many threads will not start."""
        self._block.threads = count

    def refusals(self, error: int) -> int:
        """How often the machine itself has said that there is no room, no descriptor or no memory."""
        return int(self._block.real[_REAL.index(error)])

    @property
    def refused_threads(self) -> int:
        """How many threads have not started."""
        return int(self._block.refused)


def compile_shim(directory: Path) -> Path | None:
    """The library, or None where there is no compiler for it, or no Linux."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = directory / "shim.so"
    if not library.exists() or library.stat().st_mtime < _SOURCE.stat().st_mtime:
        command = [compiler, "-O2", "-shared", "-fPIC", "-o", f"{library}.new", _SOURCE, "-ldl", "-lpthread"]
        subprocess.run(command, check=True, capture_output=True, text=True)
        Path(f"{library}.new").replace(library)
    return library


def attach(path: Path) -> None:
    """Makes this process, which runs under the library, do as the block says."""
    if _library().shim_attach(str(path).encode()) != 0:
        raise OSError(errno.ENOENT, f"cannot attach {path}")


def record(journal: Path, root: Path) -> None:
    """Writes down what this process does to files below a root."""
    if _library().shim_record(str(journal).encode(), str(root).encode()) != 0:
        raise OSError(errno.ENOENT, f"cannot record {root}")


def note(text: str) -> None:
    """Puts a text among what is recorded."""
    _library().shim_note(text.encode())


def _library() -> Any:
    return ctypes.CDLL(None)


class Step(IntEnum):
    """What a journal can say."""

    WRITE = 1
    SYNC = 2
    CREATE = 3
    RENAME = 4
    LINK = 5
    UNLINK = 6
    TRUNCATE = 7
    MKDIR = 8
    RMDIR = 9
    NOTE = 10
    SYNC_ALL = 11


@dataclass(frozen=True, slots=True)
class Entry:
    """A change of a file, or of names, in the order in which they were made."""

    step: Step
    inode: int
    offset: int
    path: str
    other: str
    data: bytes


class _Record(ctypes.Structure):
    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("path_length", ctypes.c_uint32),
        ("other_length", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("inode", ctypes.c_uint64),
        ("offset", ctypes.c_int64),
        ("length", ctypes.c_uint64),
    )


def read_journal(path: Path) -> Iterator[Entry]:
    data = path.read_bytes()
    place = 0
    while place < len(data):
        record = _Record.from_buffer_copy(data, place)
        place += ctypes.sizeof(_Record)
        parts = []
        for length in (record.path_length, record.other_length, record.length):
            parts.append(data[place : place + length])
            place += length
        name, other, content = parts
        yield Entry(Step(record.kind), record.inode, record.offset, name.decode(), other.decode(), content)
