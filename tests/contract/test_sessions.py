"""What the sessions of a database promise: durability, isolation, locks, limits, and their number."""

import threading
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import psycopg
import pytest

import lakelog
from lakelog import (
    ConfigurationError,
    DatabaseError,
    Dataset,
    Lake,
    LakelogError,
    LakelogTimeoutError,
    PrivilegeError,
    TransactionManager,
)
from lakelog.actions import RemoveFile, Txn
from lakelog.catalog.postgres.catalog import _remedy
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.outcomes import Conflict
from tests.contract.samples import add, commit, paths, stats, table
from tests.fixtures.lakes import Place, administer, catalog_rows, execute, qualified
from tests.invariants import check_invariants

Connect = Callable[..., Lake]
postgres_only = pytest.mark.parametrize("backend", ["postgres"])
sqlite_only = pytest.mark.parametrize("backend", ["sqlite"])


@sqlite_only
def test_sqlite_is_durable_and_checks_foreign_keys_on_every_connection(lake: Lake) -> None:
    catalog = lake.committer.catalog
    with catalog.session() as first, catalog.session() as second:
        for session in (first, second):
            assert session.fetch("PRAGMA journal_mode", {}) == [("wal",)]
            assert session.fetch("PRAGMA synchronous", {}) == [(2,)]
            assert session.fetch("PRAGMA foreign_keys", {}) == [(1,)]


def _inside_a_commit(lake: Lake, *settings: str) -> list[str]:
    transaction = lake.committer.catalog.begin((), str(uuid.uuid4()), lake.committer.timeout)
    try:
        selected = ", ".join(f"current_setting('{name}')" for name in settings)
        return list(transaction.fetch(f"SELECT {selected}", {})[0])
    finally:
        transaction.rollback()


@pytest.fixture
def own_database(fresh_database: Callable[[], str], tmp_path: Path) -> Place:
    """A database whose defaults a test may change."""
    return Place("postgres", fresh_database(), tmp_path, "lakelog")


def _set_default(place: Place, setting: str, value: str, role: bool = False) -> None:
    with psycopg.connect(place.url) as connection:
        database = psycopg.sql.Identifier(connection.info.dbname).as_string()
    whose = f"ROLE CURRENT_USER IN DATABASE {database}" if role else f"DATABASE {database}"
    administer(place, f"ALTER {whose} SET {setting} = '{value}'")


def test_who_must_not_write_is_told_so(own_database: Place) -> None:
    """To keep a commit that is not there from coming is to write; a commit that is there can be read."""
    with own_database.connect() as lake:
        version = commit(lake, table(lake), add())
        schema = lake.committer.catalog.schema
        reader = f"reader_{uuid.uuid4().hex[:12]}"
        administer(
            own_database,
            f"CREATE ROLE {reader}",
            f"GRANT USAGE ON SCHEMA {schema} TO {reader}",
            f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {reader}",
        )
        try:
            url = f"{own_database.url}{'&' if '?' in own_database.url else '?'}options={quote(f'-c role={reader}')}"
            with replace(own_database, url=url).connect(create=False) as other:
                assert other.commit_status(version.commit_id) == [version]
                with pytest.raises(PrivilegeError, match="lacks a privilege"):
                    other.commit_status(str(uuid.uuid4()))
                with pytest.raises(PrivilegeError, match="lacks a privilege"):
                    commit(other, other.dataset("events"), add("b.parquet"))
        finally:
            administer(own_database, f"DROP OWNED BY {reader}", f"DROP ROLE {reader}")


def test_a_server_without_room_is_not_taken_for_a_wrong_password(own_database: Place) -> None:
    crowded = f"crowded_{uuid.uuid4().hex[:12]}"
    administer(own_database, f"CREATE ROLE {crowded} LOGIN PASSWORD 'known' CONNECTION LIMIT 0")
    try:
        with pytest.raises(ConfigurationError, match=r"no connection left.*max_connections") as caught:
            lakelog.connect(conninfo_url(own_database.url, user=crowded, password="known"), root=own_database.root)
        assert "password" not in str(caught.value)
    finally:
        administer(own_database, f"DROP ROLE {crowded}")


def test_a_pooler_without_room_is_not_taken_for_a_wrong_password() -> None:
    said = "FATAL:  no more connections allowed (max_client_conn)"
    assert "no connection left" in _remedy(said)
    assert "password" in _remedy("FATAL:  password authentication failed")


def conninfo_url(url: str, **changed: str) -> str:
    """The same URL for somebody else."""
    return f"{url}{'&' if '?' in url else '?'}{urlencode(changed)}"


