"""``LakeTable``: what a user of ``delta.tables.DeltaTable`` finds under the same names."""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from lakelog import ConfigurationError, DatasetExistsError, DatasetNotFoundError, Lake, ValidationError, write_dataset
from lakelog.spark import LakeTable, attach
from lakelog.spark.sql.views import CATALOG, ROOT
from tests.invariants import check_invariants


@pytest.fixture
def attached(local: Lake, spark: SparkSession) -> Iterator[Lake]:
    with attach(spark, local):
        yield local


@pytest.fixture
def table(attached: Lake, spark: SparkSession) -> LakeTable:
    write_dataset(attached, "events", spark.range(10).selectExpr("id", "CAST(id AS string) AS s").coalesce(1))
    return LakeTable.forName(spark, "events")


def ids(table: LakeTable) -> list[int]:
    return sorted(row["id"] for row in table.toDF().collect())


class TestFinding:
    def test_by_name_and_by_path(self, table: LakeTable, attached: Lake, spark: SparkSession) -> None:
        location = attached.dataset("events").location
        assert LakeTable.forPath(spark, location).toDF().count() == 10
        assert LakeTable.forPath(spark, f"file://{location}/").dataset.id == table.dataset.id
        assert LakeTable.isLakeTable(spark, "events")
        assert LakeTable.isLakeTable(spark, location)
        assert not LakeTable.isLakeTable(spark, "nothing")
        with pytest.raises(DatasetNotFoundError, match="lies at '/nowhere'"):
            LakeTable.forPath(spark, "/nowhere")
        with pytest.raises(DatasetNotFoundError):
            LakeTable.forName(spark, "nothing")

    def test_the_session_or_the_caller_says_which_lake(self, local: Lake, spark: SparkSession, tmp_path: Path) -> None:
        local.create_dataset("events", pa.schema([("id", pa.int64())]))
        with pytest.raises(ConfigurationError, match="this session knows no lake"):
            LakeTable.forName(spark, "events")
        assert ids(LakeTable.forName(spark, "events", lake=local)) == []
        spark.conf.set(CATALOG, f"sqlite:///{tmp_path}/catalog.db")
        spark.conf.set(ROOT, str(tmp_path / "lake"))
        try:
            assert ids(LakeTable.forName(spark, "events")) == []
        finally:
            spark.conf.unset(CATALOG)
            spark.conf.unset(ROOT)


