"""Files of a snapshot, put together as the work of tasks."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from lakelog.errors import ValidationError, Violation
from lakelog.log.deletion_vectors import vectors_of
from lakelog.log.snapshot.file_groups import FileGroup
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.schema.evolution.projection import composed, project
from lakelog.schema.leaves import join_path
from lakelog.schema.mapping import loosened, readable
from lakelog.schema.spark import from_spark
from lakelog.spark.datasource.rows import DataFile, FilesToRead
from lakelog.spark.read.manifest import Files, uri_of
from lakelog.spark.read.partitions import partition_values

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LARGEST_TASK = 128 << 20
_SMALLEST_TASK = 8 << 20
_OPENING = 4 << 20
"""Bytes: what a task reads, and what opening a file costs in terms of them. As in Spark."""


def check_schema(table: pa.Schema, told: "StructType") -> None:
    """Whether the table's rows can be given under a schema that the caller names: columns of it, as they are."""
    columns = {field.name.lower(): field.type for field in map(readable, table)}
    problems = []
    asked = from_spark(told)
    for field, loose in zip(asked, loosened(asked), strict=True):
        where = join_path([field.name])
        if field.name.lower() not in columns:
            problems.append(Violation(where, f"is not a column of the table, which has {', '.join(table.names)}"))
        elif not field.equals(loose):
            problems.append(Violation(where, "is read as nullable: leave NOT NULL out"))
        elif not field.type.equals(columns[field.name.lower()]):
            message = f"is {columns[field.name.lower()]} in the table, not {field.type}: cast it after the read"
            problems.append(Violation(where, message))
    if problems:
        raise ValidationError("schema of the read", problems)


def tasks(snapshot: Snapshot, location: str, files: Any, told: "StructType") -> list[FilesToRead]:
    """The work of reading these files under the schema that Spark was told, cut into tasks."""
    metadata = snapshot.state.metadata
    target = project(list(metadata.schema), list(to_arrow_schema(told, timezone="UTC")))
    largest = largest_task(files)
    found: list[FilesToRead] = []
    for group in snapshot.file_groups_as(metadata.schema, metadata.physical, files):
        columns = composed(group.columns, target)
        parts = cut(data_files(group, location, metadata.partition_columns), largest)
        found += [FilesToRead(part, group.schema, metadata.partition_columns, columns) for part in parts]
    return found


def data_files(group: FileGroup, location: str, partition_columns: tuple[str, ...]) -> Iterator[DataFile]:
    """A group's files, in their order."""
    files = group.files
    paths, sizes = files.column("path").combine_chunks(), files.column("size").combine_chunks()
    partitions = [group.schema.field(name) for name in partition_columns]
    numbers, values = partition_values(files.column("partition_values"), partitions)
    uris = Files(location, paths, sizes).uris.to_pylist()
    vectors = vectors_of(files, uri_of(location))
    for uri, size, number, vector in zip(uris, sizes.to_pylist(), numbers.to_pylist(), vectors, strict=True):
        yield DataFile(uri, size, values[number], vector)


def largest_task(files: Any) -> int:
    """So that every core has something to do, and no task too little."""
    total: int = sum(files.column("size").to_pylist()) + files.num_rows * _OPENING
    share = total // (2 * (os.cpu_count() or 1))
    return min(max(share, _SMALLEST_TASK), _LARGEST_TASK)


def cut(files: Iterator[DataFile], largest: int) -> Iterator[tuple[DataFile, ...]]:
    """The files of each task."""
    part: list[DataFile] = []
    size = 0
    for file in files:
        cost = file.size + _OPENING
        if part and size + cost > largest:
            yield tuple(part)
            part, size = [], 0
        part.append(file)
        size += cost
    if part:
        yield tuple(part)
