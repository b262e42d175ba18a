"""Tables that people change, and DuckDB as the one who says what the rows are then."""

from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakelog import Dataset, Lake, read_dataset, write_dataset

NAME = "events"
BY_VECTORS = {"delta.enableDeletionVectors": "true"}
"""The properties of a table whose rows are deleted by vectors instead of writing files again."""
SCHEMA = pa.schema(
    [("id", pa.int64()), ("k", pa.int32()), ("s", pa.string()), ("place", pa.struct([("x", pa.int32())]))]
)


def table_of(rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    return pa.table([pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], SCHEMA)


def numbered(start: int, stop: int) -> list[tuple[Any, ...]]:
    """Rows that differ in every column: of ids from ``start`` on, ten to a ``k``."""
    return [(number, number // 10, f"s{number}", {"x": number % 7}) for number in range(start, stop)]


def make(lake: Lake, spark: SparkSession, *files: list[tuple[Any, ...]], **options: Any) -> Dataset:
    """A table with one file for each list of rows."""
    for rows in files:
        write_dataset(lake, NAME, spark.createDataFrame(table_of(rows)).coalesce(1), **options)
        options.pop("properties", None)
    return lake.dataset(NAME)


def rows_of(lake: Lake, name: str = NAME, **options: Any) -> list[tuple[Any, ...]]:
    frame = read_dataset(lake, name, **options)
    return sorted((plain(tuple(row)) for row in frame.collect()), key=repr)


def plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        tuple(value.values() if isinstance(value, dict) else value) if _nested(value) else value for value in row
    )


def _nested(value: Any) -> bool:
    return isinstance(value, dict | tuple)


def told_by_duckdb(statement: str, table: pa.Table, source: pa.Table | None = None) -> list[tuple[Any, ...]]:
    """The rows of ``t`` after a statement, which may use ``src``."""
    with duckdb.connect() as database:
        database.register("given", table)
        database.execute("CREATE TABLE t AS SELECT * FROM given")
        if source is not None:
            database.register("src", source)
        database.execute(statement)
        found = database.execute("SELECT * FROM t").fetchall()
    return sorted((plain(row) for row in found), key=repr)


ids = st.none() | st.integers(0, 12)
words = st.none() | st.sampled_from(["", "a", "ab", "b", "ü", "_%"])
rows = st.tuples(
    ids, st.none() | st.integers(0, 2), words, st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(0, 3)})
)
tables = st.lists(st.lists(rows, max_size=8), min_size=1, max_size=3)


def comparisons(prefix: str = "") -> st.SearchStrategy[str]:
    """Conditions in words that Spark and DuckDB share."""
    number = st.integers(-1, 13).map(str)
    return st.one_of(
        st.builds(lambda op, n: f"{prefix}id {op} {n}", st.sampled_from(["=", "<", ">=", "<>"]), number),
        st.builds(lambda op, n: f"{prefix}place.x {op} {n}", st.sampled_from(["=", ">"]), st.sampled_from("0123")),
        st.sampled_from(
            [f"{prefix}k = 1", f"{prefix}k IN (0, 2)", f"{prefix}k IS NULL", f"{prefix}id + {prefix}k > 6"]
        ),
        st.sampled_from(
            [f"{prefix}s = 'a'", f"{prefix}s IS NOT NULL", f"{prefix}s LIKE 'a%'", f"{prefix}place IS NULL"]
        ),
    )


def conditions(prefix: str = "") -> st.SearchStrategy[str]:
    return st.recursive(
        comparisons(prefix),
        lambda inner: st.one_of(
            st.builds(lambda one: f"NOT ({one})", inner),
            st.builds(lambda one, op, other: f"({one}) {op} ({other})", inner, st.sampled_from(["AND", "OR"]), inner),
        ),
        max_leaves=3,
    )
