"""Hand-written SQL on DuckDB: plain statements for a few rows, Arrow for many."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from bench.limits.base import FileRows, Row, add_row, bound_rows, partition_rows, version_row
from lakelog.catalog.queries import read_sql
from lakelog.catalog.tables import TABLES


class DuckdbLimit:
    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._connection = duckdb.connect(str(path))
        if create:
            self._connection.execute(read_sql("schema.duckdb.sql"))

    def create_table(self, name: str) -> int:
        statement = (
            "INSERT INTO dl_tables (name, name_key, location, created_at) VALUES (?, ?, ?, 0) RETURNING table_id"
        )
        return int(self._connection.execute(statement, (name, name, name)).fetchall()[0][0])

    def head(self, table_id: int) -> int:
        return int(self._connection.execute(_HEAD, (table_id,)).fetchall()[0][0])

    def commit(self, table_id: int, expected: int | None, path: str, file: FileRows) -> bool:
        self._connection.begin()
        head, last = self._connection.execute(_HEAD, (table_id,)).fetchall()[0]
        if expected not in (None, head):
            self._connection.rollback()
            return False
        version = head + 1
        committed_at = max(time.time_ns() // 1_000_000, last + 1)
        self._insert("dl_table_versions", [version_row(table_id, version, committed_at)])
        self._insert("dl_add_files", [add_row(table_id, version, path, file)])
        self._insert("partitions", partition_rows(table_id, version, file))
        self._insert("column_stats", bound_rows(table_id, version, file))
        self._connection.execute(_ADVANCE, (version, committed_at, table_id))
        self._connection.commit()
        return True

    def commit_many(self, table_id: int, expected: int, rows: Mapping[str, Any], *statements: str) -> None:
        version = expected + 1
        self._connection.begin()
        _, last = self._connection.execute(_HEAD, (table_id,)).fetchall()[0]
        committed_at = max(time.time_ns() // 1_000_000, last + 1)
        self._insert("dl_table_versions", [version_row(table_id, version, committed_at)])
        self._insert_all(rows)
        for statement in statements:
            self._connection.execute(statement)
        self._connection.execute(_ADVANCE, (version, committed_at, table_id))
        self._connection.commit()

    def load(self, rows: Mapping[str, Any]) -> None:
        self._connection.begin()
        self._insert_all(rows)
        self._connection.commit()

    def execute(self, statement: str) -> list[Row]:
        return self._connection.execute(statement).fetchall()

    def arrow(self, statement: str) -> Any:
        return self._connection.execute(statement).to_arrow_table()

    def close(self) -> None:
        self._connection.close()

    def _insert(self, table: str, rows: Sequence[Row]) -> None:
        # From Arrow, since DuckDB looks for pandas once for each bound parameter.
        schema = TABLES[table]
        columns = zip(*rows, strict=True)
        arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        self._insert_all({table: pa.table(arrays, schema)})

    def _insert_all(self, rows: Mapping[str, Any]) -> None:
        for table, arrow in rows.items():
            columns = ", ".join(arrow.column_names)
            self._connection.register("bench_rows", arrow)
            self._connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM bench_rows")
            self._connection.unregister("bench_rows")


_HEAD = "SELECT current_version, committed_at FROM dl_tables WHERE table_id = ?"
_ADVANCE = "UPDATE dl_tables SET current_version = ?, committed_at = ? WHERE table_id = ?"
