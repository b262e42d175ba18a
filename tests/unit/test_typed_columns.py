"""Statistics and partition values with the types of their columns, out of the log's texts."""

import json
import math
from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from lakelog.actions import Metadata
from lakelog.log.state import TableMetadata
from lakelog.mirror import typed_columns
from lakelog.mirror.typed_columns import TypedStatistics, typed_partitions
from lakelog.schema import to_delta_json

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("byte", pa.int8()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("decimal", pa.decimal128(10, 2)),
        ("flag", pa.bool_()),
        ("data", pa.binary()),
        ("text", pa.string()),
        ("day", pa.date32()),
        ("instant", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("inside", pa.struct([("x", pa.int32()), ("deep", pa.struct([("y", pa.string())]))])),
        ("list", pa.list_(pa.int64())),
        ("part", pa.date32()),
    ]
)
NOON = 1_704_110_400_000_000
"""Microseconds of 2024-01-01 12:00 UTC."""


class TestStatistics:
    def test_every_type_has_its_values(self) -> None:
        low = {
            "id": -(2**63),
            "byte": -128,
            "float": 0.1,
            "double": -1e300,
            "decimal": Decimal("-99999999.99"),
            "text": "日本語😀",
            "day": date(1, 1, 1),
            "instant": NOON + 123_456,
            "local": NOON + 123_000,
            "inside": {"x": 5, "deep": {"y": ""}},
        }
        stats = """{"numRecords":3,"minValues":{"id":-9223372036854775808,"byte":-128,"float":0.1,"double":-1e300,
            "decimal":-99999999.99,"flag":true,"data":"x","text":"日本語😀","day":"0001-01-01",
            "instant":"2024-01-01T13:00:00.123456+01:00","local":"2024-01-01T12:00:00.123",
            "inside":{"x":5,"deep":{"y":""}},"part":"2024-01-01"},
            "nullCount":{"id":0,"flag":1,"data":2,"inside":{"x":3},"list":1,"part":0}}"""
        for text in (stats.replace("\n", ""), stats):
            [found] = typed_stats([text])
            assert found["numRecords"] == 3
            assert approximately(found["minValues"]) == approximately(low)
            assert found["maxValues"] is None
            counted = {name: count for name, count in found["nullCount"].items() if count is not None}
            assert counted == {"id": 0, "flag": 1, "data": 2, "inside": {"x": 3, "deep": None}}

    @pytest.mark.parametrize(
        ("column", "bound"),
        [
            ("id", '"a"'),
            ("id", "9223372036854775808"),
            ("id", "1.5"),
            ("id", "true"),
            ("id", '{"x":1}'),
            ("id", "[1]"),
            ("byte", "128"),
            ("byte", "-129"),
            ("float", "1e39"),
            ("float", '"a"'),
            ("float", '"NaN"'),
            ("double", '"NaN"'),
            ("double", "NaN"),
            ("double", "1e999"),
            ("double", "true"),
            ("double", "{}"),
            ("decimal", "1.555"),
            ("decimal", "100000000"),
            ("decimal", "1e400"),
            ("decimal", '"a"'),
            ("text", "5"),
            ("text", "true"),
            ("text", '"\\ud800"'),
            ("day", '"10000-01-01"'),
            ("day", '"2024-02-30"'),
            ("day", '"2024-1-1"'),
            ("day", "5"),
            ("instant", '"tomorrow"'),
            ("instant", "5"),
            ("local", '"2024-01-01T12:00:00+01:00"'),
            ("inside", '{"x":"a"}'),
            ("inside", "5"),
        ],
    )
    def test_a_bound_that_is_no_value_of_its_type_is_null_and_nothing_else(self, column: str, bound: str) -> None:
        strange = f'{{"numRecords":7,"minValues":{{"{column}":{bound}}},"maxValues":{{"{column}":{bound},"id":5}}}}'
        if column == "id":
            strange = strange.replace(',"id":5', "")
        usual = '{"numRecords":8,"minValues":{"id":1},"maxValues":{"id":2}}'
        texts = [usual] * 100 + [strange] + [usual] * 100
        found = typed_stats(texts)
        assert [row["numRecords"] for row in found] == [8] * 100 + [7] + [8] * 100
        assert found[0]["minValues"]["id"] == 1
        for part in ("minValues", "maxValues"):
            value = found[100][part][column]
            assert value is None or set(flat(value)) == {None}
        assert column == "id" or found[100]["maxValues"]["id"] == 5

    @pytest.mark.parametrize(
        ("column", "bound", "value"),
        [
            ("id", "1.0", 1),
            ("id", "1e3", 1000),
            ("double", '"Infinity"', math.inf),
            ("float", '"-Infinity"', -math.inf),
            ("double", "5", 5.0),
            ("decimal", "1.500", Decimal("1.50")),
            ("decimal", "99999999.99", Decimal("99999999.99")),
            ("decimal", "1e2", Decimal("100.00")),
            ("text", '"NaN"', "NaN"),
            ("text", '"Infinity & Söhne\\n"', "Infinity & Söhne\n"),
            ("text", '"\\u0000"', "\0"),
            ("instant", '"2024-01-01T12:00:00.123Z"', NOON + 123_000),
            ("instant", '"2024-01-01 12:00:00"', NOON),
            ("local", '"2024-01-01"', NOON - 12 * 3_600_000_000),
            ("local", '"2024-01-01T12:00:00Z"', NOON),
        ],
    )
    def test_an_unusual_bound_is_understood(self, column: str, bound: str, value: Any) -> None:
        [found] = typed_stats([f'{{"numRecords":7,"maxValues":{{"{column}":{bound}}}}}'])
        assert found["maxValues"][column] == value

    def test_a_time_between_two_microseconds_is_rounded_outward(self) -> None:
        bounds = '{"instant":"2024-01-01T12:00:00.0000014Z"}'
        [found] = typed_stats([f'{{"minValues":{bounds},"maxValues":{bounds}}}'])
        assert found["minValues"]["instant"] == NOON + 1
        assert found["maxValues"]["instant"] == NOON + 2

    @pytest.mark.parametrize("text", ["", "5", "[]", "null", '{"numRecords":', "{}{}", "{}\n{}", "{" * 5000])
    def test_what_is_no_json_object_is_null_and_harms_no_other(self, text: str) -> None:
        found = typed_stats(['{"numRecords":1}', text, '{"numRecords":2}'])
        assert [row and row["numRecords"] for row in found] == [1, None, 2]

    def test_statistics_are_the_same_read_together_and_one_by_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        texts = [
            json.dumps(
                {
                    "numRecords": number,
                    "minValues": {"id": number, "double": number / 7, "text": f"é{number}", "day": "2024-02-29"},
                    "maxValues": {"decimal": number / 100, "instant": f"2024-01-01T12:00:00.{number:06}Z"},
                    "nullCount": {"id": number, "inside": {"x": 1}},
                }
            )
            for number in range(300)
        ]
        together = typed_stats(texts)
        monkeypatch.setattr(typed_columns, "_UNUSUAL", "numRecords")
        assert typed_stats(texts) == together

    def test_only_the_first_columns_have_statistics(self) -> None:
        found = typed_stats(
            ['{"numRecords":1,"minValues":{"id":1,"byte":2}}'],
            metadata(configuration={"delta.dataSkippingNumIndexedCols": "1"}),
        )
        assert found[0]["minValues"] == {"id": 1}
        assert set(found[0]["nullCount"] or {}) <= {"id"}


