"""What a condition means for pruning, by Spark's own analysis of it.

Spark resolves names, casts both sides of a comparison, knows the session's zone and what day it is. What is left here
is to walk the analysed expression and to keep what bounds can answer; anything else may match in any file.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException

from lakelog.errors import ValidationError
from lakelog.log.pruning.bounds import next_text
from lakelog.log.pruning.literals import DAY, Span
from lakelog.log.pruning.predicate import (
    MIRRORED,
    OPPOSITE,
    Condition,
    Everything,
    IsNull,
    Nothing,
    NotNull,
    Predicate,
    conjunction,
    disjunction,
    interval,
    placed,
)
from lakelog.log.pruning.reader import depends_on_settings, parse
from lakelog.schema.leaves import join_path, leaf_columns
from lakelog.schema.mapping import readable
from lakelog.schema.spark import to_spark
from lakelog.spark.errors import refusing
from lakelog.spark.frames import aliased
from lakelog.spark.predicates.clocks import has_hour
from lakelog.spark.predicates.constants import TIMES, Term, is_storable, span_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LISTED = 5_000
"""Values of an IN list that are fetched from the JVM; of a longer one only the smallest and the largest."""

_REMEMBERED = 64
_guard = threading.Lock()
_empty: "OrderedDict[tuple[SparkSession, bytes], DataFrame]" = OrderedDict()
"""Empty frames by schema, the latest last."""

_COMPARISONS = {
    "EqualTo": "eq",
    "LessThan": "lt",
    "LessThanOrEqual": "lte",
    "GreaterThan": "gt",
    "GreaterThanOrEqual": "gte",
}

_CLOCKS = ("CurrentTimestamp", "Now", "CurrentDate", "LocalTimestamp")
_STEADY = (
    "Cast",
    "DateAdd",
    "DateSub",
    "DateAddInterval",
    "DateAddYMInterval",
    "AddMonths",
    "TimestampAddInterval",
    "TimestampAddYMInterval",
    "TruncDate",
    "TruncTimestamp",
)
"""Functions that give a later time for a later time."""


def is_connect(spark: "SparkSession") -> bool:
    """Whether the session is a client of Spark Connect, which keeps its plans to itself."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def empty_frame(spark: "SparkSession", schema: pa.Schema) -> "DataFrame":
    """No rows, under a table's schema. It is made once: every column takes several calls of the JVM."""
    key = (spark, schema.remove_metadata().serialize().to_pybytes())
    with _guard:
        frame = _empty.pop(key, None)
        if frame is None:
            # Nothing is below it in which Spark could find a column that the table does not have.
            fields = map(readable, schema)
            frame = spark.createDataFrame([], to_spark(pa.schema(fields).remove_metadata()))
        _empty[key] = frame
        while len(_empty) > _REMEMBERED:
            _empty.popitem(last=False)
    return frame


def predicate_of(spark: "SparkSession", schema: pa.Schema, where: "str | Column") -> Predicate:
    """The normal form of a condition over a table's columns, as this session understands it.

    Raises ``ValidationError`` with Spark's message for a condition that Spark refuses.
    """
    plan = _analysed(spark, schema, where)
    return _parsed(schema, where) if plan is None else _Walker(spark, schema, plan).rows()


def filter_predicate(spark: "SparkSession", schema: pa.Schema, plan: Any) -> Predicate:
    """The normal form of the condition of a filter in one of Spark's plans, right above a table."""
    return _Walker(spark, schema, plan).rows()


def condition_of(
    spark: "SparkSession", schema: pa.Schema, where: "str | Column", alias: str | None = None
) -> Condition:
    """The same, from both sides. The condition may call the table by the alias."""
    plan = _analysed(spark, schema, where, alias)
    if plan is None:
        is_column = alias is not None and alias.lower() in map(str.lower, schema.names)
        # What begins with that name may be a column of the table, or a field of the column.
        found = Everything() if is_column else _parsed(schema, where)
        return Condition(found, Everything(), ((_shown(where), found),))
    return _Walker(spark, schema, plan).condition(_shown(where))


