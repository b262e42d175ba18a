"""``read_dataset``: a native DataFrame of exactly the files of one version."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.log.deletion_vectors import vectors_of
from lakelog.log.pruning.predicate import Everything, Predicate
from lakelog.log.snapshot.file_groups import TO_READ, FileGroup
from lakelog.log.snapshot.scan import Scan
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.schema.mapping import readable, without_mapping
from lakelog.schema.spark import to_spark
from lakelog.spark.errors import refusing, spark_door
from lakelog.spark.expressions import columns as converted
from lakelog.spark.expressions import quoted, spark_type
from lakelog.spark.frames import exact_days, session_for
from lakelog.spark.predicates.analysis import condition_of, empty_frame, is_connect, predicate_of
from lakelog.spark.predicates.determinism import parsed_once
from lakelog.spark.read.deleted_rows import without_deleted
from lakelog.spark.read.manifest import Files, metadata_path, read_files, uri_of
from lakelog.spark.read.partitions import Values, canonical, is_instant, partition_values, told_by_directories
from lakelog.storage.uris import WRITE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_FEW_TUPLES = 16
"""Partitions that are read one by one where directories do not tell them; more are joined by the files' names."""

_PLAIN = {
    pa.int32(): re.compile(r"-?(?:0|[1-9][0-9]*)"),
    pa.int64(): re.compile(r"-?(?:0|[1-9][0-9]*)"),
    pa.date32(): re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}"),
    pa.bool_(): re.compile(r"true|false"),
}
"""Texts of partition values that Spark reads in a directory's name just as it casts them."""

ROW_FILE, ROW_INDEX = "__lakelog_row_file", "__lakelog_row_index"
_FILE_PATH = "__lakelog_file_path"
_MARK = "lakelog"
_BY_FORMAT = re.compile(r"RelationV2\[.*\] lakelog$|^ *format: \"lakelog\"$", re.IGNORECASE | re.MULTILINE)


@spark_door
def read_dataset(
    lake: Engine,
    name: str,
    version: int | None = None,
    timestamp: datetime | str | int | None = None,
    where: "str | Column | None" = None,
    columns: Sequence[str] | None = None,
    *,
    spark: "SparkSession | None" = None,
) -> "DataFrame":
    """The rows of a dataset at its head, at a version, or as it was at a time.

    ``where`` is a condition in Spark's SQL or a Column: files that cannot hold a matching row are not read, and rows
    that do not match are not given. ``columns`` are names of columns, or paths such as ``place.x``.
    """
    dataset = lake.dataset(name)
    return read_snapshot(session_for(spark), dataset, dataset.snapshot(version, timestamp), where, columns)


def read_snapshot(
    spark: "SparkSession",
    dataset: Table,
    snapshot: Snapshot,
    where: "str | Column | None" = None,
    columns: Sequence[str] | None = None,
) -> "DataFrame":
    """The rows of a snapshot."""
    selected = None if columns is None else _selection(snapshot.schema, columns)
    where = parsed_once(spark, where)
    predicate: Predicate = Everything() if where is None else predicate_of(spark, snapshot.schema, where)
    frame = read_pruned(spark, dataset, snapshot, predicate)
    if where is not None:
        frame = frame.where(where)
    if selected is None:
        return frame
    with refusing("columns", repr(columns)):
        return frame.select(*selected)


def read_pruned(spark: "SparkSession", dataset: Table, snapshot: Snapshot, predicate: Predicate) -> "DataFrame":
    """The rows of all files of a snapshot that a predicate leaves. The plan remembers which version it reads."""
    frame = read_these(spark, dataset.location, snapshot, snapshot.files(predicate, columns=TO_READ))
    return frame.alias(f"{_MARK}-{_incarnation(dataset)}-{snapshot.version}")


def read_these(spark: "SparkSession", location: str, snapshot: Snapshot, files: Any) -> "DataFrame":
    """The rows of some files of a snapshot, as ``Snapshot.files`` gives them, under its schema."""
    if files.num_rows == 0:
        return described(empty_frame(spark, snapshot.schema), snapshot.schema)
    return described(_united(_Scan.of(spark, location, snapshot), snapshot, files), snapshot.schema)


