"""What is wrong with a commit's actions, told without looking at the table."""

import enum
import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.actions import (
    Action,
    AddFile,
    CdcFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from lakelog.log.validation.actions import check_actions, checked_stats, name_problem, validate_actions
from lakelog.schema.delta import to_delta_json

NAN = float("nan")
SCHEMA = to_delta_json(
    pa.schema(
        [
            ("id", pa.int64()),
            ("day", pa.date32()),
            ("raw", pa.binary()),
            ("place", pa.struct([("city", pa.string())])),
            ("tags", pa.list_(pa.string())),
        ]
    )
)
VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=6
)
INLINE = DeletionVector(
    storage_type="i",
    path_or_inline_dv="wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L",
    size_in_bytes=40,
    cardinality=6,
)
ADD = AddFile(path="day=1/a.parquet", size=1, partition_values={"day": "1"}, modification_time=1)
REMOVE = RemoveFile(path="day=1/b.parquet", deletion_timestamp=1)
CDC = CdcFile(path="_change_data/c.parquet", size=1)
METADATA = Metadata(id="af23", schema_string=SCHEMA, partition_columns=("day",), configuration={"a": "b"})
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)
TXN = Txn(app_id="app", version=1)
DOMAIN = DomainMetadata(domain="my.domain", configuration="{}")
INFO = CommitInfo(timestamp=1, operation="WRITE", operation_parameters={"mode": "Append"})


def stats(**members: Any) -> str:
    return json.dumps(members)


def problems(*actions: Any, creating: bool = False) -> list[tuple[str, str]]:
    found = validate_actions(actions, creating=creating)
    return [(violation.where, violation.message) for violation in found]


def places(*actions: Any, creating: bool = False) -> list[str]:
    return [where for where, _ in problems(*actions, creating=creating)]


