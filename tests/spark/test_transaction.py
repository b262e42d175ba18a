"""Several tables in one transaction: all of it at one instant, or nothing of it."""

# ruff: noqa: PT012  # it is the end of the block that raises, with all of it in view

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog import (
    CommitOutcomeUnknown,
    ConcurrencyError,
    Dataset,
    DatasetNotFoundError,
    Lake,
    LakelogError,
    ValidationError,
    VersionConflict,
    read_dataset,
    write_dataset,
)
from tests.invariants import check_invariants


@pytest.fixture
def tables(lake: Lake, spark: SparkSession) -> tuple[Dataset, Dataset]:
    """Orders that are to move to an archive, which has one."""
    write_dataset(lake, "orders", spark.range(10).selectExpr("id", "id % 2 AS done").coalesce(1))
    write_dataset(lake, "archive", spark.range(100, 101).selectExpr("id", "1L AS done"))
    return lake.dataset("orders"), lake.dataset("archive")


def ids(lake: Lake, name: str) -> list[int]:
    return sorted(row[0] for row in read_dataset(lake, name, columns=["id"]).collect())


def data_files(*datasets: Dataset) -> int:
    return sum(len(list(Path(dataset.location).rglob("*.parquet"))) for dataset in datasets)


def move(lake: Lake, **options: Any) -> Any:
    """Moves orders that are done to the archive."""
    with lake.transaction(**options) as tx:
        tx.write("archive", tx.read("orders", "done = 1"))
        tx.delete("orders", "done = 1")
    return tx


class TestTogether:
    def test_rows_move_between_tables_in_one_commit(self, lake: Lake, tables: tuple[Dataset, Dataset]) -> None:
        orders, archive = tables
        tx = move(lake, committer="mover", user_metadata="nightly")
        assert (ids(lake, "orders"), ids(lake, "archive")) == ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9, 100])
        assert {(each.table, each.version) for each in tx.results} == {("orders", 1), ("archive", 1)}
        newest = [dataset.history(1)[0] for dataset in (orders, archive)]
        assert {commit.commit_id for commit in newest} == {tx.commit_id}
        assert [commit.operation for commit in newest] == ["DELETE", "WRITE"]
        assert {commit.committer for commit in newest} == {"mover"}
        assert {each.table for each in lake.commit_status(str(tx.commit_id))} == {"orders", "archive"}
        check_invariants(lake)

    def test_every_verb_takes_part(self, lake: Lake, tables: tuple[Dataset, Dataset], spark: SparkSession) -> None:
        write_dataset(lake, "totals", spark.sql("SELECT 'orders' AS name, 10L AS rows"))
        with lake.transaction() as tx:
            tx.update("orders", {"done": "done + 10"}, "id < 2")
            source = tx.read("orders", "id >= 8").alias("s")
            tx.merge("archive", source, "t.id = s.id", alias="t").whenNotMatchedInsertAll().execute()
            tx.write("totals", spark.sql("SELECT 'orders' AS name, 8L AS rows"), "overwrite")
        assert ids(lake, "archive") == [8, 9, 100]
        assert read_dataset(lake, "totals").collect()[0]["rows"] == 8
        assert lake.dataset("orders").count("done >= 10") == 2
        assert lake.versions() == {"orders": 1, "archive": 1, "totals": 1}

    def test_reads_stay_at_the_moment_when_it_began(self, lake: Lake, tables: tuple[Dataset, Dataset]) -> None:
        orders, _ = tables
        with lake.transaction() as tx:
            orders.delete("id = 4")
            assert (tx.read("orders").count(), tx.versions["orders"]) == (10, 0)
            tx.delete("archive")
            assert tx.read("archive").count() == 0, "its own changes are seen inside"
            assert lake.dataset("archive").count() == 1, "and nowhere else before they are committed"
        assert (orders.count(), ids(lake, "archive")) == (9, [])

    def test_nothing_happens_where_nothing_was_changed(self, lake: Lake, tables: tuple[Dataset, Dataset]) -> None:
        with lake.transaction() as tx:
            tx.delete("orders", "id = 77")
        assert (tx.results, tx.commit_id, lake.dataset("orders").version) == ((), None, 0)


