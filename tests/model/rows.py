"""A table as a plain list of rows: what every verb must do to it, in the fewest words."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pyarrow as pa

from tests.model.values import Kind, order, same

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition in Spark's SQL, and whether a row meets it. NULL is None."""

    sql: str
    holds: Callable[[Mapping[str, Any]], bool | None]


@dataclass(frozen=True, slots=True)
class State:
    """What a version of a table is: its columns and its rows, in any order."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...] = ()
    by: str = ""
    """The partition column."""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def column(self, name: str) -> Column:
        return next(column for column in self.columns if column.name == name)

    def named(self, row: Row) -> dict[str, Any]:
        return dict(zip(self.names, row, strict=True))

    def counted(self) -> Counter[Row]:
        return Counter(tuple(same(value) for value in row) for row in self.rows)

    def arrow(self) -> pa.Table:
        values = list(zip(*self.rows, strict=True)) if self.rows else [()] * len(self.columns)
        arrays = [column.kind.array(value) for column, value in zip(self.columns, values, strict=True)]
        return pa.table(arrays, self.names)

    def of(self, table: pa.Table) -> "State":
        """The rows of a result with these columns."""
        columns = [column.kind.plain(table.column(column.name)) for column in self.columns]
        return replace(self, rows=tuple(zip(*columns, strict=True)))

    # Verbs

    def with_rows(self, rows: Sequence[Row]) -> "State":
        at = self.names.index(self.by)
        # An empty text has no directory: Spark and Delta take it for NULL.
        return replace(
            self, rows=tuple((*row[:at], row[at] if row[at] != "" else None, *row[at + 1 :]) for row in rows)
        )

    def matching(self, condition: Condition) -> "State":
        return self.with_rows([row for row in self.rows if condition.holds(self.named(row)) is True])

    def without(self, condition: Condition) -> "State":
        return self.with_rows([row for row in self.rows if condition.holds(self.named(row)) is not True])

    def append(self, rows: Sequence[Row]) -> "State":
        return self.with_rows([*self.rows, *rows])

    def replace_partitions(self, rows: Sequence[Row]) -> "State":
        """A dynamic overwrite."""
        at = self.names.index(self.by)
        given = {same(row[at]) for row in rows}
        return self.with_rows([*(row for row in self.rows if same(row[at]) not in given), *rows])

    def update(self, values: Mapping[str, Any], condition: Condition) -> "State":
        def changed(row: Row) -> Row:
            named = self.named(row)
            return tuple((named | values).values()) if condition.holds(named) is True else row

        return self.with_rows([changed(row) for row in self.rows])

    def merge(self, source: "State", matches: Callable[[Any, Any], bool], merge: "Merge") -> "State":
        kept: list[Row] = []
        matched: set[int] = set()
        for row in self.rows:
            found = [n for n, other in enumerate(source.rows) if matches(self.named(row), source.named(other))]
            assert len(found) < 2, "the source of a merge says two things of one row"
            matched.update(found)
            if not found:
                if not merge.deletes_others:
                    kept.append(row)
            elif not merge.deletes_matched:
                new = source.named(source.rows[found[0]])
                kept.append(tuple((self.named(row) | {name: new[name] for name in merge.sets}).values()))
        inserted = [row for n, row in enumerate(source.rows) if n not in matched] if merge.inserts else []
        return self.with_rows([*kept, *inserted])

    # Columns

    def add_column(self, column: Column) -> "State":
        return State((*self.columns, column), tuple((*row, None) for row in self.rows), self.by)

    def drop_column(self, name: str) -> "State":
        at = self.names.index(name)
        columns = self.columns[:at] + self.columns[at + 1 :]
        return State(columns, tuple(row[:at] + row[at + 1 :] for row in self.rows), self.by)

    def change_column(self, name: str, column: Column) -> "State":
        """Another name, or a wider type of the same plain values."""
        return replace(self, columns=tuple(column if each.name == name else each for each in self.columns))


@dataclass(frozen=True, slots=True)
class Merge:
    """What a merge does."""

    sets: tuple[str, ...] = ()
    deletes_matched: bool = False
    deletes_others: bool = False
    inserts: bool = True


@dataclass(slots=True)
class Table:
    """A table with those of its versions that can be read."""

    versions: dict[int, State] = field(default_factory=dict)

    @property
    def now(self) -> State:
        return self.versions[max(self.versions)]

    def forget(self) -> None:
        """Only the last version is left."""
        last = max(self.versions)
        self.versions = {last: self.versions[last]}


_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: bool(one == other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
    "<>": lambda one, other: bool(one != other),
}


def a_condition(random: Random, state: State, names: Sequence[str], *, of_partition: str, depth: int = 2) -> Condition:
    """A comparison with an edge of the column's type, or some of them joined. Never of a random outcome."""
    if depth and random.random() < 0.3:
        one = a_condition(random, state, names, of_partition=of_partition, depth=depth - 1)
        other = a_condition(random, state, names, of_partition=of_partition, depth=depth - 1)
        return random.choice([_both, _either])(one, other)
    column = state.column(random.choice(names))
    name, kind = column.name, column.kind
    value = kind.some(random, of_partition=name == of_partition)
    if value is None:
        return Condition(f"`{name}` IS NULL", lambda row: row[name] is None)
    if random.random() < 0.2:
        return Condition(f"NOT (`{name}` <=> {kind.literal(value)})", lambda row: same(row[name]) != same(value))
    if random.random() < 0.2:
        others = [kind.some(random, of_partition=name == of_partition) for _ in range(2)]
        given = [each for each in (value, *others) if each is not None]
        listed = ", ".join(kind.literal(each) for each in given)
        wanted = {same(each) for each in given}
        return Condition(
            f"`{name}` IN ({listed})", lambda row: None if row[name] is None else same(row[name]) in wanted
        )
    operator = random.choice(list(_OPERATORS))
    compare, fixed = _OPERATORS[operator], order(same(value))
    return Condition(
        f"`{name}` {operator} {kind.literal(value)}",
        lambda row: None if row[name] is None else compare(order(same(row[name])), fixed),
    )


def _both(one: Condition, other: Condition) -> Condition:
    def holds(row: Mapping[str, Any]) -> bool | None:
        answers = {one.holds(row), other.holds(row)}
        return False if False in answers else None if None in answers else True

    return Condition(f"({one.sql}) AND ({other.sql})", holds)


def _either(one: Condition, other: Condition) -> Condition:
    def holds(row: Mapping[str, Any]) -> bool | None:
        answers = {one.holds(row), other.holds(row)}
        return True if True in answers else None if None in answers else False

    return Condition(f"({one.sql}) OR ({other.sql})", holds)
