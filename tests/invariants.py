"""The invariants of the log, checked on the rows of a catalog. Any test may call ``check_invariants`` at any time."""

import itertools
import json
import uuid
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lakelog import Lake
from lakelog.catalog.name_key import name_key
from lakelog.log.state import Head
from lakelog.mirror.commit_json import delta_json, is_import, older_schemas, read_rows
from lakelog.schema import from_bytes, from_delta_json
from lakelog.schema.mapping import is_mapped
from lakelog.upkeep.check.catalog import catalog_findings
from tests.fixtures.lakes import COLUMNS, VIEWS, qualified

Row = dict[str, Any]
Key = tuple[int, int]
"""A file of a table: the version that added it, and its ordinal."""

_PARTS = ("row_groups", "partitions", "column_stats")
_NUMBERED = ("dl_add_files", "dl_remove_files", "dl_cdc_files")
_ACTIONS = (*_NUMBERED, "dl_metadata_updates", "dl_protocol_updates", "dl_txn_actions", "dl_domain_metadata")
_LASTING = ("dl_add_files", "dl_metadata_updates", "dl_protocol_updates", "dl_txn_actions", "dl_domain_metadata")
_LOG = (*_ACTIONS, *_PARTS, "dl_table_versions", "schema_versions")

_MOMENTS = ("timestamp", "created_at")
"""Times with a zone, which DuckDB's driver hands over only where pytz is installed."""


def check_invariants(lake: Lake, *, mirrors: bool = True) -> None:
    """Asserts that every table's log is whole and agrees with itself, and its mirror with it.

    Waits for the commits that are under way, so the calling thread must not have a transaction open.
    """
    mirrored = _mirrored(lake) if mirrors else {}
    locked, catalog = _read(lake)
    _check_tables(catalog)
    _check_mirrors(lake, mirrored, catalog)
    logs = {name: _grouped(rows, "dataset_id" if name in VIEWS else "table_id") for name, rows in catalog.items()}
    for head in catalog["dl_tables"]:
        # A table that was created after the locks were chosen may change while it is read.
        if head["table_id"] not in locked:
            continue
        log = {name: groups.get(head["table_id"], []) for name, groups in logs.items()}
        _check_versions(head, log)
        _check_live_files(log)
        _check_schemas(head, log)


def _read(lake: Lake) -> tuple[set[int], dict[str, list[Row]]]:
    """The tables that were there, and all rows, read while none of these tables can change."""
    catalog = lake.committer.catalog
    with catalog.session() as session:
        tables = [row[0] for row in session.fetch(f"SELECT table_id FROM {qualified(lake, 'dl_tables')}", {})]
    transaction = catalog.begin(tables, str(uuid.uuid4()), lake.committer.timeout)
    found: dict[str, list[Row]] = {}
    try:
        heads = [
            Head(*row[: len(Head._fields)])
            for table in sorted(tables)
            for row in transaction.fetch(catalog.queries["lock_head"], {"table_id": table, "expected": None})
        ]
        # The tables themselves come last: no row can belong to a table that is not there by then.
        for name in (*_LOG, "dl_mirror_status", "dl_tables", *VIEWS):
            columns = [column for column in (COLUMNS | VIEWS)[name] if column not in _MOMENTS]
            selected = ", ".join(f'"{column}"' for column in columns)
            rows = transaction.fetch(f"SELECT {selected} FROM {qualified(lake, name)}", {})
            found[name] = [dict(zip(columns, row, strict=True)) for row in rows]
        for head in heads:
            assert catalog_findings(transaction, catalog.queries, head) == []
    finally:
        transaction.rollback()
    return set(tables), found


def _mirrored(lake: Lake) -> dict[int, dict[int, bytes]]:
    """The commits in each table's ``_delta_log``, by version."""
    catalog = lake.committer.catalog
    with catalog.session() as session:
        tables = session.fetch(f"SELECT table_id, location FROM {qualified(lake, 'dl_tables')}", {})
    found: dict[int, dict[int, bytes]] = {}
    for table_id, location in tables:
        if "://" not in location:
            files = Path(location).glob("_delta_log/[0-9]*.json")
            found[table_id] = {int(file.stem): file.read_bytes() for file in files if file.stem.isdigit()}
    return found


