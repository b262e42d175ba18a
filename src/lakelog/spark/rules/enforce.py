"""A table's rules in Spark: what rows must not be, counted while they are written, and the values that they lack.

Whoever writes rows does both: ``filled`` gives a frame the columns that it lacks, ``broken_rules`` the conditions to
count on what comes out.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from lakelog.errors import ValidationError, Violation
from lakelog.log.state import TableMetadata
from lakelog.schema.leaves import join_path
from lakelog.schema.rules import Check
from lakelog.spark.errors import refusing
from lakelog.spark.expressions import quoted, spark_type
from lakelog.spark.predicates.analysis import empty_frame, is_connect

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

_SHOWN = 200
"""Characters of a row's values in a message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A rule, as the rows that break it."""

    where: str
    what: str
    """What is wrong with them, in words that follow their number."""
    condition: "Column"
    """TRUE for each such row, and never NULL."""
    values: "Column"
    """What such a row has in the columns that decide it, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """What Spark makes of an expression over some columns."""

    type: "DataType"
    columns: tuple[str, ...]
    """Those that it reads; all of them where Spark keeps its plans to itself."""
    plan: Any = None
    """The analysed projection; None where Spark keeps it to itself."""


def broken_rules(spark: "SparkSession", metadata: TableMetadata, computed: Collection[str] = ()) -> list[Broken]:
    """What no row may be that is written to a table, as conditions on rows that have all of its columns.

    Columns that ``filled`` has computed need not be looked at again. Raises ``ValidationError`` for a rule that Spark
    does not understand: then nothing may be written.
    """
    found: list[Broken] = []
    problems: list[Violation] = []
    for check in metadata.rules.checks:
        try:
            found.append(broken_check(spark, metadata.schema, check))
        except ValidationError as error:
            problems += _unclear(check.owner, error)
    for name, sql in metadata.rules.generated.items():
        try:
            # What was computed is right by itself, unless the column's type made something else of it.
            kind = meaning_of(spark, base_columns(metadata), sql).type
            if name in computed and kind == spark_type(metadata.schema.field(name).type):
                continue
            found.append(_broken_generated(spark, metadata.schema, name, sql))
        except ValidationError as error:
            problems += _unclear(name, error)
    if problems:
        raise ValidationError("the table's rules", problems)
    return found


def broken_check(spark: "SparkSession", schema: pa.Schema, check: Check) -> Broken:
    """A condition, as the rows for which it is not TRUE. Raises ``ValidationError`` if Spark does not understand it."""
    meaning = meaning_of(spark, schema, check.sql)
    if not isinstance(meaning.type, BooleanType):
        raise ValidationError(
            "expression", [Violation(check.sql, f"is {meaning.type.simpleString()}, not a condition")]
        )
    return Broken(
        where=check.owner,
        what=f"rows for which {check.sql} is not true",
        condition=~F.coalesce(F.expr(check.sql), F.lit(False)),
        values=_values(meaning.columns),
    )


def _broken_generated(spark: "SparkSession", schema: pa.Schema, name: str, sql: str) -> Broken:
    rule = broken_check(spark, schema, Check(join_path([name]), generated_condition(name, sql)))
    return replace(rule, what=f"rows in which it is not {sql}, as which it is generated")


def generated_condition(name: str, sql: str) -> str:
    """What holds for every row of a table with a generated column."""
    return f"{quoted(name)} <=> ({sql}\n)"


def filled(rows: "DataFrame", metadata: TableMetadata, missing: Collection[str]) -> "DataFrame":
    """Rows that have all of the table's columns, with values for those that the data lacked: defaults, or generated."""
    rules = metadata.rules
    for expressions in (rules.defaults, rules.generated):
        wanted = {name: sql for name, sql in expressions.items() if name in missing}
        if wanted:
            # Generated columns read the others, so those have their values before.
            rows = rows.select(
                *[
                    F.expr(wanted[name]).cast(spark_type(metadata.schema.field(name).type)).alias(name)
                    if name in wanted
                    else F.col(quoted(name))
                    for name in rows.columns
                ]
            )
    return rows


def base_columns(metadata: TableMetadata) -> pa.Schema:
    """The columns that a generated one may read: all that are not generated."""
    return pa.schema([field for field in metadata.schema if field.name not in metadata.rules.generated])


def meaning_of(spark: "SparkSession", schema: pa.Schema, sql: str) -> Meaning:
    """What an expression over these columns is. Raises ``ValidationError`` with Spark's message."""
    with refusing("expression", sql):
        frame = empty_frame(spark, schema).select(F.expr(sql))
        kind = frame.schema[0].dataType
    if is_connect(spark):
        return Meaning(type=kind, columns=tuple(schema.names))
    plan = frame._jdf.queryExecution().analyzed()
    found = plan.references().toSeq()
    names = {str(found.apply(index).name()).lower() for index in range(found.size())}
    return Meaning(type=kind, columns=tuple(name for name in schema.names if name.lower() in names), plan=plan)


def _unclear(owner: str, error: ValidationError) -> Iterable[Violation]:
    for problem in error.violations:
        message = f"Spark does not understand {problem.where}, so no row can be written: {problem.message}"
        yield Violation(owner, message)


def _values(names: Collection[str]) -> "Column":
    parts = []
    for name in names:
        value = F.coalesce(F.col(quoted(name)).cast("string"), F.lit("NULL"))
        parts.append(F.concat(F.lit(f"{join_path([name])} = "), value))
    return F.substring(F.concat_ws(", ", *parts), 1, _SHOWN)
