"""What the log learns from the footers of real files: no bound that a value breaks, and none from a doubtful footer."""

import json
import math
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pf
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakelog import AddFiles, Lake, LakelogError, SqlTxnLogWriter
from lakelog.log.pruning.bounds import Bounds, Kind, bounds_of, kind_of
from lakelog.log.pruning.bulk_bounds import UnusualStatistics, read_statistics
from lakelog.log.validation.stats import checked_stats
from lakelog.parquet.footers import Harvest, WrittenFile, harvest
from lakelog.schema import Leaf, leaf_columns
from lakelog.spark.harvest import harvest_in_spark

SCHEMA = pa.schema(
    [
        ("tiny", pa.int8()),
        ("long", pa.int64()),
        ("tags", pa.list_(pa.int32())),
        ("single", pa.float32()),
        ("double", pa.float64()),
        ("short decimal", pa.decimal128(9, 2)),
        ("long decimal", pa.decimal128(38, 10)),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("nested", pa.struct([("a.b", pa.int32()), ("inner", pa.struct([("text", pa.string())]))])),
    ]
)
INT64 = st.integers(-(2**63), 2**63 - 1)
DAYS = st.integers(-719_162, 2_932_896) | st.integers(-(2**31), 2**31 - 1)
TEXTS = st.text(max_size=4) | st.text("aé\U0010ffff\0", min_size=60, max_size=140)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "tiny": st.integers(-128, 127),
    "long": INT64,
    "tags": st.lists(st.none() | st.integers(0, 9), max_size=3),
    "single": st.floats(width=32),
    "double": st.floats(),
    "short decimal": st.decimals(-9999999, 9999999, places=2),
    "long decimal": st.integers(-(10**38) + 1, 10**38 - 1).map(lambda unscaled: Decimal(f"{unscaled}E-10")),
    "flag": st.booleans(),
    "day": DAYS,
    "at": INT64 | st.integers(0, 10**15),
    "local": INT64 | st.integers(0, 10**15),
    "text": TEXTS,
    "raw": st.binary(max_size=3),
    "nested": st.fixed_dictionaries(
        {
            "a.b": st.none() | st.integers(-(2**31), 2**31 - 1),
            "inner": st.none() | st.fixed_dictionaries({"text": st.none() | TEXTS}),
        }
    ),
}
AS_THE_WRITER_DOES = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "parquet.statistics.truncate.length": "64",
}

SparkWrite = Callable[..., list[Path]]


@pytest.fixture
def spark_write(spark: SparkSession, tmp_path: Path) -> SparkWrite:
    """Writes a query's rows as Lakelog's writer does, and returns the files."""

    def write(query: str, **options: Any) -> list[Path]:
        target = tmp_path / uuid.uuid4().hex
        spark.sql(query).coalesce(1).write.options(**AS_THE_WRITER_DOES | options).parquet(f"file://{target}")
        return sorted(target.glob("*.parquet"))

    return write


def arrow_file(tmp_path: Path, data: pa.Table, **options: Any) -> Path:
    path = tmp_path / f"{uuid.uuid4().hex}.parquet"
    pq.write_table(data, path, **options)
    return path


def written(file: Path, **changes: Any) -> WrittenFile:
    known = {
        "path": file.name,
        "place": str(file),
        "size": file.stat().st_size,
        "modification_time": 1_700_000_000_000,
        "partition_values": {},
    }
    return WrittenFile(**known | changes)


def harvested(*paths: Path, schema: pa.Schema | None = None, **options: Any) -> Harvest:
    schema = pq.read_schema(paths[0]) if schema is None else schema
    return harvest([written(path) for path in paths], schema, leaf_columns(schema), **options)


def stats(path: Path, schema: pa.Schema | None = None, **options: Any) -> dict[str, Any]:
    """A file's statistics, as JSON values."""
    text = harvested(path, schema=schema, **options).adds.column("stats")[0].as_py()
    parsed, violations = checked_stats(text, "stats")
    assert not violations
    return parsed


def bounds(path: Path, name: str, schema: pa.Schema | None = None, **options: Any) -> tuple[Any, Any, Any]:
    """A column's minimum, maximum and count of nulls."""
    found = stats(path, schema, **options)
    return tuple(found[part].get(name) for part in ("minValues", "maxValues", "nullCount"))


