"""Which schemas fit a table, what a merge makes of them, and which types hold another."""

import time
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog import SchemaMismatchError
from lakelog.schema import from_delta_json, to_delta_json
from lakelog.schema.evolution.changes import changes_between
from lakelog.schema.evolution.merge import MergeOptions, merge
from lakelog.schema.evolution.widening import can_widen, common, holds
from lakelog.schema.normalize import normalize
from tests.schemas import SIMPLE, schemas

STRICT = MergeOptions()
MERGE = MergeOptions(schema_merge=True)
NO_PROMOTION = MergeOptions(schema_merge=True, promote_types=False)
ANYTHING = MergeOptions(schema_merge=True, promote_to_string=True)

LOCAL_TIME, TIME = pa.timestamp("us"), pa.timestamp("us", "UTC")

WIDENINGS = {
    (pa.int8(), pa.int16()),
    (pa.int8(), pa.int32()),
    (pa.int8(), pa.int64()),
    (pa.int16(), pa.int32()),
    (pa.int16(), pa.int64()),
    (pa.int32(), pa.int64()),
    (pa.int8(), pa.float64()),
    (pa.int16(), pa.float64()),
    (pa.int32(), pa.float64()),
    (pa.float32(), pa.float64()),
    (pa.date32(), LOCAL_TIME),
}
"""Delta's table, without the decimals."""


def schema(**columns: Any) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns.items()])


def differences(table: pa.Schema, incoming: pa.Schema, options: MergeOptions = STRICT, **more: Any) -> dict[str, str]:
    with pytest.raises(SchemaMismatchError) as caught:
        merge(table, incoming, options, **more)
    return {violation.where: violation.message for violation in caught.value.violations}


class TestWidening:
    def test_exactly_deltas_widenings_are_allowed_between_simple_types(self) -> None:
        simple = [kind for kind in SIMPLE if not pa.types.is_decimal(kind)]
        assert {(a, b) for a, b in product(simple, simple) if can_widen(a, b)} == WIDENINGS

    @pytest.mark.parametrize(
        ("source", "target", "allowed"),
        [
            (pa.int32(), pa.decimal128(10, 0), True),
            (pa.int8(), pa.decimal128(10, 0), True),
            (pa.int8(), pa.decimal128(9, 0), False),
            (pa.int32(), pa.decimal128(12, 2), True),
            (pa.int32(), pa.decimal128(11, 2), False),
            (pa.int64(), pa.decimal128(20, 0), True),
            (pa.int64(), pa.decimal128(19, 0), False),
            (pa.decimal128(10, 2), pa.decimal128(11, 2), True),
            (pa.decimal128(10, 2), pa.decimal128(12, 4), True),
            (pa.decimal128(10, 2), pa.decimal128(11, 4), False),
            (pa.decimal128(10, 2), pa.decimal128(10, 2), False),
            (pa.decimal128(10, 2), pa.float64(), False),
            (pa.date32(), TIME, False),
        ],
        ids=str,
    )
    def test_decimals_hold_what_has_no_more_digits_on_either_side(
        self, source: pa.DataType, target: pa.DataType, allowed: bool
    ) -> None:
        assert can_widen(source, target) is allowed

    @pytest.mark.parametrize(
        ("first", "second", "both"),
        [
            (pa.int32(), pa.float32(), pa.float64()),
            (pa.int32(), pa.decimal128(5, 2), pa.decimal128(12, 2)),
            (pa.decimal128(10, 2), pa.decimal128(8, 4), pa.decimal128(12, 4)),
            (pa.int64(), pa.float64(), None),
            (pa.decimal128(38, 0), pa.decimal128(38, 38), None),
            (TIME, LOCAL_TIME, None),
            (pa.bool_(), pa.int8(), None),
        ],
        ids=str,
    )
    def test_the_narrowest_type_for_both_is_found(
        self, first: pa.DataType, second: pa.DataType, both: pa.DataType | None
    ) -> None:
        assert common(first, second) == common(second, first) == both

    @given(st.sampled_from(SIMPLE), st.sampled_from(SIMPLE))
    def test_a_common_type_holds_both(self, first: pa.DataType, second: pa.DataType) -> None:
        both = common(first, second)
        assert both is None or (holds(both, first) and holds(both, second))

    @given(st.sampled_from(SIMPLE), st.sampled_from(SIMPLE), st.sampled_from(SIMPLE))
    def test_widening_has_an_order(self, a: pa.DataType, b: pa.DataType, c: pa.DataType) -> None:
        assert not (can_widen(a, b) and can_widen(b, a))
        if can_widen(a, b) and can_widen(b, c):
            assert can_widen(a, c) or (a == pa.int32() and c == pa.float64()) or pa.types.is_decimal(b)


