"""``MergeBuilder``: a merge, said clause by clause, under the names that Delta's users know."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, TypeVar

from lakelog.errors import ValidationError, Violation
from lakelog.spark.dml.assign import Expression
from lakelog.spark.dml.clauses import Act, Clause, When
from lakelog.spark.dml.merge import Merge
from lakelog.spark.errors import spark_doors

if TYPE_CHECKING:
    from pyspark.sql import Column

Result = TypeVar("Result")
Values = Mapping[str, Expression]


@spark_doors
class MergeBuilder(Generic[Result]):
    """Each method gives a new builder with one clause more; ``execute`` carries them out, in one commit.

    Of the clauses for matched rows, for rows of the source that match nothing, and for rows of the table that match
    nothing, the first whose condition is true is carried out for a row. A row that none is carried out for stays.
    """

    def __init__(self, merge: Merge, run: Callable[[Merge], Result]) -> None:
        self._merge = merge
        self._run = run

    def whenMatchedUpdate(
        self, condition: "str | Column | None" = None, set: Values | None = None
    ) -> "MergeBuilder[Result]":
        """Sets columns of a row of the table that a row of the source matches."""
        return self._with(When.MATCHED, Act.UPDATE, condition, _given(set, "set"))

    def whenMatchedUpdateAll(self, condition: "str | Column | None" = None) -> "MergeBuilder[Result]":
        """Sets all columns to those of the source's row."""
        return self._with(When.MATCHED, Act.UPDATE, condition)

    def whenMatchedDelete(self, condition: "str | Column | None" = None) -> "MergeBuilder[Result]":
        """Deletes a row of the table that a row of the source matches."""
        return self._with(When.MATCHED, Act.DELETE, condition)

    def whenNotMatchedInsert(
        self, condition: "str | Column | None" = None, values: Values | None = None
    ) -> "MergeBuilder[Result]":
        """Adds a row for a row of the source that matches nothing."""
        return self._with(When.NOT_MATCHED, Act.INSERT, condition, _given(values, "values"))

    def whenNotMatchedInsertAll(self, condition: "str | Column | None" = None) -> "MergeBuilder[Result]":
        """Adds a row of the source that matches nothing as it is."""
        return self._with(When.NOT_MATCHED, Act.INSERT, condition)

    def whenNotMatchedBySourceUpdate(
        self, condition: "str | Column | None" = None, set: Values | None = None
    ) -> "MergeBuilder[Result]":
        """Sets columns of a row of the table that no row of the source matches."""
        return self._with(When.NOT_MATCHED_BY_SOURCE, Act.UPDATE, condition, _given(set, "set"))

    def whenNotMatchedBySourceDelete(self, condition: "str | Column | None" = None) -> "MergeBuilder[Result]":
        """Deletes a row of the table that no row of the source matches."""
        return self._with(When.NOT_MATCHED_BY_SOURCE, Act.DELETE, condition)

    def withSchemaEvolution(self) -> "MergeBuilder[Result]":
        """Lets the merge add columns of the source, and widen columns of the table."""
        return MergeBuilder(replace(self._merge, schema_evolution=True), self._run)

    def execute(self) -> Result:
        return self._run(self._merge)

    def _with(
        self, when: When, act: Act, condition: "str | Column | None", values: Values | None = None
    ) -> "MergeBuilder[Result]":
        clause = Clause(when=when, act=act, condition=condition, values=values)
        return MergeBuilder(replace(self._merge, clauses=(*self._merge.clauses, clause)), self._run)


def _given(values: Values | None, argument: str) -> Values:
    if not isinstance(values, Mapping) or not values:
        raise ValidationError("merge", [Violation(argument, f"expected columns and their values, got {values!r}")])
    return values
