"""Adding, widening, loosening and commenting columns, and any sequence of changes."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.errors import ValidationError
from lakelog.schema import from_delta_json, join_path, to_delta_json
from lakelog.schema.evolution.alter import (
    Layout,
    add_column,
    drop_column,
    make_nullable,
    rename_column,
    set_comment,
    widen_column,
)
from lakelog.schema.mapping import MAX_ID, MODE, is_mapped, with_mapping
from tests.fixtures.layouts import (
    ID,
    MAPPED,
    PARENTS,
    PHYSICAL,
    PLAIN,
    SCHEMA,
    TAG,
    all_names,
    field_at,
    metadata,
    refusal,
    with_properties,
)

# Adding


@pytest.mark.parametrize("parent", PARENTS)
@pytest.mark.parametrize("layout", [PLAIN, MAPPED], ids=["plain", "mapped"])
def test_a_column_is_added_last(layout: Layout, parent: str) -> None:
    after = add_column(layout, f"{parent.upper()}New", pa.string(), comment="fresh")
    new = field_at(after, f"{parent}New")
    assert (new.type, new.nullable, metadata(after, f"{parent}New")["comment"]) == (pa.string(), True, "fresh")
    siblings = field_at(after, parent[:-1]).type if parent else after.schema
    assert siblings[-1].name == "New"
    assert [name for name in all_names(after) if name != "New"] == all_names(layout)
    assert after.partition_columns == layout.partition_columns


def test_adding_leaves_the_other_columns_alone() -> None:
    after = add_column(PLAIN, "new", pa.int8())
    assert pa.schema(list(after.schema)[:-1]).equals(SCHEMA, check_metadata=True)
    assert after.configuration == PLAIN.configuration


def test_a_column_of_an_unmapped_table_gets_no_physical_name() -> None:
    assert metadata(add_column(PLAIN, "new", pa.int8()), "new") == {}


def test_a_column_of_a_mapped_table_gets_the_next_id_and_a_name_of_its_own() -> None:
    before = int(MAPPED.configuration[MAX_ID])
    after = add_column(MAPPED, "new", pa.struct([("x", pa.list_(pa.struct([("y", pa.int8())])))]))
    paths = ["new", "new.x", "new.x.element.y"]
    assert [metadata(after, path)[ID] for path in paths] == [before + 1, before + 2, before + 3]
    assert all(metadata(after, path)[PHYSICAL].startswith("col-") for path in paths)
    assert after.configuration == {**MAPPED.configuration, MAX_ID: str(before + 3)}


def test_an_added_type_is_what_the_table_will_give_back() -> None:
    kind = pa.list_(pa.field("element", pa.timestamp("us", "Europe/Berlin"), metadata={"x": "y"}))
    after = add_column(PLAIN, "new", kind)
    assert after.schema.field("new").type.value_field == pa.field("item", pa.timestamp("us", "UTC"))


def test_an_added_type_brings_nothing_from_its_old_table() -> None:
    foreign = pa.struct([pa.field("x", pa.int8(), metadata={ID: "json:1", PHYSICAL: "id", "comment": "kept"})])
    after = add_column(MAPPED, "new", foreign)
    assert metadata(after, "new.x")[ID] == int(MAPPED.configuration[MAX_ID]) + 2
    assert metadata(after, "new.x")[PHYSICAL].startswith("col-")
    assert metadata(after, "new.x")["comment"] == "kept"


@pytest.mark.parametrize(
    ("name", "kind", "part"),
    [
        ("ID", pa.int8(), "as 'id'"),
        ("id", pa.int8(), "already"),
        ("s.weight", pa.int8(), "as 'Weight'"),
        ("tags.element.LABEL", pa.int8(), "as 'label'"),
        ("tags.new", pa.int8(), "did you mean a field of tags.element?"),
        ("m.new", pa.int8(), "a field of m.key or m.value"),
        ("m.key.new", pa.int8(), "a map's keys cannot get new fields"),
        ("id.new", pa.int8(), "id is not a struct but int32"),
        ("t.new", pa.int8(), "no such column"),
        ("new", pa.uint64(), "Delta has no type"),
        ("s.new", pa.list_(pa.uint8()), "s.new.element: Delta has no type"),
        ("a b", pa.int8(), "only with column mapping"),
        ("new", pa.struct([("x", pa.int8()), ("X", pa.int8())]), "differs only in case"),
        ("a..b", pa.int8(), "cannot be read as a column name"),
        ("\ud800", pa.int8(), "surrogate"),
    ],
)
def test_what_cannot_be_added_is_refused(name: str, kind: pa.DataType, part: str) -> None:
    assert part in refusal(add_column, PLAIN, name, kind)


def test_a_mapped_table_takes_any_name() -> None:
    assert add_column(MAPPED, "a b", pa.int8()).schema.names[-1] == "a b"
    assert add_column(MAPPED, "`a.b`", pa.int8()).schema.names[-1] == "a.b"


def test_a_new_column_cannot_be_not_null() -> None:
    assert "add it nullable" in refusal(add_column, PLAIN, "new", pa.int8(), nullable=False)


def test_a_new_columns_comment_is_text() -> None:
    assert "expected text or None" in refusal(add_column, PLAIN, "new", pa.int8(), comment=4)


# Widening


@pytest.mark.parametrize("parent", PARENTS[1:])
def test_a_widened_column_tells_what_it_was(parent: str) -> None:
    after = widen_column(widen_column(PLAIN, f"{parent}label", pa.int16()), f"{parent}LABEL", pa.int64())
    field = field_at(after, f"{parent}label")
    assert (field.type, field.nullable) == (pa.int64(), False)
    assert metadata(after, f"{parent}label") == {
        "own": "yes",
        "delta.typeChanges": [{"fromType": "byte", "toType": "short"}, {"fromType": "short", "toType": "long"}],
    }
    assert after.configuration == {"a": "b", "delta.enableTypeWidening": "true"}
    assert all_names(after) == all_names(PLAIN)


@pytest.mark.parametrize(
    ("name", "source", "target", "column", "steps"),
    [
        ("v", pa.list_(pa.int8()), pa.int16(), "v", "element"),
        ("v.element", pa.list_(pa.list_(pa.int8())), pa.int16(), "v", "element.element"),
        ("v.element.x", pa.list_(pa.struct([("x", pa.list_(pa.int8()))])), pa.int16(), "v.element.x", "element"),
    ],
)
def test_a_widened_element_is_noted_on_the_nearest_column(
    name: str, source: pa.DataType, target: pa.DataType, column: str, steps: str
) -> None:
    layout = Layout(pa.schema([("v", source)]), {}, ())
    after = widen_column(layout, f"{name}.element", target)
    assert field_at(after, f"{name}.element").type == target
    assert metadata(after, column)["delta.typeChanges"] == [{"fromType": "byte", "toType": "short", "fieldPath": steps}]


@pytest.mark.parametrize("part", ["key", "value"])
def test_keys_and_values_can_be_widened(part: str) -> None:
    layout = Layout(pa.schema([("m", pa.list_(pa.map_(pa.decimal128(5, 2), pa.decimal128(5, 2))))]), {}, ())
    after = widen_column(layout, f"m.element.{part}", pa.decimal128(7, 3))
    assert field_at(after, f"m.element.{part}").type == pa.decimal128(7, 3)
    assert metadata(after, "m")["delta.typeChanges"] == [
        {"fromType": "decimal(5,2)", "toType": "decimal(7,3)", "fieldPath": f"element.{part}"}
    ]


def test_widening_to_the_same_type_changes_nothing() -> None:
    assert widen_column(PLAIN, "id", pa.int32()) is PLAIN
    assert widen_column(PLAIN, "day", pa.date32()) is PLAIN
    assert widen_column(PLAIN, "s", TAG) is PLAIN


@pytest.mark.parametrize(
    ("source", "target", "part"),
    [
        (pa.int32(), pa.int16(), "could become int64 or double or a decimal128 with 10 or more digits"),
        (pa.int64(), pa.float64(), "could become a decimal128 with 20 or more digits"),
        (pa.float32(), pa.int64(), "could become double"),
        (pa.date32(), pa.timestamp("us", "UTC"), "could become timestamp[us]"),
        (pa.decimal128(5, 2), pa.decimal128(6, 4), "3 or more digits before the point and 2 after it"),
        (pa.decimal128(38, 2), pa.decimal128(38, 3), "add a column of the other type"),
        (pa.float64(), pa.string(), "add a column of the other type"),
        (pa.struct([("x", pa.int8())]), pa.struct([("x", pa.int16())]), "add a column of the other type"),
    ],
)
def test_what_would_lose_values_is_refused(source: pa.DataType, target: pa.DataType, part: str) -> None:
    said = refusal(widen_column, Layout(pa.schema([("a", source)]), {}, ()), "a", target)
    assert f"cannot go from {source} to {target}" in said
    assert part in said


def test_a_partition_column_keeps_its_type() -> None:
    assert "day: is a partition column" in refusal(widen_column, PLAIN, "DAY", pa.timestamp("us"))


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_a_table_for_iceberg_is_widened_only_as_iceberg_can(version: str) -> None:
    layout = with_properties(PLAIN, **{f"enableIcebergCompat{version}": "true"})
    assert "Iceberg" in refusal(widen_column, layout, "id", pa.float64())
    assert "Iceberg" in refusal(widen_column, layout, "s.label", pa.decimal128(10, 0))
    assert field_at(widen_column(layout, "id", pa.int64()), "id").type == pa.int64()
    assert field_at(widen_column(layout, "s.Weight", pa.float64()), "s.Weight").type == pa.float64()


# Nullability and comments


@pytest.mark.parametrize("name", ["id", "s.label", "tags.element.label", "m.value.label", "tags.element", "m.value"])
def test_not_null_can_be_taken_away(name: str) -> None:
    after = make_nullable(PLAIN, name.upper())
    assert field_at(after, name).nullable
    assert field_at(after, name).metadata == field_at(PLAIN, name).metadata
    assert all_names(after) == all_names(PLAIN)
    assert make_nullable(after, name) is after


def test_keys_are_never_null() -> None:
    assert "never null" in refusal(make_nullable, PLAIN, "m.key")


@pytest.mark.parametrize("name", ["id", "s.label", "tags.element.label", "m.value.label", "m.key.label"])
@pytest.mark.parametrize("text", ["a note", "", "json:4", "ünï\n"])
def test_comments_come_and_go(name: str, text: str) -> None:
    after = set_comment(PLAIN, name.upper(), text)
    assert metadata(after, name) == {**metadata(PLAIN, name), "comment": text}
    assert set_comment(after, name, text) is after
    gone = set_comment(after, name, None)
    assert "comment" not in metadata(gone, name)
    assert set_comment(gone, name, None) is gone


@pytest.mark.parametrize(
    ("name", "comment", "part"),
    [
        ("id", 4, "expected text or None as comment, found int 4"),
        ("id", b"x", "expected text or None"),
        ("id", "\ud800", "surrogate"),
        ("tags.element", "x", "cannot be commented on"),
    ],
)
def test_what_is_no_comment_is_refused(name: str, comment: Any, part: str) -> None:
    assert part in refusal(set_comment, PLAIN, name, comment)


# Any sequence of changes


TYPES = [
    pa.int8(),
    pa.string(),
    pa.struct([("a", pa.int8()), ("b", pa.string())]),
    pa.list_(pa.struct([("a", pa.int8())])),
    pa.map_(pa.string(), pa.struct([("a", pa.date32())])),
]
NAMES = st.sampled_from(["a", "B", "c", "id", "s"])


def paths(fields: Any, parent: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Every column's path, with the steps through lists and maps."""
    found = []
    for field in fields:
        path, kind = (*parent, field.name), field.type
        found.append(path)
        while pa.types.is_list(kind) or pa.types.is_map(kind):
            path, kind = (
                ((*path, "element"), kind.value_type) if pa.types.is_list(kind) else ((*path, "value"), kind.item_type)
            )
        if pa.types.is_struct(kind):
            found += paths(kind, path)
    return found


