"""The constants of a predicate: what is written, and which column values it may equal once Spark has cast both sides.

A ``Literal`` is a constant as it stands in the text. ``spans`` sets constants against a column's type and gives, for
each, a ``Span``: every column value that Spark may find equal to it. Mostly that is one value; where Spark compares in
floating point, with fewer digits or through the session's zone, it is an interval that is wide enough.
"""

import math
import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, auto
from fractions import Fraction
from zoneinfo import ZoneInfo

import pyarrow as pa

Value = int | float | Decimal | str

DAY = 86_400_000_000
_EPOCH = date(1970, 1, 1).toordinal()
_LARGEST_DOUBLE = int(math.ldexp(2 - 2**-52, 1023))
_DECIMAL_DIGITS = 38
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,9})?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_TIMESTAMP = re.compile(
    _DATE.pattern + r"(?:[ T]([0-9]{1,2}):([0-9]{1,2})(?::([0-9]{1,2})(?:\.([0-9]{1,6}))?)?(?: ?([A-Za-z+-].*))?)?"
)
_OFFSET = re.compile(r"([+-])([0-9]{1,2})(?::?([0-9]{2}))?")
_BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), 1) | dict.fromkeys(("false", "f", "no", "n", "0"), 0)


class Rejected(Exception):
    """A part of a predicate that has no meaning here; the message says why and what to write instead."""


class Kind(Enum):
    """How Spark types a constant."""

    NULL = auto()
    BOOLEAN = auto()
    EXACT = auto()  # integers and decimals
    FLOAT = auto()
    DOUBLE = auto()
    STRING = auto()
    DATE = auto()
    TIMESTAMP = auto()
    TIMESTAMP_NTZ = auto()


class Family(Enum):
    """What a column's type can be compared with."""

    BOOLEAN = "a boolean"
    INTEGER = "an integer"
    DECIMAL = "a decimal"
    FLOATING = "a floating point number"
    STRING = "a string"
    DATE = "a date"
    TIMESTAMP = "a timestamp"
    TIMESTAMP_NTZ = "a timestamp without zone"
    BINARY = "binary"
    OTHER = "of a type without an order"


@dataclass(frozen=True, slots=True)
class Moment:
    """A wall clock reading in microseconds since 1970, and the zone written next to it, if any."""

    local: int
    zone: tzinfo | None = None


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant as Spark types it: a number as Decimal, a boolean as 0 or 1, a date or timestamp as Moment.

    ``digits`` are those before and after the point of an exact number's type.
    """

    kind: Kind
    value: Decimal | int | str | Moment | None = None
    digits: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Span:
    """Every column value that may equal a constant, ends included; an open end is None.

    ``exact`` says that the constant is this one value and the comparison is the column's own.
    """

    low: Value | None
    high: Value | None
    exact: bool = False


def family(kind: pa.DataType) -> Family:
    """The family of a column's type."""
    types = pa.types
    tests: dict[Family, Callable[[pa.DataType], bool]] = {
        Family.BOOLEAN: types.is_boolean,
        Family.INTEGER: types.is_integer,
        Family.DECIMAL: types.is_decimal,
        Family.FLOATING: types.is_floating,
        Family.STRING: lambda t: types.is_string(t) or types.is_large_string(t) or types.is_string_view(t),
        Family.DATE: types.is_date,
        Family.TIMESTAMP: lambda t: types.is_timestamp(t) and t.tz is not None,
        Family.TIMESTAMP_NTZ: types.is_timestamp,
        Family.BINARY: lambda t: "binary" in str(t),
    }
    return next((name for name, test in tests.items() if test(kind)), Family.OTHER)


def number(text: str, kind: Kind | None = None) -> Literal:
    """Read a number. Without a kind it is Spark's own: a double with an exponent, exact without. Raises Rejected."""
    if not _NUMBER.fullmatch(text):
        raise Rejected(f"{text[:60]!r} is not a number")
    value = Decimal(text)
    kind = kind or (Kind.DOUBLE if "e" in text.lower() else Kind.EXACT)
    if max(len(text), abs(value.adjusted())) > 400:
        raise Rejected("the number is out of range")
    if kind is not Kind.EXACT:
        return Literal(kind, value)
    before, after = _digits(value)
    if before + after > _DECIMAL_DIGITS:
        raise Rejected(f"the number has more than the {_DECIMAL_DIGITS} digits that Spark can hold")
    return Literal(kind, value, (max(before, 10 if abs(value) < 2**31 else 20), 0) if after == 0 else (before, after))


