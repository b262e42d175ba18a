"""Whether expressions give the same answer each time they are asked, as far as Spark tells."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from lakelog.spark.predicates import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

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
"""What has another value for the same row at another time, or for somebody else."""


def nodes_of(expression: Any) -> Iterator[Any]:
    """An expression of Spark's, and all that it is made of."""
    yield expression
    children = expression.children()
    for index in range(children.size()):
        yield from nodes_of(children.apply(index))


def has_clock(expression: Any) -> bool:
    """Whether an expression of Spark's depends on the time, or on who asks."""
    return any(node.getClass().getSimpleName() in _CLOCKS for node in nodes_of(expression))


def is_deterministic(filtered: "DataFrame") -> bool:
    """Whether the condition of a frame that was just filtered has one answer for a row, at one time."""
    condition = _condition_of(filtered)
    return condition is None or bool(condition.deterministic())


def is_steady(filtered: "DataFrame") -> bool:
    """Whether that condition has the same answer in a second query; not where Spark keeps its plans to itself."""
    condition = _condition_of(filtered)
    return condition is not None and bool(condition.deterministic()) and not has_clock(condition)


def _condition_of(filtered: "DataFrame") -> Any:
    if is_connect(filtered.sparkSession):
        return None
    plan = filtered._jdf.queryExecution().analyzed()
    return plan.condition() if plan.getClass().getSimpleName() == "Filter" else None
