"""Where in a table rows can be that a merge matches: by its condition, and by the keys that its source has."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lakelog.log.pruning.predicate import Everything, Predicate, conjunction
from lakelog.spark.expressions import quoted
from lakelog.spark.frames import aliased
from lakelog.spark.predicates.analysis import empty_frame, filter_predicate, is_connect, predicate_of
from lakelog.spark.predicates.clocks import has_clock
from lakelog.telemetry import log

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LISTED = 1000
"""Values of a partition column that are named one by one."""

_HARMLESS = (
    *("And", "Or", "Not", "IsNull", "IsNotNull", "AttributeReference", "GetStructField"),
    *("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual"),
)
"""Expressions that fail for no value."""

_TIMES = ("timestamp",)
_DAYS = ("date",)
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What a merge's condition and source tell of its matches."""

    predicate: Predicate
    """What holds for every row of the table that any row of the source can match."""
    rows: int
    """Rows of the source."""
    is_harmless: bool
    """Whether the condition can be asked of any row of the table without failing."""


@dataclass(frozen=True, slots=True)
class _Key:
    """A column of the table that a merge's condition wants to be equal to something of the source."""

    column: str
    source: Any
    """The expression of the source as Spark has analysed it. Its text would not do: parsed again, a name may be another
    function's, an hour that a clock repeats the other one, and an escape in a string none."""
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """A merge's condition, taken apart."""

    found: list[Predicate]
    """What it asks of the table's rows alone."""
    keys: list[_Key]
    """What it compares with the source."""
    source: Any
    """Spark's plan of the source, to which the keys belong."""
    is_harmless: bool


def merge_scope(
    spark: "SparkSession",
    schema: pa.Schema,
    alias: str | None,
    source: "DataFrame",
    condition: "Column",
    partitions: tuple[str, ...],
) -> Scope:
    parts = _parts(spark, schema, alias, source, condition)
    if parts is None:
        return Scope(predicate=Everything(), rows=source.count(), is_harmless=False)
    try:
        ranges, rows = _ranges(spark, schema, parts, partitions)
    except (PySparkException, ValueError, OverflowError) as error:
        # Keys of rows that the rest of the condition rules out need not be values. Nobody has to know their range.
        log.debug("the keys of a merge's source tell no range: %s", error)
        ranges, rows = [], source.count()
    return Scope(predicate=conjunction([*parts.found, *ranges]), rows=rows, is_harmless=parts.is_harmless)


def _parts(
    spark: "SparkSession", schema: pa.Schema, alias: str | None, source: "DataFrame", condition: "Column"
) -> _Parts | None:
    """None where Spark keeps its plans to itself, or has planned something else than a join."""
    if is_connect(spark):
        return None
    table = empty_frame(spark, schema)
    joined = aliased(table, alias).join(source, condition, "inner")
    join = joined._jdf.queryExecution().analyzed()
    if join.getClass().getSimpleName() != "Join" or join.condition().isEmpty():
        return None
    ours, theirs = join.left().outputSet(), join.right().outputSet()
    jvm: Any = spark._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    found: list[Predicate] = []
    keys: list[_Key] = []
    for part in _conjuncts(join.condition().get()):
        # What a subquery gives is another thing the next time.
        if catalyst.expressions.SubqueryExpression.hasSubquery(part):
            continue
        if part.references().subsetOf(ours):
            found.append(filter_predicate(spark, schema, catalyst.plans.logical.Filter(part, join.left())))
        elif (key := _key(spark, part, ours, theirs, schema)) is not None:
            keys.append(key)
    harmless = _is_harmless(join.condition().get(), theirs)
    return _Parts(found=found, keys=keys, source=join.right(), is_harmless=harmless)


def _is_harmless(expression: Any, theirs: Any) -> bool:
    """Whether an expression fails for no row of the table, whatever is to be computed of the source's."""
    pending = [expression]
    while pending:
        each = _uncast(pending.pop())
        # Of nothing but the source, or of nothing at all.
        if each.references().subsetOf(theirs):
            continue
        if each.getClass().getSimpleName() not in _HARMLESS:
            return False
        children = each.children()
        pending += [children.apply(index) for index in range(children.size())]
    return True


def never_fails(filtered: "DataFrame") -> bool:
    """Whether a filter fails for no row, as Spark has analysed it, which Spark Connect does not show."""
    if is_connect(filtered.sparkSession):
        return False
    plan = filtered._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "Filter":
        return False
    pending = [plan.condition()]
    while pending:
        each = _uncast(pending.pop())
        if each.getClass().getSimpleName() not in (*_HARMLESS, "Literal"):
            return False
        children = each.children()
        pending += [children.apply(index) for index in range(children.size())]
    return True


