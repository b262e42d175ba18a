"""How a table's schema changes: as far as a write needs and may, or as somebody asks for."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import Action, Metadata
from lakelog.catalog.base import Row
from lakelog.catalog.stored import stored_json
from lakelog.changes.clustering import CLUSTERING, cluster_by_what_stays, clustering_columns
from lakelog.changes.conflicts import Reads
from lakelog.changes.retry import Prepared, commit_with_retries
from lakelog.errors import SchemaMismatchError, ValidationError, Violation
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.outcomes import CommitResult, Conflict
from lakelog.log.snapshot.file_groups import FileGroup
from lakelog.log.snapshot.snapshot import Snapshot, moment
from lakelog.log.state import TableState
from lakelog.log.validation.features import MIRROR, needed_features, raised_protocol
from lakelog.schema import from_bytes, to_delta_json
from lakelog.schema.evolution.alter import Layout, type_change_problems
from lakelog.schema.evolution.changes import SchemaChange, changes_between
from lakelog.schema.evolution.merge import MergeOptions, merge
from lakelog.schema.evolution.projection import missing, project, renamed
from lakelog.schema.evolution.widening import ENABLED
from lakelog.schema.mapping import (
    is_mapped,
    loosened,
    name_new_columns,
    physical_schema,
    with_field_ids,
    without_mapping,
)
from lakelog.schema.normalize import normalize
from lakelog.schema.rules import Rules, rules_of

_log = logging.getLogger("lakelog.schema")


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """How data of one schema goes into a table, decided before its first file is written."""

    base_version: int
    """The version that the plan was made for: commit its actions as the next one."""
    schema: Any
    """The table's Arrow schema once the write is committed."""
    changes: tuple[SchemaChange, ...]
    """What of it is new. Empty if the schema stays as it is."""
    actions: tuple[Action, ...]
    """What to commit together with the files."""
    incoming: Any
    """The schema of the incoming data, in the types that a table can hold."""
    physical: Any
    """``schema`` by the names that files use."""

    rules: Rules = field(default_factory=Rules)
    """What the table asks of every row."""

    rewrites: tuple[FileGroup, ...] = ()
    """Files that the same commit must replace by their rows under ``schema``: Delta could not read them as text."""

    holds_for_every_row: bool = False
    """Whether files that others add in the meantime would have to be rewritten, too."""

    @property
    def promoted(self) -> tuple[str, ...]:
        """Columns that become strings."""
        return tuple(change.path for change in self.changes if change.what == "promoted")

    def conform(self, data: pa.Table) -> pa.Table:
        """The data as the files must hold it: converted, in the table's order, null where a column is missing.

        Partition columns are among them. A missing column has its default, if that is a constant. Raises
        ``SchemaMismatchError`` for values that do not fit, for nulls in columns that are NOT NULL and for rows that
        break a constraint, and ``ValidationError`` for data of another schema than the plan was made for, and for a
        table with rules that only Spark can follow.
        """
        from lakelog.changes.row_rules import RowRules
        from lakelog.schema.evolution.convert import apply, null_problems

        planned, found = (
            {field.name.lower(): field.type for field in schema} for schema in (self.incoming, normalize(data.schema))
        )
        if planned != found:
            names = sorted(name for name in planned.keys() | found.keys() if planned.get(name) != found.get(name))
            message = f"differs from the schema that the plan was made for in {', '.join(names)}"
            raise ValidationError("data", [Violation("schema", message)])
        columns = project(list(data.schema), list(self.schema))
        rules = RowRules(self.rules, self.schema, missing(columns))
        table = rules.filled(apply(columns, data))
        problems = [*null_problems(table), *rules.problems(table)]
        if problems:
            raise SchemaMismatchError("values of the incoming data", problems)
        if self.physical is self.schema:
            return table
        return apply(renamed(project(list(self.schema), list(self.schema)), list(with_field_ids(self.physical))), table)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaVersion:
    """An entry of a table's schema history."""

    version: int
    """Counts the schemas, not the commits."""
    schema: Any
    introduced_by: int
    """The table's version that brought it."""
    timestamp: datetime | None
    """None, as what follows, if that version has expired."""
    operation: str | None
    commit_id: str | None
    changes: tuple[SchemaChange, ...]

    @classmethod
    def of(cls, row: Row) -> "SchemaVersion":
        version, arrow_schema, introduced_by, merged, committed_at, operation, commit_id = row
        said = stored_json(merged)["changes"] if merged else []
        return cls(
            version=version,
            schema=from_bytes(bytes(arrow_schema)),
            introduced_by=introduced_by,
            timestamp=None if committed_at is None else moment(committed_at),
            operation=operation,
            commit_id=None if commit_id is None else str(commit_id),
            changes=tuple(map(SchemaChange.from_dict, said)),
        )


