"""Deletion vectors that Lakelog writes: rows go while their files stay, for tables that ask for it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakelog import (
    ConcurrencyError,
    ConfigurationError,
    Dataset,
    Lake,
    SqlTxnLogWriter,
    ValidationError,
    read_changes,
    read_dataset,
    write_dataset,
)
from lakelog.actions import AddFile
from lakelog.spark.dml.delete import prepare_delete
from lakelog.spark.dml.verbs import options
from tests.interop.readers import rows_by_delta_rs, rows_by_duckdb
from tests.invariants import check_invariants
from tests.spark.changing import BY_VECTORS, NAME, make, numbered, rows_of

FEED = {**BY_VECTORS, "delta.enableChangeDataFeed": "true"}


def files(dataset: Dataset) -> dict[str, dict[str, Any]]:
    return {file["path"]: file for file in dataset.snapshot().files().to_pylist()}


def deleted(dataset: Dataset) -> dict[str, int]:
    """How many rows vectors delete, by the file."""
    return {
        path: json.loads(file["deletion_vector"])["cardinality"]
        for path, file in files(dataset).items()
        if file["deletion_vector"]
    }


def ids(lake: Lake, **options: Any) -> list[int]:
    return sorted(row[0] for row in rows_of(lake, **options))


def source_of(spark: SparkSession, *rows: tuple[Any, ...]) -> Any:
    return spark.createDataFrame(list(rows), "id long, s string").alias("n")


class TestDelete:
    def test_no_file_is_written_and_vectors_grow(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(10, 20), properties=BY_VECTORS)
        before = set(files(dataset))
        first = dataset.delete("id IN (3, 4, 17)").metrics
        assert set(files(dataset)) == before
        assert sorted(deleted(dataset).values()) == [1, 2]
        second = dataset.delete("id IN (5, 6)").metrics
        assert sorted(deleted(dataset).values()) == [1, 4]
        assert ids(local) == [n for n in range(20) if n not in (3, 4, 5, 6, 17)]
        added, updated = "numDeletionVectorsAdded", "numDeletionVectorsUpdated"
        assert (first["numDeletedRows"], first[added], first[updated], first["numRemovedFiles"]) == (3, 2, 0, 0)
        assert (second["numDeletedRows"], second[added], second[updated], second["numCopiedRows"]) == (2, 0, 1, 0)
        assert len(list(Path(dataset.location).rglob("*.parquet"))) == 2
        assert ids(local, version=2) == [n for n in range(20) if n not in (3, 4, 17)]
        check_invariants(local)
        assert local.check(NAME, deep=True).findings == ()

    def test_a_file_goes_when_its_last_row_does(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(10, 12), properties=BY_VECTORS)
        dataset.delete("id = 10")
        metrics = dataset.delete("id % 11 = 0").metrics
        assert (metrics["numRemovedFiles"], metrics["numDeletionVectorsRemoved"]) == (1, 1)
        assert (metrics["numDeletionVectorsAdded"], metrics["numDeletedRows"]) == (1, 2)
        assert ids(local) == list(range(1, 10))
        assert dataset.delete("id % 11 = 0").commit_id is None, "there is nothing left to delete"

    def test_only_a_table_that_asks_for_it_has_vectors(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10))
        dataset.delete("id = 3")
        assert deleted(dataset) == {}
        dataset.set_properties(BY_VECTORS)
        dataset.delete("id = 4")
        assert list(deleted(dataset).values()) == [1]
        dataset.set_properties({"delta.enableDeletionVectors": "false"})
        dataset.delete("id = 5")
        assert deleted(dataset) == {}
        assert ids(local) == [0, 1, 2, 6, 7, 8, 9]

    def test_a_file_whose_rows_nobody_has_counted_is_written_again(self, local: Lake, spark: SparkSession) -> None:
        schema = pa.schema([("id", pa.int64())])
        dataset = local.create_dataset(NAME, schema, properties=BY_VECTORS)
        Path(dataset.location).mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": range(5)}, schema), Path(dataset.location, "a.parquet"))
        from lakelog import SqlTxnLogWriter
        from lakelog.actions import AddFile

        size = Path(dataset.location, "a.parquet").stat().st_size
        SqlTxnLogWriter(local).commit(dataset.id, 1, [AddFile(path="a.parquet", size=size)])
        assert dataset.delete("id = 1").metrics["numCopiedRows"] == 4
        assert ids(local) == [0, 2, 3, 4]

    def test_it_is_refused_where_vectors_cannot_be_written(
        self, local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset = make(local, spark, numbered(0, 5), properties=BY_VECTORS)
        monkeypatch.setitem(sys.modules, "pyroaring", None)
        with pytest.raises(ConfigurationError, match=r"pip install 'lakelog\[delta\]'"):
            dataset.delete("id = 1")
        assert dataset.version == 0


class TestOthers:
    def test_an_update_puts_rows_into_a_file_of_their_own(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(10, 20), properties=BY_VECTORS)
        before = set(files(dataset))
        metrics = dataset.update({"s": "'new'"}, "id IN (3, 4, 17)").metrics
        assert (metrics["numUpdatedRows"], metrics["numCopiedRows"], metrics["numRemovedFiles"]) == (3, 0, 0)
        assert before < set(files(dataset))
        assert [row[0] for row in rows_of(local) if row[2] == "new"] == [17, 3, 4]
        assert len(ids(local)) == 20
        check_invariants(local)

    def test_a_merge_writes_only_rows_that_it_changes(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(10, 20), properties=BY_VECTORS)
        dataset.delete("id = 2")
        source = source_of(spark, (1, "m"), (2, "m"), (3, None), (12, "m"), (99, "m"))
        merge = dataset.merge(source, "t.id = n.id", alias="t")
        merge = merge.whenMatchedDelete("n.s IS NULL").whenMatchedUpdate(set={"s": "n.s"})
        metrics = merge.whenNotMatchedInsert(values={"id": "n.id", "s": "n.s"}).execute().metrics
        assert {name: metrics[f"numTargetRows{name}"] for name in ("Inserted", "Updated", "Deleted", "Copied")} == {
            "Inserted": 2,
            "Updated": 2,
            "Deleted": 1,
            "Copied": 0,
        }
        assert metrics["numTargetDeletionVectorsUpdated"] == metrics["numTargetDeletionVectorsAdded"] == 1
        assert sorted(deleted(dataset).values()) == [1, 3]
        assert sorted(row[0] for row in rows_of(local) if row[2] == "m") == [1, 2, 12, 99]
        assert len(ids(local)) == 20
        check_invariants(local)

    def test_every_verb_takes_part_in_a_transaction(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), properties=BY_VECTORS)
        write_dataset(local, "moved", read_dataset(local, NAME, where="id < 0"))
        with local.transaction() as tx:
            tx.write("moved", tx.read(NAME, "id < 3"))
            tx.delete(NAME, "id < 3")
        assert list(deleted(dataset).values()) == [3]
        assert len(ids(local)) + local.dataset("moved").count() == 10

    def test_a_column_moves_rows_to_another_partition(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 30), partition_by=["k"], properties=BY_VECTORS)
        dataset.update({"k": "9"}, "id = 5")
        assert [row[:2] for row in rows_of(local, where="k = 9")] == [(5, 9)]
        assert dataset.count("k = 0") == 9
        assert list(deleted(dataset).values()) == [1]


class TestFeed:
    """What the change feed says is the same, however rows are deleted."""

    CHANGES: tuple[Callable[[Dataset, SparkSession], Any], ...] = (
        lambda dataset, spark: dataset.delete("id IN (3, 14)"),
        lambda dataset, spark: dataset.delete("id >= 10"),
        lambda dataset, spark: dataset.update({"s": "'new'"}, "id < 2"),
        lambda dataset, spark: (
            dataset.merge(source_of(spark, (1, "m"), (4, None), (50, "m")), "t.id = n.id", alias="t")
            .whenMatchedDelete("n.s IS NULL")
            .whenMatchedUpdate(set={"s": "n.s"})
            .whenNotMatchedInsert(values={"id": "n.id", "s": "n.s"})
            .execute()
        ),
    )

    def test_it_says_what_it_says_of_files_that_are_written_again(self, local: Lake, spark: SparkSession) -> None:
        told = []
        for name, properties in (("one", FEED), ("two", {**FEED, "delta.enableDeletionVectors": "false"})):
            for rows in (numbered(0, 10), numbered(10, 20)):
                frame = spark.createDataFrame([row[:3] for row in rows], "id long, k int, s string").coalesce(1)
                exists = name in local.versions()
                write_dataset(local, name, frame, properties=None if exists else properties)
            for change in self.CHANGES:
                change(local.dataset(name), spark)
            feed = read_changes(local, name, 2).drop("_commit_timestamp").collect()
            told.append(sorted(map(tuple, feed), key=repr))
        assert told[0] == told[1]
        assert {row[-2] for row in told[0]} == {"delete", "insert", "update_preimage", "update_postimage"}


class TestLife:
    def test_other_readers_see_the_rows_that_are_left(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(10, 20), properties=BY_VECTORS)
        dataset.delete("id % 5 = 1")
        dataset.update({"s": "'new'"}, "id = 7")
        dataset.delete("id = 8")
        dataset.mirror()
        expected = sorted((row[0], row[2]) for row in rows_of(local))
        for reader in (rows_by_delta_rs, rows_by_duckdb):
            assert sorted((row["id"], row["s"]) for row in reader(dataset.location)) == expected
            found = reader(dataset.location, where="id >= 7 AND id < 12")
            assert sorted(row["id"] for row in found) == [row[0] for row in expected if 7 <= row[0] < 12]

    def test_conditions_find_what_is_left(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(10, 20), properties=BY_VECTORS)
        dataset.delete("id IN (0, 9, 10)")
        assert dataset.count() == 17
        assert dataset.count("id < 10") == 8
        assert dataset.count("id = 9") == 0
        assert ids(local, where="id > 8 AND id < 13") == [11, 12]
        assert dataset.snapshot().row_groups().num_rows == 2, "row groups stay with their files"
        said = [json.loads(file["stats"]) for file in files(dataset).values()]
        assert [(each["numRecords"], each["tightBounds"]) for each in said] == [(10, False)] * 2

    def test_time_travel_restoration_compaction_and_vacuum(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 100), properties=BY_VECTORS)
        for number in range(1, 4):
            dataset.delete(f"id % 10 = {number}")
        dataset.restore(2)
        assert len(ids(local)) == 80
        assert dataset.optimize().metrics["numDeletionVectorsRemoved"] == 1
        assert deleted(dataset) == {}
        assert len(ids(local)) == 80
        assert [len(ids(local, version=version)) for version in range(6)] == [100, 90, 80, 70, 80, 80]
        dataset.vacuum(0, force=True)
        assert list(Path(dataset.location).rglob("deletion_vector_*")) == []
        assert len(ids(local)) == 80
        assert local.check(NAME, deep=True).findings == ()

    def test_a_clone_goes_its_own_way(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), properties=BY_VECTORS)
        dataset.delete("id = 1")
        clone = local.clone(NAME, "clone", shallow=True)
        clone.delete("id = 2")
        dataset.delete("id = 3")
        assert ids(local) == [0, 2, 4, 5, 6, 7, 8, 9]
        assert sorted(row[0] for row in rows_of(local, "clone")) == [0, 3, 4, 5, 6, 7, 8, 9]
        check_invariants(local)

    def test_files_of_an_older_schema_are_still_found_by_their_bounds(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(10, 20), properties=BY_VECTORS)
        write_dataset(local, NAME, spark.sql("SELECT 30L AS id, 1 AS more"), schema_merge=True)
        dataset.delete("id IN (3, 13)")
        snapshot = dataset.snapshot()
        assert [snapshot.files(f"id = {number}").num_rows for number in (1, 11, 30, 99)] == [1, 1, 1, 0]
        assert ids(local) == [n for n in (*range(20), 30) if n not in (3, 13)]
        assert local.check(NAME).findings == ()


class TestConditions:
    """A condition that fails for a row is not asked about one that is deleted, whatever Spark's optimizer prefers."""

    @pytest.fixture
    def dataset(self, local: Lake, spark: SparkSession) -> Dataset:
        frame = spark.range(40).selectExpr("id", "id % 5 AS k", "IF(id % 5 = 0, 'x', CAST(id AS STRING)) AS s")
        write_dataset(local, NAME, frame.coalesce(1), properties=FEED)
        local.dataset(NAME).delete("k = 0")
        return local.dataset(NAME)

    def test_of_a_change(self, dataset: Dataset) -> None:
        assert dataset.delete("10 / k > 9").metrics["numDeletedRows"] == 8
        assert dataset.update({"s": "'new'"}, "10 / k > 4").metrics["numUpdatedRows"] == 8

    @pytest.mark.parametrize("rows", [40, 2])
    @pytest.mark.parametrize("condition", ["t.id = n.id AND 10 / t.k > 9", "CAST(t.s AS INT) = n.id AND t.k = 1"])
    def test_of_a_merge(self, dataset: Dataset, spark: SparkSession, condition: str, rows: int) -> None:
        source = spark.range(1, 1 + rows).selectExpr("id", "'m' AS s").alias("n")
        merge = dataset.merge(source, condition, alias="t")
        metrics = merge.whenMatchedUpdate("10 / t.k > 0", set={"s": "n.s"}).execute().metrics
        assert metrics["numTargetRowsUpdated"] == (8 if rows == 40 else 1)

    def test_of_a_merge_by_a_subquery(self, dataset: Dataset, local: Lake, spark: SparkSession) -> None:
        read_dataset(local, NAME).createOrReplaceTempView("marked")
        assert dataset.delete("id IN (SELECT id + 1 FROM marked WHERE k = 1)").metrics["numDeletedRows"] == 8


