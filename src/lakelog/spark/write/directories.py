"""Where a write's files lie, and how partition values stand in directories: as text that the catalog has, too."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from lakelog.errors import ConfigurationError, LakelogError
from lakelog.parquet.footers import WrittenFile
from lakelog.spark.expressions import local_time, quoted
from lakelog.storage.hive import NULL_DIRECTORY, is_hidden, log_path, unescaped

if TYPE_CHECKING:
    from pyspark.sql import Column


def logged(values: Mapping[str, str | None], partitions: Sequence[pa.Field]) -> dict[str, str | None]:
    """What the log says of partition values that directories say: an instant's zone, which is UTC, too.

    Without it a Delta reader would take the time for one in its own zone.
    """
    instants = {field.name for field in partitions if pa.types.is_timestamp(field.type) and field.type.tz}
    return {
        name: f"{text.replace(' ', 'T', 1)}Z" if text is not None and name in instants else text
        for name, text in values.items()
    }


def partition_value(field: pa.Field) -> "Column":
    """A partition column as Spark is to write it, which makes a text of it that the catalog keeps.

    The empty string is null, and an instant is the time that clocks show in UTC.
    """
    value = F.col(quoted(field.name))
    if pa.types.is_timestamp(field.type) and field.type.tz:
        return local_time(value)
    if pa.types.is_floating(field.type):
        # In Spark's order 0.0 and -0.0 are the same and may alternate, but they have directories of their own.
        return value.cast("string")
    return F.nullif(value, F.lit("")) if pa.types.is_string(field.type) else value


def local_path(place: str) -> str:
    """A directory that Spark names by a path or a URI. Raises ``ConfigurationError`` for one that is elsewhere."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]+):(?://[^/]*)?", place)
    if found is None:
        return place
    if found[1] != "file":
        raise ConfigurationError(f"expected a local directory, got {place!r}")
    return place[found.end() :]


def written_files(root: str, directory: str, partitions: Sequence[pa.Field]) -> list[WrittenFile]:
    """The data files of a write below a table's root, with what their directories say of partitions."""
    if not (Path(root) / directory).is_dir():
        raise LakelogError(
            f"Spark has written to {root}/{directory}, which this process does not find. Nothing was committed: "
            "Spark and the process that calls Lakelog must see the same files under the same path"
        )
    found = []
    for entry in _entries(Path(root) / directory):
        relative = Path(entry.path).relative_to(root).as_posix()
        status = entry.stat()
        values = _values(relative, [field.name for field in partitions])
        found.append(
            WrittenFile(
                path=log_path(relative),
                place=entry.path,
                size=status.st_size,
                modification_time=status.st_mtime_ns // 1_000_000,
                partition_values=logged(values, partitions),
            )
        )
    return found


def _entries(directory: Path) -> Iterator[os.DirEntry[str]]:
    with os.scandir(directory) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if is_hidden(entry.name):
                continue
            if entry.is_dir():
                yield from _entries(Path(entry.path))
            else:
                yield entry


def _values(relative: str, columns: Sequence[str]) -> dict[str, str | None]:
    """Partition values by column, out of the directories just above the file."""
    if not columns:
        return {}
    parts = relative.split("/")[-1 - len(columns) : -1]
    values: dict[str, str | None] = {}
    for column, part in zip(columns, parts, strict=True):
        name, _, text = part.partition("=")
        if unescaped(name) != column:
            raise LakelogError(f"expected a directory of partition column {column!r}, found {relative!r}")
        values[column] = None if text == NULL_DIRECTORY else unescaped(text)
    return values
