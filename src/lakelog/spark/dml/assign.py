"""New values for a table's columns, checked before anything is read: which columns, and whether they hold them."""

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias, Union

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from lakelog.errors import SchemaMismatchError, ValidationError, Violation
from lakelog.schema.evolution.assignment import assignment_problems, is_cast
from lakelog.schema.evolution.projection import Part, convert_type, is_list
from lakelog.schema.evolution.widening import holds
from lakelog.schema.leaves import parse_path
from lakelog.schema.spark import from_spark
from lakelog.spark.errors import refusing
from lakelog.spark.expressions import columns as column_expressions
from lakelog.spark.expressions import spark_type
from lakelog.spark.identifiers import beginnings, parts_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Expression: TypeAlias = Union[str, "Column"]


def expression(value: Expression) -> "Column":
    return F.expr(value) if isinstance(value, str) else value


def unqualified(name: str, alias: str | None, schema: pa.Schema) -> str:
    """A column's name without the table's."""
    columns = {column.lower() for column in schema.names}
    if not alias or not isinstance(name, str) or name.lower() in columns:
        return name
    start = next((each for each in beginnings(alias) if name.lower().startswith(each.lower())), "")
    rest = name[len(start) :]
    # As in Spark, the table comes before a column of its name, whose fields these are if the table has no such column.
    is_column = any(part.lower() in columns for part in parts_of(start)[:1])
    is_field = is_column and parts_of(rest)[:1] != [] and parts_of(rest)[0].lower() not in columns
    return name if is_field else rest


def assigned(
    schema: pa.Schema,
    scope: "DataFrame",
    values: Mapping[str, Expression],
    old: "Mapping[str, Column] | None",
    what: str,
    *,
    partial_structs: bool = False,
) -> "dict[str, Column]":
    """The table's columns that get another value, by name, each of its column's type.

    ``scope`` has the columns that expressions may name, ``old`` what a column was before, for a value that goes into a
    struct, or None for a row that is new. With ``partial_structs``, a struct may lack fields, which then stay.

    Raises ``ValidationError`` for columns and expressions that Spark does not know, and ``SchemaMismatchError`` for
    values that a column cannot hold.
    """
    if not values:
        raise ValidationError(what, [Violation("set", "expected at least one column and its new value")])
    strange = {name: value for name, value in values.items() if not isinstance(value, str | Column)}
    if strange:
        message = "expected an expression, as a text or a Column, got {!r}: write it as a text, or with F.lit"
        raise ValidationError(what, [Violation(str(name), message.format(value)) for name, value in strange.items()])
    paths = {name: _resolved(schema, name, what) for name in values}
    _refuse_twice(paths, what)
    types = _types(scope, values, what)
    problems = [
        problem
        for name, path in paths.items()
        for problem in assignment_problems(
            path, types[name], _field(schema, path).type, partial=partial_structs, casts=True
        )
    ]
    if old is None:
        message = "is a field of a struct: a row that is new gets a whole one"
        problems += [Violation(repr(name), message) for name, path in paths.items() if len(path) > 1]
    if problems:
        raise SchemaMismatchError(f"values of {what}", problems)
    found: dict[str, Column] = {}
    for name, value in values.items():
        path = paths[name]
        before = None if old is None else old[path[0]]
        inner = None if before is None else reduce(lambda column, part: column.getField(part), path[1:], before)
        stored = _stored(expression(value), types[name], _field(schema, path), inner)
        if len(path) == 1 or before is None:
            found[path[0]] = stored
        else:
            before = found.get(path[0], before)
            found[path[0]] = _inside(schema.field(path[0]), before, path[1:], stored)
    return found


def _inside(field: pa.Field, before: "Column", path: tuple[str, ...], stored: "Column") -> "Column":
    """A struct with another value in it. One that was null comes to be, with null in its other fields."""
    fields = []
    for child in field.type:
        value = before.getField(child.name)
        if child.name == path[0]:
            value = stored if len(path) == 1 else _inside(child, value, path[1:], stored)
        fields.append(value.alias(child.name))
    return F.struct(*fields)


