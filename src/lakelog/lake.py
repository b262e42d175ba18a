"""``connect`` and ``Lake``: a catalog, a root directory, and the datasets in them."""

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakelog.arguments import FLAG, INTEGER, MAPPING, NAMES, PATH, TEXT, Kind, takes
from lakelog.catalog.base import OutcomeUnknown, Transaction
from lakelog.catalog.deadlines import sharing
from lakelog.catalog.name_key import name_key
from lakelog.changes.new_table import check_definition, definition
from lakelog.dataset import Dataset
from lakelog.errors import (
    CommitOutcomeUnknown,
    ConcurrencyError,
    DatabaseError,
    DatasetExistsError,
    LakelogError,
    ValidationError,
    Violation,
)
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.outcomes import CommitResult, Conflict
from lakelog.log.state import Head, TableMetadata
from lakelog.log.validation.text import check_name
from lakelog.opening.connect import open_engine
from lakelog.opening.engine import Engine, name_taken
from lakelog.schema.rules import with_rules
from lakelog.sessions import in_session
from lakelog.storage.locations import absolute, real
from lakelog.strict_json import describe, is_text

if TYPE_CHECKING:
    from lakelog.importing.import_delta import ImportReport
    from lakelog.transaction import LakeTransaction
    from lakelog.undrop import Borrowed
    from lakelog.upkeep.check.findings import CheckReport

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
    return open_engine(
        Lake,
        url,
        root,
        pool_size=pool_size,
        timeout=timeout,
        schema=schema,
        create=create,
        upgrade=upgrade,
        prepare_threshold=prepare_threshold,
        mirror=mirror,
        durability=durability,
    )


class Lake(Engine):
    """Datasets under one catalog. Safe to use from many threads. As a context manager it closes itself."""

    def __repr__(self) -> str:
        return f"Lake({self.committer.catalog!r}, root={self.root!r})"

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
        return self.handle(self.create_from(name, Draft(0, -1, actions, created), place)[0])

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

        head = register_parquet(
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
        return self.handle(head)

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

    def dataset(self, name: str) -> Dataset:
        """The dataset of that name, in any case. Raises ``DatasetNotFoundError``."""
        return self.handle(self.find_head(name))

    def handle(self, head: Head) -> Dataset:
        return Dataset(self, head)

    @takes(location=PATH)
    def dataset_at(self, location: str | os.PathLike[str]) -> Dataset | None:
        """The dataset whose files lie at a path, None if there is none."""
        places = {absolute(location), real(location)}
        return next((dataset for dataset in self.datasets() if dataset.location in places), None)

    def datasets(self) -> list[Dataset]:
        """All datasets, by name."""
        return [Dataset(self, head) for head in self.heads()]

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
        with name_taken(new_name), sharing(self.committer.timeout):
            head = self.find_head(name)
            self._alter(head, "rename_table", lambda found: found.name == new_name, new_name)
        return Dataset(self, head._replace(name=new_name))

    def drop_dataset(self, name: str) -> None:
        """Makes a dataset and its name go away. No row and no file is deleted: ``undrop_dataset`` brings it back."""
        with sharing(self.committer.timeout):
            self._alter(self.find_head(name), "drop_table", lambda found: found.dropped_at is not None)

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
        with name_taken(chosen):
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
            if name is not None and catalog.locks_creation:
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
        for other in self.heads_of(transaction, name):
            if other.table_id != table_id:
                raise DatasetExistsError(f"there is already a dataset {other.name!r}")
