"""What in an expression of Spark's has another value at another time, or for somebody else."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLOCKS = (
    "CurrentCatalog",
    "CurrentDatabase",
    "CurrentDate",
    "CurrentTime",
    "CurrentTimeZone",
    "CurrentTimestamp",
    "CurrentUser",
    "LocalTimestamp",
    "Now",
)

_HOUR = re.compile(r"CAST\('\s*T?[0-9]{1,2}:[^']*' AS TIMESTAMP", re.IGNORECASE)


def nodes_of(expression: Any) -> Iterator[Any]:
    """An expression of Spark's, and all that it is made of."""
    yield expression
    children = expression.children()
    for index in range(children.size()):
        yield from nodes_of(children.apply(index))


def has_clock(spark: "SparkSession", expression: Any) -> bool:
    """Whether an expression of Spark's depends on the time, or on who asks."""
    jvm: Any = spark._jvm
    catalyst = jvm.org.apache.spark.sql.catalyst
    logical = catalyst.plans.logical
    replaced = catalyst.optimizer.ReplaceExpressions.apply(logical.Filter(expression, logical.OneRowRelation()))
    condition = replaced.condition()
    # Texts such as 'today' become times by a rule of their own.
    timed = catalyst.optimizer.SpecialDatetimeValues.apply(replaced).condition()
    return (
        not condition.equals(timed)
        or has_hour(condition)
        or any(node.getClass().getSimpleName() in _CLOCKS for node in nodes_of(condition))
    )


def has_hour(expression: Any) -> bool:
    """Whether a text such as '12:00' becomes a time, which is one of the day on which it is asked."""
    return _HOUR.search(str(expression.sql())) is not None
