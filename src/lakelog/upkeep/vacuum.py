"""Vacuum: deletes files that no version needs any more, and files that never became part of the table.

The order is what makes it safe. Files are listed first, then the writes in flight are read, then what the catalog
needs: a file of the list whose write has ended by then is in the catalog, and a write that began later is not in the
list. Before the first file goes, the catalog is told which versions will not be whole, and asked again what it needs.
"""

import os
import uuid
from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.catalog.base import OutcomeUnknown
from lakelog.catalog.install import check_format
from lakelog.changes.leases import end_expired_writes, register_vacuum, registered_writes, take_back
from lakelog.errors import DatabaseError
from lakelog.log.state import Head
from lakelog.storage.listing import Listing, judged_as, list_files
from lakelog.storage.neighbours import refuse_tables_below
from lakelog.threads import map_in_threads
from lakelog.upkeep.clocks import agreed_time
from lakelog.upkeep.places import Places, key_of
from lakelog.upkeep.referenced_files import KnownFiles, known_files, refuse_overlap, refuse_unknown_commits
from lakelog.upkeep.retention import Retention, chosen_retention, read_retention, set_retention

if TYPE_CHECKING:
    from lakelog.log.table import Table
    from lakelog.opening.engine import Engine

_AT_ONCE = 256
"""Files of one directory that a thread deletes together."""

_SHOWN = 1000
"""Paths that a report names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VacuumReport:
    """What a vacuum deleted, or would delete."""

    dataset: str
    dry_run: bool
    files: int
    """Without the checksums beside them."""
    bytes: int
    directories: int
    """Those that were empty then; a dry run does not know."""
    removed: int
    """Of the files, those that a commit had taken out of the table."""
    orphans: int
    """Of the files, those that never were part of the table."""
    in_flight: int
    """Files that were kept because their write may still be under way."""
    writes_in_flight: tuple[str, ...]
    """The directories of these writes."""
    oldest_version: int
    """The oldest version whose data is whole."""
    paths: tuple[str, ...]
    """The first thousand of the files, below the table's location."""
    failures: tuple[str, ...]
    """Files that could not be deleted, and why. The next vacuum tries again."""


class _Reason(Enum):
    REMOVED = "a commit took it out of the table"
    ORPHAN = "it never was part of the table"


@dataclass(frozen=True, slots=True)
class _View:
    """What the catalog says, read in the order that makes it safe."""

    writes: frozenset[str]
    """The directories of writes that may still be under way."""
    retention: Retention
    is_shared: bool
    known: KnownFiles


def vacuum(
    lake: "Engine",
    dataset: "Table",
    retention_hours: float | None = None,
    *,
    dry_run: bool = False,
    force: bool = False,
) -> VacuumReport:
    """See ``Dataset.vacuum``."""
    return _Vacuum(lake, dataset, retention_hours, force=force).run(dry_run=dry_run)


