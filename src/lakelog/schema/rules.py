"""What a table asks of every row that is written to it: constraints, invariants, generated columns and defaults.

They are kept as Delta keeps them. A CHECK constraint is the table property ``delta.constraints.<name>``; the others are
metadata of a column. All of them are expressions in Spark's SQL over the table's columns, and only Spark can say what
they mean: here is which there are.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakelog.errors import ValidationError, Violation
from lakelog.schema import field_metadata
from lakelog.schema.mapping import columns
from lakelog.strict_json import describe, parse_json

CONSTRAINT = "delta.constraints."
DEFAULT = "CURRENT_DEFAULT"
GENERATED = "delta.generationExpression"
INVARIANT = "delta.invariants"
LENGTH = "__CHAR_VARCHAR_TYPE_STRING"
"""Of a column that Spark has declared as CHAR or VARCHAR, that type."""

_LONGEST_NAME = 255
_LIMITED = re.compile(r"(?:var)?char\(\s*([0-9]+)\s*\)", re.IGNORECASE)
_RESERVED = frozenset({"__char_varchar_string_length_check__"})
"""Names that Delta uses itself."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that has to be TRUE for every row; NULL is not enough."""

    owner: str
    """What people know it by: the constraint 'positive'."""
    sql: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All that a table asks of its rows, beside their types and NOT NULL."""

    checks: tuple[Check, ...] = ()
    generated: Mapping[str, str] = field(default_factory=dict)
    """The expression of each column whose value follows from the others of the row."""
    defaults: Mapping[str, str] = field(default_factory=dict)
    """What a column has in rows that were written without it."""
    inside: tuple[str, ...] = ()
    """Columns inside of others that are generated or have a default, which nobody can fill in."""

    def __bool__(self) -> bool:
        return bool(self.checks or self.generated or self.defaults or self.inside)


def rules_of(schema: pa.Schema, configuration: Mapping[str, str]) -> Rules:
    """The rules of a table."""
    generated = {each.name: sql for each in schema if (sql := text_of(each, GENERATED)) is not None}
    defaults = {each.name: sql for each in schema if (sql := text_of(each, DEFAULT)) is not None}
    return Rules(
        checks=(*_declared(schema, configuration), *_lengths(schema)),
        generated=generated,
        defaults={name: sql for name, sql in defaults.items() if name not in generated},
        inside=tuple(
            each.name
            for outer in schema
            for each in columns([outer])
            if each is not outer and any(text_of(each, key) is not None for key in (GENERATED, DEFAULT))
        ),
    )


def _declared(schema: pa.Schema, configuration: Mapping[str, str]) -> Iterator[Check]:
    """Constraints and invariants."""
    for name, sql in constraints_in(configuration).items():
        yield Check(f"the constraint {name!r}", sql)
    for each in columns(schema):
        if (rule := text_of(each, INVARIANT)) is not None:
            yield Check(f"the invariant of {each.name!r}", _condition(rule))


def _lengths(schema: pa.Schema) -> Iterator[Check]:
    """Of columns that came from Delta as CHAR(n) or VARCHAR(n)."""
    for each in schema:
        limit = _LIMITED.fullmatch(text_of(each, LENGTH) or "")
        if limit is not None and pa.types.is_string(each.type):
            name = "`" + each.name.replace("`", "``") + "`"
            yield Check(f"the length of {each.name!r}", f"{name} IS NULL OR char_length({name}) <= {limit[1]}")


def constraints_in(configuration: Mapping[str, str]) -> dict[str, str]:
    """The CHECK constraints among a table's properties, by name."""
    return {key[len(CONSTRAINT) :]: sql for key, sql in configuration.items() if key.lower().startswith(CONSTRAINT)}


def constraint_key(configuration: Mapping[str, str], name: str) -> str | None:
    """The property that holds a constraint; case makes no difference."""
    return next((key for key in configuration if key.lower() == f"{CONSTRAINT}{name.lower()}"), None)


