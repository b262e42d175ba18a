"""Delta's protocol versions and table features: which there are, and which protocols and upgrades are sound.

Reader version 3 and writer version 7 list features by name; the versions below them each stand for a fixed set. This
module judges protocols as values. Whether Lakelog can itself do what a feature asks of a writer is not said here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakelog.actions import Protocol

FEATURE_READER_VERSION = 3
FEATURE_WRITER_VERSION = 7

# Writers that do not know this name must refuse the table, while readers, who need not care, still read the mirror.
LAKELOG_FEATURE = "lakelog.managed"


@dataclass(frozen=True, slots=True)
class TableFeature:
    """A feature that a protocol can list.

    Readers must know it when ``reader`` is set. ``legacy_reader`` and ``legacy_writer`` are the versions from which on
    a protocol without lists implies it; they are None where only a list can say it.
    """

    name: str
    reader: bool = False
    needs: tuple[str, ...] = ()
    legacy_reader: int | None = None
    legacy_writer: int | None = None


FEATURES: Mapping[str, TableFeature] = {
    feature.name: feature
    for feature in (
        TableFeature("appendOnly", legacy_reader=1, legacy_writer=2),
        TableFeature("invariants", legacy_reader=1, legacy_writer=2),
        TableFeature("checkConstraints", legacy_reader=1, legacy_writer=3),
        TableFeature("changeDataFeed", legacy_reader=1, legacy_writer=4),
        TableFeature("generatedColumns", legacy_reader=1, legacy_writer=4),
        TableFeature("columnMapping", reader=True, legacy_reader=2, legacy_writer=5),
        TableFeature("identityColumns", legacy_reader=1, legacy_writer=6),
        TableFeature("allowColumnDefaults"),
        TableFeature("catalogManaged", reader=True, needs=("inCommitTimestamp", "vacuumProtocolCheck")),
        TableFeature("checkpointProtection"),
        TableFeature("clustering", needs=("domainMetadata",)),
        TableFeature("collations"),
        TableFeature("collations-preview"),
        TableFeature("coordinatedCommits-preview", needs=("inCommitTimestamp", "vacuumProtocolCheck")),
        TableFeature("deletionVectors", reader=True),
        TableFeature("domainMetadata"),
        TableFeature("geospatial", reader=True),
        TableFeature("geospatial-dev", reader=True),
        TableFeature("icebergCompatV1", needs=("columnMapping",)),
        TableFeature("icebergCompatV2", needs=("columnMapping",)),
        TableFeature("icebergCompatV3", needs=("columnMapping", "rowTracking")),
        TableFeature("icebergWriterCompatV1", needs=("icebergCompatV2",)),
        TableFeature("icebergWriterCompatV3", needs=("icebergCompatV3",)),
        TableFeature("inCommitTimestamp"),
        TableFeature("materializePartitionColumns"),
        TableFeature("rowTracking", needs=("domainMetadata",)),
        TableFeature("timestampNtz", reader=True),
        TableFeature("typeWidening", reader=True),
        TableFeature("typeWidening-preview", reader=True),
        TableFeature("v2Checkpoint", reader=True),
        TableFeature("vacuumProtocolCheck", reader=True),
        TableFeature("variantShredding", reader=True, needs=("variantType",)),
        TableFeature("variantShredding-preview", reader=True),
        TableFeature("variantType", reader=True),
        TableFeature("variantType-preview", reader=True),
        TableFeature(LAKELOG_FEATURE),
    )
}


def implied_features(protocol: Protocol) -> frozenset[str]:
    """The features that a protocol's versions stand for without naming them; none where the writers' are listed."""
    if protocol.min_writer_version >= FEATURE_WRITER_VERSION:
        return frozenset()
    return frozenset(
        feature.name
        for feature in FEATURES.values()
        if feature.legacy_reader is not None
        and feature.legacy_writer is not None
        and feature.legacy_reader <= protocol.min_reader_version
        and feature.legacy_writer <= protocol.min_writer_version
    )


def supported_features(protocol: Protocol) -> frozenset[str]:
    """Every feature of a protocol, implied or listed."""
    return implied_features(protocol).union(protocol.reader_features or (), protocol.writer_features or ())


def protocol_problems(protocol: Protocol) -> list[str]:
    """Everything that is wrong with a protocol by itself; empty if it is sound and all its features are known."""
    problems = [
        *_version_problems("reader", protocol.min_reader_version, FEATURE_READER_VERSION, protocol.reader_features),
        *_version_problems("writer", protocol.min_writer_version, FEATURE_WRITER_VERSION, protocol.writer_features),
    ]
    if protocol.min_reader_version == FEATURE_READER_VERSION and protocol.min_writer_version < FEATURE_WRITER_VERSION:
        problems.append(
            f"reader version {FEATURE_READER_VERSION} needs writer version {FEATURE_WRITER_VERSION}, "
            f"found {protocol.min_writer_version}"
        )
    readers, writers = protocol.reader_features or (), protocol.writer_features or ()
    problems += _list_problems("readerFeatures", readers)
    problems += _list_problems("writerFeatures", writers)
    for name in dict.fromkeys((*readers, *writers)):
        if name not in FEATURES:
            problems.append(f"unknown feature {name!r}")
        else:
            problems += _feature_problems(FEATURES[name], protocol)
    return problems


def lowest_protocol(schema: pa.Schema) -> Protocol:
    """The lowest protocol that is true for a new table of this schema."""
    if any(_holds_local_time(field.type) for field in schema):
        features = ("timestampNtz",)
        legacy = ("appendOnly", "invariants")
        return Protocol(
            min_reader_version=3, min_writer_version=7, reader_features=features, writer_features=legacy + features
        )
    return Protocol(min_reader_version=1, min_writer_version=2)


def _holds_local_time(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_holds_local_time(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


def upgrade_problems(current: Protocol, new: Protocol) -> list[str]:
    """Why a table cannot go from one sound protocol to another: a lower version, or a feature that it would lose."""
    problems = []
    if new.min_reader_version < current.min_reader_version:
        problems.append(f"reader version {current.min_reader_version} cannot go back to {new.min_reader_version}")
    if new.min_writer_version < current.min_writer_version:
        problems.append(f"writer version {current.min_writer_version} cannot go back to {new.min_writer_version}")
    lost = supported_features(current) - supported_features(new)
    if lost:
        problems.append(f"features would be lost: {', '.join(sorted(lost))}; list them in the new protocol")
    return problems


def _version_problems(side: str, version: int, newest: int, features: tuple[str, ...] | None) -> Iterable[str]:
    if not 1 <= version <= newest:
        yield f"{side} version {version} is not supported; known are 1 to {newest}"
    elif version == newest and features is None:
        yield f"{side} version {newest} needs {side}Features, if only an empty list"
    elif version < newest and features is not None:
        yield f"{side}Features can stand only with {side} version {newest}, found {version}"


def _list_problems(label: str, features: tuple[str, ...]) -> list[str]:
    return [f"{label} lists {name!r} {count} times" for name, count in Counter(features).items() if count > 1]


def _feature_problems(feature: TableFeature, protocol: Protocol) -> Iterable[str]:
    name = feature.name
    readers, writers = protocol.reader_features or (), protocol.writer_features or ()
    if name in readers and not feature.reader:
        yield f"feature {name!r} concerns writers only and cannot stand in readerFeatures"
    if name not in writers:
        yield f"feature {name!r} stands in readerFeatures but not in writerFeatures"
    elif feature.reader and name not in readers:
        if protocol.min_reader_version >= FEATURE_READER_VERSION:
            yield f"feature {name!r} stands in writerFeatures but not in readerFeatures"
        elif feature.legacy_reader is None:
            yield f"feature {name!r} needs reader version {FEATURE_READER_VERSION} and a place in readerFeatures"
        elif protocol.min_reader_version < feature.legacy_reader:
            yield f"feature {name!r} needs reader version {feature.legacy_reader}, found {protocol.min_reader_version}"
    missing = [need for need in feature.needs if need not in writers]
    if missing:
        yield f"feature {name!r} needs {' and '.join(repr(need) for need in missing)}"
