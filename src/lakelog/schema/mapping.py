"""Column mapping: the ids and physical names by which a table's files know its columns, whatever they are called.

Columns are the fields of structs, also of structs in lists and maps; elements, keys and values have no names to map.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import uuid4

import pyarrow as pa

from lakelog.errors import ValidationError, Violation
from lakelog.schema import field_metadata
from lakelog.schema.checks import Checks
from lakelog.strict_json import whole_number

MODE = "delta.columnMapping.mode"
MAX_ID = "delta.columnMapping.maxColumnId"
"""The table property with the largest id that a column ever had."""

_PREFIX = b"delta.columnMapping."
_ID = b"delta.columnMapping.id"
_NESTED_IDS = b"delta.columnMapping.nested.ids"
_PHYSICAL_NAME = b"delta.columnMapping.physicalName"
_PAST = (b"delta.typeChanges", b"lakelog.promotedFrom")
_TABLE_BOUND = (b"delta.", b"lakelog.")
_TABLE_BOUND_KEYS = frozenset(
    {
        b"parquet.field.id",
        b"parquet.field.nested.ids",
        b"PARQUET:field_id",
        b"CURRENT_DEFAULT",
        b"EXISTS_DEFAULT",
        b"__CHAR_VARCHAR_TYPE_STRING",
    }
)
_LISTS = (
    (pa.types.is_list, pa.list_),
    (pa.types.is_large_list, pa.large_list),
    (pa.types.is_list_view, pa.list_view),
    (pa.types.is_large_list_view, pa.large_list_view),
)


MODES = ("none", "name", "id")


def is_mapped(configuration: Mapping[str, str]) -> bool:
    return configuration.get(MODE, "none") != "none"


def physical_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with every column under its physical name."""
    return _change_columns(schema, lambda column: column.with_name(physical_name(column)))


def physical_name(column: pa.Field) -> str:
    """The name that files use for a column of a mapped table."""
    name: str = _delta_value(column, _PHYSICAL_NAME) or column.name
    return name


def column_id(column: pa.Field) -> int | None:
    """The id that a column of a mapped table has."""
    found: int | None = _delta_value(column, _ID)
    return found


def with_field_ids(schema: pa.Schema) -> pa.Schema:
    """A mapped table's schema so that pyarrow writes the columns' ids into Parquet, too."""
    return _change_columns(
        schema,
        lambda column: (
            column
            if (known := column_id(column)) is None
            else column.with_metadata({**(column.metadata or {}), b"PARQUET:field_id": str(known).encode()})
        ),
    )


def with_mapping(schema: pa.Schema, configuration: Mapping[str, str]) -> tuple[pa.Schema, dict[str, str]]:
    """The table's schema and properties with column mapping switched on.

    Files that exist know the columns by their names, so these become the physical names. Mapping metadata from before
    is dropped, since it says nothing about the files of a table that is not mapped; its ids are not used again. A table
    that is mapped already gets what ``name_new_columns`` gives it.
    """
    if is_mapped(configuration):
        return name_new_columns(schema, configuration)
    ids = itertools.count(_largest_id(schema, configuration) + 1)
    mapped = _change_columns(schema, lambda column: _identified(_unidentified(column), ids, column.name))
    return mapped, {**configuration, MODE: "name", MAX_ID: str(next(ids) - 1)}


def name_new_columns(schema: pa.Schema, configuration: Mapping[str, str]) -> tuple[pa.Schema, dict[str, str]]:
    """A mapped table's schema and properties, with an id and a physical name for each column that has none.

    Both were never used before, so that a new column cannot show what a dropped one left in the files. Columns that
    come from elsewhere must have passed ``without_mapping``. A table that is not mapped stays as it is.
    """
    if not is_mapped(configuration):
        return schema, dict(configuration)
    ids = itertools.count(_largest_id(schema, configuration) + 1)
    named = _change_columns(schema, lambda column: _identified(column, ids, f"col-{uuid4()}"))
    return named, {**configuration, MAX_ID: str(next(ids) - 1)}


def without_mapping(field: pa.Field) -> pa.Field:
    """A field that comes from elsewhere, without the metadata that means something only in the table it came from.

    Comments and the keys of users stay. Raises ``ValidationError`` for types that nest too deeply to be followed.
    """
    _check_depth(field)
    return _stripped(field, _is_table_bound)


def without_past(field: pa.Field) -> pa.Field:
    """A field of a table that is new: without ids and names of other files, and what happened to its type elsewhere.

    Raises ``ValidationError`` for types that nest too deeply to be followed.
    """
    _check_depth(field)
    return _stripped(field, lambda key: key.startswith(_PREFIX) or key in _PAST)


def _check_depth(field: pa.Field) -> None:
    pending: list[tuple[pa.DataType, tuple[str, ...], int]] = [(field.type, (field.name,), 1)]
    checks = Checks()
    while pending:
        kind, path, depth = pending.pop()
        inside = children(kind)
        if inside and checks.may_nest(path, depth):
            deeper = depth + (2 if pa.types.is_map(kind) else 1)
            pending += [(child.type, (*path, child.name), deeper) for child in inside]
    checks.finish()