def plan_write(snapshot: Snapshot, incoming: Any, options: MergeOptions) -> WritePlan:
    """Raises ``SchemaMismatchError`` with every difference that the options do not allow."""
    plan = _plan(snapshot.state, incoming, options)
    configuration = snapshot.metadata.configuration
    if not plan.promoted or configuration.get(MIRROR) == "false":
        return plan
    if snapshot.metadata.is_on("delta.appendOnly"):
        message = "would become a string, for which the files of a mirrored table are replaced; it is append-only"
        raise SchemaMismatchError("schema change", [Violation(path, message) for path in plan.promoted])
    groups = snapshot.file_groups_as(plan.schema, plan.physical, snapshot.files())
    rewrites = tuple(group for group in groups if not group.native)
    _log.info(
        "%s: %s will be strings, so %d files with %d bytes are rewritten in the same commit",
        snapshot,
        ", ".join(plan.promoted),
        sum(group.files.num_rows for group in rewrites),
        sum(pc.sum(group.files.column("size")).as_py() for group in rewrites),
    )
    return replace(plan, rewrites=rewrites, holds_for_every_row=True)


def plan_overwrite(snapshot: Snapshot, incoming: Any, partition_by: Sequence[str] | None) -> WritePlan:
    """A write that replaces every row, and with them the columns and the partitioning.

    Without ``partition_by`` the table stays partitioned by what it is. Raises ``SchemaMismatchError`` if something else
    that the table has needs a column as it was.
    """
    action = snapshot.metadata
    arriving = normalize(_arrow_schema(incoming))
    fresh = loosened(pa.schema(map(without_mapping, arriving)))
    partitions = _spelled(fresh, action.partition_columns if partition_by is None else partition_by)
    if snapshot.schema.equals(fresh) and partitions == tuple(action.partition_columns):
        return _plan(snapshot.state, incoming, MergeOptions())
    _check_rules_stay(snapshot.state.metadata.rules)
    schema, configuration = name_new_columns(fresh, dict(action.configuration))
    physical = physical_schema(schema) if is_mapped(configuration) else schema
    actions = _actions(snapshot.state, Layout(schema, configuration, partitions))
    return WritePlan(
        base_version=snapshot.version,
        schema=schema,
        changes=changes_between(snapshot.schema, schema),
        actions=(*actions, *cluster_by_what_stays(snapshot, physical, partitions)),
        incoming=arriving,
        physical=physical,
    )


def _check_rules_stay(rules: Rules) -> None:
    """Rules are about columns as they are, and would go with them without a word."""
    found = [Violation(check.owner, "drop it before the schema is overwritten") for check in rules.checks]
    found += [Violation(name, "has a default: drop it before the schema is overwritten") for name in rules.defaults]
    found += [Violation(name, "is generated: write a new table") for name in (*rules.generated, *rules.inside)]
    if found:
        raise SchemaMismatchError("schema change", found)


def _spelled(schema: pa.Schema, partition_by: Sequence[str]) -> tuple[str, ...]:
    """Partition columns as the schema spells them."""
    names = {name.lower(): name for name in schema.names}
    missing = [name for name in partition_by if name.lower() not in names]
    if missing:
        message = "is a partition column that the data does not have: name others by partition_by, [] for none"
        raise SchemaMismatchError("schema change", [Violation(name, message) for name in missing])
    return tuple(names[name.lower()] for name in partition_by)


