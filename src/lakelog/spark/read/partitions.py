"""Partition values out of the catalog, as Spark's own values."""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.catalog.stored import stored_json
from lakelog.log.snapshot.file_groups import FileGroup
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.spark.expressions import spark_type
from lakelog.spark.frames import aliased
from lakelog.spark.predicates.analysis import columns_read
from lakelog.storage.hive import NULL_DIRECTORY, directory_of
from lakelog.storage.uris import WRITE

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_NUMBER = "__lakelog_number"
_ZONED = re.compile(r".*[0-9:](?:Z|[+-][0-9]{2}:?[0-9]{2})")
_INSTANT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?Z")
_DATE = re.compile(r"[0-9]+-[0-9]+-[0-9]+")

Values: TypeAlias = Sequence[tuple[str | None, ...]]
"""Partition values as the catalog's texts; the empty text is null."""


def partition_values(values: Any, partitions: Sequence[pa.Field]) -> tuple[Any, Values]:
    """For each file the number of its partition, and their values."""
    encoded = values.combine_chunks().dictionary_encode()
    if isinstance(encoded, pa.ChunkedArray):
        encoded = encoded.combine_chunks()
    objects = [stored_json(text) for text in encoded.dictionary.to_pylist()]
    return encoded.indices, [tuple(found.get(field.name) or None for field in partitions) for found in objects]


def told_by_directories(group: FileGroup, partitions: Sequence[pa.Field], numbers: Any, values: Values) -> Any:
    """Which files lie where Spark finds just the catalog's values in their path."""
    names = {field.name.lower() for field in group.schema}
    if WRITE in names or any(pa.types.is_binary(field.type) for field in partitions):
        return pa.repeat(False, len(numbers))
    expected = [_directory(partitions, found) for found in values]
    directories = pc.replace_substring_regex(group.files.column("path").combine_chunks(), "/[^/]*$", "")
    pairs = pa.table({"directory": directories, "number": numbers})
    distinct = pairs.group_by(["directory", "number"]).aggregate([])
    told = []
    for directory, number in zip(distinct.column(0).to_pylist(), distinct.column(1).to_pylist(), strict=True):
        write, _, rest = unquote(directory).partition("/")
        told.append(write.startswith(f"{WRITE}=") and rest == expected[number])
    if all(told):
        return pa.repeat(True, len(numbers))
    good = distinct.filter(pa.array(told)).append_column("told", pa.repeat(True, sum(told)))
    rows = pairs.append_column("row", pa.array(range(len(numbers))))
    joined = rows.join(good, ["directory", "number"]).sort_by("row")
    return pc.fill_null(joined.column("told"), False).combine_chunks()


def _directory(partitions: Sequence[pa.Field], values: Sequence[str | None]) -> str | None:
    """The directories that stand for partition values, None if Spark would read something else out of them."""
    texts: dict[str, str | None] = {}
    for field, value in zip(partitions, values, strict=True):
        text = value
        if value and is_instant(field):
            text = _clock(value) if value.endswith("Z") else value
            if text is None or canonical(text, field) != f"{text}Z":
                return None
        if text == NULL_DIRECTORY:
            return None
        texts[field.name] = text
    return directory_of(texts)


def _clock(instant: str) -> str | None:
    """What a directory says of an instant; None if it is not written as we write it."""
    return instant[:-1].replace("T", " ") if _INSTANT.fullmatch(instant) else None


def canonical(text: str | None, field: pa.Field) -> str | None:
    """A text that Spark casts to the value that the catalog means, whatever the session's zone is."""
    if text is None or not is_instant(field) or _ZONED.fullmatch(text):
        return text
    return f"{text} 00:00:00Z" if _DATE.fullmatch(text) else f"{text}Z"


def is_instant(field: pa.Field) -> bool:
    return bool(pa.types.is_timestamp(field.type) and field.type.tz)


def files_matched_by_partition(
    spark: "SparkSession", snapshot: Snapshot, files: pa.Table, condition: "str | Column", alias: str | None = None
) -> Any:
    """The files whose rows all match a condition on nothing but partition columns; no row of the others does.

    None if it is on something else, so that rows have to be looked at.
    """
    metadata = snapshot.state.metadata
    columns = columns_read(spark, snapshot.schema, condition, alias)
    if columns is None or not columns.issubset(snapshot.metadata.partition_columns):
        return None
    fields = [metadata.physical.field(name) for name in metadata.partition_columns]
    numbers, values = partition_values(files.column("partition_values"), fields)
    arrays = {_NUMBER: pa.array(range(len(values)), pa.int64())}
    for index, field in enumerate(fields):
        arrays[f"{_NUMBER}_{index}"] = pa.array([canonical(row[index], field) for row in values], pa.string())
    typed = [
        F.col(f"{_NUMBER}_{index}").cast(spark_type(field.type)).alias(name)
        for index, (field, name) in enumerate(zip(fields, snapshot.metadata.partition_columns, strict=True))
    ]
    tuples = aliased(spark.createDataFrame(pa.table(arrays)).select(_NUMBER, *typed), alias)
    matched = tuples.where(condition).select(_NUMBER)
    found = pa.array([row[0] for row in matched.collect()], pa.int64())
    return files.filter(pc.is_in(numbers, value_set=found.cast(numbers.type)))
