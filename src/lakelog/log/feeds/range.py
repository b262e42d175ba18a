"""Which commits a read of the change feed is about, by versions or by times."""

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakelog.errors import ValidationError, VersionNotFoundError, Violation
from lakelog.log.feeds.appends import version_from
from lakelog.log.snapshot.snapshot import milliseconds_of, moment

if TYPE_CHECKING:
    from lakelog.log.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedRange:
    """From one version to another, both included. Two times between two commits have none: then last is first - 1."""

    first: int
    last: int

    @property
    def is_empty(self) -> bool:
        return self.last < self.first


def feed_range(
    dataset: "Table",
    *,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: datetime | str | int | None = None,
    ending_timestamp: datetime | str | int | None = None,
) -> FeedRange:
    """The commits that are asked for, as Delta understands it.

    A starting time is that of the first commit at or after it, an ending time that of the last one at or before it.
    An ending version beyond the head means the head, so that a reader need not know it; a time beyond the last commit
    is refused, since what will be committed until then is not there yet. Raises ``ValidationError`` for bounds that do
    not fit together and ``VersionNotFoundError`` for those that lie outside of the table's history.
    """
    _check(dataset, starting_version, ending_version, starting_timestamp, ending_timestamp)
    head = dataset.version
    first, last = starting_version, head if ending_version is None else min(ending_version, head)
    if starting_timestamp is not None:
        first = max(version_from(dataset, starting_timestamp), dataset.first_version)
        if first > head:
            raise _too_late(dataset, head, "starting_timestamp", starting_timestamp)
    assert first is not None, "one of the two was given"
    if first > head or first < dataset.first_version:
        raise VersionNotFoundError(
            f"dataset {dataset.name!r} has no version {first} to start with: its versions are "
            f"{dataset.first_version} to {head}"
        )
    if ending_timestamp is not None:
        last = dataset.snapshot(timestamp=ending_timestamp).version
        if last == head and milliseconds_of(ending_timestamp) > _time_of(dataset, head):
            raise _too_late(dataset, head, "ending_timestamp", ending_timestamp)
    between = starting_timestamp is not None and ending_timestamp is not None and last == first - 1
    if last < first and not between:
        raise _refused(dataset, "ending version", f"{last} is before the starting version {first}")
    return FeedRange(first=first, last=last)


def _check(dataset: "Table", first: Any, last: Any, start: Any, end: Any) -> None:
    problems = [
        Violation(name, f"expected a version from 0 on, got {value!r}")
        for name, value in (("starting_version", first), ("ending_version", last))
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0)
    ]
    if first is None and start is None:
        problems.append(Violation("starting_version", "is needed, or starting_timestamp: 0 is the first version"))
    if first is not None and start is not None:
        problems.append(Violation("starting_version", "goes without starting_timestamp: give one of them"))
    if last is not None and end is not None:
        problems.append(Violation("ending_version", "goes without ending_timestamp: give one of them"))
    if problems:
        raise ValidationError(f"change feed of {dataset.name!r}", problems)
    if start is not None and end is not None and milliseconds_of(start) > milliseconds_of(end):
        raise _refused(dataset, "ending_timestamp", f"{end!r} is before starting_timestamp {start!r}")


def _refused(dataset: "Table", where: str, message: str) -> ValidationError:
    return ValidationError(f"change feed of {dataset.name!r}", [Violation(where, message)])


def _too_late(dataset: "Table", head: int, name: str, timestamp: datetime | str | int) -> VersionNotFoundError:
    asked, found = moment(milliseconds_of(timestamp)), moment(_time_of(dataset, head))
    advice = "leave it out to read up to the head" if name == "ending_timestamp" else "nothing has changed since"
    return VersionNotFoundError(
        f"{name} {asked.isoformat()} is after the last commit of {dataset.name!r}, version {head} at "
        f"{found.isoformat()}: {advice}"
    )


def _time_of(dataset: "Table", version: int) -> int:
    (commit,) = dataset.changes(version, version).commits
    return milliseconds_of(commit.timestamp)
