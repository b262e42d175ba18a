"""``Engine``: a catalog with its committer, its mirror and its tables. ``Lake``, which people hold, is one."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from lakelog.catalog.base import Session, Transaction, now_ms
from lakelog.catalog.install import check_format
from lakelog.catalog.name_key import match_name, name_key
from lakelog.errors import (
    ConfigurationError,
    DatabaseError,
    DatasetExistsError,
    DatasetNotFoundError,
    ValidationError,
)
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.draft import Draft
from lakelog.log.commit.outcomes import CommitResult, Conflict
from lakelog.log.state import Head
from lakelog.log.table import Table
from lakelog.log.validation.text import check_name
from lakelog.mirror.foreign import refuse_foreign
from lakelog.mirror.publisher import Mirror, is_mirrored
from lakelog.storage.locations import absolute, directory_of, is_filled
from lakelog.storage.neighbours import refuse_table_above
from lakelog.strict_json import describe, is_text
from lakelog.telemetry import CommitRecord


class Engine:
    """What reads and writes tables of a catalog. Safe to use from many threads."""

    def __init__(self, committer: Committer, root: str | None, mirror: str = "sync") -> None:
        self.committer = committer
        self.mirror = Mirror(committer, mirror)
        committer.watcher = self.mirror
        self.mirror.start()
        self.root = root
        self.closed = False
        self._root_is_free = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Finishes what the mirror has begun, and lets go of every connection."""
        if not self.closed:
            self.mirror.close()
        self.closed = True
        self.committer.catalog.close()

    def dataset(self, name: str) -> Table:
        """The table of that name, in any case. Raises ``DatasetNotFoundError``."""
        return self.handle(self.find_head(name))

    def handle(self, head: Head) -> Table:
        """A handle on a table whose head was read before."""
        return Table(self.committer, head)

    def versions(self) -> dict[str, int]:
        """The version of every dataset, all at one moment."""
        return {head.name: head.version for head in self.heads()}

    def heads(self) -> list[Head]:
        """The heads of all datasets, all at one moment."""
        catalog = self.committer.catalog
        with catalog.session() as session:
            return [Head(*row) for row in session.fetch(catalog.queries["live_tables"], {})]

    def create_from(
        self, name: str, draft: Draft, location: str | os.PathLike[str] | None = None
    ) -> tuple[Head, CommitResult]:
        """Creates a dataset whose version 0 is a draft of that version. Raises ``DatasetExistsError``."""
        check_name(name)
        problems = draft.settle(None)
        if problems:
            raise ValidationError(f"dataset {name!r}", problems)
        committer = self.committer
        queries = committer.catalog.queries
        commit_id = str(uuid.uuid4())
        if location is not None and is_mirrored(draft.metadata):
            refuse_foreign(absolute(location))
        self._refuse_table_above(location)
        committer.data.before_creation(draft, None if location is None else absolute(location))
        with (
            CommitRecord(name, draft.description.operation) as record,
            self.creating(name, commit_id, draft.inherited.table_id) as (transaction, locations, created_at),
        ):
            place = self.place_for(name, location, locations)
            key = {"name": name, "name_key": name_key(name), "location": place, "created_at": created_at}
            draft.table_id = int(transaction.fetch(queries["create_table"], key)[0][0])
            outcome = committer.write(transaction, [draft], [None], commit_id, record)
            assert not isinstance(outcome, Conflict), "nobody else knows the new table"
            (result,) = committer.finish(transaction, [draft], outcome, commit_id, record)
        committer.tell([draft])
        head = Head(result.table_id, name, place, 0, result.committed_at, 0, 0, created_at, None)
        return head, result

    @contextmanager
    def creating(
        self, name: str, commit_id: str, source: int | None = None
    ) -> Iterator[tuple[Transaction, set[str], int]]:
        """A transaction in which a dataset gets its name, the locations that are taken, and the time.

        ``source`` is a table that will be locked in it. Raises ``DatasetExistsError`` if there is one of that name,
        also if that shows at the end.
        """
        committer = self.committer
        queries = committer.catalog.queries
        with name_taken(name):
            sources = () if source is None else (source,)
            transaction = committer.catalog.begin(sources, commit_id, committer.timeout)
            try:
                if committer.catalog.locks_creation:
                    transaction.execute(queries["lock_creation"], {})
                taken, locations, ((now,),), ((found,),) = transaction.fetch_each(
                    (queries["table_by_name"], {"name_key": name_key(name)}),
                    (queries["locations"], {}),
                    (queries["clock"], {"now": now_ms()}),
                    (queries["migration_version"], {}),
                )
                check_format(found, repr(committer.catalog))
                if taken:
                    raise DatasetExistsError(f"there is already a dataset {Head(*taken[0]).name!r}")
                yield transaction, {row[0] for row in locations}, now
            finally:
                transaction.rollback()

    def new_location(self, name: str, location: str | os.PathLike[str] | None = None) -> str:
        """A place for the files of a dataset that does not exist yet. Raises ``DatasetExistsError`` if it is taken."""
        catalog = self.committer.catalog
        with catalog.session() as session:
            taken = {row[0] for row in session.fetch(catalog.queries["locations"], {})}
        self._refuse_table_above(location)
        return self.place_for(name, location, taken)

    def _refuse_table_above(self, location: str | os.PathLike[str] | None) -> None:
        """Raises ``DatasetExistsError`` for a place below a table; of the root, it looks only once."""
        if location is not None:
            refuse_table_above(absolute(location))
        elif self.root is not None and not self._root_is_free:
            refuse_table_above(f"{self.root}/any")
            self._root_is_free = True

    def free_location(self, name: str, location: str | os.PathLike[str] | None = None) -> str:
        """The same, for files that are yet to be written: nothing may be there, which a vacuum would take for ours."""
        place = self.new_location(name, location)
        if location is not None and is_filled(place):
            raise DatasetExistsError(
                f"there are files at {place!r} already: choose an empty place, or make them a dataset with "
                "lake.register_parquet, or with lake.import_delta if they are a Delta table"
            )
        return place

    def place_for(self, name: str, location: str | os.PathLike[str] | None, taken: set[str]) -> str:
        """A location that no table ever had: an incarnation's files are never mixed with another's."""
        if location is not None:
            place = absolute(location)
        elif self.root is not None:
            place = f"{self.root}/{directory_of(name)}"
            # Another catalog may have the same root. What lies there would be taken for ours by a vacuum.
            if any(f"{other}/".startswith(f"{place}/") for other in taken) or is_filled(place):
                place = f"{place}-{uuid.uuid4().hex[:8]}"
        else:
            raise ConfigurationError("say where the dataset lives: connect with root=…, or create it with location=…")
        for other in taken:
            if f"{place}/".startswith(f"{other}/") or f"{other}/".startswith(f"{place}/"):
                raise DatasetExistsError(f"location {place!r} overlaps {other!r}, which belongs to another dataset")
        return place

    def find_head(self, name: str) -> Head:
        catalog = self.committer.catalog
        with catalog.session() as session:
            heads = {head.name: head for head in self.heads_of(session, name)} if is_text(name) else {}
        found = match_name(heads, name)
        if found is None:
            said = repr(name) if isinstance(name, str) else describe(name)
            raise DatasetNotFoundError(f"there is no dataset {said} in {catalog!r}")
        return heads[found]

    def heads_of(self, session: Session, name: str) -> list[Head]:
        """Of the datasets that a name may mean: of one, or of twins."""
        statement = self.committer.catalog.queries["table_by_name"]
        return [Head(*row) for row in session.fetch(statement, {"name_key": name_key(name)})]


class name_taken:
    """Turns the database's word that a name or location is taken into ours: two creators may come at once."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, DatabaseError):
            if error.constraint == "dl_tables_live_name":
                raise DatasetExistsError(f"there is already a dataset {self._name!r}") from error
            if error.constraint == "dl_tables_location":
                raise DatasetExistsError(f"the location of {self._name!r} was just taken: try again") from error