@pytest.mark.parametrize("role", [False, True])
@pytest.mark.parametrize(
    ("default", "used"),
    [("off", "on"), ("on", "on"), ("local", "local"), ("remote_write", "remote_write")],
)
def test_a_postgres_commit_is_durable_whatever_the_database_or_role_says(
    own_database: Place, default: str, used: str, role: bool
) -> None:
    _set_default(own_database, "synchronous_commit", default, role)
    with own_database.connect() as lake:
        assert _inside_a_commit(lake, "synchronous_commit") == [used]
        with lake.committer.catalog.session() as session:
            assert session.fetch("SHOW synchronous_commit", {}) == [(default,)]


@pytest.mark.parametrize("role", [False, True])
def test_a_postgres_commit_hears_warnings_whatever_the_database_or_role_says(own_database: Place, role: bool) -> None:
    """One of them says that no standby has it."""
    _set_default(own_database, "client_min_messages", "error", role)
    with own_database.connect() as lake:
        assert _inside_a_commit(lake, "client_min_messages") == ["warning"]


@pytest.mark.parametrize("level", ["serializable", "repeatable read"])
def test_a_postgres_commit_is_read_committed_and_read_write_whatever_the_database_says(
    own_database: Place, level: str
) -> None:
    _set_default(own_database, "default_transaction_isolation", level)
    _set_default(own_database, "default_transaction_read_only", "on")
    with own_database.connect() as lake:
        assert _inside_a_commit(lake, "transaction_isolation", "transaction_read_only") == ["read committed", "off"]
        dataset = table(lake)
        commit(lake, dataset, add())
        assert lake.rename_dataset("events", "facts").version == 1
        assert paths(dataset.snapshot().files()) == ["a.parquet"]
        lake.drop_dataset("facts")


@postgres_only
def test_a_postgres_writer_waits_no_longer_than_its_timeout_and_leaves_no_limit_behind(connect: Connect) -> None:
    lake = connect(pool_size=1, timeout=5)
    limits = ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout")
    read = "SELECT setting::int FROM pg_settings WHERE name = ANY (%(names)s) ORDER BY setting::int"
    transaction = lake.committer.catalog.begin((), str(uuid.uuid4()), 5)
    inside = [row[0] for row in transaction.fetch(read, {"names": list(limits)})]
    transaction.commit()
    assert all(4000 < limit <= 5700 for limit in inside)
    with lake.committer.catalog.session() as session:
        assert session.fetch(read, {"names": list(limits)}) == [(0,), (0,), (5000,)], "a read waits for locks only"
        connection = session._connection  # type: ignore[attr-defined]
        assert connection.execute(read, {"names": list(limits)}).fetchall() == [(0,), (0,), (0,)]


@postgres_only
def test_a_postgres_writer_holds_the_row_lock_and_an_advisory_lock_until_its_end(lake: Lake, place: Place) -> None:
    dataset = table(lake)
    head = f"SELECT 1 FROM {qualified(lake, 'dl_tables')} WHERE table_id = {dataset.id} FOR UPDATE SKIP LOCKED"
    advisory = """SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)
                  WHERE locktype = 'advisory' AND granted AND application_name = 'lakelog'
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
                  AND pid = ANY (%s)"""
    with psycopg.connect(place.url, autocommit=True) as watcher:

        def locks(pid: int) -> tuple[bool, int]:
            (count,) = watcher.execute(advisory, ([pid],)).fetchone()
            return watcher.execute(head).fetchall() == [], count

        for ending in ("commit", "rollback"):
            manager = TransactionManager(lake)
            context = manager.begin(dataset.id)
            ((pid,),) = context._transaction.fetch("SELECT pg_backend_pid()", {})
            # The table's lock, the one of the commit's id, and its place in the line.
            assert locks(pid) == (True, 3)
            if ending == "commit":
                manager.commit(context, [add()])
            else:
                manager.rollback(context)
            assert locks(pid) == (False, 0)


STRANGE = [
    "Upper Case",
    'quo"ted',
    "it's",
    "semi;colon--",
    "100%s",
    "doll$ar",
    "dl_tables",
    "select",
    "ünïcødé",
    "s" * 63,
]


@pytest.mark.parametrize("name", STRANGE)
def test_a_schema_may_have_any_name(own_database: Place, name: str) -> None:
    for _ in range(2):
        with own_database.connect(schema=name) as lake:
            dataset = table(lake) if not lake.datasets() else lake.dataset("events")
            number = dataset.version
            version = commit(lake, dataset, *(add(f"{number}/{n}", stats=stats(id=(n, n))) for n in range(3))).version
            assert dataset.snapshot().files("id = 2").num_rows == version
            assert f"schema={name!r}" in repr(lake)
    with psycopg.connect(own_database.url) as connection:
        found = connection.execute("SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information|public)'")
        assert found.fetchall() == [(name,)]


@postgres_only
def test_catalogs_in_two_schemas_do_not_block_each_other(connect: Connect, place: Place) -> None:
    first, second = connect(timeout=5), connect(timeout=5, schema=f"{place.schema}_other")
    tables = [table(first), table(second)]
    assert tables[0].id == tables[1].id
    with TransactionManager(first).begin(tables[0].id):
        assert commit(second, tables[1], add()).version == 1
        with TransactionManager(second).begin(tables[1].id):
            assert (tables[0].version, tables[1].version) == (0, 1)
    assert commit(first, tables[0]).version == 1


