"""Reading through Spark's own door gives what ``read_dataset`` gives, of one version, and refuses what it cannot."""

import subprocess
import sys
import uuid
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import lakelog.spark
from lakelog import Lake, SqlTxnLogWriter, read_dataset, write_dataset
from lakelog.actions import AddFile
from tests.fixtures.door import BACKENDS, KINDS, NAME, Door
from tests.fixtures.lakes import Place
from tests.schemas import tables


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


NO_CHANGES = (
    "is not possible here: would give rows again that a change only moved; skipChangeCommits leaves such commits out"
)
A_TIME = "expected a datetime, an ISO text such as '2026-01-31T12:00:00Z', or milliseconds since 1970"

on_every_catalog = pytest.mark.parametrize("backend", BACKENDS, indirect=True)


def rows(frame: Any) -> list[str]:
    return sorted(map(str, frame.toArrow().to_pylist()))


class TestRows:
    @on_every_catalog
    def test_versions_times_and_columns(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(3))
        write_dataset(lake, NAME, spark.range(3, 5))
        first = lake.dataset(NAME).history()[1].timestamp
        assert [row.id for row in door.read().orderBy("id").collect()] == [0, 1, 2, 3, 4]
        assert door.read(versionAsOf=0).count() == 3
        assert door.read(TIMESTAMPASOF=first.isoformat()).count() == 3
        given = spark.read.schema("ID bigint").format("lakelog").options(**door.options).load(NAME)
        assert given.agg(F.sum("ID")).collect()[0][0] == 10

    def test_a_frame_stays_at_the_version_of_its_schema(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(3))
        frame = door.read()
        write_dataset(lake, NAME, spark.range(1).withColumn("more", F.lit("x")), schema_merge=True)
        assert (frame.columns, frame.count()) == (["id"], 3)
        frame = door.read()
        lake.drop_dataset(NAME)
        write_dataset(lake, NAME, spark.range(9))
        with pytest.raises(PySparkException, match="was dropped and created again"):
            frame.count()

    def test_partition_values_are_the_catalogs(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        schema = ", ".join(f"{name} {kind}" for name, (kind, _) in KINDS.items())
        data = [(*(value for _, value in KINDS.values()), 0), (*(None for _ in KINDS), 1)]
        write_dataset(lake, NAME, spark.createDataFrame(data, f"{schema}, id int"), partition_by=list(KINDS))
        assert rows(door.read()) == rows(read_dataset(lake, NAME))
        only = spark.read.schema("s string, T timestamp").format("lakelog").options(**door.options).load(NAME)
        assert rows(only) == rows(read_dataset(lake, NAME, columns=["s", "t"]).withColumnRenamed("t", "T"))

    def test_columns_that_were_added_widened_renamed_and_made_text(
        self, lake: Lake, door: Door, spark: SparkSession
    ) -> None:
        write_dataset(lake, NAME, spark.sql("SELECT 1 AS id, 2 AS n, named_struct('x', 1) AS s"), mirror=False)
        wider = spark.sql("SELECT 5000000000 AS id, 'text' AS n, named_struct('x', 2L, 'y', 'b') AS s, 1.5D AS more")
        write_dataset(lake, NAME, wider, schema_merge=True, promote_to_string=True)
        lake.dataset(NAME).rename_column("s.x", "z")
        lake.dataset(NAME).rename_column("more", "most")
        frame = door.read()
        assert frame.schema == read_dataset(lake, NAME).schema
        assert rows(frame) == rows(read_dataset(lake, NAME))
        assert rows(door.read(versionAsOf=0)) == rows(read_dataset(lake, NAME, version=0))
        for name in ("id", "n", "s"):
            lake.dataset(NAME).drop_column(name)
        assert rows(door.read()) == ["{'most': 1.5}", "{'most': None}"], "also where a file has no column that is left"

    def test_int96_and_nan_and_an_empty_table(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        schema = pa.schema([("at", pa.timestamp("us", "UTC")), ("f", pa.float64())])
        dataset = lake.create_dataset(NAME, schema)
        assert door.read().collect() == []
        place = Path(dataset.location) / "old.parquet"
        place.parent.mkdir(parents=True, exist_ok=True)
        old = [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]
        frame = spark.createDataFrame([(at, float("nan")) for at in old], "at timestamp, f double").coalesce(1)
        frame.write.option("spark.sql.parquet.outputTimestampType", "INT96").parquet(f"{dataset.location}/int96")
        (place,) = Path(dataset.location, "int96").glob("*.parquet")
        assert pq.read_schema(place).field("at").type == pa.timestamp("ns"), "which is how pyarrow shows INT96"
        add = AddFile(path=f"int96/{place.name}", size=place.stat().st_size, modification_time=0)
        SqlTxnLogWriter(lake).commit(dataset.id, 1, [add])
        assert rows(door.read()) == rows(read_dataset(lake, NAME))
        assert door.read().where("f > 1").count() == 2

    @given(table=tables())
    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    def test_random_tables_are_read_as_read_dataset_reads_them(
        self, lake: Lake, door: Door, spark: SparkSession, table: pa.Table
    ) -> None:
        name = uuid.uuid4().hex
        write_dataset(lake, name, table, spark=spark)
        frame = door.read(name)
        assert frame.schema == read_dataset(lake, name).schema
        assert rows(frame) == rows(read_dataset(lake, name))

    def test_filters_of_one_query_do_not_reach_another(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        """Spark would give both the files that are left by the last filter, were any left out."""
        write_dataset(lake, NAME, spark.range(0, 100, numPartitions=4))
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        try:
            frame = door.read()
            assert frame.where("id = 5").count() == 1
            assert frame.count() == 100
            assert frame.where("id = 5").union(frame.where("id = 95")).count() == 2
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")


class TestRefused:
    def test_all_wrong_options_are_named_at_once(self, door: Door) -> None:
        with pytest.raises(AnalysisException) as caught:
            door.read(versionAsof="x", timestampAsOf="y", mergeSchema="true", ignoreChanges="true", maxFilePerTrigger=1)
        found = [line.strip() for line in str(caught.value).splitlines() if line.startswith("  - ")]
        assert sorted(found) == [
            f"- ignoreChanges: {NO_CHANGES}",
            "- maxfilepertrigger: is not an option; did you mean maxFilesPerTrigger?",
            "- mergeSchema: is an option of df.write and df.writeStream",
            f"- timestampAsOf: {A_TIME}",
            "- versionAsOf: expected an integer from 0 on, got 'x'",
            "- versionAsOf: goes without timestampAsOf: give one of them",
        ]

    def test_a_catalog_of_duckdb_or_none_at_all(self, spark: SparkSession, tmp_path: Path) -> None:
        source = spark.read.format("lakelog")
        with pytest.raises(AnalysisException, match=r"a DuckDB catalog belongs to one process.*lakelog.read_dataset"):
            source.option("catalog", f"duckdb:///{tmp_path}/catalog.db").load(NAME)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(AnalysisException, match="catalog: is needed"):
            spark.read.format("lakelog").load()

    def test_places_that_depend_on_the_directory(self, spark: SparkSession) -> None:
        relative = {"catalog": "sqlite:///catalog.db", "root": "lake"}
        with pytest.raises(AnalysisException) as caught:
            spark.read.format("lakelog").options(**relative).load(NAME)
        assert "catalog: is relative, and the processes that Spark starts" in str(caught.value)
        assert "root: is relative" in str(caught.value)

    def test_tables_and_catalogs_that_are_not_there(self, lake: Lake, door: Door, place: Place) -> None:
        with pytest.raises(AnalysisException, match="there is no dataset 'events'"):
            door.read()
        door.options["catalog"] += ".other"
        with pytest.raises(AnalysisException, match="there is no catalog"):
            door.read()
        assert not Path(place.url.removeprefix("sqlite:///") + ".other").exists()

    def test_a_schema_that_the_table_does_not_have(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(1))
        asked = spark.read.schema("id int, more string").format("lakelog").options(**door.options).load(NAME)
        with pytest.raises(PySparkException) as caught:
            asked.collect()
        assert "id: is int64 in the table, not int32: cast it after the read" in str(caught.value)
        assert "more: is not a column of the table" in str(caught.value)

    def test_a_file_that_is_gone_is_never_skipped(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(10))
        for path in lake.dataset(NAME).snapshot().files().column("path").to_pylist():
            Path(lake.dataset(NAME).location, path).unlink()
        with pytest.raises(PySparkException, match="is gone: it belongs to a version that was read too late"):
            door.read().count()

    def test_dates_of_another_calendar(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
        try:
            write_dataset(lake, NAME, spark.sql("SELECT array(DATE '1200-01-01') AS days"))
        finally:
            spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
        with pytest.raises(PySparkException, match=r"may have dates of the calendar of Spark 2.*lakelog\.read_dataset"):
            door.read().collect()


class TestFinding:
    def test_the_module_that_spark_imports_is_light(self) -> None:
        code = "import sys, pyspark_lakelog; print([name for name in sys.modules if name.startswith('lakelog')])"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout.strip() == b"[]"

    def test_a_session_can_be_told(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        lakelog.spark.register(spark)
        write_dataset(lake, NAME, spark.range(3))
        assert door.read().count() == 3


class TestSql:
    @on_every_catalog
    def test_a_temporary_view_is_read_and_written(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(3))
        options = ", ".join(f"{key} '{value}'" for key, value in {**door.options, "path": NAME}.items())
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW through USING lakelog OPTIONS ({options})")
        assert spark.sql("SELECT sum(id) FROM through WHERE id > 1").collect()[0][0] == 2
        spark.sql("INSERT INTO through VALUES (10), (11)")
        assert read_dataset(lake, NAME).count() == 5
        assert spark.table("through").count() == 3, "a view stays at the version that it was made of"
        spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW through USING lakelog OPTIONS ({options})")
        assert spark.table("through").count() == 5
