"""Whatever two schemas are merged, every value of both sides survives being written and read."""

import uuid
from datetime import datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakelog import Lake, SchemaMismatchError
from lakelog.schema.spark_text import spark_text
from tests.parquet import read, write
from tests.schemas import schemas, values

OPTIONS = {"schema_merge": True, "promote_to_string": True}


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    schema = draw(schemas())
    row = st.fixed_dictionaries({field.name: values(field.type, field.nullable) for field in schema})
    return pa.Table.from_pylist(draw(st.lists(row, max_size=3)), schema)


@given(tables(), tables(), st.booleans())
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_value_of_both_sides_survives(lake: Lake, first: pa.Table, second: pa.Table, mirror: bool) -> None:
    dataset = lake.create_dataset(uuid.uuid4().hex, first.schema, mirror=mirror)
    write(lake, dataset, first)
    try:
        write(lake, dataset, second, **OPTIONS)
    except SchemaMismatchError:
        # Nothing holds both: the table is as it was.
        assert dataset.version == 1
        assert _rows(read(dataset.snapshot(), dataset.location)) == _rows(first)
        return
    schema = dataset.schema()
    found = read(dataset.snapshot(), dataset.location)
    assert found.schema.equals(schema)
    found.validate(full=True)
    expected = [_expected(row, list(side.schema), list(schema)) for side in (first, second) for row in _rows(side)]
    assert sorted(_rows(found), key=str) == sorted(expected, key=str)
    assert _rows(read(dataset.snapshot(version=1), dataset.location)) == _rows(first), "as it was, too"


def _rows(table: pa.Table) -> list[dict[str, Any]]:
    return table.to_pylist()


def _expected(row: dict[str, Any], source: list[pa.Field], target: list[pa.Field]) -> dict[str, Any]:
    by_name = {field.name.lower(): field for field in source}
    result = {}
    for field in target:
        other = by_name.get(field.name.lower())
        result[field.name] = None if other is None else _value(row[other.name], other.type, field.type)
    return result


def _value(value: Any, source: pa.DataType, target: pa.DataType) -> Any:
    """A value as a column of another type shows it, without a line of the code under test but the text of Spark."""
    if value is None or source == target:
        if value is not None and pa.types.is_struct(target):
            return _expected(value, list(source), list(target))
        return value
    if pa.types.is_struct(target):
        return _expected(value, list(source), list(target))
    if pa.types.is_list(target):
        return [_value(each, source.value_type, target.value_type) for each in value]
    if pa.types.is_map(target):
        return [
            (_value(key, source.key_type, target.key_type), _value(item, source.item_type, target.item_type))
            for key, item in value
        ]
    if pa.types.is_string(target):
        return spark_text(pa.array([value], source))[0].as_py()
    if pa.types.is_decimal(target):
        return Decimal(value)
    if pa.types.is_floating(target):
        return float(value)
    if pa.types.is_timestamp(target):
        return datetime.combine(value, time())
    return value