def constraint_name_problem(name: object) -> str | None:
    """Why a constraint cannot have this name, or None if it can."""
    if not isinstance(name, str):
        return f"expected a text as the constraint's name, got {type(name).__name__}"
    if not name or name != name.strip() or not name.isprintable():
        return "expected a name without white space at its ends and invisible characters"
    if len(name) > _LONGEST_NAME:
        return f"is {len(name)} characters long; at most {_LONGEST_NAME} are allowed"
    return "is a name that Delta uses itself" if name.lower() in _RESERVED else None


def with_rules(
    schema: pa.Schema, generated: Mapping[str, str] | None = None, defaults: Mapping[str, str] | None = None
) -> pa.Schema:
    """The schema with generation expressions and defaults on columns of the top level. Names go without case."""
    problems: list[Violation] = []
    for key, said in ((GENERATED, generated or {}), (DEFAULT, defaults or {})):
        for name, sql in said.items():
            positions = [at for at, each in enumerate(schema) if each.name.lower() == str(name).lower()]
            if not positions:
                problems.append(Violation(str(name), "is not a column of the schema"))
            elif problem := expression_problem(sql):
                problems.append(Violation(str(name), problem))
            elif key == DEFAULT and text_of(schema.field(positions[0]), GENERATED) is not None:
                problems.append(Violation(str(name), "is generated, so it cannot have a default"))
            else:
                schema = schema.set(positions[0], with_text(schema.field(positions[0]), key, sql))
    if problems:
        raise ValidationError("columns", problems)
    return schema


def expression_problem(sql: object) -> str | None:
    """Why something cannot be an expression, as far as that shows without Spark."""
    if not isinstance(sql, str) or not sql.strip():
        return f"expected an expression in Spark's SQL, got {describe(sql)}"
    try:
        sql.encode()
    except UnicodeEncodeError:
        return "the expression holds half of a surrogate pair, which is not a character"
    return None


def is_filled(column: pa.Field) -> bool:
    """Whether rows that lack a column of the top level get a value for it."""
    return text_of(column, GENERATED) is not None or text_of(column, DEFAULT) is not None


def text_of(column: pa.Field, key: str) -> str | None:
    """A text in a column's metadata."""
    known = column.metadata or {}
    found = known.get(key.encode())
    return None if found is None else str(field_metadata.to_json_object({key.encode(): found})[key])


def with_text(column: pa.Field, key: str, text: str | None) -> pa.Field:
    """The column with a text in its metadata, or with None without it."""
    kept = {name: value for name, value in (column.metadata or {}).items() if name != key.encode()}
    said = {} if text is None else field_metadata.from_json_object({key: text})
    return column.with_metadata({**kept, **said} or None)


def users_of(configuration: Mapping[str, str], schema: pa.Schema, path: Sequence[str]) -> list[str]:
    """The rules that mention a column, or something above or below it, in words; also those that cannot be read."""
    return [f"{owner} ({sql})" for owner, sql in _expressions(configuration, schema) if _mentions(sql, path)]


def _expressions(configuration: Mapping[str, str], schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """Every expression over columns, with the words that people know its owner by."""
    for check in _declared(schema, configuration):
        yield check.owner, check.sql
    for column in columns(schema):
        if (sql := text_of(column, GENERATED)) is not None:
            yield f"the generated column {column.name!r}", sql


def _condition(rule: str) -> str:
    """The expression of an invariant, or all of its text if that is not what Delta writes."""
    try:
        return str(parse_json(rule)["expression"]["expression"])
    except (ValueError, KeyError, TypeError):
        return rule


def _mentions(sql: str, path: Sequence[str]) -> bool:
    lowered = [part.lower() for part in path]
    if lowered[0].replace("`", "``") not in sql.lower():
        return False
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        found = list(parse_one(sql, dialect="spark").find_all(exp.Column))
    except (SqlglotError, RecursionError):
        return True
    used = [[part.name.lower() for part in column.parts] for column in found]
    return any(all(a == b for a, b in zip(parts, lowered, strict=False)) for parts in used)