class TestTogether:
    @pytest.mark.parametrize(("other", "passes"), [("id = 2", False), ("id = 12", True)])
    def test_a_delete_from_the_same_file_is_in_the_way(
        self, local: Lake, spark: SparkSession, other: str, passes: bool
    ) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(10, 20), properties=BY_VECTORS)
        prepared = prepare_delete(dataset, dataset.snapshot(), "id = 1", options(3, None, None), spark)
        dataset.delete(other)
        if passes:
            prepared.commit(local, 3)
            assert 1 not in ids(local)
        else:
            with pytest.raises(ConcurrencyError):
                prepared.commit(local, 3)
            assert 1 in ids(local)
            assert len(list(Path(dataset.location).rglob("deletion_vector_*"))) == 1, "what was written is gone"
        check_invariants(local)


class TestDense:
    """Where the source has many rows for each file, one join finds the matches with all their columns."""

    def test_a_merge_of_many_rows_gives_the_same(self, local: Lake, spark: SparkSession) -> None:
        found = []
        for name, properties in (("vectors", BY_VECTORS), ("copies", None)):
            frame = spark.range(1000).selectExpr("id", "id % 4 AS k", "CAST(id AS STRING) AS s").coalesce(2)
            write_dataset(local, name, frame, properties=properties)
            local.dataset(name).delete("id % 7 = 0")
            source = spark.range(400, 1600, 3).selectExpr("id", "id % 5 AS k", "'m' AS s").alias("n")
            merge = local.dataset(name).merge(source, "t.id = n.id", alias="t")
            merge = merge.whenMatchedDelete("n.k = 0").whenMatchedUpdate("n.k < 3", set={"s": "n.s", "k": "t.k + n.k"})
            result = merge.whenNotMatchedInsertAll().execute()
            rows = sorted(map(tuple, read_dataset(local, name).collect()))
            metrics = {key: value for key, value in result.metrics.items() if key.startswith("numTargetRows")}
            found.append((rows, metrics | {"numTargetRowsCopied": 0}))
        assert found[0] == found[1]

    @pytest.mark.parametrize("op", ["D", "U", "I"])
    def test_clauses_that_nobody_needs_this_time(self, local: Lake, spark: SparkSession, op: str) -> None:
        dataset = make(local, spark, numbered(0, 40), numbered(40, 80), partition_by=["k"], properties=BY_VECTORS)
        dataset.add_constraint("small", "id < 1000")
        dataset.delete("id = 7")
        start = 200 if op == "I" else 0
        source = spark.range(start, start + 80).selectExpr("id", f"'{op}' AS op").alias("n")
        merge = dataset.merge(source, "t.id = n.id", alias="t")
        merge = merge.whenMatchedDelete("n.op = 'D'").whenMatchedUpdate("n.op = 'U'", set={"s": "'m'"})
        metrics = merge.whenNotMatchedInsert("n.op = 'I'", values={"id": "n.id"}).execute().metrics
        counted = [metrics[f"numTargetRows{name}"] for name in ("Deleted", "Updated", "Inserted")]
        assert counted == [79 * (op == "D"), 79 * (op == "U"), 80 * (op == "I")]
        assert len(ids(local)) == {"D": 0, "U": 79, "I": 159}[op]

    def test_few_rows_do_not_become_many_files(self, local: Lake, spark: SparkSession) -> None:
        frame = spark.range(0, 400, 1, 8).selectExpr("id", "id % 2 AS k", "'old' AS s")
        write_dataset(local, NAME, frame, partition_by=["k"], properties=BY_VECTORS)
        source = spark.range(0, 800, 2).selectExpr("id", "id % 4 DIV 2 AS k", "'m' AS s").alias("n")
        merge = local.dataset(NAME).merge(source, "t.id = n.id", alias="t")
        metrics = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute().metrics
        assert (metrics["numTargetRowsUpdated"], metrics["numTargetRowsInserted"]) == (200, 200)
        assert metrics["numTargetFilesAdded"] == 2, "one in each partition"
        metrics = local.dataset(NAME).update({"s": "'u'"}, "id % 3 = 0").metrics
        assert metrics["numAddedFiles"] == 2

    @pytest.mark.parametrize("deletes", [True, False])
    def test_several_matches_are_an_error_unless_all_they_do_is_delete(
        self, local: Lake, spark: SparkSession, deletes: bool
    ) -> None:
        dataset = make(local, spark, numbered(0, 10), properties=BY_VECTORS)
        source = spark.range(20).selectExpr("id % 5 AS id").alias("n")
        merge = dataset.merge(source, "t.id = n.id", alias="t")
        if deletes:
            assert merge.whenMatchedDelete().execute().metrics["numTargetRowsDeleted"] == 5
            assert ids(local) == [5, 6, 7, 8, 9]
        else:
            with pytest.raises(ValidationError, match="5 rows of the table are matched by more than one row"):
                merge.whenMatchedUpdate(set={"s": "'m'"}).execute()
            assert dataset.version == 0


