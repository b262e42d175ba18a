"""The columns that Delta clusters a table by, which a domain of metadata names as files do."""

from collections.abc import Sequence

import pyarrow as pa

from lakelog.actions import DomainMetadata
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.schema.mapping import children
from lakelog.strict_json import parse_json

CLUSTERING = "delta.clustering"
"""The domain of metadata in which Delta keeps them."""


def cluster_as(snapshot: Snapshot, configuration: str | None) -> list[DomainMetadata]:
    """What gives a table another clustering, or none; nothing if it has that already."""
    present = snapshot.domain(CLUSTERING)
    if present == configuration:
        return []
    if configuration is not None:
        return [DomainMetadata(domain=CLUSTERING, configuration=configuration, removed=False)]
    assert present is not None
    return [DomainMetadata(domain=CLUSTERING, configuration=present, removed=True)]


def cluster_by_what_stays(snapshot: Snapshot, physical: pa.Schema, partitions: Sequence[str]) -> list[DomainMetadata]:
    """What ends the clustering of a table that gets another schema: it lacks one of its columns, or has partitions."""
    present = snapshot.domain(CLUSTERING)
    if present is None or (not partitions and all(_has(physical, path) for path in clustering_columns(present))):
        return []
    return cluster_as(snapshot, None)


def clustering_columns(configuration: str) -> list[list[str]]:
    """The path of each column by physical names; none, if a foreign writer has put something else there."""
    try:
        found = parse_json(configuration)
    except ValueError:
        return []
    paths = found.get("clusteringColumns") if isinstance(found, dict) else None
    if not isinstance(paths, list) or not all(isinstance(path, list) and path for path in paths):
        return []
    return [path for path in paths if all(isinstance(name, str) for name in path)]


def _has(schema: pa.Schema, path: list[str]) -> bool:
    fields = list(schema)
    for name in path:
        field = next((field for field in fields if field.name == name), None)
        if field is None:
            return False
        fields = children(field.type) if pa.types.is_struct(field.type) else []
    return True
