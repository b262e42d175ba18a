"""The files of a table's ``_delta_log``, wherever the table lies: on a local disk or in an object store.

What the mirror needs of a place is small: to list, to read, and to create a file whole or not at all and only if there
is none. Every object store has that by now, but pyarrow's file systems do not pass it on; obstore does.
"""

import errno
import os
import stat
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from lakelog.storage.disk import sync_directories
from lakelog.storage.uris import LOG_DIRECTORY

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_NO_FILES = {errno.ENXIO, errno.ENODEV, errno.ELOOP}
"""What sockets, devices without a driver and links that lead nowhere answer to who opens them."""
_NOWHERE = {errno.ENOENT, errno.ELOOP}
_NO_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}


MAX_FILE_BYTES = 1 << 30
"""Of a commit, and of any other file of a log that is read whole."""
MAX_HINT_BYTES = 1 << 20
"""Of ``_last_checkpoint``, which writers keep to a few lines."""


class UnfitFileError(OSError):
    """Something in a log that has a file's name and is none, or is larger than any that a writer makes."""


@dataclass(frozen=True, slots=True, order=True)
class LogFile:
    """A file of a log. ``modified`` is in milliseconds since 1970."""

    name: str
    size: int
    modified: int


class LogStore(ABC):
    """The files of one log, by their names below it. Errors of the place are ``OSError``."""

    place: str
    """The log's own path or address, for people."""

    @abstractmethod
    def files(self, start: str = "") -> list[LogFile]:
        """The files directly in the log from a name on, by name. None if there is no log."""

    def names(self) -> list[str]:
        """Everything directly in the log that may be called like a file of it, also what is none."""
        return [each.name for each in self.files()]

    @abstractmethod
    def exists(self, name: str) -> bool:
        """Whether the name is taken, also by what is no file."""

    @abstractmethod
    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """A file's content. Raises ``FileNotFoundError``, and ``UnfitFileError`` for what is no file of a log."""

    @abstractmethod
    def open(self, name: str) -> Any:
        """A file as pyarrow reads it. Raises ``FileNotFoundError`` and ``UnfitFileError``."""

    @abstractmethod
    def create(self, name: str, data: bytes, modified: int | None = None) -> bool:
        """Makes a file, durably, whole or not at all. False if there is one of that name, which stays as it is.

        ``modified`` becomes its time, where files can be given one.
        """

    @abstractmethod
    def replace(self, name: str, data: bytes, modified: int | None = None) -> None:
        """Makes a file or takes another one's place, so that readers find the one or the other."""

    @abstractmethod
    def move(self, name: str, new_name: str) -> None: ...

    @abstractmethod
    def sync(self) -> None:
        """Makes the names of files durable, too, where that is not so by itself."""


def log_store(location: str) -> LogStore:
    """The log of a table. Nothing is opened yet."""
    uri = urlsplit(location)
    if "://" not in location:
        return LocalStore(Path(location) / LOG_DIRECTORY)
    if uri.scheme == "file":
        return LocalStore(Path(unquote(uri.path)) / LOG_DIRECTORY)
    return ObjectStore(f"{location}/{LOG_DIRECTORY}")


