"""What a lake is, as plain values: the model that the log is compared with."""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A table after one commit."""

    commit_id: str | None
    """None for version 0, whose id its creator is not told."""
    live: Mapping[str, int]
    """The live files, each with the version that added it."""
    columns: tuple[str, ...]
    progress: Mapping[str, int]
    added: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()


@dataclass(slots=True)
class Table:
    """A table with all of its versions."""

    table_id: int
    name: str
    versions: list[Version] = field(default_factory=list)

    @property
    def head(self) -> int:
        return len(self.versions) - 1

    @property
    def now(self) -> Version:
        return self.versions[-1]

    def commit(
        self,
        commit_id: str,
        *,
        adds: Iterable[str] = (),
        removes: Iterable[str] = (),
        columns: tuple[str, ...] | None = None,
        progress: Mapping[str, int] | None = None,
    ) -> None:
        added, removed = frozenset(adds), frozenset(removes)
        kept = {path: version for path, version in self.now.live.items() if path not in removed}
        self.versions.append(
            Version(
                commit_id=commit_id,
                live=kept | dict.fromkeys(added, len(self.versions)),
                columns=columns or self.now.columns,
                progress={**self.now.progress, **(progress or {})},
                added=added,
                removed=removed,
            )
        )


@dataclass(slots=True)
class Model:
    """The tables that are there, by name, and those that were dropped."""

    tables: dict[str, Table] = field(default_factory=dict)
    dropped: list[Table] = field(default_factory=list)

    def commits(self) -> dict[str, list[tuple[int, str, int]]]:
        """The commits that stand: for each id the tables, by id and name, with their versions."""
        found: dict[str, list[tuple[int, str, int]]] = {}
        for table in itertools.chain(self.tables.values(), self.dropped):
            for number, version in enumerate(table.versions):
                if version.commit_id is not None:
                    found.setdefault(version.commit_id, []).append((table.table_id, table.name, number))
        return found
