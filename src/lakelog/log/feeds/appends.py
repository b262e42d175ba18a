"""The log as a stream of added files, a version at a time."""

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.errors import LakelogError, ValidationError, VersionNotFoundError, Violation
from lakelog.log.snapshot.file_groups import TO_READ
from lakelog.log.snapshot.snapshot import Changes, milliseconds_of
from lakelog.strict_json import describe

if TYPE_CHECKING:
    from lakelog.log.table import Table

FILES_PER_TRIGGER = 1000
"""What a stream takes in one batch unless it is told: as Delta does."""

_AT_ONCE = 100
"""Commits that are fetched together."""


class Appends:
    """What commits added. One that takes rows away is an error, or is left out if the options say so."""

    def __init__(self, dataset: "Table", *, ignore_deletes: bool, skip_change_commits: bool) -> None:
        self._dataset = dataset
        self._ignore_deletes = ignore_deletes
        self._skip_change_commits = skip_change_commits
        self._known: tuple[int, Any] = (-1, None)

    def snapshot(self, version: int) -> Any:
        """The files of a version, in an order that is always the same."""
        if self._known[0] != version:
            files = self._dataset.snapshot(version).files(columns=TO_READ)
            order = [("version", "ascending"), ("ordinal", "ascending")]
            self._known = version, files.take(pc.sort_indices(files, order))
        return self._known[1]

    def commits(self, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """Each version with the files that it added, in order."""
        for start in range(first, last + 1, _AT_ONCE):
            self._known = (-1, None)
            changes = self._dataset.changes(start, min(start + _AT_ONCE - 1, last))
            for version in range(start, changes.to_version + 1):
                yield version, self._added(changes, version).select(TO_READ)

    def _added(self, changes: Changes, version: int) -> Any:
        added, removed = (_rows_of(files, version) for files in (changes.added, changes.removed))
        if not removed.num_rows:
            return added
        only_deletes = not added.num_rows
        if not (self._skip_change_commits or (only_deletes and self._ignore_deletes)):
            raise self._taken_away(changes, version, only_deletes)
        return added.slice(0, 0)

    def _taken_away(self, changes: Changes, version: int, only_deletes: bool) -> LakelogError:
        operation = changes.commits[version - changes.from_version].operation
        did, option = ("deleted rows", "ignoreDeletes or skipChangeCommits (ignore_deletes, skip_change_commits)")
        if not only_deletes:
            did, option = ("changed or replaced rows", "skipChangeCommits (skip_change_commits)")
        return LakelogError(
            f"version {version} of {self._dataset.name!r} ({operation}) {did}, and a stream only appends. Set {option} "
            "to leave such commits out, or start the query again with a new checkpoint"
        )


def first_version(
    dataset: "Table", starting_version: int | str | None, starting_timestamp: datetime | str | int | None
) -> int | None:
    """The first commit that a stream reads by itself; None if the table as it is comes first."""
    if starting_timestamp is not None:
        return version_from(dataset, starting_timestamp)
    if starting_version is None:
        return None
    head = dataset.version
    if starting_version == "latest":
        return head + 1
    try:
        wanted = int(starting_version)
    except ValueError:
        message = f"expected a version or 'latest', got {describe(starting_version)}"
        raise ValidationError("stream", [Violation("starting_version", message)]) from None
    if not 0 <= wanted <= head + 1:
        raise VersionNotFoundError(f"dataset {dataset.name!r} has no version {wanted}: its versions are 0 to {head}")
    return wanted


def are_partitioned_by(files: pa.Table, columns: Sequence[str]) -> bool:
    """Whether files have values of just these partition columns: a table's partitioning may have been replaced."""
    texts = pc.unique(files.column("partition_values")).to_pylist()
    return all(set(json.loads(text)) == set(columns) for text in texts)


def version_from(dataset: "Table", timestamp: datetime | str | int) -> int:
    """The first version that was committed at that time or after it."""
    try:
        before = dataset.snapshot(timestamp=timestamp).version
    except VersionNotFoundError:
        return 0
    (commit,) = dataset.changes(before, before).commits
    return before if milliseconds_of(commit.timestamp) >= milliseconds_of(timestamp) else before + 1


def _rows_of(files: pa.Table, version: int) -> pa.Table:
    """What a version did that changed data."""
    changed = pc.fill_null(files.column("data_change"), True)
    return files.filter(pc.and_(pc.equal(files.column("version"), version), changed))
