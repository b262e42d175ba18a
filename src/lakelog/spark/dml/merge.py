"""Merging a source into a table.

The source is kept for the time of the merge, so that it is read once and is the same each time. One join finds which
rows of the table match, and with them the files that hold a row to be changed; a second one writes those files again,
or only the changed rows of them, if deletion vectors say which rows are gone. Rows of the source that match nothing are
added. A merge that only inserts writes no file again.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakelog.changes.conflicts import Reads
from lakelog.changes.evolution import WritePlan, plan_write
from lakelog.errors import LakelogError, SchemaMismatchError, ValidationError, Violation
from lakelog.log.feeds.change_feed import is_kept
from lakelog.log.feeds.columns import CHANGE_TYPE
from lakelog.log.pruning.predicate import Everything
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import TableMetadata
from lakelog.log.table import Table
from lakelog.schema.evolution.merge import MergeOptions
from lakelog.schema.spark import from_spark
from lakelog.spark.dml.assign import Expression, assigned, expression, unqualified
from lakelog.spark.dml.clauses import Act, Clause, When, check_clauses, shown_clauses
from lakelog.spark.dml.deletion_vectors import (
    Marked,
    can_be_marked,
    indexes_by_file,
    parted,
    vector_metrics,
    wants_vectors,
)
from lakelog.spark.dml.history_text import shown_condition
from lakelog.spark.dml.merge_join import (
    ACTION,
    COPIED,
    Join,
    Matches,
    Step,
    ambiguous,
    columns_of_source,
    columns_of_table,
    numbered_source,
)
from lakelog.spark.dml.merge_pruning import merge_scope, never_fails
from lakelog.spark.dml.rewrite import (
    CHANGED,
    ChangeResult,
    Rewrite,
    Written,
    refuse_append_only,
    refuse_reserved,
    total,
    unchanged,
)
from lakelog.spark.errors import refusing
from lakelog.spark.expressions import quoted
from lakelog.spark.frames import exact_days, session_for
from lakelog.spark.predicates.analysis import empty_frame
from lakelog.spark.predicates.determinism import is_steady, parsed_once, refuse_changing
from lakelog.spark.read.read import ROW_FILE, ROW_INDEX
from lakelog.spark.write.options import WriteOptions
from lakelog.spark.write.prepared_change import PreparedChange
from lakelog.spark.write.table_change import Change

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_OLD = (When.MATCHED, When.NOT_MATCHED_BY_SOURCE)

_DENSE = 10
"""Rows of the source for each file, from which on hardly a file is without a match."""


@dataclass(frozen=True, kw_only=True)
class Merge:
    """What a caller asks for."""

    source: "DataFrame"
    condition: Expression
    clauses: Sequence[Clause]
    alias: str | None = None
    """The table's name in expressions."""
    schema_evolution: bool = False


def prepare_merge(
    dataset: Table, snapshot: Snapshot, merge: Merge, options: WriteOptions, spark: "SparkSession | None" = None
) -> PreparedChange[ChangeResult]:
    """Writes the files of a merge."""
    check_clauses(merge.clauses)
    if _changes_rows(merge):
        refuse_append_only(dataset, snapshot, "merge")
    plan = _evolved(snapshot, merge) if merge.schema_evolution else unchanged(snapshot)
    refuse_reserved("merge", [*plan.schema.names, *merge.source.columns])
    source = numbered_source(merge.source)
    session = session_for(spark)
    join = _joined(session, dataset, snapshot, merge, plan, source)
    # Its rows are known by number, which a second computation might give to others. So there is none: lost rows fail.
    kept = source.localCheckpoint(eager=True)
    with exact_days(session, snapshot.schema):
        return _prepared(replace(join, source=kept), merge, plan, options)


def _prepared(join: Join, merge: Merge, plan: WritePlan, options: WriteOptions) -> PreparedChange[ChangeResult]:
    snapshot = join.snapshot
    partitions = tuple(snapshot.metadata.partition_columns)
    condition = expression(join.condition)
    scope = merge_scope(join.spark, snapshot.schema, merge.alias, join.source, condition, partitions)
    join = replace(join, is_harmless=scope.is_harmless)
    # A row that matches nothing may be anywhere.
    predicate = Everything() if join.steps_for(When.NOT_MATCHED_BY_SOURCE) else scope.predicate
    candidates = snapshot.files(predicate)
    by_vectors = wants_vectors(snapshot) and can_be_marked(snapshot, candidates)
    # Where most files will have a match, it is found together with the row's other columns.
    whole = by_vectors and scope.rows >= _DENSE * candidates.num_rows
    whole = whole and not join.steps_for(When.NOT_MATCHED_BY_SOURCE)
    with _kept(join.pairs(candidates, whole=whole), whole) if _changes_rows(merge) else nullcontext() as pairs:
        found = None if pairs is None else join.matches(candidates, pairs, whole=whole)
        outcome = _Outcome(join, merge, plan, found, candidates, scope.rows, by_vectors=by_vectors)
        return outcome.rewrite(Reads(predicates=(predicate,))).prepare(options)