def read_located(
    spark: "SparkSession", location: str, snapshot: Snapshot, files: Any, *, deleted: bool = False
) -> "DataFrame":
    """The same with where each row lies: ``ROW_FILE``, as Spark names the file, and ``ROW_INDEX`` in it.

    What is computed of these rows is not computed of deleted ones, for which it might fail. With ``deleted``, these
    are given, too, for a caller who leaves only few rows and then calls ``without_vectors``.
    """
    if files.num_rows == 0:
        nowhere = [F.lit(None).cast("string").alias(ROW_FILE), F.lit(None).cast("long").alias(ROW_INDEX)]
        return empty_frame(spark, snapshot.schema).select("*", *nowhere)
    return _united(replace(_Scan.of(spark, location, snapshot), located=True, deleted=deleted), snapshot, files)


def without_vectors(located: "DataFrame", location: str, files: Any) -> "DataFrame":
    """What deletion vectors leave of rows that tell where they lie in some of the files."""
    places = _files_in(location, files).places
    return without_deleted(located, ROW_FILE, ROW_INDEX, places, vectors_of(files, uri_of(location)))


def numbers_of(location: str, files: Any) -> dict[str, int]:
    """The rows of a table of files, by the paths that ``ROW_FILE`` has for them once ``plain_path`` has seen it."""
    return {metadata_path(place): number for number, place in enumerate(_files_in(location, files).places)}


def plain_path(path: str) -> str:
    """A file's path as Spark gives it, whose versions differ in the slashes of a local one."""
    return re.sub("^file:/+", "/", path)


def _united(scan: "_Scan", snapshot: Snapshot, files: Any) -> "DataFrame":
    metadata = snapshot.state.metadata
    groups = snapshot.file_groups_as(metadata.schema, metadata.physical, files)
    apart = groups if scan.deleted else (each for group in groups for each in _apart(group))
    parts = [part for each in apart for part in scan.parts(each)]
    return reduce(lambda one, other: one.union(other), parts)


@spark_door
def spark_scan(spark: "SparkSession | None", dataset: Table, snapshot: Snapshot, where: "str | Column") -> Scan:
    """What a read with a condition needs, as this session understands it."""
    return Scan(dataset.name, snapshot, condition_of(session_for(spark), snapshot.schema, where))


@spark_door
def count_rows(spark: "SparkSession | None", dataset: Table, snapshot: Snapshot, where: "str | Column | None") -> int:
    """How many rows match. Only files in which the catalog does not decide for every row are read."""
    session = session_for(spark)
    where = parsed_once(session, where)
    scan = Scan.of(dataset.name, snapshot, None) if where is None else spark_scan(session, dataset, snapshot, where)
    rows, undecided = scan.counted()
    if undecided.num_rows == 0:
        return rows
    frame = read_these(session, dataset.location, snapshot, undecided)
    with exact_days(session, snapshot.schema):
        return rows + (frame if where is None else frame.where(where)).count()


@spark_door
def version_of(frame: "DataFrame", dataset: Table | None = None) -> int | None:
    """The version that a DataFrame reads of a dataset, or of any; the oldest if there are several, None if none.

    It is found in the DataFrame's plan, so through whatever was done to it: filters, joins, views, ``cache()``. Not
    through a checkpoint, an RDD or a table that it was written to.
    """
    incarnation = r"[0-9a-f]{16}" if dataset is None else _incarnation(dataset)
    found = re.findall(rf"(?:SubqueryAlias `|alias: \"){_MARK}-{incarnation}-([0-9]+)", _plan_of(frame))
    return min(map(int, found), default=None)


def may_read(frame: "DataFrame", dataset: Table) -> bool:
    """Whether a DataFrame reads a dataset as far as its plan shows it. ``format("lakelog")`` may read any dataset."""
    return version_of(frame, dataset) is not None or _BY_FORMAT.search(_plan_of(frame)) is not None


