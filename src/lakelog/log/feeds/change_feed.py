"""The change data feed: which files hold the rows that commits inserted, updated and deleted.

A commit that has change files is told by them alone. Any other is told by what it added and removed, unless it says
that this changed no data.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.catalog.base import Row
from lakelog.catalog.stored import stored_json
from lakelog.catalog.tables import TABLES
from lakelog.errors import LakelogError, ValidationError, VersionNotFoundError, Violation
from lakelog.log.commit.committer import Committer
from lakelog.log.feeds.appends import are_partitioned_by
from lakelog.log.feeds.columns import FEED_PROPERTY, feed_column_problems
from lakelog.log.snapshot.file_groups import TO_READ
from lakelog.log.snapshot.snapshot import FILE_SCHEMA, Snapshot
from lakelog.log.state import TableMetadata, read_metadata
from lakelog.schema.evolution.changes import changes_between

if TYPE_CHECKING:
    from lakelog.log.table import Table

FEED_SCHEMA = pa.schema(
    [
        ("commit_version", pa.int64()),
        ("change_type", pa.string()),
        *(FILE_SCHEMA.field(name) for name in TO_READ),
        ("only_vector", pa.string()),
        ("commit_timestamp", pa.int64()),
    ]
)
"""What ``ChangeFeed.files`` gives. ``change_type`` is null where the file has it for each row. A file has the rows that
``deletion_vector`` leaves, and of them only those that ``only_vector`` names, if there is one."""

_FOUND = pa.schema(list(FEED_SCHEMA)[: 2 + len(TO_READ)])
_CDC = pa.schema([TABLES["dl_cdc_files"].field(name) for name in TO_READ if name in TABLES["dl_cdc_files"].names])
_ORDER = [(name, "ascending") for name in ("commit_version", "change_type", "version", "ordinal")]
_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
_BREAKING = frozenset({"dropped", "renamed", "retyped", "promoted"})
_AT_ONCE = 100
"""Commits that are fetched together."""


@dataclass(frozen=True)
class ChangeFeed:
    """What a table's commits did to its rows, under the schema of one version."""

    committer: Committer
    dataset: "Table"
    snapshot: Snapshot
    """The version whose schema the rows have."""
    strict: bool = True
    """Whether columns that were dropped, renamed or turned into text on the way are refused, as Delta does. If not,
    what is older is shown under the schema all the same."""

    def files(self, first: int, last: int) -> Any:
        """The files with the changes of the commits from one version to another, as a table of ``FEED_SCHEMA``.

        Raises ``ValidationError`` if the table did not keep its changes at one of these versions, or if its columns
        were changed so that one schema does not show all of them.
        """
        return self._files(first, last, self._metadata(first, last))

    def commits(self, first: int, last: int) -> Iterator[tuple[int, Any]]:
        """The same for each version, in order. What can be read comes before the error for what cannot."""
        start = first
        while start <= last:
            end = min(start + _AT_ONCE - 1, last)
            metadata = self._metadata(start, end)
            end = min([end, *(each.version - 1 for each in metadata if each.version > start)])
            files = self._files(start, end, [each for each in metadata if each.version <= end])
            for version in range(start, end + 1):
                yield version, files.filter(pc.equal(files.column("commit_version"), version))
            start = end + 1

    def start(self, version: int) -> Any:
        """The rows of a version, each as one that it inserted: what a stream begins with."""
        self._check(self._metadata(version, version), version, version)
        live = self.dataset.snapshot(version).files(columns=TO_READ)
        count = live.num_rows
        columns = {name: live.column(name) for name in TO_READ} | {
            "commit_version": pa.repeat(pa.scalar(version, pa.int64()), count),
            "change_type": pa.repeat("insert", count),
            "only_vector": pa.nulls(count, pa.string()),
            "commit_timestamp": pa.repeat(pa.scalar(self._commits(version, version)[0][1], pa.int64()), count),
        }
        return self._readable(pa.table(columns).select(FEED_SCHEMA.names).cast(FEED_SCHEMA).sort_by(_ORDER))

    def _files(self, first: int, last: int, metadata: Sequence[TableMetadata]) -> Any:
        self._check(metadata, first, last)
        if first == self.dataset.first_version > 0:
            raise VersionNotFoundError(
                f"what version {first} of {self.dataset.name!r} changed is not known, since the table was imported as "
                f"it was then: start with version {first + 1}"
            )
        queries = self.committer.catalog.queries
        key = {"table_id": self.dataset.id, "first": first, "last": last}
        with self.committer.catalog.session() as session:
            found = session.fetch_arrow(
                queries.fill("feed_files", columns=", ".join(f"f.{name}" for name in TO_READ)), key, _FOUND
            )
            told = session.fetch_arrow(
                queries.fill("cdc_files", columns=", ".join(f"f.{name}" for name in _CDC.names)), key, _CDC
            )
        commits = self._commits(first, last)
        idle = [row[0] for row in commits if _merged_nothing(row)]
        if idle:
            found = found.filter(pc.invert(pc.is_in(found.column("commit_version"), pa.array(idle, pa.int64()))))
        files = pa.concat_tables([_differences(found), _change_files(told, metadata)]).sort_by(_ORDER)
        times = pa.array([row[1] for row in commits], pa.int64())
        files = files.append_column(
            FEED_SCHEMA.field("commit_timestamp"), times.take(pc.subtract(files.column("commit_version"), first))
        )
        return self._readable(files)

    def _commits(self, first: int, last: int) -> list[Row]:
        """Rows of the history, oldest first. Asked after all else was read, so that an expiry in between shows."""
        key = {"table_id": self.dataset.id, "first": first, "last": last, "limit": last - first + 1}
        with self.committer.catalog.session() as session:
            rows = session.fetch(self.committer.catalog.queries["history"], key)
        if len(rows) != last - first + 1:
            raise VersionNotFoundError(
                f"versions {first} to {last} of dataset {self.dataset.name!r} are no longer all there: "
                f"dataset.first_version is the oldest one left"
            )
        return list(reversed(rows))

    def _metadata(self, first: int, last: int) -> list[TableMetadata]:
        """The metadata at a version and what replaced it up to another, oldest first."""
        key = {"table_id": self.dataset.id, "version": last}
        with self.committer.catalog.session() as session:
            rows = session.fetch(self.committer.catalog.queries["metadata_history"], key)
        found: list[TableMetadata] = []
        for row in rows:
            found.insert(0, read_metadata(row))
            if found[0].version <= first:
                break
        return found

    def _check(self, metadata: Sequence[TableMetadata], first: int, last: int) -> None:
        self._check_kept(metadata, first, last)
        self._check_columns(metadata, first)

    def _check_kept(self, metadata: Sequence[TableMetadata], first: int, last: int) -> None:
        off = [each for each in metadata if not is_kept(each)]
        if not off:
            return
        later = [each.version for each in metadata if each.version > off[-1].version]
        advice = f"read from version {later[0]} on" if later else "what is committed once it is set is in the feed"
        message = f"{FEED_PROPERTY} is not true there, so changes from {first} to {last} are not all kept: {advice}"
        raise ValidationError(
            f"change feed of {self.dataset.name!r}", [Violation(f"version {max(off[0].version, first)}", message)]
        )

    def _check_columns(self, metadata: Sequence[TableMetadata], first: int) -> None:
        ours = self.snapshot.state.metadata
        # Lakelog has not always refused them.
        if problems := list(feed_column_problems(ours.schema, ours.action.configuration)):
            raise ValidationError(f"change feed of {self.dataset.name!r}", problems)
        later = [each for each in metadata if each.version > self.snapshot.version]
        if not all(_reads_alike(each, ours) for each in later):
            raise self._changed_since()
        for each in metadata[: len(metadata) - len(later)] if self.strict else ():
            found = [str(change) for change in changes_between(each.schema, ours.schema) if change.what in _BREAKING]
            if each.partition_columns != ours.partition_columns:
                found.append(f"partitioned by {list(each.partition_columns)}, then by {list(ours.partition_columns)}")
            problems += [Violation(f"after version {max(each.version, first)}", change) for change in found]
        if problems:
            advice = Violation("range", "read what was before such a change, and what was after it, by themselves")
            raise ValidationError(f"change feed of {self.dataset.name!r}", [*dict.fromkeys(problems), advice])

    def _changed_since(self) -> LakelogError:
        return LakelogError(
            f"the schema of {self.dataset.name!r} was changed after version {self.snapshot.version}, by which the "
            "change feed is read: restart the query, and it goes on from where it is, under the new schema"
        )

    def _readable(self, files: Any) -> Any:
        """The files, if all can be read under the schema: those that were removed may be older than the range."""
        ours = self.snapshot.state.metadata
        used = pc.unique(files.column("schema_version")).to_pylist()
        older = sorted(version for version in used if version < ours.schema_version)
        if older and older[0] not in self._schemas:
            raise VersionNotFoundError(
                f"changes of dataset {self.dataset.name!r} have expired since they were listed: "
                "dataset.first_version is the oldest version left"
            )
        problems = [
            Violation(f"files of schema version {version}", str(change))
            for version in older
            for change in changes_between(self._schemas[version], ours.schema)
            if change.what == "retyped"
        ]
        if not problems and not are_partitioned_by(files, ours.partition_columns):
            message = f"some are not partitioned by {list(ours.partition_columns)}, as the table is"
            problems.append(Violation("files", message))
        if problems:
            raise ValidationError(f"change feed of {self.dataset.name!r}", problems)
        return files

    @cached_property
    def _schemas(self) -> dict[int, pa.Schema]:
        return self.snapshot.all_schemas()


