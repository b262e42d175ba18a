"""Rules that a table gets: whether they are sound, and whether the rows that it has follow them."""

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, StructType

from lakelog.changes.evolution import alter_checked
from lakelog.changes.properties import add_constraint as with_constraint
from lakelog.errors import LakelogError, SchemaMismatchError, ValidationError, Violation
from lakelog.log.commit.outcomes import CommitResult
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import TableMetadata
from lakelog.log.table import Table
from lakelog.schema.evolution.alter import Layout
from lakelog.schema.evolution.assignment import assignment_problems
from lakelog.schema.rules import Check, constraint_name_problem, constraints_in, expression_problem
from lakelog.schema.spark import from_spark
from lakelog.spark.errors import refusing, spark_door
from lakelog.spark.expressions import spark_type
from lakelog.spark.frames import session_for
from lakelog.spark.predicates.analysis import condition_of, is_connect
from lakelog.spark.predicates.clocks import has_clock, nodes_of
from lakelog.spark.read.read import count_rows, read_pruned
from lakelog.spark.rules.enforce import base_columns, broken_check, generated_condition, meaning_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_USERS_OWN = "org.apache.spark.sql.catalyst.expressions.UserDefinedExpression"


@spark_door
def add_constraint(dataset: Table, name: str, sql: str, retries: int, spark: "SparkSession | None") -> CommitResult:
    """Commits a constraint, once all rows of the head are known to satisfy it."""
    if problem := constraint_name_problem(name) or expression_problem(sql):
        raise ValidationError("constraint", [Violation(repr(name), problem)])
    session = session_for(spark)
    snapshot = dataset.snapshot()
    state, action = snapshot.state, snapshot.metadata
    # Refused first if there is such a constraint, since looking at rows may take long.
    with_constraint(Layout(state.metadata.schema, action.configuration, tuple(action.partition_columns)), name, sql)
    _raise("constraint", _check_problems(session, snapshot.schema, repr(name), sql))
    _check_rows(session, dataset, snapshot, name, sql)
    parameters = {"name": name, "expr": sql}
    return alter_checked(
        dataset.committer,
        state,
        "ADD CONSTRAINT",
        parameters,
        lambda layout: with_constraint(layout, name, sql),
        retries,
    )


def check_new_rules(spark: "SparkSession | None", metadata: TableMetadata) -> None:
    """Raises ``ValidationError`` for rules of a new table that are not sound."""
    session = session_for(spark)
    problems = [
        Violation(name, "is inside of another column; only columns of the table itself are generated or have defaults")
        for name in metadata.rules.inside
    ]
    for name in constraints_in(metadata.action.configuration):
        problems += [Violation(repr(name), why) for why in [constraint_name_problem(name)] if why]
    for check in metadata.rules.checks:
        problems += _check_problems(session, metadata.schema, check.owner, check.sql)
    for name, sql in metadata.rules.generated.items():
        found = _value_problems(session, base_columns(metadata), metadata.schema.field(name), sql, steady=True)
        problems += found or _check_problems(session, metadata.schema, name, generated_condition(name, sql))
    for name, sql in metadata.rules.defaults.items():
        problems += default_problems(session, metadata.schema.field(name), sql)
    _raise("the table's rules", problems)


def check_default(spark: "SparkSession | None", column: pa.Field, sql: str) -> None:
    """Raises ``ValidationError`` for what cannot be a column's default."""
    _raise("default", default_problems(session_for(spark), column, sql))


def default_problems(spark: "SparkSession", column: pa.Field, sql: str) -> list[Violation]:
    """Why an expression cannot be a column's default: it is one value for a whole write, which the column holds."""
    found = _value_problems(spark, pa.schema([]), column, sql, steady=False)
    if found:
        return found
    kind, value = spark_type(column.type), F.expr(sql)
    stored = value.cast(kind)
    # Maps have no equality, and need none where nothing is cast.
    same = F.lit(True) if meaning_of(spark, pa.schema([]), sql).type == kind else value.eqNullSafe(stored)
    try:
        with refusing("default", f"{sql} has no value that the column holds"):
            row = spark.range(1).select(same, stored.cast("string")).first()
    except ValidationError as error:
        return [Violation(column.name, str(each)) for each in error.violations]
    if row is None or not row[0]:
        return [Violation(column.name, f"{sql} is not what the column would hold: {row and row[1]}")]
    return []


