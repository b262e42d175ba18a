"""One column's bounds in one file, as pruning compares them. The same rules, vectorised, are in ``bulk_bounds``.

A bound may be wider than the values, never narrower. Numbers, booleans, dates and timestamps (microseconds) become
doubles that are rounded outward, so that a column which was widened still compares with its older files. Strings
become prefixes; an upper bound that was cut is raised to the next prefix.
"""

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from functools import cache
from typing import Any, NamedTuple

import pyarrow as pa

TEXT_LENGTH = 64
"""Characters of a string bound that the index keeps."""

INFINITY = math.inf
_EXACT = 2.0**53
_TOLD_APART = 15
"""Digits of a decimal that a double always tells apart."""
_LONGEST_NUMBER = 308
"""The exponent of the largest number that a double holds."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY_MICROSECONDS = 86_400_000_000


class Kind(Enum):
    """How a column's values are compared."""

    INTEGER = "integer"
    SINGLE = "single"
    FLOAT = "float"
    DECIMAL = "decimal"
    LONG_DECIMAL = "long decimal"
    BOOLEAN = "boolean"
    DATE = "date"
    TIMESTAMP = "timestamp"
    TEXT = "text"


FLOATS = (Kind.SINGLE, Kind.FLOAT)
"""Kinds that know NaN."""


class Bounds(NamedTuple):
    """The columns of ``column_stats`` that say what values a file can hold."""

    span: float
    min_num: float
    min_text: str
    max_num: float
    max_text: str | None
    null_count: int | None


@cache
def kind_of(arrow_type: Any) -> Kind | None:
    """How values of an Arrow type are compared; None for types without bounds."""
    types = pa.types
    for test, kind in (
        (types.is_signed_integer, Kind.INTEGER),
        (types.is_float64, Kind.FLOAT),
        (types.is_floating, Kind.SINGLE),
        (lambda kind: types.is_decimal(kind) and kind.precision > _TOLD_APART, Kind.LONG_DECIMAL),
        (types.is_decimal, Kind.DECIMAL),
        (types.is_boolean, Kind.BOOLEAN),
        (types.is_date, Kind.DATE),
        (types.is_timestamp, Kind.TIMESTAMP),
        (types.is_string, Kind.TEXT),
    ):
        if test(arrow_type):
            return kind
    return None


def bounds_of(kind: Kind, low: Any, high: Any, null_count: Any, rows: int | None) -> Bounds:
    """Bounds from the values of Delta statistics: JSON numbers, booleans and strings, or None where there is none."""
    if type(null_count) is not int:
        # Of a struct, which this column once was or will be.
        null_count = None
    if rows is not None and null_count == rows:
        return Bounds(-1.0, 0.0, "", 0.0, None, null_count)
    if kind is Kind.TEXT:
        return _text_bounds(low, high, null_count)
    if type(low) is int and type(high) is int and kind is Kind.INTEGER and -_EXACT < low <= high < _EXACT:
        # The common case, as below.
        minimum, maximum = float(low), float(high)
        return Bounds(number_span(minimum, maximum), minimum, "", maximum, None, null_count)
    lowest, highest = number(kind, low), number(kind, high)
    minimum = -INFINITY if lowest is None else lowest[0]
    maximum = INFINITY if highest is None else highest[1]
    if kind is Kind.TIMESTAMP and highest is not None:
        # Delta cuts the statistics of timestamps to milliseconds.
        maximum += 1000
    return Bounds(number_span(minimum, maximum), minimum, "", maximum, None, null_count)


def partition_bounds(kind: Kind, value: str | None, rows: int | None) -> Bounds | None:
    """Bounds of a partition column, which has one value; None if the text is not a value of that type."""
    if value is None or value == "":
        return Bounds(-1.0, 0.0, "", 0.0, None, rows)
    if kind is Kind.TEXT:
        return _text_bounds(value, value, 0)
    if kind in FLOATS and value == "NaN":
        return Bounds(number_span(-INFINITY, INFINITY), -INFINITY, "", INFINITY, None, 0)
    pair = number(kind, _from_partition_text(kind, value))
    if pair is None:
        return None
    return Bounds(number_span(*pair), pair[0], "", pair[1], None, 0)


