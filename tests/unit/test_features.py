"""Protocols, and what a table can be upgraded to."""

import itertools

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.actions import Protocol
from lakelog.log.validation.features import (
    FEATURES,
    LAKELOG_FEATURE,
    implied_features,
    needed_features,
    protocol_problems,
    raised_protocol,
    supported_features,
    unenforced_features,
    upgrade_problems,
)


def protocol(reader: int, writer: int, readers: list[str] | None = None, writers: list[str] | None = None) -> Protocol:
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=None if readers is None else tuple(readers),
        writer_features=None if writers is None else tuple(writers),
    )


def test_every_prerequisite_is_itself_a_known_feature() -> None:
    needed = set(itertools.chain.from_iterable(feature.needs for feature in FEATURES.values()))
    assert needed <= FEATURES.keys()


def test_every_name_is_known_by_itself() -> None:
    assert all(name == feature.name for name, feature in FEATURES.items())
    assert not FEATURES[LAKELOG_FEATURE].reader


@pytest.mark.parametrize(
    ("reader", "writer", "expected"),
    [
        (1, 1, ""),
        (1, 2, "appendOnly invariants"),
        (1, 3, "appendOnly invariants checkConstraints"),
        (1, 4, "appendOnly invariants checkConstraints changeDataFeed generatedColumns"),
        (1, 5, "appendOnly invariants checkConstraints changeDataFeed generatedColumns"),
        (2, 5, "appendOnly invariants checkConstraints changeDataFeed generatedColumns columnMapping"),
        (2, 6, "appendOnly invariants checkConstraints changeDataFeed generatedColumns columnMapping identityColumns"),
    ],
)
def test_legacy_versions_imply_features(reader: int, writer: int, expected: str) -> None:
    assert implied_features(protocol(reader, writer)) == set(expected.split())


def test_a_protocol_with_lists_implies_nothing() -> None:
    listed = protocol(2, 7, writers=["columnMapping"])
    assert implied_features(listed) == frozenset()
    assert supported_features(listed) == {"columnMapping"}


@pytest.mark.parametrize(
    "sound",
    [
        protocol(1, 1),
        protocol(1, 2),
        protocol(2, 5),
        protocol(1, 7, writers=[]),
        protocol(1, 7, writers=["appendOnly", LAKELOG_FEATURE]),
        protocol(2, 7, writers=["columnMapping", "identityColumns"]),
        protocol(3, 7, [], []),
        protocol(3, 7, ["columnMapping"], ["columnMapping", "icebergCompatV1"]),
        protocol(3, 7, ["deletionVectors"], ["deletionVectors", "rowTracking", "domainMetadata"]),
        protocol(
            3,
            7,
            ["catalogManaged", "vacuumProtocolCheck"],
            ["catalogManaged", "vacuumProtocolCheck", "inCommitTimestamp"],
        ),
    ],
)
def test_a_sound_protocol_has_no_problems(sound: Protocol) -> None:
    assert protocol_problems(sound) == []


