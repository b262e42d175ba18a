"""A z-curve through several columns: rows that are near each other on it are near each other in all of them.

Each column's values are numbered by the range that they lie in, with equally many rows in each range, and the bits of
these numbers are interleaved. What the ranges are, and where on the curve a new file begins, a sample of the rows says.
Everything is an expression of Spark's own.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F

from lakelog.changes.bins import Bin
from lakelog.spark.expressions import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_BITS = 10
"""Of a range's number, as in Delta: more ranges than that no file can tell apart."""
_ALL_BITS = 62
"""Of a position on the curve, which is a number of 64 bits."""

MOST_COLUMNS = 15
"""Of a curve: more would leave fewer than four bits to each."""

_SAMPLE = 8192
_SAMPLE_PER_FILE = 256
_SAMPLED = 200_000
"""Rows of a partition that are looked at: at least, for each new file, and at most."""

_SEED = 20_260_101

_GROUP, _SHARE, _FILES = "__lakelog_group", "__lakelog_share", "__lakelog_files"
_KEYS, _SAMPLE_ROWS = "__lakelog_keys", "__lakelog_sample"
_FIRST, _PLAN = "__lakelog_first", "__lakelog_plan"
_RANGES = "__lakelog_ranges"
_POSITION = "__lakelog_position"


def along_curve(rows: "DataFrame", number: "Column", columns: Sequence["Column"], bins: Sequence[Bin]) -> "DataFrame":
    """Rows of bins, which ``number`` tells, each bin sorted along its curve and cut into its new files."""
    curve = _Curve(columns)
    names = [F.col(quoted(name)) for name in rows.columns]
    groups = _groups(rows.sparkSession, bins)
    plans = F.broadcast(curve.plans(rows, number, groups))
    rows = rows.join(plans, number == F.col(_GROUP), "left")
    # One after the other, so that Spark computes each of them once.
    rows = rows.select(*names, _PLAN, _FIRST, curve.numbers(columns, F.col(_PLAN)["bounds"]).alias(_RANGES))
    rows = rows.select(*names, _PLAN, _FIRST, curve.position(F.col(_RANGES)).alias(_POSITION))
    most = max(each.outputs for each in bins)
    file = F.col(_FIRST) + _searched(F.col(_POSITION), F.col(_PLAN)["cuts"], (most - 1).bit_length())
    count = sum(each.outputs for each in bins)
    return rows.repartitionById(count, file).sortWithinPartitions(_POSITION).select(*names)


class _Curve:
    """The curve through some columns."""

    def __init__(self, columns: Sequence["Column"]) -> None:
        self._columns = columns
        self._bits = min(_BITS, _ALL_BITS // len(columns))
        self._keys = [f"k{index}" for index in range(len(columns))]

    def plans(self, rows: "DataFrame", number: "Column", groups: "DataFrame") -> "DataFrame":
        """For each group the bounds of the columns' ranges, and where on the curve its files but the first begin.

        Also for a group of which no row was looked at: all of its rows are before the first bound.
        """
        keys = [column.alias(key) for column, key in zip(self._columns, self._keys, strict=True)]
        looked_at = rows.select(number.alias(_GROUP), F.struct(*keys).alias(_KEYS))
        looked_at = looked_at.join(F.broadcast(groups.select(_GROUP, _SHARE)), _GROUP)
        looked_at = looked_at.where(F.rand(_SEED) < F.col(_SHARE))
        sample = looked_at.groupBy(_GROUP).agg(F.collect_list(_KEYS).alias(_SAMPLE_ROWS))
        plan = _let(F.struct(*map(self._bounds, self._keys)), self._with_cuts)
        return groups.join(sample, _GROUP, "left").select(_GROUP, _FIRST, plan.alias(_PLAN))

    def numbers(self, values: Sequence["Column"], bounds: "Column") -> "Column":
        """The ranges that values lie in."""
        pairs = zip(values, self._keys, strict=True)
        return F.array(*(_searched(value, bounds[key], self._bits) for value, key in pairs))

    def position(self, numbers: "Column") -> "Column":
        """A place on the curve: bit by bit from all numbers in turn, the highest first."""
        count = len(self._columns)
        bits = [
            F.shiftleft(F.shiftright(F.get(numbers, F.lit(index)), bit).bitwiseAND(F.lit(1)).cast("long"), place)
            for bit in range(self._bits)
            for index in range(count)
            for place in [bit * count + count - 1 - index]
        ]
        return reduce(lambda one, other: one.bitwiseOR(other), bits)

    def _bounds(self, key: str) -> "Column":
        """The values of the sample at which a column's ranges begin. Nulls come before the first."""
        values = F.filter(F.transform(_SAMPLE_ROWS, lambda row: row[key]), lambda value: value.isNotNull())
        ranges = F.lit(1 << self._bits)
        return _let(F.array_sort(values), lambda ordered: _quantiles(ordered, ranges)).alias(key)

    def _with_cuts(self, bounds: "Column") -> "Column":
        numbers = F.transform(_SAMPLE_ROWS, lambda row: self.numbers([row[key] for key in self._keys], bounds))
        places = F.array_sort(F.transform(numbers, self.position))
        cuts = _let(places, lambda ordered: _quantiles(ordered, F.col(_FILES)))
        return F.struct(bounds.alias("bounds"), cuts.alias("cuts"))


def _groups(spark: "SparkSession", bins: Sequence[Bin]) -> "DataFrame":
    """How many files each bin becomes, which number its first one has, and which share of its rows is looked at."""
    shares, first, following = [], [], 0
    for each in bins:
        wanted = min(max(_SAMPLE, _SAMPLE_PER_FILE * each.outputs), _SAMPLED)
        # Of rows that nobody has counted, there may be as many as bytes.
        shares.append(min(1.0, wanted / max(each.size if each.rows is None else each.rows, 1)))
        first.append(following)
        following += each.outputs
    table = pa.table(
        {
            _GROUP: pa.array(range(len(bins)), pa.int32()),
            _SHARE: pa.array(shares, pa.float64()),
            _FILES: pa.array([each.outputs for each in bins], pa.int32()),
            _FIRST: pa.array(first, pa.int32()),
        }
    )
    return spark.createDataFrame(table)


def _let(value: "Column", body: "Callable[[Column], Column]") -> "Column":
    """An expression of a value that is computed once, however often the expression names it."""
    return F.get(F.transform(F.array(value), body), F.lit(0))


def _quantiles(ordered: "Column", parts: "Column") -> "Column":
    """Where each part of a sorted list begins, but for the first; null if there is only one."""
    size = F.size(ordered).cast("long")
    begins = F.transform(
        F.sequence(F.lit(1), parts - 1), lambda part: F.get(ordered, (part * size / parts).cast("int"))
    )
    return F.when(parts > 1, begins)


def _searched(value: "Column", bounds: "Column", bits: int) -> "Column":
    """How many of the sorted bounds, fewer than two to the power of ``bits``, are not above a value: bisected.

    Bounds that are null, or not there, are above every value.
    """
    if bits == 0:
        return F.lit(0)
    steps = F.array(*(F.lit(1 << bit) for bit in reversed(range(bits))))

    def step(found: "Column", width: "Column") -> "Column":
        return found + F.when(value >= F.get(bounds, found + width - 1), width).otherwise(0)

    return F.aggregate(steps, F.lit(0), step)
