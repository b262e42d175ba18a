"""Incoming Arrow schemas in the types that a table can hold.

Types change only to one that is made for the same values; whether each value fits is for a safe cast to find out. What
Delta has no place for goes: the metadata of the schema itself, and the names and metadata of list elements, map keys
and map values. A column of nulls keeps Arrow's null type, since what it will hold is for the caller to decide.
"""

from collections.abc import Sequence
from operator import is_

import pyarrow as pa

from lakelog.schema.checks import Checks, Path
from lakelog.schema.evolution.projection import is_list
from lakelog.schema.unsupported import refusal, stored_as

_PLAIN = frozenset(
    kind.id
    for kind in (
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.bool_(),
        pa.string(),
        pa.binary(),
        pa.date32(),
        pa.null(),
    )
)
"""The ids of types that stay as they are; the other simple ones depend on their parameters."""
_TIMESTAMPS = (pa.timestamp("us", tz="UTC"), pa.timestamp("us"))
_DECIMAL = pa.decimal128(1).id


def normalize(schema: pa.Schema) -> pa.Schema:
    """The schema with every type replaced by the one that a table keeps its values in: the same object if all stay.

    Types without a counterpart and names that no table takes raise a ``ValidationError`` that lists every offending
    column by its path. Names that need column mapping pass.
    """
    checks = Checks(column_mapping=True)
    fields = list(schema)
    normal = _fields(fields, (), 1, checks)
    checks.finish()
    if all(map(is_, normal, fields)):
        return schema if schema.metadata is None else schema.remove_metadata()
    return pa.schema(normal)


# What needs no change is returned as the same object, so that a normal schema is found by identity.


def _fields(fields: Sequence[pa.Field], path: Path, depth: int, checks: Checks) -> list[pa.Field]:
    _check_names(fields, path, checks)
    return [field if field.type.id in _PLAIN else _field(field, path, depth, checks) for field in fields]


def _field(field: pa.Field, path: Path, depth: int, checks: Checks) -> pa.Field:
    kind = field.type
    normal = _type(kind, (*path, field.name), depth, checks)
    return field if normal is kind else field.with_type(normal)


def _type(kind: pa.DataType, path: Path, depth: int, checks: Checks) -> pa.DataType:
    if _is_held(kind):
        return kind
    if pa.types.is_nested(kind) or pa.types.is_dictionary(kind):
        return _nested(kind, path, depth, checks) if checks.may_nest(path, depth) else kind
    stored = stored_as(kind)
    if stored is None:
        checks.add(path, refusal(kind))
        return kind
    return stored


def _is_held(kind: pa.DataType) -> bool:
    """Whether tables have this simple type."""
    return kind.id in _PLAIN or kind in _TIMESTAMPS or bool(kind.id == _DECIMAL and 0 <= kind.scale <= kind.precision)


def _nested(kind: pa.DataType, path: Path, depth: int, checks: Checks) -> pa.DataType:
    if pa.types.is_struct(kind):
        fields = list(kind)
        normal = _fields(fields, path, depth + 1, checks)
        return kind if all(map(is_, normal, fields)) else pa.struct(normal)
    if is_list(kind):
        element = _type(kind.value_type, (*path, "element"), depth + 1, checks)
        return _same_or(kind, pa.list_(_inner(kind.value_field, "item", element)))
    if pa.types.is_map(kind):
        return _map(kind, path, depth, checks)
    if pa.types.is_union(kind):
        checks.add(path, refusal(kind))
        return kind
    return _type(kind.value_type, path, depth + 1, checks)


def _map(kind: pa.MapType, path: Path, depth: int, checks: Checks) -> pa.DataType:
    key = _type(kind.key_type, (*path, "key"), depth + 2, checks)
    if pa.types.is_null(key):
        # Keys are never null, so no caller could make anything of this.
        checks.add((*path, "key"), refusal(key))
        return kind
    value = _type(kind.item_type, (*path, "value"), depth + 2, checks)
    return _same_or(kind, pa.map_(key, _inner(kind.item_field, "value", value)))


def _inner(field: pa.Field, name: str, kind: pa.DataType) -> pa.Field:
    return field.with_name(name).with_type(kind).remove_metadata()


def _same_or(kind: pa.DataType, normal: pa.DataType) -> pa.DataType:
    return kind if normal.equals(kind, check_metadata=True) else normal


def _check_names(fields: Sequence[pa.Field], path: Path, checks: Checks) -> None:
    try:
        checks.names(path, [field.name for field in fields])
    except UnicodeDecodeError as error:
        checks.add((*path, error.object.decode(errors="backslashreplace")), "the name is not UTF-8")
        checks.finish()