def negated(literal: Literal) -> Literal:
    """The number with its sign turned; NULL stays NULL. Raises Rejected."""
    if literal.kind is Kind.NULL:
        return literal
    if not isinstance(literal.value, Decimal):
        raise Rejected("only a number can have a sign")
    return replace(literal, value=literal.value.copy_negate())


def cast(literal: Literal, target: str, sizes: Sequence[int] = ()) -> Literal:
    """CAST of a constant to a SQL type, where it changes nothing but the type. Raises Rejected."""
    if literal.kind is Kind.NULL:
        return literal
    source, text = literal.kind, literal.value if isinstance(literal.value, str) else None
    match target:
        case "TINYINT" | "SMALLINT" | "INT" | "BIGINT":
            bits = {"TINYINT": 7, "SMALLINT": 15, "INT": 31, "BIGINT": 63}[target]
            value = _exact(literal)
            if value == value.to_integral_value() and -(2**bits) <= value < 2**bits:
                return Literal(Kind.EXACT, value, (20, 0))
        case "DECIMAL":
            precision, scale = (*sizes, 0)[:2] if sizes else (10, 0)
            value = _exact(literal)
            if 0 <= scale <= precision <= _DECIMAL_DIGITS and _fits(value, precision, scale):
                return Literal(Kind.EXACT, value, (precision - scale, scale))
        case "FLOAT" | "DOUBLE":
            kind = Kind.FLOAT if Kind.FLOAT in (source, Kind[target]) else Kind.DOUBLE
            if text is not None:
                return _floating(text, kind)
            if isinstance(literal.value, Decimal):
                return Literal(kind, literal.value)
        case "BOOLEAN" if text is not None:
            return Literal(Kind.BOOLEAN, _boolean(text))
        case "DATE" if text is not None:
            return Literal(Kind.DATE, _date(text))
        case "TIMESTAMP" | "TIMESTAMPTZ" | "TIMESTAMPLTZ" | "TIMESTAMPNTZ" if text or source is Kind.DATE:
            kind = Kind.TIMESTAMP_NTZ if target == "TIMESTAMPNTZ" else Kind.TIMESTAMP
            return Literal(kind, _timestamp(text) if text else literal.value)
        case "TEXT" if text is not None:
            return literal
    raise Rejected(f"the value does not fit into {target} as it stands; write it as it should be compared")


def spans(literals: Sequence[Literal], kind: pa.DataType, zone: tzinfo, *, listed: bool = False) -> list[Span]:
    """What constants mean for a column of this type: one constant, or those of an IN list, and none of them NULL.

    Spark casts an IN list and its column to one type, so that one constant's type widens them all; and a string in
    the list may turn all into strings, so that no string is exact there. Raises Rejected if the column cannot be
    compared with one of them.
    """
    column = family(kind)
    mixed = len({literal.kind for literal in literals}) > 1
    match column:
        case Family.STRING:
            return [_string_span(literal) for literal in literals]
        case Family.BOOLEAN:
            found = [_boolean_span(literal) for literal in literals]
        case Family.INTEGER | Family.DECIMAL | Family.FLOATING:
            found = _number_spans([_as_number(literal, kind, column) for literal in literals], kind, column, mixed)
        case Family.DATE | Family.TIMESTAMP | Family.TIMESTAMP_NTZ:
            found = [_moment_span(_as_moment(literal, column), column, zone, mixed) for literal in literals]
        case _:
            raise Rejected(f"the column is {column.value} ({kind}) and cannot be compared; ask for IS [NOT] NULL only")
    loose = listed and any(literal.kind is Kind.STRING for literal in literals)
    return [replace(span, exact=False) for span in found] if loose else found


