"""A transaction of PostgreSQL's, as a psycopg pipeline.

What is executed is queued, and only a fetch, a bulk load or the commit waits for the server, so a commit is two round
trips.
"""

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from psycopg import errors as pg

from lakelog.catalog.base import OutcomeUnknown, Parameters, Row, Rows
from lakelog.catalog.locks import Deadline
from lakelog.catalog.postgres_sql import as_one, lock_key, quoted
from lakelog.catalog.postgres_values import array_literal, as_text, copy_in, copy_out
from lakelog.catalog.url import scrubbed
from lakelog.errors import DatabaseError, LakelogTimeoutError

if TYPE_CHECKING:
    from lakelog.catalog.postgres import PostgresCatalog

_COPY_FROM = 1000
"""From this many rows on, COPY is faster than an INSERT."""

LONGEST_TURN = 1.0
"""Seconds that the loser of a race waits for others who lost it before."""


class PostgresSession:
    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def fetch(self, statement: str, parameters: Parameters) -> list[Row]:
        rows: list[Row] = self._connection.execute(statement, parameters).fetchall()
        return rows

    def fetch_arrow(self, statement: str, parameters: Parameters, schema: Any, *, large: bool = False) -> Any:
        if not large:
            return copy_out(self._connection, statement, parameters, schema)
        with self._connection.transaction():
            # A table's live rows lie close together: the index that finds them is better than all removed rows besides.
            self._connection.execute("SET LOCAL random_page_cost = 1.1")
            return copy_out(self._connection, statement, parameters, schema)


