"""Deleting and updating rows: what the rows are then, which files are written again, and what the log says of it."""

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakelog
from lakelog import (
    ConcurrencyError,
    Lake,
    SchemaMismatchError,
    ValidationError,
    VersionConflict,
    read_changes,
    read_dataset,
    write_dataset,
)
from lakelog.spark.dml.delete import prepare_delete
from lakelog.spark.dml.verbs import options
from lakelog.spark.frames import setting
from tests.invariants import check_invariants
from tests.spark.changing import BY_VECTORS, NAME, conditions, make, numbered, rows_of, table_of, tables, told_by_duckdb

MODEST = settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def paths(lake: Lake) -> set[str]:
    return set(lake.dataset(NAME).snapshot().files(columns=["path"]).column("path").to_pylist())


def files_on_disk(lake: Lake) -> int:
    return len(list(Path(lake.dataset(NAME).location).rglob("*.parquet")))


class TestRows:
    @MODEST
    @given(files=tables, condition=conditions(), partitioned=st.booleans(), by_vectors=st.booleans())
    @example(files=[[(None, None, None, None)], []], condition="NOT (id = 1)", partitioned=True, by_vectors=True)
    def test_a_delete_leaves_the_rows_that_duckdb_leaves(
        self,
        spark: SparkSession,
        tmp_path_factory: pytest.TempPathFactory,
        files: list[list[tuple[Any, ...]]],
        condition: str,
        partitioned: bool,
        by_vectors: bool,
    ) -> None:
        with lakelog.connect(f"sqlite:///{tmp_path_factory.mktemp('lake')}/{uuid.uuid4().hex}.db") as lake:
            dataset = make(
                lake,
                spark,
                *files,
                partition_by=["k"] if partitioned else None,
                properties=BY_VECTORS if by_vectors else None,
            )
            every = table_of([row for rows in files for row in rows])
            left = told_by_duckdb(f"DELETE FROM t WHERE {condition}", every)
            result = dataset.delete(condition)
            assert rows_of(lake) == left
            assert result.metrics["numDeletedRows"] == every.num_rows - len(left)
            check_invariants(lake)

    @MODEST
    @given(
        files=tables,
        condition=conditions(),
        partitioned=st.booleans(),
        by_vectors=st.booleans(),
        values=st.sampled_from(
            [
                {"s": "'new'"},
                {"id": "id + k", "k": "1"},
                {"s": "NULL", "k": "k + 1"},
                {"id": "NULL", "s": "CONCAT(s, s)"},
            ]
        ),
    )
    def test_an_update_gives_the_rows_that_duckdb_gives(
        self,
        spark: SparkSession,
        tmp_path_factory: pytest.TempPathFactory,
        files: list[list[tuple[Any, ...]]],
        condition: str,
        partitioned: bool,
        by_vectors: bool,
        values: dict[str, str],
    ) -> None:
        with lakelog.connect(f"sqlite:///{tmp_path_factory.mktemp('lake')}/{uuid.uuid4().hex}.db") as lake:
            dataset = make(
                lake,
                spark,
                *files,
                partition_by=["k"] if partitioned else None,
                properties=BY_VECTORS if by_vectors else None,
            )
            every = table_of([row for rows in files for row in rows])
            said = ", ".join(
                f"{column} = {value.replace('CONCAT(s, s)', 's || s')}" for column, value in values.items()
            )
            told = told_by_duckdb(f"UPDATE t SET {said} WHERE {condition}", every)
            dataset.update(values, condition)
            assert rows_of(lake) == told
            check_invariants(lake)

    def test_a_field_of_a_struct_is_updated_and_the_others_stay(self, local: Lake, spark: SparkSession) -> None:
        frame = spark.sql(
            "SELECT 1 AS id, named_struct('x', 1, 'Y', named_struct('z', 2)) AS p UNION ALL SELECT 2, NULL"
        )
        write_dataset(local, NAME, frame)
        local.dataset(NAME).update({"p.y.Z": "id * 10"})
        assert rows_of(local) == [(1, (1, (10,))), (2, (None, (20,)))]

    def test_generated_columns_follow_where_a_change_feed_is_kept(self, local: Lake, spark: SparkSession) -> None:
        schema = pa.schema([("id", pa.int64()), ("double", pa.int64())])
        properties = {"delta.enableChangeDataFeed": "true"}
        local.create_dataset(NAME, schema, properties=properties, generated={"double": "id * 2"})
        write_dataset(local, NAME, spark.range(2).coalesce(1))
        local.dataset(NAME).update({"id": "id + 5"}, "id = 1")
        assert rows_of(local) == [(0, 0), (6, 12)]
        told = read_changes(local, NAME, 2).select("id", "double", "_change_type").collect()
        assert sorted(map(tuple, told)) == [(1, 2, "update_preimage"), (6, 12, "update_postimage")]

    def test_a_moment_becomes_the_text_that_the_sessions_clock_shows(self, local: Lake, spark: SparkSession) -> None:
        rows = (
            "SELECT 1 AS id, TIMESTAMP'2026-03-29T03:00:00Z' AS at, '' AS s, array('') AS l, struct('' AS x) AS place"
        )
        write_dataset(local, NAME, spark.sql(rows))
        with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
            local.dataset(NAME).update({"s": "at", "l": "array(at)", "place.x": "at"})
        (found,) = read_dataset(local, NAME, columns=["s", "l", "place.x"]).collect()
        assert tuple(found) == ("2026-03-28 23:00:00", ["2026-03-28 23:00:00"], "2026-03-28 23:00:00")

    def test_all_rows_can_be_updated_or_deleted(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 5), numbered(5, 8))
        assert dataset.update({"s": F.upper("s")}).metrics["numUpdatedRows"] == 8
        assert dataset.delete().metrics["numDeletedRows"] == 8
        assert rows_of(local) == []

    def test_a_column_moves_rows_to_another_partition(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 30), partition_by=["k"])
        dataset.update({"k": "9"}, "id = 5")
        assert [row[:2] for row in rows_of(local, where="k = 9")] == [(5, 9)]
        assert local.dataset(NAME).count("k = 0") == 9
        check_invariants(local)

    def test_mapped_columns_and_widened_ones_are_written_as_they_are_now(
        self, local: Lake, spark: SparkSession
    ) -> None:
        dataset = make(local, spark, numbered(0, 4), numbered(4, 8), partition_by=["k"])
        dataset.rename_column("s", "text")
        dataset.widen_column("place.x", pa.int64())
        dataset.update({"text": "'n'", "place.x": f"{2**40}"}, "id = 1")
        dataset.delete("id = 2 OR text = 's5'")
        assert rows_of(local, where="id IN (1, 2, 3, 5)") == [(1, 0, "n", (2**40,)), (3, 0, "s3", (3,))]
        check_invariants(local)


