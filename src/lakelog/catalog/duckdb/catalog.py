"""The catalog in one DuckDB file, for one process.

DuckDB lets one process open a file, and inside it answers a second writer with a conflict instead of a wait. So all
lakes of a process on one file share an instance and queue for one writer lock.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa

from lakelog.catalog.base import NOTHING, Catalog, OutcomeUnknown, Parameters, Row, Rows, Session, Transaction
from lakelog.catalog.deadlines import Deadline, limited
from lakelog.catalog.install import check_format, make_directory, prepare
from lakelog.catalog.locks import FairLock, refuse_own_wait
from lakelog.catalog.queries import Queries
from lakelog.catalog.tables import TABLES
from lakelog.errors import ConfigurationError, DatabaseError, LakelogError, LakelogTimeoutError
from lakelog.storage.disk import sync_directories

try:
    import duckdb
except ImportError as error:
    raise ConfigurationError("duckdb:// needs the duckdb package: pip install 'lakelog[duckdb]'") from error


class _Instance:
    """A file that is open in this process, with its writer lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.process = os.getpid()
        self.users = 0
        self.writer = FairLock()
        self._guard = threading.Lock()
        self._connection: Any = self._connect()

    def cursor(self) -> Any:
        with self._guard:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection.cursor()

    def close(self) -> None:
        """The next cursor opens the file anew, without which DuckDB refuses everything after a fatal error."""
        with self._guard, suppress(duckdb.Error):
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.close()

    def _connect(self) -> Any:
        try:
            connection = duckdb.connect(
                str(self.path),
                config={
                    "autoinstall_known_extensions": "false",
                    "autoload_known_extensions": "false",
                    "enable_external_access": "false",
                },
            )
            connection.execute("SET lock_configuration = true")
        except duckdb.IOException as error:
            raise ConfigurationError(
                f"cannot open {self.path}: a DuckDB catalog can be open in one process at a time, and the file must be "
                f"writable. Close the other process, or use SQLite or PostgreSQL for several. DuckDB says: {error}"
            ) from error
        except duckdb.Error as error:
            raise DatabaseError(f"DuckDB cannot open {self.path}", None, str(error)) from error
        return connection


_instances: dict[Path, _Instance] = {}
_guard = threading.Lock()


class DuckdbCatalog(Catalog):
    dialect: ClassVar[str] = "duckdb"
    searches_from_oldest: ClassVar[bool] = True

    def __init__(self, path: Path, *, pool_size: int, timeout: float) -> None:
        self.queries = Queries(self.dialect, str)
        self._path = path
        self._pool_size = pool_size
        self._timeout = timeout
        self._slots = threading.BoundedSemaphore(pool_size)
        self._in_use = 0
        self._waiting = 0
        self._opened: _Instance | None = None

    def __repr__(self) -> str:
        return f"DuckdbCatalog({str(self._path)!r})"

    def open(self, *, create: bool, upgrade: bool) -> None:
        if not os.path.exists(self._path):  # noqa: PTH110
            if not create:
                raise ConfigurationError(f"there is no catalog at {self._path}: connect with create=True to make one")
            make_directory(self._path.parent)
        if not os.access(self._path.parent, os.W_OK):
            raise ConfigurationError(f"cannot write to the directory {self._path.parent} of the catalog")
        real = self._path.resolve()
        with _guard:
            instance = _instances.get(real)
            if instance is None:
                instance = _instances[real] = _Instance(real)
            self._refuse_fork(instance)
            instance.users += 1
            self._opened = instance
        try:
            self._prepare(create=create, upgrade=upgrade)
        except BaseException:
            self.close()
            raise

    def _prepare(self, *, create: bool, upgrade: bool) -> None:
        with self.session() as session:
            found = _format(session, self.queries)
        if found is not None and not upgrade:
            check_format(found, str(self._path))
            return
        transaction = self.begin((), "install", self._timeout)
        try:
            found = _format(transaction, self.queries)
            prepare(transaction, self, found, str(self._path), create=create, upgrade=upgrade)
            transaction.commit()
        finally:
            transaction.rollback()
        sync_directories(self._path.absolute().parent)

    def close(self) -> None:
        instance, self._opened = self._opened, None
        if instance is None or os.getpid() != instance.process:
            return
        with _guard:
            instance.users -= 1
            if instance.users == 0:
                del _instances[instance.path]
                instance.close()

    @contextmanager
    def session(self) -> Iterator[Session]:
        with self._slot(Deadline(limited(self._timeout))) as instance, _translated():
            cursor = instance.cursor()
            try:
                yield _DuckdbSession(cursor)
            finally:
                cursor.close()

    def begin(
        self, tables: Sequence[int], commit_id: str, timeout: float, expected: Mapping[int, int] = NOTHING
    ) -> Transaction:
        deadline = Deadline(limited(timeout))
        slot = self._slot(deadline)
        instance = slot.__enter__()
        try:
            refuse_own_wait(instance.writer.owner, f"the write lock of {self._path}")
            if not instance.writer.acquire(deadline.left):
                raise LakelogTimeoutError(f"the write lock of {self._path}, held by another thread", timeout)
            try:
                with _translated():
                    cursor = instance.cursor()
                    cursor.begin()
            except BaseException as error:
                if isinstance(error.__cause__, duckdb.FatalException):
                    instance.close()
                instance.writer.release()
                raise
        except BaseException:
            slot.__exit__(None, None, None)
            raise
        return _DuckdbTransaction(instance, cursor, slot, timeout - deadline.left)

    @contextmanager
    def settled(self, commit_id: str, timeout: float) -> Iterator[Session]:
        transaction = self.begin((), commit_id, timeout)
        try:
            yield transaction
        finally:
            transaction.rollback()

    def note(self, statement: str, parameters: Parameters, timeout: float) -> list[Row]:
        transaction = self.begin((), "note", timeout)
        try:
            rows = transaction.fetch(statement, parameters)
            transaction.commit()
        except OutcomeUnknown as error:
            raise DatabaseError(str(error)) from error
        finally:
            transaction.rollback()
        return rows

    def usage(self) -> tuple[int, int]:
        return self._in_use, self._waiting

    @contextmanager
    def _slot(self, deadline: Deadline) -> Iterator[_Instance]:
        instance = self._opened
        if instance is None:
            raise LakelogError("this lake is closed: call lakelog.connect again")
        self._refuse_fork(instance)
        self._waiting += 1
        try:
            if not self._slots.acquire(timeout=deadline.left):
                raise LakelogTimeoutError(
                    f"one of {self._pool_size} connections to {self._path} (pool_size)", deadline.seconds
                )
        finally:
            self._waiting -= 1
        self._in_use += 1
        try:
            yield instance
        finally:
            self._in_use -= 1
            self._slots.release()

    def _refuse_fork(self, instance: _Instance) -> None:
        if os.getpid() != instance.process:
            raise ConfigurationError(
                f"{self._path} was opened before this process was forked: DuckDB works in one process only. "
                "Use threads, or a SQLite or PostgreSQL catalog for several processes."
            )


