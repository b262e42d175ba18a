"""Where in a table rows can be that a merge matches: by its condition, and by the keys that its source has."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from lakelog.log.pruning.predicate import Everything, Predicate, conjunction
from lakelog.spark.expressions import quoted
from lakelog.spark.predicates import empty_frame, filter_predicate, is_connect, predicate_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_LISTED = 1000
"""Values of a partition column that are named one by one."""

_TIMES = ("timestamp",)
_INTEGERS = ("tinyint", "smallint", "int", "bigint")


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
) -> Predicate:
    """Holds for every row of the table that any row of the source can match. The source is read for it."""
    if is_connect(spark):
        return Everything()
    table = empty_frame(spark, schema)
    joined = (table.alias(alias) if alias else table).join(source, condition, "inner")
    join = joined._jdf.queryExecution().analyzed()
    if join.getClass().getSimpleName() != "Join" or join.condition().isEmpty():
        return Everything()
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
    return conjunction([*found, *_ranges(spark, schema, source, keys, partitions)])


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
        return child if str(child.dataType().simpleString()) in _INTEGERS else side
    return side


def _ranges(
    spark: "SparkSession", schema: pa.Schema, source: "DataFrame", keys: list[_Key], partitions: tuple[str, ...]
) -> list[Predicate]:
    """What the source's own values leave of the table."""
    plain = [key for key in keys if _is_ordered(schema.field(key.column).type)]
    found: list[Predicate] = []
    for key in [key for key in plain if key.column in partitions and key.type not in _TIMES]:
        values = source.select(F.expr(key.source).alias("value")).distinct().limit(_LISTED + 1).collect()
        if len(values) <= _LISTED:
            plain.remove(key)
            known = [row[0] for row in values if row[0] is not None]
            column = F.col(quoted(key.column))
            found.append(predicate_of(spark, schema, column.isin(known) if known else F.lit(False)))
    if not plain:
        return found
    bounds = source.agg(
        *[
            end(_number(F.expr(key.source), key.type)).alias(f"{name}{number}")
            for number, key in enumerate(plain)
            for name, end in (("low", F.min), ("high", F.max))
        ]
    ).collect()[0]
    for number, key in enumerate(plain):
        low, high = bounds[f"low{number}"], bounds[f"high{number}"]
        if low is None:
            return [predicate_of(spark, schema, F.lit(False))]
        column = F.col(quoted(key.column))
        inside = (column >= _value(low, key.type)) & (column <= _value(high, key.type))
        found.append(predicate_of(spark, schema, inside))
    return found


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