def _stripped(field: pa.Field, is_bound: Callable[[bytes], bool]) -> pa.Field:
    kept = {key: value for key, value in (field.metadata or {}).items() if not is_bound(key)}
    inside = [_stripped(child, is_bound) for child in children(field.type)]
    kind = with_children(field.type, inside) if inside else field.type
    return field.with_type(kind).with_metadata(kept or None)


def columns(fields: Iterable[pa.Field]) -> Iterator[pa.Field]:
    """Every column at any depth, parents first."""
    for field in fields:
        yield field
        yield from _columns_inside(field.type)


def children(kind: pa.DataType) -> list[pa.Field]:
    """A struct's fields, a list's element, or a map's key and value."""
    if pa.types.is_struct(kind):
        return list(kind)
    if pa.types.is_map(kind):
        return [kind.key_field, kind.item_field]
    is_list = pa.types.is_fixed_size_list(kind) or any(holds(kind) for holds, _ in _LISTS)
    return [kind.value_field] if is_list else []


def with_children(kind: pa.DataType, fields: Sequence[pa.Field]) -> pa.DataType:
    """The type with other children."""
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_map(kind):
        return pa.map_(*fields, keys_sorted=kind.keys_sorted)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(*fields, kind.list_size)
    return next((make(*fields) for holds, make in _LISTS if holds(kind)), kind)


def readable(field: pa.Field) -> pa.Field:
    """A field as files are read: they need not say NOT NULL, and what is only the table's matter stays out."""
    return nullable(without_mapping(field))


def loosened(schema: pa.Schema) -> pa.Schema:
    """The schema without any NOT NULL but that of a map's keys."""
    return pa.schema([nullable(field) for field in schema], schema.metadata)


def nullable(field: pa.Field) -> pa.Field:
    """The field without NOT NULL, also inside."""
    inside = children(field.type)
    keep = 1 if pa.types.is_map(field.type) else 0
    loose = [*inside[:keep], *map(nullable, inside[keep:])]
    kind = with_children(field.type, loose) if inside else field.type
    return field.with_type(kind).with_nullable(True)


def _change_columns(schema: pa.Schema, change: Callable[[pa.Field], pa.Field]) -> pa.Schema:
    return pa.schema([_changed(field, change) for field in schema], schema.metadata)


def _changed(column: pa.Field, change: Callable[[pa.Field], pa.Field]) -> pa.Field:
    return _changed_inside(change(column), change)


def _changed_inside(field: pa.Field, change: Callable[[pa.Field], pa.Field]) -> pa.Field:
    step = _changed if pa.types.is_struct(field.type) else _changed_inside
    return field.with_type(with_children(field.type, [step(child, change) for child in children(field.type)]))


def _columns_inside(kind: pa.DataType) -> Iterator[pa.Field]:
    if pa.types.is_struct(kind):
        yield from columns(kind)
    else:
        for child in children(kind):
            yield from _columns_inside(child.type)


def _identified(column: pa.Field, ids: Iterator[int], name: str) -> pa.Field:
    """The column with an id and a physical name; those that it has stay."""
    metadata = dict(column.metadata or {})
    if _ID not in metadata:
        metadata |= field_metadata.from_json_object({_ID.decode(): next(ids)})
    if _PHYSICAL_NAME not in metadata:
        metadata |= field_metadata.from_json_object({_PHYSICAL_NAME.decode(): name})
    return column.with_metadata(metadata)


def _unidentified(column: pa.Field) -> pa.Field:
    metadata = {key: value for key, value in (column.metadata or {}).items() if not key.startswith(_PREFIX)}
    return column.with_metadata(metadata)


def largest_recorded(configuration: Mapping[str, str]) -> int:
    """The largest id that the properties tell of, 0 if they tell of none. Raises ``ValidationError``."""
    text = configuration.get(MAX_ID, "0")
    found = whole_number(text)
    if found is None or found < 0:
        raise _broken(MAX_ID, "a whole number", text)
    return found


def _largest_id(schema: pa.Schema, configuration: Mapping[str, str]) -> int:
    """The largest id that the properties and the columns tell of, 0 if there is none."""
    return max([largest_recorded(configuration), *(found for column in columns(schema) for found in _ids(column))])


def _ids(column: pa.Field) -> list[int]:
    """The ids of a column, and of the elements, keys and values in it, where Iceberg's readers need them."""
    found = [_delta_value(column, _ID) or 0, *(_delta_value(column, _NESTED_IDS) or {}).values()]
    if not all(isinstance(value, int) for value in found):
        raise _broken(column.name, f"whole numbers as its {_ID.decode()}", found)
    return found


def _delta_value(column: pa.Field, key: bytes) -> Any:
    metadata = column.metadata or {}
    return field_metadata.to_json_object({key: metadata[key]})[key.decode()] if key in metadata else None


def _is_table_bound(key: bytes) -> bool:
    return key.startswith(_TABLE_BOUND) or key in _TABLE_BOUND_KEYS


def _broken(where: str, expected: str, found: object) -> ValidationError:
    return ValidationError("column mapping", [Violation(where, f"expected {expected}, found {found!r}")])
