"""Several changes of one table in a transaction: each sees those before it, and all of them are one version."""

# ruff: noqa: PT012  # it is the end of the block that raises, with all of it in view

import json
import uuid
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import lakelog
from lakelog import ConcurrencyError, Dataset, Lake, LakelogError, ValidationError, read_dataset, write_dataset
from lakelog.changes.leases import take_back
from tests.fixtures.lakes import catalog_rows
from tests.invariants import check_invariants
from tests.spark.changing import BY_VECTORS, NAME, SCHEMA, conditions, make, numbered, plain, rows, rows_of, table_of

SOME = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
Change = tuple[str, Any]

_MERGE = """
    MERGE INTO t USING src ON t.id = src.id WHEN MATCHED AND src.k = 1 THEN DELETE
    WHEN MATCHED THEN UPDATE SET s = src.s WHEN NOT MATCHED THEN INSERT BY NAME *
"""

some_rows = st.lists(rows, min_size=1, max_size=4)
changes: st.SearchStrategy[Change] = st.one_of(
    st.tuples(st.just("delete"), conditions()),
    st.tuples(st.just("update"), conditions()),
    st.tuples(st.just("append"), some_rows),
    st.tuples(st.just("overwrite"), some_rows),
    st.tuples(st.just("merge"), st.lists(rows, max_size=4, unique_by=lambda row: row[0])),
)


class Oracle:
    """The same changes, one after the other, in DuckDB."""

    def __init__(self, table: pa.Table) -> None:
        self._database = duckdb.connect()
        self._database.register("given", table)
        self._database.execute("CREATE TABLE t AS SELECT * FROM given")

    def change(self, kind: str, what: Any) -> None:
        if isinstance(what, list):
            self._database.register("src", table_of(what))
        for statement in {
            "delete": [f"DELETE FROM t WHERE {what}"],
            "update": [f"UPDATE t SET s = 'new', k = k + 1 WHERE {what}"],
            "append": ["INSERT INTO t SELECT * FROM src"],
            "overwrite": ["DELETE FROM t", "INSERT INTO t SELECT * FROM src"],
            "merge": [_MERGE],
        }[kind]:
            self._database.execute(statement)

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((plain(row) for row in self._database.execute("SELECT * FROM t").fetchall()), key=repr)


def change(tx: Any, spark: SparkSession, kind: str, what: Any) -> None:
    frame = spark.createDataFrame(table_of(what)) if isinstance(what, list) else None
    match kind:
        case "delete":
            tx.delete(NAME, what)
        case "update":
            tx.update(NAME, {"s": "'new'", "k": "k + 1"}, what)
        case "append" | "overwrite":
            tx.write(NAME, frame, kind)
        case "merge":
            assert frame is not None
            merge = tx.merge(NAME, frame.alias("src"), "t.id = src.id", alias="t")
            merge = merge.whenMatchedDelete("src.k = 1").whenMatchedUpdate(set={"s": "src.s"})
            merge.whenNotMatchedInsertAll().execute()


@SOME
@given(
    files=st.lists(st.lists(rows, max_size=6), min_size=1, max_size=2),
    given=st.lists(changes, min_size=2, max_size=4),
    partitioned=st.booleans(),
    by_vectors=st.booleans(),
)
def test_each_change_sees_those_before_it(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[tuple[Any, ...]]],
    given: list[Change],
    partitioned: bool,
    by_vectors: bool,
) -> None:
    with lakelog.connect(f"sqlite:///{tmp_path_factory.mktemp('lake')}/{uuid.uuid4().hex}.db") as lake:
        properties = BY_VECTORS if by_vectors else None
        dataset = make(lake, spark, *files, partition_by=["k"] if partitioned else None, properties=properties)
        before = dataset.version
        oracle = Oracle(table_of([row for each in files for row in each]))
        with lake.transaction(spark=spark) as tx:
            for kind, what in given:
                change(tx, spark, kind, what)
                oracle.change(kind, what)
                assert sorted((plain(tuple(row)) for row in tx.read(NAME).collect()), key=repr) == oracle.rows
        assert rows_of(lake) == oracle.rows
        assert dataset.version - before == len(tx.results) <= 1
        check_invariants(lake)
        assert lake.check(NAME).findings == ()


def data_files(dataset: Dataset) -> list[str]:
    return sorted(map(str, Path(dataset.location).rglob("*.parquet")))


@pytest.fixture
def dataset(local: Lake, spark: SparkSession) -> Dataset:
    return make(local, spark, numbered(0, 10), numbered(10, 20))


def ids(lake: Lake, **options: Any) -> list[int]:
    return sorted(row[0] for row in rows_of(lake, **options))