def _plan_of(frame: Any) -> str:
    if is_connect(frame.sparkSession):
        return str(frame._plan.to_proto(frame.sparkSession.client))
    return str(frame._jdf.queryExecution().analyzed().toString())


def _incarnation(dataset: Table) -> str:
    """Names a table in all catalogs: its location is never another's."""
    return hashlib.blake2b(dataset.location.encode(), digest_size=8).hexdigest()


def _selection(schema: pa.Schema, columns: Sequence[str]) -> list[str]:
    """Columns as Spark names them. Raises ``ValidationError``."""
    names = {name.lower() for name in schema.names}
    return [quoted(name) if name.lower() in names else name for name in columns]


def described(frame: "DataFrame", schema: pa.Schema, besides: Sequence[str] = ()) -> "DataFrame":
    """The columns with their comments and what else the table says of them."""
    metadata = {field.name: field.metadata for field in to_spark(pa.schema(map(without_mapping, schema)))}
    if not any(metadata.values()):
        return frame
    return frame.select(
        *[
            F.col(quoted(name)).alias(name, metadata=found) if found else F.col(quoted(name))
            for name, found in metadata.items()
        ],
        *besides,
    )


def _apart(group: FileGroup) -> list[FileGroup]:
    """The files without deletion vectors, which are read as if there were none, and those with."""
    vectors = group.files.column("deletion_vector")
    if vectors.null_count in (0, len(vectors)):
        return [group]
    return [replace(group, files=group.files.filter(mask)) for mask in (vectors.is_null(), vectors.is_valid())]