class TestVerbs:
    def test_rows_are_deleted_updated_and_merged(self, table: LakeTable, spark: SparkSession) -> None:
        table.delete("id > 7")
        table.delete(F.col("id") == 0)
        table.update("id = 1", {"s": "'one'"})
        table.update(condition=F.col("id") == 2, set={"s": F.lit("two")})
        source = spark.createDataFrame([(3, "three"), (99, "new")], "id long, s string")
        answer = (
            table.alias("t")
            .merge(source.alias("u"), "t.id = u.id")
            .whenMatchedUpdateAll()
            .whenNotMatchedInsertAll()
            .whenNotMatchedBySourceDelete("t.id = 4")
            .execute()
        )
        assert [row.asDict() for row in answer.collect()] == [
            {"num_affected_rows": 3, "num_updated_rows": 1, "num_deleted_rows": 1, "num_inserted_rows": 1}
        ]
        found = {row["id"]: row["s"] for row in table.toDF().collect()}
        assert found == {1: "one", 2: "two", 3: "three", 5: "5", 6: "6", 7: "7", 99: "new"}
        with pytest.raises(ValidationError, match="set: expected columns"):
            table.update("id = 1")

    def test_an_alias_names_the_table_in_every_expression(self, table: LakeTable) -> None:
        named = table.alias("t")
        named.delete("t.id > 2 AND t.s <> '9'")
        named.delete(F.col("t.id") == 0)
        named.update("t.id = 1", {"t.s": "concat(t.s, 't')"})
        named.update(set={"s": F.concat(F.col("t.s"), F.lit("!"))})
        assert {row["id"]: row["s"] for row in table.toDF().collect()} == {1: "1t!", 2: "2!", 9: "9!"}
        with pytest.raises(ValidationError, match="u"):
            named.delete("u.id = 1")

    def test_its_own_name_names_the_table_in_every_expression(self, attached: Lake, spark: SparkSession) -> None:
        attached.create_dataset("p", pa.schema([("id", pa.int64()), ("s", pa.string())]))
        table = LakeTable.forName(spark, "default.P")
        write_dataset(attached, "p", spark.sql("SELECT id, CAST(id AS STRING) AS s FROM range(6)"))
        table.delete("p.id = 1")
        table.delete(F.col("p.id") == 2)
        table.update("p.id = 3", {"p.s": "concat(p.s, '!')"})
        source = spark.createDataFrame([(4, "four"), (9, "nine")], "id long, s string").alias("s")
        (
            table.merge(source, "p.id = s.id")
            .whenMatchedUpdate("p.s = '4'", {"p.s": "concat(p.s, s.s)"})
            .whenNotMatchedInsert(values={"`p`.id": "s.id", "p.s": "s.s"})
            .whenNotMatchedBySourceDelete("p.id = 5")
            .execute()
        )
        shown = table.toDF().where("p.id > 0").select("p.id", "p.s")
        assert sorted(map(tuple, shown.collect())) == [(3, "3!"), (4, "4four"), (9, "nine")]
        table.clone("copy", isShallow=True).delete("copy.id = 3")
        assert ids(LakeTable.forName(spark, "copy")) == [0, 4, 9]
        with pytest.raises(ValidationError, match="p"):
            table.alias("t").delete("p.id = 3")

    @pytest.mark.parametrize(
        ("name", "before"),
        [
            ("p", "p"),
            ("p", "default.p"),
            ("default.p", "spark_catalog.default.p"),
            ("spark_catalog.default.P", "`default`.`p`"),
        ],
    )
    def test_the_name_of_its_database_may_come_first(
        self, attached: Lake, spark: SparkSession, name: str, before: str
    ) -> None:
        rows = spark.sql("SELECT id, CAST(id AS STRING) AS s, id % 2 AS k FROM range(8)")
        write_dataset(attached, "p", rows.coalesce(1), partition_by=["k"])
        write_dataset(attached, "p", rows.where("id > 5").coalesce(1))
        table = LakeTable.forName(spark, name)
        (answer,) = table.optimize().where(f"{before}.k = 1").executeCompaction().collect()
        assert (answer.metrics.numFilesRemoved, answer.metrics.numFilesAdded) == (2, 1)
        table.delete(f"{before}.id > 5")
        table.update(F.col(f"{before}.id") == 3, {f"{before}.s": f"concat({before}.s, '!')"})
        source = spark.createDataFrame([(4, "four"), (9, "nine")], "id long, s string").alias("s")
        (
            table.merge(source, f"{before}.id = s.id")
            .whenMatchedUpdate(f"{before}.s = '4'", {f"{before}.s": f"concat({before}.s, s.s)"})
            .whenNotMatchedInsert(values={f"{before}.id": "s.id", f"{before}.s": "s.s"})
            .whenNotMatchedBySourceDelete(f"{before}.id < 2")
            .execute()
        )
        shown = table.toDF().where(f"{before}.id > 0").select(f"{before}.id", f"{before}.s")
        assert sorted(map(tuple, shown.collect())) == [(2, "2"), (3, "3!"), (4, "4four"), (5, "5"), (9, "nine")]
        with pytest.raises(ValidationError, match="other"):
            table.delete("other.p.id = 3")
        with pytest.raises(ValidationError, match="default"):
            table.alias("t").delete("default.t.id = 3")

    def test_an_optimization_chooses_partitions_by_an_alias(self, attached: Lake, spark: SparkSession) -> None:
        write_dataset(attached, "p", spark.range(4).selectExpr("id", "id % 2 AS k").coalesce(1), partition_by=["k"])
        table = LakeTable.forName(spark, "p").alias("t")
        assert table.optimize().where("t.k = 1").executeCompaction().count() == 1
        with pytest.raises(ValidationError, match="partition columns only"):
            table.optimize().where("t.id = 1").executeCompaction()

    def test_a_column_of_the_tables_name_keeps_its_fields(self, attached: Lake, spark: SparkSession) -> None:
        """As in Spark, ``p.id`` is the table's column, and ``p.x`` the column's field where the table has no x."""
        rows = spark.sql("SELECT id, named_struct('id', id + 10, 'x', id + 20) AS p FROM range(3)")
        write_dataset(attached, "p", rows)
        table = LakeTable.forName(spark, "p")
        table.delete("p.id = 1")
        table.delete("p.x = 22")
        table.update(set={"p.x": "p.x + p.p.x", "p.id": "p.id + 1"})
        assert [tuple(row) for row in table.toDF().selectExpr("id", "p.p.id", "p.x").collect()] == [(1, 10, 40)]

    def test_an_alias_names_partitions(self, attached: Lake, spark: SparkSession) -> None:
        write_dataset(attached, "days", spark.sql("SELECT id, id % 2 AS day FROM range(4)"), partition_by=["day"])
        table = LakeTable.forName(spark, "days").alias("t")
        table.delete("t.day = 1")
        assert ids(table) == [0, 2]

    def test_history_and_detail_have_deltas_columns(self, table: LakeTable) -> None:
        table.delete("id = 1")
        newest, oldest = table.history().collect()
        assert (newest["version"], newest["operation"], newest["operationParameters"]) == (
            1,
            "DELETE",
            {"predicate": '["id = 1"]'},
        )
        assert (newest["operationMetrics"]["numDeletedRows"], newest["readVersion"]) == ("1", 0)
        assert (oldest["operation"], table.history(1).count()) == ("CREATE TABLE AS SELECT", 1)
        (detail,) = table.detail().collect()
        assert (detail["format"], detail["name"], detail["numFiles"]) == ("lakelog", "events", 1)
        assert (detail["minReaderVersion"], detail["minWriterVersion"]) == (1, 2)
        assert detail["sizeInBytes"] > 0

    def test_the_protocol_is_raised_and_never_lowered(self, table: LakeTable) -> None:
        table.upgradeTableProtocol(1, 3)
        assert table.detail().collect()[0]["minWriterVersion"] == 3
        table.upgradeTableProtocol(1, 3)
        raised = table.history(1).collect()
        table.upgradeTableProtocol(1, 2)
        assert table.history(1).collect() == raised
        assert (raised[0]["operation"], table.detail().collect()[0]["minWriterVersion"]) == ("UPGRADE PROTOCOL", 3)


