"""A write's files: written by Spark into a directory of their own, and checked, before anything is committed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakelog.actions import CdcFile
from lakelog.changes.staging_directory import CHANGE_DATA, OwnDirectory
from lakelog.errors import LakelogError, SchemaMismatchError, ValidationError, Violation
from lakelog.log.feeds.columns import CHANGE_TYPE
from lakelog.log.state import TableMetadata
from lakelog.parquet.footers import Harvest, harvest
from lakelog.schema.evolution.projection import Parts, missing, project, renamed
from lakelog.schema.leaves import join_path
from lakelog.spark.expressions import columns as column_expressions
from lakelog.spark.expressions import field_id, nulls_in, quoted, with_field_ids
from lakelog.spark.frames import setting
from lakelog.spark.rules.enforce import broken_rules, filled
from lakelog.spark.write.directories import partition_value, written_files
from lakelog.spark.write.footers import harvest_in_spark
from lakelog.spark.write.options import WriteOptions
from lakelog.storage.hive import NULL_DIRECTORY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NEW = "__lakelog_new"
_COUNTED = "__lakelog_counted"
_OUTSIDE = "__lakelog_outside"
_IN_SPARK = 2000
"""Files from which on Spark's tasks read the footers."""

_SAMPLE = " sample"

_ADVISORY = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
_EXCLUDED = "spark.sql.adaptive.optimizer.excludedRules"
_EMPTY = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"
_SHUFFLED = 3
"""How much larger rows are in a shuffle than in a Parquet file, by experience."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The table as it will be."""

    location: str
    metadata: TableMetadata
    columns: Parts
    """The table's columns, by their logical names, out of the frame's."""


def matches(condition: "str | Column") -> "Column":
    """Whether a row matches; one that matches as NULL does not."""
    return F.coalesce(F.expr(condition) if isinstance(condition, str) else condition, F.lit(False))


