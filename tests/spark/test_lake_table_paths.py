"""Tables by their paths, as users of Delta know them who never gave one a name; and the same verbs on ``Dataset``."""

import inspect
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakelog import (
    Dataset,
    DatasetExistsError,
    DatasetNotFoundError,
    Lake,
    SqlTxnLogWriter,
    ValidationError,
    write_dataset,
)
from lakelog.actions import DomainMetadata
from lakelog.spark import LakeTable, attach
from lakelog.spark.frames import setting
from tests.invariants import check_invariants


@pytest.fixture
def attached(local: Lake, spark: SparkSession) -> Iterator[Lake]:
    with attach(spark, local):
        yield local


@pytest.fixture
def events(attached: Lake, spark: SparkSession) -> LakeTable:
    write_dataset(attached, "events", spark.range(5).coalesce(1))
    return LakeTable.forName(spark, "events")


def ids(table: LakeTable) -> list[int]:
    return sorted(row["id"] for row in table.toDF().collect())


class TestPaths:
    def test_a_path_in_backticks_is_a_table(self, events: LakeTable, spark: SparkSession) -> None:
        place = events.dataset.location
        for identifier in (f"delta.`{place}`", f"lakelog.`{place}/`", place):
            assert LakeTable.forName(spark, identifier).dataset.id == events.dataset.id
            assert LakeTable.isDeltaTable(spark, identifier)
        assert not LakeTable.isDeltaTable(spark, f"delta.`{place}-other`")
        with pytest.raises(DatasetNotFoundError, match="lies at '/nowhere'"):
            LakeTable.forName(spark, "delta.`/nowhere`")

    def test_a_table_is_built_at_a_path(self, attached: Lake, spark: SparkSession, tmp_path: Path) -> None:
        place = tmp_path / "elsewhere" / "users"
        made = LakeTable.create(spark).location(str(place)).addColumn("id", "BIGINT").execute()
        assert (made.dataset.name, made.dataset.location) == ("users", str(place))
        with pytest.raises(DatasetExistsError, match="already a dataset 'users'"):
            LakeTable.create(spark).tableName(f"delta.`{place}`").addColumn("id", "BIGINT").execute()
        again = LakeTable.createIfNotExists(spark).location(f"{place}/").addColumn("other", "INT").execute()
        assert again.dataset.schema().names == ["id"]
        LakeTable.replace(spark).location(str(place)).addColumn("key", "INT").execute()
        assert again.dataset.schema().names == ["key"]
        with pytest.raises(DatasetNotFoundError, match="/nowhere"):
            LakeTable.replace(spark).location("/nowhere").addColumn("key", "INT").execute()

    def test_tables_whose_paths_end_alike_get_names_that_differ(
        self, events: LakeTable, attached: Lake, spark: SparkSession, tmp_path: Path
    ) -> None:
        place = tmp_path / "old" / "events"
        made = LakeTable.create(spark).location(str(place)).addColumn("id", "BIGINT").execute()
        assert (made.dataset.name, set(attached.versions())) == ("old_events", {"events", "old_events"})

    def test_a_clone_lies_where_it_was_asked_for(self, events: LakeTable, attached: Lake, tmp_path: Path) -> None:
        place = str(tmp_path / "clones" / "events")
        clone = events.clone(place, isShallow=True)
        assert (ids(clone), clone.dataset.location) == ([0, 1, 2, 3, 4], place)
        events.delete("id < 3")
        with pytest.raises(DatasetExistsError):
            events.clone(place)
        again = events.clone(place, replace=True)
        assert (ids(again), again.dataset.id) == ([3, 4], clone.dataset.id)
        assert ids(events.cloneAtVersion(0, f"delta.`{tmp_path}/third`")) == [0, 1, 2, 3, 4]
        check_invariants(attached)

    def test_files_are_converted_by_deltas_name_for_it(
        self, events: LakeTable, attached: Lake, spark: SparkSession, tmp_path: Path
    ) -> None:
        place = tmp_path / "raw" / "events"
        place.mkdir(parents=True)
        pq.write_table(pa.table({"id": [7]}), place / "a.parquet")
        table = LakeTable.convertToDelta(spark, f"parquet.`{place}`")
        assert (ids(table), table.dataset.name) == ([7], "raw_events")


