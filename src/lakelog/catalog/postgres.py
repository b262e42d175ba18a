"""The catalog in one schema of a PostgreSQL database, for any number of machines.

A transaction travels as a psycopg pipeline: what is executed is queued, and only a fetch, a bulk load or the commit
waits for the server, so a small commit is two round trips. Nothing is kept in the session, so that a pooler in
transaction mode may stand between.
"""

import os
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar

import pyarrow as pa

from lakelog.catalog.base import NOTHING, Catalog, OutcomeUnknown, Parameters, Row, Rows, Session, Transaction
from lakelog.catalog.install import check_format, prepare
from lakelog.catalog.locks import Deadline, refuse_own_wait
from lakelog.catalog.queries import Queries
from lakelog.catalog.tables import TABLES
from lakelog.catalog.url import scrubbed, shown
from lakelog.errors import ConfigurationError, DatabaseError, LakelogError, LakelogTimeoutError

try:
    import psycopg
    import psycopg_pool
    from psycopg import errors as pg

    from lakelog.catalog.postgres_sql import insert_one, insert_some, lock_key, quoted, rewrite
    from lakelog.catalog.postgres_values import array_literal, as_text, copy_in, copy_out, ready
except ImportError as error:
    raise ConfigurationError("postgresql:// needs psycopg: pip install 'lakelog[postgres]'") from error

_COPY_FROM = 1000
"""From this many rows on, COPY is faster than an INSERT."""

_LONGEST_TURN = 1.0
"""Seconds that the loser of a race waits for others who lost it before."""

_fork_guard = threading.Lock()
_leaked: list[Any] = []
"""Pools of a parent process: closing them in a forked child would end the parent's sessions."""


