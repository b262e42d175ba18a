"""What a database must do to hold the log. Callers never ask which database it is."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Protocol

from lakelog.catalog.queries import Queries

Parameters = Mapping[str, Any]
Row = tuple[Any, ...]
Rows = Sequence[Row] | Any
"""Rows of one catalog table: tuples where there are few, a ``pyarrow.Table`` where there can be thousands."""

NOTHING: Mapping[int, int] = {}

FORMAT = 2
"""The version of the catalog's tables that this code reads and writes."""


class Session(Protocol):
    """Reads. Each statement sees one committed state of the catalog."""

    def fetch(self, statement: str, parameters: Parameters) -> list[Row]: ...

    def fetch_arrow(self, statement: str, parameters: Parameters, schema: Any, *, large: bool = False) -> Any:
        """The result as a ``pyarrow.Table`` of exactly that schema. ``large`` says that it may be most of a table."""
        ...


class Transaction(Session, Protocol):
    """A write transaction. Holds the commit lock of each table whose head it read by the statement ``lock_head``.

    Ends with ``commit`` or ``rollback``.
    """

    waited: float
    """Seconds spent on the way to the lock."""

    def fetch_each(self, *queries: tuple[str, Parameters]) -> list[list[Row]]:
        """Several small reads at the price of one round trip."""
        ...

    def execute(self, statement: str, parameters: Parameters) -> None:
        """Runs a statement, perhaps only when something is fetched or committed."""
        ...

    def insert(self, table: str, rows: Rows) -> None:
        """Adds rows that have the columns of ``TABLES[table]``, in that order."""
        ...

    def commit(self) -> None:
        """Makes everything durable, or raises.

        Raises ``OutcomeUnknown`` when the database was lost before it answered; any other error means that nothing
        was committed.
        """
        ...

    def rollback(self) -> None:
        """Undoes everything and lets go of the locks. Never raises; harmless after the end."""
        ...

    def give_up(self, statement: str, parameters: Parameters) -> list[Row]:
        """Rolls back and reads, at the price of one round trip: what the loser of a race wants."""
        ...


class OutcomeUnknown(Exception):
    """COMMIT was sent and its answer never came. Only the commit's id, looked up later, can tell."""


class Catalog(ABC):
    """One catalog in one database. The constructor does no I/O; ``open`` does."""

    dialect: ClassVar[str]
    queries: Queries

    @abstractmethod
    def open(self, *, create: bool, upgrade: bool) -> None:
        """Connects, and creates the tables if there are none and ``create`` says so."""

    @abstractmethod
    def close(self) -> None:
        """Lets go of every connection. Harmless when repeated."""

    @abstractmethod
    def session(self) -> AbstractContextManager[Session]: ...

    @abstractmethod
    def begin(
        self, tables: Sequence[int], commit_id: str, timeout: float, expected: Mapping[int, int] = NOTHING
    ) -> Transaction:
        """Opens a transaction that is about to lock these tables, each by the statement ``lock_head``.

        ``expected`` says which heads that will be asked for, so that a race that is lost already need not be run.
        Raises ``LakelogTimeoutError`` when that cannot be done in time, here or at the first fetch.
        """

    @abstractmethod
    def settled(self, commit_id: str, timeout: float) -> AbstractContextManager[Session]:
        """A session in which the commit of this id either stands or never will."""

    @abstractmethod
    def note(self, statement: str, parameters: Parameters, timeout: float) -> list[Row]:
        """Runs one statement in a transaction of its own, which a crash of the machine may undo, but nothing else.

        Raises ``LakelogTimeoutError`` if it would have to wait for longer.
        """

    @abstractmethod
    def usage(self) -> tuple[int, int]:
        """Connections in use, and callers waiting for one."""


def now_ms() -> int:
    return time.time_ns() // 1_000_000
