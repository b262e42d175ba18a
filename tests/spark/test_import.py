"""Imported Delta tables through Spark: read with all that they came with, and written to like any other."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from lakelog import Lake, SchemaMismatchError, read_dataset, write_dataset
from tests.invariants import check_invariants


def test_rows_of_delta_rs_and_rows_of_ours_make_one_table(local: Lake, spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "theirs")
    for number in range(3):
        rows = pa.table({"id": [number, 10 + number], "p": [f"a b/{number}", None]})
        write_deltalake(place, rows, mode="append", partition_by=["p"])
    DeltaTable(place).delete("id = 11")
    local.import_delta(place, "events")
    for version in range(4):
        found = sorted((row.id, row.p or "") for row in read_dataset(local, "events", version, spark=spark).collect())
        table = DeltaTable(place, version=version).to_pyarrow_table()
        assert found == sorted((row["id"], row["p"] or "") for row in table.to_pylist())
    write_dataset(local, "events", spark.sql("SELECT 99L AS id, 'ours' AS p"))
    write_dataset(local, "events", spark.sql("SELECT 5L AS id, 'a b/1' AS p"), "overwrite", replace_where="p = 'a b/1'")
    assert DeltaTable(place).version() == local.dataset("events").version == 5
    expected = sorted(row["id"] for row in DeltaTable(place).to_pyarrow_table().to_pylist())
    assert (
        sorted(row.id for row in read_dataset(local, "events", spark=spark).collect())
        == expected
        == [0, 2, 5, 10, 12, 99]
    )
    assert local.dataset("events").count() == 6
    check_invariants(local)


def test_a_constraint_that_a_table_comes_with_holds(local: Lake, spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "theirs")
    write_deltalake(place, pa.table({"id": [1]}))
    DeltaTable(place).alter.add_constraint({"positive": "id > 0"})
    local.import_delta(place, "events")
    assert read_dataset(local, "events", spark=spark).count() == 1
    before = sorted(Path(place).rglob("*"))
    for mode in ("append", "overwrite"):
        with pytest.raises(SchemaMismatchError, match="the constraint 'positive': 1 rows for which id > 0 is not true"):
            write_dataset(local, "events", spark.range(-1, 0), mode)
    assert sorted(Path(place).rglob("*")) == before
    write_dataset(local, "events", spark.range(5, 6))
    assert read_dataset(local, "events", spark=spark).count() == 2
