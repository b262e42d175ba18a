"""How far a table's mirror is, as ``dl_mirror_status`` has it. Only the mirror writes there."""

from dataclasses import dataclass
from datetime import datetime

from lakelog.catalog.base import Catalog, Session, now_ms
from lakelog.log.snapshot import moment

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

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def read(self, session: Session, table_id: int) -> Entry | None:
        rows = session.fetch(self._catalog.queries["mirror_status"], {"table_id": table_id})
        return Entry(*rows[0]) if rows else None

    def begin(self, table_id: int, published: int = -1, state: str = PUBLISHED) -> Entry:
        """Makes the row of a table that has none, unless somebody else did."""
        entry = Entry(published, state, None, now_ms())
        values = {"table_id": table_id, "published": published, "state": state, "updated_at": entry.updated_at}
        if self._catalog.note(self._catalog.queries["mirror_begin"], values):
            return entry
        with self._catalog.session() as session:
            found = self.read(session, table_id)
        assert found is not None, "a row of dl_mirror_status is never deleted while its table is live"
        return found

    def advance(
        self, table_id: int, found: Entry, published: int, state: str = PUBLISHED, error: str | None = None
    ) -> Entry | None:
        """The new row, or None if the row is no longer what was found."""
        entry = Entry(published, state, error, now_ms())
        values = {
            "table_id": table_id,
            "published": published,
            "state": state,
            "error": error,
            "updated_at": entry.updated_at,
            "found": found.published,
            "found_state": found.state,
        }
        return entry if self._catalog.note(self._catalog.queries["mirror_advance"], values) else None
