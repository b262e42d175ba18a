"""Hand-written SQL on SQLite: apsw, WAL, synchronous FULL, and the ``flock`` that keeps writers in order."""

import fcntl
import os
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import apsw

from bench.limits.base import FileRows, Row, add_row, bound_rows, columns_of, partition_rows, version_row
from lakelog.catalog.queries import read_sql

_CHUNK = 8192


class SqliteLimit:
    def __init__(self, path: Path, *, create: bool = False) -> None:
        self._connection: Any = apsw.Connection(str(path))
        self._connection.set_busy_timeout(60_000)
        self._connection.execute(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -65536; "
            "PRAGMA temp_store = MEMORY"
        )
        if create:
            self._connection.execute(read_sql("schema.sqlite.sql"))
        self._lock = os.open(f"{path}-lock", os.O_RDWR | os.O_CREAT, 0o600)

    def create_table(self, name: str) -> int:
        statement = (
            "INSERT INTO dl_tables (name, name_key, location, created_at) VALUES (?, ?, ?, 0) RETURNING table_id"
        )
        return int(self._connection.execute(statement, (name, name, name)).fetchone()[0])

    def head(self, table_id: int) -> int:
        return int(self._connection.execute(_HEAD, (table_id,)).fetchone()[0])

    def commit(self, table_id: int, expected: int | None, path: str, file: FileRows) -> bool:
        execute = self._connection.execute
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            execute("BEGIN IMMEDIATE")
            head, last = execute(_HEAD, (table_id,)).fetchone()
            if expected not in (None, head):
                execute("ROLLBACK")
                return False
            version = head + 1
            committed_at = max(time.time_ns() // 1_000_000, last + 1)
            execute(_insert("dl_table_versions"), version_row(table_id, version, committed_at))
            execute(_insert("dl_add_files"), add_row(table_id, version, path, file))
            self._connection.executemany(_insert("partitions"), partition_rows(table_id, version, file))
            self._connection.executemany(_insert("column_stats"), bound_rows(table_id, version, file))
            execute(_ADVANCE, (version, committed_at, table_id))
            execute("COMMIT")
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
        return True

    def commit_many(self, table_id: int, expected: int, rows: Mapping[str, Any], *statements: str) -> None:
        execute, version = self._connection.execute, expected + 1
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            execute("BEGIN IMMEDIATE")
            _, last = execute(_HEAD, (table_id,)).fetchone()
            committed_at = max(time.time_ns() // 1_000_000, last + 1)
            execute(_insert("dl_table_versions"), version_row(table_id, version, committed_at))
            self._insert_all(rows)
            for statement in statements:
                execute(statement)
            execute(_ADVANCE, (version, committed_at, table_id))
            execute("COMMIT")
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def load(self, rows: Mapping[str, Any]) -> None:
        with self._connection:
            self._insert_all(rows)

    def execute(self, statement: str) -> list[Row]:
        return list(self._connection.execute(statement))

    def close(self) -> None:
        self._connection.close()
        os.close(self._lock)

    def _insert_all(self, rows: Mapping[str, Any]) -> None:
        for table, arrow in rows.items():
            statement = _insert(table, ", ".join(arrow.column_names))
            for batch in arrow.to_batches(max_chunksize=_CHUNK):
                columns = (column.to_pylist() for column in batch.columns)
                self._connection.executemany(statement, zip(*columns, strict=True))


_HEAD = "SELECT current_version, committed_at FROM dl_tables WHERE table_id = ?"
_ADVANCE = "UPDATE dl_tables SET current_version = ?, committed_at = ? WHERE table_id = ?"


@cache
def _insert(table: str, columns: str | None = None) -> str:
    columns = columns or columns_of(table)
    return f"INSERT INTO {table} ({columns}) VALUES ({', '.join('?' * len(columns.split(', ')))})"