class Level(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize(
    "action",
    [
        ADD,
        REMOVE,
        CDC,
        METADATA,
        PROTOCOL,
        TXN,
        DOMAIN,
        INFO,
        AddFile(path="x", size=0),
        AddFile(path="x", size=2**63 - 1, modification_time=2**63 - 1, partition_values={"a": None, "b": ""}),
        replace(ADD, size=Level.ONE),
        replace(ADD, partition_values=MappingProxyType({"day": "é\x01\n"})),
        replace(ADD, extra={"new": {"a": [1, None]}}),
        replace(ADD, stats=stats(numRecords=6), deletion_vector=VECTOR),
        replace(ADD, stats=stats(numRecords=6), deletion_vector=INLINE),
        replace(REMOVE, deletion_vector=VECTOR),
        replace(REMOVE, extended_file_metadata=True, partition_values={}, size=1),
        replace(TXN, version=-(2**63)),
        replace(METADATA, partition_columns=["day"]),  # type: ignore[arg-type]
        replace(METADATA, extra={"format": {"new": 1}}),
        replace(DOMAIN, domain="delta.rowTracking"),
        replace(DOMAIN, domain="deltaforce"),
        CommitInfo(),
        CommitInfo(extra={"operation": {"a": 1}, "notebook": None}),
    ],
)
def test_a_sound_action_passes(action: Action) -> None:
    assert problems(action) == []


def test_every_type_of_action_can_stand_in_one_commit() -> None:
    assert problems(INFO, METADATA, PROTOCOL, ADD, REMOVE, CDC, TXN, DOMAIN, creating=True) == []


def test_no_actions_at_all_are_nothing_wrong() -> None:
    assert problems() == []


NOT_INTEGERS = [True, 1.0, NAN, "1", np.int64(1), [1]]
TEXT_PROBLEMS = ["a\0", "a\ud800"]


@pytest.mark.parametrize("value", [None, -1, 2**63, 10**5000, *NOT_INTEGERS], ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("field", ["size", "modification_time"])
def test_a_size_or_time_is_an_integer_that_a_database_can_hold(field: str, value: Any) -> None:
    assert places(TXN, replace(ADD, **{field: value})) == [f"actions[1].add.{field}"]


@pytest.mark.parametrize(
    ("action", "field"),
    [
        (ADD, "base_row_id"),
        (ADD, "default_row_commit_version"),
        (REMOVE, "deletion_timestamp"),
        (REMOVE, "size"),
        (METADATA, "created_time"),
        (TXN, "last_updated"),
        (INFO, "timestamp"),
        (INFO, "in_commit_timestamp"),
    ],
)
@pytest.mark.parametrize("value", [-1, 2**63, *NOT_INTEGERS], ids=lambda value: type(value).__name__)
def test_an_optional_number_is_absent_or_sound(action: Any, field: str, value: Any) -> None:
    assert places(replace(action, **{field: value})) == [f"actions[0].{action.action}.{field}"]
    assert problems(replace(action, **{field: None})) == []


@pytest.mark.parametrize("value", [-(2**63) - 1, 2**63, None, *NOT_INTEGERS], ids=lambda value: type(value).__name__)
def test_an_applications_version_is_any_64_bit_integer(value: Any) -> None:
    assert places(replace(TXN, version=value)) == ["actions[0].txn.version"]


@pytest.mark.parametrize(
    ("action", "field", "value"),
    [
        (ADD, "path", None),
        (ADD, "path", b"x"),
        (ADD, "path", "../x"),
        (ADD, "path", "/x"),
        (ADD, "path", "x" * 4097),
        (ADD, "partition_values", None),
        (ADD, "partition_values", [("day", "1")]),
        (ADD, "partition_values", {"day": 1}),
        (ADD, "partition_values", {1: "1"}),
        (ADD, "partition_values", {"x" * 256: "1"}),
        (ADD, "data_change", None),
        (ADD, "data_change", 1),
        (ADD, "stats", {"numRecords": 1}),
        (ADD, "stats", "[1]"),
        (ADD, "stats", "nonsense"),
        (ADD, "tags", "x"),
        (ADD, "tags", {"a": 1}),
        (ADD, "deletion_vector", "uab"),
        (ADD, "clustering_provider", 1),
        (ADD, "extra", None),
        (ADD, "extra", [1]),
        (ADD, "extra", {"x": NAN}),
        (ADD, "extra", {1: 2}),
        (ADD, "extra", {"x": object()}),
        (ADD, "extra", {"size": 1}),
        (ADD, "extra", {"partitionValues": {}}),
        (REMOVE, "path", "a//b"),
        (REMOVE, "data_change", "yes"),
        (REMOVE, "extended_file_metadata", 0),
        (REMOVE, "partition_values", {"day": 1}),
        (REMOVE, "stats", "{"),
        (CDC, "path", "_delta_log/x"),
        (CDC, "size", -1),
        (CDC, "data_change", True),
        (CDC, "data_change", None),
        (METADATA, "id", ""),
        (METADATA, "id", None),
        (METADATA, "id", "x" * 256),
        (METADATA, "name", "x" * 256),
        (METADATA, "schema_string", None),
        (METADATA, "schema_string", ""),
        (METADATA, "schema_string", "{}"),
        (METADATA, "schema_string", '{"type":"struct","type":"struct","fields":[]}'),
        (METADATA, "schema_string", "[" * 100_000),
        (METADATA, "partition_columns", None),
        (METADATA, "partition_columns", "day"),
        (METADATA, "partition_columns", ("day", 1)),
        (METADATA, "partition_columns", ("",)),
        (METADATA, "partition_columns", ("nowhere",)),
        (METADATA, "partition_columns", ("Day",)),
        (METADATA, "partition_columns", ("place.city",)),
        (METADATA, "partition_columns", ("day", "day")),
        (METADATA, "partition_columns", ("raw",)),
        (METADATA, "partition_columns", ("place",)),
        (METADATA, "partition_columns", ("tags",)),
        (METADATA, "configuration", None),
        (METADATA, "configuration", {"a": True}),
        (METADATA, "configuration", {"a": None}),
        (METADATA, "format_provider", "orc"),
        (METADATA, "format_provider", None),
        (METADATA, "format_options", {"a": 1}),
        (METADATA, "extra", {"format": 1}),
        (METADATA, "extra", {"format": {"provider": "orc"}}),
        (METADATA, "extra", None),
        (PROTOCOL, "min_reader_version", True),
        (PROTOCOL, "min_writer_version", "2"),
        (PROTOCOL, "reader_features", "columnMapping"),
        (TXN, "app_id", ""),
        (TXN, "app_id", "x" * 256),
        (DOMAIN, "domain", ""),
        (DOMAIN, "domain", "delta.telepathy"),
        (DOMAIN, "domain", "Delta.rowTracking"),
        (DOMAIN, "configuration", {}),
        (DOMAIN, "removed", None),
        (INFO, "operation", 1),
        (INFO, "operation_parameters", {"x": NAN}),
        (INFO, "operation_parameters", {"x": {1: 2}}),
        (INFO, "operation_parameters", "x"),
        (INFO, "operation_metrics", {"x": "\ud800"}),
        (INFO, "is_blind_append", 1),
    ],
    ids=lambda value: None if isinstance(value, str) else ascii(type(value).__name__),
)
def test_a_field_that_is_wrong_is_named(action: Any, field: str, value: Any) -> None:
    assert places(replace(action, **{field: value})) == [f"actions[0].{action.action}.{field}"]


@pytest.mark.parametrize("text", TEXT_PROBLEMS, ids=ascii)
@pytest.mark.parametrize(
    ("action", "field", "wrap"),
    [
        (ADD, "path", str),
        (ADD, "partition_values", lambda text: {"day": text}),
        (ADD, "partition_values", lambda text: {text: "1"}),
        (ADD, "tags", lambda text: {"a": text}),
        (ADD, "stats", lambda text: json.dumps({"numRecords": 1, "minValues": {"a": text}})),
        (ADD, "stats", lambda text: json.dumps({"numRecords": 1, text: 1}, ensure_ascii=False)),
        (ADD, "clustering_provider", str),
        (ADD, "extra", lambda text: {"a": [text]}),
        (METADATA, "id", str),
        (METADATA, "name", str),
        (METADATA, "description", str),
        (METADATA, "schema_string", str),
        (METADATA, "partition_columns", lambda text: (text,)),
        (METADATA, "configuration", lambda text: {text: ""}),
        (TXN, "app_id", str),
        (DOMAIN, "domain", str),
        (DOMAIN, "configuration", str),
        (INFO, "operation", str),
        (INFO, "user_metadata", str),
        (INFO, "operation_parameters", lambda text: {"a": {"b": text}}),
    ],
)
def test_text_that_no_database_can_hold_is_refused_wherever_it_stands(
    action: Any, field: str, wrap: Any, text: str
) -> None:
    assert places(replace(action, **{field: wrap(text)})) == [f"actions[0].{action.action}.{field}"]


@pytest.mark.parametrize(
    ("action", "field", "value"),
    [
        (ADD, "stats", stats(numRecords=1, note="x" * 2000)),
        (ADD, "partition_values", {"day": "x" * 2000}),
        (ADD, "partition_values", {str(n): "x" * 100 for n in range(20)}),
        (ADD, "tags", {"a": "é" * 2000}),
        (ADD, "extra", {"a": ["x" * 100] * 20}),
        (METADATA, "description", "x" * 2000),
        (DOMAIN, "configuration", "x" * 2000),
        (INFO, "operation_parameters", {"a": "x" * 2000}),
    ],
)
def test_text_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch, action: Any, field: str, value: Any) -> None:
    assert problems(replace(action, **{field: value})) == []
    monkeypatch.setattr("lakelog.log.validation.text.MAX_TEXT_BYTES", 1000)
    assert places(replace(action, **{field: value})) == [f"actions[0].{action.action}.{field}"]


def test_the_limit_on_text_is_16_mib() -> None:
    assert places(replace(DOMAIN, configuration="x" * (16 * 1024 * 1024 + 1))) == [
        "actions[0].domainMetadata.configuration"
    ]


def test_all_violations_of_all_actions_are_returned() -> None:
    found = places(*[replace(ADD, path=f"../{n}", size=-1, stats="") for n in range(500)])
    assert len(found) == 1500
    assert found[-1] == "actions[499].add.stats"


@pytest.mark.parametrize("stranger", [None, {"add": {}}, '{"add":{}}', 3, object(), AddFile, VECTOR])
def test_what_is_not_an_action_is_refused(stranger: Any) -> None:
    assert places(ADD, stranger) == ["actions[1]"]


@pytest.mark.parametrize("actions", [None, ADD, "add", 3, iter([ADD])])
def test_what_is_not_a_list_of_actions_is_refused(actions: Any) -> None:
    assert [violation.where for violation in validate_actions(actions, creating=False)] == ["actions"]


def test_absolute_paths_pass_only_where_they_are_allowed() -> None:
    commit: list[Action] = [replace(ADD, path="s3://b/k"), replace(REMOVE, path="/x")]
    assert len(validate_actions(commit, creating=False)) == 2
    assert validate_actions(commit, creating=False, allow_absolute=True) == []


# Actions that exclude each other


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ADD, ADD),
        (ADD, replace(ADD, size=2)),
        (ADD, replace(ADD, path="day=1/%61.parquet")),
        (ADD, replace(ADD, stats=stats(numRecords=6), deletion_vector=VECTOR)),
        (REMOVE, replace(REMOVE, deletion_vector=VECTOR)),
        (METADATA, METADATA),
        (PROTOCOL, PROTOCOL),
        (TXN, replace(TXN, version=2)),
        (DOMAIN, replace(DOMAIN, removed=True)),
        (INFO, INFO),
    ],
)
def test_a_second_action_about_the_same_thing_is_refused(first: Action, second: Action) -> None:
    [(where, message)] = problems(first, CDC, second)
    assert where == f"actions[2].{second.action}"
    assert "actions[0]" in message


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ADD, replace(ADD, path="day=1/A.parquet")),
        (TXN, replace(TXN, app_id="other")),
        (DOMAIN, replace(DOMAIN, domain="other")),
        (ADD, CdcFile(path=ADD.path, size=1)),
        (RemoveFile(path=ADD.path), replace(ADD, stats=stats(numRecords=6), deletion_vector=VECTOR)),
        (RemoveFile(path=ADD.path, deletion_vector=VECTOR), ADD),
        (
            RemoveFile(path=ADD.path, deletion_vector=VECTOR),
            replace(ADD, stats=stats(numRecords=6), deletion_vector=replace(VECTOR, offset=5)),
        ),
    ],
)
def test_actions_about_different_things_stand_together(first: Action, second: Action) -> None:
    assert problems(first, second) == []
    assert problems(second, first) == []


