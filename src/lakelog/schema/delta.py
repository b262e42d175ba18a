"""Arrow schemas as Delta's ``schemaString``, and back.

What Delta's form can hold comes back as it was: names, order, types, nullability, and the metadata of fields (encoded
as ``field_metadata`` says). Delta has no place for the rest: the metadata of the schema itself, the names and metadata
of list elements, map keys and map values, and a timestamp's time zone, which comes back as UTC.
"""

import re
import reprlib
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from lakelog.errors import ValidationError, Violation
from lakelog.schema import field_metadata
from lakelog.schema.checks import Checks, Path
from lakelog.schema.unsupported import MAX_DECIMAL_DIGITS, refusal
from lakelog.strict_json import encode_json, parse_json

_ARROW_TYPES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "decimal": pa.decimal128(10, 0),
}
_DELTA_NAMES = {arrow_type: name for name, arrow_type in _ARROW_TYPES.items() if name != "decimal"}
_DECIMAL = re.compile(r"decimal\(\s*([0-9]{1,3})\s*,\s*([0-9]{1,3})\s*\)")
_KEYS = {
    "struct": frozenset({"type", "fields"}),
    "array": frozenset({"type", "elementType", "containsNull"}),
    "map": frozenset({"type", "keyType", "valueType", "valueContainsNull"}),
}
_FIELD_KEYS = frozenset({"name", "type", "nullable"})


def to_delta_json(schema: pa.Schema, *, column_mapping: bool = False) -> str:
    """The schema as Delta's ``schemaString``: compact JSON.

    A type that Delta does not have, a name that Delta does not take, and metadata that is not UTF-8 raise a
    ``ValidationError`` that lists every offending column by its path. ``column_mapping`` allows the names that Delta
    takes only in tables with column mapping.
    """
    checks = Checks(column_mapping)
    try:
        root = _struct_to_json(schema, (), 1, checks)
        checks.finish()
        return encode_json(root)
    except RecursionError:
        raise _rejected("it is nested too deeply to be written as JSON") from None


def from_delta_json(text: str, *, column_mapping: bool = False) -> pa.Schema:
    """The Arrow schema of a ``schemaString``.

    Text that is not JSON or not a schema, types that Arrow or Lakelog does not have, keys that Delta does not have
    (to drop them could change what the table means) and names that Delta does not take raise a ``ValidationError``.
    As in Spark, a field without ``metadata`` has none, and ``decimal`` means ``decimal(10,0)``.
    """
    try:
        root = parse_json(text)
    except ValueError as error:
        raise _rejected(f"it is not JSON: {error}") from error
    checks = Checks(column_mapping)
    try:
        arrow_type = _type_from_json(root, (), 0, checks)
    except RecursionError:
        raise _rejected("it is nested too deeply to be read") from None
    if checks.clean and not pa.types.is_struct(arrow_type):
        checks.add((), f"expected a struct, found {_short(root)}")
    checks.finish()
    return pa.schema(list(arrow_type))


def to_delta_type(kind: pa.DataType) -> Any:
    """A type that a table can hold as it stands in a schema string: a name, or an object if it is nested."""
    checks = Checks(column_mapping=True)
    value = _type_to_json(kind, (), 0, checks)
    checks.finish()
    return value


def _struct_to_json(fields: Iterable[pa.Field], path: Path, depth: int, checks: Checks) -> dict[str, Any]:
    named = [(_name(field, path, checks), field) for field in fields]
    checks.names(path, [name for name, _ in named])
    return {
        "type": "struct",
        "fields": [
            {
                "name": name,
                "type": _type_to_json(field.type, (*path, name), depth, checks),
                "nullable": field.nullable,
                "metadata": _metadata_to_json(field, (*path, name), checks),
            }
            for name, field in named
        ],
    }


def _type_to_json(arrow_type: pa.DataType, path: Path, depth: int, checks: Checks) -> Any:
    if pa.types.is_nested(arrow_type):
        return _nested_to_json(arrow_type, path, depth, checks)
    if name := _DELTA_NAMES.get(arrow_type):
        return name
    if pa.types.is_timestamp(arrow_type) and arrow_type.unit == "us":
        return "timestamp"
    if pa.types.is_decimal128(arrow_type) and 0 <= arrow_type.scale <= arrow_type.precision:
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    checks.add(path, refusal(arrow_type))
    return None


def _nested_to_json(arrow_type: pa.DataType, path: Path, depth: int, checks: Checks) -> Any:
    if not checks.may_nest(path, depth):
        return None
    if pa.types.is_struct(arrow_type):
        return _struct_to_json(arrow_type, path, depth + 1, checks)
    if pa.types.is_map(arrow_type):
        if arrow_type.keys_sorted:
            checks.add(path, refusal(arrow_type))
        return {
            "type": "map",
            "keyType": _type_to_json(arrow_type.key_type, (*path, "key"), depth + 2, checks),
            "valueType": _type_to_json(arrow_type.item_type, (*path, "value"), depth + 2, checks),
            "valueContainsNull": arrow_type.item_field.nullable,
        }
    if not pa.types.is_list(arrow_type):
        checks.add(path, refusal(arrow_type))
    if pa.types.is_union(arrow_type) or pa.types.is_run_end_encoded(arrow_type):
        return None
    return {
        "type": "array",
        "elementType": _type_to_json(arrow_type.value_type, (*path, "element"), depth + 1, checks),
        "containsNull": arrow_type.value_field.nullable,
    }


