"""A task's work: Parquet files as the rows that Spark was told of. It needs the files, and no catalog."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import InputPartition

from lakelog.errors import LakelogError
from lakelog.log.deletion_vectors import FileVector
from lakelog.parquet.footers import Places, is_rebased
from lakelog.schema.evolution.convert import apply
from lakelog.schema.evolution.projection import Parts, project
from lakelog.spark.read.partitions import canonical

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BATCH = 1 << 16
"""Rows at a time."""

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file, and its partition values as the catalog's texts."""

    uri: str
    size: int
    values: tuple[str | None, ...]
    vector: FileVector | None
    only: FileVector | None = None
    """If there is one: only those of its rows are read that the other one leaves."""


@dataclass(frozen=True)
class FilesToRead(InputPartition):
    """What one task reads: files that are read in the same way."""

    files: tuple[DataFile, ...]
    schema: pa.Schema
    """What to read them as, by the names that files use."""
    partition_columns: tuple[str, ...]
    """Those of ``schema`` whose values the catalog has."""
    columns: Parts
    """The columns that Spark was told of, out of these."""


def read_rows(part: FilesToRead) -> Iterator[pa.RecordBatch]:
    """Raises ``LakelogError`` for a file that is gone, is not the one that was committed, or cannot be read here."""
    places = Places()
    for file in part.files:
        try:
            with places.open(file.uri) as opened:
                deleted = _NONE if file.vector is None else file.vector.read(places.open)
                only = None if file.only is None else np.setdiff1d(file.only.read(places.open), deleted)
                yield from _rows(part, file, opened, deleted, only)
        except FileNotFoundError as error:
            message = f"{file.uri} is gone: it belongs to a version that was read too late, after a vacuum"
            raise LakelogError(message) from error


def _rows(
    part: FilesToRead, file: DataFile, opened: Any, deleted: "NDArray[np.int64]", only: "NDArray[np.int64] | None"
) -> Iterator[pa.RecordBatch]:
    if opened.size() != file.size:
        raise LakelogError(f"{file.uri} was committed with {file.size} bytes, and has {opened.size()}")
    # INT96 would not reach beyond the years of nanoseconds.
    parquet = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us")
    _check_calendar(file, parquet)
    needed = {each.source for each in part.columns if each.source is not None}
    wanted = [field for place, field in enumerate(part.schema) if place in needed]
    stored = [field for field in wanted if field.name not in part.partition_columns]
    names = {field.name.lower() for field in stored}
    chosen = [name for name in parquet.schema_arrow.names if name.lower() in names]
    constants = dict(zip(part.partition_columns, file.values, strict=True))
    first = 0
    for whole in parquet.iter_batches(batch_size=_BATCH, columns=chosen):
        batch = _without(whole, deleted, first) if only is None else _with(whole, only, first)
        first += whole.num_rows
        raw = pa.Table.from_batches([batch])
        found = dict(zip((field.name for field in stored), apply(project(list(raw.schema), stored), raw), strict=True))
        found |= {
            field.name: pa.repeat(typed_value(constants[field.name], field), batch.num_rows)
            for field in wanted
            if field.name in constants
        }
        yield from _as_told(part, found, batch.num_rows).to_batches()


def _without(batch: pa.RecordBatch, deleted: "NDArray[np.int64]", first: int) -> pa.RecordBatch:
    """The rows of a batch that are not deleted, by the file's index of its first row."""
    begin, end = np.searchsorted(deleted, [first, first + batch.num_rows])
    if begin == end:
        return batch
    kept = np.ones(batch.num_rows, np.bool_)
    kept[deleted[begin:end] - first] = False
    return batch.filter(pa.array(kept))


def _with(batch: pa.RecordBatch, only: "NDArray[np.int64]", first: int) -> pa.RecordBatch:
    """The rows of a batch that are named."""
    begin, end = np.searchsorted(only, [first, first + batch.num_rows])
    return batch.take(pa.array(only[begin:end] - first))


def _as_told(part: FilesToRead, found: dict[str, Any], rows: int) -> pa.Table:
    # A column that nobody needs is not read: its place stays, so that the others keep theirs.
    arrays = [found.get(field.name, pa.nulls(rows)) for field in part.schema]
    return apply(part.columns, pa.table(arrays, part.schema.names))


def typed_value(text: str | None, field: pa.Field) -> pa.Scalar:
    """A value out of the catalog's text for it."""
    kind = field.type
    if text is None:
        return pa.scalar(None, kind)
    if pa.types.is_floating(kind):
        # Infinity and exponents as Java writes them.
        return pa.scalar(float(text), kind)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(text), kind)
    return pa.scalar(canonical(text, field)).cast(kind)


def _check_calendar(file: DataFile, parquet: Any) -> None:
    """Spark moves ancient dates of old files to today's calendar, and pyarrow does not."""
    said = parquet.metadata.metadata or {}
    if not (is_rebased(parquet.metadata) or b"org.apache.spark.legacyINT96" in said):
        return
    columns = [parquet.schema.column(number) for number in range(len(parquet.schema))]
    if any(each.logical_type.type in ("DATE", "TIMESTAMP") or each.physical_type == "INT96" for each in columns):
        message = f"{file.uri} may have dates of the calendar of Spark 2: read the table with lakelog.read_dataset"
        raise LakelogError(message)
