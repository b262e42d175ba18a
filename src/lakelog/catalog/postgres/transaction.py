"""A transaction of PostgreSQL's, as a psycopg pipeline.

What is executed is queued, and only a fetch, a bulk load or the commit waits for the server, so a commit is two round
trips.
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from psycopg import errors as pg

from lakelog.catalog.base import OutcomeUnknown, Parameters, Row, Rows
from lakelog.catalog.deadlines import Deadline
from lakelog.catalog.postgres.statements import as_one, lock_key, quoted
from lakelog.catalog.postgres.values import array_literal, as_text, copy_in, copy_out
from lakelog.catalog.url import scrubbed
from lakelog.errors import DatabaseError, LakelogTimeoutError

if TYPE_CHECKING:
    from lakelog.catalog.postgres.catalog import PostgresCatalog

_COPY_FROM = 1000
"""From this many rows on, COPY is faster than an INSERT."""

GRACE = 0.5
"""Seconds by which the client waits longer than the server, which can say what it waited for."""

FAREWELL = 1.0
"""Seconds for a ROLLBACK, after which the connection is closed instead."""

LONGEST_TURN = 1.0
"""Seconds that the loser of a race waits for others who lost it before."""


class PostgresSession:
    """Reads, each in a transaction of its own that limits its wait for a lock, and travels as one message."""

    def __init__(self, connection: Any, seconds: float) -> None:
        self._connection = connection
        self._begin = (
            f"BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL lock_timeout = {milliseconds(seconds)}"
        )

    def fetch(self, statement: str, parameters: Parameters) -> list[Row]:
        with psycopg.ClientCursor(self._connection) as cursor:
            cursor.execute(f"{self._begin}; {statement}; COMMIT", parameters)
            # After the results of BEGIN and SET.
            cursor.nextset()
            cursor.nextset()
            rows: list[Row] = cursor.fetchall()
        return rows

    def fetch_arrow(self, statement: str, parameters: Parameters, schema: Any, *, large: bool = False) -> Any:
        # A table's live rows lie close together: the index that finds them is better than all removed rows besides.
        begin = f"{self._begin}; SET LOCAL random_page_cost = 1.1" if large else self._begin
        return copy_out(self._connection, statement, parameters, schema, begin)


class PostgresTransaction:
    """``to_settle`` says that it finds out what became of another, which leaves no time after the deadline."""

    def __init__(
        self,
        catalog: "PostgresCatalog",
        connection: Any,
        deadline: Deadline,
        tables: Sequence[int],
        *,
        to_settle: bool = False,
    ) -> None:
        self._connection = connection
        self._to_settle = to_settle
        self._catalog = catalog
        self._tables = tables
        self._deadline = deadline
        self._inserts: list[tuple[str, list[str | None]]] = []
        self._is_working = False
        self._pipeline: Any = None
        self._open = True
        self.waited = 0.0

    def start(self, commit: int) -> None:
        queries = self._catalog.queries
        # All locks together. The server's own limits come first, and say which lock it was.
        self._connection.limit(math.inf, Deadline(self._deadline.left + GRACE))
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
            # What makes progress may go on, as long as no wait is longer.
            self._connection.limit(self._deadline.seconds + GRACE)
        return rows

    def fetch_arrow(self, statement: str, parameters: Parameters, schema: Any, *, large: bool = False) -> Any:
        with self._failures():
            self._leave()
            table = copy_out(self._connection, statement, parameters, schema)
            self._enter()
        return table

    def execute(self, statement: str, parameters: Parameters) -> None:
        queries = self._catalog.queries
        with self._failures():
            self._queue(statement, parameters)
            if statement not in (queries["advance_head"], queries["close_file"], queries["end_lease"]):
                # The server tells when it is done with this one, and not only at the end of all of them.
                self._connection.pgconn.send_flush_request()
                self._is_working = True

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
        seconds = self._deadline.seconds
        if self._is_working:
            with self._failures():
                self._finish_work()
        began = time.monotonic()
        left = self._deadline.left if self._to_settle else max(seconds - self.waited, seconds / 2)
        self._connection.limit(math.inf, Deadline(left + GRACE), committing=True)
        try:
            cursor = self._queue("COMMIT", None)
            self._leave()
            if cursor.statusmessage != "COMMIT":
                raise DatabaseError("PostgreSQL rolled the transaction back instead of committing it")
            refuse_warnings(self._connection)
        except psycopg.Error as error:
            if not is_refused(error):
                with suppress(psycopg.Error):
                    self._connection.close()
                self._end()
                left = resolution_limit(seconds, self.waited + time.monotonic() - began)
                raise OutcomeUnknown(scrubbed(str(error), self._catalog.url), left) from None
            with self._failures():
                raise
        except BaseException:
            # An interrupt, perhaps before COMMIT was sent. What is left to send must not follow with a ROLLBACK.
            with suppress(psycopg.Error):
                self._connection.close()
            self._end()
            raise
        if self._catalog.is_contended(self._tables):
            self._stand_back()
        self._end()

    def _finish_work(self) -> None:
        """Waits for statements that may change any number of rows, which the limit of COMMIT is not meant for."""
        self._connection.limit(self._deadline.seconds + GRACE)
        if self._inserts:
            self._queue_inserts()
        self._sync()

    def _stand_back(self) -> None:
        """After a commit in a crowd: lines up behind the losers, who else would find the winner ahead of them again."""
        self._connection.limit(math.inf, Deadline(LONGEST_TURN + GRACE))
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
        self._connection.limit(math.inf, Deadline(FAREWELL))
        with suppress(psycopg.Error):
            self._leave()
        with suppress(psycopg.Error):
            if not self._connection.closed:
                self._connection.execute("ROLLBACK")
        self._end()

    def give_up(self, statement: str, parameters: Parameters) -> list[Row]:
        self._catalog.note_lost(self._tables)
        self._connection.limit(math.inf, Deadline(self._deadline.left + LONGEST_TURN + GRACE))
        try:
            with self._failures():
                self._queue("ROLLBACK", None)
                self._wait_for_turn()
                cursor = self._queue(statement, parameters)
                self._sync()
                rows: list[Row] = cursor.fetchall()
        except LakelogTimeoutError:
            self.rollback()
            with self._catalog.session_within(max(self._deadline.left, GRACE)) as session:
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


def resolution_limit(seconds: float, spent: float) -> float:
    """Seconds in which the outcome of a COMMIT is found out, after what the commit has waited for already.

    Long enough for the server to end a session whose client is gone, and never more than twice the timeout in all: the
    last question may take 2 s more than its limit, until it is cancelled.
    """
    return max(min(server_limit(seconds) + 2 * GRACE, 2 * seconds - spent), GRACE)


def refuse_warnings(connection: Any) -> None:
    """Raises if the COMMIT before came with a warning: it stands here, and perhaps on no standby."""
    if connection.warnings:
        raise psycopg.OperationalError("COMMIT came with a warning: " + "; ".join(connection.warnings))


def server_limit(seconds: float) -> float:
    """Seconds after which the server ends what its client should have ended."""
    return seconds * 1.1 + 0.1


def milliseconds(seconds: float) -> str:
    return str(max(int(seconds * 1000), 1))


def is_refused(error: psycopg.Error) -> bool:
    """Whether the server itself said no and lives on; a FATAL may follow a COMMIT that stands."""
    unknown = isinstance(error, pg.StatementCompletionUnknown | pg.TransactionResolutionUnknown)
    return error.diag.severity_nonlocalized == "ERROR" and not unknown