def test_a_file_of_spark_has_bounds_of_every_type_in_the_spelling_of_delta(spark_write: SparkWrite) -> None:
    (path,) = spark_write("""
        SELECT * FROM VALUES
            (1Y, 10L, 1.5F, -0.5D, 1.25BD, 12345678901234567890.12345BD, true, DATE'2026-01-02',
             TIMESTAMP'2026-01-02 03:04:05.123456Z', TIMESTAMP_NTZ'2026-01-02 03:04:05', 'a', X'00', array(1),
             named_struct('x', 7, 'y', named_struct('z', 'é'))),
            (3Y, -10L, 2.5F, 0.5D, -0.05BD, -99999999999999999999.99999BD, false, DATE'1999-12-31',
             TIMESTAMP'2026-01-02 03:04:05.5Z', TIMESTAMP_NTZ'0001-01-01 00:00:00', 'b"\\n', X'01', array(),
             named_struct('x', CAST(NULL AS INT), 'y', CAST(NULL AS STRUCT<z: STRING>))),
            (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
        AS rows(tiny, long, single, double, dec, wide, flag, day, at, local, text, raw, tags, nested)""")
    text = harvested(path).adds.column("stats")[0].as_py()
    assert '"wide":-99999999999999999999.99999' in text
    assert '"wide":12345678901234567890.12345' in text
    found = json.loads(text, parse_float=str)
    assert found["numRecords"] == 3
    assert found["minValues"] == {
        "tiny": 1,
        "long": -10,
        "single": "1.5",
        "double": "-0.5",
        "dec": "-0.05",
        "wide": "-99999999999999999999.99999",
        "flag": False,
        "day": "1999-12-31",
        "at": "2026-01-02T03:04:05.123456Z",
        "local": "0001-01-01T00:00:00.000000",
        "text": "a",
        "nested": {"x": 7, "y": {"z": "é"}},
    }
    assert found["maxValues"] == {
        "tiny": 3,
        "long": 10,
        "single": "2.5",
        "double": "0.5",
        "dec": "1.25",
        "wide": "12345678901234567890.12345",
        "flag": True,
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.500000Z",
        "local": "2026-01-02T03:04:05.000000",
        "text": 'b"\n',
        "nested": {"x": 7, "y": {"z": "é"}},
    }
    flat = dict.fromkeys([name for name in found["minValues"] if name != "nested"], 1)
    assert found["nullCount"] == flat | {"raw": 1, "nested": {"x": 2, "y": {"z": 2}}}


def test_row_groups_have_their_own_statistics_and_the_file_has_those_of_all(tmp_path: Path) -> None:
    data = pa.table({"id": [5, None, 3, 9, None, None], "name": ["b", "a", "z", "y", None, None]})
    path = arrow_file(tmp_path, data, row_group_size=2)
    found = harvested(path)
    assert found.rows == 6
    assert found.row_groups.column("row_count").to_pylist() == [2, 2, 2]
    assert found.row_groups.column("row_group").to_pylist() == [0, 1, 2]
    assert found.row_groups.column("path").to_pylist() == [path.name] * 3
    assert min(found.row_groups.column("byte_size").to_pylist()) > 0
    assert [json.loads(text) for text in found.row_groups.column("stats").to_pylist()] == [
        _stats(2, {"id": 5, "name": "a"}, {"id": 5, "name": "b"}, {"id": 1, "name": 0}),
        _stats(2, {"id": 3, "name": "y"}, {"id": 9, "name": "z"}, {"id": 0, "name": 0}),
        _stats(2, {}, {}, {"id": 2, "name": 2}),
    ]
    assert stats(path) == _stats(6, {"id": 3, "name": "a"}, {"id": 9, "name": "z"}, {"id": 3, "name": 2})


def _stats(rows: int, low: dict[str, Any], high: dict[str, Any], nulls: dict[str, int]) -> dict[str, Any]:
    return {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def test_row_groups_of_spark_are_told_apart(spark_write: SparkWrite) -> None:
    (path,) = spark_write("SELECT id, uuid() AS text FROM range(20000)", **{"parquet.block.size": "65536"})
    groups = harvested(path).row_groups
    assert groups.num_rows > 1
    lows = [json.loads(text)["minValues"]["id"] for text in groups.column("stats").to_pylist()]
    assert lows == [0, *pc.cumulative_sum(groups.column("row_count")).to_pylist()[:-1]]
    assert bounds(path, "id") == (0, 19999, 0)


def test_one_row_group_without_bounds_leaves_the_file_without_them(tmp_path: Path) -> None:
    # pyarrow writes no bounds of strings that are too long.
    path = arrow_file(tmp_path, pa.table({"id": [1, 2], "text": ["a", "b" * 5000]}), row_group_size=1)
    assert bounds(path, "text") == (None, None, 0)
    assert bounds(path, "id") == (1, 2, 0)


def test_one_row_group_without_a_count_of_nulls_leaves_the_file_without_it(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"id": [1, 2], "n": [1, 2]}), row_group_size=1)
    edit_statistics(path, lambda group, column, found: found.pop(3) if (group, column) == (1, 0) else None)
    assert bounds(path, "id") == (1, 2, None)
    assert bounds(path, "n") == (1, 2, 0)


