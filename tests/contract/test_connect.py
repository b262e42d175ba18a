"""``lakelog.connect``: what it refuses, what it creates, what its sessions promise, and what it never tells."""

import logging
import socket
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import lakelog
from lakelog import (
    CatalogVersionError,
    ConfigurationError,
    DatabaseError,
    Dataset,
    Lake,
    LakelogError,
    LakelogTimeoutError,
    SqlTxnLogWriter,
    TransactionManager,
)
from lakelog.actions import RemoveFile, Txn
from lakelog.catalog import install
from lakelog.catalog.url import catalog_for, scrubbed, shown
from lakelog.log.commit import Conflict
from lakelog.log.draft import Description, Draft
from tests.contract.samples import SCHEMA, add, commit, paths, stats, table
from tests.faults.children import Child
from tests.fixtures.lakes import Place, administer, catalog_rows, execute, qualified, rows
from tests.fixtures.postgres import start_server
from tests.invariants import check_invariants

Connect = Callable[..., Lake]
postgres_only = pytest.mark.parametrize("backend", ["postgres"])
sqlite_only = pytest.mark.parametrize("backend", ["sqlite"])
files_only = pytest.mark.parametrize("backend", ["sqlite", "duckdb"])

UNREACHABLE = "postgresql://app@127.0.0.1:1/lake"


# What is refused


@pytest.mark.parametrize(
    "url",
    [
        "",
        "catalog.db",
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite:////",
        "sqlite://host/catalog.db",
        "sqlite:///catalog.db?mode=ro",
        "duckdb:///catalog.db#part",
        "mysql://host/lake",
        "SQLITE:///catalog.db",
        "sqlite:///cat\nalog.db",
        "sqlite:///cat\0alog.db",
        None,
        7,
        b"sqlite:///catalog.db",
    ],
)
def test_a_url_of_another_form_is_refused_with_an_example(
    url: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=":///"):
        lakelog.connect(url)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "options",
    [
        {"pool_size": 0},
        {"pool_size": True},
        {"pool_size": 2.5},
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"timeout": "30"},
        {"schema": ""},
        {"schema": "s" * 64},
        {"schema": "s\0"},
    ],
    ids=repr,
)
def test_an_option_that_makes_no_sense_is_refused_by_name(options: dict[str, Any], tmp_path: Path) -> None:
    (name,) = options
    with pytest.raises(ConfigurationError, match=name):
        lakelog.connect(f"sqlite:///{tmp_path / 'catalog.db'}", **options)
    assert list(tmp_path.iterdir()) == []


@files_only
def test_a_url_that_names_a_directory_is_refused(backend: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="is a directory"):
        lakelog.connect(f"{backend}:///{tmp_path}")


