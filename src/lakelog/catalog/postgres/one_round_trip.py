"""Commits of a few added files, in one round trip.

BEGIN, two statements and COMMIT, in one piece. The first statement waits for the lock, so that the second one's view of
the catalog is that of who has it.
"""

import math
import time
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import psycopg

from lakelog.catalog.base import FORMAT, OutcomeUnknown, SmallCommit, Stands
from lakelog.catalog.deadlines import Deadline
from lakelog.catalog.postgres.pipeline import send_piece
from lakelog.catalog.postgres.statements import lock_key
from lakelog.catalog.postgres.transaction import (
    GRACE,
    is_refused,
    limits_of,
    milliseconds,
    refuse_warnings,
    resolution_limit,
    server_limit,
)
from lakelog.catalog.postgres.values import array_literal, as_text, sql_type
from lakelog.catalog.queries import Queries
from lakelog.catalog.tables import TABLES
from lakelog.catalog.url import scrubbed
from lakelog.errors import DatabaseError

if TYPE_CHECKING:
    from lakelog.catalog.postgres.catalog import PostgresCatalog

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
    statement = statement_of(catalog.queries, shape, has_leases=bool(commit.leases))
    own_lock = lock_key(catalog.schema, f"commit {commit.commit_id}")
    guard = {
        **limits_of(seconds),
        "transaction": milliseconds(_STATEMENTS * server_limit(seconds)),
        "commit": own_lock,
        "anywhere": commit.anywhere,
        "table_id": commit.table_id,
    }
    queries = catalog.queries
    piece = [(queries["begin"], {}), (queries["guard_at_once"], guard), (statement, parameters), ("COMMIT", {})]
    began = time.monotonic()
    connection.limit(math.inf, Deadline(seconds + GRACE), committing=True)
    try:
        *_, found, committed = send_piece(connection, piece, catalog.named(connection))
        refuse_warnings(connection)
    except BaseException as error:
        if not isinstance(error, Exception):
            catalog.stop_waiting(own_lock)
            raise
        if isinstance(error, psycopg.Error) and is_refused(error):
            # What the server ended before COMMIT is still a transaction.
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")
            raise
        said = str(error) if isinstance(error, psycopg.Error) else repr(error)
        with suppress(psycopg.Error):
            connection.close()
        left = resolution_limit(seconds, time.monotonic() - began)
        raise OutcomeUnknown(scrubbed(said, catalog.url), left) from error
    if committed.command_status != b"COMMIT":
        raise DatabaseError("PostgreSQL rolled the transaction back instead of committing it")
    return _stands(found) if found.ntuples else None


def statement_of(queries: Queries, shape: Shape, *, has_leases: bool) -> str:
    """The statement of a commit with rows of these tables."""
    inserts = inserts_of(shape)
    if not has_leases:
        return queries.fill("commit_at_once", leases="", held="", inserts=inserts)
    ends = queries.template("end_leases_at_once")
    leases, held = queries.template("leases_at_once"), queries.template("held_at_once")
    return queries.fill("commit_at_once", leases=leases, held=held, inserts=f"{ends} {inserts}")


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
    leases = {"leases": array_literal(commit.leases)} if commit.leases else {}
    return {f"v{number}": value for number, value in enumerate(values)} | {
        **leases,
        "format": FORMAT,
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
