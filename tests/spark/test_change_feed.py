"""The change data feed: what each commit did to each row, and the same as another reader finds in the mirror."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from lakelog import Lake, ValidationError, VersionNotFoundError, read_changes, read_dataset, write_dataset
from lakelog.spark.read import change_feed
from tests.fixtures.change_feed import KEPT, ChangedTable, changes, delta_changes, removed
from tests.fixtures.door import NAME
from tests.fixtures.vectors import delete, inline, stored
from tests.invariants import check_invariants

pytestmark = pytest.mark.usefixtures("spark")

UPDATE = ("update_preimage", "update_postimage")


def test_a_commit_with_change_files_is_told_by_them_and_any_other_by_its_files(local: Lake) -> None:
    table = ChangedTable(local)
    first, second = table.add((1, "a"), (2, "b")), table.add((3, "c"))
    table.commit(first, second)
    after = table.add((1, "a"), (2, "B"))
    table.commit(removed(first), after, table.change((2, "b", UPDATE[0]), (2, "B", UPDATE[1])))
    table.commit(removed(second))
    table.commit(removed(after), table.add((7, "z")), operation="WRITE")
    expected = [
        (1, "a", "insert", 1),
        (2, "b", "insert", 1),
        (3, "c", "insert", 1),
        (2, "b", "update_preimage", 2),
        (2, "B", "update_postimage", 2),
        (3, "c", "delete", 3),
        (1, "a", "delete", 4),
        (2, "B", "delete", 4),
        (7, "z", "insert", 4),
    ]
    found = read_changes(local, NAME, 0)
    assert found.dtypes[-3:] == [
        ("_change_type", "string"),
        ("_commit_version", "bigint"),
        ("_commit_timestamp", "timestamp"),
    ]
    assert changes(found) == sorted(expected, key=repr) == delta_changes(table.dataset.location)
    assert changes(read_changes(local, NAME, 2, 3)) == sorted(expected[3:6], key=repr)
    assert read_changes(local, NAME, 1).count() == len(expected)
    check_invariants(local)


def test_times_are_those_of_the_commits(local: Lake) -> None:
    table = ChangedTable(local)
    table.commit(table.add((1, "a")))
    table.commit(table.change((1, "a", "delete")))
    found = read_changes(local, NAME, 0).selectExpr("_commit_version", "unix_millis(_commit_timestamp)").collect()
    known = {each.version: each.timestamp for each in table.dataset.history()}
    assert {row[0]: row[1] for row in found} == {v: round(known[v].timestamp() * 1000) for v in (1, 2)}


def test_a_file_that_was_added_and_removed_is_read_once(local: Lake) -> None:
    table = ChangedTable(local)
    files = [table.add((n, "x")) for n in range(40)]
    table.commit(*files)
    table.commit(*map(removed, files[:39]))
    found = read_changes(local, NAME, 0)
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert plan.count("FileScan parquet") == 1
    expected = [(n, "x", "insert", 1) for n in range(40)] + [(n, "x", "delete", 2) for n in range(39)]
    assert changes(found) == sorted(expected, key=repr)


def test_commits_that_change_no_data_give_nothing(local: Lake) -> None:
    table = ChangedTable(local)
    first, second = table.add((1, "a")), table.add((2, "b"))
    table.commit(first, second)
    compacted = table.add((1, "a"), (2, "b"), data_change=False)
    table.commit(removed(first, data_change=False), removed(second, data_change=False), compacted)
    table.configure(some_property="x")
    nothing = read_changes(local, NAME, 2)
    assert changes(nothing) == [] == delta_changes(table.dataset.location, 2)
    assert nothing.columns == ["n", "s", "_change_type", "_commit_version", "_commit_timestamp"]
    table.commit(removed(compacted))
    assert changes(read_changes(local, NAME, 2)) == [(1, "a", "delete", 4), (2, "b", "delete", 4)]


def test_a_merge_that_says_that_it_changed_no_row_gives_nothing(local: Lake) -> None:
    table = ChangedTable(local)
    first = table.add((1, "a"))
    table.commit(first)
    metrics = dict.fromkeys(("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted"), "0")
    moved = table.add((1, "a"))
    table.commit(removed(first), moved, operation="MERGE", extra={"operationMetrics": metrics})
    assert changes(read_changes(local, NAME, 2)) == []
    metrics["numTargetRowsDeleted"] = "1"
    table.commit(removed(moved), operation="MERGE", extra={"operationMetrics": metrics})
    assert changes(read_changes(local, NAME, 2)) == [(1, "a", "delete", 3)]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["a", "b=c/%20 é", None]),
        (pa.date32(), [date(2026, 1, 31), None]),
        (pa.int64(), [-5, *range(40)]),
    ],
    ids=["text", "date", "many"],
)
def test_partition_values_are_those_of_the_log(local: Lake, kind: pa.DataType, values: list[Any]) -> None:
    table = ChangedTable(local, pa.schema([("p", kind), ("n", pa.int64())]), ["p"], suffix=" é%20")
    files = [table.add((value, n)) for n, value in enumerate(values)]
    table.commit(*files)
    table.commit(removed(files[0]), *[table.change((value, n, "delete")) for n, value in enumerate(values)])
    table.commit(removed(files[1]))
    expected = [(value, n, "insert", 1) for n, value in enumerate(values)]
    expected += [(value, n, "delete", 2) for n, value in enumerate(values)]
    expected += [(values[1], 1, "delete", 3)]
    found = changes(read_changes(local, NAME, 0))
    assert found == sorted(expected, key=repr)
    check_invariants(local)


def test_partitions_are_those_that_another_reader_finds(local: Lake) -> None:
    table = ChangedTable(local, pa.schema([("n", pa.int64()), ("p", pa.string())]), ["p"])
    first = table.add((1, "a"), (2, "a"))
    table.commit(first, table.add((3, "b")))
    table.commit(removed(first), table.add((2, "a")), table.change((1, "a", "delete")))
    assert changes(read_changes(local, NAME, 0)) == delta_changes(table.dataset.location)


def test_rows_are_found_under_the_names_that_files_have(local: Lake) -> None:
    schema = pa.schema([("p", pa.string()), ("n", pa.int64()), ("old", pa.struct([("x", pa.int32())]))])
    table = ChangedTable(local, schema, ["p"], suffix=" é")
    before = table.add(("a", 1, {"x": 1}))
    table.commit(before)
    table.dataset.rename_column("n", "m")
    table.dataset.rename_column("p", "q")
    table.dataset.drop_column("old")
    head = table.dataset.add_column("m2", pa.int64())
    assert head is not None
    told = table.change(("a", 1, None, "delete"), ("a", 2, 5, "insert"))
    table.commit(removed(before), table.add(("a", 2, 5)), told)
    table.commit(table.add(("b", 3, None)))
    found = read_changes(local, NAME, head.version)
    assert found.columns[:3] == ["q", "m", "m2"]
    expected = [("a", 1, None, "delete", 6), ("a", 2, 5, "insert", 6), ("b", 3, None, "insert", 7)]
    assert changes(found) == expected


def test_columns_that_were_added_later_are_null_and_widened_ones_are_wide(local: Lake) -> None:
    table = ChangedTable(local, pa.schema([("n", pa.int32())]))
    first = table.add((1,))
    table.commit(first)
    table.commit(table.change((1, *UPDATE[:1]), (2, *UPDATE[1:])))
    table.dataset.add_column("s", pa.string())
    expected = [
        (1, None, "insert", 1),
        (1, None, "update_preimage", 2),
        (2, None, "update_postimage", 2),
        (1, None, "delete", 4),
        (5, "e", "insert", 4),
    ]
    table.commit(removed(first), table.add((5, "e")))
    location = table.dataset.location
    assert changes(read_changes(local, NAME, 0)) == sorted(expected, key=repr) == delta_changes(location)
    assert read_changes(local, NAME, 0, 2).columns[0:2] == ["n", "_change_type"]
    table.dataset.widen_column("n", pa.int64())
    table.commit(table.add((1 << 40, "w")), table.change((1 << 40, "w", "insert")))
    found = read_changes(local, NAME, 0)
    assert found.dtypes[0] == ("n", "bigint")
    assert changes(found) == sorted([*expected, (1 << 40, "w", "insert", 6)], key=repr)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda dataset: dataset.drop_column("s"), "s dropped"),
        (lambda dataset: dataset.rename_column("s", "t"), "t renamed: s to t"),
    ],
    ids=["dropped", "renamed"],
)
def test_a_range_over_an_incompatible_change_is_refused(local: Lake, change: Callable[[Any], Any], said: str) -> None:
    table = ChangedTable(local)
    table.commit(table.add((1, "a")))
    at = change(table.dataset).version
    with pytest.raises(ValidationError, match=f"after version 1: {said}"):
        read_changes(local, NAME, 1)
    assert changes(read_changes(local, NAME, at)) == []
    assert changes(read_changes(local, NAME, 1, at - 1)) == [(1, "a", "insert", 1)]


def test_a_table_that_was_replaced_by_another_kind_is_refused(local: Lake, spark: SparkSession) -> None:
    write_dataset(local, NAME, spark.sql("SELECT 1 AS n, 'a' AS s"), properties=KEPT)
    write_dataset(local, NAME, spark.sql("SELECT DATE'2026-01-01' AS n"), mode="overwrite", overwrite_schema=True)
    with pytest.raises(ValidationError, match="n retyped: int32 to date32"):
        read_changes(local, NAME, 0)
    with pytest.raises(ValidationError, match="files of schema version 0: n retyped"):
        read_changes(local, NAME, 1)


def test_an_overwrite_deletes_what_was_there_and_inserts_what_is_there_now(local: Lake, spark: SparkSession) -> None:
    rows = spark.sql("SELECT id AS n, id % 3 AS p FROM range(20)")
    write_dataset(local, NAME, rows, partition_by=["p"], properties=KEPT)
    write_dataset(local, NAME, rows.where("n < 5"), mode="overwrite")
    write_dataset(local, NAME, rows.where("n = 6"), mode="overwrite", partition_overwrite_mode="dynamic")
    found = changes(read_changes(local, NAME, 0))
    expected = [(n, n % 3, kind, v) for v, kind in enumerate(("insert", "delete")) for n in range(20)]
    expected += [(n, n % 3, "insert", 1) for n in range(5)]
    expected += [(0, 0, "delete", 2), (3, 0, "delete", 2), (6, 0, "insert", 2)]
    assert found == sorted(expected, key=repr) == delta_changes(local.dataset(NAME).location)


@pytest.mark.parametrize("in_log", [False, True], ids=["stored", "inline"])
def test_rows_that_a_deletion_vector_deletes_are_the_only_ones_that_are_gone(local: Lake, in_log: bool) -> None:
    table = ChangedTable(local, properties={**KEPT, "delta.enableDeletionVectors": "true"})
    files = [table.add(*[(n, "x") for n in range(start, start + 10)]) for start in (0, 10)]
    table.commit(*files)
    delete(local, table.dataset, "n", {1, 3, 15}, in_log=in_log)
    delete(local, table.dataset, "n", {3, 4}, in_log=in_log)
    expected = [(n, "x", "insert", 1) for n in range(20)]
    expected += [(n, "x", "delete", 2) for n in (1, 3, 15)]
    expected += [(4, "x", "delete", 3)]
    found = changes(read_changes(local, NAME, 0))
    assert found == sorted(expected, key=repr) == delta_changes(table.dataset.location)


def test_rows_that_a_restore_brings_back_are_inserts(local: Lake) -> None:
    table = ChangedTable(local, properties={**KEPT, "delta.enableDeletionVectors": "true"})
    whole = table.add(*[(n, "x") for n in range(6)])
    vectors = [inline([1, 2]), *stored(table.dataset.location, [2, 3])]
    states = [whole, *[replace(whole, deletion_vector=vector) for vector in vectors]]
    table.commit(whole)
    table.commit(removed(states[0]), states[1])
    table.commit(removed(states[1]), states[2])
    table.commit(removed(states[2]), states[0])
    table.commit(removed(states[0]), states[1])
    table.commit(removed(states[1]))
    expected = [(n, "x", "insert", 1) for n in range(6)]
    expected += [(1, "x", "delete", 2), (2, "x", "delete", 2)]
    expected += [(1, "x", "insert", 3), (3, "x", "delete", 3)]
    expected += [(2, "x", "insert", 4), (3, "x", "insert", 4)]
    expected += [(1, "x", "delete", 5), (2, "x", "delete", 5)]
    location = table.dataset.location
    assert changes(read_changes(local, NAME, 0, 5)) == sorted(expected, key=repr)
    assert sorted(expected, key=repr) == delta_changes(location, ending_version=5)
    # Here delta-rs 1.6.6 tells the rows that were deleted before.
    assert changes(read_changes(local, NAME, 6)) == [(n, "x", "delete", 6) for n in (0, 3, 4, 5)]


def test_inserts_minus_deletes_are_the_table(local: Lake, spark: SparkSession) -> None:
    rows = spark.sql("SELECT id AS n, cast(id AS string) AS s FROM range(30)")
    write_dataset(local, NAME, rows, properties={**KEPT, "delta.enableDeletionVectors": "true"})
    delete(local, local.dataset(NAME), "n", set(range(0, 30, 3)))
    write_dataset(local, NAME, rows.where("n > 25"))
    write_dataset(local, NAME, rows.where("n = 27"), mode="overwrite", replace_where="n = 27")
    local.dataset(NAME).add_column("more", pa.int32())
    feed = read_changes(local, NAME, 0)
    signed = feed.selectExpr("n", "s", "more", "IF(_change_type = 'insert', 1, -1) AS sign")
    counted = signed.groupBy("n", "s", "more").sum("sign").where("`sum(sign)` != 0").collect()
    table = read_dataset(local, NAME).groupBy("n", "s", "more").count().collect()
    assert sorted(map(tuple, counted)) == sorted(map(tuple, table))


class TestImported:
    """A table that another engine made, with the change files that it wrote."""

    @pytest.fixture
    def location(self, tmp_path: Path) -> str:
        location = str(tmp_path / "delta")
        rows = pa.table({"n": list(range(6)), "p": ["a", "b"] * 3})
        write_deltalake(location, rows, partition_by=["p"], configuration=KEPT)
        table = DeltaTable(location)
        table.update(predicate="n > 3", updates={"n": "n + 100"})
        table.delete("n = 1")
        merge = table.merge(pa.table({"n": [0, 50], "p": ["a", "c"]}), "s.n = t.n", "s", "t")
        merge.when_matched_delete().when_not_matched_insert_all().execute()
        write_deltalake(location, rows.slice(0, 2), mode="overwrite")
        table.update_incremental()
        table.optimize.compact()
        return location

    def test_its_feed_is_what_that_engine_reads(self, local: Lake, location: str) -> None:
        local.import_delta(location, NAME)
        found = changes(read_changes(local, NAME, 0))
        assert {row[2] for row in found} == {"insert", "delete", *UPDATE}
        assert found == delta_changes(location)
        assert changes(read_changes(local, NAME, 1, 3)) == delta_changes(location, 1, ending_version=3)

    def test_what_its_first_version_changed_is_not_known_without_its_history(self, local: Lake, location: str) -> None:
        local.import_delta(location, NAME, history=False)
        first = local.dataset(NAME).first_version
        assert first > 0
        with pytest.raises(VersionNotFoundError, match=f"imported as it was then: start with version {first + 1}"):
            read_changes(local, NAME, first)
        local.dataset(NAME).add_column("more", pa.int32())
        assert changes(read_changes(local, NAME, first + 1)) == []


def test_files_that_spark_names_otherwise_and_rows_that_tell_no_change_are_errors(
    local: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ChangedTable(local)
    table.commit(table.add((1, "a")))
    table.commit(table.change((1, "a", None)))
    with pytest.raises(PySparkException, match=r"no type of change in file:/.*\.parquet"):
        read_changes(local, NAME, 2).collect()
    monkeypatch.setattr(change_feed, "names_of", lambda place: [f"elsewhere:{place}"])
    with pytest.raises(PySparkException, match=r"no commit that changed file:/.*\.parquet"):
        read_changes(local, NAME, 0, 1).collect()


def test_a_file_that_is_gone_is_an_error(local: Lake) -> None:
    table = ChangedTable(local)
    told = table.change((1, "a", "delete"))
    table.commit(told)
    Path(table.dataset.location, told.path).unlink()
    with pytest.raises(PySparkException, match=r"PATH_NOT_FOUND|does not exist"):
        read_changes(local, NAME, 0).collect()


class TestRange:
    """Which commits are meant."""

    @pytest.fixture
    def table(self, local: Lake) -> ChangedTable:
        table = ChangedTable(local)
        for n in range(1, 4):
            table.commit(table.add((n, "x")))
        return table

    def times(self, table: ChangedTable) -> list[datetime]:
        return [each.timestamp for each in reversed(table.dataset.history())]

    def numbers(self, table: ChangedTable, **bounds: Any) -> list[int]:
        return sorted(row.n for row in read_changes(table.lake, NAME, **bounds).collect())

    def test_both_ends_belong_to_it(self, table: ChangedTable) -> None:
        times = self.times(table)
        assert self.numbers(table, starting_version=2, ending_version=2) == [2]
        assert self.numbers(table, starting_timestamp=times[1], ending_timestamp=times[2]) == [1, 2]
        assert self.numbers(table, starting_timestamp=times[2].isoformat(), ending_version=3) == [2, 3]
        assert self.numbers(table, starting_version=3, ending_timestamp=times[3]) == [3]

    def test_times_between_commits_mean_the_commits_between_them(self, table: ChangedTable) -> None:
        times, little = self.times(table), timedelta(microseconds=100)
        assert self.numbers(table, starting_timestamp=datetime(2000, 1, 1, tzinfo=UTC)) == [1, 2, 3]
        assert self.numbers(table, starting_timestamp=times[2], ending_timestamp=times[2] + little) == [2]
        close = times[1] + timedelta(milliseconds=1)
        if close < times[2]:
            assert self.numbers(table, starting_timestamp=close, ending_timestamp=close) == []

    def test_an_end_beyond_the_head_is_the_head(self, table: ChangedTable) -> None:
        assert self.numbers(table, starting_version=2, ending_version=99) == [2, 3]

    def test_a_start_beyond_the_head_is_refused(self, table: ChangedTable) -> None:
        with pytest.raises(VersionNotFoundError, match="no version 4 to start with: its versions are 0 to 3"):
            read_changes(table.lake, NAME, 4)

    @pytest.mark.parametrize("bound", ["starting_timestamp", "ending_timestamp"])
    def test_a_time_after_the_last_commit_is_refused(self, table: ChangedTable, bound: str) -> None:
        late = {bound: self.times(table)[-1] + timedelta(seconds=5)}
        start = {} if bound == "starting_timestamp" else {"starting_version": 0}
        with pytest.raises(VersionNotFoundError, match=f"{bound} .* is after the last commit of 'events', version 3"):
            read_changes(table.lake, NAME, **start, **late)

    @pytest.mark.parametrize(
        ("bounds", "said"),
        [
            ({}, "starting_version: is needed"),
            ({"starting_version": 1, "starting_timestamp": 5}, "goes without starting_timestamp"),
            ({"starting_version": 1, "ending_version": 2, "ending_timestamp": 5}, "goes without ending_timestamp"),
            ({"starting_version": -1}, "expected a version from 0 on, got -1"),
            ({"starting_version": "1"}, "expected a version from 0 on, got '1'"),
            ({"starting_version": 3, "ending_version": 2}, "2 is before the starting version 3"),
            ({"starting_timestamp": 9, "ending_timestamp": 8}, "8 is before starting_timestamp 9"),
        ],
    )
    def test_bounds_that_make_no_range_are_refused(
        self, table: ChangedTable, bounds: dict[str, Any], said: str
    ) -> None:
        with pytest.raises(ValidationError, match=said):
            read_changes(table.lake, NAME, **bounds)


class TestKept:
    """Whether the table kept its changes."""

    def test_a_table_without_a_feed_is_refused(self, local: Lake) -> None:
        table = ChangedTable(local, properties={})
        table.commit(table.add((1, "a")))
        with pytest.raises(ValidationError, match=r"version 1: delta\.enableChangeDataFeed is not true there"):
            read_changes(local, NAME, 1)

    def test_the_first_version_without_it_is_named_and_where_to_start_instead(self, local: Lake) -> None:
        table = ChangedTable(local)
        table.commit(table.add((1, "a")))
        off = table.configure(delta_enableChangeDataFeed="")
        on = table.configure(delta_enableChangeDataFeed="true")
        table.commit(table.add((2, "b")))
        with pytest.raises(ValidationError, match=f"version {off}: .* from 0 to 4 .* read from version {on} on"):
            read_changes(local, NAME, 0)
        assert changes(read_changes(local, NAME, on)) == [(2, "b", "insert", 4)]
        assert changes(read_changes(local, NAME, 0, off - 1)) == [(1, "a", "insert", 1)]

    def test_a_column_with_a_name_of_the_feed_is_refused(self, local: Lake, spark: SparkSession) -> None:
        """Before any row is computed, which would fail."""
        ChangedTable(local)
        rows = spark.sql("SELECT 1 AS n, 'a' AS s, CAST(raise_error('computed') AS STRING) AS _change_type")
        with pytest.raises(ValidationError, match="_change_type: this column of the table has the name of a column"):
            write_dataset(local, NAME, rows, schema_merge=True)
