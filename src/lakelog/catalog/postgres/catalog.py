"""The catalog in one schema of a PostgreSQL database, for any number of machines.

Nothing is kept in a session, so that a pooler in transaction mode may stand between.
"""

import math
import os
import select
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

import pyarrow as pa

from lakelog.catalog.base import FORMAT, NOTHING, Catalog, Parameters, Row, Session, SmallCommit, Stands, Transaction
from lakelog.catalog.deadlines import Deadline, limited
from lakelog.catalog.install import check_format, prepare
from lakelog.catalog.locks import refuse_own_wait
from lakelog.catalog.queries import Queries
from lakelog.catalog.tables import TABLES
from lakelog.catalog.url import scrubbed, shown
from lakelog.errors import ConfigurationError, DatabaseError, LakelogError, LakelogTimeoutError, PrivilegeError

try:
    import psycopg
    import psycopg_pool
    from psycopg import errors as pg
    from psycopg import pq
    from psycopg.conninfo import conninfo_to_dict

    from lakelog.catalog.postgres.connection import BoundedConnection, NoAnswer
    from lakelog.catalog.postgres.one_round_trip import commit_small
    from lakelog.catalog.postgres.statements import insert_one, insert_some, lock_key, quoted, rewrite
    from lakelog.catalog.postgres.transaction import (
        FAREWELL,
        GRACE,
        LONGEST_TURN,
        PostgresSession,
        PostgresTransaction,
        is_refused,
        limits_of,
        refuse_warnings,
    )
    from lakelog.catalog.postgres.values import ready
except ImportError as error:
    raise ConfigurationError("postgresql:// needs psycopg: pip install 'lakelog[postgres]'") from error

_LONGEST_WAY = 30 * 24 * 3_600_000
"""Milliseconds after which nothing arrives any more that was sent."""

_LONGEST_CLOSE = 5.0
"""Seconds for which the threads of a pool are waited for."""

_NO_ROOM = ("too many clients", "too many connections", "connection slots are reserved", "no more connections")
"""What a server or pgbouncer without a free connection says in English; in other languages its own words have to do."""

_fork_guard = threading.Lock()
_leaked: list[Any] = []
"""Pools of a parent process: closing them in a forked child would end the parent's sessions."""


