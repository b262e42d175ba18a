"""Every verb on a random table, beside plain Spark on the same rows.

``run`` makes a table of random types, partitions and properties, and changes and reads it by random expressions in
sessions of other zones and ANSI modes. What the rows must be, or that there must be an error, is what
``tests.spark.plain_rows`` finds by asking plain Spark.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog import Lake, LakelogError, read_changes, read_dataset, write_dataset
from tests.model.expressions import KINDS, Condition, Leaf
from tests.spark.changes import settings
from tests.spark.changing import BY_VECTORS
from tests.spark.plain_rows import (
    OF_SPARK,
    Expected,
    Fails,
    Merged,
    counted,
    frame_of,
    no_values,
    taken,
    values_of,
    where,
    with_values,
)
from tests.spark.random_changes import Draws

NAME = "rows"
FED = {"delta.enableChangeDataFeed": "true"}
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia")
CALM = (("spark.sql.session.timeZone", "UTC"), ("spark.sql.ansi.enabled", "false"))
"""The settings under which all rows are read, to be compared."""

REFUSALS = re.compile(r"is not a value of column|rows with the reserved text")
"""What Lakelog says where it does not take what Spark computes: a time or text that names no directory."""


@dataclass(slots=True)
class Outcome:
    """What came of a run."""

    steps: int = 0
    compared: int = 0
    failed: int = 0
    """Steps that neither side has an answer to."""
    refused: int = 0
    """Steps that Lakelog refuses, as documented, though plain Spark computes them."""
    findings: list[str] = field(default_factory=list)


def run(spark: SparkSession, lake: Lake, seed: object, steps: int) -> Outcome:
    """Makes a table and does so many steps to it. Stops after three findings, since one may follow from another."""
    beside = Beside(spark, lake, Random(f"beside {seed}"))
    beside.create()
    while beside.outcome.steps < steps and len(beside.outcome.findings) < 3:
        beside.step()
    return beside.outcome


class Beside:
    """A table of Lakelog, and the rows that it must have."""

    def __init__(self, spark: SparkSession, lake: Lake, random: Random) -> None:
        self._spark, self._lake, self._random = spark, lake, random
        self.outcome = Outcome()
        self._draws = Draws(random)
        self._kinds, self._partitions, self._schema = self._draws.kinds, self._draws.partitions, self._draws.schema
        self._has_vectors, self._has_feed = random.random() < 0.4, random.random() < 0.3
        integers = [name for name, kind in self._kinds.items() if kind == "int"]
        self._check = f"{integers[0]} IS NULL OR {integers[0]} <> 12" if integers and random.random() < 0.5 else None
        self._rows = self._schema.empty_table()
        self._versions: dict[int, pa.Table] = {}
        self._said = ""

    def create(self) -> None:
        """The table and its first files, whose bounds differ."""
        properties = (BY_VECTORS if self._has_vectors else {}) | (FED if self._has_feed else {})
        if self._check:
            properties |= {"delta.constraints.bounded": self._check}
        for number in range(3):
            rows = self._kept_by_rule(self._draws.rows(9))
            options: dict[str, Any] = {} if number else {"partition_by": self._partitions, "properties": properties}
            write_dataset(self._lake, NAME, self._frame(rows), **options)
            self._rows = pa.concat_tables([self._rows, self._as_stored(rows)])
            self._versions[self._head] = self._rows

    def step(self) -> None:
        verbs: Mapping[Callable[[], None], int] = {
            self._delete: 3,
            self._update: 5,
            self._merge: 5,
            self._write: 4,
            self._read: 4,
            self._count: 2,
            self._query: 3,
            self._read_older: 1,
        }
        (verb,) = self._random.choices(list(verbs), weights=list(verbs.values()))
        ansi = self._random.choice(("true", "false"))
        found = (("spark.sql.session.timeZone", self._random.choice(ZONES)), ("spark.sql.ansi.enabled", ansi))
        self._said = f"step {self.outcome.steps} in {found[0][1]}, ANSI {ansi}: "
        self.outcome.steps += 1
        if self._rows.num_rows < 12:
            verb = self._append
        with settings(self._spark, found):
            verb()

    # Changes

    def _delete(self) -> None:
        condition = self._draws.condition()
        expected = where(self._spark, self._rows, condition, lambda truths: taken(self._rows, truths, False))
        self._change(f"delete {condition.sql}", lambda: self._dataset.delete(self._asked(condition)), expected)

    def _update(self) -> None:
        condition = self._draws.condition() if self._random.random() < 0.9 else Leaf("true")
        values = self._draws.assignments(self._draws.expressions)

        def build(truths: Sequence[bool]) -> pa.Table:
            old = taken(self._rows, truths)
            new = with_values(self._spark, old, old, self._draws.targets, values)
            self._broken(new)
            return pa.concat_tables([taken(self._rows, truths, False), new])

        expected = where(self._spark, self._rows, condition, build)
        chosen = None if condition.sql == "true" else self._asked(condition)
        self._change(
            f"update {dict(values)} where {condition.sql}", lambda: self._dataset.update(values, chosen), expected
        )

    def _merge(self) -> None:
        source = self._draws.source(self._rows)
        clauses = self._draws.clauses()
        condition = self._draws.merge_condition()
        expected = Merged(self._spark, self._rows, source, self._draws.targets, clauses, self._broken).by(condition)

        def merge() -> None:
            builder: Any = self._dataset.merge(self._frame(source).alias("s"), condition.sql, alias="t")
            for clause in clauses:
                asked = clause.condition and clause.condition.sql
                when = {"matched": "Matched", "not matched": "NotMatched", "by source": "NotMatchedBySource"}
                method = getattr(builder, f"when{when[clause.when]}{clause.act.capitalize()}")
                given = {"update": {"set": clause.values}, "insert": {"values": clause.values}, "delete": {}}
                builder = method(condition=asked, **given[clause.act])
            builder.execute()

        told = [(each.when, each.act, each.condition and each.condition.sql, dict(each.values)) for each in clauses]
        self._change(f"merge {source.to_pylist()} on {condition.sql} {told}", merge, expected)

    def _write(self) -> None:
        verbs = [self._append, self._overwrite, self._replace_where, self._replace_where]
        self._random.choice(verbs + [self._replace_partitions] * 2 * bool(self._partitions))()

    def _append(self) -> None:
        self._write_new("append", {}, lambda new: pa.concat_tables([self._rows, new]))

    def _overwrite(self) -> None:
        self._write_new("overwrite", {"mode": "overwrite"}, lambda new: new, 16)

    def _replace_partitions(self) -> None:
        def build(new: pa.Table) -> pa.Table:
            gone = set(counted(new.select(self._partitions)))
            # In the order of the rows.
            each = [
                next(iter(counted(self._rows.select(self._partitions).slice(n, 1)))) for n in range(self._rows.num_rows)
            ]
            return pa.concat_tables([taken(self._rows, [row in gone for row in each], False), new])

        self._write_new("overwrite", {"mode": "overwrite", "partition_overwrite_mode": "dynamic"}, build, 2)

    def _replace_where(self) -> None:
        condition = self._draws.condition()
        new = self._kept_by_rule(self._draws.rows(5))
        fits = where(self._spark, new, condition, lambda truths: taken(new, truths))
        # Sometimes also rows that do not match, which is an error.
        new = new if fits.rows is None or self._random.random() < 0.1 else fits.rows

        def build(truths: Sequence[bool]) -> pa.Table:
            found = values_of(self._spark, new, [f"coalesce({condition.sql}, false)"])
            if not all(found.column(0).to_pylist()):
                raise Fails("rows that do not match")
            return pa.concat_tables([taken(self._rows, truths, False), self._as_stored(new)])

        self._change(
            f"replace where {condition.sql} by {new.to_pylist()}",
            lambda: write_dataset(self._lake, NAME, self._frame(new), "overwrite", replace_where=condition.sql),
            where(self._spark, self._rows, condition, build),
        )

    def _write_new(
        self, told: str, options: Mapping[str, Any], build: Callable[[pa.Table], pa.Table], count: int = 5
    ) -> None:
        new = self._draws.rows(count)
        try:
            self._broken(new)
            expected = Expected(build(self._as_stored(new)))
        except Fails as error:
            expected = Expected(error=error)
        self._change(
            f"{told} {dict(options)} {new.to_pylist()}",
            lambda: write_dataset(self._lake, NAME, self._frame(new), **options),
            expected,
        )

    # Reads

    def _read(self, version: int | None = None) -> None:
        condition = self._draws.condition()
        names = self._random.sample(list(self._kinds), 3)
        fields = [f"{name}.a" for name, kind in self._kinds.items() if kind == "struct"][:1]
        columns = self._random.choice([None, names, [*names, *fields]])
        rows = self._rows if version is None else self._versions[version]

        def build(truths: Sequence[bool]) -> pa.Table:
            return values_of(self._spark, taken(rows, truths), columns or list(self._kinds))

        options: dict[str, Any] = {"where": self._asked(condition), "columns": columns, "version": version}
        self._compare(
            f"read {columns} of version {version} where {condition.sql}",
            lambda: read_dataset(self._lake, NAME, **options).toArrow(),
            where(self._spark, rows, condition, build),
        )

    def _read_older(self) -> None:
        self._read(self._random.choice(list(self._versions)))

    def _count(self) -> None:
        condition = self._draws.condition()
        expected = where(
            self._spark, self._rows, condition, lambda truths: pa.table({"count": [sum(map(bool, truths))]})
        )
        counts = self._dataset.count
        self._compare(f"count {condition.sql}", lambda: pa.table({"count": [counts(self._asked(condition))]}), expected)

    def _query(self) -> None:
        condition = self._draws.condition()
        kinds = self._random.sample(sorted(KINDS), 2)
        chosen = ["id", *(self._draws.expressions.of(kind) for kind in kinds)]
        selected = ", ".join(f"{sql} AS c{number}" for number, sql in enumerate(chosen))
        query = f"SELECT {selected} FROM {NAME} WHERE {condition.sql}"

        def build(truths: Sequence[bool]) -> pa.Table:
            found = taken(self._rows, truths)
            return values_of(self._spark, found, chosen) if any(truths) else no_values(self._spark, self._rows, chosen)

        expected = where(self._spark, self._rows, condition, build)
        self._compare(f"sql {query}", lambda: self._lake.sql(query).toArrow(), expected)

    # What came of it

    def _change(self, told: str, change: Callable[[], Any], expected: Expected) -> None:
        self._said += told
        before = self._head
        try:
            change()
        except Exception as error:  # whatever it is, it is judged
            if self._head != before:
                self._find(f"committed, and raised {error!r}")
            self._failed(error, expected)
        else:
            with settings(self._spark, CALM):
                found = read_dataset(self._lake, NAME).toArrow()
            old = self._rows
            self._rows = self._succeeded(found, expected).cast(self._schema)
            if self._head != before:
                self._versions[self._head] = self._rows
                if self._has_feed and counted(old) != counted(self._rows):
                    self._compare_feed(old)

    def _compare(self, told: str, read: Callable[[], pa.Table], expected: Expected) -> None:
        self._said += told
        try:
            found = read()
        except Exception as error:  # whatever it is, it is judged
            self._failed(error, expected, reads=True)
        else:
            self._succeeded(found, expected)

    def _compare_feed(self, old: pa.Table) -> None:
        """What the feed says of a change makes the new rows of the old ones."""
        with settings(self._spark, CALM):
            feed = read_changes(self._lake, NAME, self._head, self._head)
            gone, come = (
                counted(feed.where(F.col("_change_type").isin(*names)).select(*self._kinds).toArrow())
                for names in (("delete", "update_preimage"), ("insert", "update_postimage"))
            )
        before, after = counted(old), counted(self._rows)
        if not gone <= before or before - gone + come != after:
            self._find(f"the change feed has {gone} and {come}")

    def _failed(self, error: Exception, expected: Expected, *, reads: bool = False) -> None:
        is_spark = isinstance(error, OF_SPARK)
        if not (is_spark or isinstance(error, LakelogError)) or not str(error):
            self._find(f"an unclear error: {error!r}")
        elif expected.error is not None:
            self.outcome.failed += 1
        # docs/spark.md: a read's condition may be asked of rows that are deleted by a vector.
        elif REFUSALS.search(str(error)) or (reads and is_spark and self._has_vectors):
            self.outcome.refused += 1
        else:
            self._find(f"plain Spark has an answer, and here is {error!r}")

    def _succeeded(self, found: pa.Table, expected: Expected) -> pa.Table:
        """The rows from which the next step goes on."""
        wanted = expected.rows if expected.error is None else expected.otherwise()
        if wanted is None:
            self._find(f"done, and plain Spark says {str(expected.error)[:500]}")
            return found
        ours, theirs = counted(found), counted(wanted)
        if ours != theirs or found.num_columns != wanted.num_columns:
            self._find(f"only here {list((ours - theirs).elements())}, only there {list((theirs - ours).elements())}")
            return found
        self.outcome.compared += 1
        return wanted

    def _find(self, what: str) -> None:
        table = (
            f"{self._kinds} by {self._partitions}, vectors {self._has_vectors}, feed {self._has_feed}, {self._check}"
        )
        self.outcome.findings.append(f"{self._said}\n  {what}\n  of {table}")

    # Its rows

    @property
    def _dataset(self) -> Any:
        return self._lake.dataset(NAME)

    @property
    def _head(self) -> int:
        return int(self._dataset.version)

    def _asked(self, condition: Condition) -> Any:
        return condition.sql if self._random.random() < 0.8 else F.expr(condition.sql)

    def _frame(self, rows: pa.Table) -> DataFrame:
        return frame_of(self._spark, rows).coalesce(1)

    def _as_stored(self, rows: pa.Table) -> pa.Table:
        """The empty text is no partition's name: it becomes null."""
        for name in self._partitions:
            if self._kinds[name] == "string":
                number = self._schema.names.index(name)
                texts = [text or None for text in rows.column(name).to_pylist()]
                rows = rows.set_column(number, self._schema.field(name), pa.array(texts, pa.string()))
        return rows

    def _kept_by_rule(self, rows: pa.Table) -> pa.Table:
        return taken(rows, self._passes(rows))

    def _broken(self, rows: pa.Table) -> None:
        if not all(self._passes(rows)):
            raise Fails(f"rows for which {self._check} is not true")

    def _passes(self, rows: pa.Table) -> list[bool]:
        if self._check is None or not rows.num_rows:
            return [True] * rows.num_rows
        return list(values_of(self._spark, rows, [f"coalesce({self._check}, false)"]).column(0).to_pylist())
