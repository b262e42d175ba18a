"""The normal form of a predicate: what pruning knows how to search for.

It has no NOT, and is conservative: it holds for every row for which Spark finds the condition TRUE, and may hold for
more, so that a file may be left out as soon as its bounds say that no row satisfies the form.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakelog.log.pruning.literals import Span, Value


@dataclass(frozen=True, slots=True)
class Range:
    """The column is not null and lies in the interval. An end that is None is open, and counts as not inclusive."""

    column: str
    low: Value | None
    low_inclusive: bool
    high: Value | None
    high_inclusive: bool


@dataclass(frozen=True, slots=True)
class Differs:
    """The column is not null and is not this value. Never made for floating point columns."""

    column: str
    value: Value


@dataclass(frozen=True, slots=True)
class IsNull:
    """The column is null."""

    column: str


@dataclass(frozen=True, slots=True)
class NotNull:
    """The column is not null."""

    column: str


@dataclass(frozen=True, slots=True)
class And:
    """All of two or more: at most one Range per column, no And inside."""

    items: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of two or more, no Or inside."""

    items: tuple["Predicate", ...]


@dataclass(frozen=True, slots=True)
class Everything:
    """Any row may match."""


@dataclass(frozen=True, slots=True)
class Nothing:
    """No row can match."""


Predicate: TypeAlias = Range | Differs | IsNull | NotNull | And | Or | Everything | Nothing


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition from both sides, for who wants to know more than where its rows can be."""

    rows: Predicate
    """Holds for every row for which the condition is TRUE."""
    others: Predicate
    """Holds for every row for which it is FALSE or NULL."""
    parts: tuple[tuple[str, Predicate], ...]
    """What it joins by AND, each with its text."""


def columns_in(predicate: Predicate) -> set[str]:
    """The columns that a predicate is about."""
    if isinstance(predicate, And | Or):
        return set().union(*map(columns_in, predicate.items))
    return set() if isinstance(predicate, Everything | Nothing) else {predicate.column}


def holds(predicate: Predicate, row: Mapping[str, Any]) -> bool:
    """Whether a row satisfies the form. Times are microseconds and booleans numbers, as in the form."""
    match predicate:
        case Everything():
            return True
        case Nothing():
            return False
        case And(items):
            return all(holds(item, row) for item in items)
        case Or(items):
            return any(holds(item, row) for item in items)
        case IsNull(column):
            return row[column] is None
        case NotNull(column):
            return row[column] is not None
        case Differs(column, value):
            return row[column] is not None and row[column] != value
        case Range():
            return _lies_in(row[predicate.column], predicate)


def _lies_in(value: Any, found: Range) -> bool:
    if value is None:
        return False
    above = found.low is None or value > found.low or (found.low_inclusive and value == found.low)
    return above and (found.high is None or value < found.high or (found.high_inclusive and value == found.high))


OPPOSITE = {"eq": "neq", "neq": "eq", "lt": "gte", "gte": "lt", "gt": "lte", "lte": "gt"}
"""The comparison that is TRUE where another one is FALSE."""

MIRRORED = {"lt": "gt", "gt": "lt", "lte": "gte", "gte": "lte"}
"""The comparison with its sides exchanged, where that is another one."""


def placed(column: str, comparison: str, span: Span) -> Predicate:
    """Where a column must lie for a comparison with a constant to be TRUE."""
    match comparison:
        case "eq":
            return interval(column, span.low, True, span.high, True)
        case "neq" if span.exact and span.low is not None:
            return Differs(column, span.low)
        case "lt" | "lte":
            return interval(column, None, False, span.high, comparison == "lte" or not span.exact)
        case "gt" | "gte":
            return interval(column, span.low, comparison == "gte" or not span.exact, None, False)
    return NotNull(column)


def interval(
    column: str, low: Value | None, low_inclusive: bool, high: Value | None, high_inclusive: bool
) -> Predicate:
    """A Range, or what is left of it: NotNull without ends, Nothing if it is empty."""
    if low is None and high is None:
        return NotNull(column)
    found = Range(column, low, low_inclusive and low is not None, high, high_inclusive and high is not None)
    return Nothing() if _is_empty(found) else found


def conjunction(items: Iterable[Predicate]) -> Predicate:
    """All of the items, simplified; the ranges of a column become one."""
    kept: dict[object, Predicate] = {}
    for item in _flat(items, And):
        if isinstance(item, Nothing):
            return item
        key: object = (Range, item.column) if isinstance(item, Range) else item
        earlier = kept.get(key)
        if isinstance(earlier, Range) and isinstance(item, Range):
            item = _intersection(earlier, item)
            if _is_empty(item):
                return Nothing()
        kept[key] = item
    kept.pop(Everything(), None)
    bound = {item.column for item in kept.values() if isinstance(item, Range | Differs)}
    found = [item for item in kept.values() if not (isinstance(item, NotNull) and item.column in bound)]
    if any(isinstance(item, IsNull) and (item.column in bound or NotNull(item.column) in kept) for item in found):
        return Nothing()
    return _one(found, And, Everything())


def disjunction(items: Iterable[Predicate]) -> Predicate:
    """One of the items, simplified."""
    kept = dict.fromkeys(_flat(items, Or))
    kept.pop(Nothing(), None)
    if Everything() in kept or any(isinstance(item, IsNull) and NotNull(item.column) in kept for item in kept):
        return Everything()
    found = [item for item in kept if not (isinstance(item, Range | Differs) and NotNull(item.column) in kept)]
    return _one(found, Or, Nothing())


def _one(items: list[Predicate], several: type[And] | type[Or], none: Predicate) -> Predicate:
    return several(tuple(items)) if len(items) > 1 else items[0] if items else none


def _flat(items: Iterable[Predicate], kind: type[And] | type[Or]) -> Iterable[Predicate]:
    for item in items:
        if isinstance(item, kind):
            yield from item.items
        else:
            yield item


def _is_empty(found: Range) -> bool:
    if found.low is None or found.high is None:
        return False
    if found.low == found.high:
        return not (found.low_inclusive and found.high_inclusive)
    return bool(found.low > found.high)  # type: ignore[operator]  # one column's values are of one sort


def _intersection(a: Range, b: Range) -> Range:
    lows = [r for r in (a, b) if r.low is not None]
    highs = [r for r in (a, b) if r.high is not None]
    low = max(lows, key=lambda r: (r.low, not r.low_inclusive), default=a)
    high = min(highs, key=lambda r: (r.high, r.high_inclusive), default=a)
    return Range(a.column, low.low, low.low_inclusive, high.high, high.high_inclusive)