class TestVacuum:
    def test_deltas_setting_allows_a_retention_that_is_not_safe(self, events: LakeTable, spark: SparkSession) -> None:
        events.delete("id = 0")
        files = list(Path(events.dataset.location).rglob("*.parquet"))
        with pytest.raises(ValidationError, match="too few"):
            events.vacuum(0)
        with setting(spark, "spark.databricks.delta.retentionDurationCheck.enabled", "false"):
            events.vacuum(0)
        assert len(list(Path(events.dataset.location).rglob("*.parquet"))) == len(files) - 1
        assert ids(events) == [1, 2, 3, 4]


PLAIN = {
    "forName": Lake.dataset,
    "forPath": Lake.dataset_at,
    "isLakeTable": Lake.versions,
    "isDeltaTable": Lake.versions,
    "convertToLakelog": Lake.register_parquet,
    "convertToDelta": Lake.import_delta,
    "create": Lake.create_dataset,
    "createIfNotExists": Lake.create_dataset,
    "createOrReplace": Dataset.replace,
    "replace": Dataset.replace,
    "toDF": Dataset.snapshot,
    "delete": Dataset.delete,
    "update": Dataset.update,
    "merge": Dataset.merge,
    "alias": Dataset.merge,
    "history": Dataset.history,
    "detail": Dataset.detail,
    "vacuum": Dataset.vacuum,
    "optimize": Dataset.optimize,
    "restoreToVersion": Dataset.restore,
    "restoreToTimestamp": Dataset.restore,
    "clone": Dataset.clone,
    "cloneAtVersion": Dataset.clone,
    "cloneAtTimestamp": Dataset.clone,
    "generate": Dataset.generate,
    "addFeatureSupport": Dataset.add_feature,
    "upgradeTableProtocol": Dataset.upgrade_protocol,
}
"""What does the same in plain Python."""


def test_every_verb_has_a_plain_one() -> None:
    verbs = {name for name, _ in inspect.getmembers(LakeTable, callable) if not name.startswith("_")}
    assert verbs == PLAIN.keys()


def test_the_plain_verbs_need_no_spark(local: Lake) -> None:
    dataset = local.create_dataset("events", pa.schema([("id", pa.int64())]), properties={"a": "b"}, description="all")
    dataset.upgrade_protocol(1, 3)
    dataset.add_feature("timestampNtz")
    assert dataset.add_feature("timestampNtz") is None
    detail = dataset.detail()
    assert (detail.name, detail.version, detail.files, detail.bytes) == ("events", 2, 0, 0)
    assert (detail.description, detail.properties) == ("all", {"a": "b"})
    assert (detail.min_writer_version, "timestampNtz" in detail.features) == (7, True)
    assert detail.last_modified == dataset.history(1)[0].timestamp
    dataset.generate()
    assert Path(dataset.location, "_symlink_format_manifest", "manifest").read_text() == ""
    assert dataset.clone("copy", version=0).detail().version == 0


def test_lists_of_partitions_that_are_gone_go(local: Lake, spark: SparkSession) -> None:
    write_dataset(local, "parts", spark.sql("SELECT id, id % 2 AS k FROM range(4)"), partition_by=["k"])
    dataset = local.dataset("parts")

    def listed() -> list[str]:
        dataset.generate()
        found = Path(dataset.location, "_symlink_format_manifest").rglob("*")
        return sorted(file.relative_to(dataset.location).as_posix() for file in found if file.is_file())

    assert listed() == [f"_symlink_format_manifest/k={k}/manifest" for k in (0, 1)]
    dataset.delete("k = 1")
    assert listed() == ["_symlink_format_manifest/k=0/manifest"]


