"""Per-file statistics: a JSON text that must be sound in itself, since files are skipped on its word."""

import re
from datetime import datetime
from typing import Any

from lakelog.errors import Violation
from lakelog.log.validation.fields import MAX_INT64
from lakelog.log.validation.text import size_problem
from lakelog.strict_json import describe, loads_strict

_NOT_FINITE = frozenset({"NaN", "Infinity", "-Infinity"})
_begins_with_a_date = re.compile(r"[+-]?\d{4,}-\d\d-\d\d").match


def checked_stats(stats: str, where: str) -> tuple[dict[str, Any], list[Violation]]:
    """The parsed statistics, and everything that is wrong with them. Nothing of an unreadable text is returned.

    Columns are not compared with a schema, which takes state; counts and bounds are compared with each other.
    """
    if problem := size_problem(stats):
        return {}, [Violation(where, problem)]
    try:
        parsed = loads_strict(stats)
    except ValueError as error:
        return {}, [Violation(where, str(error))]
    if type(parsed) is not dict:
        return {}, [Violation(where, f"expected a JSON object, got {describe(parsed)}")]
    violations: list[Violation] = []
    records = parsed.get("numRecords")
    if records is None:
        records = MAX_INT64
    elif type(records) is not int or not 0 <= records <= MAX_INT64:
        violations.append(Violation(f"{where}.numRecords", f"expected 0 to {MAX_INT64}, got {describe(records)}"))
        records = MAX_INT64
    tight = parsed.get("tightBounds")
    if tight is not None and type(tight) is not bool:
        violations.append(Violation(f"{where}.tightBounds", f"expected true or false, got {describe(tight)}"))
    counts, lows, highs = (
        _columns(parsed, name, where, violations) for name in ("nullCount", "minValues", "maxValues")
    )
    if counts:
        _check_counts(counts, records, f"{where}.nullCount", violations)
    if lows and highs:
        _check_bounds(lows, highs, where, "", violations)
    return parsed, violations


def _columns(parsed: dict[str, Any], name: str, where: str, violations: list[Violation]) -> dict[str, Any]:
    columns = parsed.get(name)
    if type(columns) is dict:
        return columns
    if columns is not None:
        violations.append(Violation(f"{where}.{name}", f"expected an object, got {describe(columns)}"))
    return {}


def _check_counts(counts: dict[str, Any], records: int, where: str, violations: list[Violation]) -> None:
    for name, count in counts.items():
        if (type(count) is int and 0 <= count <= records) or count is None:
            continue
        if type(count) is dict:
            _check_counts(count, records, f"{where}.{name}", violations)
        elif type(count) is int and count > records and records < MAX_INT64:
            message = f"statistics contradict themselves: {count} nulls in {records} records"
            violations.append(Violation(f"{where}.{name}", message))
        else:
            violations.append(Violation(f"{where}.{name}", f"expected 0 to {records}, got {describe(count)}"))


def _check_bounds(
    lows: dict[str, Any], highs: dict[str, Any], where: str, parent: str, violations: list[Violation]
) -> None:
    for name, low in lows.items():
        high = highs.get(name)
        if low is None or high is None:
            continue
        kind = type(low)
        problem: str | None
        # Python orders strings by code point, which is the order of their UTF-8 bytes.
        if kind is type(high) and kind is not dict and kind is not list:
            if low <= high or (kind is str and _in_order_as_times(low, high)):
                continue
            problem = f"statistics contradict themselves: minimum {describe(low)} > maximum {describe(high)}"
        elif kind is dict and type(high) is dict:
            _check_bounds(low, high, where, f"{parent}{name}.", violations)
            continue
        else:
            problem = _mixed_problem(low, high)
        if problem:
            violations.append(Violation(f"{where}.minValues.{parent}{name}", problem))


def _mixed_problem(low: Any, high: Any) -> str | None:
    """What is wrong with bounds of two JSON types. Spark writes NaN and the infinities of a float as strings."""
    numbers = [float(bound) if bound in _NOT_FINITE else bound for bound in (low, high) if _is_number(bound)]
    if len(numbers) < 2:
        return f"statistics contradict themselves: minimum is {describe(low)}, maximum is {describe(high)}"
    if numbers[0] > numbers[1]:
        return f"statistics contradict themselves: minimum {describe(low)} > maximum {describe(high)}"
    return None


def _is_number(bound: Any) -> bool:
    return type(bound) in {int, float} or (type(bound) is str and bound in _NOT_FINITE)


def _in_order_as_times(low: str, high: str) -> bool:
    """Whether two strings, out of order as text, may be times in order: a time zone's offset or a year can do that."""
    if not (_begins_with_a_date(low) and _begins_with_a_date(high)):
        return False
    try:
        return datetime.fromisoformat(low) <= datetime.fromisoformat(high)
    except (TypeError, ValueError):
        # Years beyond 9999, or only one of the two has an offset: nothing can be said.
        return True
