import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.errors import ValidationError
from lakelog.schema import from_bytes, from_delta_json, to_bytes, to_delta_json
from lakelog.schema.normalize import normalize
from tests.fixtures.delta_json import LEAF_TYPES, NAMES, SCHEMAS, SIMPLE_TYPES, nested, violations


class Annotated(pa.ExtensionType):  # type: ignore[misc]
    """A type of someone else's."""

    def __init__(self, storage: pa.DataType) -> None:
        super().__init__(storage, "test.annotated")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


NORMAL_TYPES = [
    *SIMPLE_TYPES.values(),
    pa.decimal128(38, 0),
    pa.null(),
    pa.struct([]),
    pa.struct([pa.field("x", pa.int8(), nullable=False, metadata={"k": "v"})]),
    pa.list_(pa.string()),
    pa.list_(pa.field("item", pa.null(), nullable=True)),
    pa.list_(pa.field("item", pa.struct([("x", pa.list_(pa.int8()))]), nullable=False)),
    pa.map_(pa.string(), pa.field("value", pa.int32(), nullable=False)),
    pa.map_(pa.struct([("x", pa.date32())]), pa.map_(pa.int8(), pa.binary())),
]

# Where the values are simple to write down: the type, what it becomes, a value and what that becomes.
STORED_AS: list[tuple[pa.DataType, pa.DataType, Any, Any]] = [
    (pa.uint8(), pa.int16(), 255, 255),
    (pa.uint16(), pa.int32(), 65535, 65535),
    (pa.uint32(), pa.int64(), 2**32 - 1, 2**32 - 1),
    (pa.uint64(), pa.decimal128(20, 0), 2**64 - 1, Decimal(2**64 - 1)),
    (pa.float16(), pa.float32(), 1.5, 1.5),
    (pa.large_string(), pa.string(), "é", "é"),
    (pa.string_view(), pa.string(), "é", "é"),
    (pa.large_binary(), pa.binary(), b"x", b"x"),
    (pa.binary_view(), pa.binary(), b"x", b"x"),
    (pa.binary(2), pa.binary(), b"xy", b"xy"),
    (pa.date64(), pa.date32(), 86_400_000, 1),
    (pa.timestamp("s"), pa.timestamp("us"), 1, 1_000_000),
    (pa.timestamp("ms"), pa.timestamp("us"), 1, 1000),
    (pa.timestamp("ns"), pa.timestamp("us"), 1000, 1),
    (pa.timestamp("s", tz="UTC"), pa.timestamp("us", tz="UTC"), 1, 1_000_000),
    (pa.timestamp("ns", tz="Europe/Berlin"), pa.timestamp("us", tz="UTC"), 1000, 1),
    (pa.timestamp("us", tz="Asia/Tokyo"), pa.timestamp("us", tz="UTC"), 1, 1),
    (pa.timestamp("us", tz="+00:00"), pa.timestamp("us", tz="UTC"), 1, 1),
    (pa.decimal32(5, 2), pa.decimal128(5, 2), Decimal("1.23"), Decimal("1.23")),
    (pa.decimal64(12, 12), pa.decimal128(12, 12), Decimal("0.5"), Decimal("0.5")),
    (pa.decimal256(38, 2), pa.decimal128(38, 2), Decimal("1.23"), Decimal("1.23")),
    (pa.decimal128(5, -2), pa.decimal128(7, 0), Decimal(12300), Decimal(12300)),
    (pa.decimal256(36, -2), pa.decimal128(38, 0), Decimal(12300), Decimal(12300)),
    (pa.dictionary(pa.int32(), pa.string()), pa.string(), "x", "x"),
    (pa.dictionary(pa.int8(), pa.large_string()), pa.string(), "x", "x"),
    (pa.large_list(pa.uint8()), pa.list_(pa.int16()), [1], [1]),
    (pa.list_(pa.uint8(), 2), pa.list_(pa.int16()), [1, 2], [1, 2]),
    (pa.list_(pa.field("element", pa.int8())), pa.list_(pa.int8()), [1], [1]),
    (pa.map_(pa.string(), pa.int32(), keys_sorted=True), pa.map_(pa.string(), pa.int32()), [("a", 1)], [("a", 1)]),
    (pa.map_(pa.large_string(), pa.uint8()), pa.map_(pa.string(), pa.int16()), [("a", 1)], [("a", 1)]),
    (pa.json_(), pa.string(), "{}", "{}"),
    (pa.json_(pa.large_string()), pa.string(), "{}", "{}"),
]

