"""Proof that the limit and Lakelog wrote the same rows."""

from collections.abc import Sequence

from bench.lab import Place
from lakelog.catalog.tables import TABLES

_NOT_COMPARED = {"table_id", "version", "ordinal", "added_version"}


def check_same_rows(places: Sequence[Place], tables: Sequence[str]) -> None:
    """Compares the newest version of the last table in each catalog, row by row."""
    found = []
    for place in places:
        limit = place.limit()
        try:
            table_id, version = limit.execute(
                "SELECT table_id, current_version FROM dl_tables ORDER BY table_id DESC LIMIT 1"
            )[0]
            found.append([_rows(limit, table, table_id, version) for table in tables])
        finally:
            limit.close()
    for table, *rows in zip(tables, *found, strict=True):
        assert all(each == rows[0] for each in rows), f"{table}: the limit wrote other rows than Lakelog"


def _rows(limit: object, table: str, table_id: int, version: int) -> list[str]:
    columns = [name for name in TABLES[table].names if name not in _NOT_COMPARED]
    statement = f"SELECT {', '.join(columns)} FROM {table} WHERE table_id = {table_id} AND version = {version}"
    return sorted(map(repr, limit.execute(statement)))  # type: ignore[attr-defined]