@pytest.mark.parametrize(
    ("add", "remove"),
    [
        (ADD, RemoveFile(path=ADD.path)),
        (ADD, RemoveFile(path="day%3D1/a.parquet")),
        (
            replace(ADD, stats=stats(numRecords=6), deletion_vector=VECTOR),
            RemoveFile(path=ADD.path, deletion_vector=VECTOR),
        ),
    ],
)
def test_a_file_cannot_be_added_and_removed_with_the_same_deletion_vector(add: AddFile, remove: RemoveFile) -> None:
    assert places(add, remove) == ["actions[0].add"]
    assert places(remove, add) == ["actions[1].add"]


def test_the_first_version_needs_exactly_one_metadata() -> None:
    assert places(ADD, creating=True) == ["actions"]
    assert places(creating=True) == ["actions"]
    assert places(METADATA, creating=True) == []
    assert places(METADATA, METADATA, creating=True) == ["actions[1].metaData"]


# Metadata and protocol


def test_every_problem_of_a_schema_is_listed() -> None:
    fields: list[Any] = [{"name": name, "type": "telepathy", "nullable": True, "metadata": {}} for name in ("a", "b")]
    schema = json.dumps({"type": "struct", "fields": fields})
    assert places(Metadata(id="x", schema_string=schema)) == ["actions[0].metaData.schema_string"] * 2


