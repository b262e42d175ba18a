"""``Definition``: what of a dataset says what the table is, and changes it, each time by a commit of its own."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from lakelog.arguments import FLAG, INTEGER, MAPPING, NAMES, OPTIONAL_TEXT, TEXT, Kind, takes
from lakelog.changes.evolution import WritePlan, alter, plan_write
from lakelog.changes.properties import drop_constraint, set_properties, unset_properties
from lakelog.changes.redefine import change_protocol, upgraded, with_feature
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.outcomes import CommitResult
from lakelog.log.table import Table
from lakelog.schema.evolution.alter import (
    Layout,
    add_column,
    drop_column,
    find_column,
    make_nullable,
    rename_column,
    set_comment,
    set_default,
    widen_column,
)
from lakelog.schema.evolution.merge import MergeOptions
from lakelog.schema.rules import constraint_key, constraints_in, expression_problem
from lakelog.sessions import in_session
from lakelog.strict_json import json_problem

_TYPE = Kind("an Arrow type such as pyarrow.int64()", lambda value: isinstance(value, pa.DataType))


class Definition(Table):
    """Columns, properties and rules for rows. ``Dataset`` has the rest."""

    def plan_write(
        self,
        schema: Any,
        *,
        schema_merge: bool = False,
        promote_types: bool = True,
        promote_to_string: bool = False,
        version: int | None = None,
    ) -> WritePlan:
        """What it takes to write data of this schema (Arrow's or Spark's) on top of the head, or of a version.

        By default nothing may change the table's schema. ``schema_merge`` lets a write add columns and make them
        nullable, ``promote_types`` with it widen them without loss, ``promote_to_string`` with it turn columns into
        strings where nothing else holds both sides. Raises ``SchemaMismatchError`` with every difference that is not
        allowed. Nothing is written: commit the plan's actions together with the files, and replace those that it says
        must be rewritten.
        """
        return plan_write(self.snapshot(version), schema, MergeOptions(schema_merge, promote_types, promote_to_string))

    @takes(name=TEXT, comment=TEXT, type=_TYPE)
    def add_column(self, name: str, type: Any, *, comment: str | None = None) -> CommitResult | None:
        """Adds a nullable column of an Arrow type, at the end of the table or of the struct that ``a.b`` names."""
        parameters = {"columns": [{"column": name, "type": str(type), "comment": comment}]}
        return self._alter("ADD COLUMNS", parameters, lambda table: add_column(table, name, type, comment=comment))

    @takes(name=TEXT, type=_TYPE)
    def widen_column(self, name: str, type: Any) -> CommitResult | None:
        """Gives a column a type that holds more, as Delta's type widening allows. No file is rewritten."""
        parameters = {"column": name, "type": str(type)}
        return self._alter("CHANGE COLUMN", parameters, lambda table: widen_column(table, name, type))

    @takes(name=TEXT)
    def make_nullable(self, name: str) -> CommitResult | None:
        """Drops NOT NULL from a column."""
        parameters = {"column": name, "nullable": True}
        return self._alter("CHANGE COLUMN", parameters, lambda table: make_nullable(table, name))

    @takes(name=TEXT, comment=OPTIONAL_TEXT)
    def set_comment(self, name: str, comment: str | None) -> CommitResult | None:
        """Sets a column's comment, or with None removes it."""
        parameters = {"column": name, "comment": comment}
        return self._alter("CHANGE COLUMN", parameters, lambda table: set_comment(table, name, comment))

    @takes(name=TEXT, new_name=TEXT)
    def rename_column(self, name: str, new_name: str) -> CommitResult | None:
        """Gives a column another name, ``new_name`` being its last part. Switches Delta's column mapping on."""
        parameters = {"oldColumnPath": name, "newColumnPath": new_name}
        return self._alter("RENAME COLUMN", parameters, lambda table: rename_column(table, name, new_name))

    @takes(name=TEXT)
    def drop_column(self, name: str) -> CommitResult | None:
        """Drops a column from the head on; older versions still have it. Switches Delta's column mapping on."""
        return self._alter("DROP COLUMNS", {"columns": [name]}, lambda table: drop_column(table, name))

    def constraints(self, version: int | None = None) -> dict[str, str]:
        """The CHECK constraints of the head, or of a version: conditions by name."""
        return constraints_in(self.snapshot(version).metadata.configuration)

    @takes(name=TEXT, if_exists=FLAG)
    def drop_constraint(self, name: str, *, if_exists: bool = False) -> CommitResult | None:
        """Drops a CHECK constraint; case makes no difference. With ``if_exists``, one that is not there is no error."""
        configuration = self.snapshot().metadata.configuration
        key = constraint_key(configuration, name)
        if key is None:
            if if_exists:
                return None
            message = f"there is no such constraint; there are {', '.join(constraints_in(configuration)) or 'none'}"
            raise ValidationError("constraint", [Violation(repr(name), message)])
        parameters = {"name": name, "expr": configuration[key], "existed": "true"}
        return self._alter("DROP CONSTRAINT", parameters, lambda table: drop_constraint(table, name))

    @takes(properties=MAPPING)
    def set_properties(self, properties: Mapping[str, str]) -> CommitResult | None:
        """Sets table properties. What has a door of its own, or can only be chosen at creation, is refused."""
        # What has no JSON is refused below.
        parameters = {"properties": "" if json_problem(properties) else json.dumps(dict(properties))}
        return self._alter("SET TBLPROPERTIES", parameters, lambda table: set_properties(table, properties))

    @takes(names=NAMES, if_exists=FLAG)
    def unset_properties(self, names: Sequence[str], *, if_exists: bool = False) -> CommitResult | None:
        """Removes table properties. With ``if_exists``, those that are not set are no error."""
        parameters = {"properties": json.dumps(list(names)), "ifExists": if_exists}
        change = partial(unset_properties, names=names, if_exists=if_exists)
        return self._alter("UNSET TBLPROPERTIES", parameters, change)

    @in_session
    @takes(column=TEXT)
    def set_default(self, column: str, expression: str, *, spark: Any = None) -> CommitResult | None:
        """Gives a column a default: the value that it has in rows which are written without it from now on.

        An expression in Spark's SQL that reads no column. Rows that exist, and explicit nulls, stay as they are.
        """
        from lakelog.spark.rules.validate import check_default

        def change(table: Layout) -> Layout:
            after = set_default(table, column, expression)
            if after is not table:
                check_default(spark, find_column(table, column), expression)
            return after

        if problem := expression_problem(expression):
            raise ValidationError("default", [Violation(column, problem)])
        return self._alter("CHANGE COLUMN", {"column": column, "default": expression}, change)

    @takes(column=TEXT)
    def drop_default(self, column: str) -> CommitResult | None:
        """Takes a column's default away: from now on it is null in rows that are written without it."""
        parameters = {"column": column, "default": None}
        return self._alter("CHANGE COLUMN", parameters, lambda table: set_default(table, column, None))

    @takes(name=TEXT)
    def add_feature(self, name: str) -> CommitResult | None:
        """Lists a feature of Delta's in the protocol, with what it needs; None if it is there."""
        return change_protocol(self.committer, self.id, lambda protocol: with_feature(protocol, name))

    @takes(reader_version=INTEGER, writer_version=INTEGER)
    def upgrade_protocol(self, reader_version: int, writer_version: int) -> CommitResult | None:
        """Raises Delta's protocol; None if it is as high already, since it never becomes lower."""
        return change_protocol(self.committer, self.id, lambda found: upgraded(found, reader_version, writer_version))

    def _alter(
        self, operation: str, parameters: Mapping[str, Any], change: Callable[[Layout], Layout]
    ) -> CommitResult | None:
        """One commit, or None if there is nothing to change."""
        return alter(self.committer, self.id, operation, parameters, change)
