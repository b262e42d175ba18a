"""The catalog in one SQLite file, for any number of processes on one machine.

Writers queue for an exclusive ``flock`` on a file beside the database before they begin: SQLite's own busy handler
polls, and starves whoever is unlucky. apsw is the only SQLite library that may touch the file in this process: a
second one would drop the first one's locks when it closes the file.
"""

import json
import os
import queue
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote
from weakref import WeakSet

import apsw
import pyarrow as pa

from lakelog.catalog.base import NOTHING, Catalog, OutcomeUnknown, Parameters, Row, Rows, Session, Transaction
from lakelog.catalog.deadlines import Deadline, limited
from lakelog.catalog.install import check_format, make_directory, prepare
from lakelog.catalog.locks import FairLock, FileLock, refuse_own_wait
from lakelog.catalog.queries import Queries
from lakelog.catalog.sqlite.errors import damaged_value, translated
from lakelog.catalog.sqlite.fair_turns import Turn
from lakelog.catalog.tables import TABLES
from lakelog.errors import ConfigurationError, DatabaseError, LakelogError, LakelogTimeoutError
from lakelog.storage.disk import sync_directories

_OLDEST = 3_051_003
"""Earlier versions of SQLite can corrupt a WAL when two connections reset it at once."""

_RETRY = 0.002
"""Seconds between two attempts where SQLite itself does not wait."""

_LONGEST_TURN = 1.0
"""Seconds that the loser of a race waits for others who lost it before, and that a winner remembers the crowd."""

_CHUNK = 8192
"""Rows of an Arrow table that exist as Python values at the same time."""

_INSERTS = {
    name: f"INSERT INTO {name} ({', '.join(columns.names)}) VALUES ({', '.join('?' * len(columns))})"
    for name, columns in TABLES.items()
}

_catalogs: "WeakSet[SqliteCatalog]" = WeakSet()
_fork_guard = threading.Lock()