def test_names_that_need_column_mapping_pass_with_it() -> None:
    schema = json.dumps(
        {"type": "struct", "fields": [{"name": "a b", "type": "long", "nullable": True, "metadata": {}}]}
    )
    assert places(Metadata(id="x", schema_string=schema)) == ["actions[0].metaData.schema_string"]
    mapped = Metadata(id="x", schema_string=schema, configuration={"delta.columnMapping.mode": "name"})
    assert problems(mapped) == []


def test_not_every_column_can_be_a_partition_column() -> None:
    schema = to_delta_json(pa.schema([("a", pa.int64()), ("b", pa.string())]))
    assert problems(Metadata(id="x", schema_string=schema, partition_columns=("a",))) == []
    assert places(Metadata(id="x", schema_string=schema, partition_columns=("b", "a"))) == [
        "actions[0].metaData.partition_columns"
    ]


def test_every_problem_of_a_protocol_is_listed() -> None:
    protocol = Protocol(min_reader_version=1, min_writer_version=7, writer_features=("telepathy", "rowTracking"))
    assert places(protocol) == ["actions[0].protocol"] * 2


# Statistics


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


anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.binary(max_size=3),
    st.sampled_from([VECTOR, object(), 10**200, "\ud800", "{}", b"x"]),
    st.lists(st.text(max_size=3), max_size=3),
    st.tuples(st.text(max_size=3)),
    st.dictionaries(st.text(max_size=3) | st.integers(), st.none() | st.text(max_size=3) | st.floats(), max_size=3),
)