def changed(layout: Layout, data: st.DataObject) -> Layout:
    path = data.draw(st.sampled_from(paths(layout.schema)))
    beside = join_path([*path[:-1], data.draw(NAMES)])
    change = data.draw(
        st.sampled_from(
            [
                lambda: add_column(layout, beside, data.draw(st.sampled_from(TYPES))),
                lambda: widen_column(layout, join_path(path), data.draw(st.sampled_from([pa.int16(), pa.int64()]))),
                lambda: make_nullable(layout, join_path(path)),
                lambda: set_comment(layout, join_path(path), data.draw(st.sampled_from([None, "x"]))),
                lambda: rename_column(layout, join_path(path), data.draw(NAMES)),
                lambda: drop_column(layout, join_path(path)),
            ]
        )
    )
    try:
        return change()
    except ValidationError:
        return layout


def physical(schema: pa.Schema) -> dict[int, tuple[str, ...]]:
    """Ids with their physical paths."""
    found = [(metadata(Layout(schema, {}, ()), ".".join(path)), path) for path in paths(schema)]
    names = {path: said[PHYSICAL] for said, path in found}
    return {said[ID]: tuple(names.get(path[: end + 1], path[end]) for end in range(len(path))) for said, path in found}


@settings(max_examples=100, deadline=None)
@given(st.booleans(), st.data())
def test_ids_and_physical_names_are_never_used_twice(mapped: bool, data: st.DataObject) -> None:
    schema = pa.schema([("id", pa.int8()), ("day", pa.date32()), ("v", data.draw(st.sampled_from(TYPES)))])
    layout = Layout(*(with_mapping(schema, {}) if mapped else (schema, {})), ("day",))
    seen: dict[int, tuple[str, ...]] = {}
    largest = 0
    for _ in range(data.draw(st.integers(1, 12))):
        layout = changed(layout, data)
        text = to_delta_json(layout.schema, column_mapping=True)
        assert from_delta_json(text, column_mapping=True).equals(layout.schema, check_metadata=True)
        assert set(layout.partition_columns) <= set(layout.schema.names)
        if not is_mapped(layout.configuration):
            continue
        now = physical(layout.schema)
        assert len(now) == len(paths(layout.schema))
        assert len(set(now.values())) == len(now)
        new = now.keys() - seen.keys()
        assert all(seen[known] == now[known] for known in now.keys() - new)
        assert not {now[column_id] for column_id in new} & set(seen.values())
        assert not seen or all(column_id > largest for column_id in new)
        assert largest <= int(layout.configuration[MAX_ID]) >= max(now)
        largest = int(layout.configuration[MAX_ID])
        seen |= now
    assert layout.configuration.get(MODE) in {None, "name"}
