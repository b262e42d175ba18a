"""The clauses of a merge, as its builder collects them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from lakelog.errors import ValidationError, Violation
from lakelog.spark.dml.assign import Expression
from lakelog.spark.dml.history_text import text_of

if TYPE_CHECKING:
    from pyspark.sql import Column


class When(Enum):
    """What a row must be for a clause to be asked."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    """A row of the source without one in the table."""
    NOT_MATCHED_BY_SOURCE = "not matched by source"
    """A row of the table without one in the source."""


class Act(Enum):
    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One ``when…`` of a merge. Of those that are asked of a row, the first whose condition is true is carried out."""

    when: When
    act: Act
    condition: "str | Column | None" = None
    values: Mapping[str, Expression] | None = None
    """None for a delete, and for an update or insert of all columns."""

    @property
    def is_star(self) -> bool:
        return self.act is not Act.DELETE and self.values is None

    def shown(self) -> dict[str, Any]:
        said = {"actionType": self.act.value}
        return said if self.condition is None else {"predicate": text_of(self.condition), **said}


def check_clauses(clauses: Sequence[Clause]) -> None:
    """Raises ``ValidationError`` for clauses that are never reached, and for a merge without any."""
    if not clauses:
        raise ValidationError("merge", [Violation("clauses", "expected at least one when… clause")])
    problems = []
    for when in When:
        asked = [clause for clause in clauses if clause.when is when]
        problems += [
            Violation(
                f"when {when.value}, clause {number}", "has no condition, so that those after it are never reached"
            )
            for number, clause in enumerate(asked[:-1], 1)
            if clause.condition is None
        ]
    if problems:
        raise ValidationError("merge", problems)


def shown_clauses(clauses: Sequence[Clause], when: When) -> str:
    return json.dumps([clause.shown() for clause in clauses if clause.when is when], ensure_ascii=False)