def test_a_day_is_replaced(local: Lake, dataset: Dataset, spark: SparkSession) -> None:
    with local.transaction(committer="nightly", user_metadata="again") as tx:
        tx.delete(NAME, "k = 1")
        tx.write(NAME, spark.createDataFrame(table_of(numbered(12, 15))).coalesce(1))
    assert ids(local) == [*range(10), 12, 13, 14]
    entry = dataset.history(1)[0]
    assert (entry.version, entry.operation, entry.committer) == (2, "TRANSACTION", "nightly")
    said = entry.operation_parameters["changes"]
    assert [each["operation"] for each in said] == ["DELETE", "WRITE"]
    assert said[0]["operationMetrics"]["numDeletedRows"] == "10"
    assert entry.extra["userMetadata"] == "again"
    assert entry.extra["isBlindAppend"] is False
    dataset.mirror()
    last = max(Path(dataset.location, "_delta_log").glob("*.json")).read_text().splitlines()
    assert sum('"add"' in line for line in last) == sum('"remove"' in line for line in last) == 1
    check_invariants(local)


def test_appends_stay_an_append(local: Lake, dataset: Dataset, spark: SparkSession) -> None:
    with local.transaction() as tx:
        for number in (20, 30):
            tx.write(NAME, spark.createDataFrame(table_of(numbered(number, number + 1))))
        write_dataset(local, NAME, spark.createDataFrame(table_of(numbered(40, 41))))
    assert ids(local) == [*range(20), 20, 30, 40], "another append is not in the way"
    assert dataset.history(1)[0].extra["isBlindAppend"] is True


def test_what_comes_and_goes_again_was_never_there(local: Lake, dataset: Dataset, spark: SparkSession) -> None:
    with local.transaction() as tx:
        tx.write(NAME, spark.createDataFrame(table_of(numbered(20, 22))).coalesce(1))
        tx.update(NAME, {"s": "'new'"}, "id = 20")
        tx.delete(NAME, "id >= 20")
        tx.delete(NAME, "id = 3")
    assert ids(local) == [n for n in range(20) if n != 3]
    changes = dataset.changes(2, 2)
    assert (changes.added.num_rows, changes.removed.num_rows) == (1, 1)
    check_invariants(local)


def test_a_column_that_one_change_adds_is_there_for_the_next(
    local: Lake, dataset: Dataset, spark: SparkSession
) -> None:
    with local.transaction() as tx:
        frame = spark.createDataFrame(table_of(numbered(20, 22))).selectExpr("*", "7L AS more")
        tx.write(NAME, frame, schema_merge=True)
        tx.update(NAME, {"more": "id"}, "id % 10 = 0")
        tx.delete(NAME, "more = 7")
        assert tx.read(NAME, "more IS NOT NULL").count() == 3
    assert [row[4] for row in rows_of(local, where="more IS NOT NULL")] == [0, 10, 20]
    assert len(ids(local)) == 21
    check_invariants(local)


def test_a_conflict_with_any_of_the_changes_undoes_all(local: Lake, dataset: Dataset, spark: SparkSession) -> None:
    with pytest.raises(ConcurrencyError), local.transaction() as tx:
        tx.delete(NAME, "id = 1")
        tx.delete(NAME, "id = 11")
        dataset.delete("id = 12")
    assert ids(local) == [n for n in range(20) if n != 12]
    check_invariants(local)


def test_what_a_version_cannot_say_is_refused_and_nothing_stays(
    local: Lake, dataset: Dataset, spark: SparkSession
) -> None:
    before = len(list(Path(dataset.location).rglob("*.parquet")))
    more = spark.createDataFrame(table_of(numbered(20, 21)))
    message = "metadata: was changed by this transaction before"
    with pytest.raises(ValidationError, match=message), local.transaction() as tx:
        tx.write(NAME, more.selectExpr("*", "1 AS one"), schema_merge=True)
        tx.write(NAME, more.selectExpr("*", "1 AS one", "2 AS two"), schema_merge=True)
    with pytest.raises(ValidationError, match="txn etl: a version has one batch"), local.transaction() as tx:
        tx.write(NAME, more, txn_app_id="etl", txn_version=1)
        tx.write(NAME, more, txn_app_id="etl", txn_version=2)
    dataset.set_properties({"delta.enableChangeDataFeed": "true"})
    with pytest.raises(ValidationError, match="keeps a change feed"), local.transaction() as tx:
        tx.delete(NAME, "id = 1")
        tx.update(NAME, {"s": "'new'"})
    assert len(list(Path(dataset.location).rglob("*.parquet"))) == before
    assert ids(local) == list(range(20))


def test_a_change_after_one_that_found_nothing(local: Lake, dataset: Dataset) -> None:
    with local.transaction() as tx:
        tx.delete(NAME, "id = 99")
        tx.delete(NAME, "id = 1")
    assert dataset.history(1)[0].operation == "DELETE"
    assert json.loads(json.dumps(dict(dataset.history(1)[0].operation_parameters)))
    assert read_dataset(local, NAME).count() == 19
    assert SCHEMA.names == [field.name for field in dataset.schema()]


