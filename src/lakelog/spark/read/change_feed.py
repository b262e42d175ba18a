"""``read_changes``: the rows that commits inserted, updated and deleted, as a native DataFrame."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.log.deletion_vectors import vectors_of
from lakelog.log.feeds.change_feed import ChangeFeed
from lakelog.log.feeds.columns import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, FEED_COLUMNS
from lakelog.log.feeds.range import feed_range
from lakelog.log.snapshot.file_groups import FileGroup
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.opening.engine import Engine
from lakelog.schema.mapping import readable
from lakelog.schema.spark import to_spark
from lakelog.spark.errors import spark_door
from lakelog.spark.expressions import quoted
from lakelog.spark.frames import session_for
from lakelog.spark.predicates.analysis import empty_frame
from lakelog.spark.read.deleted_rows import by_index, deleted_indexes
from lakelog.spark.read.manifest import Files, names_of, read_files, uri_of
from lakelog.spark.read.partitions import canonical, partition_values
from lakelog.spark.read.read import described, selected

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame, SparkSession

_PATH, _ROW = "__lakelog_path", "__lakelog_row"
_NAME, _KEY, _UNIT = "__lakelog_name", "__lakelog_key", "__lakelog_unit"
_VALUE = "__lakelog_value"


@spark_door
def read_changes(
    lake: Engine,
    name: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: datetime | str | int | None = None,
    ending_timestamp: datetime | str | int | None = None,
    *,
    spark: "SparkSession | None" = None,
) -> "DataFrame":
    """The rows that the commits of a range changed: the table's columns, and what happened to each row.

    ``_change_type`` is ``insert``, ``delete``, ``update_preimage`` or ``update_postimage``, ``_commit_version`` and
    ``_commit_timestamp`` are those of the commit. Both ends of the range belong to it; without an end it reaches to the
    head. The schema is that of the last version: columns that were added since are null in older rows.

    Raises ``ValidationError`` if ``delta.enableChangeDataFeed`` was not true at each of these versions, or if a column
    was dropped, renamed or given another type among them; ``VersionNotFoundError`` for a start that lies outside of
    the table's history, and for times after its last commit.
    """
    dataset = lake.dataset(name)
    found = feed_range(
        dataset,
        starting_version=starting_version,
        ending_version=ending_version,
        starting_timestamp=starting_timestamp,
        ending_timestamp=ending_timestamp,
    )
    snapshot = dataset.snapshot(found.last)
    session = session_for(spark)
    if found.is_empty:
        return _nothing(session, snapshot)
    files = ChangeFeed(lake.committer, dataset, snapshot).files(found.first, found.last)
    return read_feed(session, dataset.location, snapshot, files)


def read_feed(spark: "SparkSession", location: str, snapshot: Snapshot, files: Any) -> "DataFrame":
    """The changes that are in files, as ``ChangeFeed.files`` gives them, under the schema of a snapshot."""
    if files.num_rows == 0:
        return _nothing(spark, snapshot)
    metadata = snapshot.state.metadata
    scan = _FeedScan(spark, location, snapshot.version, metadata.partition_columns)
    groups = snapshot.file_groups_as(metadata.schema, metadata.physical, files)
    parts = [scan.part(each) for group in groups for each in _apart(group)]
    united = reduce(lambda one, other: one.union(other), parts)
    return described(united, snapshot.schema, FEED_COLUMNS)


def _nothing(spark: "SparkSession", snapshot: Snapshot) -> "DataFrame":
    types = dict(zip(FEED_COLUMNS, ("string", "long", "timestamp"), strict=True))
    told = [F.lit(None).cast(kind).alias(name) for name, kind in types.items()]
    return described(empty_frame(spark, snapshot.schema).select("*", *told), snapshot.schema, FEED_COLUMNS)


def _apart(group: FileGroup) -> Iterator[FileGroup]:
    """Change files, files with all of their rows, those without deleted rows, and those with only some rows."""
    files = group.files
    told = files.column("change_type").is_null()
    only = files.column("only_vector").is_valid()
    without = pc.and_(files.column("deletion_vector").is_valid(), pc.invert(only))
    whole = pc.invert(pc.or_(pc.or_(told, only), without))
    for mask in (told, whole, without, only):
        if pc.any(mask).as_py():
            yield replace(group, files=files.filter(mask))


@dataclass(frozen=True, slots=True)
class _FeedScan:
    """Reads groups of files, each file once: what several commits did to it is joined to its rows by its name."""

    spark: "SparkSession"
    location: str
    version: int
    partition_columns: tuple[str, ...]
    """Physical names."""

    def part(self, group: FileGroup) -> "DataFrame":
        files = group.files
        is_told = files.column("change_type").null_count > 0
        fields = [readable(field) for field in group.schema if field.name not in self.partition_columns]
        if is_told:
            fields.append(pa.field(CHANGE_TYPE, pa.string()))
        frame = read_files(self.spark, to_spark(pa.schema(fields)), self._distinct(files), version=self.version)
        columns = [F.col(quoted(name)) for name in frame.columns]
        # Also if the table has a column of that name.
        told = frame.metadataColumn("_metadata")
        row, path = told.getField("row_index").alias(_ROW), told.getField("file_path").alias(_PATH)
        units, values = self._units(group)
        # By a number, which is found in half the time of a text; the texts are compared only then.
        rows = frame.select(*columns, row, path).join(F.broadcast(units), F.xxhash64(_PATH) == F.col(_KEY), "left")
        unknown = F.raise_error(F.concat(F.lit("the catalog has no commit that changed "), F.col(_PATH)))
        # Rows of a file that is not found would get lost, or have no version: neither may happen silently.
        rows = rows.where(F.when(F.col(_PATH) == F.col(_NAME), F.lit(True)).otherwise(unknown.cast("boolean")))
        rows = self._chosen(rows, files)
        silent = F.raise_error(F.concat(F.lit("a row has no type of change in "), F.col(_PATH)))
        change = F.coalesce(columns[-1], silent.cast("string")) if is_told else F.col(_VALUE)
        texts: dict[str, Column] = {name: F.col(value) for name, value in values.items()}
        besides = {
            CHANGE_TYPE: change,
            COMMIT_VERSION: F.col(f"{_VALUE}_version"),
            COMMIT_TIMESTAMP: F.timestamp_millis(f"{_VALUE}_timestamp"),
        }
        data = columns[:-1] if is_told else columns
        rows = rows.select(*data, *texts.values(), *[value.alias(name) for name, value in besides.items()])
        return selected(group, rows, texts, FEED_COLUMNS)

    def _distinct(self, files: Any) -> Files:
        paths, sizes = files.column("path").combine_chunks(), files.column("size").combine_chunks()
        _, firsts = np.unique(paths.to_numpy(zero_copy_only=False), return_index=True)
        places = pa.array(np.sort(firsts))
        return Files(self.location, paths.take(places), sizes.take(places))

    def _units(self, group: FileGroup) -> "tuple[DataFrame, Mapping[str, str]]":
        """What commits did to files, by the files' names, and the columns in it that have partition values."""
        files = group.files
        partitions = [group.schema.field(name) for name in self.partition_columns]
        numbers, values = partition_values(files.column("partition_values"), partitions)
        tuples = [values[number] for number in numbers.to_pylist()]
        places = Files(self.location, files.column("path").combine_chunks(), files.column("size").combine_chunks())
        names = [(name, unit) for unit, place in enumerate(places.places) for name in names_of(place)]
        units = pa.array([unit for _, unit in names], pa.int32())
        arrays = {
            _NAME: pa.array([name for name, _ in names], pa.string()),
            _UNIT: units,
            _VALUE: files.column("change_type").take(units),
            f"{_VALUE}_version": files.column("commit_version").take(units),
            f"{_VALUE}_timestamp": files.column("commit_timestamp").take(units),
        }
        columns = {}
        for index, field in enumerate(partitions):
            columns[field.name] = f"{_VALUE}_{index}"
            texts = pa.array([canonical(each[index], field) for each in tuples], pa.string())
            arrays[columns[field.name]] = texts.take(units)
        return self.spark.createDataFrame(pa.table(arrays)).select("*", F.xxhash64(_NAME).alias(_KEY)), columns

    def _chosen(self, rows: "DataFrame", files: Any) -> "DataFrame":
        """The rows that the deletion vectors leave, and of a file that stays those where its vectors differ."""
        if files.column("only_vector").null_count == 0:
            return by_index(rows, _UNIT, _ROW, self._differing(files), kept=True)
        if files.column("deletion_vector").null_count == 0:
            return by_index(rows, _UNIT, _ROW, self._indexes(files, "deletion_vector"), kept=False)
        return rows

    def _differing(self, files: Any) -> "list[NDArray[np.int64]]":
        pairs = zip(self._indexes(files, "only_vector"), self._indexes(files, "deletion_vector"), strict=True)
        return [np.setdiff1d(only, deleted, assume_unique=True) for only, deleted in pairs]

    def _indexes(self, files: Any, column: str) -> "list[NDArray[np.int64]]":
        """The rows that a column of vectors names for each file: none where there is no vector."""
        table = files.select(["path", "row_count"]).append_column("deletion_vector", files.column(column))
        vectors = vectors_of(table, uri_of(self.location))
        found = iter(deleted_indexes([vector for vector in vectors if vector is not None]))
        return [np.empty(0, np.int64) if vector is None else next(found) for vector in vectors]
