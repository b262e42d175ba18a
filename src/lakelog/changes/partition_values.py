"""Which partition values are the same. Exact for every type, unlike bounds, which are rounded.

Two texts can mean one value: ``1.5`` and ``1.50``, or an instant in two zones. A text that cannot be read as a value of
its column's type equals only itself: whether it means what another text means is unsure.
"""

import json
import math
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.errors import ValidationError, Violation
from lakelog.log.state import TableMetadata

PartitionValues: TypeAlias = Mapping[str, str | None]
"""Serialised values by physical names."""

_Key: TypeAlias = tuple[Hashable, ...]

_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,9}))?")
_DATE = r"([+-]?[0-9]{4,7})-([0-9]{1,2})-([0-9]{1,2})"
_CLOCK = r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,6})0*)?)?"
_ZONE = r"(Z|[+-][0-9]{2}:?[0-9]{2})?"
_DAY = re.compile(_DATE)
_MOMENT = re.compile(rf"{_DATE}(?:[ T]{_CLOCK}{_ZONE})?")
_LONGEST = 400
"""Digits that are multiplied out; no type holds more."""
_SPECIAL = {"NaN": "NaN", "Infinity": math.inf, "-Infinity": -math.inf}
_CYCLE = 400
"""Years after which the calendar repeats itself."""
_CYCLE_DAYS = 146_097
_EPOCH = date(1970, 1, 1).toordinal()
_DAY_MICROSECONDS = 86_400_000_000


@dataclass(frozen=True, slots=True)
class _Unread:
    """A text that is not known to be a value of its column's type."""

    text: str


def files_in(
    files: Any, partitions: Iterable[PartitionValues], metadata: TableMetadata, *, unsure: bool = False
) -> Any:
    """The files of these partitions, whose values are compared as values and not as texts.

    A partition that names only some of the columns is all that agree in them. With ``unsure`` files belong to it, too,
    whose values cannot be told from its own. Raises ``ValidationError`` for columns that are none of the partitioning.
    """
    types = {field.name: field.type for field in metadata.partitions}
    partitions = tuple(partitions)
    unknown = {name for values in partitions for name in values if name not in types}
    if unknown:
        message = f"is not one of the partition columns {list(types)}"
        raise ValidationError("partitions", [Violation(repr(name), message) for name in sorted(unknown)])
    wanted: dict[tuple[str, ...], set[_Key]] = {}
    for values in partitions:
        names = tuple(sorted(values))
        wanted.setdefault(names, set()).add(_key(values, names, types))
    sought = [_Sought(names, keys) for names, keys in wanted.items()]
    inside = []
    for text in pc.unique(files["partition_values"]).to_pylist():
        values = json.loads(text)
        for each in sought:
            key = _key(values, each.names, types)
            if key in each.keys or (unsure and each.can_hold(key)):
                inside.append(text)
                break
    return files.filter(pc.is_in(files["partition_values"], pa.array(inside, pa.string())))


class _Sought:
    """Partitions by the same columns."""

    def __init__(self, names: tuple[str, ...], keys: set[_Key]) -> None:
        self.names = names
        self.keys = keys
        self._unread = [key for key in keys if _is_unread(key)]

    def can_hold(self, key: _Key) -> bool:
        """Whether a key that is none of these may mean the same as one of them."""
        candidates: Iterable[_Key] = self.keys if _is_unread(key) else self._unread
        return any(_may_be_equal(key, each) for each in candidates)


def _is_unread(key: _Key) -> bool:
    return any(isinstance(value, _Unread) for value in key)


def _may_be_equal(one: _Key, other: _Key) -> bool:
    return all(
        left == right or isinstance(left, _Unread) or isinstance(right, _Unread)
        for left, right in zip(one, other, strict=True)
    )


def _key(values: PartitionValues, names: Sequence[str], types: Mapping[str, pa.DataType]) -> _Key:
    return tuple(_identity(values[name], types[name]) for name in names)


def _identity(text: str | None, kind: pa.DataType) -> Hashable:
    """Equal for texts that mean the same value of a type, and different for others."""
    if text is None or text == "":
        return None
    value = _value(text, kind)
    return _Unread(text) if value is None else value


def _value(text: str, kind: pa.DataType) -> Hashable | None:
    """None if the text is no value of the type, or is written as no writer does."""
    types = pa.types
    if types.is_integer(kind):
        return _scaled(text, 0)
    if types.is_decimal(kind):
        return _scaled(text, kind.scale)
    if types.is_floating(kind):
        return _floating(text, kind)
    if types.is_boolean(kind):
        return {"true": True, "false": False}.get(text.lower())
    if types.is_date(kind):
        found = _DAY.fullmatch(text)
        return None if found is None else _days(*map(int, found.groups()))
    if types.is_timestamp(kind):
        return _microseconds(text, has_zone=kind.tz is not None)
    return text


def _scaled(text: str, scale: int) -> int | None:
    """A number times a power of ten that makes it whole; None if it does not."""
    found = _NUMBER.fullmatch(text)
    if found is None or len(text) > _LONGEST:
        return None
    sign, whole, fraction, exponent = found.groups()
    digits = (whole or "") + (fraction or "")
    shift = int(exponent or 0) - len(fraction or "") + scale
    if not digits or abs(shift) > _LONGEST:
        return None
    value = int(sign + digits)
    if shift >= 0:
        return int(value * 10**shift)
    quotient, rest = divmod(value, 10**-shift)
    return None if rest else quotient


def _floating(text: str, kind: pa.DataType) -> Hashable | None:
    if text in _SPECIAL:
        return _SPECIAL[text]
    if not _NUMBER.fullmatch(text):
        return None
    try:
        # Arrow rounds the digits once. By way of a double, a single would be rounded twice.
        value = pa.scalar(text.removeprefix("+")).cast(kind).as_py()
    except pa.ArrowInvalid:
        return None
    return value if math.isfinite(value) else None


def _microseconds(text: str, *, has_zone: bool) -> int | None:
    """Microseconds since 1970; of an instant in UTC, which is also meant where no zone is named."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = found.groups()
    if zone and not has_zone:
        return None
    days = _days(int(year), int(month), int(day))
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if days is None or hours > 23 or minutes > 59 or seconds > 59:
        return None
    clock = (hours * 60 + minutes - _offset(zone)) * 60 + seconds
    return days * _DAY_MICROSECONDS + clock * 1_000_000 + int((fraction or "").ljust(6, "0"))


def _offset(zone: str | None) -> int:
    """Minutes that a zone is ahead of UTC."""
    if zone is None or zone == "Z":
        return 0
    minutes = int(zone[1:3]) * 60 + int(zone[-2:])
    return -minutes if zone[0] == "-" else minutes


def _days(year: int, month: int, day: int) -> int | None:
    """Days since 1970 in the calendar of today, whatever the year. Python's own dates end with the year 9999."""
    cycles, rest = divmod(year - 1, _CYCLE)
    try:
        return date(rest + 1, month, day).toordinal() - _EPOCH + cycles * _CYCLE_DAYS
    except ValueError:
        return None