def test_what_comes_and_goes_again_alone_is_no_version(local: Lake, dataset: Dataset, spark: SparkSession) -> None:
    before = data_files(dataset)
    with local.transaction() as tx:
        tx.write(NAME, spark.createDataFrame(table_of(numbered(20, 22))).coalesce(1))
        tx.delete(NAME, "id >= 20")
    assert (dataset.version, tx.results, tx.commit_id) == (1, (), None)
    assert (data_files(dataset), catalog_rows(local)["dl_writes"]) == (before, [])


def test_a_change_that_is_refused_does_not_count(local: Lake, dataset: Dataset, spark: SparkSession) -> None:
    before = data_files(dataset)
    more = spark.createDataFrame(table_of(numbered(20, 21))).coalesce(1)
    with local.transaction() as tx:
        tx.write(NAME, more, txn_app_id="etl", txn_version=1)
        with pytest.raises(ValidationError, match="a version has one batch"):
            tx.write(NAME, more, txn_app_id="etl", txn_version=2)
    assert (ids(local), dataset.history(1)[0].operation) == ([*range(20), 20], "WRITE")
    assert len(data_files(dataset)) == len(before) + 1


def test_a_lease_that_was_taken_back_undoes_all(local: Lake, dataset: Dataset) -> None:
    with pytest.raises(LakelogError, match="is not registered any more"), local.transaction() as tx:
        for number in (1, 2, 3):
            tx.update(NAME, {"s": "'new'"}, f"id = {number}")
        taken = sorted(row["directory"] for row in catalog_rows(local)["dl_writes"])[1]
        assert take_back(local.committer, taken)
    assert (catalog_rows(local)["dl_writes"], dataset.version) == ([], 1)
    left = [path for path in data_files(dataset) if taken in str(path)]
    assert left, "only a vacuum may delete what somebody took back"


@pytest.mark.parametrize("properties", [{}, BY_VECTORS], ids=["copies", "vectors"])
@pytest.mark.parametrize("verb", ["delete", "update", "merge"])
def test_that_nothing_was_found_is_read_too(
    local: Lake, spark: SparkSession, verb: str, properties: dict[str, str]
) -> None:
    """Otherwise two that look for a key, find none and add it would both have added it."""
    make(local, spark, numbered(0, 5), properties=properties)
    row = spark.createDataFrame(table_of(numbered(77, 78)))
    with pytest.raises(ConcurrencyError, match="can hold rows that this commit read"), local.transaction() as tx:
        if verb == "delete":
            tx.delete(NAME, "id = 77")
        elif verb == "update":
            tx.update(NAME, {"s": "'x'"}, "id = 77")
        else:
            tx.merge(NAME, row.alias("n"), "t.id = n.id", alias="t").whenMatchedUpdateAll().execute()
        tx.write(NAME, row)
        write_dataset(local, NAME, row)
    assert [each[0] for each in rows_of(local)] == [0, 1, 2, 3, 4, 77]
    with local.transaction() as tx:
        tx.delete(NAME, "id = 78")
        tx.write(NAME, spark.createDataFrame(table_of(numbered(78, 79))))
        write_dataset(local, NAME, spark.createDataFrame(table_of(numbered(6, 7))))
    assert sorted(each[0] for each in rows_of(local)) == [0, 1, 2, 3, 4, 6, 77, 78], (
        "what it did not read is not in the way"
    )
    check_invariants(local)


def test_rows_that_come_and_go_again_leave_an_append_that_can_be_streamed(
    local: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    dataset = make(local, spark, numbered(0, 3), properties=BY_VECTORS)
    with local.transaction() as tx:
        tx.write(NAME, spark.createDataFrame(table_of(numbered(10, 15))).coalesce(1))
        tx.delete(NAME, "id = 12")
    added = dataset.changes(1, 1).added
    assert added.column("deletion_vector").null_count == added.num_rows > 0
    found: list[int] = []
    stream = lakelog.spark.read_stream(local, NAME, checkpoint=str(tmp_path / "c"), starting_version=1)
    query = (
        stream.writeStream.foreachBatch(lambda batch, _: found.extend(row.id for row in batch.collect()))
        .option("checkpointLocation", str(tmp_path / "c"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    assert sorted(found) == [10, 11, 13, 14]
    check_invariants(local)


def test_a_lost_race_is_one_whatever_the_transaction_did_to_partitions(local: Lake, spark: SparkSession) -> None:
    write_dataset(local, NAME, spark.sql("SELECT id, id % 2 AS p FROM range(4)"), partition_by=["p"])
    again = spark.sql("SELECT id, id % 3 AS q FROM range(4)")
    with pytest.raises(ConcurrencyError, match="read the whole table"), local.transaction() as tx:
        tx.write(NAME, again, mode="overwrite", overwrite_schema=True, partition_by=["q"])
        tx.write(NAME, again.where("q = 1"), mode="overwrite", partition_overwrite_mode="dynamic")
        write_dataset(local, NAME, spark.sql("SELECT 9L AS id, 1L AS p"))
