"""Parquet files to register, and what became of them."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog import Dataset, DatasetNotFoundError, Lake, LakelogError
from lakelog.schema.evolution.convert import apply
from lakelog.schema.evolution.projection import project
from tests.fixtures.lakes import catalog_rows

UTC_MICROS = pa.timestamp("us", "UTC")
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])
"""For what does not depend on the database."""


def put(path: Path, columns: Mapping[str, Any] | pa.Table, **options: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    table = columns if isinstance(columns, pa.Table) else pa.table(columns)
    pq.write_table(table, path, **options)
    return path


def rows_of(dataset: Dataset) -> list[dict[str, Any]]:
    """All rows, each file read as the table's schema and with the partition values of the log."""
    snapshot = dataset.snapshot()
    partitions = snapshot.metadata.partition_columns
    found = []
    for file in snapshot.files().sort_by("ordinal").to_pylist():
        raw = pq.ParquetFile(Path(dataset.location, unquote(file["path"])), coerce_int96_timestamp_unit="us").read()
        table = apply(project(list(raw.schema), [f for f in snapshot.schema if f.name not in partitions]), raw)
        values = json.loads(file["partition_values"])
        constants = {name: typed(values[name], snapshot.schema.field(name).type) for name in values}
        found += [row | constants for row in table.to_pylist()]
    return found


def typed(text: str | None, kind: pa.DataType) -> Any:
    # An instant has no zone in the log: it is UTC.
    zoned = f"{text}Z" if text is not None and kind == UTC_MICROS else text
    return pa.scalar(zoned).cast(kind).as_py()


def stats_of(dataset: Dataset) -> dict[str, dict[str, Any]]:
    files = dataset.snapshot().files(columns=["path", "stats"]).to_pylist()
    return {file["path"]: json.loads(file["stats"]) for file in files}


def refused(lake: Lake, kind: type[LakelogError], message: str, glob: Any, **options: Any) -> str:
    """Registers, and expects an error that says so and leaves nothing in the catalog."""
    before = catalog_rows(lake)
    with pytest.raises(kind) as caught:
        lake.register_parquet(glob, "refused", **options)
    assert message in str(caught.value)
    assert catalog_rows(lake) == before
    with pytest.raises(DatasetNotFoundError):
        lake.dataset("refused")
    return str(caught.value)


def field(kind: pa.DataType, values: list[Any] | None = None) -> pa.Table:
    return pa.table({"x": pa.array([None] if values is None else values, kind)})
