"""A table that is being filled and that nobody sees yet: in the catalog it looks like one that was dropped."""

from contextlib import suppress
from typing import TYPE_CHECKING

from lakelog.catalog.base import OutcomeUnknown, Transaction, now_ms
from lakelog.catalog.install import check_format
from lakelog.catalog.name_key import name_key
from lakelog.catalog.tables import TABLES
from lakelog.errors import DatasetExistsError, LakelogError
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import Head, TableState
from lakelog.mirror.status import IMPORTING, PUBLISHED, STOPPED, Ledger

if TYPE_CHECKING:
    from lakelog.opening.engine import Engine


class ImportInterrupted(LakelogError):
    """An import could not go on, and what it did is left for a later one."""


def table_at(lake: "Engine", location: str) -> Head | None:
    """The table that has a location, dropped or not."""
    catalog = lake.committer.catalog
    with catalog.session() as session:
        rows = session.fetch(catalog.queries["table_by_location"], {"location": location})
    return Head(*rows[0]) if rows else None


class HiddenTable:
    """A table between the beginning and the end of its import."""

    table_id: int

    def __init__(self, lake: "Engine", name: str, location: str) -> None:
        self._lake = lake
        self._committer = lake.committer
        self._ledger = Ledger(lake.committer.catalog, lake.committer.timeout)
        self._name = name
        self._location = location

    def begin(self, first: int, last: int, metadata_id: str) -> TableState | None:
        """Makes the table, or finds what an earlier import left of it: then the state that it came to.

        Raises ``DatasetExistsError`` if the location belongs, or belonged, to another dataset.
        """
        known = table_at(self._lake, self._location)
        if known is not None:
            self.table_id = known.table_id
            base = self._resumed(known, range(first, last + 1), metadata_id)
            if base is not None:
                return base
            self.purge()
        self._create(first)
        return None

    def snapshot(self) -> Snapshot:
        """The table as far as it is."""
        with self._committer.catalog.session() as session:
            rows = session.fetch(self._committer.catalog.queries["table_by_id"], {"table_id": self.table_id})
            head = Head(*rows[0])
            return Snapshot(self._committer, head, self._committer.states.load(session, self.table_id, head.version))

    def show(self, published: int, incomplete: str | None) -> Head:
        """Makes it a dataset like any other. ``incomplete`` says why its mirror cannot go on from here."""
        queries = self._committer.catalog.queries
        with self._committer.catalog.session() as session:
            head = Head(*session.fetch(queries["table_by_id"], {"table_id": self.table_id})[0])
        state = PUBLISHED if incomplete is None else STOPPED
        with self._lake.creating(self._name, "import") as (transaction, _, _):
            key = {"table_id": self.table_id, "name": self._name, "name_key": name_key(self._name)}
            if not transaction.fetch(queries["show_table"], key):
                raise ImportInterrupted(f"somebody else has just imported {self._location}")
            self._note(transaction, published, state, incomplete)
            commit_import(transaction, self._location)
        return head._replace(name=self._name, dropped_at=None)

    def purge(self) -> None:
        """Takes every trace of it out of the catalog, if the database is there and the table still hidden."""
        catalog = self._committer.catalog
        with suppress(LakelogError, OutcomeUnknown):
            transaction = catalog.begin([self.table_id], "purge", self._committer.timeout)
            try:
                head = transaction.fetch(catalog.queries["lock_head"], {"table_id": self.table_id, "expected": None})
                if head:
                    check_format(head[0][len(Head._fields)], repr(catalog))
                entry = self._ledger.read(transaction, self.table_id)
                if not head or head[0][8] is None or entry is None or entry.state != IMPORTING:
                    return
                for table in (*TABLES, "dl_mirror_status", "dl_tables"):
                    transaction.execute(catalog.queries.fill("purge", table=table), {"table_id": self.table_id})
                transaction.commit()
            finally:
                transaction.rollback()
            self._committer.states.forget(self.table_id)

    def _resumed(self, known: Head, wanted: range, metadata_id: str) -> TableState | None:
        """What an import that was killed has done; None if that is of no use now."""
        catalog = self._committer.catalog
        with catalog.session() as session:
            entry = self._ledger.read(session, known.table_id)
            if entry is None or entry.state != IMPORTING:
                raise DatasetExistsError(
                    f"{self._location!r} belonged to the dataset {known.name!r}, which was dropped, and a location is "
                    "never used again: copy the table to another one, and import that"
                )
            began = session.fetch(catalog.queries["first_version"], {"table_id": known.table_id})
            if not began or began[0][0] != wanted[0] or known.version not in wanted:
                return None
            state = self._committer.states.load(session, known.table_id, known.version)
        return state if state.metadata.action.id == metadata_id else None

    def _create(self, first: int) -> None:
        queries = self._committer.catalog.queries
        with self._lake.creating(self._name, "import") as (transaction, taken, created_at):
            self._lake.place_for(self._name, self._location, taken)
            key = {
                "name": self._name,
                "name_key": name_key(self._name),
                "location": self._location,
                "created_at": created_at,
            }
            self.table_id = int(transaction.fetch(queries["create_table"], key)[0][0])
            transaction.execute(
                queries["hide_table"], {"table_id": self.table_id, "version": first - 1, "dropped_at": created_at}
            )
            self._note(transaction, first - 1, IMPORTING, None, begin=True)
            commit_import(transaction, self._location)

    def _note(
        self, transaction: Transaction, published: int, state: str, error: str | None, *, begin: bool = False
    ) -> None:
        values = {"table_id": self.table_id, "published": published, "state": state, "updated_at": now_ms()}
        queries = self._committer.catalog.queries
        if begin:
            transaction.fetch(queries["mirror_begin"], values)
        else:
            transaction.execute(queries["mirror_set"], {**values, "error": error})


def commit_import(transaction: Transaction, place: str) -> None:
    try:
        transaction.commit()
    except OutcomeUnknown as error:
        raise ImportInterrupted(
            f"the database was lost during the import of {place}: import it again when it is back, which goes on where "
            f"this one stopped. Cause: {error}"
        ) from error
