"""Column mapping: ids, physical names, and what a field leaves behind when it comes from another table."""

import pyarrow as pa
import pytest

from lakelog.errors import ValidationError
from lakelog.schema import from_delta_json, to_delta_json
from lakelog.schema.field_metadata import to_json_object
from lakelog.schema.mapping import (
    MAX_ID,
    MODE,
    columns,
    is_mapped,
    name_new_columns,
    physical_schema,
    with_mapping,
    without_mapping,
)

ID, PHYSICAL = "delta.columnMapping.id", "delta.columnMapping.physicalName"
POINT = pa.struct([pa.field("x", pa.int8(), nullable=False), ("y", pa.int8())])
NESTED = pa.schema(
    [
        pa.field("id", pa.int64(), False, {"comment": "the key"}),
        ("s", POINT),
        ("l", pa.list_(pa.field("item", pa.list_(POINT), False))),
        ("m", pa.map_(pa.struct([("k", pa.int8())]), pa.field("value", POINT, False))),
    ]
)
NAMES = ["id", "s", "x", "y", "l", "x", "y", "m", "k", "x", "y"]


def mapped(name: str, kind: pa.DataType, column_id: int, physical: str) -> pa.Field:
    return pa.field(name, kind, metadata={ID: f"json:{column_id}", PHYSICAL: physical})


def ids(schema: pa.Schema) -> list[int]:
    return [to_json_object(column.metadata)[ID] for column in columns(schema)]


def physical_names(schema: pa.Schema) -> list[str]:
    return [to_json_object(column.metadata)[PHYSICAL] for column in columns(schema)]


@pytest.mark.parametrize(("mode", "expected"), [(None, False), ("none", False), ("name", True), ("id", True)])
def test_a_table_is_mapped_by_its_property(mode: str | None, expected: bool) -> None:
    assert is_mapped({} if mode is None else {MODE: mode}) is expected


def test_columns_are_the_fields_of_structs_at_any_depth() -> None:
    assert [column.name for column in columns(NESTED)] == NAMES


def test_physical_names_reach_into_structs_lists_and_maps() -> None:
    def struct(physical: str) -> pa.DataType:
        return pa.struct([mapped("x", pa.int8(), 9, physical)])

    schema = pa.schema(
        [
            mapped("s", struct("s-x"), 1, "c-s"),
            mapped("l", pa.list_(pa.list_(struct("l-x"))), 2, "c-l"),
            mapped("m", pa.map_(struct("k-x"), pa.list_(struct("v-x"))), 3, "c-m"),
        ]
    )
    found = physical_schema(schema)
    assert [column.name for column in columns(found)] == ["c-s", "s-x", "c-l", "l-x", "c-m", "k-x", "v-x"]
    assert found.field("c-l").type.value_type.value_type.field(0).metadata[PHYSICAL.encode()] == b"l-x"


def test_physical_names_change_nothing_else() -> None:
    schema, _ = with_mapping(NESTED, {})
    assert physical_schema(schema).equals(schema, check_metadata=True)
    assert physical_schema(schema).equals(NESTED)


def test_a_physical_name_that_looks_like_marked_json_is_read_back() -> None:
    schema, _ = with_mapping(pa.schema([("json:4", pa.int8())]), {})
    assert physical_schema(schema).names == ["json:4"]
    assert physical_names(schema) == ["json:4"]


def test_switching_on_keeps_the_names_and_numbers_every_column() -> None:
    schema, configuration = with_mapping(NESTED, {"a": "b"})
    assert physical_names(schema) == NAMES
    assert ids(schema) == list(range(1, 12))
    assert configuration == {"a": "b", MODE: "name", MAX_ID: "11"}
    assert schema.equals(NESTED)
    assert schema.field("id").metadata[b"comment"] == b"the key"


def test_ids_are_numbers_in_delta() -> None:
    schema, _ = with_mapping(NESTED, {})
    text = to_delta_json(schema, column_mapping=True)
    assert f'"{ID}":4' in text.replace(" ", "")
    assert from_delta_json(text, column_mapping=True).equals(schema, check_metadata=True)


