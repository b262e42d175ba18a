"""Rows for a table whose schema changes."""

from pathlib import Path
from typing import Any

import pyarrow as pa

from lakelog import Dataset, Lake
from tests.fixtures.lakes import catalog_rows

SCHEMA = pa.schema([pa.field("id", pa.int32(), nullable=False), ("name", pa.string())])


def data(**columns: Any) -> pa.Table:
    """A table of columns, none of them nullable: ``data(id=pa.array([1]))``."""
    arrays = {name: column if isinstance(column, pa.Array) else pa.array(column) for name, column in columns.items()}
    return pa.table(arrays, pa.schema([pa.field(name, array.type, False) for name, array in arrays.items()]))


def ids(*values: int, type: pa.DataType | None = None) -> pa.Array:
    return pa.array(values, type or pa.int32())


def everything(lake: Lake, dataset: Dataset) -> tuple[list[Path], dict[str, list[Any]]]:
    """Every file of the dataset, and every row of every catalog table."""
    return sorted(Path(dataset.location).rglob("*")), catalog_rows(lake)
