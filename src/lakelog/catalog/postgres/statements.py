"""Statements in PostgreSQL's own notation, with every table inside the catalog's schema."""

import hashlib
import re
from collections.abc import Sequence

from lakelog.catalog.postgres.values import sql_type
from lakelog.catalog.tables import TABLES

_OTHERS = ("dl_tables", "dl_mirror_status", "dl_writes", "dl_retention", "dl_void_commits", "lakelog_migrations")
_NAMES = re.compile(r"\b(" + "|".join([*TABLES, *_OTHERS]) + r")\b")
_PARAMETER = re.compile(r"\$([a-z_]\w*)")


def rewrite(statement: str, schema: str) -> str:
    """From the notation of the SQL files to psycopg's."""
    # The order of bytes, which other databases have by default and call otherwise.
    statement = statement.replace('COLLATE "binary"', 'COLLATE "C"')
    bound = _PARAMETER.sub(r"%(\1)s", statement.replace("%", "%%"))
    return _NAMES.sub(lambda match: _qualified(schema, match[1]), bound)


def insert_one(schema: str, table: str) -> str:
    values = ", ".join(f"%s::{sql_type(field)}" for field in TABLES[table])
    return f"INSERT INTO {_qualified(schema, table)} ({', '.join(TABLES[table].names)}) VALUES ({values})"


def insert_some(schema: str, table: str) -> str:
    """Columns as arrays: the statement stays the same, and prepared, whatever the number of rows."""
    names = ", ".join(TABLES[table].names)
    arrays = ", ".join(f"%s::{sql_type(field)}[]" for field in TABLES[table])
    return f"INSERT INTO {_qualified(schema, table)} ({names}) SELECT * FROM unnest({arrays})"


def as_one(statements: Sequence[str]) -> str:
    """Several inserts as one statement, which takes their parameters one after the other."""
    *others, last = statements
    if not others:
        return last
    return f"WITH {', '.join(f'i{number} AS ({each})' for number, each in enumerate(others))} {last}"


def lock_key(schema: str, subject: str) -> int:
    """An advisory lock's key. Keys are shared by the whole database, so the schema is part of it."""
    digest = hashlib.blake2b(f"lakelog\0{schema}\0{subject}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def quoted(identifier: str) -> str:
    """The one place where an identifier becomes SQL."""
    return '"' + identifier.replace('"', '""') + '"'


def _qualified(schema: str, table: str) -> str:
    """A table's name in a statement that psycopg binds parameters to, for which a % is doubled."""
    return f"{quoted(schema)}.{table}".replace("%", "%%")
