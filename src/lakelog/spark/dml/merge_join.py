"""The joins of a merge: which rows of the table match which of the source, and what becomes of each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.errors import ValidationError, Violation
from lakelog.log.feeds.columns import CHANGE_TYPE
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import TableMetadata
from lakelog.log.table import Table
from lakelog.schema.evolution.projection import project
from lakelog.schema.mapping import physical_name
from lakelog.spark.dml.assign import Expression, expression
from lakelog.spark.dml.clauses import Act, Clause, When
from lakelog.spark.dml.deletion_vectors import Indexes, bits, in_words, indexes_of, word
from lakelog.spark.dml.rewrite import CHANGED, following
from lakelog.spark.expressions import columns as column_expressions
from lakelog.spark.expressions import quoted, spark_type
from lakelog.spark.frames import aliased
from lakelog.spark.read.read import (
    ROW_FILE,
    ROW_INDEX,
    numbers_of,
    plain_path,
    read_located,
    read_these,
    without_vectors,
)
from lakelog.spark.write.parquet_writer import matches

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

SOURCE_ROW = "__lakelog_source_row"
ACTION = "__lakelog_action"
COPIED, DROPPED = 0, -1
"""Actions of rows that no clause is carried out for: one of the table stays, one of the source is left out."""

_TABLE, _SOURCE = "__lakelog_table", "__lakelog_source"
_SAID = "__lakelog_said"
_ACTS, _MATCHES, _CHOSEN = "__lakelog_acts", "__lakelog_matches", "__lakelog_chosen"
_BY = "__lakelog_by"
_MOST, _CLASHES = "__lakelog_most", "__lakelog_clashes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A clause that is ready to be carried out, with its number as the action of a row."""

    number: int
    clause: Clause
    values: "Mapping[str, Column]"
    """By column of the table; a column that is not there stays, or is null in a row that is new."""
    is_harmless: bool
    """Whether the clause's condition can be asked of any row without failing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matches:
    """What the first join has found."""

    touched: pa.Table
    """Files with a row that a clause changes."""
    rows: int
    """Rows that a clause for matched rows changes."""
    several: bool
    """Whether a row of the table has more than one match, of which at most one matters."""
    pairs: "DataFrame"
    """Rows of the table and of the source that match, with the action of each."""
    indexes: Indexes | None
    """Where the rows are that a clause changes, if pairs have all columns of both."""


def columns_of_table(schema: pa.Schema) -> "dict[str, Column]":
    """The table's columns in a join, whatever the source's are called."""
    return {name: F.col(f"{_TABLE}_{number}") for number, name in enumerate(schema.names)}


def ambiguous(frame: "DataFrame") -> set[str]:
    """Names, without case, that several columns of a frame have. It may be a join."""
    return {name for name, count in Counter(map(str.lower, frame.columns)).items() if count > 1}


def columns_of_source(frame: "DataFrame") -> "dict[str, Column]":
    """The source's columns in a join, by their names without case; those that share one are not there."""
    shared = ambiguous(frame)
    names = [(number, name.lower()) for number, name in enumerate(frame.columns)]
    return {name: F.col(f"{_SOURCE}_{number}") for number, name in names if name not in shared}


def numbered_source(frame: "DataFrame") -> "DataFrame":
    """The source with a number for each row, and columns under a second name. Its own names stay as they are."""
    shared = ambiguous(frame)
    names = [(number, name) for number, name in enumerate(frame.columns) if name.lower() not in shared]
    again = [F.col(quoted(name)).alias(f"{_SOURCE}_{number}") for number, name in names]
    return frame.select("*", *again, F.monotonically_increasing_id().alias(SOURCE_ROW))