def columns_read(
    spark: "SparkSession", schema: pa.Schema, where: "str | Column", alias: str | None = None
) -> set[str] | None:
    """The columns that decide whether a row matches; None if something else may, or nobody knows."""
    plan = _analysed(spark, schema, where, alias)
    if plan is None or plan.getClass().getSimpleName() != "Filter" or not plan.deterministic():
        return None
    found = plan.condition().references().toSeq()
    return {str(found.apply(index).name()) for index in range(found.size())}


def _analysed(spark: "SparkSession", schema: pa.Schema, where: "str | Column", alias: str | None = None) -> Any:
    """Spark's plan of an empty table with a condition; None where Spark keeps its plans to itself."""
    with refusing("predicate", _shown(where)):
        filtered = aliased(empty_frame(spark, schema), alias).where(where)
        if is_connect(spark):
            filtered.schema  # noqa: B018  # the server's answer is the check
            return None
        return filtered._jdf.queryExecution().analyzed()


def _parsed(schema: pa.Schema, where: "str | Column") -> Predicate:
    """Without Spark's analysis: by the text alone, where its meaning cannot depend on the session's settings.

    The settings may also change between now and the query, so their present values do not help.
    """
    if not isinstance(where, str) or depends_on_settings(where):
        return Everything()
    names = {leaf.name: leaf.type for leaf in leaf_columns(schema) if not pa.types.is_timestamp(leaf.type)}
    try:
        return parse(where, names)
    except ValidationError:
        return Everything()


def _shown(where: "str | Column") -> str:
    text = where if isinstance(where, str) else str(where)
    return text if len(text) <= 200 else f"{text[:200]}…"


@dataclass(frozen=True, slots=True)
class _Node:
    """An expression as it was analysed, and with the time of day put in. Both trees have the same shape."""

    analysed: Any
    timed: Any

    @property
    def name(self) -> str:
        return str(self.analysed.getClass().getSimpleName())

    @property
    def type(self) -> str:
        return str(self.analysed.dataType().simpleString())

    @property
    def children(self) -> "list[_Node]":
        ours, timed = self.analysed.children(), self.timed.children()
        return [_Node(ours.apply(index), timed.apply(index)) for index in range(ours.size())]

    @property
    def foldable(self) -> bool:
        return bool(self.timed.foldable())

    @property
    def is_constant(self) -> bool:
        """Whether time changes nothing."""
        return bool(self.analysed.equals(self.timed)) and not has_hour(self.timed)

    @property
    def value(self) -> Any:
        """As Spark holds it: dates are days and timestamps microseconds since 1970."""
        return _plain(self.timed.eval(None))

    def grows(self) -> bool:
        """Whether the value of a constant never goes back as time goes on."""
        if self.is_constant or self.name in _CLOCKS:
            return True
        return self.name in _STEADY and self.type in TIMES and all(child.grows() for child in self.children)


class _Unknown(Exception):
    """What bounds say nothing about."""