@files_only
def test_a_directory_that_cannot_be_written_is_named(backend: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    for parent in (file, Path("/proc/lakelog")):
        with pytest.raises(ConfigurationError, match=f"cannot create .*{parent}"):
            lakelog.connect(f"{backend}:///{parent / 'catalog.db'}", root=tmp_path / "root")
    with pytest.raises(ConfigurationError, match=f"root directory {file}"):
        lakelog.connect(f"{backend}:///{tmp_path / 'catalog.db'}", root=file)


@files_only
def test_a_file_that_is_no_database_is_refused_and_left_alone(backend: str, tmp_path: Path) -> None:
    file = tmp_path / "catalog.db"
    file.write_text("dear diary " * 1000)
    with pytest.raises(LakelogError, match="not a"):
        lakelog.connect(f"{backend}:///{file}")
    assert file.read_text() == "dear diary " * 1000


def test_a_file_may_have_a_name_with_escapes(tmp_path: Path) -> None:
    with lakelog.connect(f"sqlite:///{tmp_path}/my%20lake/cata%23log.db") as lake:
        assert (tmp_path / "my lake" / "cata#log.db").exists()
        assert table(lake).location == str(tmp_path / "my lake" / "events")


def test_an_unreachable_server_is_reported_with_its_address() -> None:
    with pytest.raises(ConfigurationError, match=r"cannot connect to .*127\.0\.0\.1:1/lake.*server runs"):
        lakelog.connect(UNREACHABLE)


def test_a_server_that_never_answers_is_given_up_within_the_timeout() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(ConfigurationError, match=f"cannot connect.*{port}"):
            lakelog.connect(f"postgresql://app@127.0.0.1:{port}/lake", timeout=2)


@postgres_only
def test_a_database_that_does_not_exist_is_named(place: Place) -> None:
    missing = place.url.replace("/lakelog_test_", "/no_such_database_")
    with pytest.raises(LakelogError, match="no_such_database_"):
        lakelog.connect(missing, root=place.root)


def _connect_and_tell(pipe: Connection, place: Place) -> None:
    try:
        place.connect().close()
    except LakelogError as error:
        pipe.send((type(error).__name__, str(error)))
    else:
        pipe.send("connected")


@pytest.mark.parametrize("backend", ["duckdb"])
def test_a_second_process_on_a_duckdb_file_is_told_why_not(place: Place) -> None:
    with place.connect() as lake:
        table(lake)
        with Child(_connect_and_tell, place) as child:
            kind, text = child.receive()
        assert kind == "ConfigurationError"
        assert "one process at a time" in text
        assert "SQLite or PostgreSQL" in text
        commit(lake, lake.dataset("events"))
    with Child(_connect_and_tell, place) as child:
        assert child.receive() == "connected"


def test_a_closed_lake_says_so(lake: Lake) -> None:
    dataset = table(lake)
    snapshot = dataset.snapshot()
    lake.close()
    lake.close()
    for call in (
        lake.datasets,
        lambda: lake.dataset("events"),
        lambda: lake.create_dataset("users", SCHEMA),
        lambda: lake.commit_status(str(uuid.uuid4())),
        lambda: dataset.version,
        dataset.history,
        snapshot.files,
        lambda: SqlTxnLogWriter(lake).commit(dataset.id, 1, [add()]),
        lambda: TransactionManager(lake).begin(dataset.id),
    ):
        with pytest.raises(LakelogError, match=r"closed: call lakelog\.connect again"):
            call()


# What is created


def test_nothing_is_created_unless_wanted(connect: Connect, place: Place) -> None:
    with pytest.raises(ConfigurationError, match="create=True"):
        connect(create=False)
    if place.backend == "postgres":
        with psycopg.connect(place.url) as connection:
            found = connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (place.schema,))
            assert found.fetchall() == []
    else:
        assert not Path(place.url.partition(":///")[2]).exists()
    connect().close()
    assert connect(create=False).datasets() == []


def _create(pipe: Connection, place: Place, name: str) -> None:
    pipe.send("ready")
    pipe.recv()
    with place.connect() as lake:
        pipe.send(lake.create_dataset(name, SCHEMA).id)


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_processes_that_create_one_catalog_at_once_all_succeed(place: Place) -> None:
    children = [Child(_create, place, f"table-{number}") for number in range(4)]
    for child in children:
        assert child.receive() == "ready"
    for child in children:
        child.send("go")
    ids = [child.receive() for child in children]
    for child in children:
        assert child.end()[0] == 0
        child.__exit__()
    assert sorted(ids) == [1, 2, 3, 4]
    with place.connect() as lake:
        assert len(lake.datasets()) == 4
        assert [row["version"] for row in rows(lake, "lakelog_migrations")] == [install.FORMAT]
        check_invariants(lake)


def test_threads_that_create_one_catalog_at_once_all_succeed(connect: Connect) -> None:
    barrier = threading.Barrier(4)
    outcomes: list[Any] = []

    def create(number: int) -> None:
        barrier.wait()
        try:
            outcomes.append(connect().create_dataset(f"table-{number}", SCHEMA).version)
        except Exception as error:
            outcomes.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert outcomes == [0, 0, 0, 0]
    check_invariants(connect())


# Catalogs of other versions


def _pretend(lake: Lake, version: int) -> None:
    execute(lake, f"UPDATE {qualified(lake, 'lakelog_migrations')} SET version = {version}")


@pytest.mark.parametrize(
    ("version", "advice"), [(install.FORMAT + 1, "upgrade the lakelog package"), (0, "upgrade=True")]
)
def test_a_catalog_of_another_format_is_refused_with_what_to_do(
    lake: Lake, connect: Connect, version: int, advice: str
) -> None:
    _pretend(lake, version)
    before = catalog_rows(lake)
    with pytest.raises(CatalogVersionError, match=rf"format {version}, .* format {install.FORMAT} .*{advice}"):
        connect()
    assert catalog_rows(lake) == before


def test_a_newer_catalog_cannot_be_upgraded(lake: Lake, connect: Connect) -> None:
    _pretend(lake, install.FORMAT + 1)
    with pytest.raises(CatalogVersionError, match="newer"):
        connect(upgrade=True)


