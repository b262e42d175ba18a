"""A table of 100,000 files: planned, pruned and counted from the catalog. None of the files is opened."""

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakelog
from lakelog import AddFiles, Dataset, SqlTxnLogWriter, read_dataset

FILES = 100_000
ROWS = 10


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dataset]:
    """File number n holds the ids from 10 n to 10 n + 9; a thousand directories hold a hundred files each."""
    place = tmp_path_factory.mktemp("many")
    with lakelog.connect(f"sqlite:///{place}/catalog.db", root=place / "lake") as lake:
        schema = pa.schema([("id", pa.int64()), ("k", pa.int32())])
        dataset = lake.create_dataset("events", schema, partition_by=["k"])
        stats = [
            json.dumps(
                {
                    "numRecords": ROWS,
                    "minValues": {"id": n * ROWS},
                    "maxValues": {"id": n * ROWS + ROWS - 1},
                    "nullCount": {"id": 0},
                }
            )
            for n in range(FILES)
        ]
        files = pa.table(
            {
                "path": [f"__w=0/k={n // 100}/{n}.parquet" for n in range(FILES)],
                "size": pa.array([1000] * FILES, pa.int64()),
                "modification_time": pa.array([0] * FILES, pa.int64()),
                "partition_values": [f'{{"k":"{n // 100}"}}' for n in range(FILES)],
                "stats": stats,
            }
        )
        SqlTxnLogWriter(lake).commit(dataset.id, 1, [AddFiles(files)])
        yield dataset


def test_rows_are_counted(events: Dataset) -> None:
    assert events.count() == FILES * ROWS
    assert events.count("k >= 500") == FILES * ROWS // 2
    assert events.count("id < 1000 OR k = 999") == 2000


def test_a_scan_is_explained(events: Dataset) -> None:
    found = events.scan("k = 7 AND id < 7050").explain()
    assert (found.files.kept, found.files.total, found.rows.total) == (5, FILES, FILES * ROWS)


def test_spark_plans_all_of_it_and_a_part_of_it(events: Dataset, spark: SparkSession) -> None:
    lake, place = events._lake, Path(events.location)
    whole = read_dataset(lake, "events", spark=spark)
    assert len(whole.inputFiles()) == FILES
    part = read_dataset(lake, "events", where="id BETWEEN 5000 AND 5999 AND k < 6", spark=spark)
    expected = {f"file://{place}/__w=0/k={n // 100}/{n}.parquet" for n in range(500, 600)}
    assert set(part.inputFiles()) == expected
