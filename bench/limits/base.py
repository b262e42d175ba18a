"""The limit: what hand-written SQL on the same tables and indexes reaches, with no more checks than it needs."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from lakelog.catalog.tables import TABLES

Row = tuple[Any, ...]

FILE_TABLES = ("dl_add_files", "partitions", "column_stats")
"""The tables that one added file without row groups has rows in."""


@dataclass(frozen=True, slots=True)
class FileRows:
    """The rows of one file, without the columns that say where in the log it stands."""

    add: Row
    partitions: tuple[Row, ...]
    bounds: tuple[Row, ...]


class Limit(Protocol):
    """Hand-written SQL for one database."""

    def create_table(self, name: str) -> int:
        """A table before its first commit, and its id."""
        ...

    def head(self, table_id: int) -> int: ...

    def commit(self, table_id: int, expected: int | None, path: str, file: FileRows) -> bool:
        """One file on top of the head ``expected``, False if it is another by now; or of whatever it is."""
        ...

    def commit_many(self, table_id: int, expected: int, rows: Mapping[str, Any], *statements: str) -> None:
        """Arrow rows of several tables as version ``expected`` + 1, and what else is to be executed after them."""
        ...

    def load(self, rows: Mapping[str, Any]) -> None:
        """Arrow rows of several tables in one transaction, as they are."""
        ...

    def execute(self, statement: str) -> list[Row]: ...

    def close(self) -> None: ...


def columns_of(table: str) -> str:
    return ", ".join(TABLES[table].names)


def version_row(table_id: int, version: int, committed_at: int) -> Row:
    return (table_id, version, committed_at, str(uuid.uuid4()), None, "WRITE", "{}", None)


def add_row(table_id: int, version: int, path: str, file: FileRows) -> Row:
    return (table_id, version, 0, path, *file.add)


def partition_rows(table_id: int, version: int, file: FileRows) -> list[Row]:
    return [(table_id, version, 0, key, value) for key, value in file.partitions]


def bound_rows(table_id: int, version: int, file: FileRows) -> list[Row]:
    return [
        (table_id, name, span, min_num, min_text, version, 0, max_num, max_text, null_count)
        for name, span, min_num, min_text, max_num, max_text, null_count in file.bounds
    ]
