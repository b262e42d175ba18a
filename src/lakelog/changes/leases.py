"""Writes in flight. Each registers the directory of its files before the first of them, so that no vacuum touches it.

The registration is a lease, and part of the write's commit: the commit needs it and ends it, or does not happen. A
vacuum takes it back before it deletes a file, once it has expired. A write that gives up takes it back before it
deletes its own files, and learns by that whether they are committed.
"""

import logging
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from lakelog.catalog.base import OutcomeUnknown, Parameters, Row, Session, Transaction, now_ms
from lakelog.catalog.queries import Queries
from lakelog.errors import DatabaseError
from lakelog.log.commit.committer import Committer
from lakelog.log.snapshot.snapshot import moment
from lakelog.telemetry import report_safely

LEASE = timedelta(days=7)
"""For which a vacuum leaves a write alone that neither commits nor gives up."""

_VACUUM = "vacuum-"
_VACUUM_LEASE = timedelta(days=1)
"""For which a vacuum that died keeps tables from coming back that read files of its table."""

_PATIENCE = 5.0
"""Seconds that a write which gives up waits for the catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteInFlight:
    """A write that was registered and has not ended."""

    directory: str
    """The write's own, below the table's location."""
    started_at: datetime
    expires_at: datetime

    def has_expired(self, now: int) -> bool:
        return self.expires_at <= moment(now)

    @property
    def is_vacuum(self) -> bool:
        """Whether files are deleted there, and not written."""
        return self.directory.startswith(_VACUUM)


def register_write(committer: Committer, location: str, directory: str, lease: timedelta | None = None) -> None:
    """Registers a directory that a write is about to make files in. Waits for the catalog up to the timeout."""
    _durably(
        committer, directory, "register_write", _registration(directory, location, LEASE if lease is None else lease)
    )


def _registration(directory: str, location: str, lease: timedelta) -> dict[str, Any]:
    length = lease // timedelta(milliseconds=1)
    return {"directory": directory, "location": location, "now": now_ms(), "length": length}


def register_vacuum(transaction: Transaction, queries: Queries, location: str) -> str:
    """Registers that files are about to be deleted, in a transaction that holds the table's lock.

    Returns the name under which the registration ends, by ``take_back``.
    """
    name = f"{_VACUUM}{uuid.uuid4()}"
    transaction.fetch(queries["register_write"], _registration(name, location, _VACUUM_LEASE))
    return name


def take_back(committer: Committer, directory: str) -> bool:
    """Ends the lease of a write. True if that proves that it is not committed, and never will be.

    False if the lease is gone, by its commit or by a vacuum, or nobody knows: then only a vacuum may delete the files.
    Never raises.
    """
    catalog = committer.catalog
    patience = min(_PATIENCE, committer.timeout)
    try:
        return bool(catalog.note(catalog.queries["take_back_write"], {"directory": directory}, patience))
    except Exception as error:
        message = "the write to %s stays registered until its lease expires: %s"
        report_safely(logging.INFO, message, directory, error)
        return False


def registered_writes(session: Session, queries: Queries, location: str) -> list[WriteInFlight]:
    """The writes below a location, those included whose leases have expired."""
    return [
        WriteInFlight(directory=directory, started_at=moment(started_at), expires_at=moment(expires_at))
        for directory, started_at, expires_at in session.fetch(queries["writes_at"], {"location": location})
    ]


def end_expired_writes(committer: Committer, location: str, now: int) -> list[str]:
    """Takes back leases that have expired, and returns their directories.

    None of these writes can commit from then on, so that their files may go. One that is committing keeps its lease.
    """
    values = {"location": location, "now": now}
    return [row[0] for row in _durably(committer, location, "end_expired_writes", values)]


def _durably(committer: Committer, name: str, query: str, values: Parameters) -> list[Row]:
    catalog = committer.catalog
    transaction = catalog.begin((), name, committer.timeout)
    try:
        rows = transaction.fetch(catalog.queries[query], values)
        transaction.commit()
    except OutcomeUnknown as lost:
        raise DatabaseError(f"the database was lost while writes in flight were registered or ended: {lost}") from lost
    finally:
        transaction.rollback()
    return rows
