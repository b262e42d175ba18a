from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import SchemaMismatchError, Violation
from lakelog.schema.evolution import convert
from lakelog.schema.evolution.convert import apply, null_problems
from lakelog.schema.evolution.projection import Parts, project

UTC = pa.timestamp("us", tz="UTC")
LOCAL = pa.timestamp("us")

VALUES = {
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.float64(): st.floats(allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): st.text(max_size=3),
    pa.binary(): st.binary(max_size=3),
    pa.date32(): st.dates(),
    LOCAL: st.datetimes(),
    pa.decimal128(9, 2): st.decimals(-999999, 999999, places=2),
}
WIDER = {
    pa.int8(): [pa.int16(), pa.int64(), pa.float64(), pa.decimal128(10, 0), pa.decimal128(3, 0)],
    pa.int32(): [pa.int64(), pa.float64(), pa.decimal128(12, 2)],
    pa.int64(): [pa.decimal128(20, 0), pa.decimal128(19, 0), pa.decimal128(38, 18)],
    pa.float32(): [pa.float64()],
    pa.date32(): [LOCAL],
    pa.decimal128(9, 2): [pa.decimal128(9, 2), pa.decimal128(20, 5)],
}
"""What each type may become, for a cast that keeps the value."""
SIMPLE_TYPES = st.sampled_from(list(VALUES))
NAMES = ["a", "b", "c"]


