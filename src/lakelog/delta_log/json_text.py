"""Columns of a checkpoint as JSON text, thousands of rows at once: maps, and statistics that are kept as structs."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.strict_json import encode_json

_TEXT = pa.string()
_NEEDS_ESCAPE = r'["\\\x00-\x1f]'
_STATISTICS = ("numRecords", "minValues", "maxValues", "nullCount", "tightBounds")
_BOUNDS = frozenset({"minValues", "maxValues"})


def map_text(maps: pa.Array, *, empty_is_null: bool = False) -> pa.Array:
    """Maps of strings, or lists of keys with values, as JSON objects. A null stays null.

    ``empty_is_null`` turns values without a character into null.
    """
    offsets = maps.offsets
    start, end = offsets[0].as_py(), offsets[-1].as_py()
    if pa.types.is_map(maps.type):
        keys, values = maps.keys, maps.items
    else:
        keys, values = maps.values.flatten()[:2]
    keys, values = (entries.slice(start, end - start).cast(_TEXT) for entries in (keys, values))
    if empty_is_null:
        values = pc.if_else(pc.equal(values, ""), pa.scalar(None, _TEXT), values)
    members = _joined(_string_text(keys), ":", pc.fill_null(_string_text(values), "null"))
    lists = pa.ListArray.from_arrays(pc.subtract(offsets, start), members)
    texts = _joined("{", pc.binary_join(lists, ","), "}")
    return pc.if_else(maps.is_valid(), texts, pa.scalar(None, _TEXT))


def stats_text(stats: pa.StructArray, times: frozenset[str] = frozenset()) -> pa.Array:
    """Statistics in a struct as Delta writes them as text. A null, and one without any value, is null.

    Left out is what Delta's text does not have: bounds of booleans and of bytes, and numbers that are not finite.
    ``times`` are the dotted names of the columns below that hold points in time though Arrow does not know their zone.
    """
    fields = dict(zip((field.name for field in stats.type), stats.flatten(), strict=True))
    members = [
        (name, text)
        for name in _STATISTICS
        if name in fields and (text := _value_text(fields[name], name, times, name in _BOUNDS)) is not None
    ]
    texts = _object_text(members, len(stats))
    return pc.if_else(pc.and_(stats.is_valid(), pc.not_equal(texts, "{}")), texts, pa.scalar(None, _TEXT))


def _value_text(values: pa.Array, path: str, times: frozenset[str], bound: bool) -> pa.Array | None:
    """The JSON of each value, null where there is none; None if nothing of the column has a place in the text."""
    kind = values.type
    if pa.types.is_struct(kind):
        members = [
            (field.name, text)
            for field, child in zip(kind, values.flatten(), strict=True)
            if (text := _value_text(child, f"{path}.{field.name}", times, bound)) is not None
        ]
        return pc.if_else(values.is_valid(), _object_text(members, len(values)), pa.scalar(None, _TEXT))
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return values.cast(_TEXT)
    if pa.types.is_boolean(kind):
        return None if bound else values.cast(_TEXT)
    if pa.types.is_floating(kind):
        return pc.if_else(pc.is_finite(values), values.cast(_TEXT), pa.scalar(None, _TEXT))
    if pa.types.is_date(kind):
        return _joined('"', values.cast(_TEXT), '"')
    if pa.types.is_timestamp(kind):
        return _joined('"', _time_text(values), "Z" if kind.tz is not None or path in times else "", '"')
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _string_text(values.cast(_TEXT))
    return None


def _time_text(times: pa.Array) -> pa.Array:
    """Times to the millisecond below, as Delta cuts them, also those of maxima."""
    utc = times.cast(pa.int64()).cast(pa.timestamp(times.type.unit))
    texts = pc.floor_temporal(utc, unit="millisecond").cast(pa.timestamp("ms")).cast(_TEXT)
    return pc.replace_substring(texts, " ", "T")


def _string_text(strings: pa.Array) -> pa.Array:
    texts = _joined('"', strings, '"')
    escape = pc.match_substring_regex(strings, _NEEDS_ESCAPE)
    if not pc.any(escape).as_py():
        return texts
    escaped = [encode_json(text) for text in strings.filter(escape).to_pylist()]
    return pc.replace_with_mask(texts, pc.fill_null(escape, False), pa.array(escaped, _TEXT))


def _object_text(members: list[tuple[str, pa.Array]], count: int) -> pa.Array:
    """JSON objects with those members that are not null."""
    parts = [pc.fill_null(_joined(f",{encode_json(name)}:", text), "") for name, text in members]
    texts = _joined("{", *parts, "}") if parts else pa.repeat("{}", count)
    return pc.replace_substring(texts, "{,", "{", max_replacements=1)


def _joined(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")
