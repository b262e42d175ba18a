"""A commit of the catalog as Delta's JSON: the same bytes whoever makes them, and whenever.

Everything is in the catalog's rows; nothing depends on the clock, the machine or this program's version. Texts that the
catalog keeps byte for byte, such as partition values, are repeated byte for byte, and so are statistics, unless a
bound is missing in them.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from lakelog.catalog.base import Catalog, Row, Session
from lakelog.catalog.queries import Queries
from lakelog.catalog.stored import stored_json
from lakelog.catalog.tables import TABLES
from lakelog.log.commit.draft import IN_COMMIT_TIMESTAMPS
from lakelog.log.snapshot.snapshot import schemas_that_led_to
from lakelog.log.state import TableMetadata, read_metadata
from lakelog.mirror.shared_stats import NO_SCHEMAS, SharedStatistics
from lakelog.strict_json import encode_json

ENGINE = "Lakelog"
MARK = "lakelog"
"""A member of commitInfo by which a commit of ours is known, whatever engine its writer claims to be."""
IMPORT = "IMPORT"
_FORMAT = "1"

_ADDS = "dl_add_files"
_STATS, _SCHEMA_VERSION = map(TABLES[_ADDS].names.index, ("stats", "schema_version"))

CommitRows = Mapping[str, Sequence[Row]]
"""One commit's rows by catalog table, each with the columns of ``TABLES``."""


def read_rows(session: Session, queries: Queries, table_id: int, first: int, last: int) -> dict[int, CommitRows]:
    """The commits from one version to another, both included."""
    key = {"table_id": table_id, "first": first, "last": last}
    commits: dict[int, dict[str, Sequence[Row]]] = {version: {} for version in range(first, last + 1)}
    for table in ("dl_table_versions", *_ACTIONS):
        names = TABLES[table].names
        columns = ", ".join("CAST(commit_id AS VARCHAR)" if name == "commit_id" else name for name in names)
        rows = session.fetch(queries.fill("commit_rows", columns=columns, table=table), key)
        for version, found in groupby(rows, itemgetter(names.index("version"))):
            commits[version][table] = list(found)
    return dict(commits)


def metadata_in(rows: CommitRows) -> TableMetadata | None:
    """The metadata that a commit brings."""
    found = rows.get("dl_metadata_updates")
    return read_metadata(found[0][1:]) if found else None


def commit_id_of(rows: CommitRows) -> str:
    return str(_named("dl_table_versions", rows["dl_table_versions"][0])["commit_id"])


def is_import(rows: CommitRows, first: int) -> bool:
    """Whether a commit, of a catalog that begins with version ``first``, stands for all of a log up to its version.

    The log has the last of these commits itself.
    """
    commit = _named("dl_table_versions", rows["dl_table_versions"][0])
    return bool(commit["version"] == first and commit["operation"] == IMPORT)


def committed_at_of(rows: CommitRows) -> int:
    return int(_named("dl_table_versions", rows["dl_table_versions"][0])["committed_at"])


def older_schemas(catalog: Catalog, rows: CommitRows, metadata: TableMetadata) -> Mapping[int, Any]:
    """The schemas that led to a commit's, by version, if it adds files that were written under one of them."""
    if not any(row[_SCHEMA_VERSION] < metadata.schema_version and row[_STATS] for row in rows.get(_ADDS, ())):
        return NO_SCHEMAS
    key = {
        "table_id": _named("dl_table_versions", rows["dl_table_versions"][0])["table_id"],
        "version": metadata.schema_version,
    }
    with catalog.session() as session:
        return schemas_that_led_to(metadata, session.fetch(catalog.queries["schemas"], key))


def delta_json(rows: CommitRows, metadata: TableMetadata, schemas: Mapping[int, Any] = NO_SCHEMAS) -> bytes:
    """The content of a commit's file in ``_delta_log``.

    ``metadata`` is what is in force with it, and ``schemas`` what ``older_schemas`` gives.
    """
    return _file_of({**rows, _ADDS: _shared(rows.get(_ADDS, ()), metadata, schemas)}, metadata)


def earlier_delta_json(rows: CommitRows, metadata: TableMetadata) -> bytes:
    """The content of the same file as Lakelog wrote it while it repeated all statistics."""
    return _file_of(rows, metadata)


def _shared(adds: Sequence[Row], metadata: TableMetadata, schemas: Mapping[int, Any]) -> Sequence[Row]:
    """The rows with statistics that readers may have."""
    shared = SharedStatistics(metadata, schemas)
    return [
        row if stats is None else (*row[:_STATS], shared.of(stats, row[_SCHEMA_VERSION]), *row[_STATS + 1 :])
        for row in adds
        for stats in (row[_STATS],)
    ]


def _file_of(rows: CommitRows, metadata: TableMetadata) -> bytes:
    in_commit = metadata.action.is_on(IN_COMMIT_TIMESTAMPS)
    lines = [_commit_info(_named("dl_table_versions", rows["dl_table_versions"][0]), in_commit)]
    for table, action in _ACTIONS.items():
        # A caller may have said them in another order than the catalog gives them.
        lines += map(action.line, sorted(rows.get(table, ()), key=itemgetter(action.key)))
    return ("\n".join(lines) + "\n").encode()


def _named(table: str, row: Row) -> dict[str, Any]:
    return dict(zip(TABLES[table].names, row, strict=True))


