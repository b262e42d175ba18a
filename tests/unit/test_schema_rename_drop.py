"""Renaming and dropping columns, and what else names them: constraints, generated columns, statistics."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace

import pyarrow as pa
import pytest

from lakelog.schema.evolution.alter import Layout, add_column, drop_column, make_nullable, rename_column, widen_column
from lakelog.schema.mapping import MAX_ID, is_mapped
from tests.fixtures.layouts import ID, MAPPED, PARENTS, PHYSICAL, PLAIN, all_names, metadata, refusal, with_properties

# Renaming and dropping


@pytest.mark.parametrize("parent", PARENTS)
@pytest.mark.parametrize("layout", [PLAIN, MAPPED], ids=["plain", "mapped"])
def test_a_renamed_column_keeps_its_physical_name(layout: Layout, parent: str) -> None:
    old = f"{parent}label" if parent else "id"
    after = rename_column(layout, old.upper(), "new name")
    assert metadata(after, f"{parent}new name") == metadata(MAPPED, old)
    assert after.configuration == MAPPED.configuration
    assert len(all_names(after)) == len(all_names(layout))


def test_only_the_case_can_be_changed() -> None:
    after = rename_column(PLAIN, "s.weight", "WEIGHT")
    assert metadata(after, "s.WEIGHT")[PHYSICAL] == "Weight"


def test_renaming_to_the_same_name_changes_nothing() -> None:
    assert rename_column(PLAIN, "ID", "id") is PLAIN


def test_a_partition_column_is_renamed_everywhere() -> None:
    after = rename_column(PLAIN, "day", "date")
    assert after.partition_columns == ("date",)
    assert after.schema.names[1] == "date"
    assert metadata(after, "date")[PHYSICAL] == "day"


def test_a_nested_column_is_not_taken_for_the_partition_column_of_its_name() -> None:
    schema = pa.schema([("day", pa.date32()), ("s", pa.struct([("day", pa.date32()), ("x", pa.int8())]))])
    layout = Layout(schema, {}, ("day",))
    assert rename_column(layout, "s.day", "d").partition_columns == ("day",)
    assert widen_column(layout, "s.day", pa.timestamp("us")).partition_columns == ("day",)
    assert all_names(drop_column(layout, "s.day")) == ["day", "s", "x"]


@pytest.mark.parametrize(
    ("name", "new", "part"),
    [
        ("id", "DAY", "as 'day'"),
        ("s.label", "weight", "as 'Weight'"),
        ("nothing", "x", "no such column"),
        ("tags.element", "x", "cannot be renamed"),
        ("m.key", "x", "cannot be renamed"),
        ("id", "", "needs a name"),
        ("id", "a\0b", "NUL"),
        ("id", "\ud800", "surrogate"),
        ("s.label", "s.x", "only the last part"),
    ],
)
def test_what_cannot_be_renamed_is_refused(name: str, new: str, part: str) -> None:
    assert part in refusal(rename_column, PLAIN, name, new)


@pytest.mark.parametrize("parent", PARENTS)
@pytest.mark.parametrize("layout", [PLAIN, MAPPED], ids=["plain", "mapped"])
def test_a_dropped_column_is_gone_and_the_others_are_mapped(layout: Layout, parent: str) -> None:
    after = drop_column(layout, f"{parent}label" if parent else "id")
    other = f"{parent}Weight" if parent else "day"
    assert metadata(after, other) == metadata(MAPPED, other)
    assert len(all_names(after)) == len(all_names(layout)) - 1
    assert after.configuration == MAPPED.configuration


@pytest.mark.parametrize("parent", PARENTS)
def test_a_column_that_comes_back_is_another_column(parent: str) -> None:
    name = f"{parent}label" if parent else "id"
    after = add_column(drop_column(PLAIN, name), name, pa.string())
    assert metadata(after, name)[ID] == int(MAPPED.configuration[MAX_ID]) + 1
    assert metadata(after, name)[PHYSICAL] not in {metadata(MAPPED, name)[PHYSICAL], name}


def test_the_largest_id_survives_the_column_that_had_it() -> None:
    after = drop_column(MAPPED, "n")
    assert metadata(add_column(after, "x", pa.int8()), "x")[ID] == int(MAPPED.configuration[MAX_ID]) + 1


@pytest.mark.parametrize(
    ("layout", "name", "part"),
    [
        (PLAIN, "Day", "day: is a partition column"),
        (PLAIN, "tags.element", "cannot be dropped"),
        (PLAIN, "m.key.label", "part of a map's keys"),
        (PLAIN, "nothing", "no such column"),
        (Layout(pa.schema([("a", pa.int8())]), {}, ()), "a", "the last column"),
        (Layout(pa.schema([("a", pa.int8()), ("p", pa.int8())]), {}, ("p",)), "a", "the last column in the files"),
        (Layout(pa.schema([("a", pa.struct([("x", pa.int8())]))]), {}, ()), "a.x", "the last field of its struct"),
    ],
)
def test_what_cannot_be_dropped_is_refused(layout: Layout, name: str, part: str) -> None:
    assert part in refusal(drop_column, layout, name)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("idd", "did you mean id?"),
        ("tags.label", "tags.element.label"),
        ("s.wait", "s.Weight"),
        ("zzzzzz", "there are id, day, s, s.label"),
    ],
)
def test_the_nearest_columns_are_named(name: str, part: str) -> None:
    assert part in refusal(make_nullable, PLAIN, name)


# What else names columns


def rename(layout: Layout, name: str) -> Layout:
    return rename_column(layout, name, "other")


@pytest.mark.parametrize("change", [rename, drop_column], ids=["rename", "drop"])
@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("ID > 3", "id"),
        ("`id` IS NOT NULL AND day < '2020-01-01'", "id"),
        ("s.label > 3", "s.label"),
        ("s.label > 3", "s"),
        ("s IS NOT NULL", "s.label"),
        ("size(tags) > 0", "tags.element.label"),
        ("tags[0].label = 1", "tags.element.Weight"),
        ("exists(n, e -> e['x'] > 1)", "n"),
        ("id > 3 AND (((", "id"),
    ],
)
def test_a_column_of_a_constraint_stays(change: Callable[..., Layout], sql: str, name: str) -> None:
    layout = with_properties(PLAIN, constraints__Positive=sql)
    said = refusal(change, layout, name)
    assert "the constraint 'Positive'" in said
    assert sql in said


@pytest.mark.parametrize("change", [rename, drop_column], ids=["rename", "drop"])
@pytest.mark.parametrize(
    ("sql", "name"),
    [("s.Weight > 0", "s.label"), ("other.id > 3", "id"), ("day = 'id'", "id"), ("size(tags) > 0", "s"), ("(((", "id")],
)
def test_other_columns_than_a_constraints_can_go(change: Callable[..., Layout], sql: str, name: str) -> None:
    assert is_mapped(change(with_properties(PLAIN, constraints__c=sql), name).configuration)


def test_a_column_of_a_constraint_keeps_its_type() -> None:
    layout = with_properties(PLAIN, constraints__c="hash(id) > 0")
    assert "the constraint 'c'" in refusal(widen_column, layout, "id", pa.int64())
    assert "delta.enableTypeWidening" in widen_column(layout, "s.label", pa.int64()).configuration


GENERATED = Layout(
    pa.schema(
        [
            ("at", pa.timestamp("us", "UTC")),
            pa.field("day", pa.date32(), metadata={"delta.generationExpression": "CAST(at AS DATE)"}),
            pa.field(
                "x", pa.int8(), metadata={"delta.invariants": json.dumps({"expression": {"expression": "X > 3"}})}
            ),
            pa.field("y", pa.int8(), metadata={"delta.invariants": "x is fine"}),
            ("date", pa.int8()),
        ]
    ),
    {},
    (),
)


@pytest.mark.parametrize("change", [rename, drop_column], ids=["rename", "drop"])
def test_a_column_that_others_are_generated_from_stays(change: Callable[..., Layout]) -> None:
    assert "the generated column 'day'" in refusal(change, GENERATED, "at")
    assert is_mapped(change(GENERATED, "day").configuration)
    assert is_mapped(change(GENERATED, "date").configuration)


def test_a_column_of_an_invariant_keeps_its_name() -> None:
    assert "the invariant of 'x' (X > 3)" in refusal(rename, GENERATED, "x")
    assert "the invariant of 'y'" in refusal(drop_column, GENERATED, "x")
    assert "y" not in drop_column(GENERATED, "y").schema.names
    assert "x" not in drop_column(drop_column(GENERATED, "y"), "x").schema.names


@pytest.mark.parametrize("change", [rename, drop_column], ids=["rename", "drop"])
def test_a_column_that_the_table_is_clustered_by_stays(change: Callable[..., Layout]) -> None:
    layout = replace(PLAIN, configuration={"clusteringColumns": '[["ID"],["s","label"]]'})
    assert "clusteringColumns" in refusal(change, layout, "id")
    assert "clusteringColumns" in refusal(change, layout, "s.label")
    assert is_mapped(change(layout, "n").configuration)


STATS = "delta.dataSkippingStatsColumns"


@pytest.mark.parametrize(
    ("name", "new", "renamed", "dropped"),
    [
        ("id", "key", "key, s.label,`s`.`Weight`", "s.label,`s`.`Weight`"),
        ("s", "t", "ID,t.label,t.Weight", "ID"),
        ("s.weight", "a,b", "ID,s.label,s.`a,b`", "ID,s.label"),
        ("n", "o", None, None),
    ],
)
def test_the_columns_with_statistics_follow(name: str, new: str, renamed: str | None, dropped: str | None) -> None:
    listed = "ID, s.label,`s`.`Weight`"
    layout = replace(PLAIN, configuration={STATS: listed})
    expected = listed if renamed is None else renamed.replace(", ", ",")
    assert rename_column(layout, name, new).configuration[STATS] == expected
    assert drop_column(layout, name).configuration[STATS] == (listed if dropped is None else dropped)


def test_the_columns_with_statistics_can_run_out() -> None:
    after = drop_column(replace(PLAIN, configuration={STATS: "id"}), "id")
    assert after.configuration[STATS] == ""
    assert drop_column(after, "n").configuration[STATS] == ""


@pytest.mark.parametrize("change", [rename, drop_column], ids=["rename", "drop"])
def test_a_list_of_columns_that_cannot_be_read_cannot_follow(change: Callable[..., Layout]) -> None:
    assert STATS in refusal(change, replace(PLAIN, configuration={STATS: "a..b"}), "id")


def test_sqlglot_is_loaded_only_for_an_expression_that_may_matter() -> None:
    code = "import lakelog.schema.evolution.alter, sys; sys.exit('sqlglot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