class SqliteCatalog(Catalog):
    dialect: ClassVar[str] = "sqlite"

    def __init__(self, path: Path, *, pool_size: int, timeout: float) -> None:
        self.queries = Queries(self.dialect, str)
        self._path = path
        self._pool_size = pool_size
        self._timeout = timeout
        self._closed = False
        self._start()
        _catalogs.add(self)

    @property
    def url(self) -> str:
        return f"sqlite:///{quote(str(self._path.absolute()))}"

    def __repr__(self) -> str:
        return f"SqliteCatalog({str(self._path)!r})"

    def _start(self) -> None:
        self._process = os.getpid()
        self._writer = FairLock()
        self._file_lock = FileLock(self._path.with_name(self._path.name + "-lock"))
        self._turn = Turn(self._path)
        self._lost_at = -_LONGEST_TURN
        self._idle: queue.LifoQueue[apsw.Connection | None] = queue.LifoQueue()
        for _ in range(self._pool_size):
            self._idle.put(None)
        self._waiting = 0
        self._alone = False

    def open(self, *, create: bool, upgrade: bool) -> None:
        if apsw.SQLITE_VERSION_NUMBER < _OLDEST:
            raise ConfigurationError(
                f"SQLite {apsw.sqlite_lib_version()} can corrupt a WAL: install apsw 3.51.3 or later"
            )
        is_there = os.path.exists(self._path)  # noqa: PTH110
        if not is_there:
            if not create:
                raise ConfigurationError(f"there is no catalog at {self._path}: connect with create=True to make one")
            make_directory(self._path.parent)
        if not os.access(self._path.parent, os.W_OK) or (is_there and not os.access(self._path, os.W_OK)):
            raise ConfigurationError(
                f"cannot write to {self._path}: SQLite needs write access to the file and its directory"
            )
        with self.session() as session:
            self._refuse_encoding(session)
            found = _format(session, self.queries)
        where = str(self._path)
        if found is None or upgrade:
            transaction = self.begin((), "install", self._timeout)
            try:
                prepare(transaction, self, _format(transaction, self.queries), where, create=create, upgrade=upgrade)
                transaction.commit()
            finally:
                transaction.rollback()
            # SQLite syncs the names of its files, and not that of their directory.
            sync_directories(self._path.absolute().parent)
        else:
            check_format(found, where)

    def _refuse_encoding(self, session: Session) -> None:
        """Raises for a file that orders texts by the bytes of UTF-16: a search would miss files."""
        ((encoding,),) = session.fetch("PRAGMA encoding", {})
        if encoding != "UTF-8":
            raise ConfigurationError(
                f"{self._path} has the encoding {encoding}, and Lakelog needs UTF-8. Let Lakelog make the file; a "
                "catalog that is here already moves into one of UTF-8 by the sqlite3 shell's .dump and .read"
            )

    def close(self) -> None:
        self._closed = True
        if os.getpid() != self._process:
            return
        idle: list[apsw.Connection | None] = []
        with suppress(queue.Empty):
            while True:
                idle.append(self._idle.get_nowait())
        for connection in idle:
            if connection is not None:
                connection.close()
            self._idle.put(None)
        self._file_lock.forget()
        self._turn.forget()

    @contextmanager
    def session(self) -> Iterator[Session]:
        connection = self._take(Deadline(limited(self._timeout)))
        broken = True
        try:
            with translated():
                yield _SqliteSession(connection)
            broken = False
        except LakelogError:
            broken = False
            raise
        finally:
            # A statement that was interrupted may be kept by its traceback, and holds what it read for ever.
            self._give_back(connection, broken=broken)

    def begin(
        self, tables: Sequence[int], commit_id: str, timeout: float, expected: Mapping[int, int] = NOTHING
    ) -> Transaction:
        deadline = Deadline(limited(timeout))
        self._leave_parent()
        refuse_own_wait(self._writer.owner, f"the write lock of {self._path}")
        connection = self._take(deadline)
        try:
            # Who has to wait and has lost already, or while it waited, does not hold up the others: a head never
            # comes back. Who need not wait is told by lock_head.
            locked = self._try_lock()
            if not locked and not self._is_lost(connection, expected):
                self._lock(deadline)
                locked = not self._is_lost_now(connection, expected)
            if locked:
                self._turn.try_begins()
                try:
                    with translated():
                        connection.execute("BEGIN IMMEDIATE")
                except BaseException:
                    self._unlock()
                    raise
        except BaseException:
            self._give_back(connection)
            raise
        return _SqliteTransaction(self, connection, deadline, locked=locked)

    def _is_lost(self, connection: apsw.Connection, expected: Mapping[int, int]) -> bool:
        """Whether a table has another head than expected."""
        statement = self.queries["lock_head"]
        with translated():
            return not all(
                connection.execute(statement, {"table_id": table, "expected": head}).fetchall()
                for table, head in expected.items()
            )

    def _is_lost_now(self, connection: apsw.Connection, expected: Mapping[int, int]) -> bool:
        """The same under the lock, which is given back if so."""
        lost = True
        try:
            lost = self._is_lost(connection, expected)
        finally:
            if lost:
                self._unlock()
        return lost

    @contextmanager
    def settled(self, commit_id: str, timeout: float) -> Iterator[Session]:
        # A later write that is durable settles what an earlier fsync error left open. Setting the version in the
        # file's header always writes a page, where an UPDATE that changes nothing would write none.
        transaction = self.begin((), commit_id, timeout)
        try:
            transaction.execute("PRAGMA user_version = 0", {})
            yield transaction
            transaction.commit()
        finally:
            transaction.rollback()

    def note(self, statement: str, parameters: Parameters, timeout: float) -> list[Row]:
        deadline = Deadline(limited(timeout))
        self._leave_parent()
        refuse_own_wait(self._writer.owner, f"the write lock of {self._path}")
        connection = self._take(deadline)
        broken = True
        try:
            self._lock(deadline)
            try:
                with translated():
                    # In WAL mode no fsync then; the next commit's makes this durable, too.
                    connection.execute("PRAGMA synchronous = NORMAL")
                    rows = connection.execute(statement, _bound(parameters)).fetchall()
                    connection.execute("PRAGMA synchronous = FULL")
            finally:
                self._unlock(served=True)
            broken = False
        finally:
            self._give_back(connection, broken=broken)
        return rows

    def usage(self) -> tuple[int, int]:
        return self._pool_size - self._idle.qsize(), self._waiting

    def _take(self, deadline: Deadline) -> apsw.Connection:
        if self._closed:
            raise LakelogError("this lake is closed: call lakelog.connect again")
        self._leave_parent()
        self._waiting += 1
        try:
            connection = self._idle.get(timeout=max(deadline.left, 0.001))
        except queue.Empty:
            raise LakelogTimeoutError(
                f"one of {self._pool_size} connections to {self._path} (pool_size)", deadline.seconds
            ) from None
        finally:
            self._waiting -= 1
        if connection is None:
            try:
                connection = self._connect(deadline)
            except BaseException:
                self._idle.put(None)
                raise
        return connection

    def _give_back(self, connection: apsw.Connection, *, broken: bool = False) -> None:
        # SQLite opens a file for reading alone while the disk refuses more, and never asks again.
        if broken or self._closed or connection.readonly("main"):
            with suppress(apsw.Error):
                connection.close(True)
            self._idle.put(None)
        else:
            self._idle.put(connection)

    def _connect(self, deadline: Deadline) -> apsw.Connection:
        with translated():
            connection = apsw.Connection(str(self._path))
            connection.set_busy_timeout(int(self._timeout * 1000))
            while True:
                try:
                    connection.execute("PRAGMA journal_mode = WAL").fetchall()
                    break
                except apsw.BusyError:
                    # SQLite does not wait for another connection that switches the same new file to WAL.
                    if deadline.passed:
                        raise
                    time.sleep(_RETRY)
            connection.execute(
                "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; "
                "PRAGMA cache_size = -65536; PRAGMA temp_store = MEMORY; PRAGMA trusted_schema = OFF"
            ).fetchall()  # A statement that gives a row holds up those after it until the row is fetched.
        return connection

    def _try_lock(self) -> bool:
        if not self._writer.acquire(0):
            return False
        locked = False
        try:
            with self._lock_file():
                locked = self._file_lock.try_acquire()
        finally:
            if not locked:
                self._writer.release()
        return locked

    def _lock(self, deadline: Deadline) -> None:
        if not self._writer.acquire(deadline.left):
            raise LakelogTimeoutError(f"the write lock of {self._path}, held by another thread", deadline.seconds)
        locked = False
        try:
            with self._lock_file():
                locked = self._file_lock.acquire(deadline.left)
        finally:
            if not locked:
                self._writer.release()
        if not locked:
            raise LakelogTimeoutError(f"the write lock of {self._path}, held by another process", deadline.seconds)

    @contextmanager
    def _lock_file(self) -> Iterator[None]:
        try:
            yield
        except (OSError, RuntimeError) as error:
            raise DatabaseError(f"cannot lock {self._path} by the file {self._path}-lock", None, str(error)) from error

    def _unlock(self, *, served: bool = False) -> None:
        self._turn.try_ends()
        self._file_lock.release()
        self._writer.release(served=served)

    def _is_crowded(self) -> bool:
        """Whether a race was lost a moment ago, or others wait for their turn."""
        return time.monotonic() - self._lost_at < _LONGEST_TURN

    def _wait_for_turn(self, deadline: Deadline) -> None:
        if self._turn.take(min(deadline.left, _LONGEST_TURN)):
            self._lost_at = time.monotonic()

    def _leave_parent(self) -> None:
        """Closes what a forked child inherited of this file, before the child opens it.

        SQLite remembers a file's locks by process, and a fork inherits the memory without the locks: a child that went
        on would lose its commits when the parent closes the file and deletes the WAL.
        """
        me = os.getpid()
        if self._process == me and self._alone:
            return
        with _fork_guard:
            real = self._path.resolve()
            inherited = [each for each in _catalogs if each._process != me and each._path.resolve() == real]
            for catalog in inherited:
                # Not get(): another thread may have held the queue's lock at the moment of the fork.
                if len(catalog._idle.queue) < catalog._pool_size:
                    raise ConfigurationError(
                        f"{self._path} was in use when this process was forked: end reads and transactions before a "
                        "fork, or start processes by spawn"
                    )
            for catalog in inherited:
                for connection in catalog._idle.queue:
                    if connection is not None:
                        connection.close(True)
                catalog._file_lock.forget()
                catalog._turn.forget()
                catalog._start()
            self._alone = True


