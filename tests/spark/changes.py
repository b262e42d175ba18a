"""Changes of a table with rows from the edges of every type: what Lakelog is told, and what must come of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from pyspark.sql import Column as SparkColumn
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog import Dataset, Lake, write_dataset
from tests.model.rows import Column, Merge, Row, State, a_condition
from tests.model.values import BIGINT, HOUR, INT, REPEATED_HOUR, STRING, TIMESTAMP, Kind, same

PARTITION = "p"
TEXTS = replace(STRING, edges=("a", "b", "A", "a!", "b!", "a\\b", "b\\b"))
"""Texts that functions make of each other."""
MOMENTS = replace(TIMESTAMP, edges=(0, REPEATED_HOUR, REPEATED_HOUR + HOUR))


def columns_of(partition: Kind, values: Sequence[Kind]) -> tuple[Column, ...]:
    """Of a table: a partition column, others with edges, keys of merges, and two whose type changes."""
    edges = (Column(f"v{number}", kind) for number, kind in enumerate(values))
    keys = (Column("k", TEXTS), Column("at", MOMENTS))
    return Column("id", BIGINT), Column(PARTITION, partition), *edges, *keys, Column("w", INT), Column("u", INT)


@dataclass(frozen=True, slots=True)
class Change:
    """What is told in a history, what is done, and what the rows are then."""

    told: str
    run: Callable[[Lake, str], Any]
    becomes: Callable[[State], State]
    reads_nothing: bool = False
    """Whether it is refused for no other change of rows."""


@dataclass(slots=True)
class Changes:
    """Draws changes."""

    spark: SparkSession
    random: Random
    last_id: int = 0

    def any(self, state: State) -> Change:
        """One that an optimistic transaction has to get right."""
        verbs = (self.append, self.replace_partitions, self.replace_where, self.delete, self.update, self.merge)
        return self.random.choice(verbs)(state)

    def append(self, state: State, count: int = 4) -> Change:
        return self.append_these(state, self.rows(state, count))

    def append_these(self, state: State, rows: Sequence[Row]) -> Change:
        return Change(
            f"append {rows}",
            lambda lake, name: write_dataset(lake, name, self.frame(state, rows), retries=10),
            lambda now: now.append(rows),
            reads_nothing=True,
        )

    def overwrite(self, state: State) -> Change:
        rows = self.rows(state, 8)
        return Change(
            f"overwrite by {rows}",
            lambda lake, name: write_dataset(lake, name, self.frame(state, rows), "overwrite", retries=10),
            lambda now: now.with_rows(rows),
        )

    def replace_partitions(self, state: State, rows: Sequence[Row] | None = None) -> Change:
        """By some rows, unless they are given."""
        rows = self.rows(state, 2) if rows is None else rows
        options: dict[str, Any] = {"partition_overwrite_mode": "dynamic", "retries": 10}
        return Change(
            f"overwrite the partitions of {rows}",
            lambda lake, name: write_dataset(lake, name, self.frame(state, rows), "overwrite", **options),
            lambda now: now.replace_partitions(rows),
        )

    def replace_where(self, state: State) -> Change:
        condition = a_condition(self.random, state, self._compared(state), of_partition=PARTITION)
        rows = state.with_rows(self.rows(state, 4)).matching(condition).rows
        options: dict[str, Any] = {"replace_where": condition.sql, "retries": 10}
        return Change(
            f"replace where {condition.sql} by {rows}",
            lambda lake, name: write_dataset(lake, name, self.frame(state, rows), "overwrite", **options),
            lambda now: now.without(condition).append(rows),
        )

    def delete(self, state: State) -> Change:
        condition = a_condition(self.random, state, self._compared(state), of_partition=PARTITION)
        return Change(
            f"delete where {condition.sql}",
            lambda lake, name: lake.dataset(name).delete(condition.sql, spark=self.spark),
            lambda now: now.without(condition),
        )

    def update(self, state: State) -> Change:
        condition = a_condition(self.random, state, self._compared(state), of_partition=PARTITION)
        column = state.column(self.random.choice([name for name in self._compared(state) if name != "id"]))
        value = column.kind.some(self.random, of_partition=column.name == PARTITION)
        values = {column.name: column.kind.literal(value)}
        return Change(
            f"update {values} where {condition.sql}",
            lambda lake, name: lake.dataset(name).update(values, condition.sql, spark=self.spark),
            lambda now: now.update({column.name: value}, condition),
        )

    def merge(self, state: State, key: "Key | None" = None) -> Change:
        key = key or self.random.choice([*map(equal, self._compared(state)), *KEYS])
        return self.merge_these(state, key, [self._of_table(state, row) for row in self.rows(state, 4)])

    def found_by(self, state: State, key: "Key") -> tuple[Change, Change]:
        """A row that is in a file of its own, and a merge of nothing but what matches it, so that it is looked for."""
        row, source = (state.named(each) for each in self.rows(state, 2))
        source |= key.shows
        row |= dict.fromkeys(key.shows, key.of_source(source))
        added = self.append_these(state, [tuple(row.values())])
        return added, self.merge_these(added.becomes(state), key, [tuple(source.values())], others=False)

    def merge_these(self, state: State, key: "Key", rows: Sequence[Row], *, others: bool = True) -> Change:
        """``others`` says whether the table's other rows may change, for which all files are read."""
        rows = key.once(state, rows)
        source = state.with_rows(rows)
        some = self.random.sample(self._compared(state), 3)
        does = self.random.choice([Merge(tuple(state.names)), Merge(tuple(some)), Merge(deletes_matched=True)])
        does = replace(does, deletes_others=others and self.random.random() < 0.2, inserts=self.random.random() < 0.8)

        def run(lake: Lake, name: str) -> None:
            given = self.frame(state, rows).alias("s")
            with settings(self.spark, key.settings):
                builder = lake.dataset(name).merge(given, key.column(), alias="t")
                if does.deletes_matched:
                    builder = builder.whenMatchedDelete()
                else:
                    builder = builder.whenMatchedUpdate(set={each: F.col(f"s.{each}") for each in does.sets})
                if does.deletes_others:
                    builder = builder.whenNotMatchedBySourceDelete()
                if does.inserts:
                    builder = builder.whenNotMatchedInsertAll()
                builder.execute()

        return Change(f"{does} by {key.told} of {rows}", run, lambda now: now.merge(source, key.matches, does))

    def rows(self, state: State, count: int) -> list[Row]:
        return [tuple(self._value(column) for column in state.columns) for _ in range(count)]

    def frame(self, state: State, rows: Sequence[Row]) -> DataFrame:
        # Otherwise PySpark takes times without a zone for times in the session's.
        with settings(self.spark, (("spark.sql.timestampType", "TIMESTAMP_NTZ"),)):
            return self.spark.createDataFrame(state.with_rows(rows).arrow()).coalesce(1)

    def _value(self, column: Column) -> Any:
        if column.name == "id":
            self.last_id += 1
            return self.last_id
        return column.kind.some(self.random, of_partition=column.name == PARTITION)

    def _of_table(self, state: State, row: Row) -> Row:
        """The row, half of the time with a key that the table has."""
        if not state.rows or self.random.random() < 0.5:
            return row
        had = state.named(self.random.choice(state.rows))
        return tuple((state.named(row) | {"id": had["id"]}).values())

    def _compared(self, state: State) -> list[str]:
        return [name for name in state.names if name not in ("w", "u")]


