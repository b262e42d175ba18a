"""A history: what writers and readers did and were told, and the log that is there in the end.

Times are those of one monotonic clock that all processes of a machine share. Every write adds files that nobody else
adds, so that the log says of each commit whose it is.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum


class Told(Enum):
    """The answer to a write."""

    COMMITTED = "committed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    """Nobody was told, or was told that nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    """A change of one table, or of several at once."""

    actor: str
    began: float
    ended: float
    told: Told
    adds: Mapping[str, tuple[str, ...]]
    """The files that it adds, by table. At least one in each table that it changes."""
    removes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    versions: Mapping[str, int] = field(default_factory=dict)
    """What it was told, by table."""
    times: Mapping[str, int] = field(default_factory=dict)
    """The times of its commits, as it was told."""
    commit_id: str | None = None
    batch: tuple[str, int] | None = None
    """An application and the number that it gives: it tries each number until it is there, and then the next one."""
    expected: Mapping[str, int] = field(default_factory=dict)
    """The versions that it asked for; of others it can be none."""

    @property
    def tables(self) -> frozenset[str]:
        return frozenset(self.adds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One state of some tables, as a reader was shown it."""

    actor: str
    began: float
    ended: float
    versions: Mapping[str, int]
    files: Mapping[str, "Digest"]
    """The live files of those tables that were listed."""
    times: Mapping[str, int] = field(default_factory=dict)
    """The times of the commits that made these versions, as the reader was shown them."""
    at: int | None = None
    """The time of which the state was asked for, or None for the present one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """A version of a table, as the log has it."""

    table: str
    version: int
    commit_id: str
    committed_at: int
    adds: tuple[str, ...]
    removes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    writes: tuple[Write, ...]
    reads: tuple[Read, ...]
    log: tuple[Commit, ...]
    """Every commit of every table, but for those that made the tables."""
    first: Mapping[str, int] = field(default_factory=dict)
    """The version of the first commit of each table's log; 1 where nothing is said."""


@dataclass(frozen=True, slots=True)
class Digest:
    """A set of paths, which costs the same to keep and to compare whether it has ten or a million."""

    count: int = 0
    total: int = 0

    def plus(self, paths: Iterable[str]) -> "Digest":
        return self._changed(paths, 1)

    def minus(self, paths: Iterable[str]) -> "Digest":
        return self._changed(paths, -1)

    def _changed(self, paths: Iterable[str], sign: int) -> "Digest":
        count, total = self.count, self.total
        for path in paths:
            count += sign
            total += sign * int.from_bytes(hashlib.blake2b(path.encode(), digest_size=8).digest())
        return Digest(count, total % (1 << 64))

    @classmethod
    def of(cls, paths: Iterable[str]) -> "Digest":
        return cls().plus(paths)