class TestStrict:
    def test_the_tables_own_object_comes_back_when_nothing_changes(self) -> None:
        table = pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False, metadata={"comment": "key"}),
                ("tags", pa.list_(pa.int64())),
                ("m", pa.map_(pa.string(), pa.struct([("x", pa.int64()), ("y", pa.string())]))),
            ]
        )
        for incoming in (
            table,
            pa.schema(list(table)[::-1]),
            schema(ID=pa.int32(), Tags=pa.list_(pa.int8())),
            schema(id=pa.null(), m=pa.map_(pa.string(), pa.struct([("Y", pa.string())]))),
        ):
            assert merge(table, incoming, STRICT) is table

    def test_every_difference_says_what_is_on_both_sides_and_what_would_allow_it(self) -> None:
        table = schema(a=pa.int32(), b=pa.string(), c=pa.binary())
        found = differences(table, schema(a=pa.int64(), b=pa.int8(), c=pa.string(), d=pa.bool_()))
        assert found == {
            "a": "the table has int32, the data has int64; schema_merge=True would allow it",
            "b": "the table has string, the data has int8; promote_to_string=True would allow it",
            "c": "the table has binary, the data has string, and not every binary has a text to be read back from",
            "d": "the table has no such column, the data has bool; schema_merge=True would allow it",
        }

    def test_the_options_that_are_missing_are_named_and_no_others(self) -> None:
        table, wider, other = schema(a=pa.int32()), schema(a=pa.int64()), schema(a=pa.bool_())
        assert "; promote_types=True would allow it" in differences(table, wider, NO_PROMOTION)["a"]
        off = MergeOptions(promote_types=False)
        assert "; schema_merge=True and promote_types=True would" in differences(table, wider, off)["a"]
        assert "; promote_to_string=True would allow it" in differences(table, other, MERGE)["a"]

    def test_a_missing_column_that_is_not_null_is_a_difference(self) -> None:
        table = pa.schema([pa.field("a", pa.int8(), nullable=False), ("b", pa.int8())])
        assert differences(table, schema(b=pa.int8())).keys() == {"a"}


class TestMerge:
    def test_new_columns_come_last_and_nullable_at_every_depth(self) -> None:
        inner = pa.struct([("x", pa.int32())])
        table = schema(s=inner, tags=pa.list_(inner), m=pa.map_(pa.string(), inner))
        wide = pa.struct([pa.field("new", pa.string(), nullable=False), ("x", pa.int32())])
        incoming = pa.schema(
            [
                pa.field("first", pa.int8(), nullable=False, metadata={"comment": "kept", "delta.identity.start": "1"}),
                ("m", pa.map_(pa.string(), wide)),
                ("tags", pa.list_(wide)),
                ("s", wide),
            ]
        )
        merged = merge(table, incoming, MERGE)
        both = pa.struct([("x", pa.int32()), ("new", pa.string())])
        assert merged == pa.schema(
            [("s", both), ("tags", pa.list_(both)), ("m", pa.map_(pa.string(), both)), ("first", pa.int8())]
        )
        assert merged.field("first").metadata == {b"comment": b"kept"}

    def test_the_key_of_a_map_gets_no_new_fields(self) -> None:
        table = schema(m=pa.map_(pa.struct([("x", pa.int32())]), pa.int8()))
        incoming = schema(m=pa.map_(pa.struct([("x", pa.int32()), ("y", pa.int8())]), pa.int8()))
        assert differences(table, incoming, ANYTHING).keys() == {"m.key.y"}

    def test_a_new_column_needs_a_type(self) -> None:
        for kind in (pa.null(), pa.list_(pa.null()), pa.struct([("x", pa.null())])):
            assert differences(schema(a=pa.int8()), schema(b=kind), ANYTHING).keys() == {"b"}

    def test_nullability_only_loosens(self) -> None:
        tight = pa.schema(
            [pa.field("a", pa.list_(pa.field("item", pa.int8(), False)), False), pa.field("b", pa.int8(), False)]
        )
        loose = schema(a=pa.list_(pa.int8()))
        merged = merge(tight, loose, MERGE)
        assert merged.field("a").nullable
        assert merged.field("a").type.value_field.nullable
        assert merged.field("b").nullable
        assert merge(loose, tight.remove(1), MERGE) is loose

    def test_widening_is_noted_where_delta_looks_for_it(self) -> None:
        table = schema(
            a=pa.int8(), s=pa.struct([("tags", pa.list_(pa.map_(pa.int32(), pa.float32())))]), same=pa.string()
        )
        incoming = schema(a=pa.int16(), s=pa.struct([("tags", pa.list_(pa.map_(pa.int64(), pa.float64())))]))
        fields = {field.name: field for field in merge(table, incoming, MERGE)}
        assert _noted(fields["a"], "delta.typeChanges") == [{"fromType": "byte", "toType": "short"}]
        assert fields["s"].metadata is None
        assert _noted(fields["s"].type.field("tags"), "delta.typeChanges") == [
            {"fromType": "integer", "toType": "long", "fieldPath": "element.key"},
            {"fromType": "float", "toType": "double", "fieldPath": "element.value"},
        ]
        assert fields["same"].metadata is None

    def test_a_promotion_to_string_is_noted(self) -> None:
        table = schema(a=pa.struct([("x", pa.int8())]), tags=pa.list_(pa.bool_()))
        merged = merge(table, schema(a=pa.list_(pa.int8()), tags=pa.list_(pa.date32())), ANYTHING)
        assert merged == schema(a=pa.string(), tags=pa.list_(pa.string()))
        (note,) = _noted(merged.field("a"), "lakelog.promotedFrom")
        assert note["fromType"]["type"] == "struct"
        assert note["incomingType"]["type"] == "array"
        assert _noted(merged.field("tags"), "lakelog.promotedFrom") == [
            {"fromType": "boolean", "incomingType": "date", "fieldPath": "element"}
        ]
        assert [(change.path, change.what) for change in changes_between(table, merged)] == [
            ("a", "promoted"),
            ("tags.element", "promoted"),
        ]

    def test_a_promotion_ends_the_widenings_before_it_and_adds_to_the_promotions(self) -> None:
        first = merge(
            schema(a=pa.list_(pa.int8()), m=pa.map_(pa.int8(), pa.int8())), schema(a=pa.list_(pa.int16())), MERGE
        )
        assert _noted(first.field("a"), "delta.typeChanges")
        second = merge(first, schema(a=pa.list_(pa.bool_()), m=pa.map_(pa.int8(), pa.bool_())), ANYTHING)
        assert _noted(second.field("a"), "delta.typeChanges") is None
        third = merge(second, schema(m=pa.map_(pa.bool_(), pa.string())), ANYTHING)
        assert [note["fieldPath"] for note in _noted(third.field("m"), "lakelog.promotedFrom")] == ["value", "key"]

    def test_a_missing_type_is_named_where_it_is_missing(self) -> None:
        assert differences(schema(a=pa.int8()), schema(a=pa.list_(pa.null())), ANYTHING).keys() == {"a"}

    def test_binary_never_becomes_text(self) -> None:
        assert differences(schema(a=pa.int8()), schema(a=pa.binary()), ANYTHING).keys() == {"a"}

    def test_a_partition_column_keeps_its_type(self) -> None:
        found = differences(schema(k=pa.int8()), schema(K=pa.int16()), ANYTHING, partition_columns=["k"])
        assert "partition column" in found["k"]