def test_a_column_without_statistics_is_unknown(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"id": [1], "n": [1]}), write_statistics=["n"])
    assert bounds(path, "id") == (None, None, None)


def test_a_column_of_nulls_has_a_count_and_no_bounds(tmp_path: Path, spark_write: SparkWrite) -> None:
    (by_spark,) = spark_write("SELECT CAST(NULL AS INT) AS n, id FROM range(3)")
    by_arrow = arrow_file(tmp_path, pa.table({"n": pa.nulls(3, pa.int32())}))
    assert bounds(by_spark, "n") == bounds(by_arrow, "n") == (None, None, 3)


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


def test_a_column_that_the_file_lacks_is_null_in_every_row(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"s": [{"a": 1}, {"a": 2}, None]}))
    schema = pa.schema([("s", pa.struct([("a", pa.int64()), ("b", pa.int64())])), ("new", pa.string())])
    assert stats(path, schema) == _stats(3, {"s": {"a": 1}}, {"s": {"a": 2}}, {"s": {"a": 1, "b": 3}, "new": 3})


@pytest.mark.parametrize(
    ("name", "kind"), [("ID", pa.int64()), ("tags", pa.int64()), ("id", pa.struct([("x", pa.int64())]))]
)
def test_a_column_that_the_file_may_have_in_another_form_is_unknown(tmp_path: Path, name: str, kind: Any) -> None:
    path = arrow_file(tmp_path, pa.table({"id": [1, 2], "tags": [[1], []]}))
    assert stats(path, pa.schema([(name, kind)])) == _stats(2, {}, {}, {})


def test_columns_are_found_behind_lists_and_by_names_with_dots(tmp_path: Path) -> None:
    inside = pa.list_(pa.struct([("x", pa.int32()), ("m", pa.map_(pa.string(), pa.int32()))]))
    data = pa.table(
        {
            "list": pa.array([[{"x": 1, "m": [("k", 5)]}]], inside),
            "s.x": [2],
            "s": [{"x": 3}],
            "d": pa.array(["dictionary"]).dictionary_encode(),
        }
    )
    path = arrow_file(tmp_path, data)
    schema = pa.schema([("s", pa.struct([("x", pa.int64())])), ("s.x", pa.int64()), ("d", pa.string())])
    assert stats(path, schema)["minValues"] == {"s": {"x": 3}, "s.x": 2, "d": "dictionary"}


def test_only_indexed_columns_of_the_schema_have_statistics(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"a": [1], "b": [2]}))
    indexed = [Leaf(("b",), "b", pa.int64()), Leaf(("partition",), "partition", pa.int64())]
    found = harvest([written(path)], pq.read_schema(path), indexed)
    assert json.loads(found.adds.column("stats")[0].as_py()) == _stats(1, {"b": 2}, {"b": 2}, {"b": 0})


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


def test_a_file_without_rows_is_reported_as_such(tmp_path: Path, spark_write: SparkWrite) -> None:
    (by_spark,) = spark_write("SELECT id FROM range(1) WHERE id > 1")
    for path in (by_spark, arrow_file(tmp_path, pa.table({"id": pa.array([], pa.int64())}))):
        found = harvested(path)
        assert (found.rows, found.adds.column("row_count").to_pylist()) == (0, [0])
        assert stats(path) == _stats(0, {}, {}, {"id": 0})


def test_no_files_give_empty_tables(spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int64())])
    for found in (harvest([], schema, leaf_columns(schema)), harvest_in_spark(spark, [], schema, leaf_columns(schema))):
        assert (found.adds.num_rows, found.row_groups.num_rows, found.rows) == (0, 0, 0)