@pytest.mark.parametrize(
    ("unsound", "expected"),
    [
        (protocol(0, 2), ["reader version 0 is not supported"]),
        (protocol(4, 7, [], []), ["reader version 4 is not supported"]),
        (protocol(1, 8, writers=[]), ["writer version 8 is not supported"]),
        (protocol(-1, 0), ["reader version -1 is not supported", "writer version 0 is not supported"]),
        (protocol(3, 7, None, []), ["reader version 3 needs readerFeatures"]),
        (protocol(1, 7), ["writer version 7 needs writerFeatures"]),
        (protocol(1, 7, [], []), ["readerFeatures can stand only with reader version 3, found 1"]),
        (protocol(1, 2, writers=[]), ["writerFeatures can stand only with writer version 7, found 2"]),
        (protocol(3, 5, []), ["reader version 3 needs writer version 7, found 5"]),
        (protocol(1, 7, writers=["appendOnly", "appendOnly"]), ["writerFeatures lists 'appendOnly' 2 times"]),
        (
            protocol(3, 7, ["timestampNtz", "timestampNtz"], ["timestampNtz"]),
            ["readerFeatures lists 'timestampNtz' 2 times"],
        ),
        (protocol(1, 7, writers=["appendonly"]), ["unknown feature 'appendonly'"]),
        (protocol(3, 7, ["telepathy"], ["telepathy"]), ["unknown feature 'telepathy'"]),
        (protocol(3, 7, ["deletionVectors"], []), ["not in writerFeatures"]),
        (protocol(3, 7, [], ["deletionVectors"]), ["not in readerFeatures"]),
        (protocol(3, 7, ["appendOnly"], ["appendOnly"]), ["concerns writers only"]),
        (protocol(1, 7, writers=["deletionVectors"]), ["needs reader version 3"]),
        (protocol(1, 7, writers=["columnMapping"]), ["needs reader version 2, found 1"]),
        (protocol(1, 7, writers=["rowTracking"]), ["'rowTracking' needs 'domainMetadata'"]),
        (protocol(1, 7, writers=["clustering"]), ["'clustering' needs 'domainMetadata'"]),
        (
            protocol(3, 7, ["catalogManaged"], ["catalogManaged"]),
            ["needs 'inCommitTimestamp' and 'vacuumProtocolCheck'"],
        ),
        (
            protocol(1, 7, writers=["telepathy", "rowTracking", "deletionVectors"]),
            ["unknown feature 'telepathy'", "needs 'domainMetadata'", "needs reader version 3"],
        ),
    ],
)
def test_every_problem_of_an_unsound_protocol_is_named(unsound: Protocol, expected: list[str]) -> None:
    found = protocol_problems(unsound)
    assert len(found) == len(expected)
    for problem, part in zip(found, expected, strict=True):
        assert part in problem


LEGACY_4 = ["appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns"]


@pytest.mark.parametrize(
    ("current", "new"),
    [
        (protocol(1, 2), protocol(1, 2)),
        (protocol(1, 2), protocol(2, 5)),
        (protocol(1, 4), protocol(1, 7, writers=LEGACY_4)),
        (protocol(1, 2), protocol(3, 7, ["deletionVectors"], ["appendOnly", "invariants", "deletionVectors"])),
        (protocol(2, 7, writers=["columnMapping"]), protocol(3, 7, ["columnMapping"], ["columnMapping"])),
        (protocol(1, 7, writers=[]), protocol(1, 7, writers=[LAKELOG_FEATURE])),
    ],
)
def test_an_upgrade_that_keeps_everything_is_allowed(current: Protocol, new: Protocol) -> None:
    assert upgrade_problems(current, new) == []


@pytest.mark.parametrize(
    ("current", "new", "expected"),
    [
        (protocol(2, 5), protocol(1, 5), ["reader version 2 cannot go back to 1", "columnMapping"]),
        (protocol(1, 4), protocol(1, 3), ["writer version 4 cannot go back to 3", "changeDataFeed, generatedColumns"]),
        (protocol(1, 4), protocol(1, 7, writers=["appendOnly"]), ["changeDataFeed, checkConstraints"]),
        (protocol(1, 7, writers=["appendOnly"]), protocol(1, 7, writers=[]), ["features would be lost: appendOnly"]),
        (
            protocol(3, 7, ["deletionVectors"], ["deletionVectors"]),
            protocol(1, 2),
            ["reader version", "writer version", "features would be lost: deletionVectors"],
        ),
    ],
)
def test_an_upgrade_that_loses_something_is_refused(current: Protocol, new: Protocol, expected: list[str]) -> None:
    found = upgrade_problems(current, new)
    assert len(found) == len(expected)
    for problem, part in zip(found, expected, strict=True):
        assert part in problem