def _conjuncts(condition: Any) -> list[Any]:
    if condition.getClass().getSimpleName() != "And":
        return [condition]
    return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]


def _key(spark: "SparkSession", part: Any, ours: Any, theirs: Any, schema: pa.Schema) -> _Key | None:
    if part.getClass().getSimpleName() != "EqualTo":
        return None
    for one, other in ((part.left(), part.right()), (part.right(), part.left())):
        one = _uncast(one)
        if (
            one.getClass().getSimpleName() == "AttributeReference"
            and one.references().subsetOf(ours)
            and other.references().subsetOf(theirs)
            and other.deterministic()
            and not has_clock(spark, other)
            and one.name() in schema.names
        ):
            return _Key(str(one.name()), other, str(one.dataType().simpleString()))
    return None


def _uncast(side: Any) -> Any:
    """An integer that Spark has made wider for the comparison, which its bounds need not be."""
    if side.getClass().getSimpleName() == "Cast" and str(side.dataType().simpleString()) in _INTEGERS:
        child = side.child()
        inner, outer = (str(each.dataType().simpleString()) for each in (child, side))
        return child if inner in _INTEGERS and _INTEGERS.index(inner) <= _INTEGERS.index(outer) else side
    return side


def _ranges(
    spark: "SparkSession", schema: pa.Schema, parts: _Parts, partitions: tuple[str, ...]
) -> tuple[list[Predicate], int]:
    """What the source's own values leave of the table, and how many rows it has: one look at it for all."""
    known = [key for key in parts.keys if _is_ordered(schema.field(key.column).type)]
    source = _keys_of(spark, parts.source, known)
    looked = [F.count(F.lit(1)).alias("rows")]
    for number, key in enumerate(known):
        value = F.col(f"key{number}")
        ends = (F.min(value), F.max(value))
        looked += [
            _told(end, key.type).alias(f"{name}{number}") for end, name in zip(ends, ("low", "high"), strict=True)
        ]
    answer = source.agg(*looked).collect()[0]
    found: list[Predicate] = []
    for number, key in enumerate(known):
        low, high = answer[f"low{number}"], answer[f"high{number}"]
        column = F.col(quoted(key.column))
        inside = F.lit(False) if low is None else column.between(_value(low, key.type), _value(high, key.type))
        named = key.column in partitions and key.type not in _TIMES and low != high
        if named and (listed := _listed(source.select(f"key{number}"), key.type)) is not None:
            inside = column.isin(listed)
        found.append(predicate_of(spark, schema, inside))
    return found, int(answer["rows"])


def _keys_of(spark: "SparkSession", plan: Any, keys: list[_Key]) -> "DataFrame":
    """The keys of all rows of the source, by the expressions that Spark has analysed."""
    # Not there where only Connect is.
    from pyspark.sql.classic.column import Column
    from pyspark.sql.classic.dataframe import DataFrame

    jvm: Any = spark._jvm
    classic = jvm.org.apache.spark.sql.classic
    source = DataFrame(classic.Dataset.ofRows(spark._jsparkSession, plan), spark)
    values = [Column(classic.ExpressionUtils.column(key.source)) for key in keys]
    return source.select(*[value.alias(f"key{number}") for number, value in enumerate(values)])


def _listed(key: "DataFrame", kind: str) -> list[Any] | None:
    """The values of a key, if they are few enough to be named."""
    values = key.distinct().limit(_LISTED + 1).select(_told(F.col(key.columns[0]), kind)).collect()
    if len(values) > _LISTED:
        return None
    known = [row[0] for row in values if row[0] is not None]
    return [_value(each, kind) for each in known] if kind in _DAYS else known


def _is_ordered(kind: pa.DataType) -> bool:
    """Whether a value survives the way through Python, and back into a literal, as it is told."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)) or (
        pa.types.is_timestamp(kind) and kind.tz is not None
    )


def _told(value: "Column", kind: str) -> "Column":
    """An instant as a number, since Python's would be in the zone of the process, and a day as a text.

    Python has fewer days than Spark, and what it has becomes a day of Java's older calendar, which lacks ten of 1582.
    """
    if kind in _DAYS:
        return value.cast("string")
    return F.unix_micros(value) if kind in _TIMES else value


def _value(told: Any, kind: str) -> "Column":
    if kind in _DAYS:
        return F.lit(told).cast("date")
    return F.timestamp_micros(F.lit(told)) if kind in _TIMES else F.lit(told)
