"""The change feed through Spark's own door gives what ``read_changes`` gives, as a batch and as a stream."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakelog import Lake, ValidationError, connect, read_changes, read_dataset
from lakelog.spark import read_stream
from tests.fixtures.change_feed import KEPT, Change, ChangedTable, changes, removed
from tests.fixtures.door import BACKENDS, NAME, Door
from tests.fixtures.vectors import delete, inline

FEED = {"readChangeFeed": "true"}
PARTITIONED = pa.schema([("p", pa.string()), ("n", pa.int32()), ("s", pa.string())])
COPY = "copy"


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


on_every_catalog = pytest.mark.parametrize("backend", BACKENDS, indirect=True)


def filled(lake: Lake) -> ChangedTable:
    """A table with changes of each kind."""
    properties = {**KEPT, "delta.enableDeletionVectors": "true"}
    table = ChangedTable(lake, PARTITIONED, ["p"], properties, suffix=" é")
    first, second = table.add(("a/b", 1, "x"), ("a/b", 2, "y")), table.add((None, 3, "z"), (None, 4, "z"))
    table.commit(first, second)
    told = table.change(("a/b", 2, "y", "update_preimage"), ("a/b", 2, "Y", "update_postimage"))
    table.commit(removed(first), table.add(("a/b", 1, "x"), ("a/b", 2, "Y")), told)
    deleted = replace(second, deletion_vector=inline([0]))
    table.commit(removed(second), deleted)
    table.commit(removed(deleted), replace(second, deletion_vector=inline([1])))
    table.dataset.add_column("more", pa.float64())
    delete(lake, table.dataset, "n", {1})
    table.commit(removed(replace(second, deletion_vector=inline([1]))), table.add(("c", 9, "w", 0.5)))
    return table


def plain(frame: DataFrame) -> list[Change]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


class TestBatch:
    @on_every_catalog
    def test_it_is_what_read_changes_gives(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        table = filled(lake)
        frame, expected = door.read(**FEED, startingVersion=0), read_changes(lake, NAME, 0, spark=spark)
        assert frame.schema == expected.schema
        assert plain(frame) == plain(expected) != []
        times = [each.timestamp for each in reversed(table.dataset.history())]
        bounds = {"startingTimestamp": times[2].isoformat(), "endingTimestamp": times[3].isoformat()}
        frame = door.read(**FEED, **bounds)
        assert "more" not in frame.columns
        assert plain(frame) == plain(read_changes(lake, NAME, 2, 3)) != []

    def test_commits_after_the_load_are_not_in_it(self, lake: Lake, door: Door) -> None:
        table = filled(lake)
        frame = door.read(**FEED, startingVersion=2, endingVersion=99)
        expected = changes(read_changes(lake, NAME, 2))
        table.dataset.drop_column("s")
        table.commit(table.add(("d", 10, 1.0)))
        assert changes(frame) == expected

    def test_some_of_its_columns_by_a_schema(self, lake: Lake, door: Door) -> None:
        filled(lake)
        reader = door.spark.read.format("lakelog").options(**door.options, **FEED, startingVersion=6)
        found = reader.schema("_commit_version long, n int, _change_type string").load(NAME)
        assert sorted(map(tuple, found.collect())) == [(6, 1, "delete"), (7, 3, "delete"), (7, 9, "insert")]

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            (FEED, "startingVersion: is needed, or startingTimestamp"),
            ({**FEED, "startingVersion": "latest"}, "'latest' is for streams"),
            ({**FEED, "startingVersion": "9"}, "no version 9 to start with"),
            ({**FEED, "startingVersion": "1", "versionAsOf": "1"}, "versionAsOf: goes without readChangeFeed"),
            ({"startingVersion": "1"}, "startingVersion: goes with readChangeFeed"),
            ({"endingVersion": "1"}, "endingVersion: goes with readChangeFeed"),
            ({**FEED, "startingVersion": "2", "endingVersion": "1"}, "1 is before the starting version 2"),
        ],
    )
    def test_bounds_that_make_no_range_are_refused(
        self, lake: Lake, door: Door, options: dict[str, str], said: str
    ) -> None:
        table = ChangedTable(lake)
        table.commit(table.add((1, "a")))
        table.commit(table.add((2, "a")))
        with pytest.raises((AnalysisException, PySparkException), match=said):
            door.read(**options).collect()


class TestStream:
    def copy(self, door: Door, tmp_path: Path, **options: Any) -> None:
        """All changes that are there now, into another table."""
        frame = door.read_stream(**FEED, **options)
        door.write_stream(frame, str(tmp_path / "checkpoint"), COPY).awaitTermination()

    def test_the_table_as_it_is_is_inserted_and_then_changes_follow(
        self, lake: Lake, door: Door, tmp_path: Path
    ) -> None:
        table = ChangedTable(lake)
        first = table.add((1, "a"), (2, "b"))
        table.commit(first)
        table.commit(table.add((3, "c")))
        self.copy(door, tmp_path, maxFilesPerTrigger=1)
        told = [table.change((2, "b", "update_preimage")), table.change((2, "B", "update_postimage"))]
        table.commit(removed(first), table.add((1, "a"), (2, "B")), *told)
        table.commit(table.add((4, "d")))
        self.copy(door, tmp_path, maxFilesPerTrigger=1)
        expected = [(1, "a", "insert", 2), (2, "b", "insert", 2), (3, "c", "insert", 2)]
        expected += [(2, "b", "update_preimage", 3), (2, "B", "update_postimage", 3), (4, "d", "insert", 4)]
        assert changes(read_dataset(lake, COPY)) == sorted(expected, key=repr)
        assert len(lake.dataset(COPY).history()) == 4, "two files of the beginning, then a batch for each commit"

    def test_from_a_version_on_it_is_what_a_batch_gives(self, lake: Lake, door: Door, tmp_path: Path) -> None:
        filled(lake)
        self.copy(door, tmp_path, startingVersion=1)
        assert plain(read_dataset(lake, COPY)) == plain(read_changes(lake, NAME, 1)) != []

    def test_read_stream_gives_the_same(self, lake: Lake, door: Door, spark: SparkSession, tmp_path: Path) -> None:
        filled(lake)
        checkpoint = str(tmp_path / "checkpoint")
        stream = read_stream(lake, NAME, checkpoint=checkpoint, starting_version=1, read_change_feed=True, spark=spark)
        door.write_stream(stream, checkpoint, COPY).awaitTermination()
        assert plain(read_dataset(lake, COPY)) == plain(read_changes(lake, NAME, 1)) != []

    def test_read_stream_says_what_has_no_feed(self, spark: SparkSession, tmp_path: Path) -> None:
        with connect(f"duckdb:///{tmp_path}/catalog.duckdb") as lake:
            ChangedTable(lake, properties={})
            with pytest.raises(ValidationError) as refused:
                read_stream(
                    lake, NAME, checkpoint=str(tmp_path), read_change_feed=True, skip_change_commits=True, spark=spark
                )
        wrong = [(each.where, each.message.split()[0]) for each in refused.value.violations]
        assert wrong == [
            ("read_change_feed", "Spark's"),
            ("read_change_feed", f"{NAME!r}"),
            ("skip_change_commits", "leaves"),
        ]

    def test_what_comes_before_a_change_of_columns_is_told_and_a_restart_goes_on(
        self, lake: Lake, door: Door, tmp_path: Path
    ) -> None:
        table = ChangedTable(lake)
        frame = door.read_stream(**FEED, startingVersion=0)
        table.commit(table.add((1, "a")))
        table.dataset.rename_column("s", "t")
        table.commit(table.add((2, "b")))
        rows: list[Change] = []

        def run(stream: DataFrame) -> None:
            writer = stream.drop("_commit_timestamp").writeStream.option("checkpointLocation", str(tmp_path / "c"))
            batches = writer.foreachBatch(lambda batch, _: rows.extend(map(tuple, batch.collect())))
            batches.trigger(availableNow=True).start().awaitTermination()

        with pytest.raises(PySparkException, match=r"was changed after version 0, .*restart the query"):
            run(frame)
        assert rows == [(1, "a", "insert", 1)]
        run(door.read_stream(**FEED, startingVersion=0))
        assert rows == [(1, "a", "insert", 1), (2, "b", "insert", 3)]

    def test_a_table_that_keeps_no_changes_and_options_that_leave_some_out_are_refused(
        self, lake: Lake, door: Door, tmp_path: Path
    ) -> None:
        ChangedTable(lake, properties={})
        with pytest.raises(PySparkException, match=r"version 0: delta\.enableChangeDataFeed is not true"):
            self.copy(door, tmp_path)
        with pytest.raises(PySparkException, match="skipChangeCommits: goes without readChangeFeed"):
            self.copy(door, tmp_path, skipChangeCommits="true")
        with pytest.raises(PySparkException, match=r"endingVersion: is an option of spark\.read"):
            self.copy(door, tmp_path, startingVersion="0", endingVersion="1")
