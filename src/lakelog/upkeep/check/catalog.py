"""Whether a table's rows in the catalog agree with each other. Questions are put in SQL where SQL can answer them."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from lakelog.catalog.base import Session
from lakelog.catalog.queries import Queries
from lakelog.log.state import Head
from lakelog.log.validation.stats import checked_stats
from lakelog.strict_json import loads_strict
from lakelog.upkeep.check.findings import Finding, limited

_COMMITTED = (
    "dl_add_files",
    "dl_remove_files",
    "dl_cdc_files",
    "dl_metadata_updates",
    "dl_protocol_updates",
    "dl_txn_actions",
    "dl_domain_metadata",
)
_PARTS = ("row_groups", "partitions", "column_stats")


def catalog_findings(session: Session, queries: Queries, head: Head) -> list[Finding]:
    """What is wrong with the rows up to a head, which commits that come meanwhile do not change."""
    check = _Check(session, queries, head)
    groups = (
        check.pages(),
        check.versions(),
        check.strays(),
        check.removed(),
        check.removes(),
        check.row_counts(),
        check.schemas(),
        check.progress(),
    )
    return [finding for group in groups for finding in limited(group)]


class _Check:
    def __init__(self, session: Session, queries: Queries, head: Head) -> None:
        self._session = session
        self._queries = queries
        self._head = head
        self._key = {"table_id": head.table_id, "version": head.version}
        rows = session.fetch(queries["first_version"], {"table_id": head.table_id})
        self._first = int(rows[0][0]) if rows else 0

    def _fetch(self, name: str, table: str | None = None, **more: Any) -> list[tuple[Any, ...]]:
        statement = self._queries[name] if table is None else self._queries.fill(name, table=table)
        return self._session.fetch(statement, {**self._key, **more})

    def versions(self) -> Iterator[Finding]:
        """Versions are dense and end at the head, and time moves forward with them."""
        head = self._head
        ((count, first, last, committed_at),) = self._fetch("check_versions")
        if not count or last != head.version:
            yield Finding(invariant=1, message=f"expected versions up to {head.version}, found {last} as the last")
        elif count != last - first + 1:
            yield Finding(
                invariant=1, message=f"expected {last - first + 1} versions, found {count}", versions=(first, last)
            )
        elif committed_at != head.committed_at:
            message = f"the head was committed at {head.committed_at}, its version at {committed_at}"
            yield Finding(invariant=1, message=message, versions=(last, last))
        for (version,) in self._session.fetch(self._queries["check_later"], {"table_id": head.table_id}):
            message = f"is in the log, and the head is {head.version}"
            yield Finding(invariant=1, message=message, versions=(version, version))
        for (version,) in self._fetch("check_times"):
            message = "was not committed after the version before it"
            yield Finding(invariant=1, message=message, versions=(version, version))

    def pages(self) -> Iterator[Finding]:
        """SQLite finds tables and indexes that do not agree; PostgreSQL and DuckDB have checksums."""
        for (message,) in self._session.fetch(self._queries["check_pages"], {}):
            if message != "ok":
                yield Finding(invariant=2, message=f"the SQLite file is damaged: {message}")

    def strays(self) -> Iterator[Finding]:
        """Every row belongs to a version, and every part of a file to a file."""
        for table in _COMMITTED:
            for (version,) in self._fetch("check_strays", table, first=self._first):
                message = f"{table} has rows of a version that does not exist"
                yield Finding(invariant=2, message=message, versions=(version, version))
        for table in _PARTS:
            for version, ordinal in self._fetch("check_parts", table):
                message = f"{table} has rows of file {version}-{ordinal}, which does not exist"
                yield Finding(invariant=2, message=message, versions=(version, version))

    def removed(self) -> Iterator[Finding]:
        """The version that removed each file is the one that a replay of the log finds."""
        for version, _, path, found, expected in self._fetch("check_removed"):
            says = "is live" if found is None else f"was removed by version {found}"
            is_so = "it is live" if expected is None else f"version {expected} removed it"
            can = expected is None or expected > version
            yield Finding(
                invariant=3,
                message=f"the index says that {path} {says}, and by the log {is_so}",
                versions=(version, self._head.version),
                mend="set removed_version to what the log says" if can else None,
            )

    def removes(self) -> Iterator[Finding]:
        for version, path in self._fetch("check_removes"):
            message = f"the remove of {path} does not name the file that it closed"
            yield Finding(invariant=3, message=message, versions=(version, version))

    def row_counts(self) -> Iterator[Finding]:
        """A file's row count is the sum over its row groups, and what its statistics say; so are its partitions."""
        for version, path, rows, sum_of_groups in self._fetch("check_row_groups"):
            message = f"{path} has {rows} rows, its row groups have {sum_of_groups}"
            yield Finding(invariant=4, message=message, versions=(version, version))
        values: dict[tuple[int, int], dict[str, str | None]] = defaultdict(dict)
        for version, ordinal, key, value in self._fetch("check_partitions"):
            values[version, ordinal][key] = value
        for version, ordinal, path, rows, stats, partition_values in self._fetch("check_file_texts"):
            said, problems = checked_stats(stats, "statistics") if stats else ({}, [])
            parts = _object(partition_values)
            if problems or parts is None:
                what = str(problems[0]) if problems else "partition values: expected a JSON object"
                message = f"the row of {path} is damaged: {what}"
                yield Finding(invariant=4, message=message, versions=(version, version))
                continue
            records = said.get("numRecords")
            if rows is not None and records is not None and rows != records:
                message = f"{path} has {rows} rows, its statistics say {records}"
                yield Finding(invariant=4, message=message, versions=(version, version))
            if parts != values.get((version, ordinal), {}):
                message = f"{path} has other partition values than its rows of partitions"
                yield Finding(invariant=4, message=message, versions=(version, version))

    def schemas(self) -> Iterator[Finding]:
        """Every schema that is named exists, and the head knows what is in force."""
        for version, path, schema in self._fetch("check_file_schemas"):
            message = f"{path} has schema {schema}, which does not exist"
            yield Finding(invariant=5, message=message, versions=(version, version))
        for version, schema in self._fetch("check_metadata_schemas"):
            message = f"the metadata has schema {schema}, which does not exist"
            yield Finding(invariant=5, message=message, versions=(version, version))
        ((metadata, protocol),) = self._fetch("check_rules")
        for name, found, said in (
            ("metadata", metadata, self._head.metadata_version),
            ("protocol", protocol, self._head.protocol_version),
        ):
            if found != said:
                message = f"the head has the {name} of version {said}, the log has that of {found}"
                yield Finding(invariant=5, message=message, versions=(self._head.version, self._head.version))

    def progress(self) -> Iterator[Finding]:
        for app, version, found, before in self._fetch("check_progress"):
            message = f"application {app!r} went from {before} to {found}"
            yield Finding(invariant=6, message=message, versions=(version, version))


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = loads_strict(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