def zone_named(name: str) -> tzinfo:
    """The zone of a name such as ``UTC``, ``+02:00`` or ``Europe/Berlin``. Raises Rejected."""
    if name.upper() in ("UTC", "Z", "GMT"):
        return UTC
    if offset := _OFFSET.fullmatch(name):
        minutes = int(offset[2]) * 60 + int(offset[3] or 0)
        if minutes <= 18 * 60 and int(offset[3] or 0) < 60:
            return timezone(timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Rejected(f"{name[:60]!r} is not a known time zone") from None


def _exact(literal: Literal) -> Decimal:
    if literal.kind is Kind.STRING:
        literal = number(str(literal.value), Kind.EXACT)
    if literal.kind is not Kind.EXACT or not isinstance(literal.value, Decimal):
        raise Rejected("only an integer, a decimal or a string with one can be cast to an exact number")
    return literal.value


def _floating(text: str, kind: Kind) -> Literal:
    if re.fullmatch(r"(?i)[+-]?inf(inity)?|nan", text):
        return Literal(kind, Decimal(text))
    return number(text, kind)


def _boolean(text: str) -> int:
    if text.lower() not in _BOOLEANS:
        raise Rejected(f"{text[:60]!r} is not a boolean; write TRUE or FALSE")
    return _BOOLEANS[text.lower()]


def _date(text: str) -> Moment:
    match = _DATE.fullmatch(text)
    if not match:
        raise Rejected(f"{text[:60]!r} is not a date; write it as yyyy-mm-dd")
    return Moment(_micros(*match.groups()))


def _timestamp(text: str) -> Moment:
    match = _TIMESTAMP.fullmatch(text)
    if not match:
        raise Rejected(f"{text[:60]!r} is not a timestamp; write it as yyyy-mm-dd hh:mm:ss[.ffffff][zone]")
    *fields, zone = match.groups()
    return Moment(_micros(*fields), zone_named(zone) if zone else None)


def _micros(year: str, month: str, day: str, *clock: str | None) -> int:
    hour, minute, second, fraction = (*clock, None, None, None, None)[:4]
    try:
        at = datetime(int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0), tzinfo=UTC)
    except ValueError as error:
        raise Rejected(f"there is no such day or time: {error}") from None
    seconds = (at.toordinal() - _EPOCH) * 86_400 + at.hour * 3_600 + at.minute * 60 + at.second
    return seconds * 1_000_000 + int((fraction or "").ljust(6, "0"))


def _string_span(literal: Literal) -> Span:
    if not isinstance(literal.value, str):
        raise Rejected("the column is a string: quote the value, as in '5'")
    return Span(literal.value, literal.value, exact=True)


def _boolean_span(literal: Literal) -> Span:
    truth = _boolean(literal.value) if isinstance(literal.value, str) else literal.value
    if not isinstance(truth, int):
        raise Rejected("the column is a boolean: compare it with TRUE or FALSE")
    return Span(truth, truth, exact=True)


def _as_number(literal: Literal, kind: pa.DataType, column: Family) -> Literal:
    if isinstance(literal.value, Decimal):
        return literal
    if literal.kind is not Kind.STRING:
        raise Rejected(f"the column is {column.value} and cannot be compared with this value")
    text = str(literal.value)
    if column is Family.FLOATING:
        return _floating(text, Kind.DOUBLE)
    if column is Family.INTEGER and not _INTEGER.fullmatch(text):
        raise Rejected(f"the column is an integer and {text[:60]!r} is not written as one")
    exact = number(text, Kind.EXACT)
    if column is Family.INTEGER:
        return exact
    if not _fits(_exact(exact), _DECIMAL_DIGITS, kind.scale):
        raise Rejected(f"the column is {kind} and {text[:60]!r} has more digits after the point")
    return replace(exact, kind=Kind.DOUBLE)  # depending on the session, Spark compares the two as doubles


def _number_spans(literals: Sequence[Literal], kind: pa.DataType, column: Family, mixed: bool) -> list[Span]:
    values = [literal.value for literal in literals if isinstance(literal.value, Decimal)]
    if column is Family.FLOATING:
        return [_rounded(value) for value in values]
    if mixed or literals[0].kind is not Kind.EXACT:
        single = mixed or literals[0].kind is Kind.FLOAT
        found = [_neighbourhood(value, single) for value in values]
        return [_whole(span) for span in found] if column is Family.INTEGER else found
    if _exceeds_decimal(literals, kind):
        return [Span(math.floor(value) - 1, math.ceil(value) + 1) for value in values]
    return [Span(value, value, exact=True) for value in map(_plain, values)]


def _plain(value: Decimal) -> int | Decimal:
    return int(value) if value == value.to_integral_value() else value


def _digits(value: Decimal) -> tuple[int, int]:
    """Digits before and after the point."""
    _, digits, exponent = value.as_tuple()
    return max(len(digits) + int(exponent), 0), max(-int(exponent), 0)


