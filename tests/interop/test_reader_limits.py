"""What docs/delta.md warns of: other readers fail, or give another answer. If one is mended, the page is stale."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakelog import Dataset, Lake, connect
from lakelog.actions import AddFile, DeletionVector, RemoveFile
from tests.contract.registering import put
from tests.contract.samples import commit
from tests.fixtures.vectors import delete
from tests.interop.readers import rows_by_delta_rs, rows_by_duckdb, rows_by_polars
from tests.parquet import write

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
MAPPED = {"delta.columnMapping.mode": "name"}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", root=tmp_path / "lake") as lake:
        yield lake


def filled(lake: Lake, **options: Any) -> Dataset:
    dataset = lake.create_dataset("events", SCHEMA, **options)
    metadata = dataset.snapshot().state.metadata
    ids, days = metadata.physical.names
    for day, numbers in {"a": [1, 2], "b": [3]}.items():
        parts = days in metadata.partition_columns
        columns = {ids: numbers} if parts else {ids: numbers, days: [day] * len(numbers)}
        put(Path(dataset.location, f"{day}.parquet"), columns)
        file = AddFile(
            path=f"{day}.parquet",
            size=Path(dataset.location, f"{day}.parquet").stat().st_size,
            modification_time=0,
            partition_values={days: day} if parts else {},
            stats=json.dumps({"numRecords": len(numbers)}),
        )
        commit(lake, dataset, file)
    return dataset


def test_delta_rs_reads_a_shallow_clone_by_its_query_builder_alone(lake: Lake) -> None:
    deltalake = pytest.importorskip("deltalake")
    clone = lake.clone(filled(lake), "copy")
    assert sorted(row["id"] for row in rows_by_delta_rs(clone.location)) == [1, 2, 3]
    with pytest.raises(Exception, match=r"(?i)not found|no such file|file://"):
        deltalake.DeltaTable(clone.location).to_pyarrow_table()


@pytest.mark.parametrize("read", [rows_by_duckdb, rows_by_polars])
def test_a_reader_fails_on_a_shallow_clone(lake: Lake, read: Callable[[str], Any]) -> None:
    clone = lake.clone(filled(lake), "copy")
    with pytest.raises(Exception, match=r"."):
        read(clone.location)


def test_duckdb_shows_null_for_partitions_of_a_table_that_was_mapped_from_the_start(lake: Lake) -> None:
    dataset = filled(lake, partition_by=["day"], properties=MAPPED)
    assert {row["day"] for row in rows_by_delta_rs(dataset.location)} == {"a", "b"}
    assert {row["day"] for row in rows_by_duckdb(dataset.location)} == {None}


def test_delta_rs_shows_null_for_mapped_columns_by_to_pyarrow_table(lake: Lake) -> None:
    deltalake = pytest.importorskip("deltalake")
    dataset = filled(lake, properties=MAPPED)
    dataset.rename_column("day", "date")
    write(lake, dataset, pa.table({"id": [4], "date": ["c"]}))
    assert {row["date"] for row in rows_by_delta_rs(dataset.location)} == {"a", "b", "c"}
    found = deltalake.DeltaTable(dataset.location).to_pyarrow_table()
    assert set(found.column("date").to_pylist()) == {None}


def test_delta_rs_tells_again_what_was_deleted_of_a_file_that_is_removed(lake: Lake) -> None:
    deltalake = pytest.importorskip("deltalake")
    properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
    dataset = filled(lake, properties=properties)
    delete(lake, dataset, "id", {1})
    (file,) = (each for each in dataset.snapshot().files().to_pylist() if each["path"] == "a.parquet")
    vector = DeletionVector.from_json(file["deletion_vector"])
    commit(lake, dataset, RemoveFile(path="a.parquet", deletion_vector=vector, size=file["size"], partition_values={}))
    version = dataset.version
    told = pa.table(deltalake.DeltaTable(dataset.location).load_cdf(version, version).read_all()).to_pylist()
    # And not what this commit deletes, which is 2.
    assert [(row["id"], row["_change_type"]) for row in told] == [(1, "delete")]
