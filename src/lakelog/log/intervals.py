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

LONGEST = 365_250 * 86_400_000
"""A thousand years. What is longer is as good as this."""

_PART = re.compile(r"([0-9]+)\s+([a-z]+?)s?(?:\s+|$)")


def milliseconds_in(interval: str) -> int | None:
    """How long an interval is, at most ``LONGEST``; None if that cannot be told."""
    rest = interval.strip().lower().removeprefix("interval").strip()
    total, end = 0.0, 0
    while part := _PART.match(rest, end):
        if part[2] not in _UNITS:
            return None
        # Neither a float nor Python's reading of digits takes any number of them.
        total += int(part[1]) * _UNITS[part[2]] if len(part[1]) < 20 else LONGEST
        end = part.end()
    return int(min(total, LONGEST)) if rest and end == len(rest) else None