def _plan(state: TableState, incoming: Any, options: MergeOptions) -> WritePlan:
    metadata = state.metadata
    arriving = normalize(_arrow_schema(incoming))
    merged = merge(metadata.schema, arriving, options, metadata.action.partition_columns)
    schema, physical = metadata.schema, metadata.physical
    actions: list[Action] = []
    if merged is not schema:
        configuration = dict(metadata.action.configuration)
        changes = changes_between(schema, merged)
        _check_dependents(Layout(schema, configuration, tuple(metadata.action.partition_columns)), merged, changes)
        if any(change.what == "widened" for change in changes):
            configuration[ENABLED] = "true"
        schema, configuration = name_new_columns(merged, configuration)
        physical = physical_schema(schema) if is_mapped(configuration) else schema
        actions = _actions(state, Layout(schema, configuration, tuple(metadata.action.partition_columns)))
    return WritePlan(
        base_version=state.version,
        schema=schema,
        changes=changes_between(metadata.schema, schema) if actions else (),
        actions=tuple(actions),
        incoming=arriving,
        physical=physical,
        rules=metadata.rules,
    )


def _check_dependents(layout: Layout, merged: pa.Schema, changes: Sequence[SchemaChange]) -> None:
    """What an explicit change of type refuses, a write refuses, too."""
    found = []
    for change in changes:
        if change.what in ("widened", "promoted"):
            found += type_change_problems(layout, merged, change.path)
    for name, sql in rules_of(layout.schema, layout.configuration).generated.items():
        if not found and layout.schema.field(name).type != merged.field(name).type:
            found.append(Violation(name, f"is generated as {sql}, and has its type"))
    if found:
        raise SchemaMismatchError("the incoming schema does not fit the table's", found)


def alter(
    committer: Committer,
    table_id: int,
    operation: str,
    parameters: Mapping[str, Any],
    change: Callable[[Layout], Layout],
) -> CommitResult | None:
    """Commits a change of the head's columns; None if there is nothing to change. Never retries."""
    with committer.catalog.session() as session:
        state = committer.states.of_head(session, committer.head(session, table_id))
        key = {"table_id": table_id, "domain": CLUSTERING, "version": state.version}
        domains = session.fetch(committer.catalog.queries["domain_at"], key)
    action = state.metadata.action
    clustering = clustering_columns(domains[0][0]) if domains and not domains[0][1] else []
    before = Layout(
        state.metadata.schema,
        action.configuration,
        tuple(action.partition_columns),
        tuple(tuple(column) for column in clustering),
    )
    after = change(before)
    if after is before:
        return None
    description = Description(operation=operation, operation_parameters=parameters, extra={})
    outcome = committer.commit([Draft(table_id, state.version, _actions(state, after), description)])
    if isinstance(outcome, Conflict):
        raise outcome.error()
    return outcome[0]


def alter_checked(
    committer: Committer,
    state: TableState,
    operation: str,
    parameters: Mapping[str, Any],
    change: Callable[[Layout], Layout],
    retries: int = 0,
) -> CommitResult:
    """Commits a change that every row of a version was checked for: no other row may have come since then.

    Raises ``ConcurrencyError`` if one has, or if somebody else has changed the table, too.
    """
    action = state.metadata.action
    after = change(Layout(state.metadata.schema, action.configuration, tuple(action.partition_columns)))
    actions = _actions(state, after)
    description = Description(operation=operation, operation_parameters=parameters, extra={})
    prepared = Prepared(
        table_id=state.table_id,
        base_version=state.version,
        draft_for=lambda expected: Draft(state.table_id, expected, actions, description),
        reads=Reads(everything=True),
    )
    return commit_with_retries(committer, [prepared], retries=retries)[0]


def _actions(state: TableState, layout: Layout) -> list[Action]:
    """The metadata that a layout asks for, and the protocol if it asks for more than the table has."""
    metadata: Metadata = replace(
        state.metadata.action,
        schema_string=to_delta_json(layout.schema, column_mapping=is_mapped(layout.configuration)),
        configuration=layout.configuration,
        partition_columns=layout.partition_columns,
    )
    protocol = raised_protocol(state.protocol, needed_features(layout.schema, layout.configuration))
    return [metadata] if protocol is state.protocol else [protocol, metadata]


def _arrow_schema(schema: Any) -> pa.Schema:
    if isinstance(schema, pa.Schema):
        return schema
    if hasattr(schema, "fields") and hasattr(schema, "jsonValue"):
        from lakelog.schema.spark import from_spark

        return from_spark(schema)
    message = f"expected a pyarrow.Schema or a Spark StructType, got {type(schema).__name__}"
    raise ValidationError("schema", [Violation("schema", message)])
