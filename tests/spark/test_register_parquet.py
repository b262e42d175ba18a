"""Spark reads registered files as the rows that their writers meant."""

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakelog import Dataset, Lake, read_dataset
from tests.contract.registering import put, rows_of
from tests.fixtures.door import Door

pytestmark = pytest.mark.parametrize("backend", ["sqlite"])

MOMENT = datetime(2026, 1, 31, 12, 30, 15, 250000, tzinfo=UTC)
LOCAL = MOMENT.replace(tzinfo=None)
FOREIGN: list[tuple[pa.DataType, Any]] = [
    (pa.int8(), -128),
    (pa.uint8(), 255),
    (pa.uint16(), 65535),
    (pa.uint32(), 2**32 - 1),
    (pa.uint64(), 2**64 - 1),
    (pa.float32(), 1.5),
    (pa.large_string(), "é"),
    (pa.dictionary(pa.int8(), pa.string()), "x"),
    (pa.binary(2), b"ab"),
    (pa.date64(), date(2026, 1, 31)),
    (pa.timestamp("s"), LOCAL.replace(microsecond=0)),
    (pa.timestamp("ms"), LOCAL),
    (pa.timestamp("ms", "Europe/Zurich"), MOMENT),
    (pa.timestamp("us"), LOCAL),
    (pa.decimal128(5, 2), Decimal("-999.99")),
    (pa.decimal256(38, 2), Decimal("1.25")),
    (pa.large_list(pa.uint32()), [2**32 - 1, None]),
    (pa.list_(pa.int16(), 2), [1, 2]),
    (pa.map_(pa.string(), pa.uint8()), [("a", 255)]),
    (pa.struct([("a", pa.uint64()), ("b", pa.list_(pa.timestamp("ms")))]), {"a": 2**64 - 1, "b": [LOCAL]}),
]


def spark_rows(spark: SparkSession, lake: Lake, **options: Any) -> list[dict[str, Any]]:
    return plain(read_dataset(lake, "events", spark=spark, **options).toArrow())


def plain(table: pa.Table) -> list[dict[str, Any]]:
    return sorted(table.to_pylist(), key=str)


def expected(dataset: Dataset) -> list[dict[str, Any]]:
    return sorted(rows_of(dataset), key=str)


@pytest.mark.parametrize("dictionary", [True, False])
def test_every_type_that_is_taken_is_read(spark: SparkSession, lake: Lake, tmp_path: Path, dictionary: bool) -> None:
    columns = {f"c{number}": pa.array([value, None], kind) for number, (kind, value) in enumerate(FOREIGN)}
    put(tmp_path / "data" / "a.parquet", columns, use_dictionary=dictionary)
    dataset = lake.register_parquet(tmp_path / "data", "events")
    (row, nulls) = read_dataset(lake, "events", spark=spark).toArrow().to_pylist()
    assert row == {f"c{number}": value for number, (_, value) in enumerate(FOREIGN)}
    assert set(nulls.values()) == {None}
    assert spark_rows(spark, lake) == expected(dataset)


def test_narrower_and_fewer_columns_are_read_as_the_table_has_them(
    spark: SparkSession, lake: Lake, door: Door, tmp_path: Path
) -> None:
    narrow = {
        "n": pa.array([1, None], pa.int32()),
        "small": pa.array([255, 0], pa.uint8()),
        "share": pa.array([0.5, None], pa.float32()),
        "at": pa.array([date(2026, 1, 31), None]),
        "price": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
        "place": pa.array(
            [{"x": 1, "tags": [1]}, None], pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.int16()))])
        ),
    }
    wide = {
        "extra": ["x", None],
        "n": pa.array([2**40, None], pa.int64()),
        "small": pa.array([2**40, None], pa.int64()),
        "share": pa.array([0.1, None], pa.float64()),
        "at": pa.array([LOCAL, None], pa.timestamp("us")),
        "price": pa.array([Decimal("1234.5678"), None], pa.decimal128(12, 4)),
        "place": pa.array(
            [{"x": 2**40, "y": "y", "tags": [2**20]}, None],
            pa.struct([("x", pa.int64()), ("y", pa.string()), ("tags", pa.list_(pa.int32()))]),
        ),
    }
    for number in range(40):
        put(tmp_path / "data" / f"{number:02}.parquet", wide if number % 3 == 1 else narrow)
    dataset = lake.register_parquet(tmp_path / "data", "events")
    assert spark_rows(spark, lake) == expected(dataset)
    assert plain(door.read().toArrow()) == expected(dataset)
    wanted = [row for row in expected(dataset) if row["n"] is not None and row["n"] > 1]
    assert spark_rows(spark, lake, where="n > 1") == wanted
    assert spark_rows(spark, lake, where="at >= '2026-01-31' AND place.x > 1 AND price > 2") == wanted