class LocalStore(LogStore):
    """A log on a local disk."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.place = str(directory)

    def files(self, start: str = "") -> list[LogFile]:
        found = []
        with suppress(FileNotFoundError, NotADirectoryError), os.scandir(self._directory) as entries:
            for entry in entries:
                try:
                    if entry.name >= start and entry.is_file():
                        status = entry.stat()
                        found.append(LogFile(entry.name, status.st_size, status.st_mtime_ns // 1_000_000))
                except OSError as error:
                    # One may vanish meanwhile, as temporary files do, or be a link that leads nowhere.
                    if error.errno not in _NOWHERE:
                        raise
        return sorted(found)

    def names(self) -> list[str]:
        with suppress(FileNotFoundError, NotADirectoryError):
            return sorted(os.listdir(self._directory))  # noqa: PTH208 - names, not paths
        return []

    def exists(self, name: str) -> bool:
        # A link that leads nowhere is in the way, too.
        return os.path.lexists(f"{self.place}/{name}")

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        with self._regular(name) as file:
            # A file of nothing but holes says that it is large, and would fill the memory.
            is_large = os.fstat(file.fileno()).st_size > limit
            data = b"" if is_large else file.read(limit + 1)
        if data is None:
            raise UnfitFileError("it is a special file that has nothing to read, not a regular one")
        if is_large or len(data) > limit:
            raise UnfitFileError(_too_large(limit))
        return data

    def open(self, name: str) -> Any:
        return pa.PythonFile(self._regular(name), "r")

    def _regular(self, name: str) -> BinaryIO:
        """Opens a file without waiting for anybody, as the end of a pipe would."""
        path = f"{self.place}/{name}"
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _NO_FILES or (isinstance(error, FileNotFoundError) and os.path.islink(path)):  # noqa: PTH114
                raise UnfitFileError(f"it is not a regular file ({error.strerror})") from error
            raise
        kind = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(kind):
            os.close(descriptor)
            raise UnfitFileError(f"it is {_KINDS.get(stat.S_IFMT(kind), 'a special file')}, not a regular file")
        return os.fdopen(descriptor, "rb")

    def create(self, name: str, data: bytes, modified: int | None = None) -> bool:
        target = f"{self.place}/{name}"
        if self.exists(name):
            return False
        temporary = self._temporary(name, data, modified)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            return self._create_in_place(target, data, modified)
        finally:
            _unlink(temporary)
        self.sync()
        return True

    def replace(self, name: str, data: bytes, modified: int | None = None) -> None:
        temporary = self._temporary(name, data, modified)
        try:
            Path(temporary).replace(self._directory / name)
        except OSError:
            _unlink(temporary)
            raise
        self.sync()

    def move(self, name: str, new_name: str) -> None:
        target = self._directory / new_name
        target.parent.mkdir(parents=True, exist_ok=True)
        (self._directory / name).rename(target)
        self.sync()

    def _temporary(self, name: str, data: bytes, modified: int | None) -> str:
        """The content on disk under a name that readers of the log pass over."""
        path = f"{self.place}/.{name}.{uuid.uuid4().hex}.tmp"
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileNotFoundError:
            self._directory.mkdir(parents=True, exist_ok=True)
            sync_directories(self._directory.parent)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            _write(descriptor, data, modified)
        except BaseException:
            _unlink(path)
            raise
        return path

    def _create_in_place(self, target: str, data: bytes, modified: int | None) -> bool:
        """Where there are no hard links. A crash can leave the beginning of a file, which the mirror recognises."""
        try:
            descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        _write(descriptor, data, modified)
        self.sync()
        return True

    def sync(self) -> None:
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write(descriptor: int, data: bytes, modified: int | None) -> None:
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if modified is not None:
            os.utime(descriptor, ns=(modified * 1_000_000, modified * 1_000_000))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _too_large(limit: int) -> str:
    return f"it has more than {limit:,} bytes, as no writer makes it"


def _unlink(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)  # noqa: PTH108


class ObjectStore(LogStore):
    """A log in an object store that can create an object only if there is none, as S3, GCS and Azure can.

    Credentials and endpoints come from the environment, under the names that delta-rs uses, too: ``AWS_…``,
    ``GOOGLE_…``, ``AZURE_…``.
    """

    def __init__(self, address: str) -> None:
        self.place = address

    @cached_property
    def _store(self) -> Any:
        from obstore.store import from_url

        scheme, rest = self.place.split("://", 1)
        # Hadoop's names for S3.
        return from_url(
            f"{'s3' if scheme in ('s3a', 's3n') else scheme}://{rest}",
            client_options={"timeout": "30s", "connect_timeout": "5s", "allow_http": _allows_http()},
            retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=15)},
        )

    def files(self, start: str = "") -> list[LogFile]:
        found = []
        with _as_os_errors():
            # The store begins after a name, we at it.
            for batch in self._store.list(offset=_before(start) if start else None):
                found += [
                    LogFile(each["path"], each["size"], int(each["last_modified"].timestamp() * 1000))
                    for each in batch
                    if each["path"] >= start and "/" not in each["path"]
                ]
        return sorted(found)

    def exists(self, name: str) -> bool:
        try:
            with _as_os_errors():
                self._store.head(name)
        except FileNotFoundError:
            return False
        return True

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        with _as_os_errors():
            found = self._store.get(name)
            if found.meta["size"] > limit:
                raise UnfitFileError(_too_large(limit))
            return bytes(found.bytes())

    def open(self, name: str) -> Any:
        with _as_os_errors():
            return pa.BufferReader(self._store.get(name).bytes())

    def create(self, name: str, data: bytes, modified: int | None = None) -> bool:
        try:
            with _as_os_errors():
                self._store.put(name, data, mode="create", use_multipart=False)
        except FileExistsError:
            return False
        return True

    def replace(self, name: str, data: bytes, modified: int | None = None) -> None:
        with _as_os_errors():
            self._store.put(name, data)

    def sync(self) -> None:
        pass

    def move(self, name: str, new_name: str) -> None:
        with _as_os_errors():
            self._store.copy(name, new_name)
            self._store.delete(name)


@contextmanager
def _as_os_errors() -> Iterator[None]:
    try:
        from obstore.exceptions import AlreadyExistsError, BaseError
    except ModuleNotFoundError as error:
        raise OSError("for object stores, install lakelog[object-store]") from error
    try:
        yield
    except AlreadyExistsError as error:
        raise FileExistsError(str(error)) from error
    except BaseError as error:
        # The rest is for the makers of the library.
        raise OSError(str(error).partition("\n")[0]) from error


def _allows_http() -> bool:
    """As the environment says it; given options, the library would not look there."""
    return os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")


def _before(name: str) -> str:
    """A name after which ``name`` comes next."""
    return f"{name[:-1]}{chr(ord(name[-1]) - 1)}\uffff"
