"""The rows that Lakelog writes for the workload, read back from a catalog, for hand-written SQL to write the same."""

from typing import Any

import pyarrow as pa

from bench.lab import Lab, new_dataset
from bench.limits.base import FileRows
from bench.limits.duckdb import DuckdbLimit
from bench.workload import files, row_groups
from lakelog import AddFiles, SqlTxnLogWriter
from lakelog.catalog.tables import TABLES

Rows = dict[str, Any]

_KEYS = {
    "dl_add_files": "version, ordinal",
    "row_groups": "version, ordinal, row_group",
    "partitions": "version, ordinal, key",
    "column_stats": "column_name, span, min_num, min_text, version, ordinal",
}


def recorded_rows(lab: Lab, count: int, *, groups: bool, first: int = 0) -> Rows:
    """Rows by catalog table, in the order of their keys, of one commit that adds this many files."""
    key = ("rows", count, groups, first)
    if key not in lab.kept:
        lab.kept[key] = _record(lab, count, groups=groups, first=first)
    return lab.kept[key]  # type: ignore[return-value]


def recorded_files(lab: Lab, count: int) -> list[FileRows]:
    """The same, file by file."""
    rows = recorded_rows(lab, count, groups=False)
    partitions: list[list[Any]] = [[] for _ in range(count)]
    bounds: list[list[Any]] = [[] for _ in range(count)]
    for _, _, ordinal, *rest in _tuples(rows["partitions"]):
        partitions[ordinal].append(tuple(rest))
    for _, name, span, min_num, min_text, _, ordinal, *rest in _tuples(rows["column_stats"]):
        bounds[ordinal].append((name, span, min_num, min_text, *rest))
    return [
        FileRows(row[4:], tuple(partitions[ordinal]), tuple(bounds[ordinal]))
        for ordinal, row in enumerate(_tuples(rows["dl_add_files"]))
    ]


def moved(rows: Rows, table_id: int, version: int) -> Rows:
    """The same rows in another table and version."""
    return {name: with_values(table, {"table_id": table_id, "version": version}) for name, table in rows.items()}


def removes(adds: Any, version: int) -> Any:
    """Rows of ``dl_remove_files`` for a commit that removes all these files."""
    known = {
        "table_id": adds.column("table_id"),
        "version": pa.repeat(pa.scalar(version, pa.int64()), adds.num_rows),
        "ordinal": adds.column("ordinal"),
        "path": adds.column("path"),
        "deletion_timestamp": adds.column("modification_time"),
        "data_change": adds.column("data_change"),
        "added_version": adds.column("version"),
        "added_ordinal": adds.column("ordinal"),
    }
    schema = TABLES["dl_remove_files"]
    return pa.table(
        {field.name: known.get(field.name, pa.nulls(adds.num_rows, field.type)) for field in schema}, schema
    )


def with_values(table: Any, values: dict[str, Any]) -> Any:
    """A table with other values in some columns: arrays, or one value for all rows."""
    for name, value in values.items():
        index = table.column_names.index(name)
        if not isinstance(value, pa.Array | pa.ChunkedArray):
            value = pa.repeat(pa.scalar(value, table.schema.field(name).type), table.num_rows)
        table = table.set_column(index, name, value)
    return table


def _record(lab: Lab, count: int, *, groups: bool, first: int) -> Rows:
    place = lab.place("duckdb")
    with place.connect() as lake:
        dataset = new_dataset(lake, "recorded")
        SqlTxnLogWriter(lake).commit(
            dataset.id, 1, [AddFiles(files(count, first=first))], row_groups=row_groups(count) if groups else ()
        )
    reader = place.limit()
    assert isinstance(reader, DuckdbLimit)
    try:
        return {
            table: reader.arrow(f"SELECT {', '.join(TABLES[table].names)} FROM {table} ORDER BY {key}").cast(
                TABLES[table]
            )
            for table, key in _KEYS.items()
            if groups or table != "row_groups"
        }
    finally:
        reader.close()


def _tuples(table: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))