def test_files_of_pandas_and_of_spark_are_read(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"id": [1, 2], "name": ["x", None], "at": pd.to_datetime([LOCAL, None]), "kind": pd.Categorical(["a", "b"])},
        index=[7, 8],
    )
    (tmp_path / "data").mkdir()
    frame.to_parquet(tmp_path / "data" / "pandas.parquet", coerce_timestamps="us")
    query = (
        "SELECT 3 AS id, 'z' AS name, TIMESTAMP_NTZ'2026-01-31 12:30:15' AS at, 'c' AS kind, 9L AS __index_level_0__"
    )
    spark.sql(query).write.parquet(f"file://{tmp_path}/data/spark.parquet")
    dataset = lake.register_parquet(tmp_path / "data" / "*.parquet", "events")
    assert spark_rows(spark, lake) == expected(dataset)
    assert [row["id"] for row in spark_rows(spark, lake)] == [1, 2, 3]


def test_int96_and_instants_are_one_column(spark: SparkSession, lake: Lake, tmp_path: Path) -> None:
    put(
        tmp_path / "data" / "a.parquet",
        {"at": pa.array([LOCAL], pa.timestamp("ns"))},
        use_deprecated_int96_timestamps=True,
    )
    put(tmp_path / "data" / "b.parquet", {"at": pa.array([MOMENT])})
    lake.register_parquet(tmp_path / "data", "events")
    assert [row["at"].astimezone(UTC) for row in spark_rows(spark, lake)] == [MOMENT, MOMENT]


@pytest.mark.parametrize("count", [3, 40])
def test_partitions_are_what_directories_say(spark: SparkSession, lake: Lake, tmp_path: Path, count: int) -> None:
    names = ["a b", "a%2Fb%3D%25", "%C3%A9", "é", "__HIVE_DEFAULT_PARTITION__", "x{1}[2]*"]
    for number in range(count):
        day = f"2026-01-{number % 28 + 1:02}" if number else "__HIVE_DEFAULT_PARTITION__"
        directory = tmp_path / "data" / f"day={day}" / f"kind={names[number % len(names)]}"
        put(directory / f"{number}.parquet", {"id": [number, None]})
    dataset = lake.register_parquet(tmp_path / "data", "events", ["day", "kind"])
    assert spark_rows(spark, lake) == expected(dataset)
    kept = [row for row in expected(dataset) if row["day"] == date(2026, 1, 2)]
    assert kept
    assert spark_rows(spark, lake, where="day = '2026-01-02'") == kept


def test_column_mapping_reads_files_by_the_names_that_they_have(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    put(tmp_path / "data" / "a b=1" / "a.parquet", {"x y": [1], "s": [{"n (1)": 2}]})
    mapped = {"delta.columnMapping.mode": "name"}
    dataset = lake.register_parquet(tmp_path / "data", "events", ["a b"], properties=mapped)
    assert spark_rows(spark, lake) == [{"x y": 1, "s": {"n (1)": 2}, "a b": 1}]
    dataset.rename_column("x y", "z")
    assert spark_rows(spark, lake) == [{"z": 1, "s": {"n (1)": 2}, "a b": 1}]