class PostgresCatalog(Catalog):
    dialect: ClassVar[str] = "postgres"

    def __init__(self, url: str, *, schema: str, pool_size: int, timeout: float, prepare_threshold: int | None) -> None:
        self._url = url
        self.schema = schema
        self._pool_size = pool_size
        self._timeout = timeout
        self._prepare_threshold = prepare_threshold
        self.queries = Queries(self.dialect, lambda statement: rewrite(statement, schema))
        self._insert_one_row = {name: insert_one(schema, name) for name in TABLES}
        self._insert_some_rows = {name: insert_some(schema, name) for name in TABLES}
        self._pool: Any = None
        self._process = os.getpid()
        self._closed = False
        self._holders: dict[int, int] = {}
        self._lost: dict[int, float] = {}

    def __repr__(self) -> str:
        return f"PostgresCatalog({shown(self._url)!r}, schema={self.schema!r})"

    def open(self, *, create: bool, upgrade: bool) -> None:
        with self._failures("connecting"), self._connect() as connection:
            found = self._format(connection)
            if found is not None and not upgrade:
                check_format(found, repr(self))
            else:
                self._prepare(connection, create=create, upgrade=upgrade)
        self._start()

    def _prepare(self, connection: Any, *, create: bool, upgrade: bool) -> None:
        with connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key(self.schema, "install"),))
            found = self._format(connection)
            if found is None and create:
                connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")
            connection.execute(f"SET LOCAL search_path = {quoted(self.schema)}")
            prepare(_Script(connection), self, found, repr(self), create=create, upgrade=upgrade)

    def _format(self, connection: Any) -> int | None:
        # Not to_regclass(), whose cache may not know what another process created while this one waited for the lock.
        found = connection.execute(
            "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = 'lakelog_migrations'",
            (self.schema,),
        )
        if not found.fetchall():
            return None
        return int(connection.execute(self.queries["migration_version"], {}).fetchone()[0])

    def close(self) -> None:
        self._closed = True
        if self._pool is not None and os.getpid() == self._process:
            self._pool.close()

    @contextmanager
    def session(self) -> Iterator[Session]:
        connection = self._take(self._timeout)
        try:
            with self._failures("reading the catalog"):
                yield _PostgresSession(connection)
        finally:
            self._pool.putconn(connection)

    def begin(
        self, tables: Sequence[int], commit_id: str, timeout: float, expected: Mapping[int, int] = NOTHING
    ) -> Transaction:
        deadline = Deadline(timeout)
        self._leave_parent()
        for table in tables:
            refuse_own_wait(self._holders.get(table), "the commit lock of the same table")
        connection = self._take(timeout)
        transaction = _PostgresTransaction(self, connection, deadline, tables)
        try:
            transaction.start(lock_key(self.schema, f"commit {commit_id}"))
        except BaseException:
            transaction.rollback()
            raise
        return transaction

    @contextmanager
    def settled(self, commit_id: str, timeout: float) -> Iterator[Session]:
        # The commit's own lock was held before COMMIT was sent, and is held until the server is done with it. A session
        # whose client is gone may live for as long as its limits allow: wait longer than that.
        transaction = self.begin((), commit_id, _server_limit(timeout) + 1)
        try:
            yield transaction
        finally:
            transaction.rollback()

    def note(self, statement: str, parameters: Parameters, timeout: float) -> list[Row]:
        deadline = Deadline(timeout)
        connection = self._take(timeout)
        try:
            with self._failures("noting the state of the mirror", deadline):
                limits = {"limit": _milliseconds(timeout), "statement": _milliseconds(_server_limit(timeout))}
                # Not in a pipeline: a pooler would not see where the transaction ends.
                with connection.transaction():
                    connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE")
                    connection.execute(self.queries["note_limits"], limits)
                    noted = connection.execute(statement, parameters)
                rows: list[Row] = noted.fetchall()
                return rows
        finally:
            self._pool.putconn(connection)

    def usage(self) -> tuple[int, int]:
        stats = self._pool.get_stats() if self._pool is not None else {}
        used = stats.get("pool_size", 0) - stats.get("pool_available", 0)
        return used, stats.get("requests_waiting", 0)

    def _note_lost(self, tables: Sequence[int]) -> None:
        if len(self._lost) > 1000:
            self._lost.clear()
        self._lost |= dict.fromkeys(tables, time.monotonic())

    def _is_contended(self, tables: Sequence[int]) -> bool:
        """Whether a race for one of these tables was lost a moment ago."""
        return any(time.monotonic() - self._lost[table] < _LONGEST_TURN for table in tables if table in self._lost)

    def _leave_parent(self) -> None:
        """Gives a forked child a pool of its own."""
        if os.getpid() != self._process:
            with _fork_guard:
                if os.getpid() != self._process:
                    _leaked.append(self._pool)
                    self._start()

    def _start(self) -> None:
        self._holders = {}
        self._pool = psycopg_pool.ConnectionPool(
            self._url,
            kwargs=self._options(),
            min_size=1,
            max_size=self._pool_size,
            timeout=self._timeout,
            # Attempts come ever more rarely. Given up, they begin anew with the next caller, who finds a server that is
            # back at once.
            reconnect_timeout=self._timeout,
            open=False,
            name="lakelog",
            num_workers=1,
        )
        self._pool.open()
        self._process = os.getpid()

    def _options(self) -> dict[str, Any]:
        seconds = max(int(self._timeout), 2)
        return {
            "autocommit": True,
            "prepare_threshold": self._prepare_threshold,
            "connect_timeout": seconds,
            # A server that vanished is noticed within the timeout.
            "tcp_user_timeout": seconds * 1000,
            "keepalives_idle": max(seconds // 3, 1),
            "keepalives_interval": max(seconds // 6, 1),
            "keepalives_count": 4,
            "application_name": "lakelog",
        }

    def _connect(self) -> Any:
        return psycopg.connect(self._url, **self._options())

    def _take(self, timeout: float) -> Any:
        if self._closed:
            raise LakelogError("this lake is closed: call lakelog.connect again")
        self._leave_parent()
        deadline = Deadline(timeout)
        while True:
            try:
                connection = self._pool.getconn(deadline.left)
            except psycopg_pool.PoolTimeout:
                raise LakelogTimeoutError(
                    f"one of {self._pool_size} connections to {self!r} (pool_size; or the server is unreachable)",
                    timeout,
                ) from None
            if _is_alive(connection):
                return connection
            # The pool makes another. Its own check would pause before it looks at the next, and a restart of the
            # server ends all of them.
            connection.close()
            self._pool.putconn(connection)

    @contextmanager
    def _failures(self, doing: str, deadline: Deadline | None = None) -> Iterator[None]:
        """Translates psycopg's errors, by class and SQLSTATE, into ours."""
        seconds = deadline.seconds if deadline else self._timeout
        try:
            yield
        except pg.LockNotAvailable:
            raise LakelogTimeoutError(f"a commit lock in {self!r}, held by another writer", seconds) from None
        except (pg.QueryCanceled, pg.IdleInTransactionSessionTimeout):
            raise LakelogTimeoutError(f"a statement of PostgreSQL while {doing}", seconds) from None
        except psycopg.IntegrityError as error:
            detail = scrubbed(str(error.diag.message_detail or error), self._url)
            table = f" in {error.diag.table_name}" if error.diag.table_name else ""
            raise DatabaseError(f"a row broke a constraint{table}", error.diag.constraint_name, detail) from None
        except pg.InsufficientPrivilege as error:
            raise DatabaseError(
                f"the database role lacks a privilege for {doing} (schema {self.schema!r})", None, str(error)
            ) from None
        except psycopg.Error as error:
            detail = scrubbed(str(error), self._url)
            if error.sqlstate is None and doing == "connecting":
                raise ConfigurationError(
                    f"cannot connect to {self!r}: check host, port, user and password, "
                    f"and that the server runs. {detail}"
                ) from None
            raise DatabaseError(
                f"PostgreSQL failed while {doing} ({error.sqlstate or 'no SQLSTATE'})", None, detail
            ) from None


class _PostgresSession:
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


class _PostgresTransaction(_PostgresSession):
    def __init__(self, catalog: PostgresCatalog, connection: Any, deadline: Deadline, tables: Sequence[int]) -> None:
        super().__init__(connection)
        self._catalog = catalog
        self._tables = tables
        self._deadline = deadline
        self._cursors: list[Any] = []
        self._pipeline: Any = None
        self._open = True
        self.waited = 0.0

    def start(self, commit: int) -> None:
        queries = self._catalog.queries
        left = self._deadline.left
        # The server ends what has waited or idled for too long a little later than its client does, which can say why.
        limits = {"limit": _milliseconds(left), "statement": _milliseconds(_server_limit(left))}
        with self._failures():
            self._enter()
            self._queue(queries["begin"], None)
            self._queue(queries["guard"], {**limits, "commit": commit})

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
            self._catalog._holders |= dict.fromkeys(self._tables, me)
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
                self._queue(self._catalog._insert_one_row[table], [as_text(value) for value in rows[0]])
                return
            else:
                columns = zip(*rows, strict=True)
            self._queue(self._catalog._insert_some_rows[table], [array_literal(column) for column in columns])

    def commit(self) -> None:
        try:
            cursor = self._queue("COMMIT", None)
            self._leave()
            if cursor.statusmessage != "COMMIT":
                raise DatabaseError("PostgreSQL rolled the transaction back instead of committing it")
        except psycopg.Error as error:
            if not _refused(error):
                with suppress(psycopg.Error):
                    self._connection.close()
                self._end()
                raise OutcomeUnknown(scrubbed(str(error), self._catalog._url)) from None
            with self._failures():
                raise
        if self._catalog._is_contended(self._tables):
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
        with suppress(psycopg.Error):
            self._leave()
        with suppress(psycopg.Error):
            if not self._connection.closed:
                self._connection.execute("ROLLBACK")
        self._end()

    def give_up(self, statement: str, parameters: Parameters) -> list[Row]:
        self._catalog._note_lost(self._tables)
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
        limits = dict.fromkeys(("limit", "statement"), _milliseconds(min(self._deadline.left, _LONGEST_TURN)))
        self._queue(queries["guard"], {**limits, "commit": turn})

    def _queue(self, statement: str, parameters: Any) -> Any:
        cursor = self._connection.cursor()
        if isinstance(parameters, Mapping):
            parameters = {k: array_literal(v) if isinstance(v, list) else v for k, v in parameters.items()}
        cursor.execute(statement, parameters)
        return cursor

    def _enter(self) -> None:
        self._pipeline = self._connection.pipeline()
        self._sync = self._pipeline.__enter__().sync

    def _leave(self) -> None:
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            pipeline.__exit__(None, None, None)

    def _copy(self, table: str, rows: Any) -> None:
        self._leave()
        copy_in(self._connection, f"{quoted(self._catalog.schema)}.{table}", rows)
        self._enter()

    def _failures(self) -> Any:
        return self._catalog._failures("committing" if self.waited else "waiting for a commit lock", self._deadline)

    def _end(self) -> None:
        if self._open:
            self._open = False
            for table in self._tables if self.waited else ():
                self._catalog._holders.pop(table, None)
            self._catalog._pool.putconn(self._connection)


class _Script:
    """What ``install`` needs of a transaction, on a connection outside the pool."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Parameters) -> None:
        self._connection.execute(statement, parameters or None)


def _server_limit(seconds: float) -> float:
    return seconds * 1.1 + 0.1


def _milliseconds(seconds: float) -> str:
    return str(max(int(seconds * 1000), 1))


def _refused(error: psycopg.Error) -> bool:
    """Whether the server itself said no and lives on; a FATAL may follow a COMMIT that stands."""
    unknown = isinstance(error, pg.StatementCompletionUnknown | pg.TransactionResolutionUnknown)
    return error.diag.severity_nonlocalized == "ERROR" and not unknown


def _is_alive(connection: Any) -> bool:
    """An idle connection has nothing to say: if it does, the server has gone away, and asking tells."""
    if ready(connection.fileno(), select.POLLIN, 0):
        try:
            connection.execute("SELECT 1")
        except psycopg.Error:
            return False
    return True
