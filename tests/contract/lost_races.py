"""A table, the commits that win a race for it, and the writes that lose."""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lakelog import CommitResult, Dataset, Lake
from lakelog.actions import Action, AddFile, Metadata, RemoveFile
from lakelog.changes.conflicts import Found, Reads, find_conflict
from lakelog.changes.retry import Prepared, commit_with_retries
from lakelog.log.commit.draft import Description, Draft
from tests.contract.samples import add, commit, paths, stats, table

FIRST, SECOND = "2026-01-01", "2026-01-02"

NOTHING = Reads()


def file(path: str, day: str, low: int | None = None, **fields: Any) -> AddFile:
    """A file of one day with ten ids from ``low`` on, or without statistics."""
    known = None if low is None else stats(10, id=(low, low + 9))
    return add(path, **{"partition_values": {"day": day}, "stats": known, **fields})


BASE = [file("1a", FIRST, 0), file("1b", FIRST, 10), file("2a", SECOND, 20), file("2b", SECOND, 30)]


def removes(*files: str, data_change: bool = True) -> list[RemoveFile]:
    return [RemoveFile(path=path, data_change=data_change) for path in files]


@dataclass(frozen=True)
class Write:
    """What a writer commits in one version, prepared on the base."""

    actions: Sequence[Action]
    reads: Reads = NOTHING


@dataclass(frozen=True)
class Setting:
    """A partitioned table with four files at its head, held by two writers."""

    lake: Lake
    other: Lake
    dataset: Dataset
    base: int

    @property
    def metadata(self) -> Metadata:
        return self.dataset.snapshot(self.base).metadata

    def win(self, *commits: Sequence[Action]) -> None:
        for actions in commits:
            commit(self.other, self.dataset, *actions, operation="WIN")

    def find(self, reads: Reads, **options: Any) -> Found | None:
        return find_conflict(self.lake.committer, self.dataset.id, self.base, self.dataset.version, reads, **options)

    def lose(
        self,
        write: Write,
        retries: int = 1,
        meanwhile: Iterable[Sequence[Action]] = (),
        pause: Callable[[int], None] = lambda retry: None,
    ) -> CommitResult:
        """Commits on the base what was prepared there. Each of ``meanwhile`` is a winner that comes before a draft."""
        arrivals = iter(meanwhile)

        def draft_for(expected: int) -> Draft:
            for actions in itertools.islice(arrivals, 1):
                self.win(actions)
            description = Description(operation="LOSE", operation_parameters={}, extra={})
            return Draft(self.dataset.id, expected, write.actions, description)

        change = Prepared(table_id=self.dataset.id, base_version=self.base, draft_for=draft_for, reads=write.reads)
        return commit_with_retries(self.lake.committer, [change], retries=retries, pause=pause)[0]

    def live(self) -> set[str]:
        return set(paths(self.dataset.snapshot().files()))


def prepared(lake: Lake, other_lake: Lake, name: str = "events") -> Setting:
    dataset = table(lake, name, partition_by=["day"])
    return Setting(lake, other_lake, dataset, commit(lake, dataset, *BASE).version)
