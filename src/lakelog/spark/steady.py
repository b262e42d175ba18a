"""Whether expressions give the same answer each time they are asked, as far as Spark tells."""

from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from lakelog.errors import ValidationError, Violation
from lakelog.spark.clocks import has_clock
from lakelog.spark.predicates import is_connect

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NON_DETERMINISTIC = ("AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION", "INVALID_NON_DETERMINISTIC_EXPRESSIONS")


def refuse_changing(frame: "DataFrame", condition: "str | Column", what: str) -> None:
    """Raises ``ValidationError`` for a condition on a frame that may have another answer for a row each time."""
    if not _is_deterministic(frame, condition):
        raise ValidationError(what, [Violation(str(condition), "gives another answer each time it is asked")])


def _is_deterministic(frame: "DataFrame", condition: "str | Column") -> bool:
    if not is_connect(frame.sparkSession):
        analysed = _condition_of(frame.where(condition))
        return analysed is None or bool(analysed.deterministic())
    # Spark refuses such a condition in an aggregate, and that is all that a client of Connect can learn of it. A join
    # would refuse subqueries, too, that a filter takes.
    try:
        frame.agg(F.max(F.expr(condition) if isinstance(condition, str) else condition)).schema  # noqa: B018
    except AnalysisException as error:
        return error.getCondition() not in _NON_DETERMINISTIC
    return True


def is_steady(filtered: "DataFrame") -> bool:
    """Whether the condition of a frame that was just filtered has the same answer in a second query.

    False where Spark keeps its plans to itself.
    """
    condition = _condition_of(filtered)
    if condition is None or not condition.deterministic():
        return False
    jvm: Any = filtered.sparkSession._jvm
    # What a subquery reads may be changed by somebody in between.
    has_subquery = jvm.org.apache.spark.sql.catalyst.expressions.SubqueryExpression.hasSubquery(condition)
    return not has_subquery and not has_clock(filtered.sparkSession, condition)


def _condition_of(filtered: "DataFrame") -> Any:
    if is_connect(filtered.sparkSession):
        return None
    plan = filtered._jdf.queryExecution().analyzed()
    return plan.condition() if plan.getClass().getSimpleName() == "Filter" else None