class TestFiles:
    def test_only_files_with_a_matching_row_are_written_again(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(5, 15), numbered(20, 30))
        before = paths(local)
        result = dataset.delete("id = 12 OR s = 's12x'")
        assert len(before - paths(local)) == 1
        assert result.metrics["numCopiedRows"] == 9
        # Both may hold the id by their bounds. Only a look at the rows tells.
        result = dataset.update({"s": "'u'"}, "id = 7 AND s = 's7'")
        assert (result.metrics["numRemovedFiles"], result.metrics["numUpdatedRows"]) == (2, 2)

    @pytest.mark.parametrize("condition", ["k = 1", "id >= 20", "k > 0 AND id < 20", "upper(k) = '1'", None])
    def test_files_of_which_every_row_goes_are_not_written_again(
        self, local: Lake, spark: SparkSession, condition: str | None
    ) -> None:
        dataset = make(local, spark, numbered(0, 30), partition_by=["k"])
        on_disk = files_on_disk(local)
        result = dataset.delete(condition)
        assert (result.metrics["numAddedFiles"], files_on_disk(local)) == (0, on_disk)
        assert result.metrics["numDeletedRows"] == 30 - len(rows_of(local)) > 0

    def test_a_file_whose_rows_all_match_by_a_look_is_not_written_again(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(10, 20))
        result = dataset.delete("s < 's1' OR length(s) = 3 OR s = 's1'")
        assert (result.metrics["numRemovedFiles"], result.metrics["numAddedFiles"]) == (2, 1)
        assert [row[0] for row in rows_of(local)] == list(range(2, 10))

    def test_nothing_is_committed_where_nothing_matches(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10))
        assert dataset.delete("id = 3 AND s = 'x'").commit_id is None
        assert dataset.update({"s": "'x'"}, "id > 100").commit_id is None
        assert (dataset.version, files_on_disk(local)) == (0, 1)

    def test_the_log_says_what_was_done(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10))
        dataset.delete(F.col("id") == 3, committer="me", user_metadata="why")
        dataset.update({"s": "'x'"}, "id = 4")
        update, delete, _ = dataset.history()
        assert (update.operation, update.operation_parameters) == ("UPDATE", {"predicate": '["id = 4"]'})
        assert (delete.operation, delete.committer, delete.extra["userMetadata"]) == ("DELETE", "me", "why")
        metrics = {name: int(value) for name, value in delete.extra["operationMetrics"].items()}
        expected = {"numRemovedFiles": 1, "numAddedFiles": 1, "numDeletedRows": 1, "numCopiedRows": 9}
        assert metrics | expected == metrics


