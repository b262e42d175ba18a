"""Partition values as values: when two texts mean the same."""

import json

import pyarrow as pa
import pytest

from lakelog.actions import Metadata
from lakelog.changes.partition_values import files_in
from lakelog.log.state import TableMetadata
from lakelog.schema import to_delta_json

INSTANT = pa.timestamp("us", "UTC")


def same(kind: pa.DataType, one: str | None, other: str | None) -> tuple[bool, bool]:
    """Whether a file of one value is in the partition of another one: for sure, and perhaps."""
    schema = pa.schema([("p", kind)])
    action = Metadata(id="m", schema_string=to_delta_json(schema), partition_columns=("p",))
    files = pa.table({"partition_values": [json.dumps({"p": one})]})
    metadata = TableMetadata(0, action, 0)
    found = [files_in(files, [{"p": other}], metadata, unsure=unsure).num_rows for unsure in (False, True)]
    return bool(found[0]), bool(found[1])


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.int64(), "7", "+007"),
        (pa.int64(), "-9223372036854775808", "-9.223372036854775808E18"),
        (pa.decimal128(38, 2), "1" * 36 + ".50", "1" * 36 + ".5"),
        (pa.decimal128(5, 2), "-.5", "-0.50"),
        (pa.float64(), "-0.0", "0"),
        (pa.float64(), "1.0E10", "1e10"),
        (pa.float64(), "NaN", "NaN"),
        (pa.float32(), "0.1", "0.10000000149011612"),
        (pa.float32(), "1.00000005960464477539062500001", "1.00000011920929"),
        (pa.bool_(), "TRUE", "true"),
        (pa.date32(), "+12026-01-31", "12026-1-31"),
        (INSTANT, "1600-01-01 00:30:00.5", "1599-12-31T23:00:00.500000-01:30"),
        (INSTANT, "2026-01-31", "2026-01-31T00:00:00Z"),
        (pa.timestamp("us"), "-0044-03-15 12:00:00", "-0044-03-15T12:00"),
        (pa.binary(), "\x00\x7f", "\x00\x7f"),
        (pa.int32(), "not a number", "not a number"),
        (pa.string(), None, ""),
    ],
)
def test_texts_of_one_value_are_one_partition(kind: pa.DataType, one: str | None, other: str | None) -> None:
    assert same(kind, one, other) == (True, True)
    assert same(kind, other, one) == (True, True)


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.int64(), "9223372036854775807", "9223372036854775806"),
        (pa.decimal128(38, 0), "9" * 38, "9" * 37 + "8"),
        (pa.float64(), "9007199254740992", "9007199254740994"),
        (pa.float64(), "Infinity", "1.7976931348623157E308"),
        (pa.float32(), "1.0000001", "1.0"),
        (pa.date32(), "+10000-01-01", "9999-12-31"),
        (pa.date32(), "1900-02-28", "1900-03-01"),
        (pa.date32(), "-0001-12-31", "0000-01-01"),
        (INSTANT, "2300-01-01T00:00:00.000001Z", "2300-01-01T00:00:00.000002Z"),
        (INSTANT, "9999-12-31T23:59:59.999998Z", "9999-12-31T23:59:59.999999Z"),
        (INSTANT, "0001-01-01T00:00:00.000001Z", "0001-01-01T00:00:00.000002Z"),
        (pa.timestamp("us"), "9999-12-31 23:59:59.999998", "9999-12-31 23:59:59.999999"),
        (pa.string(), "NULL", None),
        (pa.string(), "1.0", "1"),
        (pa.binary(), "A", "a"),
    ],
)
def test_different_values_are_different_partitions(kind: pa.DataType, one: str | None, other: str | None) -> None:
    assert same(kind, one, other) == (False, False)
    assert same(kind, other, one) == (False, False)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.int32(), "1.5"),
        (pa.int32(), "1_000"),
        (pa.int32(), "1E999999999"),
        (pa.int32(), "٣"),
        (pa.decimal128(8, 2), "1.005"),
        (pa.float64(), "1E999"),
        (pa.float32(), "1e39"),
        (pa.bool_(), "yes"),
        (pa.date32(), "2026-02-30"),
        (pa.date32(), "2026-01-31 00:00:00"),
        (INSTANT, "2026-01-01 00:00:00 Europe/Berlin"),
        (INSTANT, "2026-01-01 24:00:00"),
        (pa.timestamp("us"), "2026-01-01 00:00:00Z"),
    ],
)
def test_a_text_that_is_no_value_may_be_any(kind: pa.DataType, text: str) -> None:
    assert same(kind, text, text) == (True, True)
    for other in ("1", "true", "2026-01-01", None):
        assert same(kind, text, other) == same(kind, other, text) == (False, True)