class _Vacuum:
    def __init__(self, lake: "Engine", dataset: "Table", hours: float | None, *, force: bool) -> None:
        self._committer = lake.committer
        self._catalog = lake.committer.catalog
        self._dataset = dataset
        keep = chosen_retention(hours, dataset.snapshot().metadata.configuration, force=force)
        self._places = Places(dataset.location)
        self._started = agreed_time(lake.committer, self._places.root)
        self._before = self._started - keep
        refuse_overlap(lake, dataset, self._places)
        refuse_unknown_commits(lake, dataset)

    def run(self, *, dry_run: bool) -> VacuumReport:
        listing = list_files(self._places.root)
        refuse_tables_below(listing, self._dataset.location)
        head, view = self._look()
        doomed, in_flight = self._judge(listing, view, head)
        oldest = max([view.retention.oldest_version, *self._losses(doomed, view)])
        failures: dict[str, str] = {}
        directories = 0
        if not dry_run:
            registration = self._announce(oldest)
            try:
                # A write whose lease has expired could commit now, and is refused then.
                end_expired_writes(self._committer, self._dataset.location, self._started)
                # What was added again since then stays, and what is still registered.
                _, later = self._look(expired=False)
                doomed, _ = self._judge(
                    Listing(listing.root, {place: listing.files[place] for place in doomed}), later, head
                )
                failures = _delete(doomed)
                doomed = {place: reason for place, reason in doomed.items() if place not in failures}
                directories = self._delete_directories(listing, doomed, later.writes)
            finally:
                take_back(self._committer, registration)
        start = len(listing.root) + 1
        # Checksums go with their files, and are none themselves.
        counted = {place: reason for place, reason in doomed.items() if judged_as(place) == place}
        return VacuumReport(
            dataset=self._dataset.name,
            dry_run=dry_run,
            files=len(counted),
            bytes=sum(listing.files[place].size for place in doomed),
            directories=directories,
            removed=sum(reason is _Reason.REMOVED for reason in counted.values()),
            orphans=sum(reason is _Reason.ORPHAN for reason in counted.values()),
            in_flight=in_flight,
            writes_in_flight=tuple(sorted(view.writes)),
            oldest_version=oldest,
            paths=tuple(place[start:] for place in sorted(counted)[:_SHOWN]),
            failures=tuple(f"{place[start:]}: {why}" for place, why in sorted(failures.items())),
        )

    def _look(self, *, expired: bool = True) -> tuple[Head, _View]:
        """The table as it is. Writes are under way while they are registered, and, if ``expired``, have a lease."""
        queries = self._catalog.queries
        table_id = self._dataset.id
        with self._catalog.session() as session:
            # A newer format may name files in a way that is unknown here.
            check_format(session.fetch(queries["migration_version"], {})[0][0], repr(self._catalog))
            head = self._committer.head(session, table_id)
            writes = [each for each in registered_writes(session, queries, head.location) if not each.is_vacuum]
            retention = read_retention(session, queries, table_id)
            converted = bool(session.fetch(queries["converted"], {"table_id": table_id}))
            at = session.fetch(queries["version_at_time"], {"table_id": table_id, "time": self._before})
            known = known_files(session, queries, head, self._places, at[0][0] if at else None)
        under_way = frozenset(each.directory for each in writes if not (expired and each.has_expired(self._started)))
        return head, _View(under_way, retention, retention.shared or converted, known)

    def _judge(self, listing: Listing, view: _View, head: Head) -> tuple[dict[str, _Reason], int]:
        """The files that go, and how many stay for the sake of writes in flight."""
        doomed: dict[str, _Reason] = {}
        in_flight = 0
        # Of what was removed before the catalog knew the table, or that it has forgotten, nobody knows when it was.
        finds_orphans = max(head.created_at, view.retention.expired_at or 0) <= self._before
        for place, file in listing.files.items():
            judged, write = judged_as(place), listing.write_of(place)
            key = key_of(judged)
            if key in view.known.needed or file.changed_at >= self._started:
                continue
            is_ours = write is not None or (listing.is_data(judged) and not view.is_shared)
            is_orphan = finds_orphans and is_ours and file.changed_at < self._before
            if key not in view.known.gone and not is_orphan:
                continue
            if write in view.writes:
                in_flight += 1
            else:
                doomed[place] = _Reason.REMOVED if key in view.known.gone else _Reason.ORPHAN
        return doomed, in_flight

    def _losses(self, doomed: Mapping[str, _Reason], view: _View) -> list[int]:
        """The first versions that do not need files that go, and before which others do."""
        keys = (key_of(judged_as(place)) for place, reason in doomed.items() if reason is _Reason.REMOVED)
        return [view.known.gone[key] for key in keys]

    def _announce(self, oldest: int) -> str:
        """Says that files are about to go, and which versions will be whole, durably and before any of them is not.

        Returns the name of the registration.
        """
        transaction = self._catalog.begin([self._dataset.id], str(uuid.uuid4()), self._committer.timeout)
        try:
            self._committer.lock(transaction, self._dataset.id, None)
            found = read_retention(transaction, self._catalog.queries, self._dataset.id)
            if oldest > found.oldest_version:
                set_retention(
                    transaction,
                    self._catalog.queries,
                    self._dataset.id,
                    oldest_version=oldest,
                    vacuumed_at=self._started,
                )
            registration = register_vacuum(transaction, self._catalog.queries, self._dataset.location)
            transaction.commit()
            return registration
        except OutcomeUnknown as lost:
            raise DatabaseError(f"the database was lost before the vacuum, and no file was deleted: {lost}") from lost
        finally:
            transaction.rollback()

    def _delete_directories(self, listing: Listing, deleted: Mapping[str, _Reason], writes: frozenset[str]) -> int:
        """Deletes the directories that have become empty, and those that writes which died have left."""
        directories = {place.rpartition("/")[0] for place in deleted}
        emptied = directories | {str(parent) for directory in directories for parent in Path(directory).parents}
        count = 0
        for directory, changed_at in reversed(listing.directories.items()):
            write = listing.write_of(directory)
            left = write is not None and changed_at < self._before
            if write not in writes and (directory in emptied or left):
                with suppress(OSError):
                    Path(directory).rmdir()
                    count += 1
        return count


def _delete(doomed: Mapping[str, _Reason]) -> dict[str, str]:
    """Deletes files. Returns those that are still there, and why."""
    by_directory: dict[str, list[str]] = defaultdict(list)
    for place in doomed:
        by_directory[place.rpartition("/")[0]].append(place)
    parts = [
        (directory, places[start : start + _AT_ONCE])
        for directory, places in by_directory.items()
        for start in range(0, len(places), _AT_ONCE)
    ]
    failures: dict[str, str] = {}
    for failed in map_in_threads(lambda part: _delete_in(*part), parts):
        failures |= failed
    return failures


def _delete_in(directory: str, places: list[str]) -> dict[str, str]:
    # A directory may have become a link since it was listed.
    if os.path.realpath(directory) != directory:
        return dict.fromkeys(places, "its directory is no longer where it was")
    failures = {}
    for place in places:
        try:
            os.unlink(place)  # noqa: PTH108 - for each file
        except FileNotFoundError:
            pass
        except OSError as error:
            failures[place] = error.strerror or str(error)
    return failures
