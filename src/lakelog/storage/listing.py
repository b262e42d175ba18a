"""What lies below a table's location: the files and directories that may be the table's own."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from lakelog.storage.hive import is_hidden
from lakelog.storage.uris import LOG_DIRECTORY

CHANGES = "_change_data"
WRITE = re.compile(r"__w=[0-9a-f]{32}=?")
_DATA = re.compile(r".*\.parquet|deletion_vector_.*\.bin")
_CHECKSUM = re.compile(r"\.(.+)\.crc")


class FoundFile(NamedTuple):
    """A file that exists."""

    size: int
    changed_at: int
    """When its content, or its name, was last changed, in milliseconds: a copy that keeps the old time is new, too."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Files and directories by their real paths. Links are not followed, and are none of them."""

    root: str
    files: dict[str, FoundFile] = field(default_factory=dict)
    directories: dict[str, int] = field(default_factory=dict)
    """Below the root, each after the one above it, and when it was last changed."""

    def write_of(self, place: str) -> str | None:
        """The directory of the write that a file or directory belongs to."""
        first, _, rest = place[len(self.root) + 1 :].partition("/")
        if first == CHANGES:
            first = rest.partition("/")[0]
        return first if WRITE.fullmatch(first) else None

    def is_data(self, place: str) -> bool:
        """Whether a file is called like one that a writer of tables makes."""
        return _DATA.fullmatch(place.rpartition("/")[2]) is not None


def judged_as(place: str) -> str:
    """The file that decides about another: a checksum's own."""
    directory, _, name = place.rpartition("/")
    checksum = _CHECKSUM.fullmatch(name)
    return place if checksum is None else f"{directory}/{checksum[1]}"


def list_files(root: str) -> Listing:
    """Everything that is not hidden, with the checksums of files; of the hidden only Delta's changed rows.

    In the directory of a write, which is Lakelog's own, nothing is hidden. A directory with a log of its own is another
    table, and left out.
    """
    listing = Listing(root)
    pending = [root]
    while pending:
        directory = pending.pop()
        entries = list(_entries(directory))
        if directory != root and any(entry.name == LOG_DIRECTORY for entry in entries):
            continue
        for entry in entries:
            if not _is_seen(listing, directory, entry):
                continue
            with suppress(FileNotFoundError):
                status = entry.stat(follow_symlinks=False)
                changed_at = max(status.st_mtime_ns, status.st_ctime_ns) // 1_000_000
                if entry.is_dir(follow_symlinks=False):
                    listing.directories[entry.path] = changed_at
                    pending.append(entry.path)
                else:
                    listing.files[entry.path] = FoundFile(status.st_size, changed_at)
    return listing


def _entries(directory: str) -> Iterator["os.DirEntry[str]"]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(directory) as entries:
        yield from entries


def _is_seen(listing: Listing, directory: str, entry: "os.DirEntry[str]") -> bool:
    if entry.is_symlink() or not (entry.is_file(follow_symlinks=False) or entry.is_dir(follow_symlinks=False)):
        return False
    if not is_hidden(entry.name) or listing.write_of(entry.path) is not None:
        return True
    if entry.is_dir(follow_symlinks=False):
        return directory == listing.root and entry.name == CHANGES
    return _CHECKSUM.fullmatch(entry.name) is not None