def test_switching_on_forgets_what_an_unmapped_table_says_about_mapping_but_not_its_ids() -> None:
    stale = pa.schema([mapped("a", pa.int8(), 7, "elsewhere"), ("b", pa.int8())])
    schema, configuration = with_mapping(stale, {MODE: "none"})
    assert physical_names(schema) == ["a", "b"]
    assert ids(schema) == [8, 9]
    assert configuration == {MODE: "name", MAX_ID: "9"}


def test_switching_on_twice_changes_nothing() -> None:
    once = with_mapping(NESTED, {})
    twice = with_mapping(*once)
    assert twice[0].equals(once[0], check_metadata=True)
    assert twice[1] == once[1]


def test_new_columns_of_a_mapped_table_get_new_names_and_ids() -> None:
    schema, configuration = with_mapping(pa.schema([("a", pa.int8())]), {})
    grown, after = name_new_columns(schema.append(pa.field("l", pa.list_(POINT))), configuration)
    assert ids(grown) == [1, 2, 3, 4]
    first, *new = physical_names(grown)
    assert first == "a"
    assert len({*new}) == 3
    assert all(name.startswith("col-") and len(name) == 40 for name in new)
    assert after == {MODE: "name", MAX_ID: "4"}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_the_largest_id_only_grows(mode: str) -> None:
    schema = pa.schema([mapped("a", pa.int8(), 3, "a"), ("b", pa.int8())])
    grown, configuration = name_new_columns(schema, {MODE: mode, MAX_ID: "40"})
    assert ids(grown) == [3, 41]
    assert configuration == {MODE: mode, MAX_ID: "41"}


def test_ids_inside_lists_and_maps_are_not_used_again() -> None:
    field = pa.field(
        "l", pa.list_(pa.int8()), metadata={ID: "json:1", "delta.columnMapping.nested.ids": 'json:{"l":9}'}
    )
    grown, configuration = name_new_columns(pa.schema([field, ("b", pa.int8())]), {MODE: "name", MAX_ID: "1"})
    assert ids(grown) == [1, 10]
    assert configuration[MAX_ID] == "10"


def test_nothing_is_named_in_a_table_that_is_not_mapped() -> None:
    assert name_new_columns(NESTED, {"a": "b"}) == (NESTED, {"a": "b"})


@pytest.mark.parametrize(
    ("schema", "configuration"),
    [
        (NESTED, {MODE: "name", MAX_ID: "many"}),
        (pa.schema([pa.field("a", pa.int8(), metadata={ID: "4"})]), {MODE: "name", MAX_ID: "4"}),
    ],
)
def test_an_id_that_is_no_number_is_refused(schema: pa.Schema, configuration: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="whole number"):
        name_new_columns(schema, configuration)


BOUND = {
    ID: "json:1",
    PHYSICAL: "a",
    "delta.typeChanges": "json:[]",
    "delta.generationExpression": "b + 1",
    "lakelog.promotedFrom": "json:[]",
    "parquet.field.id": "json:1",
    "PARQUET:field_id": "1",
    "CURRENT_DEFAULT": "1",
    "EXISTS_DEFAULT": "1",
    "__CHAR_VARCHAR_TYPE_STRING": "char(3)",
}
OWN = {"comment": "mine", "deltas": "mine too"}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda kind: kind,
        pa.list_,
        pa.large_list,
        pa.list_view,
        pa.large_list_view,
        lambda kind: pa.list_(kind, 3),
        lambda kind: pa.map_(pa.string(), kind),
        lambda kind: pa.map_(kind, pa.string(), keys_sorted=True),
        lambda kind: pa.struct([pa.field("deep", kind, False, {**BOUND, **OWN})]),
    ],
)
def test_a_field_from_elsewhere_leaves_its_tables_metadata_behind(wrap: object) -> None:
    inner = pa.struct([pa.field("x", pa.int8(), False, {**BOUND, **OWN})])
    field = pa.field("a", wrap(inner), False, {**BOUND, **OWN})  # type: ignore[operator]
    found = without_mapping(field)
    assert found.equals(field)
    for column in columns([found]):
        assert to_json_object(column.metadata) == OWN


def test_an_element_leaves_its_metadata_behind_too() -> None:
    field = pa.field("a", pa.list_(pa.field("item", pa.int8(), metadata={"PARQUET:field_id": "3"})))
    assert not without_mapping(field).type.value_field.metadata
    assert not without_mapping(pa.field("a", pa.int8(), metadata=BOUND)).metadata
