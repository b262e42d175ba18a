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

from lakelog.actions import Action, AddFile, CdcFile, CommitInfo, Metadata, Protocol, RemoveFile
from lakelog.log.validation.actions import validate_actions
from lakelog.schema.delta import to_delta_json
from tests.fixtures.actions import (
    ADD,
    CDC,
    DOMAIN,
    INFO,
    INLINE,
    METADATA,
    NAN,
    PROTOCOL,
    REMOVE,
    TXN,
    VECTOR,
    anything,
    places,
    problems,
    stats,
)


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


# Whatever comes


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