class PostgresTransaction(PostgresSession):
    def __init__(self, catalog: "PostgresCatalog", connection: Any, deadline: Deadline, tables: Sequence[int]) -> None:
        super().__init__(connection)
        self._catalog = catalog
        self._tables = tables
        self._deadline = deadline
        self._inserts: list[tuple[str, list[str | None]]] = []
        self._pipeline: Any = None
        self._open = True
        self.waited = 0.0

    def start(self, commit: int) -> None:
        queries = self._catalog.queries
        with self._failures():
            self._enter()
            self._queue(queries["begin"], None)
            self._queue(queries["guard"], {**limits_of(self._deadline.left), "commit": commit})

    def fetch(self, statement: str, parameters: Parameters) -> list[Row]:
        return self.fetch_each((statement, parameters))[0]

    def fetch_each(self, *queries: tuple[str, Parameters]) -> list[list[Row]]:
        with self._failures():
            cursors = [self._queue(statement, parameters) for statement, parameters in queries]
            # Without a sync the server would not take a client that then freezes for idle, and never end it.
            self._sync()
            rows = [cursor.fetchall() for cursor in cursors]
        if not self.waited:
            me = threading.get_ident()
            self._catalog.holders |= dict.fromkeys(self._tables, me)
            self.waited = self._deadline.seconds - self._deadline.left
        return rows

    def fetch_arrow(self, statement: str, parameters: Parameters, schema: Any, *, large: bool = False) -> Any:
        with self._failures():
            self._leave()
            table = copy_out(self._connection, statement, parameters, schema)
            self._enter()
        return table

    def execute(self, statement: str, parameters: Parameters) -> None:
        with self._failures():
            self._queue(statement, parameters)

    def insert(self, table: str, rows: Rows) -> None:
        with self._failures():
            if isinstance(rows, pa.Table) and rows.num_rows >= _COPY_FROM:
                self._copy(table, rows)
                return
            if isinstance(rows, pa.Table):
                columns: Any = (column.to_pylist() for column in rows.columns)
            elif len(rows) == 1:
                values = [as_text(value) for value in rows[0]]
                self._inserts.append((self._catalog.insert_one_row[table], values))
                return
            else:
                columns = zip(*rows, strict=True)
            values = [array_literal(column) for column in columns]
            self._inserts.append((self._catalog.insert_some_rows[table], values))

    def commit(self) -> None:
        try:
            cursor = self._queue("COMMIT", None)
            self._leave()
            if cursor.statusmessage != "COMMIT":
                raise DatabaseError("PostgreSQL rolled the transaction back instead of committing it")
        except psycopg.Error as error:
            if not is_refused(error):
                with suppress(psycopg.Error):
                    self._connection.close()
                self._end()
                raise OutcomeUnknown(scrubbed(str(error), self._catalog.url)) from None
            with self._failures():
                raise
        if self._catalog.is_contended(self._tables):
            self._stand_back()
        self._end()

    def _stand_back(self) -> None:
        """After a commit in a crowd: lines up behind the losers, who else would find the winner ahead of them again."""
        with suppress(psycopg.Error):
            self._enter()
            self._wait_for_turn()
            self._sync()
        with suppress(psycopg.Error):
            self._leave()
        with suppress(psycopg.Error):
            self._connection.execute("ROLLBACK")

    def rollback(self) -> None:
        if not self._open:
            return
        self._inserts.clear()
        with suppress(psycopg.Error):
            self._leave()
        with suppress(psycopg.Error):
            if not self._connection.closed:
                self._connection.execute("ROLLBACK")
        self._end()

    def give_up(self, statement: str, parameters: Parameters) -> list[Row]:
        self._catalog.note_lost(self._tables)
        try:
            with self._failures():
                self._queue("ROLLBACK", None)
                self._wait_for_turn()
                cursor = self._queue(statement, parameters)
                self._sync()
                rows: list[Row] = cursor.fetchall()
        except LakelogTimeoutError:
            self.rollback()
            with self._catalog.session() as session:
                return session.fetch(statement, parameters)
        self.rollback()
        return rows

    def _wait_for_turn(self) -> None:
        """Losers of a race learn the new head one after another, each a round trip later than the one before.

        If all of them came back at once, all but one would lose again.
        """
        queries = self._catalog.queries
        turn = lock_key(self._catalog.schema, f"turn {min(self._tables)}")
        self._queue(queries["begin"], None)
        limits = dict.fromkeys(("limit", "statement"), milliseconds(min(self._deadline.left, LONGEST_TURN)))
        self._queue(queries["guard"], {**limits, "commit": turn})

    def _queue(self, statement: str, parameters: Any) -> Any:
        if self._inserts:
            self._queue_inserts()
        cursor = self._connection.cursor()
        if isinstance(parameters, Mapping):
            parameters = {k: array_literal(v) if isinstance(v, list) else v for k, v in parameters.items()}
        cursor.execute(statement, parameters)
        return cursor

    def _queue_inserts(self) -> None:
        """Inserts that follow each other travel as one statement: each has its price, for the driver and the server."""
        inserts, self._inserts = self._inserts, []
        together = as_one([statement for statement, _ in inserts])
        self._queue(together, [value for _, values in inserts for value in values])

    def _enter(self) -> None:
        self._pipeline = self._connection.pipeline()
        self._sync = self._pipeline.__enter__().sync

    def _leave(self) -> None:
        if self._inserts:
            self._queue_inserts()
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.__exit__(None, None, None)

    def _copy(self, table: str, rows: Any) -> None:
        self._leave()
        copy_in(self._connection, f"{quoted(self._catalog.schema)}.{table}", rows)
        self._enter()

    def _failures(self) -> Any:
        return self._catalog.failures("committing" if self.waited else "waiting for a commit lock", self._deadline)

    def _end(self) -> None:
        if self._open:
            self._open = False
            for table in self._tables if self.waited else ():
                self._catalog.holders.pop(table, None)
            self._catalog.give_back(self._connection)


def limits_of(seconds: float) -> dict[str, str]:
    """What the statement ``guard`` limits a transaction to.

    The server ends what has waited or idled for too long a little later than its client does, which can say why.
    """
    return {"limit": milliseconds(seconds), "statement": milliseconds(server_limit(seconds))}


def server_limit(seconds: float) -> float:
    """Seconds after which the server ends what its client should have ended."""
    return seconds * 1.1 + 0.1


def milliseconds(seconds: float) -> str:
    return str(max(int(seconds * 1000), 1))


def is_refused(error: psycopg.Error) -> bool:
    """Whether the server itself said no and lives on; a FATAL may follow a COMMIT that stands."""
    unknown = isinstance(error, pg.StatementCompletionUnknown | pg.TransactionResolutionUnknown)
    return error.diag.severity_nonlocalized == "ERROR" and not unknown