def _commit_info(row: Mapping[str, Any], in_commit: bool) -> str:
    extra = stored_json(row["extra"]) if row["extra"] else {}
    parameters = stored_json(row["operation_parameters"])
    info: dict[str, Any] = {"inCommitTimestamp": row["committed_at"]} if in_commit else {}
    info |= {"timestamp": row["committed_at"]}
    if row["committer"] is not None:
        info["userName"] = row["committer"]
    info["operation"] = row["operation"]
    # Delta's readers expect texts here; what is none is put into one.
    info["operationParameters"] = {
        name: value if isinstance(value, str) else encode_json(value) for name, value in parameters.items()
    }
    # By name, so that a commit that was lost and adopted again is the same.
    rest = {"engineInfo": ENGINE, MARK: _FORMAT} | extra
    info |= {name: rest[name] for name in sorted(rest) if name not in info}
    info["txnId"] = str(row["commit_id"])
    return encode_json({"commitInfo": info})


def _flag(value: Any) -> str:
    # SQLite has no boolean.
    return "true" if value else "false"


def _as_it_is(text: str) -> str:
    return text


class _Action:
    """How the rows of a catalog table become lines: Delta's names, in their order, and how each value is written."""

    def __init__(self, action: str, table: str, key: str, /, **members: Callable[[Any], str]) -> None:
        columns = TABLES[table].names
        self.key = columns.index(key)
        self._name = action
        self._extra = columns.index("extra")
        self._members = [
            (_camel_case(_SPELLED.get(column, column)), columns.index(column), write)
            for column, write in members.items()
        ]

    def line(self, row: Row) -> str:
        known = {name: write(value) for name, index, write in self._members if (value := row[index]) is not None}
        self._complete(known)
        if row[self._extra]:
            # A known member wins over what stands beside it.
            for name, value in stored_json(row[self._extra]).items():
                known.setdefault(name, encode_json(value))
        body = ",".join([f'"{name}":{text}' for name, text in known.items()])
        return f'{{"{self._name}":{{{body}}}}}'

    def _complete(self, known: dict[str, str]) -> None:
        """Says what no column does."""


class _Remove(_Action):
    def _complete(self, known: dict[str, str]) -> None:
        said = known.pop("extendedFileMetadata", None)
        if said or ("partitionValues" in known and "size" in known):
            known["extendedFileMetadata"] = said or "true"


class _Cdc(_Action):
    def _complete(self, known: dict[str, str]) -> None:
        known["dataChange"] = "false"


class _Metadata(_Action):
    def line(self, row: Row) -> str:
        # What the format says beyond the usual stands apart.
        extra = stored_json(row[self._extra]) if row[self._extra] else {}
        if "format" in extra:
            place = TABLES["dl_metadata_updates"].names.index("format")
            form = stored_json(row[place]) | extra.pop("format")
            row = (*row[:place], encode_json(form), *row[place + 1 : self._extra], encode_json(extra))
        return super().line(row)


def _camel_case(column: str) -> str:
    first, *rest = column.split("_")
    return first + "".join(word.capitalize() for word in rest)


_SPELLED = {"metadata_id": "id", "app_version": "version", "last_update": "last_updated"}
"""Columns that have another name than the action's field."""

_FILE: Mapping[str, Callable[[Any], str]] = {
    "tags": _as_it_is,
    "deletion_vector": _as_it_is,
    "base_row_id": str,
    "default_row_commit_version": str,
}
_ACTIONS: Mapping[str, _Action] = {
    "dl_protocol_updates": _Action(
        "protocol",
        "dl_protocol_updates",
        "version",
        min_reader_version=str,
        min_writer_version=str,
        reader_features=_as_it_is,
        writer_features=_as_it_is,
    ),
    "dl_metadata_updates": _Metadata(
        "metaData",
        "dl_metadata_updates",
        "version",
        metadata_id=encode_json,
        name=encode_json,
        description=encode_json,
        format=_as_it_is,
        schema_string=encode_json,
        partition_columns=_as_it_is,
        created_time=str,
        configuration=_as_it_is,
    ),
    "dl_txn_actions": _Action("txn", "dl_txn_actions", "app_id", app_id=encode_json, app_version=str, last_update=str),
    "dl_domain_metadata": _Action(
        "domainMetadata", "dl_domain_metadata", "domain", domain=encode_json, configuration=encode_json, removed=_flag
    ),
    "dl_remove_files": _Remove(
        "remove",
        "dl_remove_files",
        "ordinal",
        path=encode_json,
        deletion_timestamp=str,
        data_change=_flag,
        extended_file_metadata=_flag,
        partition_values=_as_it_is,
        size=str,
        stats=encode_json,
        **_FILE,
    ),
    "dl_add_files": _Action(
        "add",
        "dl_add_files",
        "ordinal",
        path=encode_json,
        partition_values=_as_it_is,
        size=str,
        modification_time=str,
        data_change=_flag,
        stats=encode_json,
        **_FILE,
    ),
    "dl_cdc_files": _Cdc(
        "cdc",
        "dl_cdc_files",
        "ordinal",
        path=encode_json,
        partition_values=_as_it_is,
        size=str,
        tags=_as_it_is,
    ),
}
"""How each catalog table's rows become lines, in the order of the file."""
