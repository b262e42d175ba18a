"""Local files by a pattern."""

import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from lakelog.errors import ConfigurationError, ValidationError, Violation
from lakelog.storage.hive import is_hidden
from lakelog.storage.uris import LOG_DIRECTORY
from lakelog.strict_json import text_problem

_is_uri = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/").match
_is_pattern = re.compile(r"[*?[]").search
_BELOW = "**"
_WHOLE = [_BELOW, "*.parquet"]
"""What a directory stands for."""


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file below a location. ``modification_time`` is in milliseconds."""

    relative: str
    place: str
    size: int
    modification_time: int

    @property
    def directory(self) -> str:
        """Relative, as the file's own path is; empty for the location itself."""
        return self.relative.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class Listing:
    """Files, one or more, in the order of their names, and a directory that holds all of them."""

    location: str
    files: Sequence[FoundFile]


def find_files(pattern: str | os.PathLike[str], location: str | os.PathLike[str] | None = None) -> Listing:
    """The files that match, and of a directory all Parquet files below it. What is hidden is left out.

    ``*``, ``?`` and ``[…]`` stand for characters of one name, ``**`` for any number of directories. The location is
    the directory above the first of them unless it is given. Raises ``ConfigurationError`` if no file is left, or if
    they belong to a Delta table, and ``ValidationError`` for files that are not below the location.
    """
    text = _local(pattern)
    root, parts = _split(text)
    place = root if location is None else _local(location)
    found = {entry.path: entry for entry in _matching(root, parts, frozenset())}
    outside = [path for path in found if not path.startswith(f"{place.rstrip('/')}/")]
    if outside:
        message = f"is not below the location {place!r}"
        raise ValidationError("location", [Violation(path, message) for path in outside])
    names = [(path[len(place.rstrip("/")) + 1 :], path) for path in sorted(found)]
    shown = [(name, path) for name, path in names if not _hidden(name)]
    if not shown:
        hidden = f": {len(names)} are hidden, by a name that begins with '_' or '.'" if names else ""
        raise ConfigurationError(f"no file matches {text!r}{hidden}")
    files = []
    for name, path in shown:
        if problem := text_problem(name):
            raise ConfigurationError(f"{path!r} cannot be registered: its name has {problem}")
        try:
            status = found[path].stat()
        except OSError as error:
            raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise ConfigurationError(f"{path!r} cannot be registered: it is no file, but a pipe or a device")
        files.append(FoundFile(name, path, status.st_size, status.st_mtime_ns // 1_000_000))
    _refuse_delta(place, files)
    return Listing(place, files)


def _local(place: str | os.PathLike[str]) -> str:
    text = os.fspath(place)
    if not isinstance(text, str) or not text:
        raise ConfigurationError(f"expected a path, got {place!r}")
    if _is_uri(text):
        raise ConfigurationError(f"expected a path of this machine, got {text!r}: only local files can be registered")
    return str(Path(os.path.normpath(text)).absolute())


def _split(path: str) -> tuple[str, Sequence[str]]:
    """The directory to begin with, and a pattern for each name below it."""
    # Not by pathlib, which raises for a name that is too long for any file.
    if os.path.isdir(path):  # noqa: PTH112
        return path, _WHOLE
    directories = path.split("/")
    if not os.path.exists(path):  # noqa: PTH110
        for number, name in enumerate(directories):
            if _is_pattern(name):
                return "/".join(directories[:number]) or "/", directories[number:]
    # Its name may hold a bracket, and stands for itself.
    return "/".join(directories[:-1]) or "/", [re.sub(r"[*?[]", "[\\g<0>]", directories[-1])]


def _matching(directory: str, parts: Sequence[str], above: frozenset[tuple[int, int]]) -> "Iterator[os.DirEntry[str]]":
    part, *rest = parts
    try:
        status = Path(directory).stat()
        with os.scandir(directory) as opened:
            entries = list(opened)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ConfigurationError(f"cannot list {directory}: {error.strerror}") from error
    key = status.st_dev, status.st_ino
    if part == _BELOW:
        if key in above:
            # A link that leads back up.
            return
        if rest:
            yield from _matching(directory, rest, above)
    for entry in entries:
        if not _is_directory(entry):
            if not rest and (part == _BELOW or fnmatchcase(entry.name, part)):
                yield entry
        elif part == _BELOW:
            if not is_hidden(entry.name):
                yield from _matching(entry.path, parts, above | {key})
        elif fnmatchcase(entry.name, part):
            yield from _matching(entry.path, rest or _WHOLE, above)


def _is_directory(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        raise ConfigurationError(f"cannot look at {entry.path}: {error.strerror}") from error


def _hidden(relative: str) -> bool:
    *directories, name = relative.split("/")
    return name.startswith((".", "_")) or any(map(is_hidden, directories))


def _refuse_delta(location: str, files: Sequence[FoundFile]) -> None:
    """Of a Delta table's files, only its log knows which count."""
    directories = {Path(location), *Path(location).parents}
    for directory in {file.directory for file in files}:
        below = Path(location, directory)
        while below not in directories:
            directories.add(below)
            below = below.parent
    tables = sorted(str(each) for each in directories if (each / LOG_DIRECTORY).is_dir())
    if tables:
        raise ConfigurationError(f"{tables[0]} is a Delta table, whose log says which of its files count")
