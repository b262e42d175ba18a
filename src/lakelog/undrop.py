"""``undrop_dataset``: a dropped dataset comes back, with its history, while its files are there.

Files that lie in other tables, as those of a shallow clone do, may be vacuumed while nobody reads them. A vacuum
registers itself under the lock of its table before it looks for the last time which files are needed. Whoever has that
lock and finds no vacuum registered knows that every later one will find the dataset alive.
"""

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakelog.catalog.base import Transaction, now_ms
from lakelog.catalog.name_key import name_key
from lakelog.changes.leases import registered_writes
from lakelog.errors import ConcurrencyError, DatasetNotFoundError, ValidationError, Violation
from lakelog.log.state import Head
from lakelog.storage.uris import is_absolute
from lakelog.strict_json import describe, is_text
from lakelog.upkeep.check.files import FileCheck
from lakelog.upkeep.places import Places

if TYPE_CHECKING:
    from lakelog.lake import Lake

_SHOWN = 10


def dropped_head(lake: "Lake", name: str) -> Head:
    """The dropped table that a name means: the last one that was dropped in this spelling, or else in any."""
    catalog = lake.committer.catalog
    found: list[Head] = []
    if is_text(name):
        with catalog.session() as session:
            rows = session.fetch(catalog.queries["dropped_tables"], {"name_key": name_key(name)})
        found = [Head(*row) for row in rows]
    if not found:
        shown = repr(name) if is_text(name) else describe(name)
        raise DatasetNotFoundError(f"no dataset {shown} was dropped in {catalog!r}")
    return next((head for head in found if head.name == name), found[0])


def require_files(lake: "Lake", head: Head) -> None:
    """Raises ``ValidationError`` if a file of the last version is gone, or has another size."""
    if "://" in head.location:
        return
    catalog = lake.committer.catalog
    with catalog.session() as session:
        files = FileCheck(session, catalog.queries, head, head.version, deep=False)
    findings = iter(files.findings())
    problems = [Violation("files", finding.message) for finding in islice(findings, _SHOWN)]
    if problems:
        rest = sum(1 for _ in findings)
        more = [Violation("files", f"the same of {rest} more")] if rest else []
        raise _gone(head, [*problems, *more])


class Borrowed:
    """The files of a dropped table that lie in other tables of the catalog."""

    def __init__(self, lake: "Lake", head: Head) -> None:
        self._committer = lake.committer
        self._queries = lake.committer.catalog.queries
        self._head = head
        self._places: set[str] = set()
        self._owners: dict[int, str] = {}
        if "://" in head.location:
            return
        key = {"table_id": head.table_id, "version": head.version, "first": head.version}
        with lake.committer.catalog.session() as session:
            rows = session.fetch(self._queries["check_places"], key)
            tables = session.fetch(self._queries["tables_at"], {})
        self._places = _outside(Places(head.location), rows)
        self._owners = {
            table_id: location
            for table_id, location in tables
            if table_id != head.table_id and "://" not in location and self._are_in(Places(location).root)
        }

    @property
    def owners(self) -> Sequence[int]:
        """The tables that they lie in, by their ids."""
        return list(self._owners)

    def require(self, transaction: Transaction) -> None:
        """Raises unless they are there and stay there, if the table comes back. The owners' locks are held."""
        now = max(self._committer.now(transaction), now_ms())
        for location in self._owners.values():
            for each in registered_writes(transaction, self._queries, location):
                if each.is_vacuum and not each.has_expired(now):
                    raise ConcurrencyError(
                        f"a vacuum of {location} may be deleting files of the dataset {self._head.name!r}, which "
                        f"stays dropped: try again when it has ended, or after {each.expires_at.isoformat()} if it "
                        "has died"
                    )
        gone = [place for place in sorted(self._places) if not Path(place).exists()]
        if gone:
            raise _gone(self._head, [Violation("files", f"{place} does not exist") for place in gone[:_SHOWN]])

    def _are_in(self, root: str) -> bool:
        return any(place.startswith(f"{root}/") for place in self._places)


def _outside(places: Places, rows: Sequence[Any]) -> set[str]:
    """Where files and deletion vectors lie that are outside of a table's own place."""
    found: set[str] = set()
    for path, _, _, vector, *_ in rows:
        if is_absolute(path) and (place := places.of(path)) is not None:
            found.add(place)
        if vector is not None and (place := places.of_vector(vector, path)) is not None:
            found.add(place)
    return {place for place in found if not place.startswith(f"{places.root}/")}


def _gone(head: Head, problems: Sequence[Violation]) -> ValidationError:
    advice = Violation("undrop", f"bring back what is missing at {head.location}; the dataset stays dropped")
    return ValidationError(f"dataset {head.name!r}", [*problems, advice])