class TestUpkeep:
    def test_files_are_written_together_sorted_and_vacuumed(
        self, table: LakeTable, attached: Lake, spark: SparkSession
    ) -> None:
        for start in (10, 20):
            write_dataset(attached, "events", spark.range(start, start + 10).selectExpr("id", "'x' AS s").coalesce(1))
        (answer,) = table.optimize().executeCompaction().collect()
        assert (answer["metrics"]["numFilesAdded"], answer["metrics"]["numFilesRemoved"]) == (1, 3)
        removed = answer["metrics"]["filesRemoved"]
        assert removed["min"] <= removed["avg"] <= removed["max"] < removed["totalSize"]
        assert (removed["totalFiles"], answer["metrics"]["totalConsideredFiles"]) == (3, 3)
        assert answer["metrics"]["zOrderStats"] is None
        (answer,) = table.optimize().executeZOrderBy("id", "s").collect()
        assert answer["metrics"]["numFilesRemoved"] == answer["metrics"]["zOrderStats"]["mergedFiles"]["num"] == 1
        (answer,) = table.optimize().executeCompaction().collect()
        assert (answer["metrics"]["filesAdded"]["min"], answer["metrics"]["totalFilesSkipped"]) == (None, 1)
        vacuumed = table.vacuum()
        assert (vacuumed.count(), vacuumed.columns) == (0, [])
        assert ids(table) == list(range(30))

    def test_a_table_is_restored_and_cloned(self, table: LakeTable, spark: SparkSession) -> None:
        table.delete("id > 3")
        (answer,) = table.restoreToVersion(0).collect()
        assert (answer["num_restored_files"], answer["num_removed_files"]) == (1, 1)
        assert table.history(1).collect()[0]["operationParameters"] == {"version": "0", "timestamp": None}
        assert len(ids(table)) == 10
        assert ids(table.cloneAtVersion(1, "cloned", True)) == [0, 1, 2, 3]
        assert len(ids(table.clone("copied"))) == 10
        assert ids(LakeTable.forName(spark, "cloned")) == [0, 1, 2, 3]

    def test_lists_of_files_for_engines_without_a_log(
        self, table: LakeTable, attached: Lake, spark: SparkSession
    ) -> None:
        table.generate("symlink_format_manifest")
        root = Path(table.dataset.location)
        listed = (root / "_symlink_format_manifest" / "manifest").read_text().splitlines()
        assert spark.read.parquet(*listed).count() == 10
        write_dataset(attached, "parts", spark.sql("SELECT id, id % 2 AS k FROM range(4)"), partition_by=["k"])
        parts = LakeTable.forName(spark, "parts")
        parts.generate("symlink_format_manifest")
        parts.generate("symlink_format_manifest")
        found = sorted(Path(parts.dataset.location, "_symlink_format_manifest").rglob("manifest"))
        assert [file.parent.name for file in found] == ["k=0", "k=1"]
        with pytest.raises(ValidationError, match="expected 'symlink_format_manifest'"):
            table.generate("other")

    def test_a_feature_is_added_to_the_protocol(self, table: LakeTable) -> None:
        table.addFeatureSupport("deletionVectors")
        assert "deletionVectors" in table.detail().collect()[0]["tableFeatures"]
        with pytest.raises(ValidationError, match="is not a feature"):
            table.addFeatureSupport("nope")


