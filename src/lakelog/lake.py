"""``connect`` and ``Lake``: a catalog, a root directory, and the datasets in them."""

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakelog.arguments import FLAG, INTEGER, MAPPING, NAMES, PATH, TEXT, Kind, in_session, takes
from lakelog.catalog.base import OutcomeUnknown, Session, Transaction, now_ms
from lakelog.catalog.deadlines import sharing
from lakelog.catalog.install import check_format
from lakelog.catalog.name_key import match_name, name_key
from lakelog.catalog.url import catalog_for
from lakelog.changes.new_table import check_definition, definition
from lakelog.dataset import Dataset
from lakelog.errors import (
    CommitOutcomeUnknown,
    ConcurrencyError,
    ConfigurationError,
    DatabaseError,
    DatasetExistsError,
    DatasetNotFoundError,
    LakelogError,
    ValidationError,
    Violation,
)
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.durability import DURABILITIES
from lakelog.log.commit.outcomes import CommitResult, Conflict
from lakelog.log.state import Head, TableMetadata
from lakelog.log.validation.text import check_name, name_problem
from lakelog.mirror.foreign import refuse_foreign
from lakelog.mirror.publisher import MODES, Mirror, is_mirrored
from lakelog.schema.rules import with_rules
from lakelog.storage.locations import absolute, directory_of, is_filled, real, removing_new_directories, root_directory
from lakelog.storage.neighbours import refuse_table_above
from lakelog.strict_json import describe, is_text
from lakelog.telemetry import CommitRecord, observe_pool

if TYPE_CHECKING:
    from lakelog.importing.import_delta import ImportReport
    from lakelog.transaction import LakeTransaction
    from lakelog.undrop import Borrowed
    from lakelog.upkeep.check.findings import CheckReport

_MOST_CONNECTIONS = 10_000
_SOURCE = Kind("a dataset or its name", lambda value: isinstance(value, Dataset) or is_text(value))


def connect(
    url: str,
    root: str | os.PathLike[str] | None = None,
    *,
    pool_size: int = 10,
    timeout: float = 30.0,
    schema: str = "lakelog",
    create: bool = True,
    upgrade: bool = False,
    prepare_threshold: int | None = 5,
    mirror: str = "sync",
    durability: str = "full",
) -> "Lake":
    """Opens a catalog, and creates it if there is none.

    ``url`` is ``sqlite:///path``, ``duckdb:///path`` or ``postgresql://…``; ``root`` is where new datasets live, by
    default the directory of the catalog's file. ``timeout`` limits every wait, in seconds. ``schema`` and
    ``prepare_threshold`` (None behind a pooler that cannot prepare) are PostgreSQL's. ``mirror`` says when commits go
    to ``_delta_log``: with the commit (``sync``), by a thread that also does what others left (``background``), or
    only by ``dataset.mirror()`` (``manual``). Data files on local disks are synced before the commit that names them;
    ``durability="relaxed"`` leaves that to the system, so that a power loss may take files of commits that stand.
    """
    if not isinstance(pool_size, int) or isinstance(pool_size, bool) or not 1 <= pool_size <= _MOST_CONNECTIONS:
        raise ConfigurationError(
            f"pool_size must be an integer from 1 to {_MOST_CONNECTIONS}, not {describe(pool_size)}"
        )
    if not isinstance(timeout, int | float) or isinstance(timeout, bool) or not 0 < timeout < 1e6:
        raise ConfigurationError(f"timeout must be a positive number of seconds, not {describe(timeout)}")
    if not is_text(schema) or not 0 < len(schema.encode()) <= 63 or name_problem(schema):
        raise ConfigurationError(f"schema must be a PostgreSQL identifier of 1 to 63 bytes, not {describe(schema)}")
    if root is not None and not PATH.fits(root):
        raise ConfigurationError(f"root must be a path or a URI, not {describe(root)}")
    if durability not in DURABILITIES:
        raise ConfigurationError(f"durability must be one of {', '.join(DURABILITIES)}, not {describe(durability)}")
    catalog = catalog_for(
        url, pool_size=pool_size, timeout=float(timeout), schema=schema, prepare_threshold=prepare_threshold
    )
    if mirror not in MODES:
        raise ConfigurationError(f"mirror must be one of {', '.join(MODES)}, not {describe(mirror)}")
    with removing_new_directories(url, root):
        directory = root_directory(url, root, create=create)
        catalog.open(create=create, upgrade=upgrade)
    observe_pool(catalog)
    return Lake(Committer(catalog, float(timeout), durability), directory, mirror)


