"""Writes in flight. Each says which directory is its own before its first file, so that no vacuum touches it.

A write that ended takes its row back. One that died leaves it, until its lease is over. One that lasts longer than its
lease must not commit: a vacuum may have deleted its files.
"""

import logging
from dataclasses import dataclass
from datetime import datetime, timedelta

from lakelog.catalog.base import OutcomeUnknown, Parameters, Row, Session, now_ms
from lakelog.catalog.queries import Queries
from lakelog.errors import DatabaseError, LakelogError
from lakelog.log.commit import Committer
from lakelog.log.snapshot import moment

LEASE = timedelta(days=7)
"""For which a write is believed to be under way, unless it says that it ended."""

_PATIENCE = 1.0
"""Seconds that a write which ended waits to say so."""

_log = logging.getLogger("lakelog.upkeep")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteInFlight:
    """A write that was registered and has not ended."""

    directory: str
    """The write's own, below the table's location."""
    started_at: datetime
    expires_at: datetime

    def has_expired(self, now: int) -> bool:
        return self.expires_at <= moment(now)


@dataclass(frozen=True, slots=True)
class Lease:
    """For how long a write's directory is safe from a vacuum, in milliseconds since 1970."""

    directory: str
    begins_at: int
    expires_at: int


def register_write(committer: Committer, location: str, directory: str, lease: timedelta = LEASE) -> Lease:
    """Says that a write is about to make files in a directory of its own. Waits for the catalog up to the timeout."""
    found = _lease(directory, lease)
    values = {
        "directory": directory,
        "location": location,
        "started_at": found.begins_at,
        "expires_at": found.expires_at,
    }
    _durably(committer, directory, "register_write", values)
    return found


def renew_write(committer: Committer, lease: Lease) -> Lease:
    """Says that a write is still under way, before it commits. In the first half of its lease nobody has to know.

    Raises ``LakelogError`` if the lease is over.
    """
    found = _lease(lease.directory, LEASE)
    if found.begins_at < (lease.begins_at + lease.expires_at) // 2:
        return lease
    values = {"directory": lease.directory, "now": found.begins_at, "expires_at": found.expires_at}
    if not _durably(committer, lease.directory, "renew_write", values):
        raise LakelogError(
            f"the write to {lease.directory} has outlived its lease, which ended at {moment(lease.expires_at)}, and a "
            "vacuum may have deleted its files. Nothing was committed: write again, in smaller parts"
        )
    return found


def _lease(directory: str, length: timedelta) -> Lease:
    now = now_ms()
    return Lease(directory, now, now + length // timedelta(milliseconds=1))


def _durably(committer: Committer, name: str, query: str, values: Parameters) -> list[Row]:
    catalog = committer.catalog
    transaction = catalog.begin((), name, committer.timeout)
    try:
        rows = transaction.fetch(catalog.queries[query], values)
        transaction.commit()
    except OutcomeUnknown as lost:
        raise DatabaseError(
            f"the database was lost while writes in flight were registered: {lost}. Nothing was committed"
        ) from lost
    finally:
        transaction.rollback()
    return rows


def end_write(committer: Committer, directory: str) -> None:
    """Says that a write has ended. Never raises: what it did stands, and its row would expire by itself."""
    catalog = committer.catalog
    try:
        catalog.note(catalog.queries["end_write"], {"directory": directory}, min(_PATIENCE, committer.timeout))
    except LakelogError as error:
        _log.info("the write to %s has ended, and stays registered until its lease is over: %s", directory, error)


def registered_writes(session: Session, queries: Queries, location: str) -> list[WriteInFlight]:
    """The writes below a location, those included whose lease is over."""
    return [
        WriteInFlight(directory=directory, started_at=moment(started_at), expires_at=moment(expires_at))
        for directory, started_at, expires_at in session.fetch(queries["writes_at"], {"location": location})
    ]


def end_expired_writes(committer: Committer, location: str) -> list[str]:
    """Takes the rows of writes back whose leases are over, and says which directories they had.

    None of them can be renewed from then on, so that its files may go.
    """
    values = {"location": location, "now": now_ms()}
    return [row[0] for row in _durably(committer, location, "end_expired_writes", values)]
