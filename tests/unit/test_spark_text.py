"""The pairs were taken from Spark 4.3 on Java 25, and hold on Java 17 too unless a comment says otherwise."""

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.schema.spark_text import spark_text

UTC = pa.timestamp("us", tz="UTC")
LOCAL = pa.timestamp("us")
TINY = Decimal("0.00000000000000000001")

SIMPLE = [
    (pa.bool_(), True, "true"),
    (pa.bool_(), False, "false"),
    (pa.int8(), -128, "-128"),
    (pa.int64(), -(2**63), "-9223372036854775808"),
    (pa.string(), 'a "b"\n', 'a "b"\n'),
    (pa.null(), None, None),
    (pa.decimal128(10, 0), Decimal(0), "0"),
    (pa.decimal128(38, 20), Decimal(0), "0.00000000000000000000"),
    (pa.decimal128(38, 20), TINY, "0.00000000000000000001"),
    (pa.decimal128(38, 20), -TINY, "-0.00000000000000000001"),
    (pa.decimal128(38, 3), Decimal("-123.4"), "-123.400"),
    (pa.decimal128(3, 3), Decimal("-0.12"), "-0.120"),
    (pa.decimal128(38, 0), Decimal(10**37), "1" + 37 * "0"),
]
FLOATS = [
    (pa.float64(), 0.0, "0.0"),
    (pa.float64(), -0.0, "-0.0"),
    (pa.float64(), 1.0, "1.0"),
    (pa.float64(), 123456.78, "123456.78"),
    (pa.float64(), 0.001, "0.001"),
    (pa.float64(), 1e-4, "1.0E-4"),
    (pa.float64(), 9999999.999999998, "9999999.999999998"),
    (pa.float64(), 1e7, "1.0E7"),
    (pa.float64(), -1.1e-10, "-1.1E-10"),
    (pa.float64(), 12345678.0, "1.2345678E7"),
    (pa.float64(), float("nan"), "NaN"),
    (pa.float64(), float("inf"), "Infinity"),
    (pa.float64(), float("-inf"), "-Infinity"),
    (pa.float64(), 1.7976931348623157e308, "1.7976931348623157E308"),
    (pa.float64(), 5e-324, "4.9E-324"),
    (pa.float64(), 1e-323, "9.9E-324"),  # 1.0E-323 before Java 19
    (pa.float64(), 2e23, "2.0E23"),  # 1.9999999999999998E23 before Java 19
    (pa.float64(), 2**-44, "5.684341886080802E-14"),  # 5.6843418860808015E-14 before Java 19
    (pa.float32(), 1.1, "1.1"),
    (pa.float32(), 1e10, "1.0E10"),
    (pa.float32(), 1e-3, "0.001"),
    (pa.float32(), 3.4028235e38, "3.4028235E38"),
    (pa.float32(), 1.4e-45, "1.4E-45"),
    (pa.float32(), 7e-45, "7.0E-45"),
    (pa.float32(), 1.17549435e-38, "1.1754944E-38"),  # 1.17549435E-38 before Java 19
    (pa.float32(), 1.52479293e10, "1.5247929E10"),  # 1.52479293E10 before Java 19
]
TIMES = [
    (pa.date32(), 0, "1970-01-01"),
    (pa.date32(), -719529, "-0001-12-31"),
    (pa.date32(), -719528, "0000-01-01"),
    (pa.date32(), -719162, "0001-01-01"),
    (pa.date32(), 2932896, "9999-12-31"),
    (pa.date32(), 2932897, "+10000-01-01"),
    (pa.date32(), 2**31 - 1, "+5881580-07-11"),
    (pa.date32(), -(2**31), "-5877641-06-23"),
    (UTC, 0, "1970-01-01 00:00:00"),
    (UTC, 100, "1970-01-01 00:00:00.0001"),
    (UTC, -1, "1969-12-31 23:59:59.999999"),
    (UTC, 500_000, "1970-01-01 00:00:00.5"),
    (UTC, 36_000_000_000, "1970-01-01 10:00:00"),
    (UTC, 253402300800000000, "+10000-01-01 00:00:00"),
    (UTC, -62167219200000001, "-0001-12-31 23:59:59.999999"),
    (UTC, 2**63 - 1, "+294247-01-10 04:00:54.775807"),
    (UTC, -(2**63), "-290308-12-21 19:59:05.224192"),
    (LOCAL, 2**63 - 1, "+294247-01-10 04:00:54.775807"),
    (LOCAL, 123456, "1970-01-01 00:00:00.123456"),
]
NESTED = [
    (pa.list_(pa.int32()), [None, 1, None], "[null,1,null]"),
    (pa.list_(pa.list_(pa.int32())), [[], None, [None]], "[[],null,[null]]"),
    (pa.list_(pa.bool_()), [True, False], "[true,false]"),
    (pa.list_(pa.null()), [None], "[null]"),
    (pa.list_(pa.decimal128(38, 20)), [TINY, Decimal(0), Decimal("-12.3")], "[1E-20,0E-20,-12.30000000000000000000]"),
    (pa.list_(pa.float64()), [1.0, float("nan"), float("-inf"), -0.0, 1e7], '[1.0,"NaN","-Infinity",-0.0,1.0E7]'),
    (pa.list_(pa.float32()), [1.1, float("nan"), 1e10], '[1.1,"NaN",1.0E10]'),
    (pa.list_(pa.binary()), [b"\x00\xff", b""], '["AP8=",""]'),
    (pa.list_(pa.string()), ["/", "\x7f", "\u2028", "😀", "\\", "<>&'"], '["/","\x7f","\u2028","😀","\\\\","<>&\'"]'),
    (pa.list_(pa.string()), ['"\0\b\t\n\x0b\f\r\x1f'], r'["\"\u0000\b\t\n\u000B\f\r\u001F"]'),
    (pa.struct([("a", pa.int32()), ("b", pa.int32())]), {"a": None, "b": 1}, '{"b":1}'),
    (pa.struct([("a", pa.int32())]), {"a": None}, "{}"),
    (pa.struct([]), {}, "{}"),
    (pa.struct([('a"b', pa.string()), ("c.d", pa.int8())]), {'a"b': "x", "c.d": 1}, r'{"a\"b":"x","c.d":1}'),
    (pa.list_(pa.struct([("a", pa.int32())])), [{"a": 1}, None], '[{"a":1},null]'),
    (pa.struct([("a", pa.struct([("x", pa.int8())]))]), {"a": {"x": None}}, '{"a":{}}'),
    (pa.map_(pa.string(), pa.int32()), [("a", 1), ("b", None)], '{"a":1,"b":null}'),
    (pa.map_(pa.string(), pa.int32()), [], "{}"),
    (pa.map_(pa.string(), pa.int32()), [('a"b\n', 1)], r'{"a\"b\n":1}'),
    (pa.map_(pa.bool_(), pa.int32()), [(True, 1)], '{"true":1}'),
    (pa.map_(pa.float64(), pa.int32()), [(1.5, 1), (float("nan"), 2), (1e7, 3)], '{"1.5":1,"NaN":2,"1.0E7":3}'),
    (pa.map_(pa.decimal128(38, 20), pa.int32()), [(TINY, 1)], '{"1E-20":1}'),
]
NESTED_TIMES = [
    (pa.date32(), 18263, '["2020-01-02"]', '{"18263":1}'),
    (pa.date32(), 2932897, '["+10000-01-01"]', '{"2932897":1}'),
    (UTC, 0, '["1970-01-01T00:00:00.000000Z"]', '{"0":1}'),
    (UTC, 123999, '["1970-01-01T00:00:00.123999Z"]', '{"123999":1}'),
    (UTC, -1, '["1969-12-31T23:59:59.999999Z"]', '{"-1":1}'),
    (UTC, 2**63 - 1, '["+294247-01-10T04:00:54.775807Z"]', '{"9223372036854775807":1}'),
    (LOCAL, 123456, '["1970-01-01T00:00:00.123456"]', '{"123456":1}'),
]


