"""Reading the log: a table at one version, and what happened between two."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import Metadata, Protocol
from lakelog.arguments import NAMES, TEXT, Kind, takes
from lakelog.catalog.base import Row, Session
from lakelog.catalog.queries import Queries
from lakelog.catalog.stored import stored_json
from lakelog.catalog.tables import TABLES
from lakelog.errors import ValidationError, VersionNotFoundError, Violation
from lakelog.log.commit.committer import Committer
from lakelog.log.pruning.plan import Column, KeyQuery, Plan, bind, columns_of
from lakelog.log.pruning.predicate import Everything, Nothing, Predicate, disjunction
from lakelog.log.pruning.reader import parse
from lakelog.log.pruning.row_groups import matching
from lakelog.log.snapshot.file_groups import FileGroup, file_groups, lineage
from lakelog.log.state import Head, TableMetadata, TableState, read_metadata
from lakelog.schema import from_bytes, leaf_columns
from lakelog.strict_json import describe

FILE_SCHEMA = TABLES["dl_add_files"].remove(0)
"""What ``Snapshot.files`` gives: the version and ordinal that name a file, and everything that the log says of it."""

REMOVED_SCHEMA = TABLES["dl_remove_files"].remove(0)
ROW_GROUP_SCHEMA = TABLES["row_groups"].remove(0)

_WHERE = Kind("a condition as text", lambda value: isinstance(value, str | Predicate))

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """An entry of a table's history."""

    version: int
    timestamp: datetime
    operation: str
    operation_parameters: Mapping[str, Any]
    committer: str | None
    commit_id: str
    extra: Mapping[str, Any]

    @classmethod
    def of(cls, row: Row) -> "Commit":
        version, committed_at, commit_id, committer, operation, parameters, extra = row
        return cls(
            version=version,
            timestamp=moment(committed_at),
            operation=operation,
            operation_parameters=stored_json(parameters),
            committer=committer,
            commit_id=str(commit_id),
            extra=stored_json(extra) if extra else {},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What the commits of a range of versions did. ``added`` and ``removed`` are Arrow tables of files."""

    from_version: int
    to_version: int
    commits: Sequence[Commit]
    added: Any
    removed: Any


class Snapshot:
    """A table at one version. Immutable: later commits do not change what it gives."""

    def __init__(self, committer: Committer, head: Head, state: TableState) -> None:
        self._committer = committer
        self._head = head
        self.state = state
        self._oldest_live: Row | None = None

    def __repr__(self) -> str:
        return f"Snapshot({self._head.name!r}, version={self.version})"

    @property
    def version(self) -> int:
        return self.state.version

    @property
    def schema(self) -> Any:
        """The Arrow schema."""
        return self.state.metadata.schema

    @property
    def metadata(self) -> Metadata:
        return self.state.metadata.action

    @property
    def protocol(self) -> Protocol:
        return self.state.protocol

    @takes(where=_WHERE, columns=NAMES)
    def files(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None, *, whole: bool = True
    ) -> Any:
        """The live files as a ``pyarrow.Table``, without those that cannot hold a row that matches ``where``.

        Raises ``VersionNotFoundError`` if a vacuum has deleted files of this version, unless ``whole`` is false: then
        they are listed, although they cannot be read.
        """
        schema = _selected(FILE_SCHEMA, columns)
        return self._fetch("live_files", "kept_files", schema, self._plan(where), whole=whole)

    @takes(where=_WHERE)
    def file_groups(self, where: str | Predicate | None = None) -> list[FileGroup]:
        """The same files by how they are to be read, since they may have been written under other schemas."""
        metadata = self.state.metadata
        return self.file_groups_as(metadata.schema, metadata.physical, self.files(where))

    def file_groups_as(self, schema: Any, physical: Any, files: Any) -> list[FileGroup]:
        """The files by how they are to be read as a schema that is this one or follows it."""
        return file_groups(files, schema, physical, self.schemas(files))

    def schemas(self, files: Any) -> dict[int, Any]:
        """The schemas that led to this one, by schema version, as far as files need them.

        Raises ``VersionNotFoundError`` if this version has expired since the files were listed.
        """
        current = self.state.metadata
        oldest = pc.min(files.column("schema_version")).as_py()
        if oldest is None or oldest >= current.schema_version:
            return {current.schema_version: current.schema}
        rows = self._schema_rows()
        if min((row[0] for row in rows), default=current.schema_version) > oldest:
            raise _expired(self._head, self.version)
        return schemas_that_led_to(current, rows)

    def all_schemas(self) -> dict[int, Any]:
        """The Arrow schemas that the table has had up to this one, by schema version."""
        return {version: from_bytes(bytes(schema)) for version, schema, _ in self._schema_rows()}

    def _schema_rows(self) -> list[Row]:
        catalog = self._committer.catalog
        key = {"table_id": self.state.table_id, "version": self.state.metadata.schema_version}
        with catalog.session() as session:
            return session.fetch(catalog.queries["schemas"], key)

    @takes(where=_WHERE, columns=NAMES)
    def row_groups(
        self,
        where: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        *,
        whole_files: bool = False,
        whole: bool = True,
    ) -> Any:
        """The row groups of the live files, without those that cannot hold a row that matches ``where``.

        With ``whole_files`` all of a file that can. ``whole`` is as in ``files``.
        """
        schema = _selected(ROW_GROUP_SCHEMA, columns)
        plan = self._plan(where)
        table = self._fetch("row_groups", "kept_row_groups", ROW_GROUP_SCHEMA, plan, whole=whole)
        if not whole_files and not isinstance(plan, Everything | Nothing) and table.num_rows:
            table = table.filter(matching(table, plan, self.state.metadata))
        return table.select(schema.names)

    @takes(name=TEXT)
    def domain(self, name: str) -> str | None:
        """What a domain of metadata holds, as text; None if it holds nothing."""
        catalog = self._committer.catalog
        key = {"table_id": self.state.table_id, "domain": name, "version": self.version}
        with catalog.session() as session:
            found = session.fetch(catalog.queries["domain_at"], key)
        return None if not found or found[0][1] else str(found[0][0])

    def _plan(self, where: str | Predicate | None) -> Plan:
        return Everything() if where is None else search_plan(self._committer, self.state, [where])

    def _fetch(self, all_rows: str, kept_rows: str, schema: Any, plan: Plan, *, whole: bool = True) -> Any:
        if isinstance(plan, Nothing):
            return schema.empty_table()
        catalog = self._committer.catalog
        queries = catalog.queries
        parameters: dict[str, Any] = {"table_id": self.state.table_id, "version": self.version}
        columns = ", ".join(f"f.{name}" for name in schema.names)
        with catalog.session() as session:
            if isinstance(plan, Everything):
                statement = queries.fill(all_rows, columns=columns)
                found = session.fetch_arrow(statement, parameters, schema, large=True)
                _check_kept(session, queries, self._head, self.version, whole=whole)
                return found
            keys = KeyQuery(queries, plan)
            if catalog.searches_from_oldest:
                self._oldest_live = self._oldest_live or session.fetch(queries["oldest_live"], parameters)[0]
                parameters["oldest"] = self._oldest_live[0] or 0
            statement = queries.fill(kept_rows, columns=columns, kept=keys.sql)
            found = session.fetch_arrow(statement, parameters | keys.parameters, schema)
            _check_kept(session, queries, self._head, self.version, whole=whole)
            return found


def schemas_that_led_to(current: TableMetadata, rows: Sequence[Row]) -> dict[int, Any]:
    """By schema version, out of the rows of ``schemas``."""
    line = lineage(current.schema_version, {version: _restored(version, merge) for version, _, merge in rows})
    return {version: from_bytes(bytes(schema)) for version, schema, _ in rows if version in line}


def _restored(version: int, merge: str | None) -> int | None:
    """The schema version that one goes back to, if it does: itself if it reads every file as it is."""
    said = stored_json(merge) if merge else {}
    restored: int | None = version if said.get("reads_all") else said.get("restores")
    return restored


def _check_kept(session: Session, queries: Queries, head: Head, version: int, *, whole: bool) -> None:
    """Raises ``VersionNotFoundError`` unless a version is there, and with ``whole`` all data of it.

    Asked after its files were read: an expiry that came before would have taken some of them away.
    """
    rows = session.fetch(queries["kept_version"], {"table_id": head.table_id, "version": version})
    if not rows:
        raise _expired(head, version)
    _, oldest, vacuumed_at, lost = rows[0]
    if whole and lost:
        raise VersionNotFoundError(
            f"version {version} of dataset {head.name!r} is not whole: a vacuum at {moment(vacuumed_at).isoformat()} "
            f"deleted files of it. Its schema and history are still known; rows can be read from version {oldest} on"
        )


def _expired(head: Head, version: int) -> VersionNotFoundError:
    return VersionNotFoundError(
        f"version {version} of dataset {head.name!r} has expired: dataset.first_version is the oldest one left"
    )


def search_plan(committer: Committer, state: TableState, conditions: Sequence[str | Predicate]) -> Plan:
    """What to search for, to find the files that can hold a row that matches one of the conditions.

    Raises ``ValidationError`` for conditions that cannot be analysed.
    """
    names = column_types(state.metadata.schema)
    predicate = disjunction([parse(each, names) if isinstance(each, str) else each for each in conditions])
    if isinstance(predicate, Everything | Nothing):
        return predicate
    return bind(predicate, _searched(committer, state))


def column_types(schema: Any) -> dict[str, pa.DataType]:
    """The columns that a condition can name, with their types."""
    names = {leaf.name: leaf.type for leaf in leaf_columns(schema)}
    return names | {field.name: field.type for field in schema if field.name not in names}


def _searched(committer: Committer, state: TableState) -> Mapping[str, Column]:
    """The columns that can be searched, which depend on all metadata up to a version: worked out once for each."""
    states, newest = committer.states, state.metadata
    known, columns = states.searched(state.table_id, newest.version)
    if known == newest.version:
        return columns
    between: list[TableMetadata] = []
    if newest.version > 0:
        # An expiry that took some of it away left no file of that time.
        key = {"table_id": state.table_id, "after": -1 if known is None else known, "version": newest.version}
        with committer.catalog.session() as session:
            between = list(map(read_metadata, session.fetch(committer.catalog.queries["metadata_between"], key)))
    before: TableMetadata | None = None
    for metadata in (*between, newest):
        if before is None or not metadata.is_searched_as(before):
            columns = columns_of(metadata, columns)
        before = metadata
    states.put_searched(state.table_id, newest.version, columns)
    return columns


def read_changes(committer: Committer, table_id: int, first: int, last: int) -> Changes:
    """What the commits from ``first`` to ``last`` did, both included."""
    queries = committer.catalog.queries
    key = {"table_id": table_id, "first": first, "last": last}
    with committer.catalog.session() as session:
        tables = [
            session.fetch_arrow(
                queries.fill(name, columns=", ".join(f"f.{each}" for each in schema.names)), key, schema
            )
            for name, schema in (("added_files", FILE_SCHEMA), ("removed_files", REMOVED_SCHEMA))
        ]
        # Last, so that an expiry in between shows.
        commits = session.fetch(queries["history"], {**key, "limit": last - first + 1})
    if len(commits) != last - first + 1:
        raise VersionNotFoundError(f"versions {first} to {last} of table {table_id} are no longer all there")
    order = [("version", "ascending"), ("ordinal", "ascending")]
    added, removed = (table.take(pc.sort_indices(table, order)) for table in tables)
    return Changes(
        from_version=first,
        to_version=last,
        commits=tuple(Commit.of(row) for row in reversed(commits)),
        added=added,
        removed=removed,
    )


def moment(milliseconds: int) -> datetime:
    """A time as a datetime; the first or last that there is, where it lies outside of the calendar."""
    try:
        return _EPOCH + milliseconds * _MILLISECOND
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC) if milliseconds < 0 else datetime.max.replace(tzinfo=UTC)


def milliseconds_of(timestamp: datetime | str | int) -> int:
    """Milliseconds since 1970 UTC of a datetime, an ISO text or milliseconds; without a zone it is UTC."""
    try:
        if isinstance(timestamp, int) and not isinstance(timestamp, bool):
            return (_EPOCH + timestamp * _MILLISECOND - _EPOCH) // _MILLISECOND
        read = datetime.fromisoformat(timestamp) if isinstance(timestamp, str) else timestamp
        if isinstance(read, datetime):
            # The first and last hours of the calendar are outside of it in UTC.
            return ((read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC) - _EPOCH) // _MILLISECOND
    except (ValueError, OverflowError):
        pass
    message = "expected a datetime, an ISO text such as '2026-01-31T12:00:00Z', or milliseconds since 1970"
    raise ValidationError("timestamp", [Violation(describe(timestamp), message)])


def _selected(schema: Any, columns: Sequence[str] | None) -> Any:
    if columns is None:
        return schema
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        message = f"is not one of {', '.join(schema.names)}"
        raise ValidationError("columns", [Violation(describe(name), message) for name in unknown])
    return pa.schema([schema.field(name) for name in columns])
