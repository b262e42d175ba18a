"""Catalogs of every format that there was: the steps from each lead to today's schema, and keep what is there."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

import lakelog
from lakelog import CatalogVersionError, DatabaseError, Lake, SqlTxnLogWriter
from lakelog.actions import Action, Txn
from lakelog.catalog import install
from lakelog.catalog.base import FORMAT
from lakelog.importing.hidden_table import HiddenTable
from lakelog.log.commit.draft import Description, Draft
from tests.contract.samples import SCHEMA, add, commit, paths, table
from tests.fixtures.lakes import Place, catalog_rows, execute, forget_keys, qualified, rows
from tests.invariants import check_invariants

Connect = Callable[..., Lake]
FORMATS = Path(__file__).parent / "formats"
OLD = range(1, install.FORMAT)

STRUCTURE = {
    "sqlite": "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name",
    "duckdb": "SELECT table_name, column_name, data_type, is_nullable, column_default "
    "FROM information_schema.columns ORDER BY 1, 2",
    "postgres": "SELECT c.table_name, c.column_name, c.data_type, c.is_nullable, c.column_default, c.collation_name, "
    "(SELECT string_agg(i.indexdef, ';' ORDER BY i.indexname) FROM pg_indexes i "
    "WHERE i.schemaname = c.table_schema AND i.tablename = c.table_name), "
    "(SELECT string_agg(pg_get_constraintdef(k.oid), ';' ORDER BY k.conname) FROM pg_constraint k "
    "WHERE k.conrelid = (quote_ident(c.table_schema) || '.' || quote_ident(c.table_name))::regclass) "
    "FROM information_schema.columns c WHERE c.table_schema = $schema ORDER BY 1, 2",
}


def _make_old(connect: Connect, version: int) -> None:
    """A catalog as an old version of Lakelog made it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(install, "FORMAT", version)
        patched.setattr(
            install, "read_sql", lambda name: (FORMATS / name.replace("schema", f"{version:04}")).read_text()
        )
        connect().close()


@pytest.mark.parametrize("version", OLD)
def test_an_upgraded_catalog_is_built_like_a_new_one(
    connect: Connect, backend: str, version: int, place: Place, tmp_path: Path
) -> None:
    _make_old(connect, version)
    upgraded = connect(upgrade=True)
    check_invariants(upgraded)
    with _elsewhere(place, tmp_path) as new:
        assert _structure(upgraded, backend) == _structure(new, backend)


def test_the_schema_says_which_format_it_is(backend: str) -> None:
    assert f"format {install.FORMAT}," in install.read_sql(f"schema.{backend}.sql").partition("\n")[0]


def test_what_an_old_catalog_holds_is_there_after_the_upgrade(connect: Connect) -> None:
    filled = connect()
    events = table(filled, schema=SCHEMA)
    commit(filled, events, add())
    before = catalog_rows(filled)
    _take_back(filled)
    filled.close()
    with pytest.raises(CatalogVersionError, match=r"format 1, older than .*upgrade=True"):
        connect()
    upgraded = connect(upgrade=True)
    after = catalog_rows(upgraded)
    assert [row["version"] for row in after.pop("lakelog_migrations")] == list(range(1, install.FORMAT + 1))
    before.pop("lakelog_migrations")
    assert after == before
    assert paths(upgraded.dataset("events").snapshot().files()) == ["a.parquet"]
    commit(upgraded, upgraded.dataset("events"), add("b.parquet"))
    assert rows(upgraded, "dl_writes") == []


def test_a_process_from_before_an_upgrade_commits_nothing(connect: Connect, place: Place) -> None:
    lake = connect()
    events, other = table(lake), table(lake, "other")
    commit(lake, events, add())
    newer = f"INSERT INTO {qualified(lake, 'lakelog_migrations')} (version, applied_at) VALUES ({FORMAT + 1}, 0)"
    execute(lake, newer)
    before = catalog_rows(lake)
    drafts = [
        Draft(each.id, each.version, [add("b.parquet")], Description(operation_parameters={}, extra={}))
        for each in (events, other)
    ]
    for write in (
        lambda: commit(lake, events, add("b.parquet")),
        lambda: commit(lake, events, add("b.parquet"), Txn(app_id="etl", version=1)),
        lambda: SqlTxnLogWriter(lake).append(events.id, [add("b.parquet")]),
        lambda: lake.committer.commit(drafts),
        lambda: table(lake, "new"),
        lambda: lake.rename_dataset("events", "new"),
        lambda: lake.drop_dataset("events"),
        lambda: HiddenTable(lake, "new", str(place.root / "new")).begin(0, 1, "id"),
        lambda: events.vacuum(0, force=True),
    ):
        with pytest.raises(CatalogVersionError, match=f"format {FORMAT + 1}, newer than format {FORMAT} .*: upgrade"):
            write()
    assert catalog_rows(lake) == before