def broken_files(tmp_path: Path) -> list[WrittenFile]:
    whole = arrow_file(tmp_path, pa.table({"id": [1]}))
    content = whole.read_bytes()
    files = [written(whole)]
    for name, left in (("cut", content[:-20]), ("empty", b""), ("text", b"not Parquet at all"), ("half", content[:50])):
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(left)
        files.append(written(path))
    longer = arrow_file(tmp_path, pa.table({"id": [1]})).rename(tmp_path / "longer.parquet")
    return [*files, written(longer, size=99), written(whole, place=str(tmp_path / "missing.parquet"))]


@pytest.mark.parametrize("in_spark", [False, True])
def test_files_that_are_not_whole_parquet_are_named(spark: SparkSession, tmp_path: Path, in_spark: bool) -> None:
    files = broken_files(tmp_path)
    schema = pa.schema([("id", pa.int64())])
    read = partial(harvest_in_spark, spark) if in_spark else harvest
    with pytest.raises(LakelogError) as caught:
        read(files, schema, leaf_columns(schema))
    for name in ("cut", "empty", "text", "half", "longer", "missing"):
        assert f"{tmp_path / name}.parquet: " in str(caught.value)
    assert files[0].place not in str(caught.value)
    assert "was listed with 99 bytes" in str(caught.value)


def test_places_are_paths_or_uris(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"id": [1]})).rename(tmp_path / "a b%20é.parquet")
    encoded = f"{tmp_path}/a%20b%2520%C3%A9.parquet"
    places = [str(path), f"file:{encoded}", f"file://{encoded}"]
    schema = pa.schema([("id", pa.int64())])
    assert harvest([written(path, place=place) for place in places], schema, leaf_columns(schema)).rows == 3


def test_files_in_one_bucket_share_a_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = arrow_file(tmp_path, pa.table({"id": [1]}))
    path = path.rename(path.parent / "a b.parquet")
    opened: list[str] = []

    def from_uri(uri: str) -> tuple[pf.FileSystem, str]:
        opened.append(uri)
        return pf.SubTreeFileSystem(str(tmp_path.parent), pf.LocalFileSystem()), uri.removeprefix("s3://")

    monkeypatch.setattr(
        "lakelog.parquet.footers.pf",
        SimpleNamespace(LocalFileSystem=pf.LocalFileSystem, FileSystem=SimpleNamespace(from_uri=from_uri)),
    )
    place = f"s3a://{tmp_path.name}/a%20b.parquet"
    schema = pa.schema([("id", pa.int64())])
    assert harvest([written(path, place=place)] * 300, schema, leaf_columns(schema)).rows == 300
    assert opened == [f"s3://{tmp_path.name}/a%20b.parquet"]


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    rows = draw(st.integers(0, 6))
    columns = {
        field.name: pa.array(
            draw(st.lists(VALUES[field.name] | st.none(), min_size=rows, max_size=rows)),
            pa.int32()
            if field.type == pa.date32()
            else pa.int64()
            if pa.types.is_timestamp(field.type)
            else field.type,
        ).cast(field.type)
        for field in SCHEMA
    }
    return pa.table(columns, SCHEMA)


REPEATED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large]


@given(data=tables(), rows_in_group=st.integers(1, 4))
@settings(max_examples=100, deadline=None, suppress_health_check=REPEATED)
def test_every_value_of_a_file_of_pyarrow_is_between_its_bounds(
    tmp_path: Path, data: pa.Table, rows_in_group: int
) -> None:
    path = arrow_file(tmp_path, data, row_group_size=rows_in_group)
    check(harvested(path, schema=SCHEMA), data, rows_in_group)


@given(several=st.lists(tables().filter(len), min_size=1, max_size=4))
@settings(max_examples=8, deadline=None, suppress_health_check=REPEATED)
def test_every_value_of_a_file_of_spark_is_between_its_bounds(
    spark: SparkSession, tmp_path: Path, several: list[pa.Table]
) -> None:
    """Through Spark's own reader, since its conversions of Arrow refuse the extremes."""
    for data in several:
        source = arrow_file(tmp_path, data)
        target = tmp_path / uuid.uuid4().hex
        spark.read.parquet(f"file://{source}").coalesce(1).write.options(**AS_THE_WRITER_DOES).parquet(
            f"file://{target}"
        )
        (path,) = target.glob("*.parquet")
        check(harvested(path, schema=SCHEMA), data, len(data))


