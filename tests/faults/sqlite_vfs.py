"""A disk that can be told to fail, under SQLite. For processes that end with the test: it becomes SQLite's default."""

from collections.abc import Callable
from typing import Any

import apsw

_BASE = "unix"


class FaultyDisk(apsw.VFS):
    """Counts what SQLite writes, syncs and truncates while it is armed, and calls ``fault`` with each.

    ``fault`` gets the number, the kind, the file's name and the call itself. It may make the call, do half of it, raise
    what SQLite shall see, or not return.
    """

    def __init__(self) -> None:
        super().__init__("faulty", _BASE, makedefault=True)
        self.calls = 0
        self.fault: Callable[[int, str, str, Callable[..., None], tuple[Any, ...]], None] | None = None

    def xOpen(self, name: Any, flags: list[int]) -> "_FaultyFile":
        return _FaultyFile(self, name, flags)

    def call(self, kind: str, name: str, real: Callable[..., None], *arguments: Any) -> None:
        if self.fault is None:
            real(*arguments)
        else:
            self.calls += 1
            self.fault(self.calls, kind, name, real, arguments)


class _FaultyFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__(_BASE, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:
        self._disk.call("write", self._name, super().xWrite, data, offset)

    def xSync(self, flags: int) -> None:
        self._disk.call("sync", self._name, super().xSync, flags)

    def xTruncate(self, size: int) -> None:
        self._disk.call("truncate", self._name, super().xTruncate, size)


def io_error(code: int) -> apsw.IOError:
    error = apsw.IOError("injected")
    error.extendedresult = code
    return error