@st.composite
def disfigured_actions(draw: st.DrawFn) -> Any:
    action: Any = draw(st.sampled_from([ADD, REMOVE, CDC, METADATA, PROTOCOL, TXN, DOMAIN, INFO]))
    attributes = [field.attribute for field in action.fields if field.attribute != "format"] + ["extra"]
    changes = draw(st.dictionaries(st.sampled_from(attributes), anything, max_size=4))
    return replace(action, **changes)


@given(st.lists(disfigured_actions(), max_size=4), st.booleans())
def test_validation_never_fails_on_what_it_judges(actions: list[Any], creating: bool) -> None:
    for violation in validate_actions(actions, creating=creating):
        assert violation.where.startswith("actions")
        assert 0 < len(violation.message) < 600
        violation.message.encode()


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


# Names of datasets


@pytest.mark.parametrize(
    "name",
    [
        "events",
        "é",
        "日本",
        "a b",
        "a.b",
        "'; DROP TABLE x; --",
        '"',
        "100%",
        "_",
        "*",
        "a" * 255,
        "...",
        "-",
        "😀",
        "a:b",
    ],
)
def test_a_dataset_can_have_the_name(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        " a",
        "a ",
        "\ta",
        "a\u00a0",
        ".",
        "..",
        "a/b",
        "../x",
        "a\\b",
        "a\0",
        "a\nb",
        "a\x7f",
        "a\u200bb",
        "a\u202eb",
        "\ufeffa",
        "a\ud800",
        "a" * 256,
        "é" * 128,
        None,
        3,
        b"x",
    ],
    ids=ascii,
)
def test_a_dataset_cannot_have_the_name(name: Any) -> None:
    assert name_problem(name)