def check(found: Harvest, data: pa.Table, rows_in_group: int) -> None:
    """The file's bounds hold for all rows, and those of each row group for its rows."""
    assert found.rows == found.adds.column("row_count")[0].as_py() == len(data)
    parts = [data.slice(start, rows_in_group) for start in range(0, len(data), rows_in_group)]
    texts = [*found.adds.column("stats").to_pylist(), *found.row_groups.column("stats").to_pylist()]
    assert sum(found.row_groups.column("row_count").to_pylist()) == len(data)
    for text, rows in zip(texts, [data, *parts] if len(data) else [data] * len(texts), strict=True):
        parsed, violations = checked_stats(text, "stats")
        assert not violations
        assert parsed["numRecords"] == len(rows)
        in_bulk = bulk_bounds(text)
        for leaf in leaf_columns(SCHEMA):
            values = leaf_values(rows, leaf)
            low, high, nulls = (dig(parsed[part], leaf.path) for part in ("minValues", "maxValues", "nullCount"))
            assert nulls in (values.count(None), None)
            # Only strings can be too long for a footer.
            assert nulls is not None or kind_of(leaf.type) is Kind.TEXT
            kind = kind_of(leaf.type)
            if kind is None:
                assert (low, high) == (None, None)
                continue
            for known in (bounds_of(kind, low, high, nulls, len(rows)), in_bulk.get(leaf.name)):
                if known is not None:
                    check_values(kind, known, [value for value in values if value is not None])


def check_values(kind: Kind, known: Bounds, values: Sequence[Any]) -> None:
    assert (known.span == -1.0) == (not values and known.null_count is not None)
    for value in values:
        if kind is Kind.TEXT:
            assert known.min_text <= value
            assert known.max_text is None or value <= known.max_text
        elif math.isnan(value):
            assert known.max_num == math.inf
        else:
            assert known.min_num <= value <= known.max_num


def leaf_values(rows: pa.Table, leaf: Leaf) -> list[Any]:
    """A leaf's values; those of times in microseconds."""
    column = rows.column(leaf.path[0]).combine_chunks()
    for name in leaf.path[1:]:
        column = pc.struct_field(column, [column.type.get_field_index(name)])
    if leaf.type == pa.date32():
        return [None if days is None else days * 86_400_000_000 for days in column.cast(pa.int32()).to_pylist()]
    return (column.cast(pa.int64()) if pa.types.is_timestamp(leaf.type) else column).to_pylist()


def dig(tree: Any, path: Sequence[str]) -> Any:
    for name in path:
        tree = tree.get(name) if tree else None
    return tree


def bulk_bounds(text: str) -> dict[str, Bounds]:
    try:
        read = read_statistics(pa.array([text]), leaf_columns(SCHEMA))
    except UnusualStatistics:
        return {}
    assert not read.contradictory[0].as_py()
    found = {}
    for column in read.columns:
        span, low, high, nulls = (
            part[0].as_py() for part in (column.span, column.minimum, column.maximum, column.null_count)
        )
        texts = (0.0, low, 0.0, high) if column.is_text else (low, "", high, None)
        found[column.name] = Bounds(span, *texts, nulls)
    return found


