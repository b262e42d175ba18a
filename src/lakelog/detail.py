"""What there is to say about a dataset at its head."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import pyarrow.compute as pc

from lakelog.changes.clustering import CLUSTERING, clustering_columns
from lakelog.log.snapshot.snapshot import Snapshot, moment
from lakelog.log.validation.features import supported_features


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetDetail:
    """A dataset at its head."""

    id: str
    """As the Delta log calls the table."""
    name: str
    description: str | None
    location: str
    version: int
    created_at: datetime | None
    last_modified: datetime
    partition_columns: tuple[str, ...]
    clustering_columns: tuple[str, ...]
    """Those of a table that came from Delta, where it was clustered by them."""
    files: int
    bytes: int
    properties: Mapping[str, str]
    min_reader_version: int
    min_writer_version: int
    features: tuple[str, ...]


def detail_of(snapshot: Snapshot, name: str, location: str, last_modified: datetime) -> DatasetDetail:
    metadata, protocol = snapshot.metadata, snapshot.protocol
    sizes = snapshot.files(columns=["size"]).column("size")
    return DatasetDetail(
        id=metadata.id,
        name=name,
        description=metadata.description,
        location=location,
        version=snapshot.version,
        created_at=None if metadata.created_time is None else moment(metadata.created_time),
        last_modified=last_modified,
        partition_columns=tuple(metadata.partition_columns),
        clustering_columns=_clustered(snapshot),
        files=len(sizes),
        bytes=int(pc.sum(sizes).as_py() or 0),
        properties=dict(metadata.configuration),
        min_reader_version=protocol.min_reader_version,
        min_writer_version=protocol.min_writer_version,
        features=tuple(sorted(supported_features(protocol))),
    )


def _clustered(snapshot: Snapshot) -> tuple[str, ...]:
    """The domain names columns as files do."""
    text = snapshot.domain(CLUSTERING)
    if text is None:
        return ()
    metadata = snapshot.state.metadata
    logical = dict(zip(metadata.physical.names, metadata.schema.names, strict=True))
    return tuple(".".join([logical.get(path[0], path[0]), *path[1:]]) for path in clustering_columns(text))