class _Outcome:
    """The rows that a merge writes, and how many of them are what."""

    def __init__(
        self,
        join: Join,
        merge: Merge,
        plan: WritePlan,
        found: Matches | None,
        candidates: pa.Table,
        source_rows: int,
        *,
        by_vectors: bool,
    ) -> None:
        self._join = join
        self._plan = plan
        self._merge = merge
        self._found = found
        self._candidates = candidates
        self._source_rows = source_rows
        self._by_vectors = by_vectors
        self._deleted = Observation()
        self._parts: list[DataFrame] = []
        self._feed: list[DataFrame] = []
        self._is_told = False
        self._removed = candidates.slice(0, 0)
        self._marked: Marked | None = None

    def rewrite(self, reads: Reads) -> Rewrite:
        found, join, merge = self._found, self._join, self._merge
        touched = self._candidates.slice(0, 0) if found is None else found.touched
        # Files that are only added tell by themselves that their rows are new.
        self._is_told = touched.num_rows > 0 and is_kept(join.snapshot.state.metadata)
        self._removed = touched
        if touched.num_rows:
            assert found is not None
            self._add_changed(found)
        if join.steps_for(When.NOT_MATCHED):
            self._add_new(
                join.new(join.without_match(self._candidates) if found is None else join.without(found.pairs))
            )
        return Rewrite(
            dataset=join.dataset,
            snapshot=join.snapshot,
            operation="MERGE",
            parameters={
                "predicate": shown_condition(merge.condition),
                "matchedPredicates": shown_clauses(merge.clauses, When.MATCHED),
                "notMatchedPredicates": shown_clauses(merge.clauses, When.NOT_MATCHED),
                "notMatchedBySourcePredicates": shown_clauses(merge.clauses, When.NOT_MATCHED_BY_SOURCE),
            },
            reads=reads,
            removed=self._removed,
            marked=self._marked,
            rows=self._rows(),
            counted=self._conditions(Act.UPDATE, Act.INSERT),
            changes=_union(self._feed),
            plan=self._plan,
            metrics=self._metrics,
        )

    def _add_changed(self, found: Matches) -> None:
        join = self._join
        changed = join.changed(found, located=self._by_vectors)
        if self._by_vectors:
            written = join.written(changed.where(F.col(ACTION) != COPIED), _OLD, (ROW_FILE, ROW_INDEX))
        else:
            written = join.written(changed, _OLD)
        if deleted := self._conditions(Act.DELETE):
            # The others are counted while they are written. To count twice is a pass over all rows: only if needed.
            written = written.observe(
                self._deleted, *[F.count_if(condition).alias(name) for name, condition in deleted.items()]
            )
        by_search = self._by_vectors and found.indexes is None
        if self._is_told or by_search or (self._by_vectors and deleted):
            # Once, so that feed, vectors and files say the same: an expression may be another one the next time. And
            # where nothing is left to be written, Spark would leave out what it has to count.
            written = written.localCheckpoint(eager=True)
        if self._is_told:
            self._feed.append(join.feed(written))
        if by_search:
            indexes = indexes_by_file(written, join.dataset.location, found.touched)
            self._removed, self._marked = parted(found.touched, indexes)
        elif found.indexes is not None:
            self._removed, self._marked = parted(self._candidates, found.indexes)
        self._parts.append(join.rows(written.where(~join.is_any(Act.DELETE))))

    def _add_new(self, new: "DataFrame") -> None:
        rows = self._join.rows(self._join.written(new, (When.NOT_MATCHED,)))
        if self._is_told or not self._by_vectors:
            rows = self._rebalanced(rows)
        if self._is_told:
            rows = rows.localCheckpoint(eager=True)
            self._feed.append(rows.drop(CHANGED, ACTION).withColumn(CHANGE_TYPE, F.lit("insert")))
        self._parts.append(rows)

    def _rows(self) -> "DataFrame | None":
        rows = _union(self._parts)
        return self._rebalanced(rows) if rows is not None and self._by_vectors else rows

    def _rebalanced(self, rows: "DataFrame") -> "DataFrame":
        """Few rows that come from many tasks are not to become as many files."""
        return rows.hint("rebalance", *map(quoted, self._join.snapshot.metadata.partition_columns))

    def _conditions(self, *acts: Act) -> "dict[str, Column]":
        """Whether a row is of a kind, for the kinds that there are clauses for."""
        kinds = dict.fromkeys((step.clause.act, step.clause.when) for step in self._join.steps)
        return {
            f"{act.value} {when.value}": self._join.is_any(act, kinds=(when,)) for act, when in kinds if act in acts
        }

    def _metrics(self, written: Written) -> dict[str, int]:
        counts = dict(written.counts)
        is_any_touched = self._found is not None and self._found.touched.num_rows > 0
        if is_any_touched and self._conditions(Act.DELETE):
            counts |= self._deleted.get
        of = {(act, when): int(counts.get(f"{act.value} {when.value}", 0)) for act in Act for when in When}
        inserted = of[Act.INSERT, When.NOT_MATCHED]
        matched = of[Act.UPDATE, When.MATCHED] + of[Act.DELETE, When.MATCHED]
        if self._found is not None and matched != self._found.rows:
            raise LakelogError(
                f"the source of the merge was not the same when it was read again: {self._found.rows} rows of the "
                f"table were to change, and {matched} did. Nothing was committed: write the source to a table first"
            )
        updated = of[Act.UPDATE, When.MATCHED] + of[Act.UPDATE, When.NOT_MATCHED_BY_SOURCE]
        deleted = of[Act.DELETE, When.MATCHED] + of[Act.DELETE, When.NOT_MATCHED_BY_SOURCE]
        return {
            "numSourceRows": self._source_rows,
            "numTargetRowsInserted": inserted,
            "numTargetRowsUpdated": updated,
            "numTargetRowsMatchedUpdated": of[Act.UPDATE, When.MATCHED],
            "numTargetRowsNotMatchedBySourceUpdated": of[Act.UPDATE, When.NOT_MATCHED_BY_SOURCE],
            "numTargetRowsDeleted": deleted,
            "numTargetRowsMatchedDeleted": of[Act.DELETE, When.MATCHED],
            "numTargetRowsNotMatchedBySourceDeleted": of[Act.DELETE, When.NOT_MATCHED_BY_SOURCE],
            "numTargetRowsCopied": written.rows - updated - inserted,
            "numOutputRows": written.rows,
            "numTargetFilesAdded": written.files,
            "numTargetFilesRemoved": self._removed.num_rows,
            "numTargetBytesAdded": written.bytes,
            "numTargetBytesRemoved": total(self._removed),
            "numTargetChangeFilesAdded": written.change_files,
            **vector_metrics(self._marked, self._removed, "Target"),
        }