class _Walker:
    """Turns an analysed expression into the normal form."""

    def __init__(self, spark: "SparkSession", schema: pa.Schema, plan: Any) -> None:
        jvm: Any = spark._jvm
        self._catalyst = jvm.org.apache.spark.sql.catalyst
        self._errors = _errors()
        self._schema = schema
        self._shared: dict[str, _Node] = {}
        self._root: _Node | None = None
        if plan.getClass().getSimpleName() == "Filter":
            rules = self._catalyst.optimizer
            replaced = rules.ReplaceExpressions.apply(plan)
            # A text such as 'today' is a time only after the second of these rules, and no time at all before.
            timed = rules.SpecialDatetimeValues.apply(rules.ComputeCurrentTime.apply(replaced))
            self._root = _Node(replaced.condition(), timed.condition())

    def rows(self) -> Predicate:
        """Where the rows are that the plan's filter leaves."""
        try:
            return Everything() if self._root is None else self._rows(self._root, True)
        except RecursionError:
            return Everything()

    def condition(self, text: str) -> Condition:
        """The plan's filter from both sides."""
        unknown = Condition(Everything(), Everything(), ((text, Everything()),))
        if self._root is None:
            return unknown
        try:
            parts = [(str(node.analysed.sql()), self._rows(node, True)) for node in _joined(self._root)]
            others = disjunction([self._rows(self._root, False), self._nulls(self._root)])
        except RecursionError:
            return unknown
        return Condition(conjunction(form for _, form in parts), others, tuple(parts))

    def _nulls(self, node: _Node) -> Predicate:
        """The rows for which the condition may be NULL."""
        name = node.name
        if name in ("Not", "And", "Or"):
            return disjunction(map(self._nulls, node.children))
        if name == "With":
            return self._nulls(self._inside(node))
        if name in ("IsNull", "IsNotNull", "EqualNullSafe"):
            return Nothing()
        if node.foldable or name not in (*_COMPARISONS, "In", "StartsWith", "Like", "AttributeReference"):
            return Nothing() if node.is_constant and node.foldable and node.value is not None else Everything()
        try:
            operands = [node] if name == "AttributeReference" else node.children
            return disjunction(self._null_operand(operand) for operand in operands)
        except self._errors:
            return Everything()

    def _null_operand(self, node: _Node) -> Predicate:
        if node.foldable:
            return Nothing() if node.value is not None else Everything()
        return _nullness(self._term(node), True)

    def _rows(self, node: _Node, wanted: bool) -> Predicate:
        """The rows for which the condition is TRUE, or, if that is not wanted, FALSE; never those where it is NULL."""
        name = node.name
        if name == "Not":
            return self._rows(node.children[0], not wanted)
        if name in ("And", "Or"):
            items = [self._rows(child, wanted) for child in node.children]
            return conjunction(items) if (name == "And") == wanted else disjunction(items)
        if name == "With":
            return self._rows(self._inside(node), wanted)
        try:
            return self._leaf(name, node, wanted)
        except self._errors:
            return Everything()

    def _inside(self, node: _Node) -> _Node:
        """An expression that names parts of itself, of which Spark makes each once; they are known from here on."""
        inside, *definitions = node.children
        self._shared |= {_id(each): each.children[0] for each in definitions}
        return inside

    def _leaf(self, name: str, node: _Node, wanted: bool) -> Predicate:
        if node.foldable:
            if not node.is_constant:
                raise _Unknown
            return Everything() if node.value is wanted else Nothing()
        if name in _COMPARISONS:
            return self._comparison(_COMPARISONS[name], node.children, wanted)
        if name == "EqualNullSafe":
            return self._null_safe(node.children, wanted)
        if name in ("IsNull", "IsNotNull"):
            return _nullness(self._term(node.children[0]), (name == "IsNull") == wanted)
        if name == "In":
            return self._in(node, wanted)
        if name in ("StartsWith", "Like"):
            return self._text(name, node, wanted)
        term = self._term(node)
        if term.casts != ("boolean",):
            raise _Unknown
        return interval(term.column, int(wanted), True, int(wanted), True)

    def _comparison(self, operator: str, sides: Sequence[_Node], wanted: bool) -> Predicate:
        left, right = sides
        if left.foldable:
            left, right, operator = right, left, MIRRORED.get(operator, operator)
        operator = operator if wanted else OPPOSITE[operator]
        if not right.foldable:
            raise _Unknown
        term = self._term(left)
        if right.is_constant:
            value = right.value
            return Nothing() if value is None else placed(term.column, operator, span_of(term, value))
        if not right.grows():
            return NotNull(term.column)
        # The rows are read later than this is computed, perhaps much later, so only what is before now is settled.
        value = right.value
        if value is None:
            raise _Unknown
        span = span_of(term, value)
        low = span.low - DAY if isinstance(span.low, int) else None
        return placed(term.column, "gte" if operator in ("eq", "gt", "gte") else "neq", Span(low, None))

    def _null_safe(self, sides: Sequence[_Node], wanted: bool) -> Predicate:
        left, right = sides if not sides[0].foldable else (sides[1], sides[0])
        if not (right.foldable and right.is_constant):
            raise _Unknown
        term, value = self._term(left), right.value
        if value is None:
            return _nullness(term, wanted)
        found = placed(term.column, "eq" if wanted else "neq", span_of(term, value))
        return found if wanted else disjunction([found, _nullness(term, True)])

    def _in(self, node: _Node, wanted: bool) -> Predicate:
        term = self._term(_Node(node.analysed.value(), node.timed.value()))
        listed = node.timed.list()
        expressions = self._catalyst.expressions
        values = expressions.CreateArray(listed, False)
        if not (node.is_constant and values.foldable()):
            raise _Unknown
        if listed.size() > _LISTED:
            low, high = (_plain(kind(listed).eval(None)) for kind in (expressions.Least, expressions.Greatest))
            if not wanted or low is None:
                return NotNull(term.column)
            return interval(term.column, span_of(term, low).low, True, span_of(term, high).high, True)
        found = [_plain(value) for value in values.eval(None).array()]
        known = [value for value in found if value is not None]
        if not found and not wanted:
            return Everything()
        if not known or (len(known) < len(found) and not wanted):
            return Nothing()
        items = [placed(term.column, "eq" if wanted else "neq", span_of(term, value)) for value in known]
        return disjunction(items) if wanted else conjunction(items)

    def _text(self, name: str, node: _Node, wanted: bool) -> Predicate:
        subject, pattern = node.children
        term = self._term(subject)
        if term.casts != ("string",) or not (pattern.foldable and pattern.is_constant) or pattern.type != "string":
            raise _Unknown
        text = pattern.value
        if text is None:
            return Nothing()
        if name == "Like":
            special = {"%", "_", str(node.analysed.escapeChar())}
            cut = next((index for index, character in enumerate(text) if character in special), None)
            if cut is None:
                return placed(term.column, "eq" if wanted else "neq", span_of(term, text))
            text = text[:cut]
        if not wanted or not text or not is_storable(text):
            return NotNull(term.column)
        return interval(term.column, text, True, next_text(text), False)

    def _term(self, node: _Node) -> Term:
        """Raises _Unknown for anything but a column under casts."""
        name = node.name
        if name == "CommonExpressionRef":
            return self._term(self._shared[_id(node)])
        if name == "Cast":
            term = self._term(node.children[0])
            return replace(term, casts=(*term.casts, node.type))
        path: list[str] = []
        kind = self._field(node, path).type
        if kind is None:
            raise _Unknown
        return Term(join_path(path), kind, (node.type,))

    def _field(self, node: _Node, path: list[str]) -> pa.Field:
        """The field that an expression reads, and its path."""
        if node.name == "AttributeReference":
            field = self._schema.field(str(node.analysed.name()))
        elif node.name == "GetStructField":
            parent = self._field(node.children[0], path)
            if not pa.types.is_struct(parent.type):
                raise _Unknown
            field = parent.type.field(int(node.analysed.ordinal()))
        else:
            raise _Unknown
        path.append(field.name)
        return field


def _errors() -> tuple[type[Exception], ...]:
    """What a constant that has no value may raise: Spark says the same, or nothing, when it comes to it."""
    # Not there where only Connect is.
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]

    return _Unknown, PySparkException, Py4JError, ArithmeticError, ValueError, LookupError


def _joined(node: _Node) -> list[_Node]:
    """What a condition joins by AND."""
    return [part for child in node.children for part in _joined(child)] if node.name == "And" else [node]


def _id(node: _Node) -> str:
    return str(node.analysed.id().toString())


def _plain(value: Any) -> Any:
    """A value of the JVM; strings and decimals come as objects."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, bytes):  # of which no bounds are kept
        raise _Unknown
    kind = value.getClass().getSimpleName()
    if kind == "UTF8String":
        return str(value.toString())
    if kind == "Decimal":
        return Decimal(str(value.toString()))
    raise _Unknown


def _nullness(term: Term, null: bool) -> Predicate:
    if not null:
        return NotNull(term.column)
    # A cast that fails gives null in some sessions.
    return IsNull(term.column) if len(set(term.casts)) == 1 else Everything()
