"""A batch read: planned in the process where Spark plans, read by its tasks."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from lakelog.log.feeds.change_feed import ChangeFeed
from lakelog.log.snapshot.file_groups import TO_READ
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.spark.datasource.feed import feed_schema, feed_tasks
from lakelog.spark.datasource.options import Door, read_options
from lakelog.spark.datasource.pin import Pin, asked_changes, pinned_dataset
from lakelog.spark.datasource.rows import FilesToRead, read_rows
from lakelog.spark.datasource.scan import check_schema, tasks

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class BatchReader(DataSourceReader):
    """Reads one version: that of the schema, or, where the caller gave the schema, the one that the options name.
    Of a change feed that is the last one.

    It takes no filters from Spark, which up to 4.3 plans a source once for all queries of a DataFrame: the files that
    one filter leaves would be all that another one sees.
    """

    def __init__(self, options: Mapping[str, str], pin: Pin | None, schema: "StructType") -> None:
        self._options = read_options(options, Door.READ)
        self._pin = pin
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        options, pin = self._options, self._pin
        with options.place.connect(create=False) as lake:
            dataset = pinned_dataset(lake, options.place, None if pin is None else pin.table_id)
            if options.change_feed:
                return list(self._changes(lake, dataset))
            if pin is None:
                snapshot = dataset.snapshot(options.version, options.timestamp)
                check_schema(snapshot.schema, self._schema)
            else:
                snapshot = dataset.snapshot(pin.version)
            return list(tasks(snapshot, dataset.location, snapshot.files(columns=TO_READ), self._schema))

    def _changes(self, lake: Engine, dataset: Table) -> list[FilesToRead]:
        found = asked_changes(dataset, self._options, self._pin)
        snapshot = dataset.snapshot(found.last)
        if self._pin is None:
            check_schema(feed_schema(snapshot.schema), self._schema)
        if found.is_empty:
            return []
        files = ChangeFeed(lake.committer, dataset, snapshot).files(found.first, found.last)
        return feed_tasks(snapshot, dataset.location, files, self._schema)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        # Where there is nothing to read, Spark asks for that.
        return read_rows(partition) if isinstance(partition, FilesToRead) else iter(())
