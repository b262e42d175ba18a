"""A dataset that begins as another one was at a version: with that one's files where they are, or with copies."""

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import DeletionVector, DomainMetadata, Metadata
from lakelog.catalog.base import now_ms
from lakelog.changes.clustering import CLUSTERING, cluster_as
from lakelog.changes.conflicts import Reads
from lakelog.changes.leases import register_write, take_back
from lakelog.changes.properties import check_new, check_taken_over
from lakelog.changes.restore import added_again, inherited_from, row_groups_of
from lakelog.changes.retry import Prepared, commit_with_retries
from lakelog.dataset import Dataset
from lakelog.errors import (
    CommitOutcomeUnknown,
    DatasetExistsError,
    DatasetNotFoundError,
    LakelogError,
    ValidationError,
    Violation,
)
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.draft import Description, Draft, Inherited
from lakelog.log.commit.files import REMOVED, AddFiles, RemoveFiles, among
from lakelog.log.deletion_vectors import vectors_of
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import Head
from lakelog.log.validation.features import MIRROR, needed_features, raised_protocol, supported_features
from lakelog.log.validation.text import check_name
from lakelog.schema.mapping import MAX_ID, is_mapped, largest_recorded
from lakelog.storage.locations import absolute
from lakelog.storage.uris import WRITE, Storage, is_absolute, root_uri, uri_of, write_directory
from lakelog.threads import map_in_threads

if TYPE_CHECKING:
    from lakelog.lake import Lake

_OF_THE_SOURCE = ("delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp")
"""Properties that speak of the source's versions."""


def clone(
    lake: "Lake",
    source: Dataset,
    snapshot: Snapshot,
    name: str,
    *,
    location: str | os.PathLike[str] | None = None,
    replaces: bool = False,
    properties: Mapping[str, str] | None = None,
    shallow: bool = True,
) -> Dataset:
    """Raises ``DatasetExistsError`` unless ``replaces`` says that an existing dataset is to become the clone."""
    check_name(name)
    files = snapshot.files()
    _refuse_converted(source, snapshot, files)
    check_taken_over(properties or {}, snapshot.metadata.configuration)
    target = _existing(lake, name)
    if target is not None and not replaces:
        raise DatasetExistsError(f"there is already a dataset {name!r}: pass replace=True to make it the clone")
    if target is not None and target.id == source.id and target.location == source.location:
        message = f"{name!r} cannot replace itself: dataset.restore() makes it what it was"
        raise ValidationError("clone", [Violation("name", message)])
    if target is not None and location is not None and absolute(location) != target.location:
        message = f"{name!r} stays where it is, {target.location}: leave the location out to replace it"
        raise ValidationError("clone", [Violation("location", message)])
    place = lake.free_location(name, location) if target is None else target.location
    with _files_at(lake.committer, place, source.location, files, shallow) as (paths, vectors, leases):
        adds = _adds(files, paths, vectors)
        brought = _Brought(source, snapshot, files, paths, adds, leases, shallow, is_here=_is_in(lake, source))
        if target is not None:
            return _replace(lake, target, brought, properties or {})
        metadata = brought.metadata(str(uuid.uuid4()), name, properties or {})
        protocol = raised_protocol(snapshot.protocol, needed_features(snapshot.schema, metadata.configuration))
        actions = [protocol, metadata, *brought.actions()]
        if (clustering := snapshot.domain(CLUSTERING)) is not None:
            actions.append(DomainMetadata(domain=CLUSTERING, configuration=clustering, removed=False))
        draft = Draft(
            0,
            -1,
            actions,
            brought.description(None),
            brought.row_groups,
            inherited=brought.inherited,
            leases=brought.leases,
        )
        return lake.handle(lake.create_from(name, draft, place)[0])


def _existing(lake: "Lake", name: str) -> Dataset | None:
    try:
        return lake.dataset(name)
    except DatasetNotFoundError:
        return None


def _is_in(lake: "Lake", dataset: Dataset) -> bool:
    """Whether a dataset, which may have been opened elsewhere, is in this catalog. No two share a location."""
    with lake.committer.catalog.session() as session:
        rows = session.fetch(lake.committer.catalog.queries["table_by_id"], {"table_id": dataset.id})
    return any(Head(*row[: len(Head._fields)]).location == dataset.location for row in rows)