def test_one_connection_is_enough_for_everything(connect: Connect) -> None:
    lake = connect(pool_size=1, timeout=10)
    dataset = table(lake, partition_by=["day"])
    monday = {"partition_values": {"day": "2026-01-05"}}
    result = commit(lake, dataset, add(**monday, stats=stats(id=(1, 9))), Txn(app_id="app", version=1))
    assert lake.commit_status(result.commit_id) == [result]
    manager = TransactionManager(lake)
    with manager.begin(dataset.id) as context:
        assert manager.commit(context, [add("b", **monday)]) == 2
    with pytest.raises(lakelog.VersionConflict):
        commit(lake, dataset, version=2)
    with pytest.raises(lakelog.ValidationError):
        commit(lake, dataset, RemoveFile(path="never"))
    commit(lake, dataset, RemoveFile(path="b"))
    snapshot = dataset.snapshot()
    assert paths(snapshot.files("id > 3 AND day = '2026-01-05'")) == ["a.parquet"]
    assert snapshot.row_groups("id > 3").num_rows == 0
    assert dataset.snapshot(version=1).files().num_rows == 1
    assert dataset.snapshot(timestamp=result.committed_at).version == 1
    assert len(dataset.history()) == 4
    assert dataset.changes(1).added.num_rows == 2
    assert lake.txn_version("events", "app") == 1
    assert lake.rename_dataset("events", "facts").name == "facts"
    assert [each.name for each in lake.datasets()] == ["facts"]
    lake.drop_dataset("facts")
    assert lake.datasets() == []


@postgres_only
def test_a_server_that_ended_all_sessions_costs_no_caller_its_patience(place: Place, connect: Connect) -> None:
    lake = connect(pool_size=8, timeout=10)
    dataset = table(lake)
    for version in (1, 2):
        with ExitStack() as stack:
            sessions = [stack.enter_context(lake.committer.catalog.session()) for _ in range(8)]
            pids = [session.fetch("SELECT pg_backend_pid()", {})[0][0] for session in sessions]
        assert len(set(pids)) == 8
        with psycopg.connect(place.url, autocommit=True) as administrator:
            administrator.execute("SELECT pg_terminate_backend(pid, 10000) FROM unnest(%s::int[]) pid", (pids,))
        start = time.monotonic()
        assert commit(lake, dataset, add(str(version)), version=version).version == version
        assert time.monotonic() - start < 3


def test_commits_to_the_same_tables_in_any_order_do_not_deadlock(lake: Lake, other_lake: Lake) -> None:
    tables = [table(lake, name) for name in ("first", "second")]
    description = Description(operation="BOTH", operation_parameters={}, extra={})
    errors: list[BaseException] = []

    def write(handle: Lake, order: list[Dataset], name: str) -> None:
        try:
            for number in range(10):
                outcome: Any = None
                while outcome is None or isinstance(outcome, Conflict):
                    drafts = [Draft(each.id, each.version, [add(f"{name}-{number}")], description) for each in order]
                    outcome = handle.committer.commit(drafts)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=write, args=(lake, tables, "forwards")),
        threading.Thread(target=write, args=(other_lake, tables[::-1], "backwards")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert [each.version for each in tables] == [20, 20]
    check_invariants(lake)


@postgres_only
@pytest.mark.parametrize(
    ("code", "error", "said"),
    [
        ("55P03", LakelogTimeoutError, "held by another writer"),
        ("57014", LakelogTimeoutError, "a statement of PostgreSQL"),
        ("42501", PrivilegeError, "lacks a privilege"),
        ("40P01", DatabaseError, "40P01"),
        ("40001", DatabaseError, "40001"),
        ("P0001", DatabaseError, "P0001"),
    ],
)
def test_a_refusal_inside_commit_is_told_by_its_code_and_never_by_its_text(
    lake: Lake, place: Place, code: str, error: type[LakelogError], said: str
) -> None:
    dataset = table(lake)
    before = catalog_rows(lake)
    function = qualified(lake, "refuse")
    for text in ("Sperre nicht verfügbar", "canceling statement due to lock timeout", "connection lost: duplicate key"):
        execute(
            lake,
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{text}' USING ERRCODE = '{code}'; END $$",
            f"CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON {qualified(lake, 'dl_table_versions')} "
            f"DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {function}()",
        )
        with pytest.raises(error, match=said) as caught:
            commit(lake, dataset, add())
        assert type(caught.value) is error
        administer(place, f"DROP FUNCTION {function} CASCADE")
    assert catalog_rows(lake) == before
    assert commit(lake, dataset, add()).version == 1