class Lake:
    """Datasets under one catalog. Safe to use from many threads. As a context manager it closes itself."""

    def __init__(self, committer: Committer, root: str | None, mirror: str = "sync") -> None:
        self.committer = committer
        self.mirror = Mirror(committer, mirror)
        committer.watcher = self.mirror
        self.mirror.start()
        self.root = root
        self.closed = False
        self._root_is_free = False

    def __enter__(self) -> "Lake":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lake({self.committer.catalog!r}, root={self.root!r})"

    def close(self) -> None:
        """Finishes what the mirror has begun, and lets go of every connection."""
        if not self.closed:
            self.mirror.close()
        self.closed = True
        self.committer.catalog.close()

    @in_session
    @takes(
        partition_by=NAMES,
        location=PATH,
        description=TEXT,
        generated=MAPPING,
        defaults=MAPPING,
        operation=TEXT,
    )
    def create_dataset(
        self,
        name: str,
        schema: pa.Schema,
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        mirror: bool | str = True,
        *,
        location: str | os.PathLike[str] | None = None,
        description: str | None = None,
        generated: Mapping[str, str] | None = None,
        defaults: Mapping[str, str] | None = None,
        operation: str = "CREATE TABLE",
        spark: Any = None,
    ) -> Dataset:
        """Creates a dataset; its version 0 holds protocol and metadata. Raises ``DatasetExistsError``.

        ``generated`` are expressions over the other columns of a row that give a column its value, ``defaults`` those
        for rows that are written without it. Both, and constraints among the properties, are analysed by Spark: in the
        session that is given or active, or in a new one.
        """
        if generated or defaults:
            check_definition(name, schema, mirror)
            schema = with_rules(schema, generated, defaults)
        actions = definition(name, schema, partition_by, properties, mirror, description)
        described = TableMetadata(0, actions[1], 0)
        if described.rules:
            from lakelog.spark.rules.validate import check_new_rules

            check_new_rules(spark, described)
        parameters = {"partitionBy": list(partition_by), "properties": dict(actions[1].configuration)}
        created = Description(operation=operation, operation_parameters=parameters, extra={})
        check_name(name)
        place = None if location is None else self.free_location(name, location)
        return self.create_from(name, Draft(0, -1, actions, created), place)[0]

    @takes(glob=PATH, location=PATH, description=TEXT)
    def register_parquet(
        self,
        glob: str | os.PathLike[str],
        name: str,
        partition_by: Sequence[str] | Mapping[str, pa.DataType] | None = None,
        *,
        properties: Mapping[str, str] | None = None,
        mirror: bool | str = True,
        location: str | os.PathLike[str] | None = None,
        schema: pa.Schema | None = None,
        description: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Dataset:
        """Creates a dataset of Parquet files that exist, where they are: nothing is copied, only footers are read.

        ``glob`` is a local pattern, in which ``**`` is any number of directories, or a directory, for all Parquet
        files below it; ``location`` is by default the directory above its first wildcard. ``partition_by`` are the
        columns that directories such as ``day=2026-01-31`` say, by name, or with their Arrow types. ``schema`` is by
        default what all files have together. ``progress`` is called with the numbers of footers read and to read,
        and starts again if a late file has a column that no file before had.

        Raises ``SchemaMismatchError`` for files that do not fit together or that Spark would not read,
        ``ValidationError``, ``ConfigurationError`` and ``DatasetExistsError``. Nothing is left behind then.
        """
        from lakelog.importing.register_parquet import register_parquet

        return register_parquet(
            self,
            glob,
            name,
            partition_by,
            properties=properties,
            mirror=mirror,
            location=location,
            schema=schema,
            description=description,
            progress=progress,
        )

    @takes(source=_SOURCE, location=PATH, replace=FLAG, shallow=FLAG)
    def clone(
        self,
        source: str | Dataset,
        name: str,
        version: int | None = None,
        timestamp: datetime | str | int | None = None,
        *,
        location: str | os.PathLike[str] | None = None,
        replace: bool = False,
        properties: Mapping[str, str] | None = None,
        shallow: bool = True,
    ) -> Dataset:
        """A dataset that begins as another one is, or was at a version or a time. From there each goes its own way.

        A shallow clone reads the files of its source where they are, and writes its own: it costs next to nothing, and
        lives as long as its source's files, of which a vacuum keeps what clones in the same catalog need. Without
        ``shallow`` the files are copied. ``properties`` are added to those of the source. With ``replace``, a dataset
        of that name becomes the clone in its next version; otherwise ``DatasetExistsError`` is raised.
        """
        from lakelog.clone import clone

        cloned = self.dataset(source) if isinstance(source, str) else source
        return clone(
            self,
            cloned,
            cloned.snapshot(version, timestamp),
            name,
            location=location,
            replaces=replace,
            properties=properties,
            shallow=shallow,
        )

    def create_from(
        self, name: str, draft: Draft, location: str | os.PathLike[str] | None = None
    ) -> tuple[Dataset, CommitResult]:
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
        return Dataset(self, head), result

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
        with _name_taken(name):
            sources = () if source is None else (source,)
            transaction = committer.catalog.begin(sources, commit_id, committer.timeout)
            try:
                if "lock_creation" in queries:
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

    def dataset(self, name: str) -> Dataset:
        """The dataset of that name, in any case. Raises ``DatasetNotFoundError``."""
        return Dataset(self, self._head(name))

    @takes(location=PATH)
    def dataset_at(self, location: str | os.PathLike[str]) -> Dataset | None:
        """The dataset whose files lie at a path, None if there is none."""
        places = {absolute(location), real(location)}
        return next((dataset for dataset in self.datasets() if dataset.location in places), None)

    def datasets(self) -> list[Dataset]:
        """All datasets, by name."""
        return [Dataset(self, head) for head in self.heads()]

    def versions(self) -> dict[str, int]:
        """The version of every dataset, all at one moment."""
        return {head.name: head.version for head in self.heads()}

    def heads(self) -> list[Head]:
        """The heads of all datasets, all at one moment."""
        catalog = self.committer.catalog
        with catalog.session() as session:
            return [Head(*row) for row in session.fetch(catalog.queries["live_tables"], {})]

    def sql(self, query: str, *, spark: Any = None) -> Any:
        """A query in Spark's SQL over datasets by their names, as a DataFrame of their heads at one moment.

        Its own conditions decide which files are read, also those of subqueries, joins and CTEs. Names that are not
        those of datasets are the session's own tables and views.
        """
        from lakelog.spark.sql.query import sql

        return sql(self, query, spark)

    def transaction(
        self,
        *,
        retries: int = 10,
        committer: str | None = None,
        user_metadata: str | None = None,
        spark: Any = None,
    ) -> "LakeTransaction":
        """A transaction over any number of datasets, as a context manager: what is written, deleted, updated and merged
        through it is visible at one instant when the block ends, under one commit id, or never."""
        from lakelog.transaction import LakeTransaction

        return LakeTransaction(self, retries=retries, committer=committer, user_metadata=user_metadata, spark=spark)

    @takes(location=PATH, name=TEXT, up_to_version=INTEGER, history=FLAG, dry_run=FLAG)
    def import_delta(
        self,
        location: str | os.PathLike[str],
        name: str | None = None,
        up_to_version: int | None = None,
        history: bool = True,
        *,
        dry_run: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> "ImportReport":
        """Makes a dataset of an existing Delta table. Its files stay where they are; its log becomes the dataset's.

        With ``history``, all versions that the log still has are there, and otherwise the last one. ``progress`` is
        told how many commits are done, of how many. ``dry_run`` reads and checks everything, and changes nothing. A
        Delta table that is a dataset already gets the commits that were added to its log since then.

        Raises ``DeltaLogError`` if the log is broken, ``ValidationError`` if it holds what Lakelog cannot keep; then
        nothing is left behind. An import that was killed goes on where it stopped.
        """
        from lakelog.importing.import_delta import import_delta

        return import_delta(
            self,
            real(location),
            name,
            up_to_version=up_to_version,
            history=history,
            dry_run=dry_run,
            progress=progress,
        )

    def rename_dataset(self, name: str, new_name: str) -> Dataset:
        """Gives a dataset another name, or another spelling of the same. Its location and history stay."""
        check_name(new_name)
        with _name_taken(new_name), sharing(self.committer.timeout):
            head = self._head(name)
            self._alter(head, "rename_table", lambda found: found.name == new_name, new_name)
        return Dataset(self, head._replace(name=new_name))

    def drop_dataset(self, name: str) -> None:
        """Makes a dataset and its name go away. No row and no file is deleted: ``undrop_dataset`` brings it back."""
        with sharing(self.committer.timeout):
            self._alter(self._head(name), "drop_table", lambda found: found.dropped_at is not None)

    def undrop_dataset(self, name: str, new_name: str | None = None) -> Dataset:
        """Brings back the dataset that was last dropped under a name, with its history, and gives it a new name or not.

        Raises ``DatasetNotFoundError`` if none was dropped, ``DatasetExistsError`` if the name is taken,
        ``ValidationError`` if files of its last version are gone, which is not looked at in object stores, and
        ``ConcurrencyError`` while a vacuum may be deleting files of another dataset that it needs.
        """
        from lakelog.undrop import Borrowed, dropped_head, require_files

        head = dropped_head(self, name)
        chosen = head.name if new_name is None else new_name
        check_name(chosen)
        require_files(self, head)
        with _name_taken(chosen):
            self._alter(head, "undrop_table", lambda found: found.dropped_at is None, chosen, Borrowed(self, head))
        return Dataset(self, head._replace(name=chosen, dropped_at=None))

    @takes(repair=FLAG, deep=FLAG)
    def check(self, name: str, repair: bool = False, *, deep: bool = True) -> "CheckReport":
        """Looks whether everything about a dataset is as it must be: its rows in the catalog, its files, its mirror.

        All footers and deletion vectors are read; without ``deep`` only sizes of files are looked at. With
        ``repair``, what follows from the log is mended: the indexes of removed files and of bounds, lost files and
        checkpoints of the mirror, leases of writes that died. Data that is missing is reported, with the versions that
        need it.
        """
        from lakelog.upkeep.check.check import check

        return check(self, name, repair=repair, deep=deep)

    def txn_version(self, table: str, app_id: str) -> int | None:
        """The last version that an application recorded with its writes to a dataset, or None."""
        return self.dataset(table).txn_version(app_id)

    def commit_status(self, commit_id: str) -> list[CommitResult]:
        """Where a commit stands: one result for each table that it touched, none if it did not happen and never will.

        Waits for a commit that is still under way.
        """
        try:
            known = str(uuid.UUID(commit_id))
        except (ValueError, AttributeError, TypeError):
            raise ValidationError("commit id", [Violation(describe(commit_id), "is not a commit's id")]) from None
        return self.committer.status(known)

    def _head(self, name: str) -> Head:
        catalog = self.committer.catalog
        with catalog.session() as session:
            heads = {head.name: head for head in self._heads_of(session, name)} if is_text(name) else {}
        found = match_name(heads, name)
        if found is None:
            said = repr(name) if isinstance(name, str) else describe(name)
            raise DatasetNotFoundError(f"there is no dataset {said} in {catalog!r}")
        return heads[found]

    def _heads_of(self, session: Session, name: str) -> list[Head]:
        """Of the datasets that a name may mean: of one, or of twins."""
        statement = self.committer.catalog.queries["table_by_name"]
        return [Head(*row) for row in session.fetch(statement, {"name_key": name_key(name)})]

    def _alter(
        self,
        head: Head,
        statement: str,
        happened: Callable[[Head], bool],
        name: str | None = None,
        borrowed: "Borrowed | None" = None,
    ) -> None:
        """Gives a table a name, or drops it, under its lock, so that no commit runs at the same time.

        Raises ``ConcurrencyError`` if the table has another name by then: the caller may mean another table.
        """
        catalog = self.committer.catalog
        queries = catalog.queries
        table_id = head.table_id
        commit_id = str(uuid.uuid4())
        tables = sorted([table_id, *(borrowed.owners if borrowed is not None else ())])
        transaction = catalog.begin(tables, commit_id, self.committer.timeout)
        try:
            if name is not None and "lock_creation" in queries:
                # Who creates a table takes its name first, and then locks the table that it is a clone of.
                transaction.execute(queries["lock_creation"], {})
            self.committer.line_up(transaction, tables)
            is_hidden = head.dropped_at is not None
            found = {each: self.committer.lock(transaction, each, None, hidden=is_hidden) for each in tables}
            locked = found[table_id]
            assert not isinstance(locked, Conflict), "no head is expected, so none is another"
            if locked.name != head.name:
                raise ConcurrencyError(
                    f"dataset {head.name!r} was renamed to {locked.name!r} before it could be changed. Nothing was "
                    "changed: look at lake.datasets(), and repeat it for the dataset that you mean"
                )
            if locked.dropped_at != head.dropped_at:
                raise ConcurrencyError(
                    f"somebody else brought the dataset {head.name!r} back meanwhile. Nothing was changed: look at "
                    "lake.datasets()"
                )
            if name is None:
                time = max(self.committer.now(transaction), locked.committed_at + 1)
                values: dict[str, Any] = {"dropped_at": time}
            else:
                self._check_new_name(transaction, name, table_id)
                if borrowed is not None:
                    borrowed.require(transaction)
                values = {"name": name, "name_key": name_key(name)}
            transaction.execute(queries[statement], {"table_id": table_id, **values})
            transaction.commit()
        except OutcomeUnknown as lost:
            try:
                rows = self.committer.settled(commit_id, queries["table_by_id"], {"table_id": table_id}, lost)
            except CommitOutcomeUnknown as unknown:
                raise LakelogError(
                    f"the database was lost while it was changing dataset {table_id}, and could not be asked again: "
                    "look at lake.datasets() when it is back, before you repeat the change. "
                    f"Cause: {lost}; {unknown.detail}"
                ) from lost
            if not happened(Head(*rows[0])):
                raise DatabaseError(f"the database was lost and nothing was changed: {lost}") from lost
        finally:
            transaction.rollback()

    def _check_new_name(self, transaction: Transaction, name: str, table_id: int) -> None:
        """Raises ``DatasetExistsError`` if another table than this one has the name."""
        for other in self._heads_of(transaction, name):
            if other.table_id != table_id:
                raise DatasetExistsError(f"there is already a dataset {other.name!r}")


class _name_taken:
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