class PostgresCatalog(Catalog):
    dialect: ClassVar[str] = "postgres"
    has_line: ClassVar[bool] = True
    locks_creation: ClassVar[bool] = True
    schema: str

    def __init__(self, url: str, *, schema: str, pool_size: int, timeout: float, prepare_threshold: int | None) -> None:
        self._url = url
        self.schema = schema
        self._pool_size = pool_size
        self._timeout = timeout
        self._prepare_threshold = prepare_threshold
        self.queries = Queries(self.dialect, lambda statement: rewrite(statement, schema))
        self.insert_one_row = {name: insert_one(schema, name) for name in TABLES}
        self.insert_some_rows = {name: insert_some(schema, name) for name in TABLES}
        self._pool: Any = None
        self._process = os.getpid()
        self._closed = False
        self.holders: dict[int, int] = {}
        self._lost: dict[int, float] = {}
        self._named: WeakKeyDictionary[Any, dict[bytes, bytes]] = WeakKeyDictionary()

    @property
    def url(self) -> str:
        return self._url

    def __repr__(self) -> str:
        return f"PostgresCatalog({shown(self._url)!r}, schema={self.schema!r})"

    def open(self, *, create: bool, upgrade: bool) -> None:
        deadline = Deadline(self._timeout)
        with self.failures("connecting", deadline), self._connect() as connection:
            connection.limit(math.inf, Deadline(deadline.left + GRACE))
            self._refuse_encoding(connection)
            found = self._format(connection)
            if found is not None and not upgrade:
                check_format(found, repr(self))
            else:
                self._prepare(connection, create=create, upgrade=upgrade)
        self._start()

    def _refuse_encoding(self, connection: Any) -> None:
        """Raises for a database that orders strings by other bytes than UTF-8's: a search would miss files."""
        (encoding,) = connection.execute(self.queries["server_encoding"]).fetchone()
        if encoding != "UTF8":
            database = connection.info.dbname
            raise ConfigurationError(
                f"the database {database!r} of {self!r} has the encoding {encoding}, and Lakelog needs UTF8. Create "
                "one with CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0 and connect to it; a catalog that is "
                "here already moves there by pg_dump and psql"
            )

    def _prepare(self, connection: Any, *, create: bool, upgrade: bool) -> None:
        deadline: Deadline = connection.deadline
        connection.execute(self.queries["begin"])
        connection.execute(
            self.queries["guard"], {**limits_of(deadline.left), "commit": lock_key(self.schema, "install")}
        )
        found = self._format(connection)
        if found is None and create:
            connection.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")
        connection.execute(f"SET LOCAL search_path = {quoted(self.schema)}")
        if found is not None and found < FORMAT and upgrade:
            # Commits compare the format under a lock of this table: those that come later see the new one.
            connection.execute("LOCK TABLE dl_tables IN ACCESS EXCLUSIVE MODE")
        prepare(_Script(connection), self, found, repr(self), create=create, upgrade=upgrade)
        connection.limit(math.inf, Deadline(max(deadline.left, self._timeout / 2) + GRACE), committing=True)
        try:
            connection.execute("COMMIT")
            refuse_warnings(connection)
        except psycopg.Error as error:
            if is_refused(error):
                raise
            raise DatabaseError(
                f"whether the tables of {self!r} were made, or upgraded, is not known, since their COMMIT was not "
                "answered as it should be. Connect again when the server is well: it goes on from what is there",
                None,
                scrubbed(str(error), self._url),
            ) from None

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
            self._pool.close(min(_LONGEST_CLOSE, self._timeout))

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self.session_within(limited(self._timeout)) as session:
            yield session

    @contextmanager
    def session_within(self, seconds: float) -> Iterator[Session]:
        connection = self._take(seconds)
        connection.limit(seconds + GRACE)
        try:
            with self.failures("reading the catalog", Deadline(seconds)):
                yield PostgresSession(connection, seconds)
        finally:
            self._leave_transaction(connection)
            self.give_back(connection)

    def _leave_transaction(self, connection: Any) -> None:
        """After a read that failed."""
        if not connection.closed and connection.info.transaction_status != pq.TransactionStatus.IDLE:
            connection.limit(math.inf, Deadline(FAREWELL))
            with suppress(psycopg.Error):
                connection.execute("ROLLBACK")

    def begin(
        self, tables: Sequence[int], commit_id: str, timeout: float, expected: Mapping[int, int] = NOTHING
    ) -> Transaction:
        return self._begin(tables, commit_id, limited(timeout))

    def _begin(
        self, tables: Sequence[int], commit_id: str, timeout: float, *, to_settle: bool = False
    ) -> PostgresTransaction:
        deadline = Deadline(timeout)
        self._refuse_own_wait(tables)
        connection = self._take(timeout)
        transaction = PostgresTransaction(self, connection, deadline, tables, to_settle=to_settle)
        try:
            transaction.start(lock_key(self.schema, f"commit {commit_id}"))
        except BaseException:
            transaction.rollback()
            raise
        return transaction

    def _refuse_own_wait(self, tables: Sequence[int]) -> None:
        self._leave_parent()
        for table in tables:
            refuse_own_wait(self.holders.get(table), "the commit lock of the same table")

    def takes_at_once(self, table_id: int, *, anywhere: bool) -> bool:
        # Who names the head in a crowd loses more often than not, and would have to come again to learn of the new one.
        return anywhere or not self.is_contended((table_id,))

    def commit_at_once(self, commit: SmallCommit, timeout: float) -> Stands | None:
        deadline = Deadline(timeout)
        self._refuse_own_wait((commit.table_id,))
        connection = self._take(timeout)
        try:
            with self.failures("committing", deadline):
                return commit_small(connection, self, commit, deadline.left)
        finally:
            self.give_back(connection)

    @contextmanager
    def settled(self, commit_id: str, timeout: float) -> Iterator[Session]:
        deadline = Deadline(timeout)
        with self.session_within(timeout) as session:
            ((is_standby,),) = session.fetch(self.queries["is_standby"], {})
            found = session.fetch(self.queries["commit_by_id"], {"commit_id": commit_id}) if is_standby else []
        if is_standby and not found:
            raise DatabaseError(
                f"{self!r} is a standby, and commit {commit_id} is not there: it may still come. Ask the primary"
            )
        if not is_standby:
            self._settle(commit_id, deadline.left)
        with self.session_within(max(deadline.left, GRACE)) as session:
            yield session

    def _settle(self, commit_id: str, timeout: float) -> None:
        """Waits until the server is done with a commit, and makes one void that it has not heard of yet.

        A commit that is there can be missing on the standbys that it had to wait for, if its session ended before they
        had it. A write after it that they acknowledge proves that they have all before, also changes without a version.
        """
        # The commit's own lock is held until the server is done with it.
        transaction = self._begin((), commit_id, timeout, to_settle=True)
        try:
            if not transaction.fetch(self.queries["commit_by_id"], {"commit_id": commit_id}):
                transaction.execute(self.queries["forget_void"], {"age": _LONGEST_WAY})
                transaction.execute(self.queries["make_void"], {"commit_id": commit_id})
            transaction.execute(self.queries["prove"], {})
            transaction.commit()
        finally:
            transaction.rollback()

    def stop_waiting(self, commit: int) -> None:
        """Ends the wait of a commit for a lock, by the lock of its own id that it holds. Never raises.

        One that does not wait for a lock is left alone: it may be in COMMIT.
        """
        with suppress(psycopg.Error), self._connect() as connection:
            connection.limit(math.inf, Deadline(FAREWELL))
            connection.execute(self.queries["stop_waiting"], {"commit": commit})

    def note(self, statement: str, parameters: Parameters, timeout: float) -> list[Row]:
        timeout = limited(timeout)
        deadline = Deadline(timeout)
        connection = self._take(timeout)
        try:
            connection.limit(math.inf, Deadline(deadline.left + GRACE))
            with self.failures("noting the state of the mirror", deadline):
                # Not in a pipeline: a pooler would not see where the transaction ends.
                with connection.transaction():
                    connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED READ WRITE")
                    connection.execute(self.queries["note_limits"], limits_of(timeout))
                    noted = connection.execute(statement, parameters)
                rows: list[Row] = noted.fetchall()
                return rows
        finally:
            self._leave_transaction(connection)
            self.give_back(connection)

    def usage(self) -> tuple[int, int]:
        stats = self._pool.get_stats() if self._pool is not None else {}
        used = stats.get("pool_size", 0) - stats.get("pool_available", 0)
        return used, stats.get("requests_waiting", 0)

    def note_lost(self, tables: Sequence[int]) -> None:
        if len(self._lost) > 1000:
            self._lost.clear()
        self._lost |= dict.fromkeys(tables, time.monotonic())

    def is_contended(self, tables: Sequence[int]) -> bool:
        """Whether a race for one of these tables was lost a moment ago."""
        now = time.monotonic()
        return any(now - self._lost.get(table, -math.inf) < LONGEST_TURN for table in tables)

    def named(self, connection: Any) -> dict[bytes, bytes] | None:
        """The statements that a session has prepared below psycopg; None if it must not prepare any."""
        return None if self._prepare_threshold is None else self._named.setdefault(connection, {})

    def give_back(self, connection: Any) -> None:
        self._pool.putconn(connection)

    def _leave_parent(self) -> None:
        """Gives a forked child a pool of its own."""
        if os.getpid() != self._process:
            with _fork_guard:
                if os.getpid() != self._process:
                    _leaked.append(self._pool)
                    self._start()

    def _start(self) -> None:
        self.holders = {}
        pool: Any = psycopg_pool.ConnectionPool(
            self._url,
            connection_class=BoundedConnection,
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
        try:
            pool.open()
        except RuntimeError as error:
            with suppress(Exception):
                pool.close(timeout=0)
            raise LakelogError(
                f"no thread can start for the connections of {self!r} ({error}): free memory or processes, and connect "
                "again"
            ) from error
        self._pool = pool
        self._process = os.getpid()

    def _options(self) -> dict[str, Any]:
        seconds = max(int(self._timeout), 2)
        hosts = os.environ.get("PGHOST", "")
        with suppress(psycopg.Error):
            hosts = str(conninfo_to_dict(self._url).get("host") or hosts)
        return {
            "autocommit": True,
            # Whatever the database, the URL or the environment prefer: texts travel as Arrow and Python have them.
            "client_encoding": "UTF8",
            "prepare_threshold": self._prepare_threshold,
            # Of one host: all of them together have the timeout.
            "connect_timeout": max(seconds // (hosts.count(",") + 1), 2),
            # A server that vanished is noticed within the timeout.
            "tcp_user_timeout": seconds * 1000,
            "keepalives_idle": max(seconds // 3, 1),
            "keepalives_interval": max(seconds // 6, 1),
            "keepalives_count": 4,
            "application_name": "lakelog",
        }

    def _connect(self) -> Any:
        return BoundedConnection.connect(self._url, **self._options())

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
                    f"one of {self._pool_size} connections to {self!r} (pool_size; or the server is unreachable, or "
                    "has no connection left)",
                    timeout,
                ) from None
            connection.limit(math.inf, Deadline(max(deadline.left, GRACE)))
            if _is_alive(connection):
                return connection
            # The pool makes another. Its own check would pause before it looks at the next, and a restart of the
            # server ends all of them.
            connection.close()
            self.give_back(connection)

    @contextmanager
    def failures(self, doing: str, deadline: Deadline | None = None) -> Iterator[None]:
        """Translates psycopg's errors, by class and SQLSTATE, into ours."""
        seconds = deadline.seconds if deadline else self._timeout
        try:
            yield
        except pg.LockNotAvailable:
            raise LakelogTimeoutError(f"a commit lock in {self!r}, held by another writer", seconds) from None
        except NoAnswer:
            raise LakelogTimeoutError(f"an answer of PostgreSQL while {doing}", seconds) from None
        except (pg.QueryCanceled, pg.IdleInTransactionSessionTimeout):
            raise LakelogTimeoutError(f"a statement of PostgreSQL while {doing}", seconds) from None
        except psycopg.IntegrityError as error:
            detail = scrubbed(str(error.diag.message_detail or error), self._url)
            table = f" in {error.diag.table_name}" if error.diag.table_name else ""
            raise DatabaseError(f"a row broke a constraint{table}", error.diag.constraint_name, detail) from None
        except pg.InsufficientPrivilege as error:
            raise PrivilegeError(
                f"the database role lacks a privilege for {doing} (schema {self.schema!r})", None, str(error)
            ) from None
        except pa.ArrowException as error:
            # As where Arrow cannot start a thread.
            raise DatabaseError(f"rows cannot be exchanged with PostgreSQL while {doing}", None, str(error)) from error
        except UnicodeError as error:
            # Of a host's name, which psycopg resolves by itself.
            raise ConfigurationError(f"cannot connect to {self!r}: {scrubbed(str(error), self._url)}") from None
        except psycopg.Error as error:
            detail = scrubbed(str(error), self._url)
            if error.sqlstate is None and doing == "connecting":
                raise ConfigurationError(f"cannot connect to {self!r}: {_remedy(detail)}. {detail}") from None
            raise DatabaseError(
                f"PostgreSQL failed while {doing} ({error.sqlstate or 'no SQLSTATE'})", None, detail
            ) from None


class _Script:
    """What ``install`` needs of a transaction, on a connection outside the pool."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def execute(self, statement: str, parameters: Parameters) -> None:
        self._connection.execute(statement, parameters or None)

    def fetch(self, statement: str, parameters: Parameters) -> list[Row]:
        return list(self._connection.execute(statement, parameters or None).fetchall())


def _remedy(said: str) -> str:
    """What to do about a server that did not let us in, by its words: the driver has no SQLSTATE of it."""
    if any(words in said for words in _NO_ROOM):
        return (
            "the server has no connection left: close some, lower the pool_size of its clients, raise its "
            "max_connections or the limit of this role or database, or put a pooler before it"
        )
    return "check host, port, user and password, and that the server runs"


def _is_alive(connection: Any) -> bool:
    """An idle connection has nothing to say: if it does, the server has gone away, and asking tells."""
    if ready(connection.fileno(), select.POLLIN, 0):
        try:
            connection.execute("SELECT 1")
        except psycopg.Error:
            return False
    return True