@dataclass(frozen=True, slots=True)
class Key:
    """By what a merge finds its rows."""

    told: str
    column: Callable[[], SparkColumn]
    of_table: Callable[[dict[str, Any]], Any]
    of_source: Callable[[dict[str, Any]], Any]
    settings: tuple[tuple[str, str], ...] = ()
    shows: Mapping[str, Any] = field(default_factory=dict)
    """A value of the source for which another meaning of the key finds something else."""

    def matches(self, row: dict[str, Any], other: dict[str, Any]) -> bool:
        one, two = self.of_table(row), self.of_source(other)
        return one is not None and two is not None and same(one) == same(two)

    def once(self, state: State, rows: Sequence[Row]) -> list[Row]:
        """The rows, of which no two match the same."""
        keyed = {same(self.of_source(state.named(row))): row for row in rows}
        return list(keyed.values())


def equal(name: str) -> Key:
    return Key(name, lambda: F.col(f"t.{name}") == F.col(f"s.{name}"), lambda row: row[name], lambda row: row[name])


def _called_as(name: str) -> Key:
    """By a function of Python that has a builtin function's name, and does something else."""

    def function(text: str | None) -> str | None:
        return None if text is None else text + "!"

    function.__name__ = name
    function.__annotations__ = {}  # Spark would take them for those of a function on Arrow's arrays
    return Key(
        f"a function {name} that is not Spark's",
        lambda: F.col("t.k") == F.udf(function, "string")(F.col("s.k")),
        lambda row: row["k"],
        lambda row: function(row["k"]),
        shows={"k": "a"},
    )


_LATER = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=REPEATED_HOUR + HOUR)

KEYS = (
    _called_as("upper"),
    _called_as("trim"),
    Key(
        "a time in an hour that there was twice",
        lambda: F.col("t.at") == F.coalesce(F.col("s.at"), F.lit(_LATER)),
        lambda row: row["at"],
        lambda row: REPEATED_HOUR + HOUR if row["at"] is None else row["at"],
        (("spark.sql.session.timeZone", "Europe/Berlin"),),
        {"at": None},
    ),
    Key(
        "a text with a backslash that is no escape",
        lambda: F.col("t.k") == F.concat(F.col("s.k"), F.lit("\\b")),
        lambda row: row["k"],
        lambda row: None if row["k"] is None else row["k"] + "\\b",
        (("spark.sql.parser.escapedStringLiterals", "true"),),
        {"k": "a"},
    ),
)
"""Keys whose text means something else."""


@contextmanager
def settings(spark: SparkSession, given: Sequence[tuple[str, str]]) -> Iterator[None]:
    before = [(name, spark.conf.get(name)) for name, _ in given]
    for name, value in given:
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before:
            spark.conf.set(name, str(value))


# Columns


def drop(name: str) -> Change:
    return Change(f"drop {name}", _on(lambda table: table.drop_column(name)), lambda now: now.drop_column(name))


def add(column: Column) -> Change:
    added = _on(lambda table: table.add_column(column.name, column.kind.type))
    return Change(f"add {column.name}", added, lambda now: now.add_column(column))


def widen(name: str) -> Change:
    wide = Column(name, replace(INT, name="bigint", type=BIGINT.type, sql="BIGINT"))
    widened = _on(lambda table: table.widen_column(name, wide.kind.type))
    return Change(f"widen {name}", widened, lambda now: now.change_column(name, wide))


def rename(name: str, new: str) -> Change:
    renamed = _on(lambda table: table.rename_column(name, new))
    return Change(f"rename {name}", renamed, lambda now: now.change_column(name, replace(now.column(name), name=new)))


def _on(change: Callable[[Dataset], Any]) -> Callable[[Lake, str], Any]:
    return lambda lake, name: change(lake.dataset(name))
