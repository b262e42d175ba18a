"""Bounds from footers: each type's own, and none where a value could be outside or the writer is not trusted."""

import json
import math
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.fixtures.footers import SparkWrite, arrow_file, bounds, harvested
from tests.fixtures.thrift import edit_statistics


@pytest.mark.parametrize("end", ["a", "é", "\U0010ffff"])
def test_strings_that_spark_cuts_stay_between_their_bounds(spark_write: SparkWrite, end: str) -> None:
    (path,) = spark_write(f"SELECT repeat('{end}', 5000) AS text, repeat(concat(id, '{end}'), 50) AS t FROM range(3)")
    for name, smallest, largest in (("text", end * 5000, end * 5000), ("t", f"0{end}" * 50, f"2{end}" * 50)):
        low, high, nulls = bounds(path, name)
        assert low <= smallest
        assert len(low) <= 64
        assert nulls == 0
        if (name, end) == ("text", "\U0010ffff"):
            # Nothing is above it, so that Spark does not cut it.
            assert high is None
        else:
            assert largest < high
            assert len(high) <= 64


def test_strings_that_the_writer_did_not_cut_are_cut(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"text": ["a" * 100, "b" * 100], "top": ["\U0010ffff" * 100] * 2}))
    assert bounds(path, "text") == ("a" * 64, "b" * 63 + "c", 0)
    assert bounds(path, "top") == ("\U0010ffff" * 64, None, 0)


@pytest.mark.parametrize("value", [b"z\0z", b"z\xff", b"\xed\xa0\x80"])
def test_a_bound_that_no_database_can_hold_is_left_out(tmp_path: Path, value: bytes) -> None:
    texts = pa.array([b"a", value], pa.binary())
    texts = pa.Array.from_buffers(pa.string(), 2, texts.buffers())
    path = arrow_file(tmp_path, pa.table({"text": texts}))
    assert bounds(path, "text") == ("a", None, 0)


def test_binary_has_no_bounds(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"raw": [b"a", None]}))
    assert bounds(path, "raw") == (None, None, 1)


@pytest.mark.parametrize("kind", ["FLOAT", "DOUBLE"])
def test_nan_in_a_file_of_spark_leaves_no_bounds(spark_write: SparkWrite, kind: str) -> None:
    (path,) = spark_write(f"SELECT CAST(x AS {kind}) AS x FROM VALUES ('1'), ('NaN'), (NULL), ('3') AS rows(x)")
    assert bounds(path, "x") == (None, None, 1)
    (path,) = spark_write(f"SELECT CAST('NaN' AS {kind}) AS x")
    assert bounds(path, "x") == (None, None, 0)


def test_nan_may_be_above_the_maximum_of_other_writers(tmp_path: Path, spark_write: SparkWrite) -> None:
    path = arrow_file(tmp_path, pa.table({"x": [1.0, math.nan], "n": [1, 2]}))
    assert bounds(path, "x") == bounds(path, "x", by="pyarrow") == (1.0, None, 0)
    assert bounds(path, "n", by="pyarrow") == (1, 2, 0)
    (path,) = spark_write("SELECT 1.5D AS x")
    assert bounds(path, "x") == (1.5, 1.5, 0)
    assert bounds(path, "x", by="unknown") == (1.5, None, 0)


def test_infinities_are_no_bounds(spark_write: SparkWrite) -> None:
    (path,) = spark_write(
        "SELECT double(x) AS x, float(y) AS y FROM VALUES ('-inf', '1'), ('inf', 'inf') AS rows(x, y)"
    )
    assert bounds(path, "x") == (None, None, 0)
    assert bounds(path, "y") == (1.0, None, 0)


@pytest.mark.parametrize("values", [("-0.0", "-0.0"), ("0.0", "0.0"), ("0.0", "-0.0")])
def test_both_zeros_are_between_the_bounds_of_either(spark_write: SparkWrite, values: tuple[str, str]) -> None:
    (path,) = spark_write(f"SELECT double(x) AS x FROM VALUES ('{values[0]}'), ('{values[1]}') AS rows(x)")
    low, high, _ = bounds(path, "x")
    assert low <= 0.0 <= high


@pytest.mark.parametrize("in_integers", [True, False])
def test_decimals_keep_their_digits_however_they_are_stored(tmp_path: Path, in_integers: bool) -> None:
    data = pa.table(
        {
            "small": pa.array([Decimal("-0.01"), Decimal("99.90")], pa.decimal128(5, 2)),
            "large": pa.array([Decimal(-(10**38) + 1), Decimal(10**38 - 1)], pa.decimal128(38, 0)),
            "fraction": pa.array([Decimal("-1e-38"), Decimal("1e-38")], pa.decimal128(38, 38)),
        }
    )
    path = arrow_file(tmp_path, data, store_decimal_as_integer=in_integers)
    text = harvested(path).adds.column("stats")[0].as_py()
    low, high = (json.loads(text, parse_float=str)[part] for part in ("minValues", "maxValues"))
    assert low == {"small": "-0.01", "large": -(10**38) + 1, "fraction": f"-0.{'0' * 37}1"}
    assert high == {"small": "99.90", "large": 10**38 - 1, "fraction": f"0.{'0' * 37}1"}


