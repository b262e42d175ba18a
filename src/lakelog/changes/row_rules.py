"""A table's rules on rows that are Arrow's: those of which it is certain what Spark would say.

That is comparisons of columns with constants and with columns of the same type, IN, BETWEEN and IS NULL, joined by AND,
OR and NOT; and constants as defaults. Everything else is refused before the first row, with what to use instead.
"""

from collections.abc import Callable, Collection, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.errors import ValidationError, Violation
from lakelog.log.pruning.literals import DAY, Family, Kind, Literal, Moment, Rejected, cast, family
from lakelog.log.pruning.predicate import MIRRORED
from lakelog.log.pruning.reader import arguments, literal_of
from lakelog.log.pruning.syntax import tree
from lakelog.schema.rules import Check, Rules

if TYPE_CHECKING:
    from sqlglot import exp

_INSTEAD = "cannot be followed where rows are Python's: write with lakelog.write_dataset, by which Spark does it"
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": pc.equal,
    "neq": pc.not_equal,
    "lt": pc.less,
    "lte": pc.less_equal,
    "gt": pc.greater,
    "gte": pc.greater_equal,
}
_ORDERED = (Family.INTEGER, Family.DECIMAL, Family.STRING, Family.DATE, Family.TIMESTAMP, Family.TIMESTAMP_NTZ)
_NATURAL = {
    Family.INTEGER: Kind.EXACT,
    Family.DECIMAL: Kind.EXACT,
    Family.STRING: Kind.STRING,
    Family.DATE: Kind.DATE,
    Family.BOOLEAN: Kind.BOOLEAN,
}
"""The constants that a column is compared with as what it is."""

_Condition = Callable[[pa.Table], Any]
"""Gives TRUE, FALSE or NULL for each row."""


class RowRules:
    """The rules of a table for data that lacks some of its columns.

    The constructor raises ``ValidationError`` for a rule that cannot be followed here.
    """

    def __init__(self, rules: Rules, schema: pa.Schema, missing: Collection[str]) -> None:
        refused = [Violation(name, f"its expression {sql} {_INSTEAD}") for name, sql in rules.generated.items()]
        refused += [Violation(name, f"its rule {_INSTEAD}") for name in rules.inside]
        self._checks: list[tuple[Check, _Condition]] = []
        self._defaults: dict[str, pa.Scalar] = {}
        for check in rules.checks:
            try:
                self._checks.append((check, _Reader(schema).condition(tree(check.sql))))
            except (Rejected, RecursionError):
                refused.append(Violation(check.owner, f"{check.sql} {_INSTEAD}"))
        for name in missing:
            if name in rules.defaults:
                try:
                    self._defaults[name] = _scalar(literal_of(tree(rules.defaults[name])), schema.field(name).type)
                except (Rejected, RecursionError):
                    refused.append(Violation(name, f"its default {rules.defaults[name]} {_INSTEAD}"))
        if refused:
            raise ValidationError("write", refused)

    def filled(self, table: pa.Table) -> pa.Table:
        """The rows with the defaults of columns that the data lacks."""
        for name, value in self._defaults.items():
            position = table.schema.get_field_index(name)
            values = pa.repeat(value, table.num_rows)
            table = table.set_column(position, table.schema.field(position), values)
        return table

    def problems(self, table: pa.Table) -> list[Violation]:
        """The constraints that rows break, and how many do."""
        found = []
        for check, condition in self._checks:
            broken = pc.invert(pc.fill_null(condition(table), False))
            count = int(pc.sum(broken).as_py() or 0)
            if count:
                found.append(Violation(check.owner, f"{count} rows for which {check.sql} is not true"))
        return found


