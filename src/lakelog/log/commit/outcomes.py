"""How a commit ends, and who is told of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lakelog.catalog.base import Row
from lakelog.errors import VersionConflict
from lakelog.log.state import TableState


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """A commit that stands, on one table."""

    table_id: int
    table: str
    version: int
    committed_at: int
    commit_id: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """A race that was lost: a result, not an error."""

    table: str
    table_id: int
    expected: int
    actual: int

    def error(self) -> VersionConflict:
        return VersionConflict(self.table, self.table_id, self.expected, self.actual)


Outcome = list[CommitResult] | Conflict


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """A version that stands, as it is told to who watches."""

    result: CommitResult
    location: str
    state: TableState
    rows: Mapping[str, Sequence[Row]] | None
    """What the catalog now holds of it, by catalog table; None where that is much and better read again."""


class Watcher(Protocol):
    """Somebody who looks at every commit before and after, while no lock is held."""

    def check(self, table_id: int, expected: int | None) -> None:
        """Raises ``LakelogError`` if nothing may be committed on top of this version, or of whatever the head is."""

    def told(self, committed: Sequence[Committed]) -> None:
        """Never raises: the commit stands."""
