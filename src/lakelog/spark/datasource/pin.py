"""Which version a read is of. It is settled when Spark asks for the schema, and goes with it from then on."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lakelog.errors import DatasetNotFoundError
from lakelog.log.feeds.range import FeedRange, feed_range
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.schema.mapping import readable
from lakelog.schema.spark import to_spark
from lakelog.spark.datasource.feed import feed_schema
from lakelog.spark.datasource.options import Place, ReadOptions

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
    """The version that the options name, or the head. Of a change feed, the last one: all rows have its schema."""
    with options.place.connect(create=False) as lake:
        dataset = lake.dataset(options.place.table)
        if options.change_feed:
            snapshot = dataset.snapshot(_last(dataset, options))
            schema = feed_schema(snapshot.schema)
        else:
            snapshot = dataset.snapshot(options.version, options.timestamp)
            schema = snapshot.schema
        return Pin(table_id=dataset.id, version=snapshot.version, schema=pa.schema(map(readable, schema)))


def asked_changes(dataset: Table, options: ReadOptions, pin: Pin | None) -> FeedRange:
    """The commits of a batch read of the change feed, none of them later than its schema."""
    assert not isinstance(options.starting_version, str), "only a stream starts with the latest"
    last = options.ending_version
    if pin is not None and options.ending_timestamp is None:
        last = pin.version
    return feed_range(
        dataset,
        starting_version=options.starting_version,
        ending_version=last,
        starting_timestamp=options.starting_timestamp,
        ending_timestamp=options.ending_timestamp,
    )


def _last(dataset: Table, options: ReadOptions) -> int | None:
    """The last version that is asked for, where it is not the head. Only a batch read says so."""
    if options.ending_version is None and options.ending_timestamp is None:
        return None
    return asked_changes(dataset, options, None).last


def pinned_dataset(lake: Engine, place: Place, table_id: int | None) -> Table:
    """The table, if it is still the same one."""
    dataset = lake.dataset(place.table)
    if table_id is not None and dataset.id != table_id:
        message = f"dataset {place.table!r} was dropped and created again in the meantime: load it again"
        raise DatasetNotFoundError(message)
    return dataset
