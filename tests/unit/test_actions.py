"""Actions as values and as lines of Delta's log."""

import copy
import json
import pickle
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog import actions
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
from lakelog.errors import ValidationError
from lakelog.strict_json import json_problem, loads_strict

VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=6
)

# Each action with the line that Delta writes for it.
LINES: list[tuple[Action, str]] = [
    (
        AddFile(
            path="day=2024-01-01/é.parquet",
            size=841454,
            partition_values={"day": "2024-01-01", "hour": None},
            modification_time=1512909768000,
            stats='{"numRecords": 1}',
        ),
        (
            '{"add":{"path":"day=2024-01-01/é.parquet","partitionValues":{"day":"2024-01-01","hour":null},"size":841454,'
            '"modificationTime":1512909768000,"dataChange":true,"stats":"{\\"numRecords\\": 1}"}}'
        ),
    ),
    (
        AddFile(
            path="x",
            size=1,
            data_change=False,
            tags={"a": "b"},
            deletion_vector=VECTOR,
            base_row_id=4071,
            default_row_commit_version=41,
            clustering_provider="liquid",
        ),
        (
            '{"add":{"path":"x","partitionValues":{},"size":1,"modificationTime":0,"dataChange":false,"tags":{"a":"b"},'
            '"deletionVector":{"storageType":"u","pathOrInlineDv":"ab^-aqEH.-t@S}K{vb[*k^","offset":4,"sizeInBytes":40,'
            '"cardinality":6},"baseRowId":4071,"defaultRowCommitVersion":41,"clusteringProvider":"liquid"}}'
        ),
    ),
    (
        RemoveFile(
            path="x", deletion_timestamp=1515488792485, extended_file_metadata=True, partition_values={}, size=3
        ),
        (
            '{"remove":{"path":"x","deletionTimestamp":1515488792485,"dataChange":true,"extendedFileMetadata":true,'
            '"partitionValues":{},"size":3}}'
        ),
    ),
    (
        CdcFile(path="_change_data/x", size=1213),
        '{"cdc":{"path":"_change_data/x","partitionValues":{},"size":1213,"dataChange":false}}',
    ),
    (
        Metadata(
            id="af23",
            name="n",
            description="d",
            schema_string="{}",
            partition_columns=("a", "b"),
            configuration={"delta.appendOnly": "true"},
            created_time=7,
        ),
        (
            '{"metaData":{"id":"af23","name":"n","description":"d","format":{"provider":"parquet","options":{}},'
            '"schemaString":"{}","partitionColumns":["a","b"],"createdTime":7,"configuration":{"delta.appendOnly":"true"}}}'
        ),
    ),
    (
        Protocol(min_reader_version=3, min_writer_version=7, reader_features=(), writer_features=("appendOnly",)),
        '{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[],"writerFeatures":["appendOnly"]}}',
    ),
    (Protocol(min_reader_version=1, min_writer_version=2), '{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}'),
    (Txn(app_id="app", version=-5, last_updated=9), '{"txn":{"appId":"app","version":-5,"lastUpdated":9}}'),
    (
        DomainMetadata(domain="d", configuration="{}", removed=True),
        '{"domainMetadata":{"domain":"d","configuration":"{}","removed":true}}',
    ),
    (
        CommitInfo(
            timestamp=1,
            operation="WRITE",
            operation_parameters={"mode": "Append", "n": 1},
            in_commit_timestamp=2,
            read_version=3,
            isolation_level="Serializable",
            is_blind_append=True,
            operation_metrics={"numFiles": "1"},
            user_metadata="u",
            engine_info="e",
            txn_id="t",
        ),
        (
            '{"commitInfo":{"inCommitTimestamp":2,"timestamp":1,"operation":"WRITE",'
            '"operationParameters":{"mode":"Append","n":1},"readVersion":3,"isolationLevel":"Serializable",'
            '"isBlindAppend":true,"operationMetrics":{"numFiles":"1"},"userMetadata":"u","engineInfo":"e","txnId":"t"}}'
        ),
    ),
]


@pytest.mark.parametrize(("action", "line"), LINES)
def test_an_action_is_written_in_deltas_own_spelling_and_order(action: Action, line: str) -> None:
    assert action.to_json() == line


@pytest.mark.parametrize(("action", "line"), LINES)
def test_an_action_is_read_from_text_and_from_parsed_json(action: Action, line: str) -> None:
    assert actions.from_json(line) == action
    assert actions.from_json(json.loads(line)) == action
    assert type(action).from_json(line) == action


