"""A commit of the catalog as Delta's JSON: the same bytes whoever makes them, and whenever.

Everything is in the catalog's rows; nothing depends on the clock, the machine or this program's version. Texts that the
catalog keeps byte for byte, such as statistics and partition values, are repeated byte for byte.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from lakelog.catalog.base import Row, Session
from lakelog.catalog.queries import Queries
from lakelog.catalog.tables import TABLES
from lakelog.log.draft import IN_COMMIT_TIMESTAMPS
from lakelog.log.state import TableMetadata, read_metadata
from lakelog.strict_json import encode_json

ENGINE = "Lakelog"

CommitRows = Mapping[str, Sequence[Row]]
"""One commit's rows by catalog table, each with the columns of ``TABLES``."""

_KEYS = {
    "dl_table_versions": "version",
    "dl_protocol_updates": "version",
    "dl_metadata_updates": "version",
    "dl_txn_actions": "app_id",
    "dl_domain_metadata": "domain",
    "dl_remove_files": "ordinal",
    "dl_add_files": "ordinal",
    "dl_cdc_files": "ordinal",
}
"""The catalog tables that make a commit, with what tells its rows from each other."""


def read_rows(session: Session, queries: Queries, table_id: int, first: int, last: int) -> dict[int, CommitRows]:
    """The commits from one version to another, both included."""
    key = {"table_id": table_id, "first": first, "last": last}
    commits: dict[int, dict[str, Sequence[Row]]] = {version: {} for version in range(first, last + 1)}
    for table in _KEYS:
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


def committed_at_of(rows: CommitRows) -> int:
    return int(_named("dl_table_versions", rows["dl_table_versions"][0])["committed_at"])


def delta_json(rows: CommitRows, metadata: TableMetadata) -> bytes:
    """The content of a commit's file in ``_delta_log``. ``metadata`` is what is in force with it."""
    in_commit = metadata.action.configuration.get(IN_COMMIT_TIMESTAMPS, "").lower() == "true"
    lines = [_commit_info(_named("dl_table_versions", rows["dl_table_versions"][0]), in_commit)]
    for table, line in _LINES.items():
        names = TABLES[table].names
        named = [dict(zip(names, row, strict=True)) for row in rows.get(table, ())]
        # A caller may have said them in another order than the catalog gives them.
        lines += [line(row) for row in sorted(named, key=itemgetter(_KEYS[table]))]
    return ("\n".join(lines) + "\n").encode()


def _named(table: str, row: Row) -> dict[str, Any]:
    return dict(zip(TABLES[table].names, row, strict=True))


def _commit_info(row: Mapping[str, Any], in_commit: bool) -> str:
    extra = json.loads(row["extra"]) if row["extra"] else {}
    parameters = json.loads(row["operation_parameters"])
    info: dict[str, Any] = {"inCommitTimestamp": row["committed_at"]} if in_commit else {}
    info |= {"timestamp": row["committed_at"]}
    if row["committer"] is not None:
        info["userName"] = row["committer"]
    info["operation"] = row["operation"]
    # Delta's readers expect texts here; what is none is put into one.
    info["operationParameters"] = {
        name: value if isinstance(value, str) else encode_json(value) for name, value in parameters.items()
    }
    info |= {name: value for name, value in extra.items() if name not in info}
    info.setdefault("engineInfo", ENGINE)
    info["txnId"] = str(row["commit_id"])
    return encode_json({"commitInfo": info})


def _line(action: str, members: Iterator[tuple[str, str | None]], extra: str | None) -> str:
    """An action from members that are JSON texts already. A known member wins over what stands in ``extra``."""
    known = {name: text for name, text in members if text is not None}
    if extra:
        for name, value in json.loads(extra).items():
            known.setdefault(name, encode_json(value))
    body = ",".join(f"{encode_json(name)}:{text}" for name, text in known.items())
    return f'{{"{action}":{{{body}}}}}'


def _text(value: Any) -> str | None:
    return None if value is None else encode_json(value)