class TestRefused:
    @pytest.mark.parametrize(
        ("values", "condition", "error", "said"),
        [
            ({"nope": "1"}, None, ValidationError, "is not a column of the table"),
            ({"place.nope": "1"}, None, ValidationError, "is not a column of the table"),
            ({"s": "nope + 1"}, None, ValidationError, "nope"),
            ({}, None, ValidationError, "at least one column"),
            ({"id": "X'01'"}, None, SchemaMismatchError, "cannot hold binary"),
            ({"id": "array(1)"}, None, SchemaMismatchError, "cannot hold list"),
            ({"id": 5}, None, ValidationError, "expected an expression, as a text or a Column, got 5"),
            ({"place": "named_struct('y', 1)"}, None, SchemaMismatchError, "is not a field of the column"),
            ({"place": "named_struct('x', 1)", "place.x": "2"}, None, ValidationError, "is set by"),
            ({"ID": "1", "id": "2"}, None, ValidationError, "is set by"),
            ({"s": "'x'"}, "nope = 1", ValidationError, "nope"),
            ({"s": "'x'"}, "rand() < 0.5", ValidationError, "another answer each time"),
        ],
    )
    def test_what_cannot_be_is_said_before_anything_is_read(
        self,
        local: Lake,
        spark: SparkSession,
        values: dict[str, str],
        condition: str | None,
        error: type[Exception],
        said: str,
    ) -> None:
        dataset = make(local, spark, numbered(0, 3))
        with pytest.raises(error, match=said):
            dataset.update(values, condition)
        assert (dataset.version, files_on_disk(local)) == (0, 1)

    def test_a_value_that_does_not_fit_changes_nothing(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 3))
        with pytest.raises(Exception, match="does not fit column k"):
            dataset.update({"k": "id + 3000000000"})
        assert (dataset.version, files_on_disk(local)) == (0, 1)

    def test_an_append_only_table_keeps_its_rows(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 3), properties={"delta.appendOnly": "true"})
        for change in (lambda: dataset.delete("id = 1"), lambda: dataset.update({"s": "'x'"})):
            with pytest.raises(ValidationError, match=r"delta\.appendOnly: is true"):
                change()


class TestTogether:
    """Two who change a table: the one that comes second passes if the first changed nothing that it read."""

    @pytest.fixture
    def prepared(self, local: Lake, spark: SparkSession) -> Any:
        return make(local, spark, numbered(0, 30), partition_by=["k"])

    @pytest.mark.parametrize(
        ("winner", "passes"),
        [
            (lambda dataset: dataset.delete("k = 2"), True),
            (lambda dataset: dataset.update({"s": "'w'"}, "k = 1 AND id = 11"), True),
            (lambda dataset: dataset.delete("id = 3"), False),
            (lambda dataset: dataset.update({"k": "0", "id": "4"}, "id = 25"), False),
            (lambda dataset: dataset.update({"k": "0"}, "id = 25"), True),
        ],
        ids=["other partition", "other rows", "same partition", "rows that move in", "others that move in"],
    )
    def test_a_delete_passes_a_change_elsewhere(
        self, local: Lake, prepared: Any, spark: SparkSession, winner: Any, passes: bool
    ) -> None:
        change = prepare_delete(prepared, prepared.snapshot(), "k = 0 AND id < 5", options(1, None, None), spark)
        before = files_on_disk(local)
        winner(prepared)
        if passes:
            assert change.commit(local, 1).version == 2
            assert local.dataset(NAME).count("k = 0 AND id < 10") == 5
        else:
            with pytest.raises(ConcurrencyError, match=r"which can hold rows that this commit read|read or removes"):
                change.commit(local, 1)
            assert files_on_disk(local) >= before - 1, "the loser's file is gone, and no other"
        check_invariants(local)

    def test_without_retries_a_lost_race_is_a_conflict(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 30))
        change = prepare_delete(dataset, dataset.snapshot(), "id = 1", options(0, None, None), spark)
        make(local, spark, numbered(30, 31))
        with pytest.raises(VersionConflict):
            change.commit(local, 0)
