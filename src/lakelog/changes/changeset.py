"""What a commit does to a table, before anybody knows which version it becomes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import Action, Metadata, Protocol, Txn
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.draft import Description, Draft, Inherited, Input
from lakelog.log.commit.files import AddFiles, RemoveFiles

SEVERAL = "TRANSACTION"
"""The operation of a commit that is several changes of a table."""


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Files and other actions, as Arrow tables where there can be many."""

    table_id: int
    description: Description
    actions: Sequence[Action] = ()
    """All but those about data files."""
    adds: pa.Table | None = None
    """As ``AddFiles`` takes it."""
    removes: pa.Table | None = None
    """As ``RemoveFiles`` takes it."""
    row_groups: pa.Table | None = None
    inherited: Inherited = field(default_factory=Inherited)
    leases: tuple[str, ...] = ()
    """Of the writes in flight that brought the files."""

    def draft(self, expected: int) -> Draft:
        """The commit on top of a version."""
        inputs: list[Input] = [*self.actions]
        if self.adds is not None and self.adds.num_rows:
            inputs.append(AddFiles(self.adds))
        if self.removes is not None and self.removes.num_rows:
            inputs.append(RemoveFiles(self.removes))
        groups = () if self.row_groups is None else self.row_groups
        return Draft(
            self.table_id, expected, inputs, self.description, groups, inherited=self.inherited, leases=self.leases
        )

    @property
    def is_nothing(self) -> bool:
        """Whether it leaves the table as it is: what came has gone again."""
        tables = (self.adds, self.removes)
        return not self.actions and all(table is None or not table.num_rows for table in tables)

    def followed_by(self, later: "Contents") -> "Contents":
        """Both changes in one commit: what the later one did to the table with this one in it.

        Raises ``ValidationError`` for two that no single version can say.
        """
        _refuse_twice(self.actions, later.actions)
        mine, theirs = paths_of(self.adds), paths_of(later.removes)
        # What comes and goes again was never there. One that got another deletion vector goes and comes again.
        adds = _concatenated(_without(self.adds, theirs), later.adds)
        groups = _concatenated(_without(self.row_groups, theirs), later.row_groups)
        return replace(
            self,
            description=_both(self.description, later.description),
            actions=[*self.actions, *later.actions],
            adds=adds,
            removes=_concatenated(self.removes, _without(later.removes, mine)),
            row_groups=groups,
            inherited=self._inherited_with(later),
            leases=(*self.leases, *later.leases),
        )

    def _inherited_with(self, later: "Contents") -> Inherited:
        mine, theirs = self.inherited, later.inherited
        unsure = mine.unsure | theirs.unsure
        if any(isinstance(action, Metadata) for action in later.actions):
            # What their statistics mean was asked before the columns changed.
            unsure |= mine.schema_versions.keys()
        return replace(
            mine,
            schema_versions={**mine.schema_versions, **theirs.schema_versions},
            unsure=unsure,
            outside=mine.outside or theirs.outside,
        )


def _refuse_twice(first: Sequence[Action], later: Sequence[Action]) -> None:
    problems = [
        Violation(kind.__name__.lower(), "was changed by this transaction before: change it once, or commit in between")
        for kind in (Metadata, Protocol)
        if all(any(isinstance(action, kind) for action in actions) for actions in (first, later))
    ]
    apps = [{action.app_id for action in actions if isinstance(action, Txn)} for actions in (first, later)]
    problems += [
        Violation(f"txn {app}", "a version has one batch of an application: commit in between")
        for app in sorted(apps[0] & apps[1])
    ]
    if problems:
        raise ValidationError("transaction", problems)


def _both(first: Description, later: Description) -> Description:
    """Of several changes, each with what it says of itself."""
    changes = first.operation_parameters["changes"] if first.operation == SEVERAL else [_said(first)]
    extra: dict[str, Any] = {**first.extra, **later.extra}
    extra["isBlindAppend"] = bool(first.extra.get("isBlindAppend")) and bool(later.extra.get("isBlindAppend"))
    extra.pop("operationMetrics", None)
    return replace(first, operation=SEVERAL, operation_parameters={"changes": [*changes, _said(later)]}, extra=extra)


def _said(description: Description) -> dict[str, Any]:
    return {
        "operation": description.operation,
        "operationParameters": dict(description.operation_parameters),
        "operationMetrics": description.extra.get("operationMetrics", {}),
    }


def paths_of(table: pa.Table | None) -> pa.Array:
    return pa.array([], pa.string()) if table is None else table.column("path").combine_chunks()


def _without(table: pa.Table | None, paths: pa.Array) -> pa.Table | None:
    if table is None or not len(paths):
        return table
    return table.filter(pc.invert(pc.is_in(table.column("path"), paths)))


def _concatenated(*tables: pa.Table | None) -> pa.Table | None:
    found = [table for table in tables if table is not None]
    return pa.concat_tables(found, promote_options="default") if found else None