def times(kind: pa.DataType, *values: int | None) -> pa.Array:
    return pa.array(values, pa.int32() if kind == pa.date32() else pa.int64()).view(kind)


@pytest.mark.parametrize(("kind", "value", "text"), SIMPLE + FLOATS + NESTED)
def test_the_text_is_that_of_spark(kind: pa.DataType, value: Any, text: str | None) -> None:
    texts = spark_text(pa.array([None, value, None, value], kind)[1:])
    assert texts.type == pa.string()
    assert texts.to_pylist() == [text, None, text]


@pytest.mark.parametrize(("kind", "value", "text"), TIMES)
def test_dates_and_times_have_the_text_of_spark(kind: pa.DataType, value: int, text: str) -> None:
    assert spark_text(times(kind, None, value, None, value)[1:]).to_pylist() == [text, None, text]


@pytest.mark.parametrize(("kind", "value", "in_list", "as_key"), NESTED_TIMES)
def test_dates_and_times_in_json_are_those_of_spark(kind: pa.DataType, value: int, in_list: str, as_key: str) -> None:
    values = times(kind, value)
    assert spark_text(pa.ListArray.from_arrays([0, 1], values)).to_pylist() == [in_list]
    assert spark_text(pa.MapArray.from_arrays([0, 1], values, pa.array([1]))).to_pylist() == [as_key]


@pytest.mark.parametrize("kind", [kind for kind, _, _ in SIMPLE + FLOATS + TIMES + NESTED], ids=str)
def test_nothing_has_no_text(kind: pa.DataType) -> None:
    assert spark_text(pa.array([], kind)).to_pylist() == []
    assert spark_text(pa.nulls(3, kind)).to_pylist() == [None, None, None]


@pytest.mark.parametrize(
    "kind",
    [
        pa.binary(),
        pa.map_(pa.binary(), pa.int8()),
        pa.struct([("m", pa.map_(pa.list_(pa.int8()), pa.int8()))]),
        pa.map_(pa.struct([("a", pa.int8())]), pa.int8()),
    ],
    ids=str,
)
def test_types_without_a_lasting_text_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(TypeError, match="Spark"):
        spark_text(pa.array([None], kind))


@given(st.lists(st.floats(width=64)), st.sampled_from([np.float32, np.float64]))
def test_numbers_come_back_from_their_text(values: list[float], number: type[np.floating]) -> None:
    with np.errstate(over="ignore"):
        array = np.array(values, number)
    texts = spark_text(pa.array(array)).to_pylist()
    assert np.array_equal(np.array([text.replace("Infinity", "inf") for text in texts], number), array, equal_nan=True)


def test_elements_under_a_null_list_have_no_text() -> None:
    lists = pa.ListArray.from_arrays([0, 2, 3], pa.array([1, 2, 3]), mask=pa.array([True, False]))
    assert spark_text(lists).to_pylist() == [None, "[3]"]