def nested(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    fields = st.lists(st.tuples(inner, st.booleans()), max_size=3)
    return st.one_of(
        inner.map(pa.list_),
        st.builds(pa.map_, SIMPLE_TYPES, inner),
        fields.map(lambda each: pa.struct([pa.field(n, t, null) for n, (t, null) in zip(NAMES, each, strict=False)])),
    )


TYPES = st.recursive(SIMPLE_TYPES, nested, max_leaves=5)


def values(kind: pa.DataType, nullable: bool = True) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        some: st.SearchStrategy[Any] = st.fixed_dictionaries({f.name: values(f.type, f.nullable) for f in kind})
    elif pa.types.is_map(kind):
        some = st.lists(st.tuples(values(kind.key_type, False), values(kind.item_type)), max_size=3)
    elif pa.types.is_list(kind):
        some = st.lists(values(kind.value_type), max_size=3)
    else:
        some = VALUES[kind]
    return st.none() | some if nullable else some


def arrays(kind: pa.DataType) -> st.SearchStrategy[pa.Array]:
    return st.lists(values(kind), max_size=6).map(lambda rows: pa.array(rows, kind))


def widened(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name.upper(), widened(f.type), f.nullable, {"k": "v"}) for f in reversed(kind)])
    if pa.types.is_map(kind):
        return pa.map_(widened(kind.key_type), pa.field("w", widened(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(pa.field("e", widened(kind.value_type)))
    return WIDER[kind][-1] if kind in WIDER else kind


def plain(value: Any) -> Any:
    """A value so that it is equal to itself widened: names in lower case and sorted, dates as times."""
    if isinstance(value, dict):
        return {name.lower(): plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(inner) for inner in value]
    return datetime(value.year, value.month, value.day) if type(value) is date else value  # noqa: DTZ001


def projected(source: pa.Table, target: pa.Schema) -> Parts:
    return project(list(source.schema), list(target))


def converted(array: pa.Array | pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """The column after a conversion, with what holds for every one checked."""
    table = pa.table({"c": array})
    schema = pa.schema([pa.field("c", target, metadata={"k": "v"})])
    result = apply(projected(table, schema), table)
    result.validate(full=True)
    assert result.schema.equals(schema, check_metadata=True)
    column = result.column(0)
    assert all(chunk.type.equals(target, check_metadata=True) for chunk in column.chunks)
    return column


@given(st.data(), TYPES)
def test_a_schema_projected_on_itself_changes_nothing(data: st.DataObject, kind: pa.DataType) -> None:
    array = data.draw(arrays(kind))
    assert converted(array, kind).equals(pa.chunked_array([array]))


@given(st.data(), TYPES)
def test_widening_keeps_every_value(data: st.DataObject, kind: pa.DataType) -> None:
    array = data.draw(arrays(kind))
    assert plain(converted(array, widened(kind)).to_pylist()) == plain(array.to_pylist())


@given(st.data(), TYPES)
def test_slices_and_chunks_give_the_same_as_the_whole(data: st.DataObject, kind: pa.DataType) -> None:
    array, target = data.draw(arrays(kind)), widened(kind)
    cut = data.draw(st.integers(0, len(array)))
    whole = converted(array, target).combine_chunks()
    assert converted(array[cut:], target).equals(pa.chunked_array([whole[cut:]], target))
    chunks = converted(pa.chunked_array([array[:cut], array[cut:]]), target)
    assert chunks.num_chunks == 2
    assert chunks.equals(pa.chunked_array([whole], target))
    assert converted(pa.chunked_array([], kind), target).to_pylist() == []


@pytest.mark.parametrize(("source", "targets"), WIDER.items(), ids=str)
def test_every_widening_takes_the_largest_values(source: pa.DataType, targets: list[pa.DataType]) -> None:
    limits = {pa.int8(): 2**7 - 1, pa.int32(): 2**31 - 1, pa.int64(): 2**63 - 1, pa.date32(): date.max}
    value = limits.get(source, 1)
    for target in targets:
        assert plain(converted(pa.array([value, None], source), target).to_pylist()) == plain([value, None])


def runs(values: pa.Array) -> pa.Array:
    return pa.RunEndEncodedArray.from_arrays(pa.array([2 * (i + 1) for i in range(len(values))], pa.int32()), values)


TEXTS = ["x", None, "z"]
BYTES = [b"xx", None, b"zz"]
DAYS = [date(1, 1, 1), None, date(9999, 12, 31)]
TIMES = [datetime(2000, 1, 1), None, datetime(1900, 2, 3)]  # noqa: DTZ001
ENCODED = [
    (pa.array([0, None, 255], pa.uint8()), pa.int16()),
    (pa.array([0, None, 2**32 - 1], pa.uint32()), pa.int64()),
    (pa.array([0, None, 2**32 - 1], pa.uint32()), pa.float64()),
    (pa.array([0, None, 2**64 - 1], pa.uint64()), pa.decimal128(20, 0)),
    (pa.array([0, None, 2**63 - 1], pa.uint64()), pa.int64()),
    (pa.array([0.5, None, 1.0], pa.float16()), pa.float32()),
    (pa.array(TEXTS, pa.large_string()), pa.string()),
    (pa.array(TEXTS, pa.string_view()), pa.string()),
    (pa.array(TEXTS).dictionary_encode(), pa.string()),
    (pa.DictionaryArray.from_arrays(pa.array([1, 0, None, 2]), pa.array(TEXTS, pa.string_view())), pa.string()),
    (pa.DictionaryArray.from_arrays(pa.array([1, 0], pa.int8()), pa.array([1, 2], pa.uint8())), pa.int64()),
    (pa.DictionaryArray.from_arrays(pa.array([1, 0]), pa.array([{"a": 1}, None])), pa.struct([("A", pa.float64())])),
    (runs(pa.array(TEXTS)), pa.string()),
    (runs(pa.array(TEXTS, pa.string_view())), pa.string()),
    (runs(pa.array(TEXTS).dictionary_encode()), pa.string()),
    (runs(pa.array([1, None, 3], pa.int8())), pa.decimal128(10, 0)),
    (pa.array(BYTES, pa.large_binary()), pa.binary()),
    (pa.array(BYTES, pa.binary_view()), pa.binary()),
    (pa.array(BYTES, pa.binary(2)), pa.binary()),
    (pa.array(DAYS, pa.date64()), pa.date32()),
    (pa.array(DAYS, pa.date64()), LOCAL),
    (pa.array(TIMES, pa.timestamp("s")), LOCAL),
    (pa.array(TIMES, pa.timestamp("ms")), LOCAL),
    (pa.array(TIMES, pa.timestamp("ns")), LOCAL),
    (pa.array(TIMES, pa.timestamp("ns", tz="Europe/Berlin")), UTC),
    (pa.array([Decimal("1.5"), None], pa.decimal256(60, 3)), pa.decimal128(38, 3)),
    (pa.array([Decimal("1.5"), None], pa.decimal32(5, 1)), pa.decimal128(5, 1)),
    (pa.array([Decimal(1500), None], pa.decimal128(5, -2)), pa.decimal128(7, 0)),
    (pa.nulls(2), pa.decimal128(3, 1)),
    (pa.nulls(2), pa.map_(pa.string(), pa.struct([pa.field("a", pa.int8(), False)]))),
    (pa.array([b"0" * 16, None], pa.uuid()).storage, pa.binary()),
    (pa.array(["{}", None], pa.json_()), pa.string()),
]
LISTS = [pa.list_(pa.uint8(), 2), pa.large_list(pa.uint8()), pa.list_view(pa.uint8()), pa.large_list_view(pa.uint8())]
ENCODED += [(pa.array([[1, 2], None, [None, 4]], kind), pa.list_(pa.int16())) for kind in LISTS]


@pytest.mark.parametrize(("array", "target"), ENCODED, ids=lambda each: str(getattr(each, "type", each)))
def test_incoming_types_become_those_of_tables(array: pa.Array, target: pa.DataType) -> None:
    def instants(column: pa.Array | pa.ChunkedArray) -> list[Any]:
        return (column.cast(UTC) if target == UTC else column).to_pylist()

    expected = plain(instants(array))
    for start in range(len(array) + 1):
        assert plain(instants(converted(array[start:], target))) == expected[start:]


def test_a_struct_of_runs_is_null_where_the_struct_is() -> None:
    struct = pa.StructArray.from_arrays([runs(pa.array([1, None]))], ["a"], mask=pa.array([True, False, False, False]))
    assert converted(struct[0:3], pa.struct([("a", pa.int64())])).to_pylist() == [None, {"a": 1}, {"a": None}]


def test_a_column_without_a_source_is_null() -> None:
    table = pa.table({"s": pa.array([{"x": 1}, None])})
    schema = pa.schema([("new", pa.map_(pa.string(), pa.int8())), ("S", pa.struct([("y", pa.string())]))])
    assert apply(projected(table, schema), table).to_pylist() == [
        {"new": None, "S": {"y": None}},
        {"new": None, "S": None},
    ]


def test_columns_come_in_the_order_of_the_target() -> None:
    table = pa.table({"a": [1], "B": ["x"]})
    schema = pa.schema([pa.field("b", pa.string(), False), pa.field("A", pa.int64(), metadata={"k": "v"})])
    result = apply(projected(table, schema), table)
    assert result.schema.equals(schema, check_metadata=True)
    assert result.to_pylist() == [{"b": "x", "A": 1}]


def test_large_arrays_are_converted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "_MAX_ROWS", 3)
    column = converted(pa.array(range(10)), pa.string())
    assert column.to_pylist() == [str(number) for number in range(10)]
    assert max(map(len, column.chunks)) == 3


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (pa.array([1, None], pa.uint64()), ["1", None]),
        (pa.array([1.5, None], pa.float16()), ["1.5", None]),
        (pa.array([True, False]).dictionary_encode(), ["true", "false"]),
        (runs(pa.array([date(2020, 1, 2)])), ["2020-01-02", "2020-01-02"]),
        (pa.array([datetime(2020, 1, 2)], pa.timestamp("ms", tz="Europe/Berlin")), ["2020-01-02 00:00:00"]),  # noqa: DTZ001
        (pa.array([[1, None]], pa.large_list(pa.uint8())), ["[1,null]"]),
        (pa.array([{"a": "x", "A": None}, None], pa.struct([("a", pa.large_string())])), ['{"a":"x"}', None]),
        (pa.array([[("k", 1)]], pa.map_(pa.string_view(), pa.uint64())), ['{"k":1}']),
    ],
    ids=lambda each: str(getattr(each, "type", "")),
)
def test_incoming_values_become_text(array: pa.Array, text: list[str]) -> None:
    assert converted(array, pa.string()).to_pylist() == text


def test_text_can_stand_deep_inside() -> None:
    array = pa.array([[{"a": 1.0}, None], None], pa.list_(pa.struct([("a", pa.float64())])))
    assert converted(array, pa.list_(pa.struct([("a", pa.string())]))).to_pylist() == [[{"a": "1.0"}, None], None]


NANOS = pa.array([1], pa.timestamp("ns"))


def problems(table: pa.Table, target: pa.Schema) -> list[Violation]:
    with pytest.raises(SchemaMismatchError) as raised:
        apply(projected(table, target), table)
    assert raised.value.subject == "values of the incoming data"
    return list(raised.value.violations)


@pytest.mark.parametrize(
    ("array", "target", "found"),
    [
        (NANOS, LOCAL, "timestamps with nanoseconds that a column of microseconds cannot hold"),
        (NANOS.dictionary_encode(), LOCAL, "timestamps with nanoseconds"),
        (NANOS, pa.string(), "timestamps with nanoseconds that a column of microseconds cannot hold"),
        (pa.array([2**62]).view(pa.timestamp("s")), LOCAL, "out of bounds"),
        (pa.array([1]).view(pa.date64()), pa.date32(), "would lose data"),
        (pa.array([1]).view(pa.date64()), LOCAL, "would lose data"),
        (pa.array([2**31 - 1], pa.int32()).view(pa.date32()), LOCAL, "out of bounds"),
        (pa.array([2**63], pa.uint64()), pa.int64(), "not in range"),
        (pa.array([2**53 + 1]), pa.float64(), "not in range"),
        (pa.array([Decimal("0.001")], pa.decimal256(50, 3)), pa.decimal128(38, 2), "data loss"),
        (pa.array([Decimal(10**39)], pa.decimal256(50, 0)), pa.decimal128(38, 0), "does not fit"),
    ],
    ids=lambda each: str(getattr(each, "type", each)),
)
def test_values_that_do_not_fit_are_refused(array: pa.Array, target: pa.DataType, found: str) -> None:
    table = pa.table({"a": pa.nulls(2, array.type), "A.b": pa.chunked_array([array, array])})
    (problem,) = problems(table, pa.schema([("a", target), ("A.b", target)]))
    assert problem.where == "`A.b`"
    assert found in problem.message


def test_types_that_do_not_fit_are_refused() -> None:
    (problem,) = problems(pa.table({"a": [[1]]}), pa.schema([("a", pa.int64())]))
    assert "Unsupported cast" in problem.message


def test_values_without_a_text_are_refused() -> None:
    table = pa.table(
        {"m": pa.array([[(b"", 1)]], pa.map_(pa.binary(), pa.int8())), "b": pa.array([b"0" * 16], pa.uuid())}
    )
    found = problems(table, pa.schema([("m", pa.string()), ("b", pa.string())]))
    assert [each.where for each in found] == ["m", "b"]
    assert "keys of type binary" in found[0].message


def test_all_columns_with_such_values_are_named_once() -> None:
    struct = pa.StructArray.from_arrays([NANOS, NANOS], ["x", "y"])
    table = pa.table(
        {
            "t": NANOS,
            "s": struct,
            "l": pa.ListArray.from_arrays([0, 1], struct),
            "m": pa.MapArray.from_arrays([0, 1], NANOS, NANOS),
        }
    )
    table = pa.concat_tables([table, table])
    inner = pa.struct([("x", LOCAL), ("y", pa.timestamp("ns"))])
    schema = pa.schema([("t", LOCAL), ("s", inner), ("l", pa.list_(inner)), ("m", pa.map_(LOCAL, LOCAL))])
    assert [each.where for each in problems(table, schema)] == ["t", "s.x", "l.element.x", "m.key", "m.value"]


def under_nulls() -> pa.Table:
    """Values that do not fit and nulls where there must be none, all of them under nulls."""
    mask = pa.array([True])
    inner = pa.StructArray.from_arrays([NANOS, pa.nulls(1, pa.int8())], ["t", "n"], mask=mask)
    return pa.table(
        {
            "s": inner,
            "l": pa.ListArray.from_arrays([0, 1], NANOS, mask=mask),
            "f": pa.FixedSizeListArray.from_arrays(NANOS, 1, mask=mask),
            "m": pa.MapArray.from_arrays([0, 1], NANOS, NANOS, mask=mask),
        }
    )


REQUIRED = pa.schema(
    [
        ("s", pa.struct([pa.field("t", LOCAL, False), pa.field("n", pa.int8(), False)])),
        ("l", pa.list_(pa.field("item", LOCAL, False))),
        ("f", pa.list_(pa.field("item", LOCAL, False))),
        ("m", pa.map_(LOCAL, pa.field("value", LOCAL, False))),
    ]
)


def test_what_lies_under_a_null_does_not_matter() -> None:
    table = under_nulls()
    result = apply(projected(table, REQUIRED), table)
    result.validate(full=True)
    assert result.to_pylist() == [{"s": None, "l": None, "f": None, "m": None}]
    assert null_problems(result) == []


def test_nulls_are_found_at_every_level_and_counted_over_chunks() -> None:
    inner = pa.struct([pa.field("b", pa.int8(), False), pa.field("ok", pa.int8())])
    schema = pa.schema(
        [
            pa.field("a", inner, False),
            pa.field("tags", pa.list_(pa.field("item", inner, False))),
            pa.field("m", pa.map_(pa.string(), pa.field("value", pa.list_(inner), False))),
            pa.field("x.y", pa.int8(), False),
        ]
    )
    rows = [
        {"a": {"b": 1, "ok": None}, "tags": [{"b": 1}], "m": [("k", [{"b": 1}, None])], "x.y": 1},
        {"a": {"b": None}, "tags": [None, {"b": None}], "m": [("k", None)], "x.y": None},
        {"a": None, "tags": None, "m": None, "x.y": None},
        {"a": {"b": None}, "tags": [], "m": [("k", [{"b": None}])], "x.y": 2},
    ]
    chunk = pa.Table.from_pylist(rows, schema)
    found = {each.where: each.message for each in null_problems(pa.concat_tables([chunk, chunk, chunk[:0]]))}
    counts = {
        "a": 2,
        "a.b": 4,
        "tags.element": 2,
        "tags.element.b": 2,
        "m.value": 2,
        "m.value.element.b": 2,
        "`x.y`": 4,
    }
    assert found == {where: f"expected no nulls, found {count} null values" for where, count in counts.items()}
    assert null_problems(chunk[:1]) == []
    assert null_problems(chunk[1:2])[0].message == "expected no nulls, found 1 null value"


def test_null_keys_are_refused() -> None:
    keys = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["k", None]))
    table = pa.table({"m": pa.MapArray.from_arrays([0, 2], keys, pa.array([1, 2]))})
    schema = pa.schema([("m", pa.map_(pa.string(), pa.int64()))])
    assert problems(table, schema) == [Violation("m.key", "expected no nulls, found 1 null value")]


@given(st.data(), TYPES)
def test_valid_data_has_no_null_problems(data: st.DataObject, kind: pa.DataType) -> None:
    table = pa.table({"c": data.draw(arrays(kind))})
    assert null_problems(table) == []
    assert null_problems(table[1:]) == []