class _SqliteSession:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def fetch(self, statement: str, parameters: Parameters) -> list[Row]:
        try:
            return self._connection.execute(statement, _bound(parameters)).fetchall()
        except UnicodeDecodeError as error:
            raise damaged_value(error) from error

    def fetch_arrow(self, statement: str, parameters: Parameters, schema: Any, *, large: bool = False) -> Any:
        cursor = self._connection.execute(statement, _bound(parameters))
        batches = []
        while rows := _some(cursor):
            columns = zip(*rows, strict=True)
            batches.append(
                pa.RecordBatch.from_arrays(
                    [_array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
                )
            )
        return pa.Table.from_batches(batches, schema)


class _SqliteTransaction(_SqliteSession):
    def __init__(
        self, catalog: SqliteCatalog, connection: apsw.Connection, deadline: Deadline, *, locked: bool
    ) -> None:
        super().__init__(connection)
        self._catalog = catalog
        self._deadline = deadline
        self.waited = deadline.seconds - deadline.left
        self._locked = locked
        self._open = True

    def fetch(self, statement: str, parameters: Parameters) -> list[Row]:
        with translated():
            return super().fetch(statement, parameters)

    def fetch_each(self, *queries: tuple[str, Parameters]) -> list[list[Row]]:
        return [self.fetch(statement, parameters) for statement, parameters in queries]

    def execute(self, statement: str, parameters: Parameters) -> None:
        assert self._locked, "a lost race writes nothing"
        with translated():
            self._connection.execute(statement, _bound(parameters))

    def insert(self, table: str, rows: Rows) -> None:
        assert self._locked, "a lost race writes nothing"
        statement = _INSERTS[table]
        last: Row = ()

        def each(part: Iterable[Row]) -> Iterator[Row]:
            nonlocal last
            for last in part:  # noqa: UP028 - remembered for the error
                yield last

        try:
            with translated(table):
                if isinstance(rows, pa.Table):
                    for batch in rows.to_batches(max_chunksize=_CHUNK):
                        columns = (column.to_pylist() for column in batch.columns)
                        self._connection.executemany(statement, each(zip(*columns, strict=True)))
                elif len(rows) == 1:
                    last = rows[0]
                    self._connection.execute(statement, last)
                else:
                    self._connection.executemany(statement, each(rows))
        except DatabaseError as error:
            if error.constraint is None:
                raise
            row = ", ".join(f"{name} {value!r}" for name, value in zip(TABLES[table].names, last, strict=False))
            raise DatabaseError(error.message, error.constraint, f"{error.detail}: {row[:300]}") from error.__cause__

    def commit(self) -> None:
        try:
            with translated():
                self._connection.execute("COMMIT")
        except DatabaseError as error:
            if isinstance(error.__cause__, apsw.IOError):
                # The frames are written and perhaps not durable: a reopened file may show them.
                self._end(broken=True)
                raise OutcomeUnknown(str(error)) from error
            raise
        self._end(served=True)
        if self._catalog._is_crowded() and not self._catalog._turn.is_ours:
            # Behind the losers, who else would find the winner ahead of them again.
            self._catalog._wait_for_turn(self._deadline)

    def rollback(self) -> None:
        if not self._open:
            return
        broken = False
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except apsw.Error:
            broken = True
        self._end(broken=broken)

    def give_up(self, statement: str, parameters: Parameters) -> list[Row]:
        self.rollback()
        self._catalog._lost_at = time.monotonic()
        self._catalog._wait_for_turn(self._deadline)
        with self._catalog.session() as session:
            return session.fetch(statement, parameters)

    def _end(self, *, broken: bool = False, served: bool = False) -> None:
        if self._open:
            self._open = False
            # A broken connection is closed while the lock is held, so that nobody meets its half-written state.
            self._catalog._give_back(self._connection, broken=broken)
            if self._locked:
                self._catalog._unlock(served=served)


def _format(session: Session, queries: Queries) -> int | None:
    if not session.fetch("SELECT 1 FROM sqlite_schema WHERE name = 'lakelog_migrations'", {}):
        return None
    return int(session.fetch(queries["migration_version"], {})[0][0])


def _bound(parameters: Parameters) -> dict[str, Any]:
    return {name: json.dumps(value) if isinstance(value, list) else value for name, value in parameters.items()}


def _some(cursor: apsw.Cursor) -> list[Row]:
    try:
        return list(islice(cursor, _CHUNK))
    except UnicodeDecodeError as error:
        raise damaged_value(error) from error


def _array(column: tuple[Any, ...], kind: Any) -> Any:
    try:
        # SQLite has no boolean: 0 and 1 come back as integers.
        return pa.array(column, pa.int64()).cast(kind) if pa.types.is_boolean(kind) else pa.array(column, kind)
    except (pa.ArrowException, OverflowError) as error:
        raise damaged_value(error) from error
