"""What is wrong with the statistics and the deletion vectors of a commit's files."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.actions import DeletionVector
from lakelog.log.validation.actions import check_actions, checked_stats
from tests.fixtures.actions import ADD, INLINE, NAN, REMOVE, TXN, VECTOR, anything, places, problems, stats


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        stats(numRecords=0),
        stats(numRecords=2**63 - 1, tightBounds=False),
        stats(numRecords=3, nullCount={"a": 3, "b": {"c": 0}, "d": None}),
        stats(nullCount={"a": 2**62}),
        stats(minValues={"a": 1}, maxValues={"a": 1}),
        stats(minValues={"a": 1}, maxValues={"b": 0}),
        stats(minValues={"a": 1}, maxValues={"a": 1.5}),
        stats(minValues={"a": -1e308}, maxValues={"a": 1e308}),
        stats(minValues={"a": {"b": {"c": "x"}}}, maxValues={"a": {"b": {"c": "x"}}}),
        stats(minValues={"a": "Z"}, maxValues={"a": "a"}),
        stats(minValues={"a": "ab"}, maxValues={"a": "ab\U0010ffff"}),
        # By UTF-8 bytes the first is smaller; by UTF-16 units, as Java compares strings, it would be greater.
        stats(minValues={"a": "\uffee"}, maxValues={"a": "\U00010000"}),
        stats(minValues={"a": None}, maxValues={"a": 1}),
        stats(minValues={"a": False}, maxValues={"a": True}),
        stats(minValues={"a": 1.0}, maxValues={"a": "NaN"}),
        stats(minValues={"a": "-Infinity"}, maxValues={"a": 3}),
        stats(minValues={"a": "-Infinity"}, maxValues={"a": "Infinity"}),
        stats(minValues={"a": "2023-11-05T01:59:00.000-04:00"}, maxValues={"a": "2023-11-05T01:01:00.000-05:00"}),
        stats(minValues={"a": "2023-11-05"}, maxValues={"a": "+12023-11-05"}),
        stats(minValues={"a": "-0044-03-15"}, maxValues={"a": "-0001-01-01"}),
        stats(numRecords=1, statsWithCollation={}),
    ],
)
def test_sound_statistics_pass_and_are_returned_parsed(text: str) -> None:
    parsed, violations = checked_stats(text, "stats")
    assert violations == []
    assert parsed == json.loads(text)


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", ""),
        ("nonsense", ""),
        ("null", ""),
        ("[]", ""),
        ('"{}"', ""),
        ('{"numRecords":1,"numRecords":2}', ""),
        ('{"minValues":{"a":NaN}}', ""),
        ('{"minValues":{"a":1e999}}', ""),
        ('{"minValues":{"a":"\\ud800"}}', ""),
        ('{"minValues":{"a":"\\u0000"}}', ""),
        ('{"a":' * 5000, ""),
        (stats(numRecords=-1), ".numRecords"),
        (stats(numRecords=2**63), ".numRecords"),
        (stats(numRecords=1.0), ".numRecords"),
        (stats(numRecords=True), ".numRecords"),
        (stats(numRecords="1"), ".numRecords"),
        (stats(tightBounds=1), ".tightBounds"),
        (stats(nullCount=[]), ".nullCount"),
        (stats(nullCount={"a": -1}), ".nullCount.a"),
        (stats(nullCount={"a": True}), ".nullCount.a"),
        (stats(nullCount={"a": [1]}), ".nullCount.a"),
        (stats(nullCount={"a": {"b": "1"}}), ".nullCount.a.b"),
        (stats(numRecords=3, nullCount={"a": {"b": 4}}), ".nullCount.a.b"),
        (stats(minValues=1), ".minValues"),
        (stats(maxValues="x"), ".maxValues"),
        (stats(minValues={"a": 2}, maxValues={"a": 1}), ".minValues.a"),
        (stats(minValues={"a": 2}, maxValues={"a": 1.5}), ".minValues.a"),
        (stats(minValues={"a": {"b": 2}}, maxValues={"a": {"b": 1}}), ".minValues.a.b"),
        (stats(minValues={"a": "b"}, maxValues={"a": "a"}), ".minValues.a"),
        (stats(minValues={"a": "\U00010000"}, maxValues={"a": "\uffee"}), ".minValues.a"),
        (stats(minValues={"a": True}, maxValues={"a": False}), ".minValues.a"),
        (stats(minValues={"a": 1}, maxValues={"a": "x"}), ".minValues.a"),
        (stats(minValues={"a": 1}, maxValues={"a": {}}), ".minValues.a"),
        (stats(minValues={"a": []}, maxValues={"a": []}), ".minValues.a"),
        (stats(minValues={"a": "Infinity"}, maxValues={"a": 1}), ".minValues.a"),
        (stats(minValues={"a": "2024-01-02"}, maxValues={"a": "2024-01-01"}), ".minValues.a"),
        (
            stats(minValues={"a": "2023-11-05T03:00:00-05:00"}, maxValues={"a": "2023-11-05T02:30:00-05:00"}),
            ".minValues.a",
        ),
    ],
    ids=lambda value: ascii(value[:50]),
)
def test_statistics_that_are_wrong_or_contradict_themselves_are_refused(text: str, where: str) -> None:
    assert [violation.where for violation in checked_stats(text, "s")[1]] == [f"s{where}"]
    expected = f"actions[0].add.stats{where}"
    assert places(replace(ADD, stats=text)) == [expected]
    assert places(replace(REMOVE, stats=text)) == [expected.replace("add", "remove")]


def test_every_contradiction_in_statistics_is_listed() -> None:
    text = stats(numRecords=1, nullCount={"a": 2, "b": 3}, minValues={"a": 2, "b": "x"}, maxValues={"a": 1, "b": "w"})
    messages = [violation.message for violation in checked_stats(text, "s")[1]]
    assert len(messages) == 4
    assert all("statistics contradict themselves" in message for message in messages)


def test_parsed_statistics_come_with_the_check_so_that_nobody_parses_them_again() -> None:
    checked = check_actions([TXN, replace(ADD, stats=stats(numRecords=7)), replace(ADD, path="b")], creating=False)
    assert checked.stats == [None, {"numRecords": 7}, None]
    assert checked.violations == []


# Deletion vectors


@pytest.mark.parametrize(
    ("vector", "field"),
    [
        (replace(VECTOR, storage_type="x"), "storage_type"),
        (replace(VECTOR, storage_type=""), "storage_type"),
        (replace(VECTOR, storage_type=None), "storage_type"),  # type: ignore[arg-type]
        (replace(VECTOR, path_or_inline_dv="short"), "path_or_inline_dv"),
        (replace(VECTOR, path_or_inline_dv='"-aqEH.-t@S}K{vb[*k"'), "path_or_inline_dv"),
        (replace(VECTOR, path_or_inline_dv="../^-aqEH.-t@S}K{vb[*k^"), "path_or_inline_dv"),
        (replace(VECTOR, offset=-1), "offset"),
        (replace(VECTOR, offset=2**31), "offset"),
        (replace(VECTOR, offset=True), "offset"),
        (replace(VECTOR, size_in_bytes=-1), "size_in_bytes"),
        (replace(VECTOR, size_in_bytes=2**31), "size_in_bytes"),
        (replace(VECTOR, cardinality=-1), "cardinality"),
        (replace(VECTOR, cardinality=2**63), "cardinality"),
        (replace(VECTOR, cardinality=101), "cardinality"),
        (replace(VECTOR, extra={"x": NAN}), "extra"),
        (replace(INLINE, offset=0), "offset"),
        (replace(INLINE, path_or_inline_dv="not z85"), "path_or_inline_dv"),
        (replace(INLINE, size_in_bytes=41), "path_or_inline_dv"),
        (replace(INLINE, size_in_bytes=36), "path_or_inline_dv"),
        (replace(VECTOR, storage_type="p", path_or_inline_dv="relative/x.bin"), "path_or_inline_dv"),
        (replace(VECTOR, storage_type="p", path_or_inline_dv="s3://b/../x.bin"), "path_or_inline_dv"),
    ],
)
def test_a_deletion_vector_that_is_wrong_is_refused(vector: DeletionVector, field: str) -> None:
    add = replace(ADD, stats=stats(numRecords=100), deletion_vector=vector)
    assert places(add) == [f"actions[0].add.deletion_vector.{field}"]


@pytest.mark.parametrize(
    "vector",
    [
        replace(VECTOR, offset=None, cardinality=100),
        replace(VECTOR, path_or_inline_dv="^-aqEH.-t@S}K{vb[*k^"),
        replace(VECTOR, storage_type="p", path_or_inline_dv="s3://b/x.bin"),
        replace(INLINE, size_in_bytes=38),
    ],
)
def test_a_sound_deletion_vector_passes(vector: DeletionVector) -> None:
    assert problems(replace(ADD, stats=stats(numRecords=100), deletion_vector=vector)) == []


@pytest.mark.parametrize("text", [None, "{}", stats(tightBounds=False)])
def test_a_deletion_vector_needs_the_number_of_records(text: str | None) -> None:
    assert places(replace(ADD, stats=text, deletion_vector=VECTOR)) == ["actions[0].add.stats"]


def test_extended_file_metadata_promises_partition_values_and_size() -> None:
    assert places(replace(REMOVE, extended_file_metadata=True)) == [
        "actions[0].remove.partition_values",
        "actions[0].remove.size",
    ]


# Whatever comes


@given(st.text(max_size=30) | st.recursive(anything, lambda inner: st.lists(inner, max_size=2)).map(repr))
def test_statistics_never_fail_to_be_judged(text: str) -> None:
    checked_stats(text, "stats")


json_leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
columns = st.recursive(
    json_leaves, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6
)


@given(st.dictionaries(st.sampled_from(["numRecords", "nullCount", "minValues", "maxValues", "tightBounds"]), columns))
def test_any_json_object_can_be_judged_as_statistics(value: dict[str, Any]) -> None:
    parsed, violations = checked_stats(json.dumps(value), "stats")
    assert parsed == value or violations
