"""From a predicate to the files that can hold a matching row.

Each condition becomes a set of file keys that the catalog's index finds: files that can match, or files that cannot.
Sets are combined in SQL; values are bound. A file is left out only if its bounds prove that no row matches.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from lakelog.catalog.queries import Queries
from lakelog.log.pruning.bounds import FLOATS, Kind, kind_of, outward
from lakelog.log.pruning.predicate import And, Differs, Everything, IsNull, Nothing, NotNull, Or, Predicate, Range
from lakelog.log.state import TableMetadata
from lakelog.schema import leaf_columns

_POINTS = 32
"""Intervals of one column that are searched for one by one; more are joined with their neighbours."""

_MOST = 256
"""Conditions of one query. A predicate with more keeps every file: databases take only so many."""

_EXACT_TEXT = 32
"""Writers may cut strings from this length on, so that equal bounds no longer mean equal values."""

_LAST_TEXT = "\U0010ffff" * 65


@dataclass(frozen=True, slots=True)
class Column:
    """A column as the index knows it."""

    name: str
    kind: Kind
    since: int
    """Files of earlier versions have no row for it."""
    same_since: int
    """Statistics of earlier versions were made for another kind."""
    partition: bool


@dataclass(frozen=True, slots=True)
class Test:
    """One condition on one column's bounds, in the values that the index compares."""

    statement: str
    column: Column
    values: Mapping[str, Any]
    excludes: bool = False
    """Whether the statement finds the files that cannot match."""


