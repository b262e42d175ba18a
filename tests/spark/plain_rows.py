"""What plain Spark makes of rows that it keeps apart from Lakelog: the oracle beside which verbs are tried.

Rows are an Arrow table. Expressions are asked of a DataFrame of it, so nothing of Lakelog's pruning, files or vectors
can be in the way. An error of Spark is an answer, too.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakelog.spark.frames import setting
from tests.model.expressions import KINDS, Condition, Leaf
from tests.model.values import same
from tests.spark.changes import settings

_NUMBER = "n__"


class Fails(Exception):
    """There are no such rows, by a rule that is not Spark's."""


OF_SPARK = (PySparkException, Py4JJavaError)
"""Spark's errors. Some of Java's own, such as a day that is too late for a moment, PySpark hands on as they are."""

FAILURES = (*OF_SPARK, Fails)


@dataclass(frozen=True, slots=True)
class Expected:
    """The rows that there must be, or why there must be an error."""

    rows: pa.Table | None = None
    error: Exception | None = None
    otherwise: Callable[[], pa.Table | None] = field(default=lambda: None)
    """Of an error, the rows that there may be instead, if any."""


def frame_of(spark: SparkSession, rows: pa.Table) -> DataFrame:
    # Otherwise PySpark takes times without a zone for times in the session's.
    with settings(spark, (("spark.sql.timestampType", "TIMESTAMP_NTZ"),)):
        # In one piece, since Spark's reader takes an empty one for the end.
        return spark.createDataFrame(rows.combine_chunks())


def counted(rows: pa.Table) -> "Counter[tuple[Any, ...]]":
    """Rows in no order: days and times are numbers, and there is one NaN and one zero."""
    return Counter(zip(*map(_plain, rows.columns), strict=True)) if rows.num_columns else Counter()