def _name(field: pa.Field, path: Path, checks: Checks) -> str:
    try:
        name: str = field.name
    except UnicodeDecodeError as error:
        name = error.object.decode(errors="backslashreplace")
        checks.add((*path, name), "the name is not UTF-8")
    return name


def _metadata_to_json(field: pa.Field, path: Path, checks: Checks) -> dict[str, Any]:
    try:
        return field_metadata.to_json_object(field.metadata or {})
    except UnicodeDecodeError as error:
        checks.add(path, f"its metadata holds {_short(error.object)}, which is not UTF-8; Delta's metadata is text")
        return {}


# Reading goes on after a violation to find the others, but then builds nothing: Arrow would choke on what was found.


def _type_from_json(value: Any, path: Path, depth: int, checks: Checks) -> pa.DataType:
    if isinstance(value, str):
        return _primitive_from_json(value, path, checks)
    kind = value.get("type") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in _KEYS:
        checks.add(path, f"expected a type that Lakelog knows, found {_short(value)}")
        return None
    if not (_has_keys(value, _KEYS[kind], path, checks) and checks.may_nest(path, depth)):
        return None
    if kind == "struct":
        return _struct_from_json(value["fields"], path, depth + 1, checks)
    if kind == "array":
        nullable = _flag(value, "containsNull", path, checks)
        element = _type_from_json(value["elementType"], (*path, "element"), depth + 1, checks)
        return pa.list_(pa.field("item", element, nullable)) if checks.clean else None
    nullable = _flag(value, "valueContainsNull", path, checks)
    key = _type_from_json(value["keyType"], (*path, "key"), depth + 2, checks)
    item = _type_from_json(value["valueType"], (*path, "value"), depth + 2, checks)
    return pa.map_(key, pa.field("value", item, nullable)) if checks.clean else None


def _primitive_from_json(name: str, path: Path, checks: Checks) -> pa.DataType:
    if arrow_type := _ARROW_TYPES.get(name):
        return arrow_type
    if match := _DECIMAL.fullmatch(name):
        precision, scale = int(match[1]), int(match[2])
        if 1 <= precision <= MAX_DECIMAL_DIGITS and scale <= precision:
            return pa.decimal128(precision, scale)
        limits = f"a precision from 1 to {MAX_DECIMAL_DIGITS} and a scale from 0 to the precision"
        checks.add(path, f"expected {limits}, found {name}")
        return None
    checks.add(path, f"the type {_short(name)} is none that Lakelog knows ({', '.join(_ARROW_TYPES)}(p,s))")
    return None


def _struct_from_json(fields: Any, path: Path, depth: int, checks: Checks) -> pa.DataType:
    if not isinstance(fields, list):
        checks.add(path, f"expected an array of fields, found {_short(fields)}")
        return None
    named = []
    for position, field in enumerate(fields):
        if isinstance(field, dict) and isinstance(field.get("name"), str):
            named.append(field)
        else:
            checks.add(path, f"expected an object with a name as field {position}, found {_short(field)}")
    checks.names(path, [field["name"] for field in named])
    children = [_field_from_json(field, (*path, field["name"]), depth, checks) for field in named]
    return pa.struct(children) if checks.clean else None


def _field_from_json(field: dict[str, Any], path: Path, depth: int, checks: Checks) -> pa.Field:
    metadata = _metadata_from_json(field.get("metadata", {}), path, checks)
    if not _has_keys(field, _FIELD_KEYS, path, checks, optional="metadata"):
        return None
    nullable = _flag(field, "nullable", path, checks)
    arrow_type = _type_from_json(field["type"], path, depth, checks)
    return pa.field(field["name"], arrow_type, nullable, metadata) if checks.clean else None


def _metadata_from_json(metadata: Any, path: Path, checks: Checks) -> dict[bytes, bytes] | None:
    if not isinstance(metadata, dict):
        checks.add(path, f"expected an object as metadata, found {_short(metadata)}")
        return None
    try:
        return field_metadata.from_json_object(metadata) or None
    except UnicodeEncodeError as error:
        checks.add(path, f"its metadata holds {_short(error.object)}, with half of a surrogate pair")
        return None


def _has_keys(
    value: dict[str, Any], required: frozenset[str], path: Path, checks: Checks, optional: str | None = None
) -> bool:
    missing = sorted(required - value.keys())
    unknown = sorted(value.keys() - required - {optional})
    if missing:
        checks.add(path, f"it lacks {' and '.join(missing)}: {_short(value)}")
    if unknown:
        checks.add(path, f"Delta's schemas have no {' and '.join(map(_short, unknown))}")
    return not missing and not unknown


def _flag(value: dict[str, Any], key: str, path: Path, checks: Checks) -> bool:
    flag = value[key]
    if isinstance(flag, bool):
        return flag
    checks.add(path, f"expected true or false as {key}, found {_short(flag)}")
    return False


def _short(value: Any) -> str:
    return _SHORT.repr(value)


def _rejected(message: str) -> ValidationError:
    return ValidationError("schema", [Violation("schema", message)])


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
