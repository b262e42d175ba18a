"""A stream out of a table: its rows as they are when the stream starts, then those of each commit, or its changes."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from lakelog.errors import ConfigurationError, LakelogError
from lakelog.log.feeds.appends import FILES_PER_TRIGGER, Appends, are_partitioned_by, first_version
from lakelog.log.feeds.change_feed import ChangeFeed
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.spark.datasource.budget import Budget
from lakelog.spark.datasource.feed import feed_schema, feed_tasks
from lakelog.spark.datasource.options import Door, read_options
from lakelog.spark.datasource.pin import Pin, pinned_dataset
from lakelog.spark.datasource.rows import FilesToRead, read_rows
from lakelog.spark.datasource.scan import check_schema, tasks

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxFiles,
        SupportsTriggerAvailableNow,
    )
except ImportError as error:
    raise ConfigurationError("a stream out of a table needs pyspark 4.2 or later") from error

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True, kw_only=True)
class Offset:
    """How far a stream is: all versions before this one, and of this one so many files."""

    table: int
    version: int
    index: int
    initial: bool
    """Whether these are the files of the table as it was when the stream started, not those of a commit."""

    def after(self, files: int, of: int) -> "Offset":
        """After that many files of a version."""
        if files < of:
            return Offset(table=self.table, version=self.version, index=files, initial=self.initial)
        return Offset(table=self.table, version=self.version + 1, index=0, initial=False)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans in one process, which lives as long as the query. Tasks get a copy that was never used."""

    def __init__(self, options: Mapping[str, str], pin: Pin | None, schema: "StructType") -> None:
        self._options = read_options(options, Door.READ_STREAM)
        self._pin = pin
        self._schema = schema
        self._last: int | None = None
        self._lake: Engine | None = None
        self._begun: tuple[int, Any] = (-1, None)

    def initialOffset(self) -> dict[str, Any]:
        first = first_version(self._dataset, self._options.starting_version, self._options.starting_timestamp)
        start = Offset(
            table=self._dataset.id,
            version=self._dataset.version if first is None else first,
            index=0,
            initial=first is None,
        )
        return asdict(start)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_files is None and self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadMaxFiles(self._options.max_files or FILES_PER_TRIGGER)

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = self._dataset.version

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        begin = self._offset(start)
        budget = Budget(None, None)
        if not isinstance(limit, ReadAllAvailable):
            files = limit.max_files if isinstance(limit, ReadMaxFiles) else None
            budget = Budget(files, self._options.max_bytes)
        last = self._dataset.version if self._last is None else self._last
        reached, found = begin, 0
        try:
            for place, files in self._slices(begin, last):
                taken = budget.take(files.slice(place.index))
                if taken and self._options.change_feed and not place.initial:
                    # What a row was and what it became are not told in two batches.
                    taken = files.num_rows - place.index
                found += taken
                reached = place.after(place.index + taken, files.num_rows)
                if budget.is_spent:
                    break
        except LakelogError:
            # What comes before the commit that cannot be told is told first, under the schema that it was made under.
            if not (found and self._options.change_feed):
                raise
        # Commits without rows are not worth a batch; the next one with some passes them.
        return asdict(reached) if found else start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begin, until = self._offset(start), self._offset(end)
        last = until.version if until.index else until.version - 1
        found = []
        for place, files in self._slices(begin, last):
            stop = until.index if (place.version, place.initial) == (until.version, until.initial) else files.num_rows
            found.append(files.slice(place.index, stop - place.index))
        return list(self._tasks(pa.concat_tables(found))) if found else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_rows(partition) if isinstance(partition, FilesToRead) else iter(())

    def stop(self) -> None:
        if self._lake is not None:
            self._lake.close()

    @cached_property
    def _dataset(self) -> Table:
        self._lake = self._options.place.connect(create=False)
        return pinned_dataset(self._lake, self._options.place, None if self._pin is None else self._pin.table_id)

    @cached_property
    def _snapshot(self) -> Snapshot:
        """The version whose schema the stream has."""
        snapshot = self._dataset.snapshot(None if self._pin is None else self._pin.version)
        if self._pin is None:
            check_schema(feed_schema(snapshot.schema) if self._options.change_feed else snapshot.schema, self._schema)
        return snapshot

    @cached_property
    def _feed(self) -> ChangeFeed:
        dataset = self._dataset
        assert self._lake is not None, "it is opened with the dataset"
        return ChangeFeed(self._lake.committer, dataset, self._snapshot, strict=False)

    @cached_property
    def _appends(self) -> Appends:
        return Appends(
            self._dataset,
            ignore_deletes=self._options.ignore_deletes,
            skip_change_commits=self._options.skip_change_commits,
        )

    def _offset(self, found: dict[str, Any]) -> Offset:
        offset = Offset(**found)
        if offset.table != self._dataset.id:
            raise LakelogError(
                f"the checkpoint is of another table than {self._dataset.name!r} is now: it was dropped and created "
                "again, or the stream reads something else; start the query with a new checkpoint"
            )
        return offset

    def _slices(self, begin: Offset, last: int) -> Iterator[tuple[Offset, Any]]:
        """From an offset to the end of a version: where each version begins, and all of its files."""
        first = begin
        if begin.initial:
            yield begin, self._beginning(begin.version)
            first = begin.after(0, 0)
        self._begun = (-1, None)
        commits = self._feed.commits if self._options.change_feed else self._appends.commits
        for version, files in commits(first.version, last):
            index = first.index if version == first.version else 0
            yield Offset(table=begin.table, version=version, index=index, initial=False), files

    def _beginning(self, version: int) -> Any:
        """The files of the table as it was when the stream started, which may take many batches."""
        if not self._options.change_feed:
            return self._appends.snapshot(version)
        if self._begun[0] != version:
            self._begun = version, self._feed.start(version)
        return self._begun[1]

    def _tasks(self, files: Any) -> list[FilesToRead]:
        if not files.num_rows:
            return []
        if self._options.change_feed:
            return feed_tasks(self._snapshot, self._dataset.location, files, self._schema)
        known = self._snapshot.state.metadata.schema_version
        later = [version for version in files.column("schema_version").to_pylist() if version > known]
        if later or not are_partitioned_by(files, self._snapshot.state.metadata.partition_columns):
            raise LakelogError(
                f"the schema of {self._dataset.name!r} was changed after version {self._snapshot.version}, by which "
                "the stream reads: restart the query, and it goes on from where it is, under the new schema"
            )
        return tasks(self._snapshot, self._dataset.location, files, self._schema)
