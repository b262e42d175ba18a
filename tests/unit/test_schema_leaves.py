import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import ValidationError
from lakelog.schema import Leaf, indexed_leaves, join_path, leaf_columns, parse_path

NESTED = pa.schema(
    [
        ("id", pa.int64()),
        ("s", pa.struct([("x", pa.int8()), ("t", pa.struct([("y", pa.string())])), ("l", pa.list_(pa.int8()))])),
        ("m", pa.map_(pa.string(), pa.int8())),
        ("a.b", pa.struct([("c`d", pa.date32())])),
        ("e", pa.struct([])),
        ("day", pa.date32()),
    ]
)


def names(leaves: tuple[Leaf, ...]) -> list[str]:
    return [leaf.name for leaf in leaves]


def wide(columns: int) -> pa.Schema:
    return pa.schema([(f"c{i}", pa.int64()) for i in range(columns)])


def test_leaves_come_in_schema_order_and_only_from_structs() -> None:
    assert leaf_columns(NESTED) == (
        Leaf(("id",), "id", pa.int64()),
        Leaf(("s", "x"), "s.x", pa.int8()),
        Leaf(("s", "t", "y"), "s.t.y", pa.string()),
        Leaf(("a.b", "c`d"), "`a.b`.`c``d`", pa.date32()),
        Leaf(("day",), "day", pa.date32()),
    )


@pytest.mark.parametrize(
    "type",
    [
        pa.list_(pa.int8()),
        pa.large_list(pa.int8()),
        pa.list_(pa.struct([("x", pa.int8())])),
        pa.map_(pa.int8(), pa.int8()),
    ],
    ids=str,
)
def test_lists_and_maps_have_no_leaves(type: pa.DataType) -> None:
    assert leaf_columns(pa.schema([("a", type)])) == ()


@pytest.mark.parametrize("type", [pa.bool_(), pa.binary(), pa.decimal128(5, 2), pa.timestamp("us", tz="UTC")], ids=str)
def test_every_simple_type_is_a_leaf(type: pa.DataType) -> None:
    assert leaf_columns(pa.schema([("a", type)])) == (Leaf(("a",), "a", type),)


def test_a_leaf_cannot_be_changed_and_can_be_a_key() -> None:
    (leaf,) = leaf_columns(wide(1))
    with pytest.raises(AttributeError):
        leaf.name = "other"  # type: ignore[misc]
    assert {leaf: 1}[Leaf(("c0",), "c0", pa.int64())] == 1


def test_the_first_32_leaves_are_indexed() -> None:
    assert indexed_leaves(wide(40), []) == leaf_columns(wide(40))[:32]


def test_nested_leaves_count_one_by_one() -> None:
    assert names(indexed_leaves(NESTED, [], limit=3)) == ["id", "s.x", "s.t.y"]


def test_partition_columns_are_indexed_on_top_of_the_limit_in_schema_order() -> None:
    assert names(indexed_leaves(NESTED, ["day"], limit=1)) == ["id", "day"]
    assert names(indexed_leaves(wide(40), ["c35", "c0"], limit=2)) == ["c0", "c1", "c2", "c35"]


def test_a_limit_of_zero_leaves_the_partition_columns() -> None:
    assert names(indexed_leaves(wide(40), ["c39"], limit=0)) == ["c39"]


def test_a_negative_limit_is_none() -> None:
    assert indexed_leaves(wide(40), [], limit=-1) == leaf_columns(wide(40))


def test_a_partition_column_is_named_plainly_even_with_a_dot() -> None:
    schema = pa.schema([("a", pa.struct([("b", pa.int8())])), ("a.b", pa.int8())])
    assert [leaf.path for leaf in indexed_leaves(schema, ["a.b"], limit=0)] == [("a.b",)]


def test_unknown_and_nested_partition_columns_are_refused_together() -> None:
    with pytest.raises(ValidationError) as error:
        indexed_leaves(NESTED, ["day", "nope", "s", "s.x", "m"])
    assert [violation.where for violation in error.value.violations] == ["nope", "s", "`s.x`", "m"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (("a",), "a"),
        (("a", "b", "c"), "a.b.c"),
        (("a b", "日本", "😀"), "a b.日本.😀"),
        (("a.b",), "`a.b`"),
        (("a.b", "c"), "`a.b`.c"),
        (("a`b",), "`a``b`"),
        (("`",), "````"),
        (("``", "x"), "``````.x"),
        ((".",), "`.`"),
        (("", "x"), "``.x"),
        (("a\nb",), "a\nb"),
    ],
)
def test_a_path_and_its_name(path: tuple[str, ...], name: str) -> None:
    assert join_path(path) == name
    assert parse_path(name) == path


def test_needless_backticks_are_understood() -> None:
    assert parse_path("`a`.`b`") == ("a", "b")


@pytest.mark.parametrize(
    "name", ["", ".", "a.", ".a", "a..b", "`a", "a`", "a`b", "`a`b", "`", "```", "`a``", "`a`.", "a.`"]
)
def test_a_name_that_is_no_path_is_refused(name: str) -> None:
    with pytest.raises(ValidationError) as error:
        parse_path(name)
    assert error.value.violations[0].where == repr(name)


@given(st.lists(st.text(st.sampled_from("a`.é ") | st.characters(), max_size=6), min_size=1, max_size=5))
def test_parsing_undoes_joining(path: list[str]) -> None:
    assert parse_path(join_path(path)) == tuple(path)


@given(st.text(st.sampled_from("a`."), max_size=10))
def test_every_name_either_parses_to_a_path_or_is_refused(name: str) -> None:
    try:
        path = parse_path(name)
    except ValidationError:
        return
    assert parse_path(join_path(path)) == path
