"""Writing through Spark's own door commits what ``write_dataset`` commits, and what fails leaves nothing."""

import json
import uuid
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType

from lakelog import CommitOutcomeUnknown, Lake, read_dataset, write_dataset
from lakelog.log.commit.committer import Committer
from lakelog.spark.datasource.writer import BatchWriter
from tests.fixtures.door import BACKENDS, KINDS, NAME, Door
from tests.fixtures.lakes import catalog_rows
from tests.invariants import check_invariants
from tests.schemas import tables


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


on_every_catalog = pytest.mark.parametrize("backend", BACKENDS, indirect=True)


def rows(lake: Lake, **options: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in read_dataset(lake, NAME, **options).collect()), key=str)


def files_on_disk(lake: Lake) -> list[Path]:
    return sorted(
        path
        for path in Path(str(lake.root)).rglob("*")
        if path.is_file() and not {"_lakelog", "_delta_log"} & {*path.parts}
    )


def data_files(lake: Lake) -> list[Path]:
    return [path for path in files_on_disk(lake) if path.suffix == ".parquet"]


class TestModes:
    @on_every_catalog
    def test_create_append_and_overwrite(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        door.write(spark.range(3), userMetadata="why")
        dataset = lake.dataset(NAME)
        (created,) = dataset.history()
        assert (created.operation, created.extra["userMetadata"]) == ("CREATE TABLE AS SELECT", "why")
        assert dataset.schema() == pa.schema([("id", pa.int64())])
        door.write(spark.range(3, 5))
        assert rows(lake) == [(number,) for number in range(5)]
        door.write(spark.range(7, 9), "overwrite")
        assert rows(lake) == [(7,), (8,)]
        assert rows(lake, version=1) == [(number,) for number in range(5)]
        check_invariants(lake)

    def test_dynamic_overwrite_and_replace_where(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        kinds = "id int, k string, day date"
        days = [date(2026, 1, 1), date(2026, 1, 2), None]
        door.write(
            spark.createDataFrame([(1, "a", days[0]), (2, "b", days[1]), (3, None, days[2])], kinds),
            partitionColumns="k, day",
        )
        again = spark.createDataFrame([(20, "b", days[1])], kinds)
        door.write(again, "overwrite", partitionOverwriteMode="DYNAMIC")
        assert [row[0] for row in rows(lake)] == [1, 20, 3]
        new = spark.createDataFrame([(10, "a", days[0])], kinds)
        door.write(new, "overwrite", replaceWhere="k IN ('a', 'z') AND day <= '2026-01-01'")
        assert [row[0] for row in rows(lake)] == [10, 20, 3]
        door.write(new.limit(0), "overwrite", replaceWhere="k = 'b'")
        assert [row[0] for row in rows(lake)] == [10, 3]
        assert lake.dataset(NAME).history()[0].operation_parameters["predicate"] == "k = 'b'"
        before = catalog_rows(lake), files_on_disk(lake)
        for outside, condition in (("c", "k = 'a'"), (None, "k = 'a'"), ("a", "NOT k = 'a'")):
            frame = spark.createDataFrame([(10, outside, days[0])], kinds)
            with pytest.raises(PySparkException, match=r"rows do not match .* or match as NULL"):
                door.write(frame, "overwrite", replaceWhere=condition)
        unclear = ("id = 1", "k LIKE 'a%'", "rand() < 1", "k = id", "k = 'a' AND", "day IS NULL")
        by_settings = ("k = 'a\\\\x'", 'k = "a"', "k = '${day}'")
        for condition in (*unclear, *by_settings):
            with pytest.raises(PySparkException, match=r"lakelog\.write_dataset"):
                door.write(new, "overwrite", replaceWhere=condition)
        assert (catalog_rows(lake), files_on_disk(lake)) == before
        check_invariants(lake)

    def test_schemas_are_merged_or_replaced_if_asked(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        door.write(spark.createDataFrame([(1,)], "id int"))
        wider = spark.createDataFrame([(2**40, "x")], "ID bigint, more string")
        before = catalog_rows(lake), files_on_disk(lake)
        with pytest.raises(PySparkException, match="SchemaMismatchError"):
            door.write(wider)
        assert (catalog_rows(lake), files_on_disk(lake)) == before
        door.write(wider, mergeSchema="true")
        lake.dataset(NAME).rename_column("id", "key")
        door.write(spark.createDataFrame([(3,)], "key int"))
        assert rows(lake) == [(1, None), (2**40, "x"), (3, None)]
        added = lake.dataset(NAME).changes(3).added.column("path")[0].as_py()
        assert pq.read_schema(Path(lake.dataset(NAME).location) / added).field(0).metadata == {
            b"PARQUET:field_id": b"1"
        }
        door.write(spark.createDataFrame([("new",)], "other string"), "overwrite", overwriteSchema="true")
        assert read_dataset(lake, NAME).toArrow().to_pylist() == [{"other": "new"}]
        check_invariants(lake)

    def test_a_batch_is_written_once(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        for _ in range(2):
            door.write(spark.range(1), txnAppId="app", txnVersion=7)
        door.write(spark.range(1), txnAppId="app", txnVersion=8)
        assert (len(rows(lake)), lake.dataset(NAME).version) == (2, 1)
        assert len(data_files(lake)) == 2

    def test_an_append_that_was_overtaken_is_tried_again(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(1))
        append, overwrite = (BatchWriter(door.options | {"path": NAME}, LONG, replaces) for replaces in (False, True))
        write_dataset(lake, NAME, spark.range(1, 2))
        message = append.write(iter([pa.record_batch({"id": [2]})]))
        append.commit([message])
        assert rows(lake) == [(0,), (1,), (2,)]
        message = overwrite.write(iter([pa.record_batch({"id": [9]})]))
        with pytest.raises(Exception, match="and this commit read the whole table"):
            overwrite.commit([message])
        assert (len(rows(lake)), len(data_files(lake))) == (3, 3)


LONG = StructType([StructField("id", LongType())])


class TestFiles:
    def test_files_have_statistics_and_no_more_rows_than_allowed(
        self, lake: Lake, door: Door, spark: SparkSession
    ) -> None:
        frame = spark.range(100).coalesce(1).withColumns({"at": F.timestamp_seconds("id"), "n": F.lit(1.5)})
        door.write(frame, maxRecordsPerFile=30)
        door.write(frame, compression="snappy")
        snapshot = lake.dataset(NAME).snapshot()
        assert sorted(snapshot.files().column("row_count").to_pylist()) == [10, 30, 30, 30, 100]
        assert snapshot.files("id = 10").num_rows == 2
        assert snapshot.row_groups("at < '1970-01-01T00:00:10Z'").num_rows == 2
        found = [pq.read_metadata(path).row_group(0) for path in data_files(lake)]
        assert {group.column(0).compression for group in found} == {"ZSTD", "SNAPPY"}
        assert {group.column(1).physical_type for group in found} == {"INT64"}

    @pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
    def test_partitions_are_those_of_write_dataset(
        self, lake: Lake, door: Door, spark: SparkSession, zone: str
    ) -> None:
        schema = ", ".join(f"{name} {kind}" for name, (kind, _) in KINDS.items())
        data = [(*(value for _, value in KINDS.values()), 0), (*(None for _ in KINDS), 1)]
        frame = spark.createDataFrame(data, f"{schema}, id int")
        before = spark.conf.get("spark.sql.session.timeZone")
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            write_dataset(lake, "native", frame, partition_by=list(KINDS))
            door.write(frame, partitionColumns=json.dumps(list(KINDS)))
        finally:
            spark.conf.set("spark.sql.session.timeZone", before)
        native, ours = (lake.dataset(name).snapshot().files().sort_by("stats") for name in ("native", NAME))
        assert ours.column("partition_values") == native.column("partition_values")
        assert _directories(ours) == _directories(native)
        assert sorted(map(str, door.read().collect())) == sorted(map(str, door.read("native").collect()))

    def test_empty_and_reserved_texts_in_a_partition_column(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        door.write(spark.createDataFrame([("", 1), ("x", 2)], "k string, id int"), partitionColumns="k")
        assert rows(lake) == [("x", 2), (None, 1)]
        reserved = spark.createDataFrame([("__HIVE_DEFAULT_PARTITION__", 1)], "k string, id int")
        with pytest.raises(PySparkException, match="k: rows with the reserved text"):
            door.write(reserved)

    def test_more_partitions_than_files_may_be_open(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        door.write(spark.range(1000).select((F.col("id") % 100).alias("k"), "id").coalesce(1), partitionColumns="k")
        assert (len(data_files(lake)), len(rows(lake))) == (100, 1000)

    @given(table=tables())
    @settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))
    def test_random_tables_come_back_as_they_were(
        self, lake: Lake, door: Door, spark: SparkSession, table: pa.Table
    ) -> None:
        first, second = uuid.uuid4().hex, uuid.uuid4().hex
        write_dataset(lake, first, table, spark=spark)
        door.write(read_dataset(lake, first), name=second)
        expected = read_dataset(lake, first)
        assert lake.dataset(second).schema() == lake.dataset(first).schema()
        assert sorted(map(str, read_dataset(lake, second).toArrow().to_pylist())) == sorted(
            map(str, expected.toArrow().to_pylist())
        )


class TestRefused:
    def test_all_wrong_options_are_named_at_once_before_any_file(
        self, lake: Lake, door: Door, spark: SparkSession
    ) -> None:
        with pytest.raises(PySparkException) as caught:
            door.write(
                spark.range(1),
                versionAsOf=1,
                mergeSchema="perhaps",
                replaceWhere="k = 1",
                partitionOverwriteMode="x",
                txnAppId="a",
                compression="lzo",
                maxRecordsPerFile=0,
                overwriteSchma="true",
            )
        found = sorted(line.split(":")[0] for line in str(caught.value).splitlines() if line.startswith("  - "))
        assert found == [
            "  - compression",
            "  - maxRecordsPerFile",
            "  - mergeSchema",
            "  - overwriteschma",
            "  - partitionOverwriteMode",
            "  - replaceWhere",
            "  - txnAppId",
            "  - versionAsOf",
        ]
        assert (files_on_disk(lake), lake.datasets()) == ([], [])

    def test_a_catalog_of_duckdb(self, spark: SparkSession, tmp_path: Path) -> None:
        writer = spark.range(1).write.format("lakelog").option("catalog", f"duckdb:///{tmp_path}/c.db")
        with pytest.raises(PySparkException, match=r"a DuckDB catalog belongs to one process.*lakelog\.write_dataset"):
            writer.mode("append").save(NAME)
        assert list(tmp_path.iterdir()) == []

    def test_nulls_for_not_null_leave_nothing(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        nested = pa.struct([pa.field("x", pa.int32(), False)])
        lake.create_dataset(NAME, pa.schema([pa.field("id", pa.int32(), False), ("s", nested)]))
        before = catalog_rows(lake), files_on_disk(lake)
        bad = spark.createDataFrame([(1, (1,)), (None, None), (2, (None,))], "id int, s struct<x int>").coalesce(1)
        with pytest.raises(PySparkException, match="id: expected no nulls, found 1 null value"):
            door.write(bad)
        assert (catalog_rows(lake), files_on_disk(lake)) == before
        door.write(spark.createDataFrame([(1, None), (2, (1,))], "id int, s struct<x int>"))
        assert len(rows(lake)) == 2

    def test_a_query_that_fails_leaves_nothing(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        door.write(spark.range(1))
        before = catalog_rows(lake), files_on_disk(lake)
        broken = F.when(F.col("id") == 30_000, F.raise_error(F.lit("broken"))).otherwise(F.col("id")).alias("id")
        with pytest.raises(PySparkException, match="broken"):
            door.write(spark.range(40_000).coalesce(1).select(broken), maxRecordsPerFile=1000)
        assert (catalog_rows(lake), files_on_disk(lake)) == before

    def test_what_a_new_table_cannot_be(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        with pytest.raises(PySparkException, match="'nope' is not a column"):
            door.write(spark.range(1), partitionColumns="nope")
        write_dataset(lake, NAME, spark.range(1))
        with pytest.raises(PySparkException, match=r"the table is partitioned by \[\], not by \['id'\]"):
            door.write(spark.range(1), partitionColumns="id")


class TestOutcomes:
    """Spark calls ``abort`` after a commit that failed, with the same messages."""

    @pytest.fixture
    def written(self, lake: Lake, door: Door, spark: SparkSession) -> tuple[BatchWriter, Any]:
        write_dataset(lake, NAME, spark.range(1))
        writer = BatchWriter(door.options | {"path": NAME}, LONG, False)
        return writer, writer.write(iter([pa.record_batch({"id": [1]})]))

    @pytest.mark.parametrize("error", [CommitOutcomeUnknown("id"), RuntimeError("after COMMIT")])
    def test_files_stay_when_nobody_knows_whether_they_are_committed(
        self, lake: Lake, written: tuple[BatchWriter, Any], monkeypatch: pytest.MonkeyPatch, error: Exception
    ) -> None:
        writer, message = written
        commit = Committer.commit

        def commit_and_fail(*arguments: Any) -> Any:
            commit(*arguments)
            raise error

        monkeypatch.setattr(Committer, "commit", commit_and_fail)
        with pytest.raises(type(error)):
            writer.commit([message])
        monkeypatch.undo()
        writer.abort([message])
        assert rows(lake) == [(0,), (1,)]

    def test_files_go_when_a_task_failed_or_the_commit_is_known_to_have(
        self, lake: Lake, written: tuple[BatchWriter, Any]
    ) -> None:
        writer, message = written
        assert len(data_files(lake)) == 2
        writer.abort([message, None])
        assert len(data_files(lake)) == 1

    def test_a_table_that_became_another_is_refused(
        self, lake: Lake, written: tuple[BatchWriter, Any], spark: SparkSession
    ) -> None:
        writer, message = written
        lake.drop_dataset(NAME)
        write_dataset(lake, NAME, spark.range(1))
        with pytest.raises(Exception, match="was dropped and created again"):
            writer.commit([message])
        assert rows(lake) == [(0,)]


def _directories(files: Any) -> list[str]:
    return [path.split("/", 1)[1].rpartition("/")[0] for path in files.column("path").to_pylist()]
