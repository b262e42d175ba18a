"""How far a table's mirror is, as ``dl_mirror_status`` has it. Only the mirror writes there."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lakelog.catalog.base import Catalog, Session, now_ms
from lakelog.log.snapshot.snapshot import moment

PUBLISHED = "published"
"""All is well; whatever lies above the published version is pending."""
FAILING = "failing"
"""The place cannot be written to just now. It is tried again."""
STOPPED = "stopped"
"""Somebody else's file stands where the next one belongs. It takes a person to go on."""
BEHIND = "behind"
"""The mirror has versions that the catalog has lost. The table is read-only until a person decides."""
OFF = "off"
IMPORTING = "importing"


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorStatus:
    """How far a mirror is."""

    state: str
    """``published``, ``failing``, ``stopped``, ``behind`` or ``off``."""
    published: int
    """The last version that Delta readers see; -1 if none is."""
    head: int
    error: str | None = None
    updated_at: datetime | None = None

    @property
    def pending(self) -> int:
        """Versions that are committed and not published."""
        return 0 if self.state == OFF else self.head - self.published


@dataclass(frozen=True, slots=True)
class Entry:
    """A row of ``dl_mirror_status``."""

    published: int
    state: str
    error: str | None
    updated_at: int

    def next(self, published: int, state: str = PUBLISHED, error: str | None = None) -> "Entry":
        """The row that follows. Its time is always a later one, by which two rows that say the same are told apart."""
        return Entry(published, state, error, max(now_ms(), self.updated_at + 1))

    def status(self, head: int) -> MirrorStatus:
        return MirrorStatus(
            state=self.state,
            published=self.published,
            head=head,
            error=self.error,
            updated_at=moment(self.updated_at),
        )


class Ledger:
    """The rows of ``dl_mirror_status``, changed by compare-and-set only."""

    def __init__(self, catalog: Catalog, timeout: float) -> None:
        self._catalog = catalog
        self._timeout = timeout

    def read(self, session: Session, table_id: int) -> Entry | None:
        rows = session.fetch(self._catalog.queries["mirror_status"], {"table_id": table_id})
        return Entry(*rows[0]) if rows else None

    def begin(self, table_id: int) -> Entry:
        """Makes the row of a table that has none, unless somebody else did."""
        entry = Entry(-1, PUBLISHED, None, now_ms())
        values = {"table_id": table_id, "published": -1, "state": PUBLISHED, "updated_at": entry.updated_at}
        if self._catalog.note(self._catalog.queries["mirror_begin"], values, self._timeout):
            return entry
        with self._catalog.session() as session:
            found = self.read(session, table_id)
        assert found is not None, "a row of dl_mirror_status is never deleted while its table is live"
        return found

    def advance(self, table_id: int, found: Entry, entry: Entry, timeout: float | None = None) -> bool:
        """Puts a row into another's place. False if that is no longer there."""
        statement, values = self.advance_statement(table_id, found, entry)
        return bool(self._catalog.note(statement, values, self._timeout if timeout is None else timeout))

    def advance_statement(self, table_id: int, found: Entry, entry: Entry) -> tuple[str, dict[str, Any]]:
        """The same for a transaction of the caller's. It gives a row if it did something."""
        values = {
            "table_id": table_id,
            "published": entry.published,
            "state": entry.state,
            "error": entry.error,
            "updated_at": entry.updated_at,
            "found": found.published,
            "found_state": found.state,
            "found_at": found.updated_at,
        }
        return self._catalog.queries["mirror_advance"], values