@pytest.mark.parametrize(("action", "_"), LINES)
def test_an_action_survives_pickling_and_copying_and_has_no_dict(action: Action, _: str) -> None:
    assert pickle.loads(pickle.dumps(action)) == action
    assert copy.deepcopy(action) == action
    assert not hasattr(action, "__dict__")


text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=6,
)
optional_text = st.none() | text
optional_int = st.none() | st.integers(-(2**63), 2**63)
nullable_maps = st.dictionaries(text, optional_text, max_size=3)


def unknown_fields(cls: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(text.filter(lambda name: name not in cls.known), json_values, max_size=3)


vectors = st.builds(
    DeletionVector,
    storage_type=text,
    path_or_inline_dv=text,
    offset=optional_int,
    size_in_bytes=st.integers(),
    cardinality=st.integers(),
    extra=unknown_fields(DeletionVector),
)
names = st.lists(text, max_size=3).map(tuple)
any_action: st.SearchStrategy[Action] = st.one_of(
    st.builds(
        AddFile,
        path=text,
        size=st.integers(),
        partition_values=nullable_maps,
        modification_time=st.integers(),
        data_change=st.booleans(),
        stats=optional_text,
        tags=st.none() | nullable_maps,
        deletion_vector=st.none() | vectors,
        base_row_id=optional_int,
        default_row_commit_version=optional_int,
        clustering_provider=optional_text,
        extra=unknown_fields(AddFile),
    ),
    st.builds(
        RemoveFile,
        path=text,
        deletion_timestamp=optional_int,
        data_change=st.booleans(),
        extended_file_metadata=st.none() | st.booleans(),
        partition_values=st.none() | nullable_maps,
        size=optional_int,
        stats=optional_text,
        deletion_vector=st.none() | vectors,
        extra=unknown_fields(RemoveFile),
    ),
    st.builds(CdcFile, path=text, size=st.integers(), partition_values=nullable_maps, extra=unknown_fields(CdcFile)),
    st.builds(
        Metadata,
        id=text,
        schema_string=text,
        partition_columns=names,
        configuration=st.dictionaries(text, text, max_size=3),
        name=optional_text,
        description=optional_text,
        format_provider=text,
        format_options=st.dictionaries(text, text, max_size=3),
        created_time=optional_int,
        extra=st.one_of(
            unknown_fields(Metadata),
            st.fixed_dictionaries({"format": st.dictionaries(text, json_values, min_size=1, max_size=2)}),
        ),
    ),
    st.builds(
        Protocol,
        min_reader_version=st.integers(),
        min_writer_version=st.integers(),
        reader_features=st.none() | names,
        writer_features=st.none() | names,
        extra=unknown_fields(Protocol),
    ),
    st.builds(Txn, app_id=text, version=st.integers(), last_updated=optional_int, extra=unknown_fields(Txn)),
    st.builds(
        DomainMetadata, domain=text, configuration=text, removed=st.booleans(), extra=unknown_fields(DomainMetadata)
    ),
    st.builds(
        CommitInfo,
        timestamp=optional_int,
        operation=optional_text,
        operation_parameters=st.none() | st.dictionaries(text, json_values, max_size=3),
        is_blind_append=st.none() | st.booleans(),
        extra=unknown_fields(CommitInfo),
    ),
)


@given(any_action)
def test_reading_back_what_was_written_gives_the_same_action_with_its_unknown_fields(action: Action) -> None:
    assert actions.from_json(action.to_json()) == action
    assert "\n" not in action.to_json()


@given(any_action)
def test_a_line_written_again_is_the_same_line(action: Action) -> None:
    line = action.to_json()
    assert actions.from_json(line).to_json() == line


@given(vectors)
def test_a_deletion_vector_round_trips_by_itself(vector: DeletionVector) -> None:
    assert DeletionVector.from_json(vector.to_json()) == vector


def test_unknown_fields_are_kept_even_when_null() -> None:
    line = '{"txn":{"appId":"x","version":1,"new":null,"o":{"a":[1]}}}'
    txn = Txn.from_json(line)
    assert txn.extra == {"new": None, "o": {"a": [1]}}
    assert txn.to_json() == line


def test_a_null_of_a_known_optional_field_means_absent() -> None:
    assert Txn.from_json('{"txn":{"appId":"a","version":1,"lastUpdated":null}}') == Txn(app_id="a", version=1)


def test_a_known_field_wins_over_the_same_name_in_extra() -> None:
    assert Txn(app_id="a", version=1, extra={"version": 2}).to_json() == '{"txn":{"appId":"a","version":1}}'


def test_statistics_are_kept_byte_for_byte() -> None:
    stats = '{ "numRecords" : 1.50e1,\t"minValues":{"é":"\\u00e9"} }'
    add = AddFile(path="x", size=1, stats=stats)
    assert AddFile.from_json(add.to_json()).stats == stats


def test_any_mapping_can_be_written() -> None:
    proxy = MappingProxyType({"a": "b"})
    assert '"partitionValues":{"a":"b"}' in AddFile(path="x", size=1, partition_values=proxy).to_json()


@pytest.mark.parametrize(
    ("vector", "unique_id"),
    [
        (VECTOR, "uab^-aqEH.-t@S}K{vb[*k^@4"),
        (DeletionVector(storage_type="i", path_or_inline_dv="wi5b=", size_in_bytes=4, cardinality=1), "iwi5b="),
        (DeletionVector(storage_type="p", path_or_inline_dv="/x", offset=0, size_in_bytes=4, cardinality=1), "p/x@0"),
    ],
)
def test_a_deletion_vectors_unique_id_is_as_delta_defines_it(vector: DeletionVector, unique_id: str) -> None:
    assert vector.unique_id == unique_id


def places(error: pytest.ExceptionInfo[ValidationError]) -> list[str]:
    return [violation.where for violation in error.value.violations]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"add":{}}', ["path", "partitionValues", "size", "modificationTime", "dataChange"]),
        ('{"remove":{}}', ["path", "dataChange"]),
        ('{"cdc":{}}', ["path", "partitionValues", "size", "dataChange"]),
        ('{"metaData":{}}', ["id", "format", "schemaString", "partitionColumns", "configuration"]),
        ('{"protocol":{}}', ["minReaderVersion", "minWriterVersion"]),
        ('{"txn":{"appId":null}}', ["appId", "version"]),
        ('{"domainMetadata":{}}', ["domain", "configuration", "removed"]),
        (
            '{"remove":{"path":"x","dataChange":true,"deletionVector":{"offset":1}}}',
            [f"deletionVector.{n}" for n in ("storageType", "pathOrInlineDv", "sizeInBytes", "cardinality")],
        ),
    ],
)
def test_every_missing_field_is_listed_by_its_name_in_delta(line: str, expected: list[str]) -> None:
    action = next(iter(json.loads(line)))
    with pytest.raises(ValidationError) as error:
        actions.from_json(line)
    assert places(error) == [f"{action}.{name}" for name in expected]
    assert all(violation.message == "is missing" for violation in error.value.violations)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            '{"add":{"path":1,"partitionValues":[],"size":"3","modificationTime":1.0,"dataChange":1,"stats":{},"tags":[]}}',
            ["path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags"],
        ),
        (
            (
                '{"add":{"path":"x","partitionValues":{"a":1},"size":true,"modificationTime":0,"dataChange":true,'
                '"deletionVector":"x"}}'
            ),
            ["partitionValues", "size", "deletionVector"],
        ),
        (
            (
                '{"metaData":{"id":"x","format":{"provider":1,"options":{"a":null}},"schemaString":{},'
                '"partitionColumns":["a",1],"configuration":{"a":1}}}'
            ),
            ["schemaString", "partitionColumns", "configuration", "format.provider", "format.options"],
        ),
        ('{"metaData":{"id":"x","format":[],"schemaString":"","partitionColumns":[],"configuration":{}}}', ["format"]),
        (
            '{"protocol":{"minReaderVersion":"3","minWriterVersion":7,"readerFeatures":"a"}}',
            ["minReaderVersion", "readerFeatures"],
        ),
    ],
)
def test_every_field_of_the_wrong_type_is_listed(line: str, expected: list[str]) -> None:
    action = next(iter(json.loads(line)))
    with pytest.raises(ValidationError) as error:
        actions.from_json(line)
    assert places(error) == [f"{action}.{name}" for name in expected]