class TestAlone:
    """What ends without a commit leaves nothing, in no table and on no disk."""

    def test_an_error_in_the_block_undoes_everything(self, lake: Lake, tables: tuple[Dataset, Dataset]) -> None:
        before = data_files(*tables)
        with pytest.raises(ZeroDivisionError), lake.transaction() as tx:
            tx.write("archive", tx.read("orders"))
            tx.delete("orders", "id = 3")
            assert data_files(*tables) > before
            _ = 1 / 0
        assert (lake.versions(), data_files(*tables)) == ({"orders": 0, "archive": 0}, before)
        with pytest.raises(LakelogError, match="this transaction is rolled back"):
            tx.delete("orders")

    def test_a_conflict_on_one_table_undoes_all(self, lake: Lake, tables: tuple[Dataset, Dataset]) -> None:
        orders, archive = tables
        before = data_files(archive)
        with pytest.raises(ConcurrencyError, match="conflict on table 'orders'"), lake.transaction() as tx:
            tx.write("archive", tx.read("orders", "done = 1"))
            tx.delete("orders", "done = 1")
            orders.update({"done": "5"}, "id = 3")
        assert (archive.version, data_files(archive)) == (0, before)
        check_invariants(lake)

    def test_without_retries_any_other_commit_is_a_conflict(
        self, lake: Lake, tables: tuple[Dataset, Dataset], spark: SparkSession
    ) -> None:
        with pytest.raises(VersionConflict), lake.transaction(retries=0) as tx:
            tx.write("archive", tx.read("orders", "done = 1"))
            write_dataset(lake, "archive", spark.range(200, 201).selectExpr("id", "1L AS done"))

    def test_an_append_elsewhere_is_no_conflict(
        self, lake: Lake, tables: tuple[Dataset, Dataset], spark: SparkSession
    ) -> None:
        with lake.transaction() as tx:
            tx.write("archive", tx.read("orders", "done = 1"))
            tx.delete("orders", "done = 1 AND id < 10")
            write_dataset(lake, "archive", spark.range(200, 201).selectExpr("id", "1L AS done"))
            write_dataset(lake, "orders", spark.range(300, 301).selectExpr("id", "1L AS done"))
        assert ids(lake, "archive") == [1, 3, 5, 7, 9, 100, 200]
        assert ids(lake, "orders") == [0, 2, 4, 6, 8, 300]
        assert {each.version for each in tx.results} == {2}


class TestHeld:
    def test_what_was_read_may_change_unless_it_is_held(
        self, lake: Lake, tables: tuple[Dataset, Dataset], spark: SparkSession
    ) -> None:
        orders, archive = tables
        with lake.transaction() as tx:
            tx.write("archive", tx.read("orders", "id < 3"))
            orders.delete("id = 1")
        assert archive.version == 1
        with pytest.raises(ConcurrencyError, match="conflict on table 'orders'"), lake.transaction() as tx:
            tx.write("archive", tx.read("orders", "id < 3", hold=True))
            orders.delete("id = 2")
        with lake.transaction() as tx:
            tx.write("archive", tx.read("orders", "id < 3", hold=True))
            write_dataset(lake, "orders", spark.range(300, 301).selectExpr("id", "1L AS done"))
        assert (archive.version, orders.version) == (2, 3)
        check_invariants(lake)

    def test_two_that_hold_what_the_other_changes_cannot_both_pass(
        self, lake: Lake, tables: tuple[Dataset, Dataset]
    ) -> None:
        """Neither reads its own table, so without holding both would pass, and no order of the two explains it."""
        with pytest.raises(ConcurrencyError), lake.transaction() as tx:
            tx.write("archive", tx.read("orders", hold=True))
            with lake.transaction() as other:
                other.write("orders", other.read("archive", hold=True))
        assert lake.versions() == {"orders": 1, "archive": 0}


@pytest.mark.parametrize("backend", ["sqlite"])
class TestRefused:
    def test_a_table_exists_before(self, lake: Lake, tables: tuple[Dataset, Dataset], spark: SparkSession) -> None:
        message = "no dataset 'new' when the transaction began"
        with pytest.raises(DatasetNotFoundError, match=message), lake.transaction() as tx:
            tx.write("new", spark.range(1))

    def test_a_transaction_is_used_once_and_in_its_block(self, lake: Lake, tables: tuple[Dataset, Dataset]) -> None:
        tx = lake.transaction()
        with pytest.raises(LakelogError, match="use it inside its with block"):
            tx.read("orders")
        with tx:
            pass
        with pytest.raises(LakelogError, match="is committed: begin a new one"), tx:
            pass
        with pytest.raises(ValidationError, match="retries"):
            lake.transaction(retries=-1)

    @pytest.mark.parametrize("mode", ["error", "ignore", "whatever"])
    def test_a_mode_that_makes_no_sense_is_refused(
        self, lake: Lake, tables: tuple[Dataset, Dataset], spark: SparkSession, mode: str
    ) -> None:
        with pytest.raises(ValidationError, match="expected append or overwrite"), lake.transaction() as tx:
            tx.write("orders", spark.range(1), mode)


@pytest.mark.parametrize("backend", ["sqlite"])
def test_files_stay_when_nobody_knows_whether_they_are_committed(
    lake: Lake, tables: tuple[Dataset, Dataset], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = data_files(*tables)

    def lost(*arguments: Any, **options: Any) -> None:
        raise CommitOutcomeUnknown("00000000-0000-0000-0000-000000000000", ["orders"], "gone")

    monkeypatch.setattr(lake.committer, "commit", lost)
    with pytest.raises(CommitOutcomeUnknown), lake.transaction() as tx:
        tx.write("archive", tx.read("orders").withColumn("done", F.lit(1).cast("long")))
    assert data_files(*tables) > before