class TestPartitions:
    @pytest.mark.parametrize(
        ("kind", "text", "value"),
        [
            (pa.string(), "a", "a"),
            (pa.string(), "", None),
            (pa.string(), None, None),
            (pa.int8(), "-128", -128),
            (pa.int64(), "9223372036854775807", 2**63 - 1),
            (pa.int32(), "", None),
            (pa.float32(), "1.5", 1.5),
            (pa.float64(), "1.0E10", 1e10),
            (pa.float64(), "-Infinity", -math.inf),
            (pa.decimal128(20, 5), "-123456789012345.12345", Decimal("-123456789012345.12345")),
            (pa.decimal128(20, 5), "1", Decimal("1.00000")),
            (pa.bool_(), "true", True),
            (pa.bool_(), "FALSE", False),
            (pa.binary(), "abc", b"abc"),
            (pa.date32(), "2024-02-29", date(2024, 2, 29)),
            (pa.timestamp("us", "UTC"), "2024-01-01 12:00:00", NOON),
            (pa.timestamp("us", "UTC"), "2024-01-01 12:00:00.5", NOON + 500_000),
            (pa.timestamp("us", "UTC"), "2024-01-01T12:00:00.000001Z", NOON + 1),
            (pa.timestamp("us", "UTC"), "2024-01-01T13:00:00+01:00", NOON),
            (pa.timestamp("us"), "2024-01-01 12:00:00.123456", NOON + 123_456),
        ],
    )
    def test_each_type_has_its_values(self, kind: pa.DataType, text: str | None, value: Any) -> None:
        assert typed_partition(kind, text) == {"part": value}

    @pytest.mark.parametrize(
        ("kind", "text"),
        [
            (pa.int32(), "a"),
            (pa.int8(), "128"),
            (pa.int32(), "1_0"),
            (pa.float32(), "1e39"),
            (pa.decimal128(5, 2), "1.005"),
            (pa.decimal128(5, 2), "1000"),
            (pa.bool_(), "yes"),
            (pa.date32(), "2024-1-1"),
            (pa.date32(), "20240101"),
            (pa.timestamp("us", "UTC"), "noon"),
            (pa.timestamp("us", "UTC"), "2024-01-01 12:00:00.1234567"),
            (pa.timestamp("us"), "2024-01-01T12:00:00+01:00"),
        ],
    )
    def test_a_text_that_is_no_value_leaves_typed_values_out(self, kind: pa.DataType, text: str) -> None:
        assert typed_partition(kind, text) is None

    def test_nan_is_a_value(self) -> None:
        assert math.isnan((typed_partition(pa.float64(), "NaN") or {})["part"])


def metadata(schema: pa.Schema = SCHEMA, configuration: Mapping[str, str] | None = None) -> TableMetadata:
    action = Metadata(
        id="an id",
        schema_string=to_delta_json(schema),
        partition_columns=("part",),
        configuration=configuration or {},
    )
    return TableMetadata(0, action, 0)


def typed_stats(texts: Sequence[str | None], table: TableMetadata | None = None) -> list[Any]:
    """As Python's values, with times in microseconds."""
    typed = TypedStatistics(table or metadata(), tight_bounds=False).read(pa.array(texts, pa.string()))
    typed.validate(full=True)
    return [plain(value) for value in typed]


def typed_partition(kind: pa.DataType, text: str | None) -> Any:
    found = typed_partitions(metadata(pa.schema([("id", pa.int64()), ("part", kind)])), [{"part": text}])
    return None if found is None else plain(found[0])


def plain(value: Any) -> Any:
    if isinstance(value, pa.StructScalar):
        return {name: plain(value[name]) for name in value} if value.is_valid else None
    return value.value if isinstance(value, pa.TimestampScalar) else value.as_py()


def flat(value: Any) -> list[Any]:
    return [leaf for part in value.values() for leaf in flat(part)] if isinstance(value, Mapping) else [value]


def approximately(values: Any) -> Any:
    return {**values, "float": pytest.approx(values["float"])} if isinstance(values["float"], float) else values
