"""Where a table's files lie, and whether they are there."""

import errno
import re
import threading
import uuid
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow.fs as pf

from lakelog.threads import map_in_threads

LOG_DIRECTORY = "_delta_log"
"""Where a table's Delta log lies, below its location."""

WRITE = "__w"
"""The directory of a write is called like a partition, so that Spark takes what is below it for partitions, too."""

_absolute = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+:|/)").match


def write_directory() -> str:
    """A directory that no other write has.

    Its second equals sign makes it no partition for readers such as Polars, which refuse those they do not know.
    """
    return f"{WRITE}={uuid.uuid4().hex}="


def root_uri(location: str) -> str:
    """A table's location as an encoded URI."""
    if "://" not in location:
        return f"file://{quote(location)}"
    uri = urlsplit(location)
    return f"{uri.scheme}://{uri.netloc}{quote(uri.path)}"


def is_absolute(path: str) -> bool:
    """Whether the log names a file by where it lies, and not by where it lies below the table's location."""
    return _absolute(path) is not None


def uri_of(location: str, path: str) -> str:
    """Where a file lies that the log of a table names so, as an encoded URI."""
    root = root_uri(location)
    if not is_absolute(path):
        return f"{root}/{path}"
    if not path.startswith("/"):
        return path
    uri = urlsplit(root)
    return f"{uri.scheme}://{uri.netloc}{path}"


def missing(uris: Sequence[str]) -> list[str]:
    """Those of the files that are not there."""
    storage = Storage()
    return [uri for uri, there in zip(uris, map_in_threads(storage.has, uris), strict=True) if not there]


class Storage:
    """File systems, one for all files that share a scheme and an authority: an object store's is costly."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Any] = {}
        self._guard = threading.Lock()

    def at(self, uri: str) -> tuple[Any, str]:
        """The file system of a file, and its path there."""
        parts = urlsplit(uri)
        # Hadoop's names for S3.
        scheme = "s3" if parts.scheme in ("s3a", "s3n") else parts.scheme
        local = scheme == "file"
        key = (scheme, "" if local else parts.netloc)
        with self._guard:
            if key not in self._known:
                self._known[key] = (
                    pf.LocalFileSystem() if local else pf.FileSystem.from_uri(f"{scheme}://{parts.netloc}/")[0]
                )
        path = unquote(parts.path)
        return self._known[key], path if local else f"{parts.netloc}{path}"

    def has(self, uri: str) -> bool:
        system, path = self.at(uri)
        try:
            return bool(system.get_file_info(path).is_file)
        except OSError as error:
            if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
                return False
            raise