def _refuse_converted(source: Dataset, snapshot: Snapshot, files: Any) -> None:
    metadata = snapshot.state.metadata
    groups = snapshot.file_groups_as(metadata.schema, metadata.physical, files)
    if not all(group.native for group in groups):
        raise LakelogError(
            f"version {snapshot.version} of {source.name!r} has files from before a column became text, which only its "
            "own history can read: optimize() the source, which writes them again, and clone it then"
        )


def _replace(lake: "Lake", target: Dataset, brought: "_Brought", properties: Mapping[str, str]) -> Dataset:
    now = target.snapshot()
    before = now.metadata.configuration
    check_new({name: value for name, value in properties.items() if name == MIRROR}, before)
    live = now.files()
    # What both have stays as it is.
    leaving = live.filter(pc.invert(among(live, brought.adds)))
    brought = replace(brought, adds=brought.adds.filter(pc.invert(among(brought.adds, live))))
    metadata = brought.metadata(now.metadata.id, now.metadata.name, properties)
    metadata = replace(metadata, configuration=_kept(before, metadata.configuration, properties))
    needed = needed_features(brought.snapshot.schema, metadata.configuration)
    protocol = raised_protocol(now.protocol, needed | supported_features(brought.snapshot.protocol))
    actions: list[Any] = [metadata, *brought.actions(), *cluster_as(now, brought.snapshot.domain(CLUSTERING))]
    if protocol is not now.protocol:
        actions.append(protocol)
    if leaving.num_rows:
        actions.append(RemoveFiles(leaving.select(REMOVED)))
    description = brought.description(leaving)
    prepared = Prepared(
        table_id=target.id,
        base_version=now.version,
        draft_for=lambda expected: Draft(
            target.id,
            expected,
            actions,
            description,
            brought.row_groups,
            inherited=brought.inherited,
            leases=brought.leases,
        ),
        reads=Reads(everything=True),
    )
    commit_with_retries(lake.committer, [prepared])
    return target


def _kept(before: Mapping[str, str], arriving: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, str]:
    """The properties of a clone that replaces a table, which goes on to publish its log as it did."""
    configuration = dict(arriving)
    if MIRROR not in asked:
        configuration.pop(MIRROR, None)
        configuration |= {name: value for name, value in before.items() if name == MIRROR}
    if is_mapped(configuration):
        # An id is never used again.
        configuration[MAX_ID] = str(max(map(largest_recorded, (before, arriving))))
    return configuration


def _adds(files: Any, paths: Mapping[str, str], vectors: Mapping[str, str]) -> Any:
    """Files of the source as the clone adds them, under its own paths, and vectors by the paths of the source."""
    adds = added_again(files)
    old = adds.column("path").to_pylist()
    changed = {
        "path": pa.array([paths[path] for path in old], pa.string()),
        "deletion_vector": pa.array([vectors.get(path) for path in old], pa.string()),
        # Rows are numbered by each table for itself.
        "base_row_id": pa.nulls(len(old), pa.int64()),
        "default_row_commit_version": pa.nulls(len(old), pa.int64()),
    }
    for name, values in changed.items():
        adds = adds.set_column(adds.column_names.index(name), name, values)
    return adds


@dataclass(frozen=True)
class _Brought:
    """What a clone takes over of its source."""

    source: Dataset
    snapshot: Snapshot
    files: Any
    paths: Mapping[str, str]
    """Of the files, by the paths that the source has for them."""
    adds: pa.Table
    """The files as the clone adds them."""
    leases: Sequence[str]
    """Of the directory that they were copied to."""
    shallow: bool
    is_here: bool
    """Whether the source is in the catalog of the clone."""

    def metadata(self, metadata_id: str, name: str | None, properties: Mapping[str, str]) -> Metadata:
        configuration = {**self.snapshot.metadata.configuration, **properties}
        for key in _OF_THE_SOURCE:
            configuration.pop(key, None)
        return replace(
            self.snapshot.metadata, id=metadata_id, name=name, configuration=configuration, created_time=now_ms()
        )

    def actions(self) -> list[Any]:
        actions: list[Any] = []
        if self.adds.num_rows:
            actions.append(AddFiles(self.adds))
        return actions

    @property
    def row_groups(self) -> Any:
        groups = row_groups_of(self.snapshot, self.files)
        paths = pa.array([self.paths[path] for path in groups.column("path").to_pylist()], pa.string())
        named = groups.set_column(groups.column_names.index("path"), "path", paths)
        return named.filter(pc.is_in(paths, self.adds.column("path").combine_chunks()))

    @property
    def inherited(self) -> Inherited:
        unsure = frozenset(self.paths[path] for path in inherited_from(self.snapshot, self.files).unsure)
        # Files that the clone has already were recorded under a schema of its own, which need not be theirs.
        inherited = Inherited(unsure=unsure, outside=True, reads_all=True)
        if not self.shallow or not self.is_here:
            return inherited
        return replace(inherited, version=self.snapshot.version, table_id=self.source.id)

    def description(self, leaving: Any) -> Description:
        size = pc.sum(self.files.column("size")).as_py() or 0
        metrics = {
            "sourceTableSize": size,
            "sourceNumOfFiles": self.files.num_rows,
            "numRemovedFiles": 0 if leaving is None else leaving.num_rows,
            "removedFilesSize": 0 if leaving is None else pc.sum(leaving.column("size")).as_py() or 0,
            "numCopiedFiles": 0 if self.shallow else self.files.num_rows,
            "copiedFilesSize": 0 if self.shallow else size,
        }
        return Description(
            operation="CLONE",
            operation_parameters={
                "source": self.source.name,
                "sourceVersion": self.snapshot.version,
                "isShallow": self.shallow,
            },
            extra={"operationMetrics": {name: str(value) for name, value in metrics.items()}, "isBlindAppend": False},
        )


