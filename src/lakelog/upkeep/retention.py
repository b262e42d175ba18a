"""What upkeep has taken away from a table, and how long removed files are kept."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lakelog.catalog.base import Session, Transaction
from lakelog.catalog.queries import Queries
from lakelog.errors import ValidationError, Violation
from lakelog.log.intervals import milliseconds_in
from lakelog.strict_json import describe

PROPERTY = "delta.deletedFileRetentionDuration"
HOUR = 3_600_000
_DEFAULT = 168 * HOUR


@dataclass(frozen=True, slots=True)
class Retention:
    """A row of ``dl_retention``. Times are milliseconds."""

    oldest_version: int = 0
    """Data of versions before it is not whole."""
    vacuumed_at: int | None = None
    expired_at: int | None = None
    """Files that were removed before may be unknown to the log."""
    shared: bool = False
    """Whether the location had files of others when it became a table."""


def read_retention(session: Session, queries: Queries, table_id: int) -> Retention:
    rows = session.fetch(queries["retention"], {"table_id": table_id})
    if not rows:
        return Retention()
    oldest, vacuumed_at, expired_at, shared = rows[0]
    return Retention(oldest, vacuumed_at, expired_at, bool(shared))


def set_retention(transaction: Transaction, queries: Queries, table_id: int, **changes: int | bool | None) -> Retention:
    """Changes the row, in a transaction that holds the table's lock."""
    exists = bool(transaction.fetch(queries["retention"], {"table_id": table_id}))
    changed = replace(read_retention(transaction, queries, table_id), **changes)  # type: ignore[arg-type]
    values = {
        "table_id": table_id,
        "oldest_version": changed.oldest_version,
        "vacuumed_at": changed.vacuumed_at,
        "expired_at": changed.expired_at,
        "shared": changed.shared,
    }
    transaction.execute(queries["set_retention" if exists else "begin_retention"], values)
    return changed


def chosen_retention(hours: float | None, configuration: Mapping[str, str], *, force: bool) -> int:
    """Milliseconds for which removed files are kept. Raises ``ValidationError`` for fewer than the table asks for."""
    text = configuration.get(PROPERTY)
    asked = _DEFAULT if text is None else milliseconds_in(text)
    if asked is None:
        message = f"{PROPERTY} is {text!r}, which is no interval such as 'interval 7 days': mend it, or use force"
        if not force:
            raise ValidationError("vacuum", [Violation(PROPERTY, message)])
        asked = _DEFAULT
    if hours is None:
        return asked
    if isinstance(hours, bool) or not isinstance(hours, int | float) or not 0 <= hours < 1e9:
        raise ValidationError(
            "vacuum", [Violation("retention_hours", f"expected a number of hours, got {describe(hours)}")]
        )
    chosen = int(hours * HOUR)
    if chosen < asked and not force:
        why = "is the least that is safe" if text is None else f"is what the table asks for by {PROPERTY}"
        message = (
            f"{hours:g} hours are too few: {asked / HOUR:g} hours {why}, so that no query that is still running loses "
            "its files. If there is none, say force=True (--force; of a LakeTable, the session's setting "
            "spark.databricks.delta.retentionDurationCheck.enabled)"
        )
        raise ValidationError("vacuum", [Violation("retention_hours", message)])
    return chosen
