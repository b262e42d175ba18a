"""Spark makes of a projection what Arrow makes of it, also where values become text."""

import math
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog.errors import LakelogError
from lakelog.schema.evolution.convert import apply
from lakelog.schema.evolution.projection import Parts, project
from lakelog.schema.spark import to_spark
from lakelog.schema.spark_text import has_text
from lakelog.spark.expressions import columns
from tests.schemas import types, values

ONE_BY_ONE = settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))


def by_spark(spark: SparkSession, rows: pa.Table, parts: Parts) -> list[dict[str, Any]]:
    frame = spark.createDataFrame(rows, to_spark(rows.schema))
    found = frame.select(*columns(parts, [F.col(f"`{name}`") for name in frame.columns]))
    return found.toArrow().to_pylist()  # type: ignore[no-any-return]


def tables(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.Table]:
    def of(found: list[pa.DataType]) -> st.SearchStrategy[pa.Table]:
        schema = pa.schema([(f"c{n}", kind) for n, kind in enumerate(found)])
        row = st.fixed_dictionaries({field.name: values(field.type) for field in schema})
        return st.lists(row, min_size=1, max_size=4).map(lambda rows: pa.Table.from_pylist(rows, schema))

    return st.lists(kinds, min_size=4, max_size=10).flatmap(of)


def is_told_alike(value: Any) -> bool:
    """Java wrote some floats with more digits than needed until version 18, and this Spark may run on an older one."""
    if isinstance(value, float):
        return not math.isfinite(value) or value == 0 or (1e-3 <= abs(value) < 1e7 and float(f"{value:.6g}") == value)
    if isinstance(value, dict):
        return all(map(is_told_alike, value.values()))
    if isinstance(value, list | tuple):
        return all(map(is_told_alike, value))
    return True


@ONE_BY_ONE
@given(table=tables(types().filter(has_text)))
def test_text_is_what_spark_makes_of_a_value(spark: SparkSession, table: pa.Table) -> None:
    rows = [row for row in table.to_pylist() if is_told_alike(row)]
    table = pa.Table.from_pylist(rows, table.schema)
    target = [pa.field(name, pa.string()) for name in table.column_names]
    parts = project(list(table.schema), target)
    try:
        expected = apply(parts, table).to_pylist()
    except LakelogError:
        return  # a value without a text, which a write refuses
    assert by_spark(spark, table, parts) == expected


@st.composite
def rearranged(draw: st.DrawFn, kind: pa.DataType) -> pa.DataType:
    """Another struct wherever there is one: fields gone, new, and in another order."""
    if pa.types.is_struct(kind):
        kept = draw(st.permutations([each for each in kind if draw(st.booleans())]))
        fields = [pa.field(each.name, draw(rearranged(each.type))) for each in kept]
        return pa.struct([*fields, pa.field("a new one", draw(types(0)))])
    if pa.types.is_list(kind):
        return pa.list_(draw(rearranged(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, draw(rearranged(kind.item_type)))
    return kind


@ONE_BY_ONE
@given(table=tables(types()), data=st.data())
def test_columns_and_fields_come_and_go_alike(spark: SparkSession, table: pa.Table, data: st.DataObject) -> None:
    target = [pa.field(field.name, data.draw(rearranged(field.type))) for field in reversed(table.schema)]
    parts = project(list(table.schema), [*target, pa.field("a new one", pa.int32())])
    assert str(by_spark(spark, table, parts)) == str(apply(parts, table).to_pylist())