@dataclass(frozen=True, slots=True)
class AllOf:
    items: tuple["Plan", ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    items: tuple["Plan", ...]


Plan: TypeAlias = Test | AllOf | AnyOf | Everything | Nothing


def columns_of(metadata: TableMetadata, before: Mapping[str, Column]) -> dict[str, Column]:
    """The columns that can be searched, by logical name. ``before`` are those of the metadata that it follows."""
    known = {column.name: column for column in before.values()}
    found: dict[str, Column] = {}
    indexed = {leaf.name for leaf in metadata.indexed}
    for logical, physical in zip(leaf_columns(metadata.schema), leaf_columns(metadata.physical), strict=True):
        kind = kind_of(physical.type)
        if kind is not None and physical.name in indexed:
            partition = len(physical.path) == 1 and physical.path[0] in metadata.partition_columns
            column = Column(physical.name, kind, metadata.version, metadata.version, partition)
            found[logical.name] = _continued(column, known.get(physical.name))
    return found


def _continued(column: Column, before: Column | None) -> Column:
    """A column with the versions from which on it was what it is."""
    if before is None:
        return column
    # What stands for a file without statistics is another row in a partition column than elsewhere.
    rows_alike = (before.kind is Kind.TEXT) == (column.kind is Kind.TEXT) and before.partition == column.partition
    return replace(
        column,
        since=before.since if rows_alike else column.since,
        same_since=before.same_since if before.kind is column.kind else column.same_since,
    )


def bind(predicate: Predicate, columns: Mapping[str, Column]) -> Plan:
    """The predicate in the values of the index. Columns that are not indexed keep every file."""
    plan = _bound(predicate, columns)
    return Everything() if _size(plan) > _MOST else plan


def _bound(predicate: Predicate, columns: Mapping[str, Column]) -> Plan:
    if isinstance(predicate, And | Or):
        items = _joined(predicate.items) if isinstance(predicate, Or) else _loosened(predicate.items)
        return _simplified(AllOf if isinstance(predicate, And) else AnyOf, [_bound(item, columns) for item in items])
    if isinstance(predicate, Everything | Nothing):
        return predicate
    column = columns.get(predicate.column)
    if column is None:
        return Everything()
    if isinstance(predicate, IsNull):
        return Test("keys_null", column, {})
    if isinstance(predicate, NotNull):
        return Test("keys_all_null", column, {}, excludes=True)
    if isinstance(predicate, Differs):
        return _differs(predicate, column)
    return _range(predicate, column)


def _range(predicate: Range, column: Column) -> Plan:
    low, high = predicate.low, predicate.high
    if column.kind is Kind.TEXT:
        return Test("keys_range_text", column, {"low": low or "", "high": _LAST_TEXT if high is None else high})
    if column.kind in FLOATS and high is None:
        # NaN is above every number for Spark, and statistics need not mention it.
        return Test("keys_all_null", column, {}, excludes=True)
    lowest = -math.inf if low is None else _inside(low, predicate.low_inclusive, math.inf)
    highest = math.inf if high is None else _inside(high, predicate.high_inclusive, -math.inf)
    return Test("keys_range_num", column, {"low": lowest, "high": highest})


def _inside(value: Any, inclusive: bool, direction: float) -> float:
    """The first double that an interval with this end can hold, seen in the direction of its inside."""
    below, above = outward(value)
    if below == above and not inclusive:
        return math.nextafter(below, direction)
    return below if direction > 0 else above


def _differs(predicate: Differs, column: Column) -> Plan:
    value = predicate.value
    only_nulls = Test("keys_all_null", column, {}, excludes=True)
    if isinstance(value, str):
        if len(value) >= _EXACT_TEXT:
            return only_nulls
        only = Test("keys_only_text", column, {"value": value, "span": float(len(value))}, excludes=True)
        return AllOf((only, only_nulls))
    below, above = outward(value)
    if below != above or column.kind in FLOATS:
        return only_nulls
    return AllOf((Test("keys_only_num", column, {"value": below}, excludes=True), only_nulls))


def _joined(items: Sequence[Predicate]) -> list[Predicate]:
    """Long IN lists become a bounded number of intervals, each around neighbouring values."""
    kept: list[Predicate] = [item for item in items if not isinstance(item, Range)]
    by_column: dict[str, list[Range]] = {}
    for item in items:
        if isinstance(item, Range):
            by_column.setdefault(item.column, []).append(item)
    for ranges in by_column.values():
        if len(ranges) <= _POINTS or any(each.low is None or each.high is None for each in ranges):
            kept += ranges
            continue
        ranges.sort(key=lambda each: each.low)  # type: ignore[arg-type, return-value]
        size = math.ceil(len(ranges) / _POINTS)
        for start in range(0, len(ranges), size):
            group = ranges[start : start + size]
            high = max(each.high for each in group)  # type: ignore[type-var]
            kept.append(Range(group[0].column, group[0].low, True, high, True))
    return kept


def _loosened(items: Sequence[Predicate]) -> list[Predicate]:
    """Long NOT IN lists say no more than NOT NULL: hardly a file has only one value, and that one of the list."""
    counts = Counter(item.column for item in items if isinstance(item, Differs))
    long = {column for column, count in counts.items() if count > _POINTS}
    kept = [item for item in items if not (isinstance(item, Differs) and item.column in long)]
    return [*kept, *map(NotNull, sorted(long))]


def _size(plan: Plan) -> int:
    return sum(map(_size, plan.items)) if isinstance(plan, AllOf | AnyOf) else 1


def _simplified(kind: type[AllOf] | type[AnyOf], plans: list[Plan]) -> Plan:
    neutral, absorbing = (Everything, Nothing) if kind is AllOf else (Nothing, Everything)
    kept = [plan for plan in plans if not isinstance(plan, neutral)]
    for plan in kept:
        if isinstance(plan, absorbing):
            return plan
    if not kept:
        return neutral()
    return kept[0] if len(kept) == 1 else kind(tuple(kept))


class KeyQuery:
    """SQL, in the notation of the SQL files, that gives the keys of the files that a plan keeps."""

    def __init__(self, queries: Queries, plan: Plan) -> None:
        self._queries = queries
        self.parameters: dict[str, Any] = {}
        self._count = 0
        self.sql = self._positive(*self._set(plan))

    def _set(self, plan: Plan) -> tuple[str, bool]:
        """A set of keys, and whether it is the complement that is meant."""
        if isinstance(plan, Test):
            return self._test(plan)
        assert isinstance(plan, AllOf | AnyOf), "everything and nothing need no query"
        sets = [self._set(item) for item in plan.items]
        plain = [sql for sql, complement in sets if not complement]
        without = [sql for sql, complement in sets if complement]
        if isinstance(plan, AllOf):
            if not plain:
                return _chain("UNION", without), True
            kept = _chain("INTERSECT", plain)
            return (_chain("EXCEPT", [kept, *without]), False) if without else (kept, False)
        if not without:
            return _chain("UNION", plain), False
        excluded = _chain("INTERSECT", without)
        return (_chain("EXCEPT", [excluded, *plain]), True) if plain else (excluded, True)

    def _test(self, test: Test) -> tuple[str, bool]:
        self._count += 1
        mark = f"_{self._count}"
        self.parameters[f"column{mark}"] = test.column.name
        self.parameters |= {f"{name}{mark}": value for name, value in test.values.items()}
        parts = [self._queries.template(test.statement, n=mark)]
        if test.excludes:
            return parts[0], True
        if not test.column.partition:
            parts.append(self._queries.template("keys_without_stats"))
        if test.column.since > 0:
            self.parameters[f"since{mark}"] = test.column.since
            parts.append(self._queries.template("keys_before", n=mark))
        return _chain("UNION ALL", parts), False

    def _positive(self, sql: str, complement: bool) -> str:
        if not complement:
            return f"SELECT DISTINCT version, ordinal FROM ({sql}) AS k"
        return _chain("EXCEPT", [self._queries.template("live_keys"), sql])


def _chain(operator: str, parts: Sequence[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    return f"\n{operator}\n".join(f"SELECT version, ordinal FROM (\n{part}\n) AS k" for part in parts)
