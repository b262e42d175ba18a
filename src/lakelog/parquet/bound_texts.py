"""How the bounds in a Parquet footer become those of Delta's statistics, as texts of JSON."""

import json
import math
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from lakelog.log.pruning.bounds import FLOATS, TEXT_LENGTH, Kind, kind_of, next_text
from lakelog.strict_json import encode_json

_ANCIENT_DAY = (date(1900, 1, 1) - date(1970, 1, 1)).days
_DAY_MICROSECONDS = 86_400_000_000
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - the zone is written by hand
_EPOCH_ORDINAL = _EPOCH.toordinal()
_PER_DAY = {"milliseconds": 86_400_000, "microseconds": _DAY_MICROSECONDS, "nanoseconds": 86_400_000_000_000}


class Form(NamedTuple):
    """How a column's bounds in a footer are read and written."""

    low_text: Callable[[Any], str | None]
    high_text: Callable[[Any], str | None]
    value: Callable[[Any], Any] | None = None
    """Makes what is compared from what the footer holds, where that is not the same."""
    is_float: bool = False
    ancient: int | None = None
    """Times before this may be of the calendar of Spark 2."""


def form_of(column: Any, wanted: Any) -> Form | None:
    """How bounds of a column of a file serve a leaf, which may be of a wider type; None if they do not."""
    kind = kind_of(wanted)
    logical = json.loads(column.logical_type.to_json())
    name, physical = logical["Type"], column.physical_type
    is_integer = physical in ("INT32", "INT64") and (name == "None" or (name == "Int" and logical["isSigned"]))
    if kind is Kind.TEXT and name == "String":
        return Form(_low_text, _high_text)
    if kind is Kind.INTEGER and is_integer:
        return Form(str, str)
    if kind in FLOATS and physical in ("FLOAT", "DOUBLE") and (kind is Kind.FLOAT or physical == "FLOAT"):
        return Form(_float_text, _float_text, is_float=True)
    if kind is Kind.FLOAT and is_integer and physical == "INT32":
        return Form(str, str)
    if kind in (Kind.DECIMAL, Kind.LONG_DECIMAL) and (is_integer or name == "Decimal"):
        text = partial(_decimal_text, scale=logical.get("scale", 0))
        return Form(text, text, value=_unscaled if physical.endswith("BYTE_ARRAY") else None)
    if kind is Kind.BOOLEAN and physical == "BOOLEAN":
        return Form(_boolean_text, _boolean_text)
    if kind is Kind.DATE and name == "Date":
        return Form(_date_text, _date_text, ancient=_ANCIENT_DAY)
    if kind is Kind.TIMESTAMP and name in ("Timestamp", "Date"):
        return _time_form(logical, zoned=wanted.tz is not None)
    return None


def _time_form(logical: Mapping[str, Any], *, zoned: bool) -> Form | None:
    # A date can become a timestamp without a zone.
    if zoned != logical.get("isAdjustedToUTC", False):
        return None
    per_day = _PER_DAY.get(logical["timeUnit"]) if logical["Type"] == "Timestamp" else 1
    if per_day is None:
        return None
    end = 'Z"' if zoned else '"'

    def low_text(value: int) -> str | None:
        return _time_text(value * _DAY_MICROSECONDS // per_day, end)

    def high_text(value: int) -> str | None:
        return _time_text(-(-value * _DAY_MICROSECONDS // per_day), end)

    return Form(low_text, high_text, ancient=_ANCIENT_DAY * per_day)


def _low_text(value: bytes) -> str | None:
    text = _text(value)
    return None if text is None else encode_json(text[:TEXT_LENGTH])


def _high_text(value: bytes) -> str | None:
    # A footer may hold a string that was cut, and pyarrow does not say so. It is a bound all the same: what
    # parquet-mr cuts off a maximum (BinaryTruncator) it makes up for by raising the character before, and it writes
    # the whole string where none can be raised. The format asks the same of every writer.
    text = _text(value)
    if text is not None and len(text) > TEXT_LENGTH:
        text = next_text(text[:TEXT_LENGTH])
    return None if text is None else encode_json(text)


def _text(value: bytes) -> str | None:
    try:
        return None if b"\0" in value else value.decode()
    except UnicodeDecodeError:
        return None


def _float_text(value: float) -> str | None:
    # JSON has no infinity, and Delta's text for it says no more to a search than nothing.
    return repr(value) if math.isfinite(value) else None


def _unscaled(value: bytes) -> int:
    return int.from_bytes(value, "big", signed=True)


def _decimal_text(unscaled: int, scale: int) -> str:
    if scale == 0:
        return str(unscaled)
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{'-' if unscaled < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def _boolean_text(value: bool) -> str:
    return "true" if value else "false"


def _date_text(days: int) -> str | None:
    try:
        return f'"{date.fromordinal(_EPOCH_ORDINAL + days).isoformat()}"'
    except (OverflowError, ValueError):
        # Spark's years go beyond four digits.
        return None


def _time_text(microseconds: int, end: str) -> str | None:
    try:
        moment = _EPOCH + timedelta(microseconds=microseconds)
    except OverflowError:
        return None
    return f'"{moment.isoformat(timespec="microseconds")}{end}'