@dataclass(frozen=True, slots=True)
class _Scan:
    """Reads groups of files. Partition values are the catalog's; directories are used where they say the same."""

    spark: "SparkSession"
    location: str
    version: int
    partition_columns: tuple[str, ...]
    """Physical names, as everywhere here."""
    located: bool = False
    """Whether each row tells where it lies."""
    deleted: bool = False
    """Whether rows are given that deletion vectors delete."""

    @classmethod
    def of(cls, spark: "SparkSession", location: str, snapshot: Snapshot) -> "_Scan":
        return cls(spark, location, snapshot.version, snapshot.state.metadata.partition_columns)

    def parts(self, group: FileGroup) -> "Iterator[DataFrame]":
        if not self.partition_columns:
            yield self._selected(group, self._native(group, group.files), {})
            return
        partitions = [group.schema.field(name) for name in self.partition_columns]
        numbers, values = partition_values(group.files.column("partition_values"), partitions)
        told = told_by_directories(group, partitions, numbers, values)
        if pc.any(told).as_py():
            yield self._from_directories(group, partitions, group.files.filter(told), values)
        others = pc.invert(told)
        if pc.any(others).as_py():
            yield from self._from_catalog(group, partitions, others, numbers, values)

    def _from_directories(
        self, group: FileGroup, partitions: Sequence[pa.Field], files: Any, values: Values
    ) -> "DataFrame":
        parsed = [pa.field(field.name, _parsed(field, values, index)) for index, field in enumerate(partitions)]
        frame = self._native(group, files, [*parsed, pa.field(WRITE, pa.string())])
        found = {field.name: F.col(quoted(field.name)) for field in partitions}
        for field in partitions:
            if is_instant(field):
                found[field.name] = F.concat(found[field.name], F.lit("Z"))
        return self._selected(group, frame, found)

    def _from_catalog(
        self, group: FileGroup, partitions: Sequence[pa.Field], mask: Any, numbers: Any, values: Values
    ) -> "Iterator[DataFrame]":
        files, numbers = group.files.filter(mask), numbers.filter(mask)
        distinct = pc.unique(numbers).to_pylist()
        if len(distinct) <= _FEW_TUPLES:
            for number in distinct:
                frame = self._native(group, files.filter(pc.equal(numbers, number)))
                texts = [canonical(text, field) for text, field in zip(values[number], partitions, strict=True)]
                literals = [F.lit(text).cast("string") for text in texts]
                yield self._selected(group, frame, dict(zip(self.partition_columns, literals, strict=True)))
        else:
            yield self._joined(group, partitions, files, [values[number] for number in numbers.to_pylist()])

    def _joined(self, group: FileGroup, partitions: Sequence[pa.Field], files: Any, values: Values) -> "DataFrame":
        """By the files' names. A name that is not found is an error where its values are needed, never a null."""
        names = [f"{_FILE_PATH}_{index}" for index in range(len(partitions))]
        places = self._files(files).places
        arrays = {_FILE_PATH: pa.array([metadata_path(place) for place in places], pa.string())}
        for index, (name, field) in enumerate(zip(names, partitions, strict=True)):
            arrays[name] = pa.array([canonical(row[index], field) for row in values], pa.string())
        known = F.broadcast(self.spark.createDataFrame(pa.table(arrays)).withColumn(f"{_FILE_PATH}_known", F.lit(True)))
        frame = self._native(group, files)
        # A column of the table may have the same name.
        place = frame.metadataColumn("_metadata").getField("file_path")
        path = F.regexp_replace(place, "^file:/+", "/").alias(_FILE_PATH)
        frame = frame.select(*[F.col(quoted(name)) for name in frame.columns], path).join(known, _FILE_PATH, "left")
        unknown = F.raise_error(F.concat(F.lit("the catalog has no partition values for "), F.col(_FILE_PATH)))
        found = {
            field.name: F.when(F.col(f"{_FILE_PATH}_known"), F.col(name)).otherwise(unknown.cast("string"))
            for name, field in zip(names, partitions, strict=True)
        }
        return self._selected(group, frame, found)

    def _native(self, group: FileGroup, files: Any, extra: Sequence[pa.Field] = ()) -> "DataFrame":
        fields = [readable(field) for field in group.schema if field.name not in self.partition_columns]
        schema = to_spark(pa.schema([*fields, *extra]))
        found = self._files(files)
        partitioned = bool(self.partition_columns and extra)
        frame = read_files(self.spark, schema, found, version=self.version, partitioned=partitioned)
        has_vectors = not self.deleted and files.column("deletion_vector").null_count == 0
        if self.located or has_vectors:
            # Also if the table has a column of that name.
            told = frame.metadataColumn("_metadata")
            where = [told.getField("file_path").alias(ROW_FILE), told.getField("row_index").alias(ROW_INDEX)]
            frame = frame.select(*[F.col(quoted(name)) for name in frame.columns], *where)
        if not has_vectors:
            return frame
        rows = without_vectors(frame, self.location, files)
        # Always true, but Spark does not know that it is always the same, and asks no other condition before it.
        return rows.where(F.spark_partition_id() >= 0) if self.located else rows.drop(ROW_FILE, ROW_INDEX)

    def _selected(self, group: FileGroup, frame: "DataFrame", texts: "Mapping[str, Column]") -> "DataFrame":
        return selected(group, frame, texts, (ROW_FILE, ROW_INDEX) if self.located else ())

    def _files(self, files: Any) -> Files:
        return _files_in(self.location, files)


def _files_in(location: str, files: Any) -> Files:
    return Files(location, files.column("path").combine_chunks(), files.column("size").combine_chunks())


def selected(
    group: FileGroup, frame: "DataFrame", texts: "Mapping[str, Column]", besides: Sequence[str] = ()
) -> "DataFrame":
    """The table's columns out of what was read of a group's files; texts are those of partition columns."""
    sources = [
        texts[field.name].cast(spark_type(field.type)) if field.name in texts else F.col(quoted(field.name))
        for field in group.schema
    ]
    return frame.select(*converted(group.columns, sources), *besides)


def _parsed(field: pa.Field, values: Values, index: int) -> pa.DataType:
    """What Spark makes of a partition column's directories: a text would have to be cast again for every row."""
    plain = _PLAIN.get(field.type)
    texts = [text for row in values if (text := row[index]) is not None]
    return field.type if plain is not None and all(map(plain.fullmatch, texts)) else pa.string()
