"""Merging a source into a table.

The source is kept for the time of the merge, so that it is read once and is the same each time. One join finds which
rows of the table match, and with them the files that hold a row to be changed; a second one writes those files again.
Rows of the source that match nothing are added. A merge that only inserts writes no file again.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakelog.dataset import Dataset
from lakelog.errors import LakelogError, SchemaMismatchError, ValidationError, Violation
from lakelog.log.change_feed import CHANGE_TYPE, is_kept
from lakelog.log.conflicts import Reads
from lakelog.log.evolution import WritePlan, plan_write
from lakelog.log.pruning.predicate import Everything
from lakelog.log.snapshot import Snapshot
from lakelog.log.state import TableMetadata
from lakelog.schema.merge import MergeOptions
from lakelog.schema.spark import from_spark
from lakelog.spark.commits import Change
from lakelog.spark.dml.assign import Expression, assigned, expression
from lakelog.spark.dml.clauses import Act, Clause, When, check_clauses, shown_clauses
from lakelog.spark.dml.joined import (
    ACTION,
    COPIED,
    Join,
    Matches,
    Step,
    columns_of_source,
    columns_of_table,
    numbered_source,
)
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
from lakelog.spark.dml.scope import merge_scope
from lakelog.spark.dml.shown import shown_condition
from lakelog.spark.expressions import quoted
from lakelog.spark.frames import session_for
from lakelog.spark.options import WriteOptions
from lakelog.spark.predicates import empty_frame
from lakelog.spark.prepared import PreparedChange

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OLD = (When.MATCHED, When.NOT_MATCHED_BY_SOURCE)


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
    dataset: Dataset, snapshot: Snapshot, merge: Merge, options: WriteOptions, spark: "SparkSession | None" = None
) -> PreparedChange[ChangeResult]:
    """Writes the files of a merge."""
    check_clauses(merge.clauses)
    if _changes_rows(merge):
        refuse_append_only(dataset, snapshot, "merge")
    plan = _evolved(snapshot, merge) if merge.schema_evolution else unchanged(snapshot)
    refuse_reserved("merge", [*plan.schema.names, *merge.source.columns])
    source = numbered_source(merge.source)
    join = _joined(session_for(spark), dataset, snapshot, merge, plan, source)
    # Its rows are known by number, which a second computation might give to others. So there is none: lost rows fail.
    return _prepared(replace(join, source=source.localCheckpoint(eager=True)), merge, plan, options)


def _prepared(join: Join, merge: Merge, plan: WritePlan, options: WriteOptions) -> PreparedChange[ChangeResult]:
    snapshot = join.snapshot
    partitions = tuple(snapshot.metadata.partition_columns)
    condition = expression(merge.condition)
    scope, source_rows = merge_scope(join.spark, snapshot.schema, merge.alias, join.source, condition, partitions)
    # A row that matches nothing may be anywhere.
    predicate = Everything() if join.steps_for(When.NOT_MATCHED_BY_SOURCE) else scope
    candidates = snapshot.files(predicate)
    with _kept(join.pairs(candidates)) if _changes_rows(merge) else nullcontext() as pairs:
        found = None if pairs is None else join.matches(candidates, pairs)
        return (
            _Outcome(join, merge, plan, found, candidates, source_rows)
            .rewrite(Reads(predicates=(predicate,)))
            .prepare(options)
        )


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
    ) -> None:
        self._join = join
        self._plan = plan
        self._merge = merge
        self._found = found
        self._candidates = candidates
        self._source_rows = source_rows
        self._changed, self._new = Observation(), Observation()
        self._parts: list[DataFrame] = []
        self._feed: list[DataFrame] = []
        self._is_told = False

    def rewrite(self, reads: Reads) -> Rewrite:
        found, join, merge = self._found, self._join, self._merge
        touched = self._candidates.slice(0, 0) if found is None else found.touched
        # Files that are only added tell by themselves that their rows are new.
        self._is_told = touched.num_rows > 0 and is_kept(join.snapshot.state.metadata)
        if touched.num_rows:
            assert found is not None
            self._add_changed(join.changed(found))
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
            removed=touched,
            rows=_union(self._parts),
            changes=_union(self._feed),
            plan=self._plan,
            metrics=lambda written: self._metrics(touched, written),
        )

    def _add_changed(self, changed: "DataFrame") -> None:
        join = self._join
        kinds = {
            f"{act.value} {when.value}": F.count_if(join.is_any(act, kinds=(when,)))
            for when in _OLD
            for act in (Act.UPDATE, Act.DELETE)
        }
        counted = changed.observe(
            self._changed,
            *[count.alias(name) for name, count in kinds.items()],
            F.count_if(F.col(ACTION) == COPIED).alias("copied"),
        )
        written = join.written(counted, _OLD)
        if self._is_told:
            # Once, so that the feed says what the files have: an expression may be another one the next time.
            written = written.localCheckpoint(eager=True)
            self._feed.append(join.feed(written))
        self._parts.append(join.rows(written.where(~join.is_any(Act.DELETE))))

    def _add_new(self, new: "DataFrame") -> None:
        rows = self._join.rows(self._join.written(new, (When.NOT_MATCHED,)))
        # Few rows that come from many tasks are not to become as many files.
        rows = rows.hint("rebalance", *map(quoted, self._join.snapshot.metadata.partition_columns))
        rows = rows.observe(self._new, F.count(F.lit(1)).alias("inserted"))
        if self._is_told:
            rows = rows.localCheckpoint(eager=True)
            self._feed.append(rows.drop(CHANGED).withColumn(CHANGE_TYPE, F.lit("insert")))
        self._parts.append(rows)

    def _metrics(self, touched: pa.Table, written: Written) -> dict[str, int]:
        changed: dict[str, int] = self._changed.get if touched.num_rows else {}
        inserted = int(self._new.get["inserted"]) if self._join.steps_for(When.NOT_MATCHED) else 0
        of = {
            (act, when): int(changed.get(f"{act.value} {when.value}", 0))
            for act in (Act.UPDATE, Act.DELETE)
            for when in _OLD
        }
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
            "numTargetRowsCopied": int(changed.get("copied", 0)),
            "numOutputRows": written.rows,
            "numTargetFilesAdded": written.files,
            "numTargetFilesRemoved": touched.num_rows,
            "numTargetBytesAdded": written.bytes,
            "numTargetBytesRemoved": total(touched),
            "numTargetChangeFilesAdded": written.change_files,
        }


def _changes_rows(merge: Merge) -> bool:
    return any(clause.when is not When.NOT_MATCHED for clause in merge.clauses)


def _joined(
    spark: "SparkSession",
    dataset: Dataset,
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
        condition=merge.condition,
        steps=(),
    )
    table = join.named(empty_frame(spark, plan.schema), list(plan.schema))
    scopes = {
        When.MATCHED: table.join(source, F.lit(True)),
        When.NOT_MATCHED: source,
        When.NOT_MATCHED_BY_SOURCE: table,
    }
    before = join.plain(empty_frame(spark, snapshot.schema))
    _analysed(before.join(source, F.lit(True)), merge.condition, "merge condition")
    theirs = columns_of_source(merge.source)
    steps = []
    for number, clause in enumerate(merge.clauses, 1):
        what = f"when {clause.when.value} then {clause.act.value}"
        if clause.condition is not None:
            _analysed(scopes[clause.when], clause.condition, f"condition of {what}")
        values = {}
        if clause.act is not Act.DELETE:
            chosen = clause.values if clause.values is not None else _star(metadata, theirs, merge, clause.act)
            named = {_unqualified(name, merge.alias, plan.schema): value for name, value in chosen.items()}
            old = columns_of_table(plan.schema) if clause.act is Act.UPDATE else None
            values = assigned(
                plan.schema, scopes[clause.when], named, old, what, partial_structs=merge.schema_evolution
            )
        steps.append(Step(number=number, clause=clause, values=values))
    return replace(join, steps=tuple(steps))


def _star(metadata: TableMetadata, theirs: Any, merge: Merge, act: Act) -> dict[str, Expression]:
    """All columns of the table by the source's of the same names."""
    names = metadata.schema.names
    rules = metadata.rules
    optional = {*rules.generated, *(rules.defaults if act is Act.INSERT else ())}
    missing = [name for name in names if name.lower() not in theirs and name not in optional]
    if missing and not merge.schema_evolution:
        message = "is not a column of the source, as all columns of the table have to be for *"
        raise ValidationError(f"{act.value} all", [Violation(name, message) for name in missing])
    return {quoted(name): theirs[name.lower()] for name in names if name.lower() in theirs}