def _check_mirrors(lake: Lake, mirrored: dict[int, dict[int, bytes]], catalog: dict[str, list[Row]]) -> None:
    """Each mirror is a prefix of its log: never ahead of it, whole up to the published version, the same bytes."""
    heads = {row["table_id"]: row for row in catalog["dl_tables"]}
    status = {row["table_id"]: row for row in catalog["dl_mirror_status"]}
    for table_id, files in mirrored.items():
        if table_id not in status or status[table_id]["state"] not in ("published", "failing"):
            continue
        published = status[table_id]["published_version"]
        assert published <= heads[table_id]["current_version"]
        if not files:
            continue
        assert max(files) <= heads[table_id]["current_version"], "the mirror is ahead of the catalog"
        assert set(files) >= set(range(min(files), published + 1)), "the mirror has gaps"
        first = min(row["version"] for row in catalog["dl_table_versions"] if row["table_id"] == table_id)
        with lake.committer.catalog.session() as session:
            commits = read_rows(session, lake.committer.catalog.queries, table_id, first, published)
            states = {version: lake.committer.states.load(session, table_id, version) for version in commits}
        for version, rows in commits.items():
            if b'"engineInfo":"Lakelog"' in files.get(version, b"") and not is_import(rows, first):
                metadata = states[version].metadata
                expected = delta_json(rows, metadata, older_schemas(lake.committer.catalog, rows, metadata))
                assert files[version] == expected, f"version {version} of {table_id}"


def _check_versions(head: Row, log: dict[str, list[Row]]) -> None:
    """Versions are dense and end at the head, and time moves forward with them."""
    commits = sorted(log["dl_table_versions"], key=lambda row: row["version"])
    versions = [row["version"] for row in commits]
    assert versions, f"{head['name']!r} is there without a version"
    # A table that was imported begins with the oldest version that its Delta log had.
    expected = list(range(versions[0], head["current_version"] + 1))
    assert versions == expected, f"versions of {head['name']!r}: {versions}"
    times = [row["committed_at"] for row in commits]
    assert all(before < after for before, after in itertools.pairwise(times)), times
    assert head["committed_at"] == times[-1]
    assert len({str(row["commit_id"]) for row in commits}) == len(commits), "a commit id came twice"
    for name in _ACTIONS:
        # What versions that have expired did may be in force still.
        kept = set(range(versions[0])) if name in _LASTING else set()
        assert {row["version"] for row in log[name]} <= set(versions) | kept, f"{name} has rows of no version"
    for name in _NUMBERED:
        for version, ordinals in _grouped(log[name], "version", "ordinal").items():
            assert version < versions[0] or sorted(ordinals) == list(range(len(ordinals))), (
                f"{name} of version {version}: {ordinals}"
            )
    seen = sorted((row["version"], str(row["commit_id"])) for row in log["transactions"])
    assert seen == [(row["version"], str(row["commit_id"])) for row in commits], "the transactions view differs"


def _check_live_files(log: dict[str, list[Row]]) -> None:
    """The version that removed each file is the one that a replay of the log finds."""
    adds, removes = _grouped(log["dl_add_files"], "version"), _grouped(log["dl_remove_files"], "version")
    live: dict[str, Key] = {}
    closed: dict[Key, int] = {}
    for version in sorted(adds.keys() | removes.keys()):
        for remove in removes.get(version, ()):
            path = remove["path"]
            assert path in live, f"version {version} removes {path!r}, which is not live"
            assert live[path] == (remove["added_version"], remove["added_ordinal"]), f"{path!r} closed another file"
            closed[live.pop(path)] = version
        before = dict(live)
        for add in adds.get(version, ()):
            path = add["path"]
            if path in before:
                closed[before.pop(path)] = version
            assert live.get(path, (-1, 0))[0] != version, f"version {version} adds {path!r} twice"
            live[path] = (version, add["ordinal"])
    recorded = {
        (row["version"], row["ordinal"]): row["removed_version"]
        for row in log["dl_add_files"]
        if row["removed_version"] is not None
    }
    assert recorded == closed, "the live files differ from a replay of the log"
    seen = {(row["added_version"], row["path"]): row["removed_version"] for row in log["files"]}
    assert seen == {(row["version"], row["path"]): row["removed_version"] for row in log["dl_add_files"]}