# Where pa.array has no such arrays, or where Arrow's cast has no such case or (list views) loses values.
STORED_AS_BY_OTHER_MEANS = [
    (pa.decimal128(5, 10), pa.decimal128(10, 10)),
    (pa.run_end_encoded(pa.int32(), pa.uint8()), pa.int16()),
    (pa.dictionary(pa.int8(), pa.timestamp("s")), pa.timestamp("us")),
    (pa.dictionary(pa.int8(), pa.list_(pa.uint8())), pa.list_(pa.int16())),
    (pa.dictionary(pa.int8(), pa.run_end_encoded(pa.int32(), pa.date64())), pa.date32()),
    (pa.list_view(pa.uint8()), pa.list_(pa.int16())),
    (pa.large_list_view(pa.uint8()), pa.list_(pa.int16())),
    (Annotated(pa.string()), pa.string()),
    (Annotated(pa.string_view()), pa.string()),
]

REFUSED = [
    (pa.time32("s"), "use int64 microseconds since midnight"),
    (pa.time32("ms"), "use int64 microseconds since midnight"),
    (pa.time64("us"), "use int64 microseconds since midnight"),
    (pa.time64("ns"), "use int64 microseconds since midnight"),
    (pa.duration("us"), "use int64 microseconds"),
    (pa.month_day_nano_interval(), "use int64 columns"),
    (pa.dense_union([pa.field("a", pa.int32())]), "use a struct"),
    (pa.sparse_union([pa.field("a", pa.int32())]), "use a struct"),
    (pa.decimal256(39, 2), "at most 38 digits"),
    (pa.decimal128(38, -1), "at most 38 digits"),
    (pa.uuid(), "use its storage type (fixed_size_binary[16])"),
    (pa.bool8(), "use its storage type (int8)"),
    (pa.fixed_shape_tensor(pa.int8(), [2]), "use its storage type (fixed_size_list<item: int8>[2])"),
    (Annotated(pa.int64()), "use its storage type (int64)"),
]


def refused(schema: pa.Schema) -> dict[str, str]:
    with pytest.raises(ValidationError) as error:
        normalize(schema)
    return violations(error)


def same(one: pa.Schema, other: pa.Schema) -> bool:
    equal: bool = one.equals(other, check_metadata=True)
    return equal


@pytest.mark.parametrize("type", NORMAL_TYPES, ids=str)
def test_a_schema_in_normal_types_is_the_same_object(type: pa.DataType) -> None:
    schema = pa.schema([pa.field("a", type, metadata={"comment": "x"}), pa.field("b", pa.int64(), nullable=False)])
    assert normalize(schema) is schema


@pytest.mark.parametrize(
    ("type", "stored"), [*((row[0], row[1]) for row in STORED_AS), *STORED_AS_BY_OTHER_MEANS], ids=str
)
def test_a_type_becomes_the_one_that_holds_its_values(type: pa.DataType, stored: pa.DataType) -> None:
    around = [
        lambda kind: kind,
        lambda kind: pa.struct([pa.field("x", kind, metadata={"k": "v"}), pa.field("y", pa.int8())]),
        pa.list_,
        lambda kind: pa.map_(kind, kind),
    ]
    for wrap in around:
        schema = pa.schema([pa.field("a", wrap(type), metadata={"comment": "x"}), ("b", pa.int64())])
        expected = pa.schema([pa.field("a", wrap(stored), metadata={"comment": "x"}), ("b", pa.int64())])
        assert same(normalize(schema), expected)


@pytest.mark.parametrize(("type", "stored", "value", "kept"), STORED_AS, ids=str)
def test_a_safe_cast_keeps_the_values(type: pa.DataType, stored: pa.DataType, value: Any, kept: Any) -> None:
    cast = pa.array([value, None], type).cast(normalize(pa.schema([("a", type)])).field("a").type)
    cast.validate(full=True)
    assert cast.equals(pa.array([kept, None], stored))


