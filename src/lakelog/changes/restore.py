"""Going back to an older version, by a new one that is like it. What came in between stays in the history."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import Action, Metadata
from lakelog.changes.clustering import CLUSTERING, cluster_as
from lakelog.changes.conflicts import Reads
from lakelog.changes.retry import Prepared, commit_with_retries
from lakelog.errors import LakelogError
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.draft import Description, Draft, Inherited
from lakelog.log.commit.files import ADD_COLUMNS, REMOVED, ROW_GROUP_COLUMNS, AddFiles, RemoveFiles, among
from lakelog.log.deletion_vectors import vectors_of
from lakelog.log.pruning.predicate import Predicate
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.validation.features import MIRROR, needed_features, raised_protocol
from lakelog.schema.leaves import leaf_columns
from lakelog.schema.mapping import MAX_ID, is_mapped, largest_recorded, physical_schema
from lakelog.storage.uris import missing, root_uri, uri_of

_KEY = ["version", "ordinal"]
_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """What a restoration did."""

    version: int | None
    """The version that it made; None if the table was like the old version already."""
    restored_version: int
    """The version that the table is like now."""
    files_restored: int = 0
    files_removed: int = 0
    metrics: Mapping[str, int]
    """What the history says of it, by Delta's names."""
    commit_id: str | None = None


def restore(
    committer: Committer,
    location: str,
    old: Snapshot,
    now: Snapshot,
    parameters: Mapping[str, Any],
    *,
    ignore_missing_files: bool = False,
    retries: int = 0,
) -> RestoreResult:
    """Commits what makes the table at ``now``, its head, like ``old``.

    Raises ``LakelogError`` if files are gone that were part of the old version, ``ConcurrencyError`` if the table's
    rows changed in the meantime.
    """
    then, live = old.files(whole=not ignore_missing_files), now.files()
    returning = then.filter(pc.invert(among(then, live)))
    leaving = live.filter(pc.invert(among(live, then)))
    gone = missing_files(location, returning)
    if gone and not ignore_missing_files:
        raise LakelogError(
            f"{len(gone)} files of version {old.version} are gone, so that it cannot be restored, and nothing was "
            f"changed: they may have been vacuumed. Put them back, restore a later version, or pass "
            f"ignore_missing_files=True to do without their rows: {_listed(gone)}"
        )
    if gone:
        returning = returning.filter(pc.invert(pc.is_in(returning.column("path"), pa.array(sorted(gone)))))
    rules = _rules(old, now)
    clustering = cluster_as(now, old.domain(CLUSTERING))
    metrics = {
        "tableSizeAfterRestore": _bytes(then) - sum(gone.values()),
        "numOfFilesAfterRestore": then.num_rows - len(gone),
        "numRemovedFiles": leaving.num_rows,
        "numRestoredFiles": returning.num_rows,
        "removedFilesSize": _bytes(leaving),
        "restoredFilesSize": _bytes(returning),
    }
    if not rules and not clustering and not returning.num_rows and not leaving.num_rows:
        return RestoreResult(version=None, restored_version=old.version, metrics=metrics)
    description = Description(
        operation="RESTORE",
        operation_parameters=parameters,
        extra={"operationMetrics": {name: str(value) for name, value in metrics.items()}, "isBlindAppend": False},
    )
    actions: list[Any] = [*rules, *clustering]
    if returning.num_rows:
        actions.append(AddFiles(added_again(returning)))
    if leaving.num_rows:
        actions.append(RemoveFiles(leaving.select(REMOVED)))
    groups = row_groups_of(old, returning) if returning.num_rows else ()
    inherited = replace(
        inherited_from(old, returning),
        version=old.version,
        restores=old.state.metadata.schema_version if rules else None,
        outside=True,
    )
    table_id = old.state.table_id
    prepared = Prepared(
        table_id=table_id,
        base_version=now.version,
        draft_for=lambda expected: Draft(table_id, expected, actions, description, groups, inherited=inherited),
        reads=Reads(everything=True),
    )
    (result,) = commit_with_retries(committer, [prepared], retries=retries)
    return RestoreResult(
        version=result.version,
        restored_version=old.version,
        files_restored=returning.num_rows,
        files_removed=leaving.num_rows,
        metrics=metrics,
        commit_id=result.commit_id,
    )


def missing_files(location: str, files: Any) -> dict[str, int]:
    """The paths of files of a table that are gone, or whose deletion vector is, with their sizes."""
    paths, sizes = files.column("path").to_pylist(), files.column("size").to_pylist()
    needed = {uri_of(location, path): path for path in paths}
    for path, vector in zip(paths, vectors_of(files, root_uri(location)), strict=True):
        if vector is not None and (place := vector.place) is not None:
            needed.setdefault(place, path)
    gone = {needed[uri] for uri in missing(list(needed))}
    return {path: size for path, size in zip(paths, sizes, strict=True) if path in gone}


def added_again(files: Any) -> Any:
    """Files of a snapshot as a commit adds them."""
    added = files.select(list(ADD_COLUMNS))
    place = added.column_names.index("data_change")
    return added.set_column(place, "data_change", pa.repeat(True, added.num_rows))


def row_groups_of(snapshot: Snapshot, files: Any, where: str | Predicate | None = None) -> Any:
    """The row groups of some files of a snapshot, as a commit adds them; ``where`` is a predicate that keeps them."""
    groups = snapshot.row_groups(where, whole_files=True, whole=False)
    paths = files.select([*_KEY, "path"])
    return groups.join(paths, _KEY, join_type="inner").select(list(ROW_GROUP_COLUMNS))


def inherited_from(snapshot: Snapshot, files: Any, physical: Any = None) -> Inherited:
    """What files of a snapshot bring with them when they are added again to a table of its schema, or of another."""
    pairs = zip(files.column("path").to_pylist(), files.column("schema_version").to_pylist(), strict=True)
    versions = dict(pairs)
    types = _types(snapshot.state.metadata.physical if physical is None else physical)
    certain = {
        version
        for version, schema in snapshot.schemas(files).items()
        if all(types.get(name, kind) == kind for name, kind in _types(physical_schema(schema)).items())
    }
    unsure = frozenset(path for path, version in versions.items() if version not in certain)
    return Inherited(schema_versions=versions, unsure=unsure)


def _rules(old: Snapshot, now: Snapshot) -> list[Action]:
    """The metadata to go back to, and the protocol if that needs more than the table has; it never gets less."""
    configuration = dict(old.metadata.configuration)
    # How the log is published is no part of what the table was.
    configuration.pop(MIRROR, None)
    if (mirror := now.metadata.configuration.get(MIRROR)) is not None:
        configuration[MIRROR] = mirror
    if is_mapped(configuration):
        # An id is never used again.
        largest = [largest_recorded(each.configuration) for each in (old.metadata, now.metadata)]
        configuration[MAX_ID] = str(max(largest))
    metadata: Metadata = replace(old.metadata, configuration=configuration)
    rules: list[Action] = []
    protocol = raised_protocol(now.protocol, needed_features(old.schema, configuration))
    if protocol is not now.protocol:
        rules.append(protocol)
    if metadata != now.metadata or old.state.metadata.schema_version != now.state.metadata.schema_version:
        rules.append(metadata)
    return rules


def _types(schema: Any) -> dict[str, Any]:
    return {leaf.name: leaf.type for leaf in leaf_columns(schema)}


def _bytes(files: Any) -> int:
    return pc.sum(files.column("size")).as_py() or 0


def _listed(paths: Mapping[str, int]) -> str:
    more = f" … and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(sorted(paths)[:_SHOWN]) + more