def test_statistics_of_a_file_that_is_marked_mean_what_they_meant(local: Lake, spark: SparkSession) -> None:
    """Of a float, Delta's writers give fewer digits than a double needs."""
    schema = pa.schema([("id", pa.int64()), ("x", pa.float32())])
    dataset = local.create_dataset(NAME, schema, properties={**BY_VECTORS, "delta.enableTypeWidening": "true"})
    place = Path(dataset.location, "a.parquet")
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": range(4), "x": [0.1] * 4}, schema), place)
    known = {"id": 0, "x": 0.1}
    text = json.dumps(
        {"numRecords": 4, "minValues": known, "maxValues": {"id": 3, "x": 0.1}, "nullCount": {"id": 0, "x": 0}}
    )
    file = AddFile(path="a.parquet", size=place.stat().st_size, modification_time=0, stats=text)
    SqlTxnLogWriter(local).commit(dataset.id, 1, [file])
    source = spark.sql("SELECT 1L AS id, 2.5D AS x").alias("n")
    merge = dataset.merge(source, "t.id = n.id", alias="t").withSchemaEvolution()
    merge.whenMatchedUpdateAll().execute()
    assert dataset.schema().field("x").type == pa.float64()
    assert deleted(dataset) == {"a.parquet": 1}
    condition = "x = CAST(CAST(0.1 AS FLOAT) AS DOUBLE)"
    assert read_dataset(local, NAME, where=condition).count() == 3
    assert dataset.delete(condition).metrics["numDeletedRows"] == 3
    check_invariants(local)
