"""Commits of a few added files, in one round trip.

BEGIN, two statements and COMMIT, in one piece. The first statement waits for the lock, so that the second one's view of
the catalog is that of who has it.
"""

from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import psycopg

from lakelog.catalog.base import OutcomeUnknown, SmallCommit, Stands
from lakelog.catalog.postgres_piece import send
from lakelog.catalog.postgres_sql import lock_key
from lakelog.catalog.postgres_transaction import is_refused, limits_of, milliseconds, server_limit
from lakelog.catalog.postgres_values import array_literal, as_text, sql_type
from lakelog.catalog.tables import TABLES
from lakelog.catalog.url import scrubbed
from lakelog.errors import DatabaseError

if TYPE_CHECKING:
    from lakelog.catalog.postgres import PostgresCatalog

_SETTLED = ("table_id", "version", "committed_at")
"""Columns that have in all rows of a commit what the database settles."""

_LONGEST = 32 * 1024
"""Characters of values that fit into any socket's buffer: a client that freezes has sent all of them, or none."""

_STATEMENTS = 3
"""Limits of a statement that a transaction may take: it has two that wait."""

Shape = tuple[tuple[str, bool], ...]
"""The tables that get rows, each with whether it gets several."""


def commit_small(connection: Any, catalog: "PostgresCatalog", commit: SmallCommit, seconds: float) -> Stands | None:
    """None if nothing was committed, also since it would be too large to be sent at once.

    Raises psycopg's errors if nothing was committed, and ``OutcomeUnknown`` if that is not known.
    """
    parameters = _parameters(commit)
    if sum(len(value) for value in parameters.values() if isinstance(value, str)) > _LONGEST:
        return None
    shape = tuple((table, len(rows) > 1) for table, rows in commit.rows.items())
    statement = catalog.queries.fill("commit_at_once", inserts=inserts_of(shape))
    guard = {
        **limits_of(seconds),
        "transaction": milliseconds(_STATEMENTS * server_limit(seconds)),
        "commit": lock_key(catalog.schema, f"commit {commit.commit_id}"),
        "anywhere": commit.anywhere,
        "table_id": commit.table_id,
    }
    queries = catalog.queries
    piece = [(queries["begin"], {}), (queries["guard_at_once"], guard), (statement, parameters), ("COMMIT", {})]
    try:
        *_, found, committed = send(connection, piece, catalog.named(connection))
    except Exception as error:
        if isinstance(error, psycopg.Error) and is_refused(error):
            # What the server ended before COMMIT is still a transaction.
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise
        said = str(error) if isinstance(error, psycopg.Error) else repr(error)
        raise OutcomeUnknown(scrubbed(said, catalog.url)) from error
    if committed.command_status != b"COMMIT":
        raise DatabaseError("PostgreSQL rolled the transaction back instead of committing it")
    return _stands(found) if found.ntuples else None


def _stands(found: Any) -> Stands:
    version, committed_at, name, location, waited = (found.get_value(0, column) for column in range(5))
    return Stands(int(version), int(committed_at), name.decode(), location.decode(), float(waited))


@cache
def inserts_of(shape: Shape) -> str:
    """The inserts of a commit, in the notation of the SQL files. Values are bound as ``$v0``, ``$v1``, …, one for each
    column that is not settled: a value, or an array of them where there are several rows."""
    inserts, bound = [], 0
    for table, several in shape:
        schema = TABLES[table]
        names = [name for name in schema.names if name not in _SETTLED]
        values = [f"$v{bound + number}::{sql_type(schema.field(name))}" for number, name in enumerate(names)]
        bound += len(names)
        given = {name: f"r.{name}" for name in names} if several else dict(zip(names, values, strict=True))
        chosen = ", ".join(given.get(name, f"next.{name}") for name in schema.names)
        arrays = ", ".join(f"{value}[]" for value in values)
        source = f"next CROSS JOIN unnest({arrays}) AS r ({', '.join(names)})" if several else "next"
        target = f"{table} ({', '.join(schema.names)})"
        inserts.append(f"{table}_rows AS (INSERT INTO {target} SELECT {chosen} FROM {source})")
    return ", ".join(inserts)


def _parameters(commit: SmallCommit) -> dict[str, Any]:
    values: list[str | None] = []
    for table, rows in commit.rows.items():
        kept = _given(table)
        if len(rows) == 1:
            values += [as_text(rows[0][number]) for number in kept]
        else:
            values += [array_literal([row[number] for row in rows]) for number in kept]
    return {f"v{number}": value for number, value in enumerate(values)} | {
        "table_id": commit.table_id,
        "commit_id": commit.commit_id,
        "created_at": commit.created_at,
        "expected": commit.expected,
        "anywhere": commit.anywhere,
        "metadata_version": commit.metadata_version,
        "protocol_version": commit.protocol_version,
        "paths": array_literal(commit.paths),
    }


@cache
def _given(table: str) -> list[int]:
    return [number for number, name in enumerate(TABLES[table].names) if name not in _SETTLED]