@given(schemas(), schemas())
@settings(deadline=None)
def test_a_merge_keeps_every_column_never_narrows_and_is_idempotent(table: pa.Schema, incoming: pa.Schema) -> None:
    try:
        merged = merge(table, normalize(incoming), ANYTHING)
    except SchemaMismatchError:
        return
    assert merged.names[: len(table)] == table.names, "names, order and case stay"
    assert {name.lower() for name in merged.names} == {name.lower() for name in [*table.names, *incoming.names]}
    for side in (table, incoming):
        _check_wider(side, merged)
    assert merge(merged, incoming, ANYTHING) is merged
    assert merge(merged, table, ANYTHING) is merged
    assert from_delta_json(to_delta_json(merged)).equals(merged, check_metadata=True)
    assert (changes_between(table, merged) == ()) == merged.equals(table)


@given(schemas(), schemas())
@settings(deadline=None)
def test_strict_lets_pass_exactly_what_a_merge_leaves_as_it_is(table: pa.Schema, incoming: pa.Schema) -> None:
    try:
        assert merge(table, incoming, STRICT) is table
    except SchemaMismatchError:
        try:
            merged = merge(table, incoming, MERGE)
        except SchemaMismatchError:
            return
        assert changes_between(table, merged)
    else:
        changes = changes_between(table, merge(table, incoming, MERGE))
        assert {change.what for change in changes} <= {"nullability"}, "declared nullability loosens with a merge only"


def test_a_schema_of_a_thousand_columns_is_checked_in_two_milliseconds() -> None:
    kinds = [*SIMPLE, pa.list_(pa.int32()), pa.struct([("a", pa.int32()), ("b", pa.string())])]
    fields = [pa.field(f"column_{n}", kinds[n % len(kinds)], n % 3 > 0, {"comment": "x"}) for n in range(1000)]
    table = pa.schema(fields)
    same = pa.schema([field.remove_metadata() for field in fields])
    seconds = []
    for _ in range(20):
        started = time.thread_time()
        assert merge(table, normalize(same), STRICT) is table
        seconds.append(time.thread_time() - started)
    assert min(seconds) < 0.002


def _check_wider(narrow: Any, wide: Any) -> None:
    """Every type of one schema, struct or list has a wider one or the same, or text, in the other."""
    if isinstance(wide, pa.DataType) and pa.types.is_string(wide):
        return
    if isinstance(narrow, pa.Schema) or pa.types.is_struct(narrow):
        by_name = {field.name.lower(): field for field in wide}
        for field in narrow:
            other = by_name[field.name.lower()]
            assert other.nullable or not field.nullable
            _check_wider(field.type, other.type)
    elif pa.types.is_list(narrow):
        _check_wider(narrow.value_type, wide.value_type)
    elif pa.types.is_map(narrow):
        _check_wider(narrow.key_type, wide.key_type)
        _check_wider(narrow.item_type, wide.item_type)
    else:
        assert holds(wide, narrow)


def _noted(field: pa.Field, key: str) -> Any:
    from lakelog.schema.field_metadata import to_json_object

    return to_json_object(field.metadata or {}).get(key)