def _changes_rows(merge: Merge) -> bool:
    return any(clause.when is not When.NOT_MATCHED for clause in merge.clauses)


def _joined(
    spark: "SparkSession",
    dataset: Table,
    snapshot: Snapshot,
    merge: Merge,
    plan: WritePlan,
    source: "DataFrame",
) -> Join:
    """Everything that can be wrong with the merge's expressions is said here."""
    metadata = Change(snapshot=snapshot, plan=plan).metadata
    join = Join(
        spark=spark,
        dataset=dataset,
        snapshot=snapshot,
        alias=merge.alias,
        metadata=metadata,
        source=source,
        condition=parsed_once(spark, merge.condition, "merge condition"),
        steps=(),
    )
    table = join.named(empty_frame(spark, plan.schema), list(plan.schema))
    scopes = {
        When.MATCHED: table.join(source, F.lit(True)),
        When.NOT_MATCHED: source,
        When.NOT_MATCHED_BY_SOURCE: table,
    }
    before = join.plain(empty_frame(spark, snapshot.schema))
    steady = [_analysed(before.join(source, F.lit(True)), merge.condition, "merge condition")]
    with refusing("merge condition", str(merge.condition)):
        # A filter takes subqueries that a join refuses.
        before.join(source, expression(merge.condition)).schema  # noqa: B018
    theirs = columns_of_source(merge.source)
    steps = []
    for number, clause in enumerate(merge.clauses, 1):
        what = f"when {clause.when.value} then {clause.act.value}"
        if clause.condition is not None:
            steady.append(_analysed(scopes[clause.when], clause.condition, f"condition of {what}"))
        values = {}
        if clause.act is not Act.DELETE:
            chosen = clause.values if clause.values is not None else _star(metadata, theirs, merge, clause.act)
            named = {unqualified(name, merge.alias, plan.schema): value for name, value in chosen.items()}
            old = columns_of_table(plan.schema) if clause.act is Act.UPDATE else None
            values = assigned(
                plan.schema, scopes[clause.when], named, old, what, partial_structs=merge.schema_evolution
            )
        asked = parsed_once(spark, clause.condition, f"condition of {what}")
        harmless = asked is None or never_fails(scopes[clause.when].where(expression(asked)))
        steps.append(Step(number=number, clause=replace(clause, condition=asked), values=values, is_harmless=harmless))
    return replace(join, steps=tuple(steps), is_steady=all(steady))