def test_a_local_time_anywhere_in_the_schema_needs_its_feature() -> None:
    nested = pa.schema([("a", pa.list_(pa.struct([("at", pa.timestamp("us"))])))])
    protocol = raised_protocol(None, needed_features(nested, {}))
    assert protocol.reader_features == ("timestampNtz",)
    assert protocol_problems(protocol) == []
    zoned = pa.schema([("a", pa.timestamp("us", "UTC"))])
    assert raised_protocol(None, needed_features(zoned, {})).min_reader_version == 1


def in_a_map(metadata: dict[str, str]) -> pa.Schema:
    """A column with metadata, deep inside."""
    column = pa.field("x", pa.int8(), metadata=metadata)
    return pa.schema([("m", pa.map_(pa.string(), pa.list_(pa.struct([column]))))])


@pytest.mark.parametrize(
    ("schema", "configuration", "expected"),
    [
        (in_a_map({}), {}, ""),
        (in_a_map({"comment": "x"}), {"delta.appendOnly": "false", "delta.columnMapping.mode": "none"}, ""),
        (pa.schema([("a", pa.map_(pa.timestamp("us"), pa.int8()))]), {}, "timestampNtz"),
        (in_a_map({"delta.typeChanges": "json:[]"}), {}, "typeWidening"),
        (in_a_map({"delta.invariants": "x > 3"}), {}, "invariants"),
        (in_a_map({"delta.generationExpression": "y"}), {}, "generatedColumns"),
        (in_a_map({"delta.identity.start": "json:1"}), {}, "identityColumns"),
        (in_a_map({"CURRENT_DEFAULT": "1"}), {}, "allowColumnDefaults"),
        (in_a_map({}), {"delta.enableTypeWidening": "true"}, "typeWidening"),
        (in_a_map({}), {"delta.columnMapping.mode": "name"}, "columnMapping"),
        (in_a_map({}), {"delta.columnMapping.mode": "id"}, "columnMapping"),
        (in_a_map({}), {"delta.appendOnly": "TRUE"}, "appendOnly"),
        (in_a_map({}), {"delta.enableChangeDataFeed": "true"}, "changeDataFeed"),
        (in_a_map({}), {"delta.enableDeletionVectors": "true"}, "deletionVectors"),
        (in_a_map({}), {"delta.enableInCommitTimestamps": "true"}, "inCommitTimestamp"),
        (in_a_map({}), {"delta.enableRowTracking": "true"}, "rowTracking"),
        (in_a_map({}), {"delta.checkpointPolicy": "v2"}, "v2Checkpoint"),
        (in_a_map({}), {"delta.checkpointPolicy": "classic"}, ""),
        (in_a_map({}), {"delta.constraints.c": "x > 3", "delta.appendOnly": "true"}, "appendOnly checkConstraints"),
    ],
)
def test_what_a_table_makes_use_of_needs_its_feature(
    schema: pa.Schema, configuration: dict[str, str], expected: str
) -> None:
    assert needed_features(schema, configuration) == set(expected.split())


ICEBERG = ["icebergCompatV3", "columnMapping", "rowTracking", "domainMetadata"]