STATEMENTS_OF_FORMAT_3 = {
    # With which a commit, a rename and a drop begin.
    "lock": (
        "SELECT table_id, name, location, current_version, committed_at, metadata_version, protocol_version, "
        "created_at, dropped_at FROM {dl_tables} WHERE table_id = 1"
    ),
    "commit": (
        "UPDATE {dl_tables} SET current_version = 1, committed_at = 1, metadata_version = 0, protocol_version = 0 "
        "WHERE table_id = 1"
    ),
    "create": "INSERT INTO {dl_tables} (name, location, created_at) VALUES ('old', '/old', 0)",
}


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
@pytest.mark.parametrize("statement", STATEMENTS_OF_FORMAT_3)
def test_a_process_of_a_format_that_compared_it_only_at_connect_changes_nothing(
    connect: Connect, statement: str
) -> None:
    """It was there before the upgrade, and knows neither leases nor keys of names."""
    _make_old(connect, 3)
    lake = connect(upgrade=True)
    table(lake, "events")
    before = catalog_rows(lake)
    with pytest.raises(DatabaseError, match=r"name_key|constraint|metadata_version|42703"):
        execute(lake, STATEMENTS_OF_FORMAT_3[statement].format(dl_tables=qualified(lake, "dl_tables")))
    assert catalog_rows(lake) == before


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("more", [[], [Txn(app_id="etl", version=1)]], ids=["at once", "long"])
def test_a_commit_that_waits_for_an_upgrade_is_refused(connect: Connect, place: Place, more: list[Action]) -> None:
    lake = connect()
    events = table(lake)
    commit(lake, events, add())
    with ThreadPoolExecutor(1) as thread, psycopg.connect(place.url) as upgrade, psycopg.connect(place.url) as watch:
        watch.autocommit = True
        upgrade.execute(f"LOCK TABLE {qualified(lake, 'dl_tables')} IN ACCESS EXCLUSIVE MODE")
        waiting = thread.submit(commit, lake, events, add("b.parquet"), *more, version=2)
        _wait_for_a_lock(watch)
        upgrade.execute(
            f"INSERT INTO {qualified(lake, 'lakelog_migrations')} (version, applied_at) VALUES ({FORMAT + 1}, 0)"
        )
        upgrade.commit()
        with pytest.raises(CatalogVersionError, match="newer"):
            waiting.result(30)
    assert events.version == 1


@pytest.mark.parametrize("backend", ["postgres"])
def test_an_upgrade_waits_for_the_commits_that_are_under_way(connect: Connect, place: Place) -> None:
    lake = connect()
    events = table(lake)
    _take_back(lake)
    with ThreadPoolExecutor(1) as thread, psycopg.connect(place.url) as watch:
        watch.autocommit = True
        with psycopg.connect(place.url) as writer:
            writer.execute(f"UPDATE {qualified(lake, 'dl_tables')} SET current_version = 0")
            upgrading = thread.submit(connect, upgrade=True)
            # Before its first step, of which some would not wait.
            assert _wait_for_a_lock(watch).startswith("LOCK TABLE dl_tables")
        assert upgrading.result(30).dataset("events").version == events.version


def _wait_for_a_lock(connection: psycopg.Connection[Any]) -> str:
    """The statement that waits for a lock of ``dl_tables``."""
    deadline = time.monotonic() + 30
    waiting = (
        "SELECT a.query FROM pg_locks l JOIN pg_stat_activity a USING (pid) "
        "WHERE NOT l.granted AND l.relation::regclass::text LIKE '%dl_tables'"
    )
    while not (found := connection.execute(waiting).fetchall()):
        assert time.monotonic() < deadline, "nobody waits"
    return str(found[0][0])


def _elsewhere(place: Place, tmp_path: Path) -> Lake:
    if place.backend == "postgres":
        return lakelog.connect(place.url, tmp_path / "other", schema=f"{place.schema}_new")
    return lakelog.connect(f"{place.backend}:///{tmp_path / 'other.db'}", tmp_path / "other")


def _structure(lake: Lake, backend: str) -> list[Any]:
    schema = lake.committer.catalog.schema
    statement = STRUCTURE[backend].replace("$schema", f"'{schema}'")
    with lake.committer.catalog.session() as session:
        found = session.fetch(statement, {})
    return [tuple(_normal(str(value).replace(schema, "schema") if schema else value) for value in row) for row in found]


def _normal(value: Any) -> Any:
    """SQLite keeps a table's statement as it was written, and adds columns in the same line."""
    return " ".join(value.split()).replace(" )", ")").replace(" ,", ",") if isinstance(value, str) else value


def _take_back(lake: Lake) -> None:
    """To format 1, which has the same rows in fewer tables."""
    forget_keys(lake)
    later = ("dl_writes", "dl_retention", "dl_void_commits")
    execute(
        lake,
        *(f"DROP TABLE {qualified(lake, name)}" for name in later),
        f"UPDATE {qualified(lake, 'lakelog_migrations')} SET version = 1",
    )