def test_commit_info_takes_anything_since_delta_lets_writers_say_anything() -> None:
    line = '{"commitInfo":{"timestamp":"today","operation":{"a":1},"isBlindAppend":"no","notebook":{"id":"1"}}}'
    info = CommitInfo.from_json(line)
    assert (info.timestamp, info.operation, info.is_blind_append) == (None, None, None)
    assert json.loads(info.to_json()) == json.loads(line)


def test_an_unknown_action_is_named() -> None:
    with pytest.raises(ValidationError, match="'sidecar'"):
        actions.from_json('{"sidecar":{}}')


@pytest.mark.parametrize(
    "line",
    ["", "[]", "3", "null", "{}", '{"add":{},"txn":{}}', '{"add":null}', '{"add":[]}', '{"add":"x"}', "nonsense"],
)
def test_a_line_that_is_not_one_action_is_refused(line: str) -> None:
    with pytest.raises(ValidationError):
        actions.from_json(line)


def test_another_action_than_the_expected_one_is_refused() -> None:
    with pytest.raises(ValidationError, match="expected the action 'add'"):
        AddFile.from_json('{"txn":{"appId":"a","version":1}}')


def test_a_line_beyond_all_reason_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actions, "MAX_LINE_CHARACTERS", 10)
    with pytest.raises(ValidationError, match="longer than 10 characters"):
        actions.from_json('{"txn":{"appId":"a","version":1}}')