def test_spark_harvests_the_same(spark: SparkSession, spark_write: SparkWrite, tmp_path: Path) -> None:
    (wide,) = spark_write("SELECT id, CAST(id AS STRING) AS text, id / 3D AS x FROM range(5)")
    numbered = [arrow_file(tmp_path, pa.table({"id": range(n), "x": [0.5] * n}), row_group_size=2) for n in range(300)]
    files = [written(path, partition_values={"day": None, "p": path.name}) for path in [wide, *numbered]]
    schema = pq.read_schema(wide)
    for by in ("spark", "pyarrow"):
        here = harvest(files, schema, leaf_columns(schema), by=by, data_change=False)
        there = harvest_in_spark(spark, files, schema, leaf_columns(schema), by=by, data_change=False)
        assert here.adds.equals(there.adds)
        assert here.row_groups.equals(there.row_groups)
        assert here.rows == there.rows == 5 + sum(range(300))
    assert here.adds.column("data_change").unique().to_pylist() == [False]
    assert json.loads(here.adds.column("partition_values")[0].as_py()) == files[0].partition_values


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_committed_harvest_prunes_files_and_row_groups(lake: Lake, spark_write: SparkWrite) -> None:
    nested = pa.struct([("at", pa.timestamp("us", "UTC"))])
    schema = pa.schema([("p", pa.string()), ("id", pa.int64()), ("text", pa.string()), ("s", nested)])
    dataset = lake.create_dataset("events", schema=schema, partition_by=["p"])
    query = """SELECT id + {0} AS id, repeat(concat(id + {0}, '-'), 40) AS text,
               named_struct('at', timestamp_seconds(id + {0})) AS s FROM range(1000, 1100)"""
    paths = [spark_write(query.format(start))[0] for start in (0, 1000, 2000)]
    files = [
        written(path, path=f"p={p}/{p}.parquet", partition_values={"p": p})
        for p, path in zip("abc", paths, strict=True)
    ]
    metadata = dataset.snapshot().state.metadata
    found = harvest(files, metadata.physical.remove(0), metadata.indexed)
    SqlTxnLogWriter(lake).commit(dataset.id, dataset.version + 1, [AddFiles(found.adds)], row_groups=found.row_groups)
    snapshot = dataset.snapshot()
    for where, kept in (
        ("id >= 2000", ["b", "c"]),
        ("id = 1099", ["a"]),
        ("id = 1100", []),
        ("text > '3'", ["c"]),
        ("text = '2000'", []),
        ("s.at >= TIMESTAMP'1970-01-01 00:50:00Z'", ["c"]),
        ("id IS NULL", []),
        ("p = 'b' AND id < 2001", ["b"]),
    ):
        wanted = [f"p={p}/{p}.parquet" for p in kept]
        assert sorted(snapshot.files(where).column("path").to_pylist()) == wanted, where
        assert snapshot.row_groups(where).num_rows == len(kept), where


# A footer is a struct of Thrift's compact protocol, here as {field number: (type, value)}, integers as they stand.

BOOLEANS, BYTE, INTEGERS, EIGHT_BYTES, BINARY, LIST, STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 9, 12


def edit_statistics(path: Path, edit: Callable[[int, int, dict[int, Any]], None], creator: bytes | None = None) -> None:
    """Changes a file's statistics; with a creator, also into a file of old, which does not say how values compare."""
    content = path.read_bytes()
    (length,) = struct.unpack("<I", content[-8:-4])
    footer = _read(iter(content[-8 - length : -8]), STRUCT)
    if creator is not None:
        footer[6] = (BINARY, creator)
        del footer[7]
    for number, group in enumerate(footer[4][1][1]):
        for index, column in enumerate(group[1][1][1]):
            edit(number, index, column[3][1][12][1])
    encoded = _write(STRUCT, footer)
    path.write_bytes(content[: -8 - length] + encoded + struct.pack("<I", len(encoded)) + b"PAR1")


def _read(data: Iterator[int], kind: int) -> Any:
    if kind in BOOLEANS:
        return None
    if kind == BYTE:
        return next(data)
    if kind in INTEGERS:
        return _read_integer(data)
    if kind == EIGHT_BYTES:
        return bytes(next(data) for _ in range(8))
    if kind == BINARY:
        return bytes(next(data) for _ in range(_read_integer(data)))
    if kind == LIST:
        head = next(data)
        count = head >> 4 if head >> 4 < 15 else _read_integer(data)
        return head & 15, [_read(data, head & 15) for _ in range(count)]
    fields: dict[int, Any] = {}
    number = 0
    while head := next(data):
        number += head >> 4
        fields[number] = (head & 15, _read(data, head & 15))
    return fields


def _read_integer(data: Iterator[int]) -> int:
    value = shift = 0
    while True:
        byte = next(data)
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value


def _write(kind: int, value: Any) -> bytes:
    if kind in BOOLEANS:
        return b""
    if kind == BYTE:
        return bytes([value])
    if kind in INTEGERS:
        return _write_integer(value)
    if kind == EIGHT_BYTES:
        return bytes(value)
    if kind == BINARY:
        return _write_integer(len(value)) + bytes(value)
    if kind == LIST:
        of, items = value
        head = bytes([len(items) << 4 | of]) if len(items) < 15 else bytes([0xF0 | of]) + _write_integer(len(items))
        return head + b"".join(_write(of, item) for item in items)
    written, last = b"", 0
    for number, (of, item) in sorted(value.items()):
        written += bytes([(number - last) << 4 | of]) + _write(of, item)
        last = number
    return written + b"\0"


def _write_integer(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes([*written, value])