BUILDERS: dict[str, dict[str, list[str]]] = {
    "create": {
        "tableName": ["identifier"],
        "location": ["location"],
        "comment": ["comment"],
        "addColumn": ["colName", "dataType", "nullable", "generatedAlwaysAs", "generatedByDefaultAs", "comment"],
        "addColumns": ["cols"],
        "partitionedBy": ["cols"],
        "clusterBy": ["cols"],
        "property": ["key", "value"],
        "execute": [],
    },
    "merge": {
        "whenMatchedUpdate": ["condition", "set"],
        "whenMatchedUpdateAll": ["condition"],
        "whenMatchedDelete": ["condition"],
        "whenNotMatchedInsert": ["condition", "values"],
        "whenNotMatchedInsertAll": ["condition"],
        "whenNotMatchedBySourceUpdate": ["condition", "set"],
        "whenNotMatchedBySourceDelete": ["condition"],
        "withSchemaEvolution": [],
        "execute": [],
    },
    "optimize": {"where": ["partitionFilter"], "executeCompaction": [], "executeZOrderBy": ["cols"]},
}
"""The methods of Delta's builders, and their arguments in order."""


@pytest.mark.parametrize("kind", BUILDERS)
def test_a_builder_takes_what_deltas_takes(kind: str, events: LakeTable, spark: SparkSession) -> None:
    builders: dict[str, Any] = {
        "create": LakeTable.create(spark),
        "merge": events.merge(spark.range(1), "true"),
        "optimize": events.optimize(),
    }
    for name, arguments in BUILDERS[kind].items():
        found = inspect.signature(getattr(builders[kind], name)).parameters.values()
        assert [each.name for each in found if each.kind is not each.KEYWORD_ONLY] == arguments, name


class TestNames:
    def test_case_and_quotes_and_the_default_database_make_no_difference(
        self, events: LakeTable, attached: Lake, spark: SparkSession
    ) -> None:
        for name in ("Events", "`events`", "default.events", "spark_catalog.default.`EVENTS`", "DEFAULT.Events"):
            assert LakeTable.forName(spark, name).dataset.id == events.dataset.id
            assert LakeTable.isDeltaTable(spark, name)
        assert not LakeTable.isDeltaTable(spark, "other.events")
        made = LakeTable.createIfNotExists(spark).tableName("default.`new`").addColumn("id", "INT").execute()
        assert made.dataset.name == "new"
        dotted = LakeTable.createIfNotExists(spark).tableName("raw.events").addColumn("id", "INT").execute()
        assert dotted.dataset.name == "raw.events"
        assert LakeTable.forName(spark, "raw.events").dataset.id == dotted.dataset.id
        with pytest.raises(DatasetNotFoundError):
            LakeTable.forName(spark, "default.nothing")

    def test_two_names_that_differ_by_case_alone_are_one(self, attached: Lake, spark: SparkSession) -> None:
        for name in ("a", "A"):
            write_dataset(attached, name, spark.range(1))
        assert LakeTable.forName(spark, "A").dataset.name == "a"
        assert attached.versions()["a"] == 1


class TestTimes:
    @pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
    def test_a_time_without_a_zone_is_one_of_the_session(
        self, events: LakeTable, spark: SparkSession, zone: str
    ) -> None:
        events.delete("id > 2")
        time.sleep(0.05)
        events.delete("id > 1")
        with setting(spark, "spark.sql.session.timeZone", zone):
            (first, second, third) = [
                row[0]
                for row in events.history().selectExpr("CAST(timestamp AS STRING)").orderBy("timestamp").collect()
            ]
            (cloned,) = events.cloneAtTimestamp(second, f"copy_{zone[:6]}").toDF().selectExpr("count(*)").collect()
            assert cloned[0] == 3
            events.restoreToTimestamp(first)
            assert ids(events) == [0, 1, 2, 3, 4]
            with pytest.raises(ValidationError, match="is after the last commit"):
                events.restoreToTimestamp("2999-01-01")
            with pytest.raises(ValidationError, match="expected a time such as"):
                events.restoreToTimestamp("yesterday, perhaps")
        assert third > second

    def test_the_head_restored_is_no_change_and_says_how_large_it_is(self, events: LakeTable) -> None:
        (answer,) = events.restoreToVersion(0).collect()
        assert (answer["num_of_files_after_restore"], answer["num_restored_files"]) == (1, 0)
        assert answer["table_size_after_restore"] > 0