class TestBuilder:
    def test_a_table_is_created_with_columns_comments_and_properties(self, attached: Lake, spark: SparkSession) -> None:
        table = (
            LakeTable.create(spark)
            .tableName("people")
            .comment("who is who")
            .addColumn("id", "BIGINT", nullable=False, comment="a number")
            .addColumn("name", StringType())
            .addColumns([StructField("age", IntegerType())])
            .partitionedBy("age")
            .property("team", "data")
            .execute()
        )
        dataset = table.dataset
        assert dataset.schema().names == ["id", "name", "age"]
        assert not dataset.schema().field("id").nullable
        assert table.toDF().schema["id"].metadata == {"comment": "a number"}
        metadata = dataset.snapshot().metadata
        assert (metadata.description, metadata.partition_columns) == ("who is who", ("age",))
        assert metadata.configuration["team"] == "data"
        with pytest.raises(DatasetExistsError):
            LakeTable.create(spark).tableName("people").addColumn("id", "INT").execute()
        again = LakeTable.createIfNotExists(spark).tableName("people").addColumn("other", "INT").execute()
        assert again.dataset.schema().names == ["id", "name", "age"]

    def test_a_table_is_replaced(self, table: LakeTable, attached: Lake, spark: SparkSession) -> None:
        with pytest.raises(DatasetNotFoundError, match="no dataset 'new' to replace"):
            LakeTable.replace(spark).tableName("new").addColumn("id", "INT").execute()
        LakeTable.createOrReplace(spark).tableName("new").addColumn("id", "INT").execute()
        columns = StructType([StructField("key", LongType()), StructField("day", StringType())])
        replaced = LakeTable.createOrReplace(spark).tableName("events").addColumns(columns).partitionedBy(["day"])
        replaced.property("a", "b").execute()
        assert (table.toDF().columns, table.toDF().count()) == (["key", "day"], 0)
        assert table.history(1).collect()[0]["operation"] == "CREATE OR REPLACE TABLE"
        assert attached.dataset("events").count(version=0) == 10
        write_dataset(attached, "events", spark.sql("SELECT 1L AS key, 'd' AS day"))
        assert table.toDF().count() == 1
        check_invariants(attached)

    def test_what_a_table_needs_is_asked_for(self, attached: Lake, spark: SparkSession) -> None:
        with pytest.raises(ValidationError, match="expected a tableName or a location"):
            LakeTable.create(spark).addColumn("id", "INT").execute()
        with pytest.raises(ValidationError, match="identity columns are not supported"):
            LakeTable.create(spark).addColumn("id", "BIGINT", generatedByDefaultAs=object())
        with pytest.raises(ValidationError, match="clusterBy"):
            LakeTable.create(spark).clusterBy("id")
        with pytest.raises(ValidationError, match=r"(?s)tableName: .*expected a text"):
            LakeTable.create(spark).tableName(3)  # type: ignore[arg-type]