@dataclass(frozen=True, kw_only=True)
class Join:
    """A table, a source and the condition under which their rows match."""

    spark: "SparkSession"
    dataset: Table
    snapshot: Snapshot
    alias: str | None
    metadata: TableMetadata
    """The table as it will be."""
    source: "DataFrame"
    """As ``numbered_source`` gives it."""
    condition: Expression
    steps: Sequence[Step]
    is_steady: bool = True
    """Whether conditions give the same answer a second time."""
    is_harmless: bool = False
    """Whether the condition can be asked of rows that are deleted."""

    def table(self, files: pa.Table, *, located: bool = True, deleted: bool = False) -> "DataFrame":
        """The rows of files, under the columns that the table will have, with where they lie."""
        place = (self.spark, self.dataset.location, self.snapshot, files)
        rows = read_located(*place, deleted=deleted) if located else read_these(*place)
        return self.named(rows, list(self.snapshot.schema), (ROW_FILE, ROW_INDEX) if located else ())

    def named(self, rows: "DataFrame", old: Sequence[pa.Field], besides: Sequence[str] = ()) -> "DataFrame":
        """Rows of the table as the merge's expressions name them."""
        new = list(self.metadata.schema)
        sources = [F.col(quoted(field.name)) for field in old]
        rows = rows.select(*column_expressions(project(old, new, physical_name), sources), *besides)
        again = [F.col(quoted(field.name)).alias(f"{_TABLE}_{number}") for number, field in enumerate(new)]
        return self.plain(rows.select("*", *again))

    def plain(self, rows: "DataFrame") -> "DataFrame":
        """Rows of the table as they are, under its name."""
        return aliased(rows, self.alias)

    def steps_for(self, when: When) -> list[Step]:
        return [step for step in self.steps if step.clause.when is when]

    def pairs(self, files: pa.Table, *, whole: bool = False) -> "DataFrame":
        """Every match, and its action; with ``whole``, with all columns of both rows."""
        # Deletion vectors are asked about the rows that match, which are few, where that is possible.
        later = self.is_harmless and files.column("deletion_vector").null_count < files.num_rows
        joined = self.table(files, deleted=later).join(self.source, expression(self.condition), "inner")
        if later:
            joined = without_vectors(joined, self.dataset.location, files)
        action = self._matched_action(F.lit(True), F.lit(COPIED))
        return joined.select(*(["*"] if whole else [ROW_FILE, ROW_INDEX, SOURCE_ROW]), action.alias(ACTION))

    def matches(self, files: pa.Table, pairs: "DataFrame", *, whole: bool = False) -> Matches:
        """Raises ``ValidationError`` if a row of the table would be changed by several of the source."""
        # In parts of whole files, so that both groups are found without moving rows a second time.
        by_row = (
            pairs.repartition(ROW_FILE)
            .groupBy(ROW_FILE, ROW_INDEX)
            .agg(F.count_if(F.col(ACTION) != COPIED).alias(_ACTS), F.count(F.lit(1)).alias(_MATCHES))
        )
        acts, matches = F.col(_ACTS), F.col(_MATCHES)
        by_word = by_row.groupBy(ROW_FILE, word()).agg(
            bits(acts > 0),
            F.count_if(acts > 0).alias(_ACTS),
            F.max(acts).alias(_MOST),
            F.max(matches).alias(_MATCHES),
            F.count_if(acts > 1).alias(_CLASHES),
        )
        by_file = by_word.groupBy(ROW_FILE).agg(
            F.sum(_ACTS).alias(_ACTS),
            F.max(_MOST).alias(_MOST),
            F.max(_MATCHES).alias(_MATCHES),
            F.sum(_CLASHES).alias(_CLASHES),
            *([in_words()] if whole else ()),
        )
        found = by_file.toArrow()
        rows, most, several = (found.column(name).to_pylist() for name in (_ACTS, _MOST, _MATCHES))
        if not self._only_deletes and any(count > 1 for count in most):
            count = pc.sum(found.column(_CLASHES)).as_py()
            message = (
                f"{count} rows of the table are matched by more than one row of the source, which would change them "
                "in ways that depend on chance: leave one row for each key in the source"
            )
            raise ValidationError("merge", [Violation("source", message)])
        numbers = numbers_of(self.dataset.location, files)
        paths = found.column(ROW_FILE).to_pylist()
        touched = {numbers[plain_path(path)] for path, count in zip(paths, rows, strict=True) if count}
        touched |= self._untouched_by_source(files, numbers)
        return Matches(
            touched=files.take(pa.array(sorted(touched), pa.int64())),
            rows=sum(rows),
            several=any(count > 1 for count in several),
            pairs=pairs,
            indexes=indexes_of(found, numbers) if whole else None,
        )

    def changed(self, found: Matches, *, located: bool = False) -> "DataFrame":
        """The rows of all touched files, each once, with its match if it has one, and its action.

        With ``located``, where each of them lies. Of matches that are whole, only rows that a clause changes.
        """
        if found.indexes is not None:
            joined = found.pairs.where(F.col(ACTION) != COPIED)
            return joined.dropDuplicates([ROW_FILE, ROW_INDEX]) if found.several else joined
        # By what was found where the condition may have another answer now, which takes longer; otherwise by itself.
        by_place = found.several or not self.is_steady
        is_located = located or by_place
        rows = self.table(found.touched, located=is_located)
        is_matched = F.col(SOURCE_ROW).isNotNull()
        if by_place:
            one = F.max_by(F.struct(F.col(SOURCE_ROW).alias(_BY), F.col(ACTION)), F.col(ACTION) != COPIED)
            chosen = found.pairs.groupBy(ROW_FILE, ROW_INDEX).agg(one.alias(_CHOSEN))
            joined = rows.join(chosen, [ROW_FILE, ROW_INDEX], "left")
            joined = joined.join(self.source, F.col(f"{_CHOSEN}.{_BY}") == F.col(SOURCE_ROW), "left")
            action = F.when(is_matched, F.col(f"{_CHOSEN}.{ACTION}")).otherwise(F.lit(COPIED))
        else:
            joined = rows.join(self.source, expression(self.condition), "left")
            action = self._matched_action(is_matched, F.lit(COPIED))
        joined = joined.select("*", action.alias(ACTION))
        return self._decided_alone(joined, is_located) if self._changes_unmatched else joined

    def _matched_action(self, is_matched: "Column", otherwise: "Column") -> "Column":
        """The action of a row by the clauses for those with a match."""
        for step in reversed(self.steps_for(When.MATCHED)):
            otherwise = F.when(is_matched & _condition(step), step.number).otherwise(otherwise)
        return otherwise

    def _decided_alone(self, joined: "DataFrame", is_located: bool) -> "DataFrame":
        """Adds the actions of rows without a match. The source's names are gone then: in clauses for such rows the
        same name may be the table's. So all values are columns from here on, each made of the rows that it is for."""
        place = (ROW_FILE, ROW_INDEX) if is_located else ()
        matched = [self._values_said(step) for step in self.steps_for(When.MATCHED)]
        rows = self._without_source(joined, SOURCE_ROW, ACTION, *place, *(value for said in matched for value in said))
        steps = self.steps_for(When.NOT_MATCHED_BY_SOURCE)
        action = F.lit(COPIED)
        for step in reversed(steps):
            action = F.when(_condition(step), step.number).otherwise(action)
        action = F.when(F.col(SOURCE_ROW).isNull(), action).otherwise(F.col(ACTION))
        rows = rows.withColumn(ACTION, action)
        return rows.select("*", *(value for step in steps for value in self._values_said(step)))

    def _without_source(self, joined: "DataFrame", *besides: "str | Column") -> "DataFrame":
        """Rows of a join as those of the table, with nothing of the source but what is named."""
        columns = [column.alias(name) for name, column in self._old.items()]
        return self.plain(joined.select(*columns, *self._old.values(), *besides))

    def _values_said(self, step: Step) -> "list[Column]":
        """What a clause makes of the rows for which it is carried out. Of others its values may be none."""
        is_chosen = F.col(ACTION) == step.number
        return [F.when(is_chosen, value).alias(_said(step, name)) for name, value in step.values.items()]

    @property
    def _changes_unmatched(self) -> bool:
        """Whether some clause is for rows of the table without a match."""
        return bool(self.steps_for(When.NOT_MATCHED_BY_SOURCE))

    def new(self, unmatched: "DataFrame") -> "DataFrame":
        """Rows of the source that match nothing, with their action, without those that no clause inserts."""
        action = F.lit(DROPPED)
        for step in reversed(self.steps_for(When.NOT_MATCHED)):
            action = F.when(_condition(step), step.number).otherwise(action)
        return unmatched.select("*", action.alias(ACTION)).where(F.col(ACTION) != DROPPED)

    def without(self, pairs: "DataFrame") -> "DataFrame":
        """The rows of the source that no pair has."""
        return self.source.join(pairs.select(SOURCE_ROW).distinct(), SOURCE_ROW, "left_anti")

    def without_match(self, files: pa.Table) -> "DataFrame":
        """The same, where nobody has looked for pairs."""
        return self.source.join(self.table(files, located=False), expression(self.condition), "left_anti")

    def written(self, rows: "DataFrame", kinds: Sequence[When], besides: Sequence[str] = ()) -> "DataFrame":
        """Rows with an action as they will be, whether it has changed them, and what they were.

        Generated columns follow the others, unless the clause has said what they are.
        """
        changed = (F.col(ACTION) != COPIED).alias(CHANGED)
        before = [] if When.NOT_MATCHED in kinds else list(self._old.values())
        found = rows.select(*self._values(kinds), changed, ACTION, *before, *besides)
        steps = [step for when in kinds for step in self.steps_for(when) if step.clause.act is not Act.DELETE]
        silent = {
            name: [step.number for step in steps if name not in step.values] for name in self.metadata.rules.generated
        }
        where = {name: F.col(ACTION).isin(numbers) for name, numbers in silent.items() if numbers}
        return following(found, self.metadata, where)

    def _values(self, kinds: Sequence[When]) -> "list[Column]":
        is_new = When.NOT_MATCHED in kinds
        steps = [step for when in kinds for step in self.steps_for(when)]
        columns = []
        for name, old in self._old.items():
            value = self._default(name) if is_new else old
            for step in steps:
                if name in step.values:
                    is_said = self._changes_unmatched and not is_new
                    new = F.col(_said(step, name)) if is_said else step.values[name]
                    value = F.when(F.col(ACTION) == step.number, new).otherwise(value)
            columns.append(value.alias(name))
        return columns

    def _default(self, name: str) -> "Column":
        sql = self.metadata.rules.defaults.get(name)
        value = F.lit(None) if sql is None else F.expr(sql)
        return value.cast(spark_type(self.metadata.schema.field(name).type))

    @cached_property
    def _old(self) -> "dict[str, Column]":
        return columns_of_table(self.metadata.schema)

    def is_any(self, *acts: Act, kinds: Sequence[When] = tuple(When)) -> "Column":
        """Whether a row's action is one of these."""
        numbers = [step.number for step in self.steps if step.clause.act in acts and step.clause.when in kinds]
        return F.col(ACTION).isin(numbers) if numbers else F.lit(False)

    def rows(self, written: "DataFrame") -> "DataFrame":
        """Of what was written, what goes into files: the table's columns, whether the row has changed, and by what."""
        return written.select(*[F.col(quoted(name)) for name in self.metadata.schema.names], CHANGED, ACTION)

    def feed(self, written: "DataFrame") -> "DataFrame":
        """What the change feed says of the rows that were there."""
        old = [column.alias(name) for name, column in self._old.items()]
        updated, deleted = (written.where(self.is_any(act)) for act in (Act.UPDATE, Act.DELETE))
        parts = [
            updated.select(*old).withColumn(CHANGE_TYPE, F.lit("update_preimage")),
            self.rows(updated).drop(CHANGED, ACTION).withColumn(CHANGE_TYPE, F.lit("update_postimage")),
            deleted.select(*old).withColumn(CHANGE_TYPE, F.lit("delete")),
        ]
        return reduce(lambda one, other: one.union(other), parts)

    @property
    def _only_deletes(self) -> bool:
        """Whether it does not matter how many rows of the source match one of the table."""
        steps = self.steps_for(When.MATCHED)
        return len(steps) == 1 and steps[0].clause.act is Act.DELETE and steps[0].clause.condition is None

    def _any(self, when: When) -> "Column":
        steps = self.steps_for(when)
        return reduce(lambda one, other: one | other, map(_condition, steps)) if steps else F.lit(False)

    def _untouched_by_source(self, files: pa.Table, numbers: Mapping[str, int]) -> set[int]:
        """Files with rows that match nothing in the source, and are changed for it."""
        if not self._changes_unmatched:
            return set()
        alone = self.table(files).join(self.source, expression(self.condition), "left_anti")
        found = alone.where(self._any(When.NOT_MATCHED_BY_SOURCE)).select(ROW_FILE).distinct().collect()
        return {numbers[plain_path(row[0])] for row in found}


def _condition(step: Step) -> "Column":
    """Whether a clause is for a row, among those that it is asked of.

    Spark asks a condition as early as it can, below a join also of rows that are not in its result, for which it may
    fail. One that is not deterministic stays where it is.
    """
    asked = step.clause.condition
    if asked is None:
        return F.lit(True)
    return matches(asked) if step.is_harmless else matches(asked) | (F.monotonically_increasing_id() < 0)


def _said(step: Step, name: str) -> str:
    """The column that has what a clause makes of one of the table's."""
    return f"{_SAID}_{step.number}_{list(step.values).index(name)}"
