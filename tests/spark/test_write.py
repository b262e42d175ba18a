"""Writing through Spark: every mode and option, what is refused, and what a write leaves behind when it fails."""

import json
import math
import uuid
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog import (
    ConcurrencyError,
    DatasetExistsError,
    Lake,
    LakelogError,
    SchemaMismatchError,
    SqlTxnLogWriter,
    ValidationError,
    VersionConflict,
    read_dataset,
    write_dataset,
)
from lakelog.actions import AddFile
from lakelog.log.commit.committer import Committer
from lakelog.spark.frames import frame_of
from lakelog.spark.write.parquet_writer import Stage
from tests.fixtures.lakes import catalog_rows
from tests.invariants import check_invariants
from tests.schemas import SIMPLE, tables

NAME = "events"


def rows(lake: Lake, **options: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in read_dataset(lake, NAME, **options).collect()), key=str)


def files_on_disk(lake: Lake) -> list[Path]:
    return sorted(
        path
        for path in Path(str(lake.root)).rglob("*")
        if path.is_file() and not {"_lakelog", "_delta_log"} & {*path.parts}
    )


class TestModes:
    def test_the_first_write_creates_the_dataset_all_of_it_in_version_0(self, lake: Lake, spark: SparkSession) -> None:
        result = write_dataset(lake, NAME, spark.range(10), spark=spark)
        assert (result.version, result.rows, result.skipped) == (0, 10, False)
        dataset = lake.dataset(NAME)
        assert [commit.operation for commit in dataset.history()] == ["CREATE TABLE AS SELECT"]
        assert dataset.history()[0].commit_id == result.commit_id
        assert dataset.schema() == pa.schema([("id", pa.int64())]), "what Spark takes for NOT NULL is no promise"
        assert rows(lake) == [(number,) for number in range(10)]
        check_invariants(lake)

    def test_append_and_overwrite_on_every_catalog(self, lake: Lake, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(3))
        added = write_dataset(lake, NAME, spark.range(3, 5))
        assert (added.version, rows(lake)) == (1, [(number,) for number in range(5)])
        replaced = write_dataset(lake, NAME, spark.range(7, 9), "overwrite")
        assert replaced.removed > 0
        assert rows(lake) == [(7,), (8,)]
        assert rows(lake, version=1) == [(number,) for number in range(5)]
        assert lake.dataset(NAME).history()[0].operation_parameters["mode"] == "Overwrite"
        check_invariants(lake)

    def test_error_and_ignore_leave_a_dataset_as_it_is(self, lake: Lake, spark: SparkSession) -> None:
        assert write_dataset(lake, NAME, spark.range(1), "error").version == 0
        before = catalog_rows(lake), files_on_disk(lake)
        for mode in ("error", "errorifexists"):
            with pytest.raises(DatasetExistsError):
                write_dataset(lake, NAME, spark.range(1), mode)
        assert write_dataset(lake, NAME, spark.range(1), "ignore").skipped
        assert (catalog_rows(lake), files_on_disk(lake)) == before

    def test_dynamic_overwrite_replaces_the_partitions_that_it_writes(self, lake: Lake, spark: SparkSession) -> None:
        frame = spark.createDataFrame([(1, "a"), (2, "b"), (3, None)], "id int, k string")
        write_dataset(lake, NAME, frame, partition_by=["k"])
        again = spark.createDataFrame([(20, "b"), (30, None)], "id int, k string")
        result = write_dataset(lake, NAME, again, "overwrite", partition_overwrite_mode="dynamic")
        assert result.removed == 2
        assert rows(lake) == [(1, "a"), (20, "b"), (30, None)]

    def test_dynamic_overwrite_compares_values_and_not_their_texts(self, lake: Lake, spark: SparkSession) -> None:
        schema = pa.schema([("id", pa.int32()), ("k", pa.decimal128(5, 2))])
        dataset = lake.create_dataset(NAME, schema, partition_by=["k"])
        imported = AddFile(path="k=1.5/a", size=1, partition_values={"k": "1.5"}, modification_time=0)
        SqlTxnLogWriter(lake).commit(dataset.id, 1, [imported])
        again = spark.createDataFrame([(1, Decimal("1.50"))], "id int, k decimal(5,2)")
        assert write_dataset(lake, NAME, again, "overwrite", partition_overwrite_mode="dynamic").removed == 1
        assert rows(lake) == [(1, Decimal("1.50"))]

    def test_dynamic_overwrite_keeps_neighbours_that_a_double_cannot_tell_apart(
        self, lake: Lake, spark: SparkSession
    ) -> None:
        edges = {
            "tenant": ("BIGINT", "1729000000000000002L", "1729000000000000001L"),
            "money": ("DECIMAL(38,2)", f"{'1' * 36}.25BD", f"{'1' * 36}.26BD"),
            "at": ("TIMESTAMP", "'1600-01-01 00:00:00.000001Z'", "'1600-01-01 00:00:00.000002Z'"),
            "local": ("TIMESTAMP_NTZ", "'2300-01-01 00:00:00.000001'", "'2300-01-01 00:00:00.000002'"),
        }
        one = {name: f"CAST({text} AS {kind})" for name, (kind, text, _) in edges.items()}
        rows_of = [one, *({**one, name: f"CAST({text} AS {kind})"} for name, (kind, _, text) in edges.items())]
        union = " UNION ALL ".join(
            f"SELECT {number} AS id, {', '.join(f'{value} AS {name}' for name, value in each.items())}"
            for number, each in enumerate(rows_of)
        )
        frame = spark.sql(union)
        write_dataset(lake, NAME, frame, partition_by=list(edges))
        again = frame.where("id = 0").withColumn("id", F.lit(10))
        result = write_dataset(lake, NAME, again, "overwrite", partition_overwrite_mode="dynamic")
        assert result.removed == 1
        found = sorted(row.id for row in read_dataset(lake, NAME).select("id").collect())
        assert found == [1, 2, 3, 4, 10]

    def test_replace_where_replaces_the_rows_that_match(self, lake: Lake, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(10).withColumn("v", F.lit("old")).coalesce(1))
        write_dataset(lake, NAME, spark.range(100, 110).withColumn("v", F.lit("old")).coalesce(1))
        new = spark.range(3, 5).withColumn("v", F.lit("new"))
        result = write_dataset(lake, NAME, new, "overwrite", replace_where="id BETWEEN 2 AND 5")
        assert (result.rows, result.removed) == (2, 1)
        kept = [(number, "old") for number in [0, 1, 6, 7, 8, 9, *range(100, 110)]]
        assert rows(lake) == sorted([*kept, (3, "new"), (4, "new")], key=str)
        check_invariants(lake)

    def test_rows_outside_replace_where_are_refused_and_nothing_stays(self, lake: Lake, spark: SparkSession) -> None:
        frame = spark.createDataFrame([(1,), (None,)], "id int")
        write_dataset(lake, NAME, frame)
        before = catalog_rows(lake), files_on_disk(lake)
        with pytest.raises(SchemaMismatchError, match="1 rows do not match 'id < 5', or match as NULL"):
            write_dataset(lake, NAME, frame, "overwrite", replace_where="id < 5")
        assert (catalog_rows(lake), files_on_disk(lake)) == before

    def test_an_empty_frame_makes_a_version_without_files(self, lake: Lake, spark: SparkSession) -> None:
        assert write_dataset(lake, NAME, spark.range(0)).files == 0
        assert write_dataset(lake, NAME, spark.range(0)).version == 1
        assert rows(lake) == []
        assert files_on_disk(lake) == []


