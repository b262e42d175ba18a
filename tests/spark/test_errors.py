"""Errors of Spark's doors: Lakelog's own, and what a Spark user catches."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from lakelog import (
    DatasetExistsError,
    DatasetNotFoundError,
    Lake,
    LakelogError,
    ValidationError,
    VersionNotFoundError,
    read_changes,
    read_dataset,
    write_dataset,
)
from lakelog.spark import LakeTable, attach, read_stream, write_stream


@pytest.fixture
def table(local: Lake, spark: SparkSession) -> LakeTable:
    local.create_dataset("t", read_schema(spark), mirror=False)
    return LakeTable.forName(spark, "t", lake=local)


def read_schema(spark: SparkSession) -> Any:
    return spark.range(0).toArrow().schema


def dropped(lake: Lake, table: LakeTable) -> LakeTable:
    lake.drop_dataset("t")
    return table


def query_dropped(spark: SparkSession, lake: Lake, table: LakeTable) -> None:
    with attach(spark, lake):
        dropped(lake, table)
        spark.sql("SELECT * FROM t")


def commit_to_dropped(spark: SparkSession, lake: Lake, table: LakeTable) -> None:
    with lake.transaction(spark=spark) as transaction:
        transaction.write("t", spark.range(1))
        dropped(lake, table)


FOUND: dict[str, tuple[type[LakelogError], Callable[[SparkSession, Lake, LakeTable], object]]] = {
    "forName": (DatasetNotFoundError, lambda spark, lake, _: LakeTable.forName(spark, "none", lake=lake)),
    "optimize": (DatasetNotFoundError, lambda _, lake, table: dropped(lake, table).optimize().executeCompaction()),
    "merge": (
        DatasetNotFoundError,
        lambda spark, lake, table: (
            table.merge(spark.range(1).alias("s"), "t.id = s.id").whenNotMatchedInsertAll(),
            dropped(lake, table),
        )[0].execute(),
    ),
    "forPath": (DatasetNotFoundError, lambda spark, lake, _: LakeTable.forPath(spark, "/none", lake=lake)),
    "read_dataset": (DatasetNotFoundError, lambda spark, lake, _: read_dataset(lake, "none", spark=spark)),
    "replace": (
        DatasetNotFoundError,
        lambda spark, lake, _: LakeTable.replace(spark, lake=lake).tableName("n").addColumn("a", "int").execute(),
    ),
    "create": (
        DatasetExistsError,
        lambda spark, lake, _: LakeTable.create(spark, lake=lake).tableName("T").addColumn("a", "int").execute(),
    ),
    "write_dataset": (
        DatasetExistsError,
        lambda spark, lake, _: write_dataset(lake, "t", spark.range(1), mode="error"),
    ),
    "Dataset.delete": (DatasetNotFoundError, lambda spark, lake, t: dropped(lake, t).dataset.delete(spark=spark)),
    "Dataset.update": (
        DatasetNotFoundError,
        lambda spark, lake, t: dropped(lake, t).dataset.update({"id": "1"}, spark=spark),
    ),
    "Dataset.merge": (
        DatasetNotFoundError,
        lambda spark, lake, t: (
            dropped(lake, t).dataset.merge(spark.range(1), "true", spark=spark).whenMatchedDelete().execute()
        ),
    ),
    "Dataset.count": (DatasetNotFoundError, lambda spark, lake, t: dropped(lake, t).dataset.count(spark=spark)),
    "Dataset.scan": (DatasetNotFoundError, lambda spark, lake, t: dropped(lake, t).dataset.scan("id = 1", spark=spark)),
    "Dataset.optimize": (DatasetNotFoundError, lambda spark, lake, t: dropped(lake, t).dataset.optimize(spark=spark)),
    "Dataset.add_constraint": (
        DatasetNotFoundError,
        lambda spark, lake, t: dropped(lake, t).dataset.add_constraint("c", "id > 0", spark=spark),
    ),
    "Dataset.replace": (
        DatasetNotFoundError,
        lambda spark, lake, t: dropped(lake, t).dataset.replace(read_schema(spark), spark=spark),
    ),
    "Dataset.set_default": (
        DatasetNotFoundError,
        lambda spark, lake, t: dropped(lake, t).dataset.set_default("id", "1", spark=spark),
    ),
    "Lake.create_dataset": (
        DatasetExistsError,
        lambda spark, lake, t: lake.create_dataset("T", read_schema(spark), spark=spark),
    ),
    "read_changes": (DatasetNotFoundError, lambda spark, lake, _: read_changes(lake, "none", 0, spark=spark)),
    "read_stream": (
        DatasetNotFoundError,
        lambda spark, lake, _: read_stream(lake, "none", checkpoint="x", spark=spark),
    ),
    "transaction": (DatasetNotFoundError, commit_to_dropped),
    "attach": (DatasetNotFoundError, query_dropped),
    "version": (VersionNotFoundError, lambda spark, lake, _: read_dataset(lake, "t", version=9, spark=spark)),
    "restore": (VersionNotFoundError, lambda spark, lake, table: table.restoreToVersion(9)),
}


@pytest.mark.parametrize("door", FOUND)
def test_a_spark_user_catches_what_spark_raises(local: Lake, spark: SparkSession, table: LakeTable, door: str) -> None:
    kind, call = FOUND[door]
    with pytest.raises(AnalysisException) as caught:
        call(spark, local, table)
    error = caught.value
    assert isinstance(error, kind)
    assert isinstance(error, DatasetNotFoundError) is (kind is DatasetNotFoundError)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.getMessage()) == (type(error), str(error), error.getMessage())
    assert str(error)


WRONG: dict[str, Callable[[Any, Any, Any], object]] = {
    "clone": lambda spark, lake, table: table.clone(10),
    "cloneAtVersion, swapped": lambda spark, lake, table: table.cloneAtVersion("copy", 0),
    "cloneAtTimestamp, swapped": lambda spark, lake, table: table.cloneAtTimestamp(None, 3),
    "clone, a text for a switch": lambda spark, lake, table: table.clone("copy", "yes"),
    "clone, a text for properties": lambda spark, lake, table: table.clone("copy", True, False, "a=b"),
    "addColumn": lambda spark, lake, table: LakeTable.create(spark, lake=lake).addColumn("a", 1),
    "addColumn, swapped": lambda spark, lake, table: LakeTable.create(spark, lake=lake).addColumn(1, "a"),
    "addColumns": lambda spark, lake, table: LakeTable.create(spark, lake=lake).addColumns(1),
    "partitionedBy": lambda spark, lake, table: LakeTable.create(spark, lake=lake).partitionedBy(1),
    "addFeatureSupport": lambda spark, lake, table: table.addFeatureSupport([]),
    "upgradeTableProtocol": lambda spark, lake, table: table.upgradeTableProtocol("3", None),
    "restoreToVersion": lambda spark, lake, table: table.restoreToVersion("a"),
    "restoreToTimestamp": lambda spark, lake, table: table.restoreToTimestamp([]),
    "history": lambda spark, lake, table: table.history("all"),
    "vacuum": lambda spark, lake, table: table.vacuum("1"),
    "alias": lambda spark, lake, table: table.alias(1),
    "generate": lambda spark, lake, table: table.generate(1),
    "delete": lambda spark, lake, table: table.delete(1),
    "update": lambda spark, lake, table: table.update({"id": "1"}, "id = 1"),
    "merge, swapped": lambda spark, lake, table: table.merge("id = id", spark.range(1)),
    "forName": lambda spark, lake, table: LakeTable.forName(spark, 10, lake=lake),
    "forName, swapped": lambda spark, lake, table: LakeTable.forName("t", spark, lake=lake),
    "forPath": lambda spark, lake, table: LakeTable.forPath(spark, None, lake=lake),
    "isDeltaTable, swapped": lambda spark, lake, table: LakeTable.isDeltaTable("t", spark, lake=lake),
    "convertToDelta": lambda spark, lake, table: LakeTable.convertToDelta(spark, None, lake=lake),
    "create": lambda spark, lake, table: LakeTable.create("t", lake=lake),
    "a lake that is none": lambda spark, lake, table: LakeTable.forName(spark, "t", lake="sqlite:///x"),
    "read_dataset, swapped": lambda spark, lake, table: read_dataset("t", lake, spark=spark),
    "addColumn, an unknown type": lambda spark, lake, table: LakeTable.create(spark, lake=lake).addColumn(
        "a", "nosuch"
    ),
    "read_dataset, columns": lambda spark, lake, table: read_dataset(lake, "t", columns=5, spark=spark),
    "read_dataset, spark": lambda spark, lake, table: read_dataset(lake, "t", spark=5),
    "read_dataset, where": lambda spark, lake, table: read_dataset(lake, "t", where=5, spark=spark),
    "write_dataset, partition_by": lambda spark, lake, table: write_dataset(
        lake, "new", spark.range(1), partition_by=5
    ),
    "write_dataset, sort_by": lambda spark, lake, table: write_dataset(lake, "t", spark.range(1), sort_by=5),
    "write_dataset, mode": lambda spark, lake, table: write_dataset(lake, "t", spark.range(1), []),
    "write_dataset, schema_merge": lambda spark, lake, table: write_dataset(
        lake, "t", spark.range(1), schema_merge="x"
    ),
    "write_dataset, overwrite_schema": lambda spark, lake, table: write_dataset(
        lake, "t", spark.range(1), "overwrite", overwrite_schema=1
    ),
    "write_dataset, user_metadata": lambda spark, lake, table: write_dataset(
        lake, "t", spark.range(1), user_metadata=5
    ),
    "write_dataset, spark": lambda spark, lake, table: write_dataset(lake, "t", [], spark=5),
    "optimize, zorder_by": lambda spark, lake, table: table.dataset.optimize(zorder_by=5),
    "optimize, spark": lambda spark, lake, table: table.dataset.optimize(spark=5),
    "sql": lambda spark, lake, table: lake.sql(5),
    "sql, spark": lambda spark, lake, table: lake.sql("SELECT * FROM t", spark=5),
    "Dataset.delete, spark": lambda spark, lake, table: table.dataset.delete("id = 1", spark=5),
    "Dataset.delete, where": lambda spark, lake, table: table.dataset.delete(5, spark=spark),
    "Dataset.delete, user_metadata": lambda spark, lake, table: table.dataset.delete(user_metadata=5, spark=spark),
    "Dataset.count, spark": lambda spark, lake, table: table.dataset.count("id + 1 = 1", spark=5),
    "Dataset.scan, spark": lambda spark, lake, table: table.dataset.scan("id = 1", spark=5),
    "Dataset.version_of": lambda spark, lake, table: table.dataset.version_of(5),
    "Dataset.add_constraint, spark": lambda spark, lake, table: table.dataset.add_constraint("c", "id > 0", spark=5),
    "Dataset.add_constraint, retries": lambda spark, lake, table: table.dataset.add_constraint(
        "c", "id > 0", retries="1", spark=spark
    ),
    "Dataset.replace, spark": lambda spark, lake, table: table.dataset.replace(read_schema(spark), spark=5),
    "Dataset.set_default, spark": lambda spark, lake, table: table.dataset.set_default("id", "1", spark=5),
    "Lake.create_dataset, spark": lambda spark, lake, table: lake.create_dataset("n", read_schema(spark), spark=5),
    "read_changes, spark": lambda spark, lake, table: read_changes(lake, "t", 0, spark=5),
    "read_stream, spark": lambda spark, lake, table: read_stream(lake, "t", checkpoint="x", spark=5),
    "write_stream, swapped": lambda spark, lake, table: write_stream(lake, spark.range(1), "t", checkpoint="x"),
    "transaction, spark": lambda spark, lake, table: lake.transaction(spark=5),
    "transaction, user_metadata": lambda spark, lake, table: lake.transaction(user_metadata=5),
    "attach, no session": lambda spark, lake, table: attach(5, lake),
    "attach, None": lambda spark, lake, table: attach(None, lake),
    "attach, no lake": lambda spark, lake, table: attach(spark, 5),
    "write_dataset, swapped": lambda spark, lake, table: write_dataset(lake, spark.range(1), "t"),
}


@pytest.mark.parametrize("call", WRONG)
def test_an_argument_of_a_wrong_type_gets_our_error(
    local: Lake, spark: SparkSession, table: LakeTable, call: str
) -> None:
    with pytest.raises(ValidationError):
        WRONG[call](spark, local, table)
    assert local.versions() == {"t": 0}
