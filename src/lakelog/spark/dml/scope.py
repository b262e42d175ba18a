"""Where in a table rows can be that a merge matches: by its condition, and by the keys that its source has."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from lakelog.log.pruning.predicate import Everything, Predicate, conjunction
from lakelog.spark.expressions import quoted
from lakelog.spark.predicates import empty_frame, filter_predicate, is_connect, predicate_of
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
    source: str
    """As SQL over the source."""
    type: str


def merge_scope(
    spark: "SparkSession",
    schema: pa.Schema,
    alias: str | None,
    source: "DataFrame",
    condition: "Column",
    partitions: tuple[str, ...],
) -> Scope:
    found, keys, is_harmless = _parts(spark, schema, alias, source, condition)
    try:
        ranges, rows = _ranges(spark, schema, source, keys, partitions)
    except (PySparkException, ValueError, OverflowError) as error:
        # Keys of rows that the rest of the condition rules out need not be values. Nobody has to know their range.
        log.debug("the keys of a merge's source tell no range: %s", error)
        ranges, rows = [], source.count()
    return Scope(predicate=conjunction([*found, *ranges]), rows=rows, is_harmless=is_harmless)


def _parts(
    spark: "SparkSession", schema: pa.Schema, alias: str | None, source: "DataFrame", condition: "Column"
) -> tuple[list[Predicate], list[_Key], bool]:
    """What the condition itself asks of the table's rows, what it compares with the source, and if that cannot fail."""
    if is_connect(spark):
        return [Everything()], [], False
    table = empty_frame(spark, schema)
    joined = (table.alias(alias) if alias else table).join(source, condition, "inner")
    join = joined._jdf.queryExecution().analyzed()
    if join.getClass().getSimpleName() != "Join" or join.condition().isEmpty():
        return [Everything()], [], False
    ours, theirs = join.left().outputSet(), join.right().outputSet()
    found: list[Predicate] = []
    keys: list[_Key] = []
    for part in _conjuncts(join.condition().get()):
        references = part.references()
        if references.subsetOf(ours):
            jvm: Any = spark._jvm
            plan = jvm.org.apache.spark.sql.catalyst.plans.logical.Filter(part, join.left())
            found.append(filter_predicate(spark, schema, plan))
        elif (key := _key(part, ours, theirs, schema)) is not None:
            keys.append(key)
    return found, keys, _is_harmless(join.condition().get(), theirs)


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


def _conjuncts(condition: Any) -> list[Any]:
    if condition.getClass().getSimpleName() != "And":
        return [condition]
    return [*_conjuncts(condition.left()), *_conjuncts(condition.right())]


def _key(part: Any, ours: Any, theirs: Any, schema: pa.Schema) -> _Key | None:
    if part.getClass().getSimpleName() != "EqualTo":
        return None
    for one, other in ((part.left(), part.right()), (part.right(), part.left())):
        one = _uncast(one)
        if (
            one.getClass().getSimpleName() == "AttributeReference"
            and one.references().subsetOf(ours)
            and other.references().subsetOf(theirs)
            and other.deterministic()
            and one.name() in schema.names
        ):
            return _Key(str(one.name()), str(other.sql()), str(one.dataType().simpleString()))
    return None


def _uncast(side: Any) -> Any:
    """An integer that Spark has made wider for the comparison, which its bounds need not be."""
    if side.getClass().getSimpleName() == "Cast" and str(side.dataType().simpleString()) in _INTEGERS:
        child = side.child()
        inner, outer = (str(each.dataType().simpleString()) for each in (child, side))
        return child if inner in _INTEGERS and _INTEGERS.index(inner) <= _INTEGERS.index(outer) else side
    return side


def _ranges(
    spark: "SparkSession", schema: pa.Schema, source: "DataFrame", keys: list[_Key], partitions: tuple[str, ...]
) -> tuple[list[Predicate], int]:
    """What the source's own values leave of the table, and how many rows it has: one look at it for all."""
    known = [key for key in keys if _is_ordered(schema.field(key.column).type)]
    looked = [F.count(F.lit(1)).alias("rows")]
    for number, key in enumerate(known):
        value = _number(F.expr(key.source), key.type)
        looked += [F.min(value).alias(f"low{number}"), F.max(value).alias(f"high{number}")]
    answer = source.agg(*looked).collect()[0]
    found: list[Predicate] = []
    for number, key in enumerate(known):
        low, high = answer[f"low{number}"], answer[f"high{number}"]
        column = F.col(quoted(key.column))
        inside = F.lit(False) if low is None else column.between(_value(low, key.type), _value(high, key.type))
        if key.column in partitions and low != high and (listed := _listed(source, key)) is not None:
            inside = column.isin(listed)
        found.append(predicate_of(spark, schema, inside))
    return found, int(answer["rows"])


def _listed(source: "DataFrame", key: _Key) -> list[Any] | None:
    """The values of a key, if they are few enough to be named."""
    if key.type in _TIMES:
        return None
    values = source.select(F.expr(key.source)).distinct().limit(_LISTED + 1).collect()
    return None if len(values) > _LISTED else [row[0] for row in values if row[0] is not None]


def _is_ordered(kind: pa.DataType) -> bool:
    """Whether a value survives the way through Python, and back into a literal."""
    return bool(pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_date(kind)) or (
        pa.types.is_timestamp(kind) and kind.tz is not None
    )


def _number(value: "Column", kind: str) -> "Column":
    """An instant as a number: Python's would be in the zone of the process."""
    return F.unix_micros(value) if kind in _TIMES else value


def _value(bound: Any, kind: str) -> "Column":
    return F.timestamp_micros(F.lit(bound)) if kind in _TIMES else F.lit(bound)
