"""No value of any file is outside of the bounds that its footer gives."""

import math
import uuid
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakelog.log.pruning.bounds import Bounds, Kind, bounds_of, kind_of
from lakelog.log.pruning.bulk_bounds import UnusualStatistics, read_statistics
from lakelog.log.validation.stats import checked_stats
from lakelog.parquet.footers import Harvest
from lakelog.schema import Leaf, leaf_columns
from tests.fixtures.footers import AS_THE_WRITER_DOES, arrow_file, harvested

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