def _fits(value: Decimal, precision: int, scale: int) -> bool:
    """Whether DECIMAL(precision, scale) holds the value unrounded."""
    scaled = Fraction(value) * 10**scale
    return scaled.denominator == 1 and len(str(abs(scaled.numerator))) <= precision


def _exceeds_decimal(literals: Sequence[Literal], kind: pa.DataType) -> bool:
    """Whether no decimal type holds both sides, so that Spark rounds both, each by up to a half."""
    column: tuple[int, int] = (kind.precision - kind.scale, kind.scale) if pa.types.is_decimal(kind) else (20, 0)
    sides = [column, *(literal.digits for literal in literals)]
    return max(before for before, _ in sides) + max(after for _, after in sides) > _DECIMAL_DIGITS


def _single(value: float) -> float:
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _roundings(value: Decimal) -> list[float]:
    """The doubles and single precision numbers that Spark may read a number as, also when it rounds it twice."""
    double = float(value)
    near = (math.nextafter(double, -math.inf), double, math.nextafter(double, math.inf))
    return [double, *map(_single, near)]


def _rounded(value: Decimal) -> Span:
    """For a column that is itself floating point: only the constant is rounded."""
    if not value.is_finite():
        return _beyond(value)
    candidates = [value, *map(Decimal, _roundings(value))]
    return Span(_end(min(candidates)), _end(max(candidates)))


def _neighbourhood(value: Decimal, single: bool) -> Span:
    """For another column in a floating point comparison: its values are rounded too, by less than one step."""
    if not value.is_finite():
        return _beyond(value)
    candidates = _roundings(value) if single else [float(value)]
    low, high = math.nextafter(min(candidates), -math.inf), math.nextafter(max(candidates), math.inf)
    if single:
        low, high = low - abs(low) * 2**-22 - 2**-148, high + abs(high) * 2**-22 + 2**-148
    return Span(_end(min(value, Decimal(low))), _end(max(value, Decimal(high))))


def _beyond(value: Decimal) -> Span:
    """NaN and the infinities lie outside all finite numbers; Spark orders NaN after infinity."""
    return Span(None, -_LARGEST_DOUBLE) if value == Decimal("-Infinity") else Span(_LARGEST_DOUBLE, None)


def _end(value: Decimal) -> int | Decimal | None:
    return _plain(value) if value.is_finite() else None


def _whole(span: Span) -> Span:
    """The integers of a span."""
    low = math.ceil(span.low) if isinstance(span.low, Decimal) else span.low
    return Span(low, math.floor(span.high) if isinstance(span.high, Decimal) else span.high)


def _as_moment(literal: Literal, column: Family) -> Literal:
    if isinstance(literal.value, Moment):
        return literal
    if literal.kind is not Kind.STRING:
        raise Rejected(f"the column is {column.value}: write the value as DATE '…', TIMESTAMP '…' or a quoted string")
    text = str(literal.value)
    return Literal(Kind.STRING, _date(text) if column is Family.DATE else _timestamp(text))


def _moment_span(literal: Literal, column: Family, zone: tzinfo, mixed: bool) -> Span:
    moment = literal.value
    if not isinstance(moment, Moment):
        raise Rejected(f"the column is {column.value} and cannot be compared with this value")
    micros, steady = moment.local, _is_steady(zone, moment.local)
    if column is Family.TIMESTAMP or moment.zone:
        micros -= _offset(moment.zone or zone, moment.local)
    if column is Family.TIMESTAMP:
        shifts = literal.kind in (Kind.DATE, Kind.TIMESTAMP_NTZ) or not (moment.zone or steady)
    else:
        zoned = literal.kind is Kind.TIMESTAMP and (column is Family.DATE or not steady)
        shifts = zoned or moment.zone is not None
    if shifts or mixed:
        return Span(micros - DAY, micros + DAY)
    return Span(micros, micros, exact=True)


def _offset(zone: tzinfo, local: int) -> int:
    """How far a zone's clock is ahead of UTC, in microseconds, when it shows this time."""
    shown = datetime(1970, 1, 1, tzinfo=zone) + timedelta(microseconds=local)
    return (shown.utcoffset() or timedelta()) // timedelta(microseconds=1)


def _is_steady(zone: tzinfo, local: int) -> bool:
    """Whether the zone's clock is not turned within a day of this time."""
    try:
        return len({_offset(zone, local + shift) for shift in (-DAY, 0, DAY)}) == 1
    except OverflowError:
        return zone is UTC