class _Reader:
    """Turns sqlglot's tree into what pyarrow computes. Raises Rejected where Spark might say something else."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def condition(self, node: "exp.Expr") -> _Condition:
        match node.key:
            case "paren":
                return self.condition(node.this)
            case "not":
                inner = self.condition(node.this)
                return lambda rows: pc.invert(inner(rows))
            case "and" | "or":
                join = pc.and_kleene if node.key == "and" else pc.or_kleene
                left, right = self.condition(node.this), self.condition(node.expression)
                return lambda rows: join(left(rows), right(rows))
            case "boolean":
                value = bool(node.this)
                return lambda rows: pa.repeat(value, rows.num_rows)
            case "is" if arguments(node, "this", "expression").expression.key == "null":
                _, values = self._column(node.this)
                return lambda rows: pc.is_null(values(rows))
            case "eq" | "neq" | "lt" | "lte" | "gt" | "gte":
                arguments(node, "this", "expression")
                return self._comparison(node.key, node.this, node.expression)
            case "between":
                arguments(node, "this", "low", "high")
                bounds = [self._comparison(name, node.this, node.args[end]) for name, end in _ENDS]
                return lambda rows: pc.and_kleene(bounds[0](rows), bounds[1](rows))
            case "in" if arguments(node, "this", "expressions").expressions:
                kind, _ = self._column(node.this)
                if any(literal_of(each).kind is not _NATURAL.get(family(kind)) for each in node.expressions):
                    raise Rejected("the list is not of the column's own kind")
                equal = [self._comparison("eq", node.this, each) for each in node.expressions]
                return lambda rows: _any([each(rows) for each in equal])
            case "column" | "dot":
                kind, values = self._column(node)
                if family(kind) is Family.BOOLEAN:
                    return values
        raise Rejected("only comparisons")

    def _comparison(self, name: str, left: "exp.Expr", right: "exp.Expr") -> _Condition:
        if not _is_column(left):
            name, left, right = MIRRORED.get(name, name), right, left
        kind, values = self._column(left)
        compare = _COMPARISONS[name]
        if _is_column(right):
            other, others = self._column(right)
            if not kind.equals(other) or family(kind) not in _ORDERED:
                raise Rejected("the columns are not of one type")
            return lambda rows: compare(values(rows), others(rows))
        constant = _scalar(literal_of(right), kind, compared=True)
        if not constant.is_valid:
            raise Rejected("NULL is equal to nothing")
        if pa.types.is_floating(kind) and name in ("gt", "gte"):
            # NaN is greater than any number.
            return lambda rows: pc.or_kleene(compare(values(rows), constant), pc.is_nan(values(rows)))
        return lambda rows: compare(values(rows), constant)

    def _column(self, node: "exp.Expr") -> tuple[pa.DataType, _Condition]:
        while node.key == "paren":
            node = node.this
        parts = node.parts if _is_column(node) else []  # type: ignore[attr-defined]
        if node.args.get("join_mark") or any(part.key != "identifier" for part in parts):
            raise Rejected("not a column")
        path: list[int] = []
        fields: Sequence[pa.Field] = list(self._schema)
        for part in parts:
            found = [place for place, field in enumerate(fields) if field.name.lower() == part.name.lower()]
            if len(found) != 1:
                raise Rejected("there is no such column")
            path += found
            kind = fields[found[0]].type
            fields = list(kind) if pa.types.is_struct(kind) else []
        if not path:
            raise Rejected("not a column")
        first, *inside = path
        return kind, lambda rows: pc.struct_field(rows.column(first), inside) if inside else rows.column(first)


_ENDS = (("gte", "low"), ("lte", "high"))


def _is_column(node: "exp.Expr") -> bool:
    while node.key == "paren":
        node = node.this
    return node.key in ("column", "dot")


def _any(conditions: Sequence[Any]) -> Any:
    found = conditions[0]
    for each in conditions[1:]:
        found = pc.or_kleene(found, each)
    return found


def _scalar(literal: Literal, kind: pa.DataType, *, compared: bool = False) -> pa.Scalar:
    """A constant as a value of a column's type, where that is what Spark makes of it. Raises Rejected."""
    if literal.kind is Kind.NULL:
        return pa.scalar(None, kind)
    column = family(kind)
    if compared and column is Family.DATE and literal.kind is Kind.STRING:
        literal = cast(literal, "DATE")
    value = literal.value
    if pa.types.is_float64(kind) and literal.kind in (Kind.EXACT, Kind.DOUBLE) and isinstance(value, Decimal):
        return pa.scalar(float(value), kind)
    if literal.kind is not _NATURAL.get(column):
        raise Rejected("not a constant of the column's own kind")
    try:
        if column is Family.DATE and isinstance(value, Moment):
            return pa.scalar(value.local // DAY, pa.int32()).cast(kind)
        if column is Family.INTEGER and isinstance(value, Decimal):
            if value != value.to_integral_value():
                raise Rejected("not a whole number")
            return pa.scalar(int(value), kind)
        return pa.scalar(bool(value) if column is Family.BOOLEAN else value, kind)
    except (pa.ArrowException, OverflowError) as error:
        raise Rejected("is out of the column's range") from error