NOT_STRICT = {
    "malformed": '{"a":',
    "empty": "",
    "two values": "1 2",
    "a byte order mark": "\ufeff{}",
    "a repeated key": '{"a":1,"b":2,"a":3}',
    "a repeated key further down": '[{"a":{"x":1,"x":1}}]',
    "NaN": '{"a":NaN}',
    "Infinity": "[Infinity]",
    "-Infinity": "[-Infinity]",
    "a number that overflows": "[1e999]",
    "a negative number that overflows": "-1e999",
    "an integer of 101 digits": "9" * 101,
    "an integer of 5000 digits": f'{{"a":{"1" * 5000}}}',
    "nesting that Python follows": "[" * 201 + "]" * 201,
    "nesting that Python does not follow": "[" * 100_000 + "]" * 100_000,
    "nested objects": '{"a":' * 201 + "1" + "}" * 201,
    "a lone surrogate as an escape": '["\\ud800"]',
    "a lone low surrogate in a key": '{"\\uDC00":1}',
    "a lone surrogate as a character": '["\ud800"]',
    "an escaped NUL": '{"a":"x\\u0000"}',
    "a raw NUL": '"\0"',
    "a raw newline in a string": '"\n"',
    "a single quote": "{'a':1}",
    "a trailing comma": "[1,]",
    "a comment": "[1] // one",
}


@pytest.mark.parametrize("source", NOT_STRICT.values(), ids=NOT_STRICT)
def test_strict_json_refuses(source: str) -> None:
    with pytest.raises(ValueError) as error:  # noqa: PT011 - the message is judged below
        loads_strict(source)
    assert type(error.value) is ValueError
    assert 0 < len(str(error.value)) < 200
    with pytest.raises(ValidationError) as wrapped:
        actions.from_json(source)
    assert places(wrapped) == ["line"]


@pytest.mark.parametrize("source", [b"{}", None, 3])
def test_strict_json_refuses_what_is_not_text(source: Any) -> None:
    with pytest.raises(ValueError, match="expected JSON text"):
        loads_strict(source)


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ('"\\ud83d\\ude00"', "😀"),
        ('"\\\\u0000"', "\\u0000"),
        ('"\\\\ud800"', "\\ud800"),
        ("[" * 200 + "]" * 200, None),
        (json.dumps([[]] * 1000), [[]] * 1000),
        ("-" + "9" * 100, 1 - 10**100),
        ("1e-999", 0.0),
        ('{"é":"ü"}', {"é": "ü"}),
    ],
)
def test_strict_json_reads(source: str, value: Any) -> None:
    found = loads_strict(source)
    assert value is None or found == value


@given(json_values)
def test_strict_json_reads_what_python_writes(value: Any) -> None:
    assert json_problem(value) is None
    assert loads_strict(json.dumps(value)) == value
    assert loads_strict(json.dumps(value, ensure_ascii=False)) == value


circular: list[Any] = []
circular.append(circular)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"),
        [float("inf")],
        {1: 2},
        {"a": {None: 1}},
        {"a": object()},
        b"x",
        {1, 2},
        "\ud800",
        {"\0": 1},
        10**100,
        -(10**100),
        [10**5000],
        circular,
    ],
)
def test_a_value_without_a_json_form_is_explained(value: Any) -> None:
    assert json_problem(value)


def test_parsed_json_must_be_strict_too() -> None:
    with pytest.raises(ValidationError, match="nan"):
        actions.from_json({"txn": {"appId": "a", "version": 1, "x": float("nan")}})


def test_to_json_refuses_nan() -> None:
    with pytest.raises(ValueError, match="JSON"):
        Txn(app_id="a", version=1, extra={"x": float("nan")}).to_json()
