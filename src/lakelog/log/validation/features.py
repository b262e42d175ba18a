"""Delta's protocol versions and table features: which there are, and which protocols and upgrades are sound.

Reader version 3 and writer version 7 list features by name; the versions below them each stand for a fixed set. This
module judges protocols as values. Whether Lakelog can itself do what a feature asks of a writer is not said here.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa

from lakelog.actions import Protocol
from lakelog.schema.collations import collated_columns
from lakelog.schema.evolution import widening
from lakelog.schema.mapping import children, columns, is_mapped

FEATURE_READER_VERSION = 3
FEATURE_WRITER_VERSION = 7

MIRROR = "lakelog.mirror"
"""The table property that says whether Delta's log is written, too: ``false``, ``fenced``, or absent for yes."""
FENCED = "fenced"

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

_CONSTRAINT = "delta.constraints."
_BY_PROPERTY = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableIcebergCompatV1": "icebergCompatV1",
    "delta.enableIcebergCompatV2": "icebergCompatV2",
    "delta.enableIcebergCompatV3": "icebergCompatV3",
    "delta.enableIcebergWriterCompatV1": "icebergWriterCompatV1",
    "delta.enableIcebergWriterCompatV3": "icebergWriterCompatV3",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableMaterializePartitionColumnsFeature": "materializePartitionColumns",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableVariantShredding": "variantShredding",
    widening.ENABLED: widening.FEATURE,
}
"""What a table property needs when it is true."""
SWITCHES = frozenset(_BY_PROPERTY)
"""Properties that are true or false."""
_BY_FIELD = {
    b"delta.invariants": "invariants",
    b"delta.generationExpression": "generatedColumns",
    b"delta.identity.": "identityColumns",
    b"delta.typeChanges": widening.FEATURE,
    b"CURRENT_DEFAULT": "allowColumnDefaults",
}
"""What the metadata of a column needs that has a key which begins so."""


_UNENFORCED = frozenset(
    {
        "collations",
        "collations-preview",
        "icebergCompatV1",
        "icebergCompatV2",
        "icebergCompatV3",
        "icebergWriterCompatV1",
        "icebergWriterCompatV3",
        "identityColumns",
        "materializePartitionColumns",
        "rowTracking",
        "variantShredding",
    }
)
"""Features that ask something of every row that is written, or of its files, which Lakelog does not do."""


def unenforced_features(schema: pa.Schema, configuration: Mapping[str, str]) -> list[str]:
    """The features in use by which Lakelog must not write rows to a table."""
    return sorted(needed_features(schema, configuration) & _UNENFORCED)


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


def needed_features(schema: pa.Schema, configuration: Mapping[str, str]) -> frozenset[str]:
    """The features that a table of this schema and these properties makes use of."""
    keys = {key for column in columns(schema) for key in column.metadata or ()}
    needed = {feature for prefix, feature in _BY_FIELD.items() if any(key.startswith(prefix) for key in keys)}
    needed |= {feature for name, feature in _BY_PROPERTY.items() if configuration.get(name, "").lower() == "true"}
    if any(name.lower().startswith(_CONSTRAINT) for name in configuration):
        needed.add("checkConstraints")
    if configuration.get("delta.checkpointPolicy") == "v2":
        needed.add("v2Checkpoint")
    if is_mapped(configuration):
        needed.add("columnMapping")
    if configuration.get(MIRROR) == FENCED:
        needed.add(LAKELOG_FEATURE)
    if any(_holds_local_time(field.type) for field in schema):
        needed.add("timestampNtz")
    if collated_columns(schema):
        needed.add("collations")
    return frozenset(needed)


def raised_protocol(current: Protocol | None, needed: frozenset[str]) -> Protocol:
    """The lowest protocol that has all that the current one has, and the needed features with what these need.

    None stands for a new table. Versions that imply features are kept as long as they can say it all. A feature whose
    preview the table has is not added, since clients that know only the preview would lose the table.
    """
    base = current or Protocol(min_reader_version=1, min_writer_version=2)
    supported = supported_features(base)
    missing = _with_needs(name for name in needed if supported.isdisjoint({name, f"{name}-preview"})) - supported
    if not missing:
        return base
    added = [feature for feature in FEATURES.values() if feature.name in missing]
    if base.min_writer_version < FEATURE_WRITER_VERSION and all(feature.legacy_writer for feature in added):
        return replace(
            base,
            min_reader_version=max([base.min_reader_version, *(feature.legacy_reader or 0 for feature in added)]),
            min_writer_version=max([base.min_writer_version, *(feature.legacy_writer or 0 for feature in added)]),
        )
    return _listed(base, supported | missing)


def _with_needs(names: Iterable[str]) -> frozenset[str]:
    """The features, with what they need, and what that needs."""
    found = frozenset(names)
    needs = found.union(*(FEATURES[name].needs for name in found))
    return found if needs == found else _with_needs(needs)


def _listed(base: Protocol, names: frozenset[str]) -> Protocol:
    """A protocol that lists these features, those that were listed before first, at or above the base's versions."""
    writers = tuple(dict.fromkeys((*(base.writer_features or ()), *(name for name in FEATURES if name in names))))
    readers = [FEATURES[name] for name in writers if name in FEATURES and FEATURES[name].reader]
    version = max([base.min_reader_version, *(f.legacy_reader or FEATURE_READER_VERSION for f in readers)])
    named = dict.fromkeys((*(base.reader_features or ()), *(feature.name for feature in readers)))
    return replace(
        base,
        min_reader_version=version,
        min_writer_version=FEATURE_WRITER_VERSION,
        reader_features=tuple(named) if version >= FEATURE_READER_VERSION else None,
        writer_features=writers,
    )


def _holds_local_time(kind: pa.DataType) -> bool:
    if pa.types.is_timestamp(kind):
        return bool(kind.tz is None)
    return any(_holds_local_time(child.type) for child in children(kind))


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
