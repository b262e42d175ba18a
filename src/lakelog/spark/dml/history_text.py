"""Conditions and clauses as a table's history shows them, in Delta's form: JSON inside a text."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def shown_condition(condition: "str | Column | None") -> str:
    return json.dumps([] if condition is None else [text_of(condition)], ensure_ascii=False)


def text_of(condition: "str | Column") -> str:
    """A condition as a person wrote it, or as Spark shows it."""
    if isinstance(condition, str):
        return condition
    text = str(condition)
    return text[len("Column<'") : -len("'>")] if text.startswith("Column<'") else text
