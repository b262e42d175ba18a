"""Clones through Spark, and through readers of Delta that know nothing of Lakelog."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakelog import Lake, read_dataset, write_dataset
from tests.fixtures.vectors import delete
from tests.interop.readers import rows_by_delta_rs, rows_by_duckdb
from tests.invariants import check_invariants

QUERY = "SELECT id, concat('a b/', id % 3) AS s, id % 2 AS p FROM range({}, {})"


def rows(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in read_dataset(lake, name).collect())


@pytest.mark.parametrize("shallow", [True, False], ids=["shallow", "deep"])
def test_a_clone_has_its_sources_rows_and_then_its_own(local: Lake, spark: SparkSession, shallow: bool) -> None:
    on = {"delta.enableDeletionVectors": "true"}
    for first in (0, 10):
        frame = spark.sql(QUERY.format(first, first + 10)).coalesce(1)
        write_dataset(local, "source", frame, partition_by=["p", "s"], properties=on)
    delete(local, local.dataset("source"), "id", {3, 15})
    expected = rows(local, "source")
    clone = local.clone("source", "a clone", shallow=shallow)
    assert rows(local, "a clone") == expected
    # DuckDB takes an absolute path for one below the table's own directory, and finds no file there.
    for reader in (rows_by_delta_rs,) if shallow else (rows_by_delta_rs, rows_by_duckdb):
        assert sorted((row["id"], row["s"], row["p"]) for row in reader(clone.location)) == expected
    write_dataset(local, "a clone", spark.sql(QUERY.format(99, 100)))
    clone.optimize()
    assert rows(local, "a clone") == sorted([*expected, (99, "a b/0", 1)])
    clone.restore(0)
    assert rows(local, "a clone") == expected
    write_dataset(local, "a clone", spark.sql(QUERY.format(7, 8)), "overwrite")
    assert (rows(local, "a clone"), rows(local, "source")) == ([(7, "a b/1", 1)], expected)
    check_invariants(local)
