"""Bounds of one file and of thousands: never narrower than the values, and the same whichever way they are made."""

import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from lakelog.log.pruning.bounds import (
    TEXT_LENGTH,
    Kind,
    bounds_of,
    kind_of,
    next_text,
    number_span,
    outward,
    partition_bounds,
    text_span,
)
from lakelog.log.pruning.bulk_bounds import UnusualStatistics, read_statistics
from lakelog.schema import leaf_columns

TYPES = {
    "i": pa.int64(),
    "d": pa.float64(),
    "f": pa.float32(),
    "m": pa.decimal128(20, 4),
    "b": pa.bool_(),
    "t": pa.string(),
    "day": pa.date32(),
    "z": pa.timestamp("us", "UTC"),
}
LEAVES = leaf_columns(pa.schema([*TYPES.items(), ("s", pa.struct([("a", pa.int32()), ("b", pa.string())]))]))

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=2 * TEXT_LENGTH)
days = st.dates().map(str)
values: dict[str, st.SearchStrategy[Any]] = {
    "i": st.integers(-(2**63), 2**63 - 1),
    "d": st.floats(allow_nan=False, allow_infinity=False),
    "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
    "m": st.decimals(-(10**15), 10**15, places=4).map(float),
    "b": st.booleans(),
    "t": texts,
    "day": days,
    "z": st.datetimes().map(lambda moment: moment.isoformat(timespec="milliseconds") + "Z"),
    "s": st.fixed_dictionaries({}, optional={"a": st.integers(-(2**31), 2**31 - 1), "b": texts}),
}
columns = st.fixed_dictionaries({}, optional=values)
counts = st.fixed_dictionaries({}, optional=dict.fromkeys(TYPES, st.integers(0, 5)))
statistics = st.fixed_dictionaries(
    {"numRecords": st.just(5)}, optional={"minValues": columns, "maxValues": columns, "nullCount": counts}
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.none() | statistics, min_size=1, max_size=5))
def test_many_files_have_the_same_bounds_as_each_of_them_alone(files: list[dict[str, Any] | None]) -> None:
    texts = [None if stats is None else json.dumps(stats, ensure_ascii=False) for stats in files]
    try:
        found = read_statistics(pa.array(texts, pa.string()), LEAVES)
    except UnusualStatistics:
        reject()  # a text such as "NaN", which gets a closer look
    for leaf, column in zip(LEAVES, found.columns, strict=True):
        kind = kind_of(leaf.type)
        assert kind is not None
        for index, stats in enumerate(files):
            if stats is None:
                assert column.span[index].as_py() is None
                continue
            low, high, nulls = (_dig(stats.get(part), leaf.path) for part in ("minValues", "maxValues", "nullCount"))
            alone = bounds_of(kind, low, high, nulls, stats["numRecords"])
            together = [
                array[index].as_py() for array in (column.span, column.minimum, column.maximum, column.null_count)
            ]
            pair = [alone.min_text, alone.max_text] if column.is_text else [alone.min_num, alone.max_num]
            contradictory = found.contradictory[index].as_py()
            assert contradictory or together == [alone.span, *pair, alone.null_count], leaf.name


def _dig(tree: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        tree = tree.get(part) if isinstance(tree, dict) else None
    return tree


@given(
    st.integers()
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.floats(allow_nan=False, allow_infinity=False)
)
def test_rounding_goes_outward(value: int | Decimal | float) -> None:
    low, high = outward(value)
    assert low <= value <= high


@given(st.floats(allow_nan=False, allow_infinity=False), st.floats(allow_nan=False, allow_infinity=False))
def test_a_search_by_span_reaches_every_interval_that_holds_the_value(one: float, other: float) -> None:
    low, high = sorted((one, other))
    for wanted in (low, high, low + (high - low) / 2):
        if low <= wanted <= high:
            assert wanted - number_span(low, high) <= low


@given(texts, texts, texts)
def test_a_search_by_prefix_reaches_every_interval_that_holds_the_string(one: str, other: str, wanted: str) -> None:
    low, high = sorted((one, other))
    if low <= wanted <= high:
        assert wanted[: int(text_span(low, high))] <= low


@given(texts, texts)
def test_the_next_prefix_is_above_every_string_with_the_prefix(prefix: str, rest: str) -> None:
    following = next_text(prefix)
    assert following is None or following > prefix + rest


@given(texts, texts)
def test_bounds_of_strings_hold_the_strings(one: str, other: str) -> None:
    low, high = sorted((one, other))
    bounds = bounds_of(Kind.TEXT, low, high, 0, 2)
    assert bounds.min_text <= low
    assert bounds.max_text is None or bounds.max_text >= high
    assert len(bounds.min_text) <= TEXT_LENGTH


def test_shortened_digits_of_a_32_bit_float_stay_inside_the_bounds() -> None:
    actual = pa.scalar(0.1, pa.float32()).as_py()
    bounds = bounds_of(Kind.SINGLE, 0.1, 0.1, 0, 1)
    assert bounds.min_num <= actual <= bounds.max_num


def test_a_column_of_nulls_can_match_no_comparison() -> None:
    assert bounds_of(Kind.INTEGER, None, None, 4, 4).span == -1


def test_statistics_without_bounds_match_everything() -> None:
    bounds = bounds_of(Kind.INTEGER, None, None, None, None)
    assert (bounds.span, bounds.min_num, bounds.max_num) == (math.inf, -math.inf, math.inf)


@pytest.mark.parametrize("low", ["x", True, None, [1], {"a": 1}])
def test_a_bound_of_another_type_is_no_bound(low: Any) -> None:
    assert bounds_of(Kind.INTEGER, low, 5, 0, 1).min_num == -math.inf


@pytest.mark.parametrize(
    ("kind", "text", "low", "high"),
    [
        (Kind.INTEGER, "5", 5, 5),
        (Kind.BOOLEAN, "true", 1, 1),
        (Kind.DATE, "1970-01-02", 86_400_000_000, 86_400_000_000),
        (Kind.TIMESTAMP, "1970-01-01T00:00:01Z", 1_000_000, 1_000_000),
        (Kind.TIMESTAMP, "1970-01-01 00:00:01.5", 1_500_000, 1_500_000),
        (Kind.FLOAT, "0.5", 0.5, 0.5),
    ],
)
def test_a_partition_value_is_one_value(kind: Kind, text: str, low: float, high: float) -> None:
    bounds = partition_bounds(kind, text, 3)
    assert bounds is not None
    assert (bounds.span, bounds.min_num, bounds.max_num, bounds.null_count) == (0, low, high, 0)


@pytest.mark.parametrize(
    ("kind", "text"), [(Kind.INTEGER, "x"), (Kind.INTEGER, "1.5"), (Kind.DATE, "soon"), (Kind.BOOLEAN, "1")]
)
def test_a_partition_value_of_another_type_is_noticed(kind: Kind, text: str) -> None:
    assert partition_bounds(kind, text, 3) is None


@pytest.mark.parametrize("stats", ['{"numRecords":NaN}', "{}{}", '{"numRecords":"5"}', "[]", '{"minValues":{"i":"x"}}'])
def test_unusual_statistics_are_left_to_a_closer_look(stats: str) -> None:
    with pytest.raises(UnusualStatistics):
        read_statistics(pa.array([stats, stats]), LEAVES)