def _star(metadata: TableMetadata, theirs: Any, merge: Merge, act: Act) -> dict[str, Expression]:
    """All columns of the table by the source's of the same names."""
    names = metadata.schema.names
    rules = metadata.rules
    optional = {*rules.generated, *(rules.defaults if act is Act.INSERT else ())}
    _refuse_ambiguous(merge, {name.lower() for name in names})
    missing = [name for name in names if name.lower() not in theirs and name not in optional]
    if missing and not merge.schema_evolution:
        message = "is not a column of the source, as all columns of the table have to be for *"
        raise ValidationError(f"{act.value} all", [Violation(name, message) for name in missing])
    return {quoted(name): theirs[name.lower()] for name in names if name.lower() in theirs}


def _refuse_ambiguous(merge: Merge, wanted: Collection[str]) -> None:
    """Refuses a source in which several columns have a name that is wanted."""
    if found := sorted(ambiguous(merge.source).intersection(wanted)):
        message = "is the name of several columns of the source: drop or rename all but one of them"
        raise ValidationError("merge", [Violation(name, message) for name in found])


def _evolved(snapshot: Snapshot, merge: Merge) -> WritePlan:
    """The schema with what clauses bring that the table does not have: for * all columns of the source, otherwise
    those that are named, and the fields of a struct that becomes the source's."""
    star = any(clause.is_star for clause in merge.clauses)
    named = {
        unqualified(name, merge.alias, snapshot.schema).lower()
        for clause in merge.clauses
        for name in clause.values or ()
    }
    known = [field.name.lower() for field in snapshot.schema]
    shared = ambiguous(merge.source)
    _refuse_ambiguous(merge, shared if star else named.difference(known))
    theirs = StructType([field for field in merge.source.schema if field.name.lower() not in shared])
    arriving = {field.name.lower(): field for field in from_spark(theirs)}
    taken = set(arriving) if star else _taken_whole(snapshot, merge, theirs)
    fields = [
        arriving[field.name.lower()].with_name(field.name) if field.name.lower() in taken else field
        for field in snapshot.schema
    ]
    fields += [field for name, field in arriving.items() if name not in known and (star or name in named)]
    plan = plan_write(snapshot, pa.schema(fields), MergeOptions(schema_merge=True))
    if plan.rewrites:
        message = "would become a string, for which all files are written again: widen it with an append first"
        raise SchemaMismatchError("schema change", [Violation(path, message) for path in plan.promoted])
    return plan


def _taken_whole(snapshot: Snapshot, merge: Merge, source: StructType) -> set[str]:
    """The nested columns to which a clause gives what the source's column of that name is, without case."""
    types = {field.name.lower(): field.dataType for field in source}
    nested = {field.name.lower() for field in snapshot.schema if pa.types.is_nested(field.type)}
    found = set()
    for clause in merge.clauses:
        for name, value in (clause.values or {}).items():
            column = unqualified(name, merge.alias, snapshot.schema).lower()
            if column in nested and column in types and _type_in(merge.source, value) == types[column]:
                found.add(column)
    return found


def _type_in(frame: "DataFrame", value: Expression) -> "DataType | None":
    """The type that an expression has there; None if it needs more than that frame."""
    try:
        return frame.select(expression(value)).schema[0].dataType
    except PySparkException:
        return None


def _analysed(scope: "DataFrame", condition: Expression, what: str) -> bool:
    """Whether a condition that Spark understands has the same answer when it is asked again."""
    with refusing(what, str(condition)):
        filtered = scope.where(expression(condition))
        filtered.schema  # noqa: B018  # Spark Connect analyses it only now
    refuse_changing(scope, condition, what)
    return is_steady(filtered)


@contextmanager
def _kept(frame: "DataFrame", whole: bool) -> "Iterator[DataFrame]":
    """A frame that is computed once. To keep many columns as they are is faster than to compress them."""
    if whole:
        yield frame.localCheckpoint(eager=True)
        return
    frame = frame.persist()
    try:
        yield frame
    finally:
        frame.unpersist()


def _union(frames: "Sequence[DataFrame]") -> "DataFrame | None":
    if not frames:
        return None
    first, *others = frames
    for other in others:
        first = first.union(other)
    return first