def _flag(value: Any) -> str | None:
    # SQLite has no boolean.
    return None if value is None else encode_json(bool(value))


def _protocol(row: Mapping[str, Any]) -> str:
    def members() -> Iterator[tuple[str, str | None]]:
        yield "minReaderVersion", _text(row["min_reader_version"])
        yield "minWriterVersion", _text(row["min_writer_version"])
        yield "readerFeatures", row["reader_features"]
        yield "writerFeatures", row["writer_features"]

    return _line("protocol", members(), row["extra"])


def _metadata(row: Mapping[str, Any]) -> str:
    extra = json.loads(row["extra"]) if row["extra"] else {}
    form = json.loads(row["format"]) | extra.pop("format", {})

    def members() -> Iterator[tuple[str, str | None]]:
        yield "id", _text(row["metadata_id"])
        yield "name", _text(row["name"])
        yield "description", _text(row["description"])
        yield "format", _text(form)
        yield "schemaString", _text(row["schema_string"])
        yield "partitionColumns", row["partition_columns"]
        yield "createdTime", _text(row["created_time"])
        yield "configuration", row["configuration"]

    return _line("metaData", members(), encode_json(extra))


def _txn(row: Mapping[str, Any]) -> str:
    def members() -> Iterator[tuple[str, str | None]]:
        yield "appId", _text(row["app_id"])
        yield "version", _text(row["app_version"])
        yield "lastUpdated", _text(row["last_update"])

    return _line("txn", members(), row["extra"])


def _domain(row: Mapping[str, Any]) -> str:
    def members() -> Iterator[tuple[str, str | None]]:
        yield "domain", _text(row["domain"])
        yield "configuration", _text(row["configuration"])
        yield "removed", _flag(row["removed"])

    return _line("domainMetadata", members(), row["extra"])


def _add(row: Mapping[str, Any]) -> str:
    def members() -> Iterator[tuple[str, str | None]]:
        yield "path", _text(row["path"])
        yield "partitionValues", row["partition_values"]
        yield "size", _text(row["size"])
        yield "modificationTime", _text(row["modification_time"])
        yield "dataChange", _flag(row["data_change"])
        yield "stats", _text(row["stats"])
        yield "tags", row["tags"]
        yield "deletionVector", row["deletion_vector"]
        yield "baseRowId", _text(row["base_row_id"])
        yield "defaultRowCommitVersion", _text(row["default_row_commit_version"])

    return _line("add", members(), row["extra"])


def _remove(row: Mapping[str, Any]) -> str:
    extended = row["extended_file_metadata"]
    if extended is None and row["partition_values"] is not None and row["size"] is not None:
        extended = True

    def members() -> Iterator[tuple[str, str | None]]:
        yield "path", _text(row["path"])
        yield "deletionTimestamp", _text(row["deletion_timestamp"])
        yield "dataChange", _flag(row["data_change"])
        yield "extendedFileMetadata", _flag(extended)
        yield "partitionValues", row["partition_values"]
        yield "size", _text(row["size"])
        yield "stats", _text(row["stats"])
        yield "tags", row["tags"]
        yield "deletionVector", row["deletion_vector"]
        yield "baseRowId", _text(row["base_row_id"])
        yield "defaultRowCommitVersion", _text(row["default_row_commit_version"])

    return _line("remove", members(), row["extra"])


def _cdc(row: Mapping[str, Any]) -> str:
    def members() -> Iterator[tuple[str, str | None]]:
        yield "path", _text(row["path"])
        yield "partitionValues", row["partition_values"]
        yield "size", _text(row["size"])
        yield "dataChange", "false"
        yield "tags", row["tags"]

    return _line("cdc", members(), row["extra"])


_LINES = {
    "dl_protocol_updates": _protocol,
    "dl_metadata_updates": _metadata,
    "dl_txn_actions": _txn,
    "dl_domain_metadata": _domain,
    "dl_remove_files": _remove,
    "dl_add_files": _add,
    "dl_cdc_files": _cdc,
}
"""How a row of each catalog table becomes a line, in the order of the file."""