def _unqualified(name: str, alias: str | None, schema: pa.Schema) -> str:
    """A column's name without the table's."""
    if alias and isinstance(name, str) and name.lower() not in (column.lower() for column in schema.names):
        start = f"{alias}.".lower()
        return name[len(start) :] if name.lower().startswith(start) else name
    return name


def _evolved(snapshot: Snapshot, merge: Merge) -> WritePlan:
    """The schema with what clauses bring that the table does not have: for * all columns of the source, otherwise
    those that are named."""
    star = any(clause.is_star for clause in merge.clauses)
    named = {
        _unqualified(name, merge.alias, snapshot.schema).lower()
        for clause in merge.clauses
        for name in clause.values or ()
    }
    arriving = {field.name.lower(): field for field in from_spark(merge.source.schema)}
    known = [field.name.lower() for field in snapshot.schema]
    fields = [
        arriving[field.name.lower()].with_name(field.name) if star and field.name.lower() in arriving else field
        for field in snapshot.schema
    ]
    fields += [field for name, field in arriving.items() if name not in known and (star or name in named)]
    plan = plan_write(snapshot, pa.schema(fields), MergeOptions(schema_merge=True))
    if plan.rewrites:
        message = "would become a string, for which all files are written again: widen it with an append first"
        raise SchemaMismatchError("schema change", [Violation(path, message) for path in plan.promoted])
    return plan


def _analysed(scope: "DataFrame", condition: Expression, what: str) -> None:
    try:
        plan = scope.where(expression(condition))
        plan.schema  # noqa: B018  # Spark Connect analyses it only now
    except AnalysisException as error:
        raise ValidationError(what, [Violation(str(condition), error.getMessage() or str(error))]) from error


@contextmanager
def _kept(frame: "DataFrame") -> "Iterator[DataFrame]":
    """A frame that is computed once."""
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
