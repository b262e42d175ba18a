"""What a database must do to hold the log. Callers never ask which database it is."""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Protocol

from lakelog.catalog.queries import Queries

Parameters = Mapping[str, Any]
Row = tuple[Any, ...]
Rows = Sequence[Row] | Any
"""Rows of one catalog table: tuples where there are few, a ``pyarrow.Table`` where there can be thousands."""

NOTHING: Mapping[int, int] = {}

FORMAT = 4
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallCommit:
    """A table's next version, as long as it only adds a few files and says nothing of what was there before."""

    table_id: int
    created_at: int | None
    """When the table was created, by which it is known if the catalog was replaced; None if that was not seen."""
    commit_id: str
    expected: int
    """The version that it was checked against."""
    anywhere: bool
    """Whether it may stand on a later one, too, with the same metadata and protocol."""
    metadata_version: int
    protocol_version: int
    paths: list[str]
    """Of the added files. If one of them is live, it is no small commit."""
    leases: list[str]
    """Directories of writes in flight that the commit ends. If one of them is not registered, nothing is committed."""
    rows: Mapping[str, Sequence[Row]]
    """By catalog table. In the place of their version and time come those under which they are committed."""


class Stands(NamedTuple):
    """A small commit that stands."""

    version: int
    committed_at: int
    name: str
    location: str
    waited: float


class OutcomeUnknown(Exception):
    """COMMIT was sent and its answer never came. Only the commit's id, looked up later, can tell.

    ``left`` is how many seconds the caller's timeout leaves for that, if the database has an opinion.
    """

    def __init__(self, message: str, left: float | None = None) -> None:
        super().__init__(message)
        self.left = left


class Catalog(ABC):
    """One catalog in one database. The constructor does no I/O; ``open`` does."""

    dialect: ClassVar[str]
    has_line: ClassVar[bool] = False
    """Whether commits that take any head wait for each other by the statement ``line_up``, before they lock a row."""
    locks_creation: ClassVar[bool] = False
    """Whether those who give a table its name exclude each other by the statement ``lock_creation``."""
    searches_from_oldest: ClassVar[bool] = False
    """Whether a search is cheaper if the statement ``oldest_live`` has said where live files begin."""
    queries: Queries
    schema: str | None = None
    """The namespace of the tables, where the database has several."""

    @property
    def url(self) -> str | None:
        """By which another process opens the same catalog, secrets included; None if none can."""
        return None

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

    def takes_at_once(self, table_id: int, *, anywhere: bool) -> bool:
        """Whether ``commit_at_once`` saves a round trip, and is likely to succeed."""
        return False

    def commit_at_once(self, commit: SmallCommit, timeout: float) -> Stands | None:
        """Commits without asking first; None if nothing was committed.

        Nothing is told of why: who takes the long way then learns it. Raises ``LakelogTimeoutError``, and
        ``OutcomeUnknown`` as a transaction's ``commit``.
        """
        return None

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
