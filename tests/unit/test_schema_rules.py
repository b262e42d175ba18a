"""Which rules a table has, and which columns they are about."""

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakelog.errors import SchemaMismatchError, ValidationError
from lakelog.schema.evolution.alter import Layout, add_column, drop_column, rename_column, widen_column
from lakelog.schema.evolution.merge import MergeOptions, merge
from lakelog.schema.rules import Check, constraint_key, is_filled, rules_of, users_of, with_rules

SCHEMA = pa.schema(
    [("id", pa.int64()), ("day", pa.date32()), ("place", pa.struct([("x", pa.int32()), ("y z", pa.int32())]))]
)


LONG = pa.int64()


def told(name: str, kind: pa.DataType = LONG, **metadata: Any) -> pa.Field:
    return pa.field(name, kind, metadata={key.replace("_", ".", 1): value for key, value in metadata.items()})


def test_each_kind_of_rule_is_found_where_delta_keeps_it() -> None:
    invariant = json.dumps({"expression": {"expression": "a > 3"}})
    inner = pa.struct([told("b", delta_invariants=invariant)])
    schema = pa.schema(
        [
            told("a", delta_invariants=invariant),
            told("s", inner),
            told("g", delta_generationExpression="a + 1"),
            pa.field("d", pa.int64(), metadata={"CURRENT_DEFAULT": "7"}),
        ]
    )
    rules = rules_of(schema, {"Delta.Constraints.Mine": "a < 9", "other": "x"})
    assert rules.checks == (
        Check("the constraint 'Mine'", "a < 9"),
        Check("the invariant of 'a'", "a > 3"),
        Check("the invariant of 'b'", "a > 3"),
    )
    assert (rules.generated, rules.defaults, rules.inside) == ({"g": "a + 1"}, {"d": "7"}, ())
    assert rules
    assert not rules_of(SCHEMA, {"delta.appendOnly": "true"})


def test_an_invariant_that_is_not_what_delta_writes_is_kept_as_it_is() -> None:
    (check,) = rules_of(pa.schema([told("a", delta_invariants="{]")]), {}).checks
    assert check.sql == "{]"


def test_what_is_generated_inside_of_another_column_is_set_apart() -> None:
    inner = pa.list_(pa.struct([told("x", delta_generationExpression="1")]))
    rules = rules_of(pa.schema([pa.field("s", inner)]), {})
    assert (rules.generated, rules.inside) == ({}, ("x",))


def test_a_constraint_is_found_whatever_its_case() -> None:
    assert constraint_key({"delta.constraints.Mine": "x"}, "mINE") == "delta.constraints.Mine"
    assert constraint_key({"delta.constraints.mine2": "x"}, "mine") is None


def test_rules_are_put_on_columns_by_name() -> None:
    schema = with_rules(SCHEMA, {"DAY": "CAST(id AS DATE)"}, {"id": "1"})
    rules = rules_of(schema, {})
    assert (rules.generated, rules.defaults) == ({"day": "CAST(id AS DATE)"}, {"id": "1"})
    assert [is_filled(field) for field in schema] == [True, True, False]


@pytest.mark.parametrize(
    ("generated", "defaults", "why"),
    [
        ({"nope": "1"}, {}, "nope: is not a column"),
        ({"place.x": "1"}, {}, "is not a column"),
        ({"id": "1"}, {"ID": "2"}, "is generated, so it cannot have a default"),
        ({"id": ""}, {}, "expected an expression"),
        ({}, {"id": 5}, "expected an expression"),
        ({}, {"id": "'\ud800'"}, "half of a surrogate pair"),
    ],
)
def test_what_cannot_be_a_rule_is_refused(generated: dict[str, Any], defaults: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        with_rules(SCHEMA, generated, defaults)


@pytest.mark.parametrize(
    ("sql", "path", "used"),
    [
        ("ID > 0", ["id"], True),
        ("idle > 0", ["id"], False),
        ("place.x > 0", ["place"], True),
        ("place.x > 0", ["place", "x"], True),
        ("place.x > 0", ["place", "y z"], False),
        ("place.`y z` > 0", ["place", "y z"], True),
        ("id > > 0", ["id"], True),
        ("id > > 0", ["day"], False),
    ],
)
def test_columns_that_an_expression_uses_are_known(sql: str, path: list[str], used: bool) -> None:
    assert bool(users_of({"delta.constraints.c": sql}, SCHEMA, path)) is used


def test_data_may_lack_a_column_that_is_not_null_if_something_fills_it() -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64(), nullable=False)])
    incoming = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    filled = with_rules(strict, defaults={"id": "1"})
    assert merge(filled, incoming, MergeOptions()) is filled
    with pytest.raises(SchemaMismatchError, match="id: "):
        merge(strict, incoming, MergeOptions())


@pytest.mark.parametrize(
    "change",
    [
        lambda layout: add_column(layout, "g.new", pa.int8()),
        lambda layout: rename_column(layout, "g.x", "z"),
        lambda layout: drop_column(layout, "g.x"),
        lambda layout: widen_column(layout, "g.x", pa.int64()),
    ],
    ids=["add", "rename", "drop", "widen"],
)
def test_what_is_inside_of_a_generated_column_stays_as_it_is(change: Callable[[Layout], Layout]) -> None:
    inner = pa.struct([("x", pa.int32()), ("y", pa.int32())])
    schema = with_rules(pa.schema([("a", pa.int32()), ("g", inner)]), {"g": "struct(a AS x, a AS y)"})
    with pytest.raises(ValidationError, match="generated as struct"):
        change(Layout(schema, {}, ()))
    rename_column(Layout(schema, {}, ()), "g", "h")
    drop_column(Layout(schema, {}, ()), "g")