def test_conditions_of_an_optimization_are_joined(attached: Lake, spark: SparkSession) -> None:
    for _ in range(2):
        frame = spark.sql("SELECT id, id % 2 AS a, id % 3 AS b FROM range(6)").coalesce(1)
        write_dataset(attached, "parts", frame, partition_by=["a", "b"])
    table = LakeTable.forName(spark, "parts")
    (answer,) = table.optimize().where("a = 0").where("b = 1").executeCompaction().collect()
    assert (answer["metrics"]["numFilesAdded"], answer["metrics"]["numFilesRemoved"]) == (1, 2)


def test_a_table_that_was_converted_is_that_table(attached: Lake, spark: SparkSession, tmp_path: Path) -> None:
    spark.range(3).write.parquet(str(tmp_path / "raw"))
    first = LakeTable.convertToDelta(spark, f"parquet.`{tmp_path}/raw`")
    again = LakeTable.convertToDelta(spark, f"parquet.`{tmp_path}/raw`")
    assert (again.dataset.id, again.dataset.version) == (first.dataset.id, 0)
    assert LakeTable.convertToDelta(spark, f"delta.`{tmp_path}/raw`").dataset.id == first.dataset.id


def test_a_first_replacement_is_said_to_be_one(attached: Lake, spark: SparkSession) -> None:
    table = LakeTable.createOrReplace(spark).tableName("new").addColumn("id", "INT").execute()
    assert table.history().collect()[0]["operation"] == "CREATE OR REPLACE TABLE"
    table = LakeTable.createIfNotExists(spark).tableName("newer").addColumn("id", "INT").execute()
    assert table.history().collect()[0]["operation"] == "CREATE TABLE"


def test_a_setting_of_deltas_lets_merges_bring_columns(events: LakeTable, spark: SparkSession) -> None:
    source = spark.sql("SELECT 9L AS id, 'x' AS more").alias("s")
    with setting(spark, "spark.databricks.delta.schema.autoMerge.enabled", "true"):
        events.alias("t").merge(source, "t.id = s.id").whenNotMatchedInsertAll().execute()
    assert events.dataset.schema().names == ["id", "more"]


def test_rules_of_a_table_that_is_replaced_are_looked_at(events: LakeTable, spark: SparkSession) -> None:
    builder = LakeTable.replace(spark).tableName("events").addColumn("a", "INT")
    with pytest.raises(ValidationError, match="nonsense"):
        builder.addColumn("b", "INT", generatedAlwaysAs="nonsense(a)").execute()
    builder = LakeTable.replace(spark).tableName("events").addColumn("a", "INT")
    with pytest.raises(ValidationError, match="a > "):
        builder.property("delta.constraints.broken", "a > ").execute()
    assert events.dataset.version == 0


def test_columns_by_which_delta_has_clustered_a_table_are_told(attached: Lake) -> None:
    dataset = attached.create_dataset("events", pa.schema([("id", pa.int64()), ("k", pa.int64())]))
    configuration = '{"clusteringColumns":[["k"],["id"]],"domainName":"delta.clustering"}'
    action = DomainMetadata(domain="delta.clustering", configuration=configuration, removed=False)
    dataset.add_feature("clustering")
    SqlTxnLogWriter(attached).commit(dataset.id, 2, [action])
    assert dataset.detail().clustering_columns == ("k", "id")
