"""Hand-written SQL on PostgreSQL: one psycopg pipeline per commit, which waits for the head and for COMMIT; COPY."""

import io
import select
import time
from collections.abc import Mapping
from functools import cache
from typing import Any

import psycopg
import pyarrow.csv
from psycopg.copy import LibpqWriter

from bench.limits.base import FileRows, Row, add_row, columns_of, partition_rows, version_row
from lakelog.catalog.queries import read_sql

_CHUNK = 16_384


class PostgresLimit:
    def __init__(self, url: str, schema: str, *, create: bool = False) -> None:
        self._connection: Any = psycopg.connect(url, autocommit=True, prepare_threshold=1)
        if create:
            self._connection.execute(f"CREATE SCHEMA {schema}")
        self._connection.execute(f"SET search_path = {schema}")
        if create:
            self._connection.execute(read_sql("schema.postgres.sql"))

    def create_table(self, name: str) -> int:
        statement = (
            "INSERT INTO dl_tables (name, name_key, location, created_at) VALUES (%s, %s, %s, 0) RETURNING table_id"
        )
        return int(self._connection.execute(statement, (name, name, name)).fetchone()[0])

    def head(self, table_id: int) -> int:
        return int(self._connection.execute(_READ_HEAD, (table_id,)).fetchone()[0])

    def commit(self, table_id: int, expected: int | None, path: str, file: FileRows) -> bool:
        execute = self._connection.execute
        with self._connection.pipeline():
            execute("BEGIN")
            execute("SELECT pg_advisory_xact_lock(%s)", (table_id,))
            head, last = execute(_LOCK_HEAD, (table_id,)).fetchone()
            if expected not in (None, head):
                execute("ROLLBACK")
                return False
            version = head + 1
            committed_at = max(time.time_ns() // 1_000_000, last + 1)
            execute(_insert("dl_table_versions", 1), version_row(table_id, version, committed_at))
            execute(_insert("dl_add_files", 1), add_row(table_id, version, path, file))
            partitions = partition_rows(table_id, version, file)
            execute(_insert("partitions", len(partitions)), [value for row in partitions for value in row])
            execute(_INSERT_BOUNDS, (table_id, version, *map(list, zip(*file.bounds, strict=True))))
            execute(_ADVANCE, (version, committed_at, table_id))
            execute("COMMIT")
        return True

    def commit_many(self, table_id: int, expected: int, rows: Mapping[str, Any], *statements: str) -> None:
        execute, version = self._connection.execute, expected + 1
        with self._connection.transaction():
            execute("SELECT pg_advisory_xact_lock(%s)", (table_id,))
            _, last = execute(_LOCK_HEAD, (table_id,)).fetchone()
            committed_at = max(time.time_ns() // 1_000_000, last + 1)
            execute(_insert("dl_table_versions", 1), version_row(table_id, version, committed_at))
            self._copy_all(rows)
            for statement in statements:
                execute(statement)
            execute(_ADVANCE, (version, committed_at, table_id))

    def load(self, rows: Mapping[str, Any]) -> None:
        with self._connection.transaction():
            self._copy_all(rows)

    def execute(self, statement: str) -> list[Row]:
        cursor = self._connection.execute(statement)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self._connection.close()

    def _copy_all(self, rows: Mapping[str, Any]) -> None:
        options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid")
        for table, arrow in rows.items():
            target = f"{table} ({', '.join(arrow.column_names)})"
            cursor = self._connection.cursor()
            statement = f"COPY {target} FROM STDIN (FORMAT csv)"
            with cursor.copy(statement, writer=_FlushingWriter(cursor)) as copy:
                for batch in arrow.to_batches(max_chunksize=_CHUNK):
                    text = io.BytesIO()
                    pyarrow.csv.write_csv(batch, text, options)
                    copy.write(text.getbuffer())


class _FlushingWriter(LibpqWriter):
    """Sends what it is given: libpq would else keep all of it, and move it in memory whenever it sends a part."""

    def write(self, data: Any) -> None:
        super().write(data)
        while self._pgconn.flush():
            select.select([], [self._pgconn.socket], [])


_READ_HEAD = "SELECT current_version, committed_at FROM dl_tables WHERE table_id = %s"
_LOCK_HEAD = f"{_READ_HEAD} FOR UPDATE"
_ADVANCE = "UPDATE dl_tables SET current_version = %s, committed_at = %s WHERE table_id = %s"

# Arrays and not a hundred single values, which the driver and the server would handle one by one.
_INSERT_BOUNDS = """
INSERT INTO column_stats
    (table_id, version, ordinal, column_name, span, min_num, min_text, max_num, max_text, null_count)
SELECT %s::bigint, %s::bigint, 0, r.* FROM unnest(
    %s::text[], %s::float8[], %s::float8[], %s::text[], %s::float8[], %s::text[], %s::bigint[]) r
"""


@cache
def _insert(table: str, rows: int) -> str:
    columns = columns_of(table)
    marks = f"({', '.join(['%s'] * len(columns.split(', ')))})"
    return f"INSERT INTO {table} ({columns}) VALUES {', '.join([marks] * rows)}"