def _check_schemas(head: Row, log: dict[str, list[Row]]) -> None:
    """Every file's schema is the one in force when it was first added, and the head knows the latest metadata."""
    schemas = {row["version"]: row["introduced_by"] for row in log["schema_versions"]}
    assert sorted(schemas) == list(range(min(schemas), max(schemas) + 1))
    assert sorted(schemas.values()) == [schemas[version] for version in sorted(schemas)]
    metadata = {row["version"]: row["schema_version"] for row in log["dl_metadata_updates"]}
    arrow = {row["version"]: from_bytes(bytes(row["arrow_schema"])) for row in log["schema_versions"]}
    for row in log["dl_metadata_updates"]:
        mapped = is_mapped(json.loads(row["configuration"]))
        schema = from_delta_json(row["schema_string"], column_mapping=mapped)
        assert schema.equals(arrow[row["schema_version"]], check_metadata=True), "a metadata's schema is another one"
    first = min(row["version"] for row in log["dl_table_versions"])
    assert set(metadata.values()) <= set(schemas), "a metadata's schema does not exist"
    known = {version for version, introduced_by in schemas.items() if introduced_by >= first}
    assert known <= set(metadata.values()), "a schema has no metadata"
    assert {schemas[version] for version in known} <= metadata.keys()
    assert head["metadata_since"] == max(metadata)
    assert head["protocol_since"] == max(row["version"] for row in log["dl_protocol_updates"])
    changes = sorted(metadata, reverse=True)
    restored = {row["version"] for row in log["dl_table_versions"] if row["operation"] == "RESTORE"}
    before: dict[Any, int] = {}
    for file in sorted(log["dl_add_files"], key=lambda file: file["version"]):
        in_force = next(version for version in changes if version <= file["version"])
        # A file that is added again is still what it was written as, also if it was gone until it was restored.
        again = None if file["version"] in restored else file["version"]
        written = before.get((file["path"], again))
        expected = metadata[in_force] if written is None else written
        before[file["path"], file["removed_version"]] = before[file["path"], None] = file["schema_version"]
        if first > 0 and (file["version"] <= first or (again is None and written is None)):
            # What it was before has expired, and perhaps the metadata under which it was first added.
            assert file["schema_version"] in schemas
        else:
            assert file["schema_version"] == expected, f"{file['path']!r} has another version's schema"


def _check_tables(catalog: dict[str, list[Row]]) -> None:
    """No row is without its table; live names are unique and no location is used twice."""
    heads = catalog["dl_tables"]
    known = {row["table_id"] for row in heads}
    for name in _LOG:
        assert {row["table_id"] for row in catalog[name]} <= known, f"{name} has rows of no table"
    live = sorted((row["name"], row["current_version"]) for row in heads if row["dropped_at"] is None)
    assert len({name for name, _ in live}) == len(live)
    assert [row["name_key"] for row in heads] == [name_key(row["name"]) for row in heads]
    keys = [row["name_key"] for row in heads if row["dropped_at"] is None and not row["has_twin"]]
    assert len(set(keys)) == len(keys)
    assert len({row["location"] for row in heads}) == len(heads)
    assert sorted((row["name"], row["current_version"]) for row in catalog["datasets"]) == live


def _grouped(rows: Iterable[Row], by: str | tuple[str, ...], take: str | tuple[str, ...] | None = None) -> Any:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        groups[_pick(row, by)].append(row if take is None else _pick(row, take))
    return groups


def _pick(row: Row, names: str | tuple[str, ...]) -> Any:
    return row[names] if isinstance(names, str) else tuple(row[name] for name in names)
