"""``lake.transaction()``: changes of any number of tables that are all visible at one instant, or never."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from lakelog.catalog.name_key import match_name
from lakelog.changes.changeset import Contents
from lakelog.changes.conflicts import Reads
from lakelog.changes.evolution import plan_overwrite, plan_write
from lakelog.changes.retry import Held, commit_with_retries
from lakelog.changes.staging_directory import OwnDirectory
from lakelog.changes.uncommitted_snapshot import PendingSnapshot
from lakelog.dataset import Dataset
from lakelog.errors import DatasetNotFoundError, LakelogError, ValidationError, Violation
from lakelog.lake import Lake
from lakelog.log.commit.outcomes import CommitResult
from lakelog.log.feeds.change_feed import is_kept
from lakelog.log.pruning.predicate import Everything
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import Head
from lakelog.schema.evolution.merge import MergeOptions
from lakelog.spark.dml.assign import Expression
from lakelog.spark.dml.builder import MergeBuilder
from lakelog.spark.dml.delete import prepare_delete
from lakelog.spark.dml.merge import Merge, prepare_merge
from lakelog.spark.dml.update import prepare_update
from lakelog.spark.errors import spark_door, spark_doors
from lakelog.spark.frames import frame_of, session_for
from lakelog.spark.optimize.auto_compact import compact_after
from lakelog.spark.predicates.analysis import predicate_of
from lakelog.spark.predicates.determinism import parsed_once
from lakelog.spark.read.read import read_snapshot
from lakelog.spark.write.options import WriteOptions
from lakelog.spark.write.prepared_change import PreparedChange, prepared_from
from lakelog.spark.write.table_change import is_done
from lakelog.spark.write.write import prepare_write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@spark_doors
class LakeTransaction:
    """Reads see all tables as they were when it began, with what it has changed itself. Changes are prepared one by
    one, each with files of its own, and committed together, under one commit id, when the ``with`` block ends; if it
    raises, nothing happened. What it did to a table is one version of it, however many changes these were.

    Another writer is in the way only where it changed what this one read to change a table; then
    ``ConcurrencyError`` is raised at the end, and nothing is committed of any table. What was only read is not
    looked at again, unless it was read with ``hold=True``.
    """

    @spark_door
    def __init__(
        self,
        lake: Lake,
        *,
        retries: int = 10,
        committer: str | None = None,
        user_metadata: str | None = None,
        spark: "SparkSession | None" = None,
    ) -> None:
        if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
            raise ValidationError("transaction", [Violation("retries", f"expected a count, got {retries!r}")])
        self._lake = lake
        self._retries = retries
        self._options = WriteOptions(mode="overwrite", committer=committer, user_metadata=user_metadata)
        self._spark = spark
        self._heads: dict[str, Head] | None = None
        self._changes: dict[str, list[PreparedChange[Any]]] = {}
        self._pending: dict[str, Contents] = {}
        self._held: dict[str, Held] = {}
        self._state = "new"
        self.results: tuple[CommitResult, ...] = ()
        """One for each table that was changed, once it is committed."""

    def __enter__(self) -> "LakeTransaction":
        if self._state != "new":
            raise LakelogError(f"this transaction is {self._state}: begin a new one")
        self._state = "open"
        self._heads = {head.name: head for head in self._lake.heads()}
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if self._state != "open":
            return
        self._state = "rolled back"
        if error is not None:
            for own in self._directories:
                own.discard()
            return
        with ExitStack() as stack:
            for own in self._directories:
                stack.push(own)
            self._commit()
        # Of a table whose changes undid each other, nothing was committed. The other leases went with the commit.
        for own in self._directories_of(name for name, contents in self._pending.items() if contents.is_nothing):
            own.discard()
        self._state = "committed"
        for result in self.results:
            compact_after(self._lake, result.table_id, result.version, self._spark)

    @property
    def versions(self) -> Mapping[str, int]:
        """The version at which the transaction sees each table."""
        return {name: head.version for name, head in (self._heads or {}).items()}

    @property
    def commit_id(self) -> str | None:
        """Of all its changes, once they are committed."""
        return self.results[0].commit_id if self.results else None

    def read(
        self,
        name: str,
        where: "str | Column | None" = None,
        columns: Sequence[str] | None = None,
        *,
        hold: bool = False,
    ) -> "DataFrame":
        """The rows of a table as they were when the transaction began, with its own changes.

        With ``hold``, the transaction fails if somebody changes what was read before it is committed.
        """
        dataset, snapshot = self._table(name)
        session = session_for(self._spark)
        where = parsed_once(session, where)
        frame = read_snapshot(session, dataset, snapshot, where, columns)
        if hold:
            read = Everything() if where is None else predicate_of(session, snapshot.schema, where)
            self._hold(dataset.name, Reads(predicates=(read,)))
        return frame

    def write(
        self,
        name: str,
        data: Any,
        mode: str = "append",
        *,
        schema_merge: bool = False,
        promote_types: bool = True,
        replace_where: str | None = None,
        partition_overwrite_mode: str = "static",
        overwrite_schema: bool = False,
        txn_app_id: str | None = None,
        txn_version: int | None = None,
        **files: Any,
    ) -> None:
        """As ``write_dataset``, on a table that exists. ``files`` are its options about files, such as ``sort_by``."""
        if mode not in ("append", "overwrite"):
            raise ValidationError("write", [Violation("mode", f"expected append or overwrite, got {mode!r}")])
        options = replace(
            self._options,
            mode=mode,
            replace_where=replace_where,
            partition_overwrite_mode=partition_overwrite_mode,
            overwrite_schema=overwrite_schema,
            txn_app_id=txn_app_id,
            txn_version=txn_version,
            **files,
        )
        if problems := options.problems():
            raise ValidationError("write", problems)
        dataset, snapshot = self._table(name, to_change=True)
        if is_done(dataset, options.txn):
            return
        frame = frame_of(data, self._spark)
        if overwrite_schema:
            plan = plan_overwrite(snapshot, frame.schema, options.partition_by)
        else:
            plan = plan_write(snapshot, frame.schema, MergeOptions(schema_merge, promote_types))
        self._add(dataset.name, prepare_write(dataset, snapshot, frame, plan, options))

    def delete(self, name: str, where: "str | Column | None" = None) -> None:
        """Deletes the rows that match a condition, or all."""
        dataset, snapshot = self._table(name, to_change=True)
        self._add(dataset.name, prepare_delete(dataset, snapshot, where, self._options, self._spark))

    def update(self, name: str, set: Mapping[str, Expression], where: "str | Column | None" = None) -> None:
        """Sets columns of the rows that match a condition, or of all."""
        dataset, snapshot = self._table(name, to_change=True)
        self._add(dataset.name, prepare_update(dataset, snapshot, set, where, self._options, self._spark))

    def merge(self, name: str, source: Any, condition: Expression, *, alias: str | None = None) -> MergeBuilder[None]:
        """A merge, for clauses to be added; ``execute()`` prepares it."""
        self._table(name, to_change=True)
        frame = frame_of(source, self._spark)

        def run(merge: Merge) -> None:
            dataset, snapshot = self._table(name, to_change=True)
            self._add(dataset.name, prepare_merge(dataset, snapshot, merge, self._options, frame.sparkSession))

        return MergeBuilder(Merge(source=frame, condition=condition, clauses=(), alias=alias), run)

    @property
    def _directories(self) -> list[OwnDirectory]:
        return self._directories_of(self._changes)

    def _directories_of(self, tables: Iterable[str]) -> list[OwnDirectory]:
        return [own for name in tables for change in self._changes[name] for own in change.directories]

    def _add(self, name: str, change: PreparedChange[Any]) -> None:
        if change.contents is None:
            # That there is nothing to change is what it has read.
            self._hold(name, change.reads)
            return
        before = self._pending.get(name)
        with ExitStack() as stack:
            for own in change.directories:
                stack.push(own)
            self._pending[name] = change.contents if before is None else before.followed_by(change.contents)
            self._changes.setdefault(name, []).append(change)

    def _hold(self, name: str, reads: Reads) -> None:
        """Makes the end of the transaction fail if somebody changes what it has read of a table."""
        head = self._base(name)
        before = self._held[name].reads if name in self._held else Reads()
        self._held[name] = Held(table_id=head.table_id, base_version=head.version, reads=_both(before, reads))

    def _commit(self) -> None:
        held = {each.table_id: each for each in self._held.values()}
        prepared = []
        for name, contents in self._pending.items():
            if contents.is_nothing:
                continue
            reads = [change.reads for change in self._changes[name]]
            if contents.table_id in held:
                reads.append(held.pop(contents.table_id).reads)
            prepared.append(prepared_from(contents, self._base(name).version, reduce(_both, reads)))
        if prepared:
            others = list(held.values())
            results = commit_with_retries(self._lake.committer, prepared, others, retries=self._retries)
            self.results = tuple(results)

    def _base(self, name: str) -> Head:
        """A table's head when the transaction began."""
        if self._state == "new" or self._heads is None:
            raise LakelogError(f"this transaction is {self._state}: use it inside its with block")
        known = match_name(self._heads, name)
        if known is None:
            message = f"there was no dataset {name!r} when the transaction began: create it before, then begin"
            raise DatasetNotFoundError(message)
        return self._heads[known]

    def _table(self, name: str, *, to_change: bool = False) -> tuple[Dataset, Snapshot]:
        """A table as it was when the transaction began, with what it has changed since."""
        if self._state != "open":
            raise LakelogError(f"this transaction is {self._state}: use it inside its with block")
        head = self._base(name)
        # The table of that time, whatever has the name now.
        dataset = Dataset(self._lake, head)
        snapshot = dataset.snapshot(head.version)
        if head.name not in self._pending:
            return dataset, snapshot
        if to_change and is_kept(snapshot.state.metadata):
            message = (
                "was changed by this transaction before, and keeps a change feed, in which a version tells of one "
                "change: do it all in one change, or commit in between"
            )
            raise ValidationError("transaction", [Violation(head.name, message)])
        return dataset, PendingSnapshot(snapshot, self._pending[head.name])


def _both(one: Reads, other: Reads) -> Reads:
    """What two changes of a table have read."""
    return Reads(
        everything=one.everything or other.everything,
        predicates=(*one.predicates, *other.predicates),
        partitions=(*one.partitions, *other.partitions),
        files=one.files | other.files,
        data_change=one.data_change or other.data_change,
    )
