"""Which version a read is of. It is settled when Spark asks for the schema, and goes with it from then on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelog.dataset import Dataset
from lakelog.errors import DatasetNotFoundError
from lakelog.lake import Lake
from lakelog.schema.mapping import readable
from lakelog.schema.spark import to_spark
from lakelog.spark.source.options import Place, ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """A version of one incarnation of a table."""

    table_id: int
    version: int
    schema: pa.Schema
    """As the rows are read: files need not keep a promise of NOT NULL, so nothing is said of it."""

    @property
    def spark_schema(self) -> "StructType":
        return to_spark(self.schema)


def pin(options: ReadOptions) -> Pin:
    """The version that the options name, or the head."""
    with options.place.connect(create=False) as lake:
        dataset = lake.dataset(options.place.table)
        snapshot = dataset.snapshot(options.version, options.timestamp)
        return Pin(table_id=dataset.id, version=snapshot.version, schema=pa.schema(map(readable, snapshot.schema)))


def pinned_dataset(lake: Lake, place: Place, table_id: int | None) -> Dataset:
    """The table, if it is still the same one."""
    dataset = lake.dataset(place.table)
    if table_id is not None and dataset.id != table_id:
        message = f"dataset {place.table!r} was dropped and created again in the meantime: load it again"
        raise DatasetNotFoundError(message)
    return dataset