@pytest.fixture
def next_format(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """Makes the next format the current one, which is reached by a migration with these statements."""

    def make(statements: str) -> int:
        step = install.FORMAT + 1

        def read_sql(name: str) -> str:
            assert name.startswith(f"migrations/{step:04}.")
            return statements

        monkeypatch.setattr(install, "FORMAT", step)
        monkeypatch.setattr(install, "read_sql", read_sql)
        return step

    return make


GOOD_STEP = "ALTER TABLE dl_tables ADD COLUMN note text; UPDATE dl_tables SET note = 'from the step, 100%'"
BAD_STEP = "ALTER TABLE dl_tables ADD COLUMN note text; UPDATE dl_tables SET no_such_column = 1"


def test_an_older_catalog_is_upgraded_when_asked(
    lake: Lake, connect: Connect, next_format: Callable[[str], int]
) -> None:
    dataset = table(lake)
    commit(lake, dataset, add())
    lake.close()
    step = next_format(GOOD_STEP)
    with pytest.raises(CatalogVersionError, match="upgrade=True"):
        connect()
    for options in ({"upgrade": True}, {"upgrade": True}, {}):
        upgraded = connect(**options)
        assert [row["version"] for row in rows(upgraded, "lakelog_migrations")] == [step - 1, step]
        with upgraded.committer.catalog.session() as session:
            notes = session.fetch(f"SELECT note FROM {qualified(upgraded, 'dl_tables')}", {})
        assert notes == [("from the step, 100%",)]
        assert paths(upgraded.dataset("events").snapshot().files()) == ["a.parquet"]
        commit(upgraded, upgraded.dataset("events"))
        upgraded.close()


def test_an_upgrade_that_fails_changes_nothing(
    lake: Lake, connect: Connect, next_format: Callable[[str], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(lake, table(lake), add())
    before = catalog_rows(lake)
    lake.close()
    with monkeypatch.context():
        step = next_format(BAD_STEP)
        with pytest.raises(DatabaseError, match="no_such_column"):
            connect(upgrade=True)
    monkeypatch.setattr(install, "FORMAT", step - 1)
    same = connect()
    assert catalog_rows(same) == before
    with pytest.raises(DatabaseError, match="note"), same.committer.catalog.session() as session:
        session.fetch(f"SELECT note FROM {qualified(same, 'dl_tables')}", {})


# What is never told

CANARY = "Canary-7"

MALFORMED = [
    f"postgresql://app:{CANARY}@127.0.0.1:1/lake",
    f"postgres://app:{CANARY}@127.0.0.1:1,127.0.0.1:2/lake",
    f"postgresql://app:{quote(CANARY + '@/:?#%&', safe='')}@127.0.0.1:1/lake",
    f"postgresql://app:%43{CANARY[1:]}@127.0.0.1:1/lake",
    f"postgresql://app:pre:{CANARY}@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}/rest@127.0.0.1:1/lake",
    f"postgresql://app:pre/{CANARY}@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}?rest@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}/a?b@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}#rest@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}@rest@127.0.0.1:1/lake",
    f"postgresql://app:pre@{CANARY}@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY} rest@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}%zz@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}@[::1/lake",
    f"postgresql://app:{CANARY}@127.0.0.1:{CANARY}/lake",
    f"postgresql://app:{CANARY}@127.0.0.1:1/lake?oops=1",
    f"postgresql://app:{CANARY}:1/lake",
    f"postgresql://app@127.0.0.1:1/lake?password={CANARY}",
    f"postgresql://app@127.0.0.1:1/lake?sslmode=disable&password={CANARY}&connect_timeout=2",
    f"postgresql://app@127.0.0.1:1/lake?pass%77ord={CANARY}",
    f"postgresql://app@127.0.0.1:1/lake?PASSWORD={CANARY}",
    f"postgresql://app@127.0.0.1:1/lake?passwrd={CANARY}",
    f"postgresql://app@127.0.0.1:1/lake?password={CANARY}%zz",
    f"postgresql://app@127.0.0.1:1/lake?password={CANARY}&password={CANARY}2",
    f"postgresql://app@127.0.0.1:1/lake?sslpassword={CANARY}&port=1x",
    f"postgresql:app:{CANARY}@127.0.0.1/lake",
    f"host=127.0.0.1 port=1 password={CANARY}",
    f"host=127.0.0.1 port=1 password='a {CANARY}'",
    f"mysql://app:{CANARY}@127.0.0.1/lake",
    f"sqlite://app:{CANARY}@127.0.0.1/lake",
    f"sqlite:///catalog.db?password={CANARY}",
    f"app:{CANARY}@127.0.0.1",
    f"postgresql://app:{CANARY}\n@127.0.0.1/lake",
]


def _everything_told(error: BaseException, caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join([str(error), repr(error), repr(error.args), *traceback.format_exception(error), caplog.text])


@pytest.mark.parametrize("url", MALFORMED)
def test_a_password_is_in_no_error_traceback_or_log_line(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigurationError) as caught:
        lakelog.connect(url, root=tmp_path, timeout=2)
    told = _everything_told(caught.value, caplog)
    assert CANARY not in told
    assert CANARY[1:] not in told


@pytest.mark.parametrize("url", [each for each in MALFORMED if "://" in each and "\n" not in each])
def test_a_password_is_in_no_repr_and_is_taken_out_of_a_drivers_text(url: str) -> None:
    assert CANARY not in shown(url)
    if url.startswith("postgres"):
        options: dict[str, Any] = {"pool_size": 1, "timeout": 1.0, "schema": "lakelog", "prepare_threshold": None}
        assert CANARY not in repr(catalog_for(url, **options))
        assert CANARY not in scrubbed(f"cannot read {url}", url)
        if "%" not in url:
            assert CANARY not in scrubbed(f'invalid integer value "{CANARY}" for connection option "port"', url)


def test_what_is_no_secret_is_shown() -> None:
    for url in (
        UNREACHABLE,
        "postgresql://[::1]:5432/lake",
        "postgresql://a,b:5433/lake",
        "sqlite:///a/b.db",
        "a/b.db",
    ):
        assert shown(url) == url
    assert shown("postgresql://app:x@h:5432/lake?sslmode=require") == "postgresql://app:***@h:5432/lake"
    assert shown("postgresql://app@/lake?host=/run/pg&port=5433") == "postgresql://app@/lake?host=/run/pg&port=5433"


PASSWORDS = ["plain-Canary-7", "sp @ce/:?#[]&=+%25'\"\\Canary-7", "Canary-7 пароль"]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("in_query", [False, True])
def test_a_server_that_refuses_a_password_does_not_make_it_known(
    guarded_server: tuple[str, Path], password: str, in_query: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    superuser, home = guarded_server
    secret = quote(password, safe="")
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE app PASSWORD {psycopg.sql.Literal(password).as_string()}")
    place = f"postgres?host={quote(str(home))}"
    url = f"postgresql://app@/{place}&password={secret}" if in_query else f"postgresql://app:{secret}@/{place}"

    with pytest.raises(ConfigurationError, match="cannot connect") as caught:
        lakelog.connect(url.replace("Canary", "WrongCanary"), root=tmp_path, timeout=5)
    told = _everything_told(caught.value, caplog)

    schema = f"s{uuid.uuid4().hex[:8]}"
    with lakelog.connect(url, root=tmp_path, schema=schema, timeout=2) as lake:
        dataset = table(lake)
        told += repr(lake) + str(lake) + repr(dataset) + repr(lake.committer.catalog)
        with psycopg.connect(superuser, autocommit=True) as connection:
            connection.execute("ALTER ROLE app PASSWORD 'another'")
            connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'app'")
        with pytest.raises(LakelogError) as lost:
            commit(lake, dataset)
        told += _everything_told(lost.value, caplog)
    assert "psycopg.pool" in {record.name for record in caplog.records}, "the pool's own log was not watched"
    assert "Canary-7" not in told
    assert secret not in told


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server with a role ``app`` that needs a password."""
    with start_server(tmp_path_factory.mktemp("guarded"), fsync="off") as server:
        access = server.home / "data" / "pg_hba.conf"
        access.write_text("local all app scram-sha-256\n" + access.read_text())
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE ROLE app LOGIN")
            connection.execute("GRANT CREATE ON DATABASE postgres TO app")
            connection.execute("SELECT pg_reload_conf()")
        yield server.url, server.home


# What sessions promise


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
        assert session.fetch(read, {"names": list(limits)}) == [(0,), (0,), (0,)]


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
            # The table's lock, and the one of the commit's id.
            assert locks(pid) == (True, 2)
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
        ("42501", DatabaseError, "lacks a privilege"),
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


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_who_does_not_create_leaves_nothing_behind(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(LakelogError):
        lakelog.connect(f"{scheme}:///{tmp_path}/nowhere/catalog.db", root=tmp_path / "root", create=False)
    assert list(tmp_path.iterdir()) == []