def test_a_safe_cast_refuses_nanoseconds_that_would_be_lost() -> None:
    stored = normalize(pa.schema([("a", pa.timestamp("ns"))])).field("a").type
    with pytest.raises(pa.ArrowInvalid, match="would lose data"):
        pa.array([1001], pa.timestamp("ns")).cast(stored)


def test_names_nullability_and_field_metadata_are_kept() -> None:
    def schema(uint: pa.DataType, text: pa.DataType) -> pa.Schema:
        inner = pa.field("Inner x", uint, nullable=False, metadata={"k": b"\xff"})
        return pa.schema(
            [
                pa.field("s", pa.struct([inner]), nullable=False, metadata={"comment": "s"}),
                pa.field("l", pa.list_(pa.field("item", pa.struct([inner]), nullable=False))),
                pa.field("m", pa.map_(text, pa.field("value", uint, nullable=False)), nullable=False),
            ]
        )

    assert same(normalize(schema(pa.uint8(), pa.large_string())), schema(pa.int16(), pa.string()))


def test_what_delta_has_no_place_for_is_left_out() -> None:
    noted = {"metadata": {"PARQUET:field_id": "7"}}
    schema = pa.schema(
        [
            pa.field("l", pa.list_(pa.field("element", pa.int8(), nullable=False, **noted)), **noted),
            pa.field("m", pa.map_(pa.field("k", pa.int8(), False, **noted), pa.field("v", pa.int8(), **noted))),
        ],
        metadata={"pandas": "{}"},
    )
    expected = pa.schema(
        [
            pa.field("l", pa.list_(pa.field("item", pa.int8(), nullable=False)), **noted),
            pa.field("m", pa.map_(pa.int8(), pa.int8())),
        ]
    )
    assert same(normalize(schema), expected)


def test_the_metadata_of_the_schema_goes_even_if_all_types_stay() -> None:
    plain = pa.schema([pa.field("a", pa.int8(), metadata={"k": "v"})])
    assert same(normalize(plain.with_metadata({"pandas": "{}"})), plain)


@pytest.mark.parametrize(("type", "advice"), REFUSED, ids=str)
def test_a_type_without_a_counterpart_is_refused_with_its_path(type: pa.DataType, advice: str) -> None:
    schema = pa.schema(
        [
            ("a", type),
            ("s", pa.struct([("x.y", type), ("ok", pa.uint8())])),
            ("l", pa.list_(pa.struct([("x", type)]))),
            ("m", pa.map_(type, type)),
            ("d", pa.dictionary(pa.int8(), type)),
        ]
    )
    found = refused(schema)
    assert list(found) == ["a", "s.`x.y`", "l.element.x", "m.key", "m.value", "d"]
    assert all(advice in message and str(type) in message for message in found.values())


def test_encoded_nulls_are_nulls() -> None:
    schema = pa.schema([("a", pa.dictionary(pa.int8(), pa.null())), ("l", pa.list_(pa.null()))])
    assert same(normalize(schema), pa.schema([("a", pa.null()), ("l", pa.list_(pa.null()))]))


def test_keys_of_a_map_need_a_type() -> None:
    found = refused(pa.schema([("m", pa.map_(pa.dictionary(pa.int8(), pa.null()), pa.int8()))]))
    assert found == {"m.key": "Delta has no type for Arrow's null; use the type that the column's values will have"}


def test_names_that_differ_only_in_case_are_refused_with_their_path() -> None:
    twice = pa.struct([("id", pa.int8()), ("ID", pa.int8())])
    found = refused(pa.schema([("s", twice), ("l", pa.large_list(twice)), ("S", pa.duration("s")), ("", pa.int8())]))
    assert set(found) == {"s.ID", "l.element.ID", "S", "``"}
    assert found["s.ID"].startswith("the name differs only in case from 'id'")


def test_everything_wrong_with_one_column_is_said() -> None:
    with pytest.raises(ValidationError) as error:
        normalize(pa.schema([("a", pa.int8()), ("A", pa.duration("s"))]))
    assert [violation.where for violation in error.value.violations] == ["A", "A"]


