"""A write's files: written by Spark into a directory of their own, and checked, before anything is committed."""

import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakelog.actions import Txn
from lakelog.errors import CommitOutcomeUnknown, LakelogError, SchemaMismatchError, Violation
from lakelog.log.state import TableMetadata
from lakelog.schema.leaves import join_path
from lakelog.schema.projection import Parts, project, renamed
from lakelog.spark.directories import NULL_DIRECTORY, partition_text, written_files
from lakelog.spark.expressions import columns as column_expressions
from lakelog.spark.expressions import field_id, nulls_in, quoted, with_field_ids
from lakelog.spark.footers import Harvest, harvest, harvest_in_spark

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_IN_SPARK = 2000
"""Files from which on Spark's tasks read the footers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    mode: str
    partition_by: tuple[str, ...] | None
    dynamic: bool
    replace_where: str | None
    retries: int
    txn: Txn | None
    user_metadata: str | None
    committer: str | None
    writer: Mapping[str, str]
    """Options of Spark's writer."""
    sort_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table as it will be."""

    location: str
    metadata: TableMetadata
    columns: Parts
    """The table's columns, by their logical names, out of the frame's."""


def matches(condition: str) -> "Column":
    return F.coalesce(F.expr(condition), F.lit(False))


class Stage:
    """A write's own directory. What is in it is nobody's until the commit, and goes if there was none."""

    def __init__(
        self, target: Target, frame: "DataFrame", options: WriteOptions, kept: "DataFrame | None" = None
    ) -> None:
        self._target = target
        self._frame = frame
        self._kept = kept
        self._options = options
        self._directory = f"__w={uuid.uuid4().hex}"

    def __enter__(self) -> "Stage":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        # After an interrupt or an unknown outcome the commit may stand.
        if isinstance(error, Exception) and not isinstance(error, CommitOutcomeUnknown):
            shutil.rmtree(Path(self._target.location) / self._directory, ignore_errors=True)

    def write(self) -> Harvest:
        """Writes the files and says what is in them."""
        metadata = self._target.metadata
        partitions = metadata.partition_columns
        sources = [F.col(quoted(name)) for name in self._frame.columns]
        rows = self._frame.select(*column_expressions(self._target.columns, sources))
        observation, rows = self._observed(rows)
        kept = Observation()
        if self._kept is not None:
            rows = rows.union(self._kept.observe(kept, F.count(F.lit(1)).alias("rows")))
        rows = rows.select(*self._physical(rows))
        if self._options.sort_by:
            rows = rows.sortWithinPartitions(*map(quoted, (*partitions, *self._options.sort_by)))
        writer = rows.write.options(**self._options.writer)
        if partitions:
            writer = writer.partitionBy(*partitions)
        place = f"{self._target.location}/{self._directory}"
        writer.parquet(place)
        self._check(observation.get)
        again = 0 if self._kept is None else kept.get["rows"]
        return self._harvest(observation.get["rows"], again)

    def _observed(self, rows: "DataFrame") -> tuple[Observation, "DataFrame"]:
        """The rows, with what has to be known about them counted while they are written."""
        counted = [F.count(F.lit(1)).alias("rows")]
        for number, field in enumerate(self._target.metadata.schema):
            value = F.col(quoted(field.name))
            broken = nulls_in(field, value)
            if broken is not None:
                counted.append(F.count_if(broken).alias(f"nulls {number}"))
            if field.name in self._target.metadata.action.partition_columns and pa.types.is_string(field.type):
                counted.append(F.count_if(value == NULL_DIRECTORY).alias(f"reserved {number}"))
        if self._options.replace_where is not None:
            counted.append(F.count_if(~matches(self._options.replace_where)).alias("outside 0"))
        observation = Observation()
        return observation, rows.observe(observation, *counted)

    def _check(self, counts: Mapping[str, int]) -> None:
        found = []
        for name, count in counts.items():
            what, _, number = name.partition(" ")
            if what == "rows" or not count:
                continue
            if what == "outside":
                message = f"{count} rows do not match {self._options.replace_where!r}, or match as NULL"
                found.append(Violation("replace_where", message))
                continue
            column = join_path([self._target.metadata.schema.field(int(number)).name])
            problem = "nulls where the table has NOT NULL" if what == "nulls" else f"the reserved text {NULL_DIRECTORY}"
            found.append(Violation(column, f"{count} rows with {problem}"))
        if found:
            raise SchemaMismatchError("values of the incoming data", found)

    def _physical(self, rows: "DataFrame") -> list["Column"]:
        """The columns as the files have them: by physical name, partitions as text."""
        metadata = self._target.metadata
        parts = renamed(project(list(metadata.schema), list(metadata.schema)), list(metadata.physical))
        named = column_expressions(parts, [F.col(quoted(name)) for name in rows.columns])
        columns = []
        for logical, field, column in zip(metadata.schema, metadata.physical, named, strict=True):
            if field.name in metadata.partition_columns:
                column = partition_text(logical).alias(field.name)
            elif metadata.mapped:
                column = column.cast(with_field_ids(field)).alias(field.name, metadata=field_id(field))
            columns.append(column)
        return columns

    def _harvest(self, rows: int, again: int) -> Harvest:
        metadata = self._target.metadata
        partitions = set(metadata.partition_columns)
        files = written_files(self._target.location, self._directory, metadata.partition_columns)
        data = pa.schema([field for field in metadata.physical if field.name not in partitions])
        indexed = [leaf for leaf in metadata.indexed if leaf.path[0] not in partitions]
        if len(files) < _IN_SPARK:
            found = harvest(files, data, indexed)
        else:
            found = harvest_in_spark(self._frame.sparkSession, files, data, indexed)
        if found.rows != rows + again:
            message = f"Spark wrote {rows + again} rows, and the files have {found.rows}: nothing was committed"
            raise LakelogError(message)
        return replace(_without_empty(found, self._target.location), rows=rows)


def _without_empty(found: Harvest, location: str) -> Harvest:
    """Spark writes a file without rows where there are none at all."""
    empty = pc.equal(found.adds.column("row_count"), 0)
    if not pc.any(empty).as_py():
        return found
    for path in found.adds.filter(empty).column("path").to_pylist():
        place = Path(location) / unquote(path)
        place.unlink()
        place.with_name(f".{place.name}.crc").unlink(missing_ok=True)
    return replace(found, adds=found.adds.filter(pc.invert(empty)))