def number(kind: Kind, value: Any) -> tuple[float, float] | None:
    """The largest double at or below a value and the smallest at or above it; None if it is no value of that kind."""
    if kind is Kind.BOOLEAN:
        return (float(value), float(value)) if isinstance(value, bool) else None
    if kind in (Kind.DATE, Kind.TIMESTAMP):
        microseconds = _microseconds(value) if isinstance(value, str) else None
        return None if microseconds is None else outward(microseconds)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal) or math.isnan(value):
        return None
    if kind is Kind.FLOAT or value in (INFINITY, -INFINITY):
        return float(value), float(value)
    if kind is Kind.SINGLE and math.isfinite(value):
        margin = single_margin(float(value))
        return float(value) - margin, float(value) + margin
    if kind is Kind.LONG_DECIMAL and isinstance(value, float):
        # JSON's digits were rounded when they were read, perhaps to a whole number.
        return math.nextafter(value, -INFINITY), math.nextafter(value, INFINITY)
    return outward(value)


def single_margin(value: Any) -> Any:
    """How far a 32-bit float, or an array of them, may lie from its shortened digits: a double that is a neighbour."""
    return abs(value) * 2.0**-23 + (value != 0) * 2.0**-149


def outward(value: int | float | Decimal) -> tuple[float, float]:
    """Doubles around an exact value."""
    try:
        near = float(value)
    except OverflowError:
        return (1.7976931348623157e308, INFINITY) if value > 0 else (-INFINITY, -1.7976931348623157e308)
    if abs(near) < _EXACT and near.is_integer() and near == value:
        return near, near
    return math.nextafter(near, -INFINITY), math.nextafter(near, INFINITY)


def number_span(low: float, high: float) -> float:
    """A power of four that is at least twice the width; 0 for one value, so that equality is one index search."""
    width = high - low
    if width == 0 or high < low:
        return 0.0
    if not math.isfinite(width):
        return INFINITY
    exponent = math.frexp(width)[1] + 1
    exponent += exponent & 1
    return math.ldexp(1.0, exponent) if exponent < 1024 else INFINITY


def text_span(low: str, high: str | None) -> float:
    """How many leading characters both bounds share."""
    if high is None:
        return 0.0
    shared = 0
    for one, other in zip(low, high, strict=False):
        if one != other:
            break
        shared += 1
    return float(shared)


def next_text(prefix: str) -> str | None:
    """The smallest string above every string that starts with the prefix; None if there is none."""
    for end in range(len(prefix), 0, -1):
        code = ord(prefix[end - 1])
        if code < 0x10FFFF:
            following = 0xE000 if code == 0xD7FF else code + 1
            return prefix[: end - 1] + chr(following)
    return None


def _text_bounds(low: Any, high: Any, null_count: int | None) -> Bounds:
    minimum = low[:TEXT_LENGTH] if isinstance(low, str) and "\0" not in low else ""
    maximum: str | None = None
    if isinstance(high, str) and "\0" not in high:
        maximum = high if len(high) <= TEXT_LENGTH else next_text(high[:TEXT_LENGTH])
    return Bounds(text_span(minimum, maximum), 0.0, minimum, 0.0, maximum, null_count)


def _from_partition_text(kind: Kind, text: str) -> Any:
    if kind is Kind.BOOLEAN:
        return {"true": True, "false": False}.get(text.lower())
    if kind in (Kind.DATE, Kind.TIMESTAMP):
        return text
    if kind in FLOATS and text in ("Infinity", "-Infinity"):
        return float(text)
    try:
        value = Decimal(text)
    except InvalidOperation:
        return None
    if not value.is_finite() or value.adjusted() > _LONGEST_NUMBER:
        return None
    if kind is Kind.INTEGER:
        return int(value) if abs(value) <= 2**63 and value == value.to_integral_value() else None
    if kind in FLOATS:
        return float(value) if math.isfinite(float(value)) else None
    return value


def _microseconds(text: str) -> int | None:
    """Microseconds since 1970 UTC of an ISO date or timestamp, which is UTC where it names no zone."""
    try:
        if len(text) == 10:
            return (date.fromisoformat(text) - date(1970, 1, 1)).days * _DAY_MICROSECONDS
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _MICROSECOND
