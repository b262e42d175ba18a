"""Which statistics other readers get: both bounds of all columns, or no bounds."""

import json

import pyarrow as pa
import pytest

from lakelog.actions import Metadata
from lakelog.log.state import TableMetadata
from lakelog.mirror.shared_stats import SharedStatistics
from lakelog.schema import to_delta_json

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("nested", pa.struct([("id", pa.int64()), ("x", pa.float64())])),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
    ]
)
ALL = {"id": (1, 2), "x": (0.5, 1e300), "s": ("a", "b")}


def shared(
    text: str,
    schema: pa.Schema = SCHEMA,
    schema_version: int = 3,
    configuration: dict[str, str] | None = None,
    schemas: dict[int, pa.Schema] | None = None,
) -> str:
    action = Metadata(
        id="m", schema_string=to_delta_json(schema), partition_columns=("day",), configuration=configuration or {}
    )
    return SharedStatistics(TableMetadata(7, action, 3), schemas or {3: schema}).of(text, schema_version)


def stats(bounds: dict[str, tuple[object, object]], nulls: dict[str, int] | None = None) -> str:
    """As Lakelog writes them."""
    found = {
        "numRecords": 4,
        "minValues": {name: low for name, (low, _) in bounds.items() if low is not None},
        "maxValues": {name: high for name, (_, high) in bounds.items() if high is not None},
        "nullCount": dict.fromkeys(bounds, 0) if nulls is None else nulls,
    }
    return json.dumps(found, separators=(",", ":"))


@pytest.mark.parametrize(
    "text",
    [
        stats(ALL),
        stats({**ALL, "flag": (False, True)}),
        stats({**ALL, "x": ("-Infinity", "Infinity")}),
        stats({**ALL, "s": ("NaN", "null")}),
        stats({**ALL, "s": ('"x":', "\\{}")}),
        stats({**ALL, "nested": ({"x": 1.5}, {})}),
        stats({**ALL, "x": (None, None)}, {"id": 0, "x": 4, "s": 0}),
        '{"numRecords":4,"nullCount":{"x":0}}',
        '{"numRecords":4,"minValues":{},"maxValues":{},"nullCount":{"x":0}}',
        "[" * 100_000,
        "",
        "[1]",
    ],
    ids=lambda text: text[:60],
)
def test_statistics_with_all_bounds_or_none_are_repeated_byte_for_byte(text: str) -> None:
    assert shared(text) == text


@pytest.mark.parametrize(
    "bounds",
    [
        {**ALL, "x": (0.5, None)},
        {**ALL, "x": (None, 0.5)},
        {**ALL, "x": (None, None)},
        {**ALL, "x": (0.5, "NaN")},
        {**ALL, "s": ("a", None)},
        {**ALL, "flag": (None, True)},
        {**ALL, "s": ('"x":1', None)},
        {"id": (1, 2), "s": ("a", "b"), "nested": ({"x": 1.5}, {"x": 2.5})},
        {"id": (1, 2), "s": ("a", "b")},
    ],
    ids=str,
)
def test_a_missing_bound_leaves_none_and_keeps_the_counts(bounds: dict[str, tuple[object, object]]) -> None:
    text = stats(bounds)
    whole = json.loads(text)
    assert json.loads(shared(text)) == {"numRecords": 4, "nullCount": whole["nullCount"]}


def test_a_bound_that_is_null_is_missing() -> None:
    text = stats(ALL).replace('"x":0.5', '"x":null')
    assert "minValues" not in shared(text)


def test_a_file_that_is_older_than_a_column_keeps_its_bounds() -> None:
    text = stats({"id": (1, 2), "x": (0.5, 1.5)})
    schemas = {1: SCHEMA, 2: SCHEMA.remove(2), 3: SCHEMA}
    assert shared(text, schema_version=2, schemas=schemas) == text
    # Files of other schemas had the column, or nobody knows.
    for version in (0, 1, 3):
        assert "minValues" not in shared(text, schema_version=version, schemas=schemas)
    assert "minValues" not in shared(stats({**ALL, "s": ("a", None)}), schema_version=2, schemas=schemas)


def test_a_column_whose_name_is_too_long_for_the_catalog_needs_its_bounds_too() -> None:
    long = "x" * 1600
    schema = pa.schema([("id", pa.int64()), (long, pa.int64()), ("day", pa.date32())])
    whole = stats({"id": (1, 2), long: (3, 4)})
    assert shared(whole, schema) == whole
    assert "minValues" not in shared(stats({"id": (1, 2), long: (3, None)}), schema)


def test_only_the_columns_that_a_property_names_need_bounds() -> None:
    schema = pa.schema([("id", pa.int64()), ("other", pa.int64()), ("day", pa.date32())])
    text = stats({"id": (1, 2)})
    assert "minValues" not in shared(text, schema)
    assert shared(text, schema, configuration={"delta.dataSkippingStatsColumns": "ID, day"}) == text
    assert "minValues" not in shared(text, schema, configuration={"delta.dataSkippingStatsColumns": "id, `other`"})
    assert "minValues" not in shared(text, schema, configuration={"delta.dataSkippingStatsColumns": "`"})
