"""What a delete, update or merge has in common: files go, rows are written in their place, all of it in one commit."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.dataset import Dataset
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit import CommitResult
from lakelog.log.conflicts import Reads
from lakelog.log.draft import Description, Draft, Input
from lakelog.log.evolution import WritePlan
from lakelog.log.files import AddFiles, RemoveFiles
from lakelog.log.retry import Prepared
from lakelog.log.snapshot import Snapshot
from lakelog.log.state import TableMetadata
from lakelog.parquet.footers import Harvest
from lakelog.schema.projection import project
from lakelog.spark.commits import REMOVED, Change, check_features
from lakelog.spark.constraints import filled
from lakelog.spark.expressions import quoted
from lakelog.spark.options import WriteOptions
from lakelog.spark.prepared import PreparedChange
from lakelog.spark.stage import Stage, Target

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CHANGED = "__lakelog_changed"
_RESERVED = "__lakelog_"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeResult:
    """A delete, update or merge that stands."""

    version: int
    """The version that it made; the table's head if there was nothing to change."""
    commit_id: str | None
    """None if there was nothing to change."""
    metrics: Mapping[str, int]
    """Delta's metrics of the operation, by Delta's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What was written in the place of the files that go."""

    files: int = 0
    bytes: int = 0
    rows: int = 0
    change_files: int = 0


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A change of rows, planned: nothing is written yet."""

    dataset: Dataset
    snapshot: Snapshot
    operation: str
    parameters: Mapping[str, Any]
    reads: Reads
    removed: pa.Table
    """The files that go."""
    rows: "DataFrame | None"
    """What is written in their place, under the table's columns as they will be; None if that is nothing.

    ``CHANGED`` is a column more: whether the row is new or changed, and not only moved.
    """
    changes: "DataFrame | None" = None
    """For the change feed: the same columns, and what happened to each row."""
    plan: WritePlan | None = None
    """None if the schema stays as it is."""
    metrics: Callable[[Written], dict[str, int]]
    """Asked when everything is written."""
    started: float = field(default_factory=time.monotonic)

    def prepare(self, options: WriteOptions) -> PreparedChange[ChangeResult]:
        """Writes the files."""
        plan = self.plan or unchanged(self.snapshot)
        if self.rows is None and not self.removed.num_rows and not plan.actions:
            return self._nothing(Written())
        metadata = Change(snapshot=self.snapshot, plan=plan).metadata
        check_features(metadata)
        actions: list[Input] = [*plan.actions]
        if self.removed.num_rows:
            actions.append(RemoveFiles(self.removed.select(REMOVED)))
        if self.rows is None:
            return self._prepared(actions, (), Written(), (), options)
        columns = project(list(plan.schema), list(plan.schema))
        target = Target(location=self.dataset.location, metadata=metadata, columns=columns)
        frame = self.rows
        assert frame is not None, "what is told of changed rows was written again"
        with Stage(self.dataset.committer, target, frame, options, is_new=F.col(CHANGED)) as stage:
            harvest = stage.write()
            found = _written(harvest)
            if harvest.adds.num_rows:
                actions.append(AddFiles(harvest.adds))
            if self.changes is not None:
                feed = stage.write_changes(self.changes)
                actions += feed
                found = Written(files=found.files, bytes=found.bytes, rows=found.rows, change_files=len(feed))
            if not actions:
                stage.discard()
                return self._nothing(found)
            return self._prepared(actions, harvest.row_groups, found, (stage,), options)

    def _nothing(self, written: Written) -> PreparedChange[ChangeResult]:
        metrics = self.metrics(written)
        return PreparedChange(prepared=None, told=lambda result: self._told(result, metrics))

    def _prepared(
        self,
        actions: Sequence[Input],
        row_groups: Any,
        written: Written,
        stages: tuple[Stage, ...],
        options: WriteOptions,
    ) -> PreparedChange[ChangeResult]:
        metrics = self.metrics(written)
        metrics["executionTimeMs"] = round((time.monotonic() - self.started) * 1000)
        extra: dict[str, Any] = {
            "operationMetrics": {name: str(value) for name, value in metrics.items()},
            "isBlindAppend": False,
        }
        if options.user_metadata is not None:
            extra["userMetadata"] = options.user_metadata
        description = Description(
            operation=self.operation,
            operation_parameters=self.parameters,
            committer=options.committer,
            extra=extra,
        )
        table_id = self.dataset.id
        prepared = Prepared(
            table_id=table_id,
            base_version=self.snapshot.version,
            draft_for=lambda expected: Draft(table_id, expected, actions, description, row_groups),
            reads=self.reads,
        )
        return PreparedChange(prepared=prepared, told=lambda result: self._told(result, metrics), stages=stages)

    def _told(self, result: CommitResult | None, metrics: Mapping[str, int]) -> ChangeResult:
        if result is None:
            return ChangeResult(version=self.snapshot.version, commit_id=None, metrics=metrics)
        return ChangeResult(version=result.version, commit_id=result.commit_id, metrics=metrics)


def unchanged(snapshot: Snapshot) -> WritePlan:
    """A plan that leaves the schema as it is."""
    metadata = snapshot.state.metadata
    return WritePlan(
        base_version=snapshot.version,
        schema=metadata.schema,
        changes=(),
        actions=(),
        incoming=metadata.schema,
        physical=metadata.physical,
    )


def following(rows: "DataFrame", metadata: TableMetadata, names: Collection[str]) -> "DataFrame":
    """Changed rows with generated columns that follow the others. Those of rows that are only moved stay."""
    if not names:
        return rows
    before = {name: f"__lakelog_before_{number}" for number, name in enumerate(names)}
    both = rows.select("*", *[F.col(quoted(name)).alias(old) for name, old in before.items()])
    made = filled(both, metadata, names)
    return made.select(
        *[
            F.when(F.col(CHANGED), F.col(quoted(name))).otherwise(F.col(before[name])).alias(name)
            if name in before
            else F.col(quoted(name))
            for name in rows.columns
        ]
    )


def refuse_reserved(verb: str, names: Collection[str]) -> None:
    """Refuses columns that are called like those which a change adds for its own use."""
    found = [name for name in names if name.lower().startswith(_RESERVED)]
    if found:
        message = f"columns whose names begin with {_RESERVED} are in the way of this: rename it"
        raise ValidationError(verb, [Violation(repr(name), message) for name in found])


def refuse_append_only(dataset: Dataset, snapshot: Snapshot, verb: str) -> None:
    """Says before anything is read what the commit would say at the end."""
    if snapshot.metadata.is_on("delta.appendOnly"):
        message = f"is true: rows of {dataset.name!r} can be added, not changed or removed"
        raise ValidationError(verb, [Violation("delta.appendOnly", message)])


def total(files: pa.Table, column: str = "size") -> int:
    return int(pc.sum(files.column(column)).as_py() or 0)


def _written(harvest: Harvest) -> Written:
    return Written(files=harvest.adds.num_rows, bytes=total(harvest.adds), rows=harvest.rows)
