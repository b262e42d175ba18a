"""``lake.transaction()``: changes of any number of tables that are all visible at one instant, or never."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lakelog.dataset import Dataset
from lakelog.errors import DatasetNotFoundError, LakelogError, ValidationError, Violation
from lakelog.lake import Lake
from lakelog.log.commit import CommitResult
from lakelog.log.conflicts import Reads
from lakelog.log.evolution import plan_overwrite, plan_write
from lakelog.log.pruning.predicate import Everything
from lakelog.log.retry import Held, Prepared, commit_with_retries
from lakelog.log.snapshot import Snapshot
from lakelog.log.state import Head
from lakelog.schema.merge import MergeOptions
from lakelog.spark.commits import is_done
from lakelog.spark.dml.assign import Expression
from lakelog.spark.dml.builder import MergeBuilder
from lakelog.spark.dml.delete import prepare_delete
from lakelog.spark.dml.merge import Merge, prepare_merge
from lakelog.spark.dml.update import prepare_update
from lakelog.spark.frames import frame_of, session_for
from lakelog.spark.options import WriteOptions
from lakelog.spark.predicates import predicate_of
from lakelog.spark.prepared import PreparedChange
from lakelog.spark.read import read_snapshot
from lakelog.spark.stage import Stage
from lakelog.spark.write import prepare_write

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


class LakeTransaction:
    """Reads see all tables as they were when it began. Changes are prepared one by one, each with files of its own,
    and committed together, under one commit id, when the ``with`` block ends; if it raises, nothing happened.

    A table can be changed once in a transaction. Another writer is in the way only where it changed what this one
    read to change a table; then ``ConcurrencyError`` is raised at the end, and nothing is committed of any table.
    What was only read is not looked at again, unless it was read with ``hold=True``.
    """

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
        self._changes: dict[str, PreparedChange[Any]] = {}
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
            for stage in self._stages:
                stage.discard()
            return
        with ExitStack() as stack:
            for stage in self._stages:
                stack.push(stage.sending())
            self._commit()
        for stage in self._stages:
            stage.end()
        self._state = "committed"

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
        """The rows of a table as they were when the transaction began.

        With ``hold``, the transaction fails if somebody changes what was read before it is committed.
        """
        dataset, snapshot = self._table(name)
        session = session_for(self._spark)
        frame = read_snapshot(session, dataset, snapshot, where, columns)
        if hold:
            read = Everything() if where is None else predicate_of(session, snapshot.schema, where)
            before = self._held[name].reads.predicates if name in self._held else ()
            self._held[name] = Held(
                table_id=dataset.id, base_version=snapshot.version, reads=Reads(predicates=(*before, read))
            )
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
        dataset, snapshot = self._unchanged(name)
        if is_done(self._lake, name, options.txn):
            return
        frame = frame_of(data, self._spark)
        if overwrite_schema:
            plan = plan_overwrite(snapshot, frame.schema, options.partition_by)
        else:
            plan = plan_write(snapshot, frame.schema, MergeOptions(schema_merge, promote_types))
        self._changes[name] = prepare_write(dataset, frame, plan, options)

    def delete(self, name: str, where: "str | Column | None" = None) -> None:
        """Deletes the rows that match a condition, or all."""
        dataset, snapshot = self._unchanged(name)
        self._changes[name] = prepare_delete(dataset, snapshot, where, self._options, self._spark)

    def update(self, name: str, set: Mapping[str, Expression], where: "str | Column | None" = None) -> None:
        """Sets columns of the rows that match a condition, or of all."""
        dataset, snapshot = self._unchanged(name)
        self._changes[name] = prepare_update(dataset, snapshot, set, where, self._options, self._spark)

    def merge(self, name: str, source: Any, condition: Expression, *, alias: str | None = None) -> MergeBuilder[None]:
        """A merge, for clauses to be added; ``execute()`` prepares it."""
        dataset, snapshot = self._unchanged(name)
        frame = frame_of(source, self._spark)

        def run(merge: Merge) -> None:
            self._unchanged(name)
            self._changes[name] = prepare_merge(dataset, snapshot, merge, self._options, frame.sparkSession)

        return MergeBuilder(Merge(source=frame, condition=condition, clauses=(), alias=alias), run)

    @property
    def _stages(self) -> list[Stage]:
        return [stage for change in self._changes.values() for stage in change.stages]

    def _commit(self) -> None:
        prepared = [change.prepared for change in self._changes.values() if change.prepared is not None]
        changed = {each.table_id for each in prepared}
        held = {each.table_id: each for each in self._held.values()}
        prepared = [_holding(each, held[each.table_id]) if each.table_id in held else each for each in prepared]
        others = [each for each in held.values() if each.table_id not in changed]
        if prepared:
            results = commit_with_retries(self._lake.committer, prepared, others, retries=self._retries)
            self.results = tuple(results)

    def _table(self, name: str) -> tuple[Dataset, Snapshot]:
        """A table as it was when the transaction began."""
        if self._state != "open" or self._heads is None:
            raise LakelogError(f"this transaction is {self._state}: use it inside its with block")
        if name not in self._heads:
            message = f"there was no dataset {name!r} when the transaction began: create it before, then begin"
            raise DatasetNotFoundError(message)
        # The table of that time, whatever has the name now.
        dataset = Dataset(self._lake, self._heads[name])
        return dataset, dataset.snapshot(self._heads[name].version)

    def _unchanged(self, name: str) -> tuple[Dataset, Snapshot]:
        found = self._table(name)
        if name in self._changes:
            message = "was changed by this transaction before: do it all in one change, or commit in between"
            raise ValidationError("transaction", [Violation(name, message)])
        return found


def _holding(prepared: Prepared, held: Held) -> Prepared:
    """A change of a table that also depends on what was read of it before."""
    reads = replace(prepared.reads, predicates=(*prepared.reads.predicates, *held.reads.predicates))
    return replace(prepared, reads=reads)
