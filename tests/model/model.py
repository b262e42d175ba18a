"""What a lake is, as plain values: the model that the log is compared with."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class File:
    """A live file: what tells it from another one of the same path, and the first of the values that it holds."""

    size: int
    vector: str | None
    low: int

    def holds(self, value: int) -> bool:
        return self.low <= value <= self.low + 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A table after one commit. The id of version 0 is not told to its creator."""

    commit_id: str | None
    columns: int
    live: Mapping[str, File] = field(default_factory=dict)
    progress: Mapping[str, int] = field(default_factory=dict)
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a commit does. A file whose deletion vector changes is removed and added."""

    added: Mapping[str, File] = field(default_factory=dict)
    removed: frozenset[str] = frozenset()
    progress: Mapping[str, int] = field(default_factory=dict)
    columns: int = 0


@dataclass(slots=True)
class Table:
    """A table with all of its versions."""

    id: int
    versions: list[Version]
    first: int = 0
    """The oldest version that has not expired."""

    @property
    def head(self) -> int:
        return len(self.versions) - 1

    @property
    def now(self) -> Version:
        return self.versions[-1]

    def commit(self, commit_id: str | None, change: Change) -> None:
        kept = {path: file for path, file in self.now.live.items() if path not in change.removed}
        self.versions.append(
            Version(
                commit_id=commit_id,
                columns=self.now.columns + change.columns,
                live={**kept, **change.added},
                progress={**self.now.progress, **change.progress},
                added=frozenset(change.added),
                removed=change.removed,
            )
        )
