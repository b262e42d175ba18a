"""Conditions with a literal such as TIMESTAMP 'now', which is another time whenever Spark's parser reads it."""

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog import Dataset, Lake, read_dataset, write_dataset

ONE = "id = unix_micros(TIMESTAMP 'now') % 64"
"""Another row each time that it is parsed, and always one."""


@pytest.fixture(params=["true", "false"], ids=["vectors", "files"])
def dataset(local: Lake, spark: SparkSession, request: pytest.FixtureRequest) -> Dataset:
    rows = spark.range(0, 64, 1, 8).selectExpr("id", "'old' AS s")
    write_dataset(local, "t", rows, properties={"delta.enableDeletionVectors": request.param})
    return local.dataset("t")


def new(lake: Lake) -> int:
    return read_dataset(lake, "t", where="s = 'new'").count()


READS: dict[str, Callable[[Lake, SparkSession], int]] = {
    "read": lambda lake, spark: read_dataset(lake, "t", where=ONE, spark=spark).count(),
    "read by a column": lambda lake, spark: read_dataset(lake, "t", where=F.expr(ONE), spark=spark).count(),
    "count": lambda lake, spark: lake.dataset("t").count(ONE, spark=spark),
    "sql": lambda lake, spark: lake.sql(f"SELECT * FROM t WHERE {ONE}", spark=spark).count(),
}


@pytest.mark.parametrize("read", READS)
def test_a_read_looks_for_rows_where_they_are(local: Lake, spark: SparkSession, dataset: Dataset, read: str) -> None:
    assert [READS[read](local, spark) for _ in range(3)] == [1, 1, 1]


def test_a_change_is_of_the_rows_that_were_found(local: Lake, spark: SparkSession, dataset: Dataset) -> None:
    dataset.update({"s": "'new'"}, ONE, spark=spark)
    assert new(local) == 1
    dataset.delete(ONE, spark=spark)
    assert dataset.count() == 63
    dataset.update({"s": "'old'"}, spark=spark)
    source = spark.range(64).alias("src")
    merge = dataset.merge(source, f"t.id = src.id AND t.{ONE}", alias="t", spark=spark)
    result = merge.whenMatchedUpdate(set={"s": "'new'"}).whenNotMatchedInsert(values={"id": "src.id"}).execute()
    updated = new(local)
    assert (updated, result.metrics["numTargetRowsInserted"]) in [(1, 63), (0, 64)], "the row that is gone is one, too"
    rows = dataset.count()
    assert rows == 63 + result.metrics["numTargetRowsInserted"]
    merge = dataset.merge(source, "t.id = src.id", alias="t", spark=spark)
    deleted = merge.whenMatchedDelete(f"t.{ONE}").execute().metrics["numTargetRowsDeleted"]
    assert deleted in (1, 2)
    assert dataset.count() == rows - deleted


def test_what_is_replaced_is_what_was_found(local: Lake, spark: SparkSession, dataset: Dataset) -> None:
    write_dataset(local, "t", read_dataset(local, "t").where("false"), "overwrite", replace_where=ONE)
    assert dataset.count() == 63