class Stage:
    """Rows on their way into files of a write's own directory."""

    def __init__(
        self,
        own: OwnDirectory,
        target: Target,
        frame: "DataFrame",
        options: WriteOptions,
        kept: "DataFrame | None" = None,
        is_new: "Column | None" = None,
        counted: "Mapping[str, Column] | None" = None,
        where: "str | Column | None" = None,
    ) -> None:
        """``kept`` are rows that were in the table before, and are only moved: no rule is asked of them. Of rows in
        which both are mixed, ``is_new`` tells those that are not, by the frame's columns. ``counted`` are conditions,
        by the same columns: ``counts`` tells how many of the written rows matched each.

        All rows of ``frame`` have to match ``where``, which is the options' ``replace_where``, parsed once.
        """
        self.counts: dict[str, int] = {}
        self._own = own
        self._is_new = is_new
        self._asked = dict(counted or {})
        self._where = where
        self._target = target
        self._frame = frame
        self._kept = kept
        self._options = options
        self._check_target()
        self._rules = broken_rules(frame.sparkSession, target.metadata, missing(target.columns))

    def _check_target(self) -> None:
        """What is wrong is said before the first file is written."""
        known = self._file_names
        unknown = [name for name in self._options.sort_by if name.lower() not in known]
        if unknown:
            message = "is not a column of the table"
            raise ValidationError("sort_by", [Violation(repr(name), message) for name in unknown])

    @property
    def _file_names(self) -> dict[str, str]:
        """The names that files use for the table's columns, by their own without case."""
        metadata = self._target.metadata
        names = zip(metadata.schema.names, metadata.physical.names, strict=True)
        return {logical.lower(): physical for logical, physical in names}

    def write(self) -> Harvest:
        """Writes the files and says what is in them."""
        metadata = self._target.metadata
        partitions = metadata.partition_columns
        sources = [F.col(quoted(name)) for name in self._frame.columns]
        columns = column_expressions(self._target.columns, sources)
        if self._is_new is not None:
            columns.append(self._is_new.alias(_NEW))
        columns += [asked.alias(f"{_COUNTED}_{number}") for number, asked in enumerate(self._asked.values())]
        rows = self._frame.select(*columns)
        rows = filled(rows, metadata, missing(self._target.columns))
        if self._where is not None:
            # Its answer is a column, since what Spark counts must not have a correlated subquery.
            rows = rows.select("*", (~matches(self._where)).alias(_OUTSIDE))
        observation, kept = Observation(), Observation()
        counted, problems = self._counted()
        rows = rows.observe(observation, *counted).drop(_OUTSIDE)
        if self._kept is not None:
            rows = rows.union(self._kept.observe(kept, F.count(F.lit(1)).alias("rows")))
        rows = rows.select(*self._physical(rows))
        if self._options.target_file_size is not None:
            rows = rows.hint("rebalance", *map(quoted, partitions))
        if self._options.sort_by:
            chosen = [self._file_names[name.lower()] for name in self._options.sort_by]
            rows = rows.sortWithinPartitions(*map(quoted, (*partitions, *chosen)))
        if self._options.target_file_size is None:
            self._write_to(self._own.name, rows)
        else:
            spark = self._frame.sparkSession
            excluded = [*str(spark.conf.get(_EXCLUDED, None) or "").split(","), _EMPTY]
            # Where there are no rows at all, Spark would leave out the part of the plan that counts them.
            with (
                setting(spark, _ADVISORY, str(self._options.target_file_size * _SHUFFLED)),
                setting(spark, _EXCLUDED, ",".join(filter(None, dict.fromkeys(excluded)))),
            ):
                self._write_to(self._own.name, rows)
        counts = observation.get
        if found := [
            Violation(where, f"{counts[name]} {what}{_sample(counts, name)}")
            for name, (where, what) in problems.items()
            if counts[name]
        ]:
            raise SchemaMismatchError("values of the incoming data", found)
        self.counts = {name: int(counts[f"{_COUNTED}_{number}"]) for number, name in enumerate(self._asked)}
        return self._harvest(counts["rows"], 0 if self._kept is None else kept.get["rows"])

    def write_changes(self, changes: "DataFrame") -> list[CdcFile]:
        """Writes rows for the change feed: the table's columns, and in ``CHANGE_TYPE`` what happened to them."""
        directory = f"{CHANGE_DATA}/{self._own.name}"
        self._write_to(directory, changes.select(*self._physical(changes), CHANGE_TYPE))
        found = written_files(self._target.location, directory, self._target.metadata.partitions)
        return [
            CdcFile(path=file.path, size=file.size, partition_values=file.partition_values)
            for file in found
            if pq.read_metadata(file.place).num_rows
        ]

    def _write_to(self, directory: str, rows: "DataFrame") -> None:
        self._own.begin()
        writer = rows.write.options(**self._options.for_spark)
        if partitions := self._target.metadata.partition_columns:
            writer = writer.partitionBy(*partitions)
        writer.parquet(f"{self._target.location}/{directory}")

    def _counted(self) -> tuple[list["Column"], dict[str, tuple[str, str]]]:
        """What Spark counts while it writes, and what it means, and where, if that is not zero."""
        asked = [f"{_COUNTED}_{number}" for number in range(len(self._asked))]
        counted = [F.count(F.lit(1)).alias("rows"), *[F.count_if(F.col(name)).alias(name) for name in asked]]
        problems: dict[str, tuple[str, str]] = {}

        def count(condition: "Column", where: str, what: str, values: "Column | None" = None) -> None:
            name = f"problem {len(problems)}"
            problems[name] = (where, what)
            if self._is_new is not None:
                condition = F.col(_NEW) & condition
            counted.append(F.count_if(condition).alias(name))
            if values is not None:
                counted.append(F.first(F.when(condition, values), ignorenulls=True).alias(f"{name}{_SAMPLE}"))

        partitions = self._target.metadata.action.partition_columns
        for field in self._target.metadata.schema:
            value, where = F.col(quoted(field.name)), join_path([field.name])
            if (broken := nulls_in(field, value)) is not None:
                count(broken, where, "rows with nulls where the table has NOT NULL")
            if field.name in partitions and pa.types.is_string(field.type):
                count(value == NULL_DIRECTORY, where, f"rows with the reserved text {NULL_DIRECTORY}")
        if self._where is not None:
            message = f"rows do not match {self._options.replace_where!r}, or match as NULL"
            count(F.col(_OUTSIDE), "replace_where", message)
        for rule in self._rules:
            count(rule.condition, rule.where, rule.what, rule.values)
        return counted, problems

    def _physical(self, rows: "DataFrame") -> list["Column"]:
        """The columns as the files have them, by physical name; partitions as their directories say them."""
        metadata = self._target.metadata
        parts = renamed(project(list(metadata.schema), list(metadata.schema)), list(metadata.physical))
        named = column_expressions(parts, [F.col(quoted(name)) for name in rows.columns])
        columns = []
        for logical, field, column in zip(metadata.schema, metadata.physical, named, strict=True):
            if field.name in metadata.partition_columns:
                column = partition_value(logical).alias(field.name)
            elif metadata.mapped:
                column = column.cast(with_field_ids(field)).alias(field.name, metadata=field_id(field))
            columns.append(column)
        return columns

    def _harvest(self, rows: int, again: int) -> Harvest:
        metadata = self._target.metadata
        partitions = set(metadata.partition_columns)
        files = written_files(self._target.location, self._own.name, metadata.partitions)
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


def _sample(counts: Mapping[str, Any], name: str) -> str:
    """One of the rows that were counted, where its values were kept."""
    values = counts.get(f"{name}{_SAMPLE}")
    return f", one of them with {values}" if values else ""


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
