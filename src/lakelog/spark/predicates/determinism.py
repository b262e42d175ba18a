"""Whether expressions give the same answer each time they are asked, as far as Spark tells."""

import re
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from lakelog.errors import ValidationError, Violation
from lakelog.spark.errors import refusing
from lakelog.spark.predicates.analysis import is_connect
from lakelog.spark.predicates.clocks import has_clock

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_Condition = TypeVar("_Condition", "str | Column", "str | Column | None")

_TIMES = r"(?:(?:now|today|yesterday|tomorrow)\b|T?[0-9]{1,2}:)"
_TIME = re.compile(rf"['\"]\s*{_TIMES}", re.IGNORECASE)
_TIME_LITERAL = re.compile(rf"\b(?:DATE|TIMESTAMP\w*)\s*r?['\"]\s*{_TIMES}", re.IGNORECASE)

_NON_DETERMINISTIC = ("AGGREGATE_FUNCTION_WITH_NONDETERMINISTIC_EXPRESSION", "INVALID_NON_DETERMINISTIC_EXPRESSIONS")


def parsed_once(spark: "SparkSession", condition: _Condition, changed: str | None = None) -> _Condition:
    """A condition in which ``DATE 'today'`` is the same day in every query.

    Spark's parser makes a literal of that, and reads a text anew for each query. A client of Connect cannot keep it
    from doing so: a condition that chooses rows to be ``changed`` is refused there.

    Raises ``ValidationError``.
    """
    if condition is None or not _TIME.search(str(condition)):
        return condition
    if is_connect(spark):
        if changed is not None and _TIME_LITERAL.search(str(condition)):
            message = "may mean another day in each query on Spark Connect: write the day itself, or current_date()"
            raise ValidationError(changed, [Violation(str(condition), message)])
        return condition
    from pyspark.sql.classic.column import Column

    asked = F.expr(condition) if isinstance(condition, str) else condition
    jvm: Any = spark._jvm
    session: Any = spark._jsparkSession
    with refusing(changed or "condition", str(condition)):
        return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(session.expression(asked._jc)))


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
