"""``lakelog.connect``: what it refuses, what it creates, and catalogs of other versions."""

import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg
import pytest

import lakelog
from lakelog import (
    CatalogVersionError,
    ConfigurationError,
    DatabaseError,
    Lake,
    LakelogError,
    SqlTxnLogWriter,
    TransactionManager,
)
from lakelog.catalog import install
from tests.contract.samples import SCHEMA, add, commit, paths, table
from tests.faults.children import Child
from tests.fixtures.lakes import Place, catalog_rows, execute, qualified, rows
from tests.invariants import check_invariants

Connect = Callable[..., Lake]
postgres_only = pytest.mark.parametrize("backend", ["postgres"])
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
        "sqlite:///:memory:",
        "duckdb:///:memory:",
        "duckdb:///:memory:shared",
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


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
@pytest.mark.parametrize("length", [250, 255, 256, 5000])
def test_a_name_that_is_too_long_for_a_file_is_refused(scheme: str, length: int, tmp_path: Path) -> None:
    with suppress(LakelogError):
        lakelog.connect(f"{scheme}:///{tmp_path}/new/{'9' * length}", root=tmp_path / "lake").close()
    if length > 255:
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
        {"mirror": "often"},
    ],
    ids=repr,
)
def test_an_option_that_makes_no_sense_is_refused_by_name(options: dict[str, Any], tmp_path: Path) -> None:
    (name,) = options
    with pytest.raises(ConfigurationError, match=name):
        lakelog.connect(f"sqlite:///{tmp_path / 'new' / 'catalog.db'}", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_connect_leaves_no_directory(connect: Connect, place: Place, backend: str, tmp_path: Path) -> None:
    lake = connect()
    _pretend(lake, install.FORMAT + 1)
    lake.close()
    kept = tmp_path / "kept"
    kept.mkdir()
    for root in (tmp_path / "new" / "root", kept / "root"):
        with pytest.raises(CatalogVersionError):
            lakelog.connect(place.url, root, schema=place.schema)
        with pytest.raises(ConfigurationError):
            lakelog.connect(f"duckdb:///{tmp_path}/new/catalog/catalog.db", root, create=False)
    with pytest.raises(ConfigurationError):
        lakelog.connect(UNREACHABLE, tmp_path / "new" / "root", timeout=1)
    assert not (tmp_path / "new").exists()
    assert list(kept.iterdir()) == []


@files_only
def test_a_failed_connect_keeps_what_others_have_put_there(backend: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(ConfigurationError):
        lakelog.connect(f"{backend}:///{tmp_path}/new/catalog.db", root=file / "root")
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    with lakelog.connect(f"{backend}:///{tmp_path}/new/catalog.db"):
        pass
    with pytest.raises(ConfigurationError):
        lakelog.connect(f"{backend}:///{file}/catalog.db", root=tmp_path / "new" / "root")
    assert (tmp_path / "new" / "catalog.db").is_file()
    assert not (tmp_path / "new" / "root").exists()


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


@pytest.mark.parametrize("scheme", ["sqlite", "duckdb"])
def test_who_does_not_create_leaves_nothing_behind(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(LakelogError):
        lakelog.connect(f"{scheme}:///{tmp_path}/nowhere/catalog.db", root=tmp_path / "root", create=False)
    assert list(tmp_path.iterdir()) == []
