"""What a constant says of a column, once Spark has cast the one to the type of the other."""

import math
import struct
from dataclasses import dataclass
from datetime import UTC
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakelog.log.pruning.literals import DAY, Kind, Literal, Span, Value, spans

TIMES = ("date", "timestamp", "timestamp_ntz")
INTEGERS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_LARGEST_DOUBLE = int(math.ldexp(2 - 2**-52, 1023))


@dataclass(frozen=True, slots=True)
class Term:
    """A column, or a cast of it to a type that it is compared in."""

    column: str
    type: pa.DataType
    casts: tuple[str, ...]
    """Spark's names of types, the column's own first."""


def span_of(term: Term, value: Any) -> Span:
    """Every column value that may equal the constant once it is cast; wide open where the cast may change the order."""
    source, *targets = [name for index, name in enumerate(term.casts) if index == 0 or name != term.casts[index - 1]]
    if not targets:
        return _own_span(term.type, source, value)
    if len(targets) > 1:
        return Span(None, None)
    return _cast_span(term.type, source, targets[0], value)


def _own_span(kind: pa.DataType, name: str, value: Any) -> Span:
    if isinstance(value, str):
        return Span(value, value, exact=True) if name == "string" and is_storable(value) else Span(None, None)
    if name == "float":
        return _single_span(value)
    if isinstance(value, float):
        return _double_span(value)
    if name == "date":
        return _exactly(value * DAY)
    if name == "boolean":
        return _exactly(int(value))
    is_number = name in INTEGERS or name.startswith("decimal") or name in ("timestamp", "timestamp_ntz")
    return _exactly(value) if is_number and isinstance(value, int | Decimal) else Span(None, None)


def _cast_span(kind: pa.DataType, source: str, target: str, value: Any) -> Span:
    if source in INTEGERS and target in INTEGERS and INTEGERS[source] <= INTEGERS[target]:
        return _exactly(value)
    if (source in INTEGERS or source.startswith("decimal")) and target.startswith("decimal"):
        return _exactly(value) if _holds(target, kind) else Span(None, None)
    if source == "float" and target == "double":
        return _double_span(value)
    if target == "double" and (source in INTEGERS or source.startswith("decimal")):
        return _compared_as_double(kind, value)
    if source in TIMES and target in TIMES:
        moment = value * DAY if target == "date" else value
        # A zone's clock is less than a day away from UTC's, and a date is any moment of its day.
        return Span(moment - DAY, moment + (2 * DAY if target == "date" else DAY))
    return Span(None, None)


def _exactly(value: Value) -> Span:
    if isinstance(value, Decimal) and value == value.to_integral_value():
        value = int(value)
    return Span(value, value, exact=True)


def _holds(target: str, kind: pa.DataType) -> bool:
    """Whether a decimal type holds every value of a column unrounded."""
    precision, scale = map(int, target.removeprefix("decimal(").rstrip(")").split(","))
    if pa.types.is_decimal(kind):
        return bool(scale >= kind.scale and precision - scale >= kind.precision - kind.scale)
    return precision - scale >= {8: 3, 16: 5, 32: 10, 64: 19}[kind.bit_width]


def _double_span(value: float) -> Span:
    """Not exact, as zero has two signs."""
    if math.isnan(value) or value == math.inf:
        return Span(_LARGEST_DOUBLE, None)
    return Span(None, -_LARGEST_DOUBLE) if value == -math.inf else Span(value, value)


def _single_span(value: float) -> Span:
    """The JVM hands a 32-bit number over by its shortest digits."""
    span = _double_span(value)
    if span.low is None or span.high is None or value == 0:
        return span
    single = struct.unpack("<f", struct.pack("<f", value))[0]
    return Span(min(single, value), max(single, value))


def _compared_as_double(kind: pa.DataType, value: float) -> Span:
    digits = Decimal(value) if math.isfinite(value) else Decimal(str(value))
    return spans([Literal(Kind.DOUBLE, digits)], kind, UTC)[0]


def is_storable(text: str) -> bool:
    """Whether the index can compare with a text: not every database takes NUL, and U+FFFD may stand for bad bytes."""
    return "\0" not in text and "\ufffd" not in text