def is_kept(metadata: TableMetadata) -> bool:
    """Whether a table keeps the changes of its rows."""
    return metadata.action.is_on(FEED_PROPERTY)


def _reads_alike(one: TableMetadata, other: TableMetadata) -> bool:
    """Whether two states of a table differ in nothing that matters to who reads files."""
    return bool(
        one.schema.equals(other.schema)
        and one.physical.equals(other.physical)
        and one.partition_columns == other.partition_columns
    )


def _change_files(told: Any, metadata: Sequence[TableMetadata]) -> Any:
    """Change files, which are written under the schema that stands after their commit."""
    count = told.num_rows
    versions = told.column("version")
    schemas = [_at(metadata, version).schema_version for version in versions.to_pylist()]
    columns = {name: told.column(name) for name in _CDC.names} | {
        "commit_version": versions,
        "schema_version": pa.array(schemas, FEED_SCHEMA.field("schema_version").type),
    }
    schema = pa.schema(list(FEED_SCHEMA)[:-1])
    return pa.table([columns.get(field.name, pa.nulls(count, field.type)) for field in schema], schema)


def _at(metadata: Sequence[TableMetadata], version: int) -> TableMetadata:
    return next(each for each in reversed(metadata) if each.version <= version)


def _differences(files: Any) -> Any:
    """The files with ``only_vector``: one that a commit takes and gives back changes where its vectors differ.

    What one vector deletes and the other one does not is gone, or back again. Without the other one there is nothing.
    """
    none = pa.nulls(files.num_rows, pa.string())
    if files.column("deletion_vector").null_count == files.num_rows:
        return files.append_column("only_vector", none)
    names = ("commit_version", "path", "change_type", "deletion_vector")
    rows = list(zip(*(files.column(name).to_pylist() for name in names), strict=True))
    vectors = {row[:3]: row[3] for row in rows}
    other = {"insert": "delete", "delete": "insert"}
    partners = [(version, path, other[change]) for version, path, change, _ in rows]
    only = pa.array([vectors.get(partner) for partner in partners], pa.string())
    alone = pa.array([partner not in vectors for partner in partners], pa.bool_())
    return files.append_column("only_vector", only).filter(pc.or_(alone, only.is_valid()))


def _merged_nothing(commit: Row) -> bool:
    """Whether a commit is a merge that says that it only moved rows: Delta does not say so of each file."""
    operation, extra = commit[4], commit[6]
    if operation != "MERGE" or not extra:
        return False
    metrics = stored_json(extra).get("operationMetrics")
    return isinstance(metrics, dict) and all(str(metrics.get(name)) == "0" for name in _MERGED)
