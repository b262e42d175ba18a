"""Durations as Delta's table properties say them: ``interval 7 days``, ``interval 1 week 12 hours``."""

import re

_UNITS = {
    "microsecond": 0.001,
    "millisecond": 1,
    "second": 1000,
    "minute": 60_000,
    "hour": 3_600_000,
    "day": 86_400_000,
    "week": 604_800_000,
}
"""In milliseconds. Months and years are none: how long they are depends on when they begin."""

_PART = re.compile(r"([0-9]+)\s+([a-z]+?)s?(?:\s+|$)")


def milliseconds_in(interval: str) -> int | None:
    """How long an interval is; None if that cannot be told."""
    rest = interval.strip().lower().removeprefix("interval").strip()
    total, end = 0.0, 0
    while part := _PART.match(rest, end):
        if part[2] not in _UNITS:
            return None
        total += int(part[1]) * _UNITS[part[2]]
        end = part.end()
    return int(total) if rest and end == len(rest) else None