def _check_problems(spark: "SparkSession", schema: pa.Schema, owner: str, sql: str) -> list[Violation]:
    try:
        meaning = meaning_of(spark, schema, sql)
    except ValidationError as error:
        return [
            Violation(owner, f"Spark does not understand {each.where}: {each.message}") for each in error.violations
        ]
    if not isinstance(meaning.type, BooleanType):
        return [Violation(owner, f"expected a condition, and {sql} is {meaning.type.simpleString()}")]
    return [Violation(owner, problem) for problem in _expression_problems(spark, schema, sql, steady=False)]


def _value_problems(
    spark: "SparkSession", schema: pa.Schema, column: pa.Field, sql: str, *, steady: bool
) -> list[Violation]:
    try:
        meaning = meaning_of(spark, schema, sql)
    except ValidationError as error:
        read = f" over the columns {', '.join(schema.names)}" if schema.names else ", which reads no column"
        return [
            Violation(column.name, f"Spark does not understand {each.where} as an expression{read}: {each.message}")
            for each in error.violations
        ]
    found = [Violation(column.name, problem) for problem in _expression_problems(spark, schema, sql, steady=steady)]
    if meaning.type.typeName() == "void":
        return found
    try:
        source = from_spark(StructType().add("value", meaning.type)).field(0).type
    except ValidationError as error:
        return [*found, *(Violation(column.name, each.message) for each in error.violations)]
    return [*found, *assignment_problems((column.name,), source, column.type)]


def _expression_problems(spark: "SparkSession", schema: pa.Schema, sql: str, *, steady: bool) -> list[str]:
    """Why an expression has no value that follows from a row alone, in every session and engine."""
    if is_connect(spark):
        return ["Spark Connect does not show how it understands an expression: use a session of this process"]
    try:
        # As a part of something else, so without a name of its own.
        plan = meaning_of(spark, schema, f"({sql}\n)").plan
    except ValidationError:
        return [f"{sql} is not an expression by itself"]
    if plan.getClass().getSimpleName() != "Project" or not plan.child().children().isEmpty():
        return [f"{sql} needs more than one row: aggregates, windows and generators have no place here"]
    found = []
    if not plan.subqueries().isEmpty():
        found.append(f"{sql} has a subquery, which is about more than the row")
    if not plan.deterministic():
        found.append(f"{sql} is not deterministic: it has another value each time")
    nodes = list(nodes_of(plan.projectList().apply(0)))
    from py4j.java_gateway import is_instance_of  # type: ignore[import-untyped]

    gateway: Any = spark._sc._gateway
    if any(is_instance_of(gateway, node, _USERS_OWN) for node in nodes):
        found.append(f"{sql} calls a function of this session, which other writers do not have")
    if steady and has_clock(spark, plan.projectList().apply(0)):
        found.append(f"{sql} depends on the time or on who asks, and not on the row alone")
    return found


def _check_rows(spark: "SparkSession", dataset: Table, snapshot: Snapshot, name: str, sql: str) -> None:
    """All rows have to satisfy the condition. Statistics decide where they can, Spark reads the rest."""
    rows = count_rows(spark, dataset, snapshot, None)
    broken = rows - count_rows(spark, dataset, snapshot, sql)
    if not broken:
        return
    others = read_pruned(spark, dataset, snapshot, condition_of(spark, snapshot.schema, sql).others)
    rule = broken_check(spark, snapshot.schema, Check(f"the constraint {name!r}", sql))
    shown = others.where(rule.condition).select(rule.values).first()
    if shown is None:
        raise LakelogError(f"{broken} of {rows} rows do not satisfy {sql}, and none of them was found again")
    sample = f", one of them with {shown[0]}" if shown[0] else ""
    message = f"{broken} of {rows} {rule.what}{sample}: change them first"
    raise SchemaMismatchError("rows of the table", [Violation(rule.where, message)])


def _raise(subject: str, problems: list[Violation]) -> None:
    if problems:
        raise ValidationError(subject, problems)