@pytest.mark.parametrize("name", ["a b", "x,y", "k=v", "(n)", "tab\t", "line\n", "a.b", "`", "日本"])
def test_names_that_need_column_mapping_pass(name: str) -> None:
    schema = pa.schema([(name, pa.struct([(name, pa.int8())]))])
    assert normalize(schema) is schema


def test_a_name_that_is_not_utf8_is_refused() -> None:
    schema = pa.schema([("s", pa.struct([("zzzz", pa.int8())]))])
    broken = from_bytes(to_bytes(schema).replace(b"zzzz", b"z\xffzz"))
    assert refused(broken) == {"s.z\\xffzz": "the name is not UTF-8"}


@pytest.mark.parametrize("depth", [1, 50, 99])
def test_deep_types_are_normalised(depth: int) -> None:
    schema = pa.schema([("a", nested(pa.uint8(), depth))])
    assert same(normalize(schema), pa.schema([("a", nested(pa.int16(), depth))]))


@pytest.mark.parametrize("depth", [100, 5000])
def test_absurd_depth_is_refused(depth: int) -> None:
    (message,) = refused(pa.schema([("a", nested(pa.uint8(), depth))])).values()
    assert "nested" in message


ABNORMAL_TYPES = [*(row[0] for row in STORED_AS), *(row[0] for row in STORED_AS_BY_OTHER_MEANS)]
RAW_TYPES = LEAF_TYPES | st.integers(0, len(ABNORMAL_TYPES) - 1).map(lambda index: ABNORMAL_TYPES[index])
SOME_METADATA = st.none() | st.just({"PARQUET:field_id": "7"})
FIELD_NAMES = NAMES | st.sampled_from(["item", "element", "key", "value", "entries"])


def raw_structs(types: st.SearchStrategy[Any]) -> st.SearchStrategy[list[pa.Field]]:
    fields = st.builds(pa.field, FIELD_NAMES, types, st.booleans(), SOME_METADATA)
    return st.lists(fields, max_size=4, unique_by=lambda field: field.name.lower())


WRAPPERS: list[Callable[[pa.Field], pa.DataType]] = [
    pa.list_,
    pa.large_list,
    pa.list_view,
    pa.large_list_view,
    lambda field: pa.list_(field, 3),
    lambda field: pa.map_(field.type, field),
    lambda field: pa.map_(pa.string(), field, keys_sorted=True),
    lambda field: pa.dictionary(pa.int16(), field.type),
    lambda field: pa.run_end_encoded(pa.int32(), field.type),
]


def raw_nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    fields = st.builds(pa.field, FIELD_NAMES, inner, st.booleans(), SOME_METADATA)
    wrapped = st.builds(lambda wrap, field: wrap(field), st.sampled_from(WRAPPERS), fields)
    return raw_structs(inner).map(pa.struct) | wrapped


RAW_SCHEMAS = raw_structs(st.recursive(RAW_TYPES, raw_nested, max_leaves=8)).map(pa.schema)


@settings(max_examples=300, deadline=None)
@given(RAW_SCHEMAS)
def test_whatever_was_normalised_goes_to_delta_and_back_unchanged(schema: pa.Schema) -> None:
    normal = normalize(schema)
    assert normalize(normal) is normal
    assert normal.names == schema.names
    assert [field.metadata for field in normal] == [field.metadata for field in schema]
    assert [field.nullable for field in normal] == [field.nullable for field in schema]
    assert same(from_delta_json(to_delta_json(normal)), normal)


@settings(deadline=None)
@given(SCHEMAS)
def test_what_comes_from_delta_is_normal(schema: pa.Schema) -> None:
    back = from_delta_json(to_delta_json(schema))
    assert normalize(back) is back


def test_a_thousand_columns_take_about_a_millisecond() -> None:
    types = list(SIMPLE_TYPES.values())
    schema = pa.schema([pa.field(f"column_{i}", types[i % len(types)], metadata={"comment": "x"}) for i in range(1000)])
    times = []
    for _ in range(20):
        start = time.perf_counter()
        assert normalize(schema) is schema
        times.append(time.perf_counter() - start)
    assert min(times) < 0.003