class TestConversion:
    def test_parquet_files_become_a_table(self, attached: Lake, spark: SparkSession, tmp_path: Path) -> None:
        place = tmp_path / "files" / "day=2026-01-01"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2]}), place / "a.parquet")
        table = LakeTable.convertToLakelog(spark, f"parquet.`{tmp_path}/files`", "day date")
        assert [tuple(map(str, row)) for row in table.toDF().orderBy("id").collect()] == [
            ("1", "2026-01-01"),
            ("2", "2026-01-01"),
        ]
        assert table.dataset.name == "files"

    def test_a_delta_table_becomes_one(self, attached: Lake, spark: SparkSession, tmp_path: Path) -> None:
        deltalake = pytest.importorskip("deltalake")
        deltalake.write_deltalake(str(tmp_path / "old"), pa.table({"id": [1, 2, 3]}))
        table = LakeTable.convertToLakelog(spark, f"delta.`{tmp_path}/old`", name="moved")
        assert ids(table) == [1, 2, 3]

    def test_anything_else_is_refused(self, attached: Lake, spark: SparkSession) -> None:
        with pytest.raises(ValidationError, match="expected parquet"):
            LakeTable.convertToLakelog(spark, "orc.`/x`")


DELTA = {
    "forName": ["sparkSession", "tableOrViewName"],
    "forPath": ["sparkSession", "path", "hadoopConf"],
    "create": ["sparkSession"],
    "createIfNotExists": ["sparkSession"],
    "replace": ["sparkSession"],
    "createOrReplace": ["sparkSession"],
    "toDF": [],
    "alias": ["aliasName"],
    "delete": ["condition"],
    "update": ["condition", "set"],
    "merge": ["source", "condition"],
    "history": ["limit"],
    "detail": [],
    "upgradeTableProtocol": ["readerVersion", "writerVersion"],
    "addFeatureSupport": ["featureName"],
    "vacuum": ["retentionHours"],
    "optimize": [],
    "restoreToVersion": ["version"],
    "restoreToTimestamp": ["timestamp"],
    "clone": ["target", "isShallow", "replace", "properties"],
    "cloneAtVersion": ["version", "target", "isShallow", "replace", "properties"],
    "cloneAtTimestamp": ["timestamp", "target", "isShallow", "replace", "properties"],
    "generate": ["mode"],
}
"""Delta's methods, and their arguments in order."""


@pytest.mark.parametrize("name", DELTA)
def test_a_method_takes_what_deltas_takes(name: str) -> None:
    found: Any = inspect.signature(getattr(LakeTable, name)).parameters.values()
    assert [each.name for each in found if each.kind is not each.KEYWORD_ONLY and each.name != "self"] == DELTA[name]
