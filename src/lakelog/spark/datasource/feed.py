"""The change feed through Spark's own door: its files, put together as the work of tasks.

What a commit did to a file is the same for all of its rows, as a partition value is, and is read as if it were one.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema

from lakelog.log.deletion_vectors import vectors_of
from lakelog.log.feeds.columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from lakelog.log.snapshot.file_groups import FileGroup
from lakelog.log.snapshot.snapshot import Snapshot, moment
from lakelog.schema.evolution.projection import Part, composed, convert_type, project
from lakelog.spark.datasource.rows import DataFile, FilesToRead
from lakelog.spark.datasource.scan import cut, data_files, largest_task
from lakelog.spark.read.manifest import uri_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_FIELDS = (
    pa.field(COMMIT_VERSION, pa.int64()),
    pa.field(COMMIT_TIMESTAMP, pa.timestamp("us", "UTC")),
    pa.field(CHANGE_TYPE, pa.string()),
)
"""Those that the catalog always has come first."""


def feed_schema(table: pa.Schema) -> pa.Schema:
    """The columns of a table's change feed."""
    version, timestamp, change = _FIELDS
    return pa.schema([*table, change, version, timestamp])


def feed_tasks(snapshot: Snapshot, location: str, files: Any, told: "StructType") -> list[FilesToRead]:
    """The work of reading files, as ``ChangeFeed.files`` gives them, under the schema that Spark was told."""
    metadata = snapshot.state.metadata
    target = project([*metadata.schema, *_FIELDS], list(to_arrow_schema(told, timezone="UTC")))
    largest = largest_task(files)
    found: list[FilesToRead] = []
    for group in snapshot.file_groups_as(metadata.schema, metadata.physical, files):
        first = len(group.schema)
        added = [
            Part(field, first + place, convert_type(field.type, field.type)) for place, field in enumerate(_FIELDS)
        ]
        columns = composed((*group.columns, *added), target)
        for each in _apart(group):
            is_told = each.files.column("change_type").null_count > 0
            constants = (
                (COMMIT_VERSION, COMMIT_TIMESTAMP) if is_told else (COMMIT_VERSION, COMMIT_TIMESTAMP, CHANGE_TYPE)
            )
            known = (*metadata.partition_columns, *constants)
            schema = pa.schema([*group.schema, *_FIELDS])
            parts = cut(_feed_files(each, location, metadata.partition_columns), largest)
            found += [FilesToRead(part, schema, known, columns) for part in parts]
    return found


def _apart(group: FileGroup) -> Iterator[FileGroup]:
    """Files that tell of each row what happened to it, and those of which the catalog knows it."""
    told = group.files.column("change_type").is_null()
    for mask in (told, pc.invert(told)):
        if pc.any(mask).as_py():
            yield replace(group, files=group.files.filter(mask))


def _feed_files(group: FileGroup, location: str, partition_columns: tuple[str, ...]) -> Iterator[DataFile]:
    files = group.files
    columns = (files.column(name).to_pylist() for name in ("commit_version", "commit_timestamp", "change_type"))
    only = files.select(["path", "row_count"]).append_column("deletion_vector", files.column("only_vector"))
    rows = zip(
        data_files(group, location, partition_columns), *columns, vectors_of(only, uri_of(location)), strict=True
    )
    for file, version, timestamp, change, vector in rows:
        told = (str(version), moment(timestamp).isoformat(), *([] if change is None else [change]))
        yield replace(file, values=(*file.values, *told), only=vector)