def test_times_that_four_digits_of_a_year_cannot_say_have_no_bound(tmp_path: Path) -> None:
    day = pa.array([-719_163, 2_932_896], pa.int32()).cast(pa.date32())
    at = pa.array([0, 253_402_300_800_000_000], pa.int64()).cast(pa.timestamp("us", "UTC"))
    path = arrow_file(tmp_path, pa.table({"day": day, "at": at}))
    assert bounds(path, "day") == (None, "9999-12-31", 0)
    assert bounds(path, "at") == ("1970-01-01T00:00:00.000000Z", None, 0)


def test_times_in_other_units_are_rounded_outward(tmp_path: Path) -> None:
    data = pa.table(
        {
            "ns": pa.array([-1, 1001], pa.timestamp("ns")),
            "ms": pa.array([-1, 1001], pa.timestamp("ms")),
            "s": pa.array([0, 1], pa.timestamp("s")),
        }
    )
    path = arrow_file(tmp_path, data)
    schema = pa.schema([(name, pa.timestamp("us")) for name in data.column_names])
    assert bounds(path, "ns", schema) == ("1969-12-31T23:59:59.999999", "1970-01-01T00:00:00.000002", 0)
    assert bounds(path, "ms", schema) == ("1969-12-31T23:59:59.999000", "1970-01-01T00:00:01.001000", 0)
    assert bounds(path, "s", schema) == ("1970-01-01T00:00:00.000000", "1970-01-01T00:00:01.000000", 0)


def test_int96_has_no_bounds(spark_write: SparkWrite) -> None:
    option = {"spark.sql.parquet.outputTimestampType": "INT96"}
    (path,) = spark_write("SELECT TIMESTAMP'2026-01-02 03:04:05Z' AS at", **option)
    assert bounds(path, "at", pa.schema([("at", pa.timestamp("us", "UTC"))])) == (None, None, 0)


def test_ancient_times_of_the_old_calendar_have_no_bounds(spark: SparkSession, spark_write: SparkWrite) -> None:
    query = "SELECT DATE'{0}-01-01' AS day, TIMESTAMP'{0}-01-01 00:00:00Z' AS at, id FROM range(1)"
    (today,) = spark_write(query.format("1000"))
    assert bounds(today, "day") == ("1000-01-01", "1000-01-01", 0)
    spark.conf.set("spark.sql.parquet.datetimeRebaseModeInWrite", "LEGACY")
    try:
        (ancient,) = spark_write(query.format("1000"))
        (recent,) = spark_write(query.format("2000"))
    finally:
        spark.conf.unset("spark.sql.parquet.datetimeRebaseModeInWrite")
    assert bounds(ancient, "day") == bounds(ancient, "at") == (None, None, 0)
    assert bounds(ancient, "id") == (0, 0, 0)
    assert bounds(recent, "day") == ("2000-01-01", "2000-01-01", 0)


def test_bounds_serve_a_wider_type(tmp_path: Path) -> None:
    days = pa.array([date(2026, 1, 1), date(2026, 1, 2)])
    data = pa.table({"a": pa.array([1, 2], pa.int32()), "b": pa.array([1.5, 2], pa.float32()), "c": days})
    path = arrow_file(tmp_path, data)
    for name, kind, expected in (
        ("a", pa.int64(), (1, 2, 0)),
        ("a", pa.float64(), (1, 2, 0)),
        ("a", pa.decimal128(12, 2), (1, 2, 0)),
        ("b", pa.float64(), (1.5, None, 0)),
        ("c", pa.timestamp("us"), ("2026-01-01T00:00:00.000000", "2026-01-02T00:00:00.000000", 0)),
        ("c", pa.timestamp("us", "UTC"), (None, None, 0)),
        ("a", pa.string(), (None, None, 0)),
        ("c", pa.int32(), (None, None, 0)),
    ):
        assert bounds(path, name, pa.schema([(name, kind)])) == expected, kind


def test_unsigned_numbers_have_no_bounds(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"n": pa.array([2**31, 2**31 + 1], pa.uint32())}))
    assert bounds(path, "n", pa.schema([("n", pa.int64())])) == (None, None, 0)


@pytest.mark.parametrize(
    "creator", [b"parquet-mr version 1.8.1 (build x)", b"parquet-mr version 1.13.1 (build x)", b"x"]
)
def test_old_bounds_of_strings_are_not_trusted(tmp_path: Path, creator: bytes) -> None:
    """They were compared as signed bytes, so that ``é`` came before ``a``; numbers were compared rightly."""
    path = arrow_file(tmp_path, pa.table({"text": ["a", "é"], "n": [1, 2]}))

    def as_once(group: int, column: int, found: dict[int, Any]) -> None:
        found[1], found[2] = found.pop(5), found.pop(6)

    edit_statistics(path, as_once, creator)
    assert bounds(path, "text")[:2] == (None, None)
    assert bounds(path, "n")[:2] == (1, 2)


@pytest.mark.parametrize("field", [5, 6])
def test_a_bound_that_is_alone_is_not_trusted(tmp_path: Path, field: int) -> None:
    path = arrow_file(tmp_path, pa.table({"text": ["a", "b"], "n": [1, 2]}))

    def halved(group: int, column: int, found: dict[int, Any]) -> None:
        for number in {1, 2, field} & found.keys():
            del found[number]

    edit_statistics(path, halved)
    assert bounds(path, "text") == bounds(path, "n") == (None, None, 0)


def test_bounds_that_contradict_themselves_are_left_out(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"n": [1, 2]}))

    def swapped(group: int, column: int, found: dict[int, Any]) -> None:
        found[5], found[6] = found[6], found[5]

    edit_statistics(path, swapped)
    assert bounds(path, "n") == (None, None, 0)