@contextmanager
def _files_at(
    committer: Committer, place: str, location: str, files: Any, shallow: bool
) -> Iterator[tuple[Mapping[str, str], Mapping[str, str], Sequence[str]]]:
    """How the clone names files and deletion vectors, which are copied if need be, and go if there is no clone.

    The last are the leases that the commit needs for that.
    """
    paths = files.column("path").to_pylist()
    found = {path: vector for path, vector in zip(paths, vectors_of(files, root_uri(location)), strict=True) if vector}
    if shallow:
        yield (
            {path: uri_of(location, path) for path in paths},
            {path: _elsewhere(each.vector, each.place) for path, each in found.items()},
            (),
        )
        return
    if "://" in place:
        raise LakelogError(f"files can be copied to local directories only so far, not to {place}")
    directory = write_directory()
    copies = _copied_paths(paths, directory)
    moves = {uri_of(location, path): copies[path] for path in paths}
    for each in found.values():
        if (uri := each.place) is not None:
            moves.setdefault(uri, f"{directory}/{uri.rpartition('/')[2]}")
    vectors = {
        path: _elsewhere(each.vector, each.place and f"{root_uri(place)}/{moves[each.place]}")
        for path, each in found.items()
    }
    register_write(committer, place, directory)
    try:
        storage = Storage()
        for _ in map_in_threads(lambda move: _copy(storage, move[0], Path(place, unquote(move[1]))), moves.items()):
            pass
        yield copies, vectors, (directory,)
    except CommitOutcomeUnknown:
        raise
    except Exception:
        if take_back(committer, directory):
            shutil.rmtree(Path(place, directory), ignore_errors=True)
        raise


def _copied_paths(paths: Sequence[str], directory: str) -> dict[str, str]:
    """In a directory of this clone's own, below which partitions stay what they are."""
    copies: dict[str, str] = {}
    taken: set[str] = set()
    for number, path in enumerate(paths):
        first, slash, rest = path.partition("/")
        below = rest if slash and first.startswith(f"{WRITE}=") else path
        # Two writes may each have a file of the same name, and what lies elsewhere has no place here yet.
        if below in taken or is_absolute(path):
            below = f"{number}/{path.rpartition('/')[2]}"
        taken.add(below)
        copies[path] = f"{directory}/{below}"
    return copies


def _elsewhere(vector: DeletionVector, uri: str | None) -> str:
    """A deletion vector by where it lies."""
    if uri is None:
        return vector.to_json()
    return replace(vector, storage_type="p", path_or_inline_dv=uri).to_json()


def _copy(storage: Storage, uri: str, target: Path) -> None:
    system, path = storage.at(uri)
    try:
        if not system.get_file_info(path).is_file and Path(path).exists():
            raise LakelogError(f"{uri} is no file, but a pipe or a device: nothing was changed")
        target.parent.mkdir(parents=True, exist_ok=True)
        with system.open_input_stream(path) as source, target.open("xb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
    except FileNotFoundError as error:
        raise LakelogError(f"{uri} is gone, so that the table cannot be copied: nothing was changed") from error
    except OSError as error:
        raise LakelogError(f"{uri} cannot be copied to {target.parent}: nothing was changed. Cause: {error}") from error
