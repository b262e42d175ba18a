"""Single values of statistics and partitions, out of JSON and texts, as values of a column's Arrow type."""

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_EXACT = Context(prec=76)
_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_BOOLEANS = {"true": True, "false": False}
_is_date = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch
_is_time = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}:.*)?").fullmatch
_is_number = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?").fullmatch
_finer_than_microseconds = re.compile(r"\.[0-9]{6}0*[1-9]").search


def bound(value: Any, kind: pa.DataType, *, upper: bool) -> Any:
    """A bound out of parsed JSON, None if it is no value of that type. Timestamps are in microseconds."""
    if pa.types.is_string(kind):
        return _text(value)
    if pa.types.is_date(kind):
        return _date(value) if isinstance(value, str) else None
    if pa.types.is_timestamp(kind):
        return _instant(value, kind, upper=upper) if isinstance(value, str) else None
    if isinstance(value, str) and pa.types.is_floating(kind):
        value = _FLOATS.get(value)
    # Readers do not agree on how NaN compares.
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or math.isnan(value):
        return None
    return _float(value, kind) if pa.types.is_floating(kind) else _exact(value, kind)


def partition_value(text: str, kind: pa.DataType) -> Any:
    """The value that a text in the log stands for, None if it is no value of that type."""
    if pa.types.is_string(kind):
        return text
    if pa.types.is_binary(kind):
        return text.encode()
    if pa.types.is_boolean(kind):
        return _BOOLEANS.get(text.lower())
    if pa.types.is_date(kind):
        return _date(text)
    if pa.types.is_timestamp(kind):
        return None if _finer_than_microseconds(text) else _instant(text, kind, upper=False)
    if pa.types.is_floating(kind) and text in _FLOATS:
        return _FLOATS[text]
    if not _is_number(text):
        return None
    number = Decimal(text)
    return _float(number, kind) if pa.types.is_floating(kind) else _exact(number, kind)


def _text(value: Any) -> str | None:
    try:
        return value if isinstance(value, str) and value.encode() is not None else None
    except UnicodeEncodeError:
        return None


def _date(text: str) -> date | None:
    try:
        return date.fromisoformat(text) if _is_date(text) else None
    except ValueError:
        return None


def _instant(text: str, kind: pa.DataType, *, upper: bool) -> int | None:
    """Microseconds since 1970. A text without a zone is UTC; local time knows no other."""
    if not _is_time(text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    elif kind.tz is None and moment.utcoffset():
        return None
    return (moment - _EPOCH) // _MICROSECOND + (1 if upper and _finer_than_microseconds(text) else 0)


def _float(value: int | float | Decimal, kind: pa.DataType) -> float | None:
    try:
        number = float(value)
    except OverflowError:
        return None
    with np.errstate(over="ignore"):
        held = float(np.float32(number)) if pa.types.is_float32(kind) else number
    # A number that is too large for the type has become infinite.
    return held if math.isfinite(held) or value in (math.inf, -math.inf) else None


def _exact(value: int | float | Decimal, kind: pa.DataType) -> int | Decimal | None:
    """A value of an integer or decimal type."""
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    digits, scale = (kind.precision, kind.scale) if pa.types.is_decimal(kind) else (20, 0)
    if not number.is_finite() or number.adjusted() >= digits - scale:
        return None
    try:
        held = number.quantize(Decimal(1).scaleb(-scale), context=_EXACT)
    except InvalidOperation:
        return None
    if held != number:
        return None
    if pa.types.is_decimal(kind):
        return held
    limit = 1 << (kind.bit_width - 1)
    return int(held) if -limit <= held < limit else None
