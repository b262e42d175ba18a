"""Arrow schemas as Spark's, and back.

Spark's ``StructType.json()`` has the form of Delta's ``schemaString``, so that is the way between them. Spark knows
types that neither Arrow nor Delta has; docs/types.md lists what becomes of them.
"""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakelog.errors import ConfigurationError, ValidationError
from lakelog.schema.checks import Checks, Path
from lakelog.schema.collations import COLLATIONS, DEFAULT_COLLATION
from lakelog.schema.delta import from_delta_json, to_delta_json
from lakelog.schema.rules import LENGTH
from lakelog.strict_json import describe, encode_json, parse_json, shown

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_VOID = ("void", "null")
_LIMITED_STRING = re.compile(r"(?:var)?char\(\s*[0-9]+\s*\)")
_COLLATED_STRING = re.compile(r"string\s+collate\s+(\w+)")
_WORD = re.compile(r"\w*")
_PLACEHOLDER = "string"
"""Stands for a type that was refused or is put back later, so that the rest can be read."""

_INSTEAD = {
    "variant": "string, with to_json when writing and parse_json when reading",
    "interval": "long for its microseconds or months, or string",
    "time": "long for the microseconds since midnight, or string",
    "geometry": "binary, with st_asbinary when writing",
    "geography": "binary, with st_asbinary when writing",
    "void": "the type that the values will have",
    "null": "the type that the values will have",
}


def to_spark(schema: pa.Schema) -> "StructType":
    """The schema as Spark's; needs pyspark.

    What ``to_delta_json`` refuses (save for names that need column mapping) and metadata that would give a string a
    collation raise ``ValidationError``.
    """
    try:
        from pyspark.sql.types import StructType
    except ImportError as error:
        raise ConfigurationError("schemas of Spark need pyspark: pip install pyspark") from error

    checks = Checks(column_mapping=True)
    root = _type(parse_json(to_delta_json(schema, column_mapping=True)), (), checks, set())
    checks.finish()
    return StructType.fromJson(root)


def from_spark(struct: "StructType") -> pa.Schema:
    """The Arrow schema of Spark's.

    The length of char and varchar goes. A column of type void has Arrow's null type, since what it will hold is for
    the caller to decide. Types without a counterpart raise a ``ValidationError`` that lists every offending column by
    its path.
    """
    checks = Checks(column_mapping=True)
    voids: set[Path] = set()
    schema = pa.schema([])
    try:
        root = _type(struct.jsonValue(), (), checks, voids)
        schema = from_delta_json(encode_json(root), column_mapping=True)
    except ValidationError as error:
        checks.violations += error.violations
    except RecursionError:
        checks.add((), "it is nested too deeply to be read")
    checks.finish()
    return pa.schema(_put_back(schema, (), voids)) if voids else schema


def _type(value: Any, path: Path, checks: Checks, voids: set[Path]) -> Any:
    """The type in Delta's words. Void columns become something else and are noted."""
    if isinstance(value, str):
        return _simple_type(value, path, checks)
    match value["type"]:
        case "struct":
            fields = [_field(field, (*path, field["name"]), checks, voids) for field in value["fields"]]
            return {**value, "fields": fields}
        case "array":
            return {**value, "elementType": _type(value["elementType"], (*path, "element"), checks, voids)}
        case "map":
            key = _type(value["keyType"], (*path, "key"), checks, voids)
            return {**value, "keyType": key, "valueType": _type(value["valueType"], (*path, "value"), checks, voids)}
        case "udt":
            name, sql_type = value.get("pyClass") or value.get("class"), encode_json(value.get("sqlType"))
            checks.add(path, f"{name} is a user-defined type; use its sqlType: {shown(sql_type)}")
            return _PLACEHOLDER
    return value


def _simple_type(name: str, path: Path, checks: Checks) -> str:
    if _LIMITED_STRING.fullmatch(name):
        return "string"
    if collated := _COLLATED_STRING.fullmatch(name):
        _check_collation(collated[1], path, checks)
        return "string"
    word = _WORD.match(name)
    if word and (instead := _INSTEAD.get(word[0])):
        checks.add(path, f"Lakelog has no type for Spark's {name}; use {instead}")
        return _PLACEHOLDER
    return name


def _field(field: dict[str, Any], path: Path, checks: Checks, voids: set[Path]) -> dict[str, Any]:
    if field["type"] in _VOID:
        voids.add(path)
        kind = _PLACEHOLDER
    else:
        kind = _type(field["type"], path, checks, voids)
    return {**field, "type": kind, "metadata": _metadata(field["metadata"], path, checks)}


def _metadata(metadata: dict[str, Any], path: Path, checks: Checks) -> dict[str, Any]:
    """The metadata without what Spark keeps about types in it."""
    kept = {key: value for key, value in metadata.items() if key not in (COLLATIONS, LENGTH)}
    collations = metadata.get(COLLATIONS, {})
    if isinstance(collations, dict):
        for place, collation in collations.items():
            steps = str(place).removeprefix(path[-1]).split(".")
            _check_collation(str(collation).split(".", 1)[-1], (*path, *filter(None, steps)), checks)
    else:
        checks.add(path, f"expected an object as {COLLATIONS}, found {describe(collations)}")
    try:
        encode_json(kept)
    except (TypeError, ValueError) as error:
        checks.add(path, f"its metadata has no JSON form: {error}")
        return {}
    return kept


def _check_collation(name: str, path: Path, checks: Checks) -> None:
    if name != DEFAULT_COLLATION:
        checks.add(path, f"strings are compared byte by byte, not by {name}; use string collate {DEFAULT_COLLATION}")


def _put_back(fields: Iterable[pa.Field], path: Path, voids: set[Path]) -> list[pa.Field]:
    return [_put_back_field(field, (*path, field.name), voids) for field in fields]


def _put_back_field(field: pa.Field, path: Path, voids: set[Path]) -> pa.Field:
    if path in voids:
        # Arrow has no columns of nulls that must not be null.
        return field.with_type(pa.null()).with_nullable(True)
    return field.with_type(_put_back_type(field.type, path, voids))


def _put_back_type(kind: pa.DataType, path: Path, voids: set[Path]) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(_put_back(kind, path, voids))
    if pa.types.is_list(kind):
        return pa.list_(_put_back_field(kind.value_field, (*path, "element"), voids))
    if pa.types.is_map(kind):
        key = _put_back_type(kind.key_type, (*path, "key"), voids)
        return pa.map_(key, _put_back_field(kind.item_field, (*path, "value"), voids))
    return kind
