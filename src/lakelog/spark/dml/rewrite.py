"""What a delete, update or merge has in common: files go, rows are written in their place, all of it in one commit."""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.actions import Action
from lakelog.changes.changeset import Contents
from lakelog.changes.conflicts import Reads
from lakelog.changes.evolution import WritePlan
from lakelog.changes.restore import inherited_from, row_groups_of
from lakelog.changes.staging_directory import OwnDirectory, leases_of
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.draft import Description, Inherited
from lakelog.log.commit.files import REMOVED
from lakelog.log.commit.outcomes import CommitResult
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import TableMetadata
from lakelog.log.table import Table
from lakelog.parquet.footers import Harvest
from lakelog.schema.evolution.projection import project
from lakelog.spark.dml.deletion_vectors import Marked
from lakelog.spark.expressions import quoted
from lakelog.spark.rules.enforce import filled
from lakelog.spark.write.options import WriteOptions
from lakelog.spark.write.parquet_writer import Stage, Target
from lakelog.spark.write.prepared_change import PreparedChange
from lakelog.spark.write.table_change import Change, check_features
from lakelog.storage.uris import is_absolute

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

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
    counts: Mapping[str, int] = field(default_factory=dict)
    """Rows that matched a condition, by the names of ``Rewrite.counted``."""


@dataclass(frozen=True, kw_only=True)
class Rewrite:
    """A change of rows, planned: nothing is written yet."""

    dataset: Table
    snapshot: Snapshot
    operation: str
    parameters: Mapping[str, Any]
    reads: Reads
    removed: pa.Table
    """The files that go."""
    marked: Marked | None = None
    """The files that stay without some of their rows."""
    rows: "DataFrame | None"
    """What is written in their place, under the table's columns as they will be; None if that is nothing.

    ``CHANGED`` is a column more: whether the row is new or changed, and not only moved.
    """
    counted: "Mapping[str, Column]" = field(default_factory=dict)
    """Conditions by the columns of ``rows``: how many match is counted in the one pass that writes them."""
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
        marked = self.marked if self.marked is not None and self.marked.files.num_rows else None
        if self.rows is None and marked is None and not self.removed.num_rows and not plan.actions:
            return self._nothing(Written())
        metadata = Change(snapshot=self.snapshot, plan=plan).metadata
        check_features(metadata)
        parts = _Parts(actions=[*plan.actions])
        if self.removed.num_rows:
            parts.removes.append(self.removed.select(REMOVED))
        if self.rows is None and marked is None:
            return self._prepared(parts, (), options)
        with OwnDirectory(self.dataset.committer, self.dataset.location) as own:
            if self.rows is not None:
                self._write(self.rows, own, metadata, parts, options)
            if marked is not None:
                self._mark(marked, own, metadata, parts)
            if parts.are_none:
                own.discard()
                return self._nothing(parts.written)
            return self._prepared(parts, (own,), options)

    def _write(
        self,
        rows: "DataFrame",
        own: OwnDirectory,
        metadata: TableMetadata,
        parts: "_Parts",
        options: WriteOptions,
    ) -> None:
        columns = project(list(metadata.schema), list(metadata.schema))
        target = Target(location=self.dataset.location, metadata=metadata, columns=columns)
        stage = Stage(own, target, rows, options, is_new=F.col(CHANGED), counted=self.counted)
        harvest = stage.write()
        parts.written = _written(harvest, stage.counts)
        parts.adds.append(harvest.adds)
        parts.row_groups.append(harvest.row_groups)
        if self.changes is not None:
            feed = stage.write_changes(self.changes)
            parts.actions += feed
            parts.written = replace(parts.written, change_files=len(feed))

    def _mark(self, marked: Marked, own: OwnDirectory, metadata: TableMetadata, parts: "_Parts") -> None:
        parts.adds.append(marked.write(self.dataset.location, own))
        parts.removes.append(marked.files.select(REMOVED))
        # All of these files are where the change had to look for rows.
        (where,) = self.reads.predicates
        parts.row_groups.append(row_groups_of(self.snapshot, marked.files, where))
        # They are still what they were written as, where they were written.
        outside = any(map(is_absolute, marked.files.column("path").to_pylist()))
        inherited = inherited_from(self.snapshot, marked.files, metadata.physical)
        parts.inherited = replace(inherited, outside=outside)

    def _nothing(self, written: Written) -> PreparedChange[ChangeResult]:
        metrics = self.metrics(written)
        return PreparedChange(
            contents=None,
            base_version=self.snapshot.version,
            reads=self.reads,
            told=lambda result: self._told(result, metrics),
        )

    def _prepared(
        self, parts: "_Parts", directories: tuple[OwnDirectory, ...], options: WriteOptions
    ) -> PreparedChange[ChangeResult]:
        metrics = self.metrics(parts.written)
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
        return PreparedChange(
            contents=replace(parts.contents(self.snapshot, description), leases=leases_of(*directories)),
            base_version=self.snapshot.version,
            reads=self.reads,
            told=lambda result: self._told(result, metrics),
            directories=directories,
        )

    def _told(self, result: CommitResult | None, metrics: Mapping[str, int]) -> ChangeResult:
        if result is None:
            return ChangeResult(version=self.snapshot.version, commit_id=None, metrics=metrics)
        return ChangeResult(version=result.version, commit_id=result.commit_id, metrics=metrics)


@dataclass(kw_only=True)
class _Parts:
    """What a change commits, as it comes together."""

    actions: list[Action]
    adds: list[pa.Table] = field(default_factory=list)
    removes: list[pa.Table] = field(default_factory=list)
    row_groups: list[pa.Table] = field(default_factory=list)
    inherited: Inherited = field(default_factory=Inherited)
    written: Written = field(default_factory=Written)

    @property
    def are_none(self) -> bool:
        return not self.actions and not any(table.num_rows for table in (*self.adds, *self.removes))

    def contents(self, snapshot: Snapshot, description: Description) -> Contents:
        return Contents(
            table_id=snapshot.state.table_id,
            description=description,
            actions=self.actions,
            adds=_one(self.adds),
            removes=_one(self.removes),
            row_groups=_one(self.row_groups),
            inherited=self.inherited,
        )


def _one(tables: Sequence[pa.Table]) -> pa.Table | None:
    return pa.concat_tables(tables, promote_options="default") if tables else None


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


def following(rows: "DataFrame", metadata: TableMetadata, where: "Mapping[str, Column]") -> "DataFrame":
    """Rows with generated columns that follow the others where that is asked of them, and stay elsewhere."""
    if not where:
        return rows
    before = {name: f"__lakelog_generated_{number}" for number, name in enumerate(where)}
    both = rows.select("*", *[F.col(quoted(name)).alias(old) for name, old in before.items()])
    made = filled(both, metadata, where)
    return made.select(
        *[
            F.when(where[name], F.col(quoted(name))).otherwise(F.col(before[name])).alias(name)
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


def refuse_append_only(dataset: Table, snapshot: Snapshot, verb: str) -> None:
    """Says before anything is read what the commit would say at the end."""
    if snapshot.metadata.is_on("delta.appendOnly"):
        message = f"is true: rows of {dataset.name!r} can be added, not changed or removed"
        raise ValidationError(verb, [Violation("delta.appendOnly", message)])


def total(files: pa.Table, column: str = "size") -> int:
    return int(pc.sum(files.column(column)).as_py() or 0)


def _written(harvest: Harvest, counts: Mapping[str, int]) -> Written:
    return Written(files=harvest.adds.num_rows, bytes=total(harvest.adds), rows=harvest.rows, counts=counts)