class _DuckdbSession:
    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def fetch(self, statement: str, parameters: Parameters) -> list[Row]:
        with _translated():
            rows: list[Row] = self._cursor.execute(statement, _bound(parameters)).fetchall()
            return rows

    def fetch_arrow(self, statement: str, parameters: Parameters, schema: Any, *, large: bool = False) -> Any:
        with _translated():
            table = self._cursor.execute(statement, _bound(parameters)).to_arrow_table()
            return table.cast(schema)


class _DuckdbTransaction(_DuckdbSession):
    def __init__(self, instance: _Instance, cursor: Any, slot: Any, waited: float) -> None:
        super().__init__(cursor)
        self._instance = instance
        self._slot = slot
        self.waited = waited
        self._open = True

    def fetch_each(self, *queries: tuple[str, Parameters]) -> list[list[Row]]:
        return [self.fetch(statement, parameters) for statement, parameters in queries]

    def execute(self, statement: str, parameters: Parameters) -> None:
        with _translated():
            self._cursor.execute(statement, _bound(parameters))

    def insert(self, table: str, rows: Rows) -> None:
        # Always from Arrow: for each bound parameter DuckDB looks whether pandas is installed.
        schema = TABLES[table]
        names = ", ".join(schema.names)
        if not isinstance(rows, pa.Table):
            columns = zip(*rows, strict=True)
            rows = pa.table(
                [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema
            )
        with _translated(table):
            # As a bare stream: DuckDB scans a table by Arrow's threads, and waits for ever where none can start.
            self._cursor.register("lakelog_rows", rows.__arrow_c_stream__())
            try:
                self._cursor.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM lakelog_rows")
            finally:
                self._cursor.unregister("lakelog_rows")

    def commit(self) -> None:
        try:
            with _translated():
                self._cursor.commit()
        except DatabaseError as error:
            if isinstance(error.__cause__, duckdb.FatalException | duckdb.IOException | duckdb.InternalException):
                self._end(broken=True)
                raise OutcomeUnknown(str(error)) from error
            raise
        self._end(served=True)

    def rollback(self) -> None:
        if not self._open:
            return
        broken = False
        try:
            self._cursor.rollback()
        except duckdb.TransactionException:
            pass  # DuckDB already rolled back
        except duckdb.Error:
            broken = True
        self._end(broken=broken)

    def give_up(self, statement: str, parameters: Parameters) -> list[Row]:
        rows = self.fetch(statement, parameters)
        self.rollback()
        return rows

    def _end(self, *, broken: bool = False, served: bool = False) -> None:
        if not self._open:
            return
        self._open = False
        with suppress(duckdb.Error):
            self._cursor.close()
        if broken:
            self._instance.close()
        self._instance.writer.release(served=served)
        self._slot.__exit__(None, None, None)


def _bound(parameters: Parameters) -> dict[str, Any] | None:
    """Lists are paths, which hold no control characters."""
    return {k: "\x01".join(v) if isinstance(v, list) else v for k, v in parameters.items()} or None


def _format(session: Session, queries: Queries) -> int | None:
    if not session.fetch("SELECT 1 FROM duckdb_tables() WHERE table_name = 'lakelog_migrations'", {}):
        return None
    return int(session.fetch(queries["migration_version"], {})[0][0])


@contextmanager
def _translated(table: str | None = None) -> Iterator[None]:
    where = f" in {table}" if table else ""
    try:
        yield
    except duckdb.ConstraintException as error:
        raise DatabaseError(f"a row broke a constraint{where}", str(error).partition(": ")[2], str(error)) from error
    except duckdb.OutOfMemoryException as error:
        raise DatabaseError("DuckDB ran out of memory; nothing was committed", None, str(error)) from error
    except duckdb.Error as error:
        raise DatabaseError(f"DuckDB failed{where}", None, str(error)) from error