@pytest.mark.parametrize(
    ("current", "needed", "expected"),
    [
        (None, [], protocol(1, 2)),
        (None, ["appendOnly"], protocol(1, 2)),
        (None, ["checkConstraints"], protocol(1, 3)),
        (None, ["columnMapping"], protocol(2, 5)),
        (protocol(1, 1), ["invariants"], protocol(1, 2)),
        (protocol(1, 4), ["columnMapping"], protocol(2, 5)),
        (protocol(1, 6), ["columnMapping"], protocol(2, 6)),
        (protocol(1, 4), ["inCommitTimestamp"], protocol(1, 7, writers=[*LEGACY_4, "inCommitTimestamp"])),
        (
            protocol(2, 5),
            ["rowTracking"],
            protocol(2, 7, writers=[*LEGACY_4, "columnMapping", "domainMetadata", "rowTracking"]),
        ),
        (
            protocol(2, 5),
            ["typeWidening"],
            protocol(3, 7, ["columnMapping", "typeWidening"], [*LEGACY_4, "columnMapping", "typeWidening"]),
        ),
        (
            None,
            ["timestampNtz"],
            protocol(3, 7, ["timestampNtz"], ["appendOnly", "invariants", "timestampNtz"]),
        ),
        (
            protocol(1, 7, writers=["telepathy"]),
            ["columnMapping"],
            protocol(2, 7, writers=["telepathy", "columnMapping"]),
        ),
        (protocol(1, 7, writers=[]), ["checkConstraints"], protocol(1, 7, writers=["checkConstraints"])),
        (
            protocol(3, 7, ["deletionVectors"], ["deletionVectors", "appendOnly"]),
            ["columnMapping", "appendOnly"],
            protocol(3, 7, ["deletionVectors", "columnMapping"], ["deletionVectors", "appendOnly", "columnMapping"]),
        ),
        (
            protocol(2, 7, writers=["columnMapping"]),
            ["deletionVectors"],
            protocol(3, 7, ["columnMapping", "deletionVectors"], ["columnMapping", "deletionVectors"]),
        ),
    ],
)
def test_a_protocol_is_raised_no_further_than_needed(
    current: Protocol | None, needed: list[str], expected: Protocol
) -> None:
    assert raised_protocol(current, frozenset(needed)) == expected


def test_a_raised_protocol_has_what_its_features_need() -> None:
    assert supported_features(raised_protocol(None, frozenset({"icebergCompatV3"}))) >= {*ICEBERG}


@pytest.mark.parametrize(
    "current",
    [protocol(2, 5), protocol(2, 7, writers=["columnMapping"]), protocol(3, 7, ["columnMapping"], ["columnMapping"])],
)
def test_a_protocol_that_has_everything_stays(current: Protocol) -> None:
    assert raised_protocol(current, frozenset({"columnMapping"})) is current


def test_a_preview_stands_for_its_feature() -> None:
    preview = protocol(3, 7, ["typeWidening-preview"], ["typeWidening-preview"])
    assert raised_protocol(preview, frozenset({"typeWidening"})) is preview


SOUND = [
    protocol(1, 1),
    protocol(1, 2),
    protocol(1, 4),
    protocol(2, 5),
    protocol(2, 6),
    protocol(1, 7, writers=["appendOnly", LAKELOG_FEATURE]),
    protocol(2, 7, writers=["columnMapping"]),
    protocol(3, 7, ["deletionVectors"], ["deletionVectors"]),
]


@given(st.sampled_from([None, *SOUND]), st.frozensets(st.sampled_from([*FEATURES]), max_size=5))
def test_raising_is_a_sound_upgrade_to_a_sound_protocol(current: Protocol | None, needed: frozenset[str]) -> None:
    raised = raised_protocol(current, needed)
    known = supported_features(raised)
    assert protocol_problems(raised) == []
    assert all(name in known or f"{name}-preview" in known for name in needed)
    assert upgrade_problems(current or protocol(1, 2), raised) == []
    assert raised_protocol(raised, needed) is raised


@pytest.mark.parametrize(
    ("collations", "unenforced"),
    [
        ('json:{"s":"spark.UTF8_LCASE"}', ["collations"]),
        ('json:{"s":"icu.UNICODE.75.1"}', ["collations"]),
        ('json:{"s":"spark.UTF8_BINARY"}', []),
        ("icu.UNICODE", ["collations"]),
    ],
)
def test_rows_are_not_written_to_strings_of_another_collation(collations: str, unenforced: list[str]) -> None:
    text = pa.field("s", pa.string(), metadata={"__COLLATIONS": collations})
    assert unenforced_features(pa.schema([pa.field("outer", pa.struct([text]))]), {}) == unenforced
