"""Which types hold all values of another: the changes that Delta's type widening allows, and no other."""

import pyarrow as pa

from lakelog.schema import field_metadata
from lakelog.schema.unsupported import MAX_DECIMAL_DIGITS

ENABLED = "delta.enableTypeWidening"
"""The table property that lets columns be widened."""

FEATURE = "typeWidening"

_TYPE_CHANGES = "delta.typeChanges"
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {pa.int8(): 10, pa.int16(): 10, pa.int32(): 10, pa.int64(): 20}
"""Digits before the point that Delta wants of a decimal which an integer is widened to."""
_NEEDED = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
"""Digits before the point that hold every value."""
_LOCAL_TIME = pa.timestamp("us")


def can_widen(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Delta lets a column of one simple type become another one's without touching its files."""
    if source in _INTEGERS:
        if target in _INTEGERS:
            return _INTEGERS.index(source) < _INTEGERS.index(target)
        if pa.types.is_decimal128(target):
            return bool(target.precision - target.scale >= _DIGITS[source])
        return bool(target == pa.float64() and source != pa.int64())
    if source == pa.float32():
        return bool(target == pa.float64())
    if pa.types.is_decimal128(source) and pa.types.is_decimal128(target):
        before = target.precision - target.scale >= source.precision - source.scale
        return bool(before and target.scale >= source.scale and target != source)
    return bool(source == pa.date32() and target == _LOCAL_TIME)


def holds(target: pa.DataType, source: pa.DataType) -> bool:
    """Whether a column of the target's type takes all values of the source's as they are."""
    if source == target or pa.types.is_null(source) or can_widen(source, target):
        return True
    if source in _NEEDED and pa.types.is_decimal128(target):
        return bool(target.precision - target.scale >= _NEEDED[source])
    return False


def common(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    """The narrowest simple type that both can be widened to, or None."""
    if first == second or can_widen(second, first):
        return first
    if can_widen(first, second):
        return second
    candidates = [pa.float64(), _LOCAL_TIME, _common_decimal(first, second)]
    return next((c for c in candidates if c is not None and can_widen(first, c) and can_widen(second, c)), None)


def _common_decimal(first: pa.DataType, second: pa.DataType) -> pa.DataType | None:
    shapes = [_decimal_shape(kind) for kind in (first, second)]
    if None in shapes:
        return None
    before, scale = (max(shape[index] for shape in shapes if shape) for index in (0, 1))
    return pa.decimal128(before + scale, scale) if before + scale <= MAX_DECIMAL_DIGITS else None


def _decimal_shape(kind: pa.DataType) -> tuple[int, int] | None:
    """Digits before and after the point."""
    if pa.types.is_decimal128(kind):
        return kind.precision - kind.scale, kind.scale
    return (_DIGITS[kind], 0) if kind in _DIGITS else None


def with_type_change(field: pa.Field, steps: tuple[str, ...], source: str, target: str) -> pa.Field:
    """The field with a widening noted as Delta wants it.

    ``steps`` leads from the field to what was widened through lists and maps: ``element``, ``key``, ``value``.
    """
    known = field_metadata.to_json_object(field.metadata or {})
    change = {"fromType": source, "toType": target}
    if steps:
        change["fieldPath"] = ".".join(steps)
    changes = {_TYPE_CHANGES: [*known.get(_TYPE_CHANGES, []), change]}
    return field.with_metadata({**(field.metadata or {}), **field_metadata.from_json_object(changes)})


def without_type_changes(field: pa.Field, path: str | None) -> pa.Field:
    """The field without the widenings of something in it that is a string now; None is the field's type itself."""
    known = field_metadata.to_json_object(field.metadata or {}).get(_TYPE_CHANGES, [])
    kept = [] if path is None else [change for change in known if change.get("fieldPath") != path]
    metadata = {key: value for key, value in (field.metadata or {}).items() if key != _TYPE_CHANGES.encode()}
    if kept:
        metadata |= field_metadata.from_json_object({_TYPE_CHANGES: kept})
    return field.with_metadata(metadata or None)
