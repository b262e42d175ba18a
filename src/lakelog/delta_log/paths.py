"""Absolute paths in a Delta log, which some writers use for files below the table's own root."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.storage.log_store import LogStore
from lakelog.storage.uris import LOG_DIRECTORY

_ABSOLUTE = r"^([A-Za-z][A-Za-z0-9+.-]+:)?/"
_absolute = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]+):)?(?://([^/]*))?/(.*)", re.DOTALL).fullmatch
_HADOOP_S3 = frozenset({"s3a", "s3n"})


@dataclass(frozen=True, slots=True)
class TableRoot:
    """Where a table lies: scheme, host and the names of the directories."""

    scheme: str
    host: str
    segments: tuple[str, ...]

    @classmethod
    def of(cls, store: LogStore) -> Self:
        """The root of the table that a log belongs to."""
        place = store.place.removesuffix(f"/{LOG_DIRECTORY}")
        if "://" not in place:
            return cls("file", "", Path(place).absolute().parts[1:])
        uri = urlsplit(place)
        return cls(_scheme(uri.scheme), uri.netloc, tuple(uri.path.strip("/").split("/")))

    def relative(self, path: str) -> str:
        """The path relative to the root, if it lies below; any other path as it is."""
        match = _absolute(path)
        if match is None or _scheme(match[1] or "file") != self.scheme or (match[2] or "") != self.host:
            return path
        segments = match[3].split("/")
        depth = len(self.segments)
        if len(segments) <= depth or tuple(map(unquote, segments[:depth])) != tuple(map(unquote, self.segments)):
            return path
        return "/".join(segments[depth:])

    def relatives(self, paths: pa.Array) -> pa.Array:
        """Of many paths; those that are relative cost no Python."""
        absolute = pc.match_substring_regex(paths, _ABSOLUTE)
        if not pc.any(absolute).as_py():
            return paths
        moved = [self.relative(path) for path in paths.filter(absolute).to_pylist()]
        return pc.replace_with_mask(paths, absolute, pa.array(moved, paths.type))


def _scheme(name: str) -> str:
    name = name.lower()
    return "s3" if name in _HADOOP_S3 else name
