"""The rules of a table hold whether Lakelog or delta-rs writes to it, and whoever made them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.sql import SparkSession

from lakelog import Dataset, Lake, SchemaMismatchError, write_dataset

NAME = "events"
SCHEMA = pa.schema([("id", pa.int64()), ("twice", pa.int64())])


@pytest.fixture
def backend() -> str:
    return "sqlite"


def append(dataset: Dataset, **columns: Any) -> None:
    write_deltalake(dataset.location, pa.table(columns, SCHEMA), mode="append")


def test_delta_rs_enforces_what_lakelog_has_promised(lake: Lake, spark: SparkSession) -> None:
    dataset = lake.create_dataset(NAME, SCHEMA, generated={"twice": "id * 2"}, spark=spark)
    dataset.add_constraint("positive", "id > 0", spark=spark)
    (added,) = DeltaTable(dataset.location).history(1)
    assert (added["operation"], added["operationParameters"]) == (
        "ADD CONSTRAINT",
        {"name": "positive", "expr": "id > 0"},
    )
    for columns in ({"id": [-1], "twice": [-2]}, {"id": [None], "twice": [None]}, {"id": [1], "twice": [3]}):
        with pytest.raises(DeltaError, match="1 rows failed validation check"):
            append(dataset, **columns)
    append(dataset, id=[1], twice=[2])
    assert dataset.adopt() == 2
    dataset.drop_constraint("positive")
    append(dataset, id=[-1], twice=[-2])


def test_lakelog_enforces_what_delta_rs_has_promised(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "source")
    write_deltalake(place, pa.table({"id": [1], "twice": [2]}, SCHEMA))
    DeltaTable(place).alter.add_constraint({"positive": "id > 0"})
    lake.import_delta(place, NAME)
    dataset = lake.dataset(NAME)
    assert dataset.constraints() == {"positive": "id > 0"}
    with pytest.raises(SchemaMismatchError, match="the constraint 'positive': 2 rows"):
        write_dataset(lake, NAME, spark.sql("SELECT id FROM VALUES (-1L), (NULL), (5L) AS t(id)"))
    write_dataset(lake, NAME, spark.sql("SELECT 5L AS id"))
    assert sorted(DeltaTable(place).to_pyarrow_table().column("id").to_pylist()) == [1, 5]


def test_delta_rs_does_not_write_to_a_table_whose_defaults_it_does_not_know(lake: Lake, spark: SparkSession) -> None:
    dataset = lake.create_dataset(NAME, SCHEMA, defaults={"twice": "0"}, spark=spark)
    with pytest.raises(DeltaError, match="AllowColumnDefaults"):
        append(dataset, id=[1], twice=[None])