def _plain(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_date(column.type):
        return list(column.cast(pa.int32()).to_pylist())
    if pa.types.is_timestamp(column.type):
        return list(column.cast(pa.int64()).to_pylist())
    return [_frozen(value) for value in column.to_pylist()]


def _frozen(value: Any) -> Any:
    if isinstance(value, dict):
        return tuple(map(_frozen, value.values()))
    return tuple(map(_frozen, value)) if isinstance(value, list) else same(value)


def named(**tables: pa.Table) -> pa.Table:
    """Rows of several tables side by side, under the names that expressions call them by."""
    return pa.table({name: table.to_struct_array() for name, table in tables.items()})


def values_of(spark: SparkSession, rows: pa.Table, expressions: Sequence[str]) -> pa.Table:
    """One column for each expression. Raises what Spark raises."""
    count = rows.num_rows
    numbered = rows.append_column(_NUMBER, pa.array(range(count), pa.int64()))
    chosen = [f"{sql} AS c{number}" for number, sql in enumerate(expressions)]
    found = frame_of(spark, numbered).selectExpr(_NUMBER, *chosen).toArrow().sort_by(_NUMBER)
    assert found.num_rows == count
    return found.drop_columns([_NUMBER])


def no_values(spark: SparkSession, rows: pa.Table, expressions: Sequence[str]) -> pa.Table:
    """The same of none of the rows. Spark computes constants all the same, so that this may fail, too."""
    # Over rows that the driver has, Spark would not look at the expressions.
    rule = "org.apache.spark.sql.catalyst.optimizer.ConvertToLocalRelation"
    numbered = rows.append_column(_NUMBER, pa.array(range(rows.num_rows), pa.int64()))
    chosen = [f"{sql} AS c{number}" for number, sql in enumerate(expressions)]
    with setting(spark, "spark.sql.optimizer.excludedRules", rule):
        return frame_of(spark, numbered).where(f"{_NUMBER} < 0").selectExpr(*chosen).toArrow()


def stored_values(
    spark: SparkSession, rows: pa.Table, expressions: Sequence[str], kinds: Sequence[str]
) -> list[pa.ChunkedArray]:
    """The values as columns take them: cast as SQL does it, and an error for one that has no such value, whatever the
    session says of casts."""
    if not rows.num_rows:
        return [pa.chunked_array([], KINDS[kind].type) for kind in kinds]
    pairs = list(zip(expressions, kinds, strict=True))
    # The text of a value is the session's: of a decimal, in ANSI mode, without an exponent.
    given = values_of(spark, rows, [f"CAST({sql} AS STRING)" if kind == "string" else sql for sql, kind in pairs])
    with settings(spark, (("spark.sql.ansi.enabled", "true"),)):
        casts = [f"CAST(c{number} AS {KINDS[kind].sql})" for number, kind in enumerate(kinds)]
        found = values_of(spark, given, casts)
    if any(one.null_count < other.null_count for one, other in zip(given.columns, found.columns, strict=True)):
        raise Fails("a value that does not fit its column")
    return [column.cast(KINDS[kind].type) for column, kind in zip(found.columns, kinds, strict=True)]


def where(
    spark: SparkSession, rows: pa.Table, condition: Condition, build: Callable[[Sequence[bool]], pa.Table]
) -> Expected:
    """What is built of whether each row matches.

    Where the condition fails for a row, whoever asks its parts in another order, or has left out the file of a row for
    which one part decides, may have an answer: that of the parts from right to left, or none for a row on which both
    fail. A condition of one part has to fail.
    """
    try:
        return Expected(build(_truths(spark, rows, condition)))
    except FAILURES as error:
        failure = error

    def otherwise() -> pa.Table | None:
        try:
            return build(_truths_one_by_one(spark, rows, condition)) if condition.has_parts else None
        except FAILURES:
            return None

    return Expected(error=failure, otherwise=otherwise)


def _truths(spark: SparkSession, rows: pa.Table, condition: Condition) -> list[bool]:
    found = values_of(spark, rows, [f"coalesce({condition.sql}, false)"])
    return list(found.column(0).to_pylist())


def _truths_one_by_one(spark: SparkSession, rows: pa.Table, condition: Condition) -> list[bool]:
    """Halves the rows until those for which the condition fails both ways are alone."""
    for asked in (condition, condition.mirrored):
        try:
            return _truths(spark, rows, asked)
        except OF_SPARK:
            continue
    if rows.num_rows == 1:
        return [False]
    half = rows.num_rows // 2
    parts = rows.slice(0, half), rows.slice(half)
    return [truth for part in parts for truth in _truths_one_by_one(spark, part, condition)]


def taken(rows: pa.Table, truths: Sequence[bool], wanted: bool = True) -> pa.Table:
    return rows.take(pa.array([n for n, truth in enumerate(truths) if truth is wanted], pa.int64()))


def with_values(
    spark: SparkSession, rows: pa.Table, scope: pa.Table, kinds: Mapping[str, str], values: Mapping[str, str]
) -> pa.Table:
    """Rows in which columns, or fields of the struct ``st``, have the values of expressions over ``scope``."""
    paths = list(values)
    found = stored_values(spark, scope, list(values.values()), [kinds[path] for path in paths])
    for path, column in zip(paths, found, strict=True):
        name, _, inner = path.partition(".")
        if inner:
            old = rows.column(name).combine_chunks()
            fields = {child.name: pc.struct_field(old, child.name) for child in old.type}
            fields[inner] = column.combine_chunks()
            column = pa.StructArray.from_arrays(list(fields.values()), fields=list(old.type))
        rows = rows.set_column(rows.schema.names.index(name), rows.schema.field(name), column)
    return rows


@dataclass(frozen=True, slots=True)
class Clause:
    """One clause of a merge: ``update``, ``delete`` or ``insert``, for rows that are ``matched`` or not."""

    when: str
    act: str
    condition: Condition | None = None
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge does to rows."""

    spark: SparkSession
    rows: pa.Table
    source: pa.Table
    kinds: Mapping[str, str]
    clauses: Sequence[Clause]
    broken: Callable[[pa.Table], None]
    """Raises ``Fails`` for new or changed rows that break a rule."""

    def by(self, condition: Condition) -> Expected:
        """The first clause whose condition is true changes a row. Two rows of the source that would change the same
        row are an error, unless both can only delete it."""
        return where(self.spark, self._pairs(range(self.rows.num_rows * self.source.num_rows)), condition, self._of)

    def _pairs(self, numbers: Sequence[int]) -> pa.Table:
        count = self.source.num_rows
        of_table, of_source = ([op(number, count) for number in numbers] for op in (int.__floordiv__, int.__mod__))
        return named(
            t=self.rows.take(pa.array(of_table, pa.int64())), s=self.source.take(pa.array(of_source, pa.int64()))
        )

    def _of(self, matches: Sequence[bool]) -> pa.Table:
        count = self.source.num_rows
        pairs = [number for number, match in enumerate(matches) if match]
        acts = self._acts("matched", self._pairs(pairs))
        acting = [(pair, act) for pair, act in zip(pairs, acts, strict=True) if act is not None]
        matched = [clause for clause in self.clauses if clause.when == "matched"]
        only_deletes = len(matched) == 1 and matched[0].act == "delete" and matched[0].condition is None
        if not only_deletes and max(Counter(pair // count for pair, _ in acting).values(), default=0) > 1:
            raise Fails("matched by more than one row of the source")
        alone = sorted(set(range(self.rows.num_rows)) - {pair // count for pair in pairs})
        lonely = list(zip(alone, self._acts("by source", self._alone(alone)), strict=True))
        changed = {pair // count for pair, _ in acting} | {row for row, act in lonely if act is not None}
        kept = [row for row in range(self.rows.num_rows) if row not in changed]
        new = sorted(set(range(count)) - {pair % count for pair in pairs})
        inserts = list(zip(new, self._acts("not matched", named(s=self._sources(new))), strict=True))
        written = [self.rows.slice(0, 0)]
        for clause in self.clauses:
            if clause.act == "delete":
                continue
            if clause.when == "matched":
                chosen = [pair for pair, act in acting if act is clause]
                rows, scope = self._old([pair // count for pair in chosen]), self._pairs(chosen)
            elif clause.when == "by source":
                rows = self._old([row for row, act in lonely if act is clause])
                scope = named(t=rows)
            else:
                scope = named(s=self._sources([row for row, act in inserts if act is clause]))
                nulls = [pa.nulls(scope.num_rows, each.type) for each in self.rows.schema]
                rows = pa.table(nulls, self.rows.schema)
            written.append(with_values(self.spark, rows, scope, self.kinds, clause.values))
        self.broken(pa.concat_tables(written))
        return pa.concat_tables([self._old(kept), *written])

    def _old(self, numbers: Sequence[int]) -> pa.Table:
        return self.rows.take(pa.array(numbers, pa.int64()))

    def _alone(self, numbers: Sequence[int]) -> pa.Table:
        return named(t=self._old(numbers))

    def _sources(self, numbers: Sequence[int]) -> pa.Table:
        return self.source.take(pa.array(numbers, pa.int64()))

    def _acts(self, when: str, scope: pa.Table) -> list[Clause | None]:
        clauses = [clause for clause in self.clauses if clause.when == when]
        if not clauses or not scope.num_rows:
            return [None] * scope.num_rows
        asked = [(clause.condition or Leaf("true")).sql for clause in clauses]
        cases = " ".join(f"WHEN {sql} THEN {number}" for number, sql in enumerate(asked))
        found = values_of(self.spark, scope, [f"CASE {cases} ELSE -1 END"]).column(0).to_pylist()
        return [None if number < 0 else clauses[number] for number in found]