def _stored(value: "Column", source: pa.DataType, field: pa.Field, old: "Column | None") -> "Column":
    """A value as a column has it. One that does not fit fails, whatever the session says of such casts."""
    if pa.types.is_struct(source) and pa.types.is_struct(field.type):
        return F.when(value.isNotNull(), F.struct(*_fields(value, source, field, old)))
    if is_list(source) and is_list(field.type) and _is_cast_inside(source, field.type):
        return F.transform(value, lambda each: _stored(each, source.value_type, _element(field), None))
    if pa.types.is_map(source) and pa.types.is_map(field.type) and _is_cast_inside(source, field.type):
        keys = F.transform(F.map_keys(value), lambda each: _stored(each, source.key_type, _key(field), None))
        items = F.transform(F.map_values(value), lambda each: _stored(each, source.item_type, _item(field), None))
        return F.when(value.isNotNull(), F.map_from_arrays(keys, items))
    if _may_not_fit(source, field.type):
        kind = spark_type(field.type)
        message = F.concat(F.lit("the value "), value.cast("string"), F.lit(f" does not fit column {field.name}"))
        fitting = value.try_cast(kind)
        return F.when(value.isNotNull() & fitting.isNull(), F.raise_error(message).cast(kind)).otherwise(fitting)
    if _is_clocks_text(source, field.type):
        return value.cast("string")
    (stored,) = column_expressions((Part(field, 0, convert_type(source, field.type)),), [value])
    return stored


def _fields(value: "Column", source: pa.DataType, field: pa.Field, old: "Column | None") -> "list[Column]":
    """The fields of a struct; those that the value lacks stay as they were, or are null."""
    given = {child.name.lower(): child for child in source}
    found = []
    for child in field.type:
        before = None if old is None else old.getField(child.name)
        theirs = given.get(child.name.lower())
        if theirs is not None:
            column = _stored(value.getField(theirs.name), theirs.type, child, before)
        else:
            column = F.lit(None).cast(spark_type(child.type)) if before is None else before
        found.append(column.alias(child.name))
    return found


def _element(field: pa.Field) -> pa.Field:
    return field.type.value_field.with_name(f"{field.name}.element")


def _key(field: pa.Field) -> pa.Field:
    return field.type.key_field.with_name(f"{field.name}.key")


def _item(field: pa.Field) -> pa.Field:
    return field.type.item_field.with_name(f"{field.name}.value")


def _is_cast_inside(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a value somewhere inside may not fit, or is a text of the session's clock."""
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        theirs = {child.name.lower(): child.type for child in source}
        both = [(theirs[child.name.lower()], child.type) for child in target if child.name.lower() in theirs]
    elif is_list(source) and is_list(target):
        both = [(source.value_type, target.value_type)]
    elif pa.types.is_map(source) and pa.types.is_map(target):
        both = [(source.key_type, target.key_type), (source.item_type, target.item_type)]
    else:
        return _may_not_fit(source, target) or _is_clocks_text(source, target)
    return any(_is_cast_inside(one, other) for one, other in both)


def _may_not_fit(source: pa.DataType, target: pa.DataType) -> bool:
    if is_cast(source, target):
        return True
    numbers = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    both = all(any(is_number(kind) for is_number in numbers) for kind in (source, target))
    return both and not holds(target, source)


def _is_clocks_text(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether an instant becomes a text: that of the session's zone, as SQL casts it. A promoted column has UTC's."""
    return bool(pa.types.is_timestamp(source) and source.tz is not None and pa.types.is_string(target))


def _resolved(schema: pa.Schema, name: str, what: str) -> tuple[str, ...]:
    """A column's path as the table spells it. A name of a column may hold a dot."""
    if not isinstance(name, str):
        raise ValidationError(what, [Violation(repr(name), "expected a column's name")])
    spelled = {field.name.lower(): field.name for field in schema}
    if name.lower() in spelled:
        return (spelled[name.lower()],)
    kind: pa.DataType = pa.struct(list(schema))
    path = []
    for part in parse_path(name):
        names = {field.name.lower(): field for field in kind} if pa.types.is_struct(kind) else {}
        if part.lower() not in names:
            raise ValidationError(what, [Violation(repr(name), "is not a column of the table")])
        path.append(names[part.lower()].name)
        kind = names[part.lower()].type
    return tuple(path)


def _field(schema: pa.Schema, path: tuple[str, ...]) -> pa.Field:
    field = schema.field(path[0])
    for part in path[1:]:
        field = field.type.field(part)
    return field


def _refuse_twice(paths: Mapping[str, tuple[str, ...]], what: str) -> None:
    names = list(paths)
    found = [
        Violation(repr(one), f"is set by {other!r}, too")
        for number, one in enumerate(names)
        for other in names[number + 1 :]
        if (shorter := min(len(paths[one]), len(paths[other]))) and paths[one][:shorter] == paths[other][:shorter]
    ]
    if found:
        raise ValidationError(what, found)


def _types(scope: "DataFrame", values: Mapping[str, Expression], what: str) -> dict[str, pa.DataType]:
    with refusing(what, "set"):
        chosen = scope.select(*[expression(value).alias(f"c{number}") for number, value in enumerate(values.values())])
        schema = chosen.schema
    return dict(zip(values, from_spark(schema).types, strict=True))