class TestData:
    def test_pyarrow_and_pandas_are_carried_into_spark(self, local: Lake, spark: SparkSession) -> None:
        data = pa.table({"id": pa.array([1], pa.uint16()), "at": pa.array([0], pa.timestamp("ns")), "t": ["x"]})
        write_dataset(local, NAME, data, spark=spark)
        write_dataset(local, NAME, data.to_pandas(), spark=spark)
        write_dataset(local, NAME, data.to_batches()[0], spark=spark)
        assert rows(local) == [(1, datetime(1970, 1, 1), "x")] * 3  # noqa: DTZ001
        with pytest.raises(ValidationError, match="expected a Spark or pandas DataFrame or a pyarrow Table, got list"):
            write_dataset(local, NAME, [1], spark=spark)

    def test_a_batch_without_rows_is_not_the_end_of_the_data(self, local: Lake, spark: SparkSession) -> None:
        chunks = [pa.array(chunk, pa.int64()) for chunk in ([], [], [1], [], [2, 3], [])]
        assert write_dataset(local, NAME, pa.table({"id": pa.chunked_array(chunks)}), spark=spark).rows == 3
        assert rows(local) == [(1,), (2,), (3,)]

    def test_statistics_and_row_groups_are_harvested_and_prune(self, local: Lake, spark: SparkSession) -> None:
        frame = spark.range(0, 1000, numPartitions=4).withColumn("at", F.timestamp_seconds("id"))
        write_dataset(local, NAME, frame)
        snapshot = local.dataset(NAME).snapshot()
        assert snapshot.files().num_rows == 4
        assert snapshot.files("id = 10").num_rows == 1
        assert snapshot.row_groups("at < '1970-01-01T00:01:00Z'").num_rows == 1
        assert sum(snapshot.files().column("row_count").to_pylist()) == 1000

    def test_times_are_micros_and_compression_is_zstd_unless_told(self, local: Lake, spark: SparkSession) -> None:
        frame = spark.range(1).withColumn("at", F.current_timestamp())
        write_dataset(local, NAME, frame)
        write_dataset(local, NAME, frame, compression="snappy")
        found = [
            pq.read_metadata(path).row_group(0).column(1) for path in files_on_disk(local) if path.suffix == ".parquet"
        ]
        assert {column.compression for column in found} == {"ZSTD", "SNAPPY"}
        assert all(column.physical_type == "INT64" and column.is_stats_set for column in found)

    def test_files_hold_at_most_so_many_rows_in_the_order_asked_for(self, local: Lake, spark: SparkSession) -> None:
        frame = spark.range(100).coalesce(1).withColumn("r", F.rand(1))
        write_dataset(local, NAME, frame, max_records_per_file=30, sort_by=["R"])
        assert sorted(local.dataset(NAME).snapshot().files().column("row_count").to_pylist()) == [10, 30, 30, 30]
        for path in files_on_disk(local):
            if path.suffix == ".parquet":
                found = pq.read_table(path).column("r").to_pylist()
                assert found == sorted(found)

    @pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
    def test_partition_values_are_the_catalogs_whatever_the_zone(
        self, lake: Lake, spark: SparkSession, zone: str
    ) -> None:
        kinds = {
            "i": ("bigint", [-5, None]),
            "s": ("string", ["a/b=c%:é'\\\" {x}", None]),
            "d": ("date", [date(2026, 1, 31), None]),
            "t": ("timestamp", [datetime(2026, 7, 1, 12, 30, 1, 5, tzinfo=UTC), None]),
            "n": ("decimal(20,3)", [Decimal("-12345678901234567.250"), None]),
            "b": ("boolean", [True, None]),
            "f": ("double", [1e300, math.inf]),
        }
        schema = ", ".join(f"{name} {kind}" for name, (kind, _) in kinds.items())
        data = [(*(choices[row] for _, choices in kinds.values()), row) for row in range(2)]
        frame = spark.createDataFrame(data, f"{schema}, id int")
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            write_dataset(lake, NAME, frame, partition_by=list(kinds))
            table = read_dataset(lake, NAME).orderBy("id").toArrow()
        finally:
            spark.conf.set("spark.sql.session.timeZone", before)
        found = table.to_pylist()
        assert [tuple(row[name] for name in kinds) for row in found] == [row[:-1] for row in data]
        texts = lake.dataset(NAME).snapshot().files("id = 0").column("partition_values")[0].as_py()
        assert json.loads(texts)["t"] == "2026-07-01T12:30:01.000005Z"

    def test_every_float_has_its_partition(self, local: Lake, spark: SparkSession) -> None:
        numbers = [0.0, -0.0, 1e10, -1.5, math.inf, None] * 20
        frame = spark.createDataFrame([(number, n) for n, number in enumerate(numbers)], "k double, id int").coalesce(1)
        result = write_dataset(local, NAME, frame, partition_by=["k"])
        assert (result.files, result.rows) == (6, len(numbers))
        found = {row.id: row.k for row in read_dataset(local, NAME).collect()}
        assert [str(found[n]) for n in range(len(numbers))] == [str(number) for number in numbers]

    def test_an_empty_string_is_null_in_a_partition_column(self, local: Lake, spark: SparkSession) -> None:
        frame = spark.createDataFrame([("", 1), ("x", 2)], "k string, id int")
        write_dataset(local, NAME, frame, partition_by=["k"])
        assert rows(local) == [("x", 2), (None, 1)]
        reserved = spark.createDataFrame([("__HIVE_DEFAULT_PARTITION__", 1)], "k string, id int")
        with pytest.raises(SchemaMismatchError, match="k: 1 rows with the reserved text"):
            write_dataset(local, NAME, reserved)

    @given(table=tables())
    @settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
    def test_random_tables_come_back_as_they_were(self, local: Lake, spark: SparkSession, table: pa.Table) -> None:
        name = uuid.uuid4().hex
        write_dataset(local, name, table, spark=spark)
        found = read_dataset(local, name).toArrow()
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, table.to_pylist()))

    @pytest.mark.parametrize(("properties", "indexed"), [({}, 32), ({"delta.dataSkippingNumIndexedCols": "-1"}, 300)])
    def test_a_wide_table_comes_back_and_has_statistics(
        self, local: Lake, spark: SparkSession, properties: dict[str, str], indexed: int
    ) -> None:
        lows = [number // len(SIMPLE) for number in range(300)]
        table = pa.table({f"c{n}": _numbers(SIMPLE[n % len(SIMPLE)], low) for n, low in enumerate(lows)})
        write_dataset(local, NAME, frame_of(table, spark).coalesce(1), properties=properties)
        found = read_dataset(local, NAME).toArrow()
        assert found.schema.equals(table.schema)
        assert sorted(map(str, found.to_pylist())) == sorted(map(str, table.to_pylist()))
        snapshot = local.dataset(NAME).snapshot()
        stats = json.loads(snapshot.files().column("stats")[0].as_py())
        assert (stats["numRecords"], stats["nullCount"]) == (3, dict.fromkeys(table.column_names[:indexed], 1))
        whole = [n for n in range(indexed) if pa.types.is_integer(table.schema.field(n).type)]
        for key, added in (("minValues", 0), ("maxValues", 1)):
            assert [stats[key][f"c{n}"] for n in whole] == [lows[n] + added for n in whole]
        assert snapshot.files("c285 = 20").num_rows == 1
        assert snapshot.files("c285 = 21").num_rows == (0 if indexed == 300 else 1)


class TestSchema:
    def test_what_does_not_fit_is_refused_before_any_file(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.range(1))
        before = catalog_rows(local), files_on_disk(local)
        with pytest.raises(SchemaMismatchError) as caught:
            write_dataset(local, NAME, spark.createDataFrame([("x", 1.5)], "id string, more double"))
        assert [violation.where for violation in caught.value.violations] == ["id", "more"]
        assert (catalog_rows(local), files_on_disk(local)) == before

    def test_a_merge_a_widening_and_a_rename_read_together(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.createDataFrame([(1, (2,))], "id int, s struct<x int>"))
        wider = spark.createDataFrame([(2**40, (3, "b"))], "ID bigint, s struct<x bigint, y string>")
        write_dataset(local, NAME, wider, schema_merge=True)
        dataset = local.dataset(NAME)
        dataset.rename_column("s.x", "z")
        dataset.rename_column("id", "key")
        write_dataset(local, NAME, spark.createDataFrame([(5, (6, "c"))], "key bigint, s struct<z bigint, y string>"))
        found = read_dataset(local, NAME).orderBy("key").toArrow()
        assert found.schema.names == ["key", "s"]
        assert found.to_pylist() == [
            {"key": 1, "s": {"z": 2, "y": None}},
            {"key": 5, "s": {"z": 6, "y": "c"}},
            {"key": 2**40, "s": {"z": 3, "y": "b"}},
        ]
        check_invariants(local)

    @pytest.mark.parametrize("mirror", [True, False])
    def test_columns_that_become_strings(self, local: Lake, spark: SparkSession, mirror: bool) -> None:
        first = spark.createDataFrame([(1, datetime(2026, 1, 1, tzinfo=UTC))], "id int, at timestamp")
        write_dataset(local, NAME, first, mirror=mirror)
        text = spark.createDataFrame([("x", "y")], "id string, at string")
        result = write_dataset(local, NAME, text, schema_merge=True, promote_to_string=True)
        assert (result.rows, result.removed) == (1, 1 if mirror else 0)
        assert rows(local) == [("1", "2026-01-01 00:00:00"), ("x", "y")]
        check_invariants(local)

    def test_a_type_is_widened_unless_that_is_forbidden(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.createDataFrame([(1,)], "id int"))
        before = catalog_rows(local), files_on_disk(local)
        wider = spark.createDataFrame([(2**40,)], "id bigint")
        with pytest.raises(SchemaMismatchError, match="id"):
            write_dataset(local, NAME, wider, schema_merge=True, promote_types=False)
        assert (catalog_rows(local), files_on_disk(local)) == before
        write_dataset(local, NAME, wider, schema_merge=True)
        assert rows(local) == [(1,), (2**40,)]

    def test_a_new_table_has_the_properties_that_it_is_given(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.range(1), properties={"owner": "ana"}, mirror="fenced")
        expected = {"owner": "ana", "lakelog.mirror": "fenced"}
        assert local.dataset(NAME).snapshot().metadata.configuration == expected

    def test_nulls_for_not_null_are_refused_and_nothing_stays(self, local: Lake, spark: SparkSession) -> None:
        nested = pa.struct([pa.field("x", pa.int32(), False)])
        schema = pa.schema(
            [pa.field("id", pa.int32(), False), ("s", nested), ("tags", pa.list_(pa.field("item", nested)))]
        )
        local.create_dataset(NAME, schema)
        before = catalog_rows(local), files_on_disk(local)
        kinds = "id int, s struct<x int>, tags array<struct<x int>>"
        bad = spark.createDataFrame([(1, None, None), (None, (1,), []), (2, (None,), [(None,), (1,)])], kinds)
        with pytest.raises(SchemaMismatchError) as caught:
            write_dataset(local, NAME, bad)
        assert [violation.where for violation in caught.value.violations] == ["id", "s", "tags"]
        assert (catalog_rows(local), files_on_disk(local)) == before
        write_dataset(local, NAME, spark.createDataFrame([(1, None, None), (2, (1,), [None])], kinds))
        assert len(rows(local)) == 2

    def test_files_of_a_mapped_table_carry_field_ids(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.createDataFrame([(1, (2,))], "id int, s struct<x int>"))
        local.dataset(NAME).rename_column("id", "key")
        made = write_dataset(local, NAME, spark.createDataFrame([(1, (2,))], "key int, s struct<x int>"))
        path = local.dataset(NAME).changes(made.version).added.column("path")[0].as_py()
        schema = pq.read_schema(Path(local.dataset(NAME).location) / path)
        assert [field.metadata[b"PARQUET:field_id"] for field in schema] == [b"1", b"2"]
        assert schema.field("s").type[0].metadata[b"PARQUET:field_id"] == b"3"


class TestRaces:
    def test_a_base_version_is_exactly_that(self, lake: Lake, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(1))
        assert write_dataset(lake, NAME, spark.range(1), base_version=0).version == 1
        before = files_on_disk(lake)
        with pytest.raises(VersionConflict):
            write_dataset(lake, NAME, spark.range(1), base_version=0)
        assert files_on_disk(lake) == before
        with pytest.raises(ValidationError, match="never tried on another one"):
            write_dataset(lake, NAME, spark.range(1), base_version=0, retries=1)

    def test_a_lost_race_is_tried_again_without_writing_again(
        self, lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_dataset(lake, NAME, spark.range(1))
        _overtake(monkeypatch, lambda: write_dataset(lake, NAME, spark.range(1, 2)))
        with pytest.raises(VersionConflict):
            write_dataset(lake, NAME, spark.range(5, 6), retries=0)
        _overtake(monkeypatch, lambda: write_dataset(lake, NAME, spark.range(2, 3)))
        assert write_dataset(lake, NAME, spark.range(3, 4)).version == 3
        assert rows(lake) == [(0,), (1,), (2,), (3,)]
        check_invariants(lake)

    def test_only_what_reads_nothing_waits_in_line_by_default(
        self, local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Rows that were made from the table, or that replace others, are not put on a version that nobody has seen."""
        write_dataset(local, NAME, spark.range(1))
        next_id = read_dataset(local, NAME).selectExpr("max(id) + 1 AS id")
        for data, mode in [(next_id, "append"), (spark.range(9, 10), "overwrite")]:
            _overtake(monkeypatch, lambda: write_dataset(local, NAME, spark.range(1, 2)))
            with pytest.raises(VersionConflict):
                write_dataset(local, NAME, data, mode)
        assert rows(local) == [(0,), (1,), (1,)]

    @pytest.mark.parametrize("how", ["itself", "view", "subquery"])
    def test_rows_of_sparks_own_door_do_not_wait_in_line(
        self, local: Lake, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        write_dataset(local, NAME, spark.range(1))
        options = {"catalog": f"sqlite:///{tmp_path}/catalog.db", "root": str(tmp_path / "lake")}
        rows_read = spark.read.format("LakeLog").options(**options).load(NAME)
        rows_read.createOrReplaceTempView("lakelog_read")
        data = {
            "itself": rows_read.selectExpr("max(id) + 1 AS id"),
            "view": spark.table("lakelog_read"),
            "subquery": spark.sql("SELECT (SELECT max(id) + 1 FROM lakelog_read) AS id"),
        }[how]
        assert local.dataset(NAME).version_of(data) is None
        _overtake(monkeypatch, lambda: write_dataset(local, NAME, spark.range(1, 2)))
        with pytest.raises(VersionConflict):
            write_dataset(local, NAME, data)
        spark.catalog.dropTempView("lakelog_read")
        assert rows(local) == [(0,), (1,)]

    def test_an_overwrite_that_was_overtaken_is_a_conflict(
        self, lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write_dataset(lake, NAME, spark.range(1))
        _overtake(monkeypatch, lambda: write_dataset(lake, NAME, spark.range(1, 2)))
        with pytest.raises(ConcurrencyError):
            write_dataset(lake, NAME, spark.range(9, 10), "overwrite", retries=5)
        assert rows(lake) == [(0,), (1,)]

    def test_a_condition_conflicts_as_the_session_means_it(
        self, local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Four in the morning UTC is still the evening before in New York."""
        night = spark.sql("SELECT TIMESTAMP '2026-01-02 04:00:00Z' AS at")
        write_dataset(local, NAME, night)
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        try:
            _overtake(monkeypatch, lambda: write_dataset(local, NAME, night))
            condition = "at < TIMESTAMP '2026-01-02 00:00:00'"
            with pytest.raises(ConcurrencyError, match="can hold rows that this commit read"):
                write_dataset(local, NAME, night, "overwrite", replace_where=condition, retries=3)
        finally:
            spark.conf.set("spark.sql.session.timeZone", before)
        assert len(rows(local)) == 2

    def test_a_batch_is_written_once(self, lake: Lake, spark: SparkSession) -> None:
        batch = {"txn_app_id": "stream", "txn_version": 7}
        assert write_dataset(lake, NAME, spark.range(1), **batch).version == 0
        again = write_dataset(lake, NAME, spark.range(1), **batch)
        assert (again.skipped, again.version) == (True, 0)
        assert write_dataset(lake, NAME, spark.range(1), txn_app_id="stream", txn_version=8).version == 1
        assert len(rows(lake)) == 2
        with pytest.raises(ValidationError, match="give both or neither"):
            write_dataset(lake, NAME, spark.range(1), txn_app_id="stream")


class TestFailures:
    def test_a_write_that_fails_in_spark_leaves_nothing(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.range(1))
        before = catalog_rows(local), files_on_disk(local)
        broken = spark.range(1).select(F.raise_error(F.lit("broken")).cast("bigint").alias("id"))
        with pytest.raises(Exception, match="broken"):
            write_dataset(local, NAME, broken)
        assert (catalog_rows(local), files_on_disk(local)) == before

    def test_wrong_options_are_all_named_at_once(self, local: Lake, spark: SparkSession) -> None:
        with pytest.raises(ValidationError) as caught:
            write_dataset(
                local, NAME, spark.range(1), "upsert", partition_by="k", partition_overwrite_mode="x", retries=-1
            )
        assert {violation.where for violation in caught.value.violations} == {
            "mode",
            "partition_by",
            "partition_overwrite_mode",
            "retries",
        }

    def test_what_a_new_table_cannot_be_is_said_before_any_file(self, local: Lake, spark: SparkSession) -> None:
        frame = spark.sql("SELECT 1 AS id, X'00' AS b")
        for columns, message in (
            (["nope"], "'nope' is not a column"),
            (["b"], "other than binary"),
            (["id", "b"], "every column is a partition column"),
        ):
            with pytest.raises(ValidationError, match=message):
                write_dataset(local, NAME, frame, partition_by=columns)
        with pytest.raises(ValidationError, match="'other': is not a column of the table"):
            write_dataset(local, NAME, frame, sort_by=["other"])
        assert (files_on_disk(local), local.datasets()) == ([], [])

    def test_a_place_that_is_not_local_is_refused_before_any_file(self, local: Lake, spark: SparkSession) -> None:
        local.create_dataset(NAME, pa.schema([("id", pa.int64())]), location="s3://bucket/events")
        with pytest.raises(LakelogError, match="local files only so far, not to s3://bucket/events"):
            write_dataset(local, NAME, spark.range(1))

    def test_files_are_kept_when_nobody_knows_whether_they_are_committed(
        self, local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An error that is not ours, raised by whatever came after COMMIT, says nothing about it."""
        write_dataset(local, NAME, spark.range(1))
        commit = Committer.commit

        def commit_and_fail(*arguments: Any) -> Any:
            commit(*arguments)
            raise RuntimeError("after COMMIT")

        monkeypatch.setattr(Committer, "commit", commit_and_fail)
        with pytest.raises(RuntimeError, match="after COMMIT"):
            write_dataset(local, NAME, spark.range(1, 2))
        monkeypatch.undo()
        assert rows(local) == [(0,), (1,)]

    def test_another_partitioning_than_the_tables_is_refused(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.range(1))
        with pytest.raises(ValidationError, match=r"the table is partitioned by \[\], not by \['id'\]"):
            write_dataset(local, NAME, spark.range(1), partition_by=["id"])

    def test_what_is_recorded_of_a_write(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.range(3), user_metadata="why", committer="etl")
        commit = local.dataset(NAME).history()[0]
        assert commit.committer == "etl"
        assert commit.extra["userMetadata"] == "why"
        assert commit.extra["operationMetrics"]["numOutputRows"] == "3"


def _numbers(kind: pa.DataType, low: int) -> pa.Array:
    """Two numbers and a null, as values of a kind."""
    numbers = pa.array([low, low + 1, None], pa.int8())
    if pa.types.is_timestamp(kind):
        return numbers.cast(pa.int64()).cast(kind)
    return numbers.cast({pa.date32(): pa.int32(), pa.binary(): pa.string()}.get(kind, pa.int8())).cast(kind)


def _overtake(monkeypatch: pytest.MonkeyPatch, winner: Any) -> None:
    """Lets somebody else commit between the files and the commit of the next write."""
    original = Stage.write

    def write(stage: Stage) -> Any:
        monkeypatch.setattr(Stage, "write", original)
        written = original(stage)
        winner()
        return written

    monkeypatch.setattr(Stage, "write", write)
