"""Forks, pools, poolers, and processes that stop in the middle."""

import gc
import itertools
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from lakelog import (
    AddFiles,
    ConfigurationError,
    DatabaseError,
    Lake,
    LakelogError,
    LakelogTimeoutError,
    SqlTxnLogWriter,
    TransactionManager,
    VersionConflict,
)
from tests.faults.children import Child, die, run
from tests.faults.pooler import Pooler
from tests.faults.scenarios import append, commit_file, done, file, prepare, rename, write, write_two_tables
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants

Acknowledged = tuple[int, str]

several_processes = pytest.mark.parametrize("backend", ["sqlite", "postgres"])
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])
on_duckdb = pytest.mark.parametrize("backend", ["duckdb"])
on_postgres = pytest.mark.parametrize("backend", ["postgres"])


def commit_times(lake: Lake, count: int, name: str) -> list[Acknowledged]:
    """Commits, and reloads whenever another process came first."""
    events = lake.dataset("events")
    made: list[Acknowledged] = []
    while len(made) < count:
        version = events.version + 1
        try:
            result = SqlTxnLogWriter(lake).commit(events.id, version, [file(version, name)])
        except VersionConflict:
            continue
        made.append((result.version, result.commit_id))
    return made


def assert_all_there(place: Place, acknowledged: list[Acknowledged]) -> None:
    with place.connect() as lake:
        check_invariants(lake)
        history = {(commit.version, commit.commit_id) for commit in lake.dataset("events").history()}
    assert len(set(acknowledged)) == len(acknowledged)
    assert history >= set(acknowledged)


# Forks


def _fork(in_child: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            in_child()
            status = 0
        except BaseException:
            import traceback

            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def _commit_on_both_sides(pipe: Connection, place: Place, ending: str) -> None:
    lake = place.connect()
    pipe.send(commit_times(lake, 2, "parent"))

    def in_child() -> None:
        nonlocal lake
        mine = place.connect() if ending == "new lake" else lake
        pipe.send(commit_times(mine, 10, "child"))
        if ending == "close":
            lake.close()
        if ending == "collect":
            del lake
            gc.collect()

    pid = _fork(in_child)
    pipe.send(commit_times(lake, 10, "parent"))
    assert os.waitpid(pid, 0)[1] == 0
    pipe.send(commit_times(lake, 2, "parent"))
    lake.close()


@several_processes
@pytest.mark.parametrize("ending", ["exit", "close", "collect", "new lake"])
def test_a_forked_child_and_its_parent_go_on_committing(place: Place, ending: str) -> None:
    prepare(place)
    code, acknowledged = run(_commit_on_both_sides, place, ending)
    assert code == 0
    assert sum(map(len, acknowledged)) == 24
    assert_all_there(place, list(itertools.chain(*acknowledged)))


def _outlive_parents_lake(pipe: Connection, place: Place, again: bool) -> None:
    lake = place.connect()
    pipe.send(commit_times(lake, 1, "parent"))
    child_committed, parent_closed = os.pipe(), os.pipe()

    def in_child() -> None:
        mine = place.connect() if again else lake
        pipe.send(commit_times(mine, 3, "child"))
        os.write(child_committed[1], b".")
        os.read(parent_closed[0], 1)
        pipe.send(commit_times(mine, 3, "child"))
        die()

    pid = _fork(in_child)
    os.read(child_committed[0], 1)
    lake.close()
    os.write(parent_closed[1], b".")
    os.waitpid(pid, 0)


@several_processes
@pytest.mark.parametrize("again", [False, True])
def test_a_forked_child_loses_nothing_when_its_parent_closes_the_lake(place: Place, again: bool) -> None:
    """SQLite's last connection deletes the WAL; a child that had no locks of its own would write to the deleted one."""
    prepare(place)
    code, acknowledged = run(_outlive_parents_lake, place, again)
    assert code == 0
    assert sum(map(len, acknowledged)) == 7
    assert_all_there(place, list(itertools.chain(*acknowledged)))


def _fork_with_duckdb(pipe: Connection, place: Place) -> None:
    lake = place.connect()
    commit_times(lake, 1, "parent")

    def in_child() -> None:
        for use in (lake.datasets, lambda: commit_times(lake, 1, "child"), place.connect):
            try:
                use()
            except ConfigurationError as error:
                pipe.send(str(error))
        lake.close()

    pid = _fork(in_child)
    assert os.waitpid(pid, 0)[1] == 0
    commit_times(lake, 1, "parent")
    lake.close()
    # Nothing is open any more: a child may begin anew.
    pid = _fork(lambda: pipe.send(commit_times(place.connect(), 1, "child")))
    assert os.waitpid(pid, 0)[1] == 0


@on_duckdb
def test_a_forked_child_of_a_duckdb_lake_is_told_why_it_cannot_go_on(place: Place) -> None:
    prepare(place)
    code, (*messages, acknowledged) = run(_fork_with_duckdb, place)
    assert code == 0
    assert len(messages) == 3
    assert all("forked" in message and "SQLite or PostgreSQL" in message for message in messages)
    assert_all_there(place, acknowledged)


def _fork_inside_transaction(pipe: Connection, place: Place) -> None:
    lake = place.connect(timeout=5.0)
    manager = TransactionManager(lake)
    context = manager.begin(lake.dataset("events").id)

    def in_child() -> None:
        with context:
            try:
                manager.commit(context, [file(1, "child")])
            except LakelogError as error:
                pipe.send(str(error))
        try:
            SqlTxnLogWriter(lake).commit(context.dataset_id, context.base_version + 1, [file(1, "child")])
        except LakelogError as error:
            pipe.send(type(error).__name__)

    pid = _fork(in_child)
    if lake.committer.catalog.dialect != "postgres":
        assert os.waitpid(pid, 0)[1] == 0
    version = manager.commit(context, [file(1, "parent")])
    pipe.send(version)
    if lake.committer.catalog.dialect == "postgres":
        assert os.waitpid(pid, 0)[1] == 0
    lake.close()


def test_a_transaction_that_is_open_during_a_fork_stays_the_parents(place: Place) -> None:
    prepare(place)
    code, messages = run(_fork_inside_transaction, place)
    assert code == 0
    assert messages.pop(0) == "this transaction belongs to the process that this one was forked from: begin a new one"
    # Where a child may not touch what it inherited it says so; with connections of its own it waits, and loses.
    expected = "VersionConflict" if place.backend == "postgres" else "ConfigurationError"
    assert sorted(messages, key=str) == [2, expected]
    assert_all_there(place, [])


# Pools


def _terminate_sessions(place: Place) -> int:
    with psycopg.connect(place.url, autocommit=True) as administrator:
        ended = administrator.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
            "WHERE application_name = 'lakelog' AND datname = current_database()"
        ).fetchall()
    return len(ended)


@on_postgres
def test_connections_that_died_idle_are_replaced_unnoticed(place: Place) -> None:
    prepare(place)
    with place.connect(pool_size=3) as lake:
        events = lake.dataset("events")
        sessions = [lake.committer.catalog.session() for _ in range(3)]
        for session in sessions:
            session.__enter__()
        for session in sessions:
            session.__exit__(None, None, None)
        assert _terminate_sessions(place) >= 3
        assert events.version == 1
        assert _terminate_sessions(place) >= 1
        assert commit_file(lake, events).version == 2
        assert _terminate_sessions(place) >= 1
        manager = TransactionManager(lake)
        with manager.begin(events.id) as context:
            assert manager.commit(context, [file(3, "one")]) == 3


def _work_with_many_files_open(pipe: Connection, place: Place) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    lake = place.connect()
    events = lake.dataset("events")
    commit_file(lake, events)
    many = pa.table({"path": [f"{number}.parquet" for number in range(2000)], "size": [1] * 2000})
    many = many.append_column("partition_values", pa.array(['{"day": "monday"}'] * 2000))
    SqlTxnLogWriter(lake).commit(events.id, 3, [AddFiles(many)])
    if place.backend == "postgres":
        _terminate_sessions(place)
    pipe.send(events.snapshot().files().num_rows)
    lake.close()
    assert len(held) == 1100


def test_a_process_with_more_than_a_thousand_open_files_can_use_a_lake(place: Place) -> None:
    prepare(place)
    assert run(_work_with_many_files_open, place) == (0, [2001])


def test_one_connection_is_enough_for_everything(place: Place) -> None:
    prepare(place)
    with place.connect(pool_size=1, timeout=5.0) as lake:
        append(lake, 1)
        write(lake, 1)
        write_two_tables(lake, 1)
        rename(lake, 1)
        events = lake.dataset("events")
        manager = TransactionManager(lake)
        with manager.begin(events.id) as context:
            manager.commit(context, [file(9, "managed")])
        assert events.snapshot(timestamp="2999-01-01").files(where="id > 3").num_rows > 0
        assert events.changes(0).commits
        check_invariants(lake)


def test_a_pool_that_is_used_up_is_named_when_the_wait_ends(place: Place) -> None:
    prepare(place)
    with place.connect(pool_size=2, timeout=0.3) as lake:
        events = lake.dataset("events")
        with lake.committer.catalog.session(), lake.committer.catalog.session():
            for use in (lake.datasets, lambda: commit_file(lake, events), lambda: TransactionManager(lake).begin(1)):
                with pytest.raises(
                    LakelogTimeoutError, match=r"gave up after 0.3 s .* one of 2 connections .*pool_size"
                ):
                    use()
        assert commit_file(lake, events).version == 2


# Frozen holders


def _hold(pipe: Connection, place: Place, timeout: float) -> None:
    lake = place.connect(timeout=timeout)
    manager = TransactionManager(lake)
    context = manager.begin(lake.dataset("events").id)
    pipe.send("holds")
    pipe.recv()
    try:
        pipe.send(manager.commit(context, [file(1, "frozen")]))
    except LakelogTimeoutError as error:
        pipe.send(str(error))


@on_postgres
def test_postgres_ends_the_session_of_a_frozen_holder(place: Place) -> None:
    prepare(place)
    with place.connect(timeout=30.0) as lake, Child(_hold, place, 2.0) as holder:
        assert holder.receive() == "holds"
        holder.signal(signal.SIGSTOP)
        assert commit_file(lake, lake.dataset("events")).version == 2
        holder.signal(signal.SIGCONT)
        holder.send("go on")
        assert "held open too long" in holder.receive()
        assert_all_there(place, [])


@on_sqlite
@pytest.mark.parametrize("ending", [signal.SIGCONT, signal.SIGKILL])
def test_sqlite_writers_say_that_a_frozen_process_holds_the_lock(place: Place, ending: signal.Signals) -> None:
    prepare(place)
    with place.connect(timeout=0.5) as lake, Child(_hold, place, 60.0) as holder:
        events = lake.dataset("events")
        assert holder.receive() == "holds"
        holder.signal(signal.SIGSTOP)
        for _ in range(3):
            with pytest.raises(LakelogTimeoutError, match=r"write lock of .*catalog.db, held by another process"):
                commit_file(lake, events)
        assert events.version == 1, "readers are not disturbed"
        holder.signal(ending)
        if ending == signal.SIGCONT:
            holder.send("go on")
            assert holder.receive() == 2
        holder.end()
        assert commit_file(lake, events).version == (3 if ending == signal.SIGCONT else 2)
        check_invariants(lake)


def test_a_holder_that_never_comes_back_loses_its_lock_at_its_deadline(place: Place) -> None:
    prepare(place)
    with place.connect(timeout=0.5) as lake, place.connect(timeout=30.0) as other:
        manager = TransactionManager(lake)
        context = manager.begin(lake.dataset("events").id)
        waiting = threading.Thread(target=commit_file, args=(other, other.dataset("events")))
        waiting.start()
        waiting.join(60)
        assert other.dataset("events").version == 2
        with pytest.raises(LakelogTimeoutError, match="held open too long"):
            manager.commit(context, [file(1, "late")])
        check_invariants(other)


# Poolers


@pytest.fixture
def pooler(place: Place) -> Iterator[Pooler]:
    prepare(place)
    with Pooler(place.url) as pooler:
        yield pooler


def _through(place: Place, url: str) -> Place:
    return Place(place.backend, url, place.root, place.schema)


@on_postgres
def test_a_lake_works_behind_a_pooler_in_transaction_mode(place: Place, pooler: Pooler) -> None:
    pooled = _through(place, pooler.url)
    with pooled.connect(prepare_threshold=None) as lake, pooled.connect(prepare_threshold=None) as other:
        threads = [
            threading.Thread(target=commit_times, args=(each, 20, name)) for name, each in (("a", lake), ("b", other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for number, each in enumerate((lake, other), 1):
            append(each, number)
            write(each, number)
            write_two_tables(each, number)
            rename(each, number)
            check_invariants(each)
        assert lake.dataset("events").version == 47
    assert pooler.switches > 20


@on_postgres
def test_the_pooler_of_these_tests_breaks_what_a_session_remembers(place: Place, pooler: Pooler) -> None:
    """Prepared statements are such a thing: without them nothing would show that the sessions really change."""
    pooled = _through(place, pooler.url)
    with pooled.connect(prepare_threshold=None), pytest.raises(DatabaseError, match="prepared statement"):
        _commit_prepared(pooled)


def _commit_prepared(place: Place) -> None:
    with place.connect(prepare_threshold=0) as lake, place.connect(prepare_threshold=0) as other:
        for each in itertools.islice(itertools.cycle((lake, other)), 20):
            commit_times(each, 1, "prepared")


@on_postgres
def test_nothing_stays_in_a_session_after_its_transactions(place: Place) -> None:
    prepare(place)
    state = (
        "SELECT name, setting FROM pg_settings WHERE name NOT LIKE '%%transaction%%' ORDER BY name",
        "SELECT name FROM pg_prepared_statements",
        "SELECT name FROM pg_cursors WHERE name <> ''",
        "SELECT classid, objid FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
        "SELECT relname FROM pg_class WHERE pg_my_temp_schema() = relnamespace",
        "SELECT pg_listening_channels()",
    )
    with place.connect(pool_size=1, prepare_threshold=None) as lake:

        def look() -> list[Any]:
            with lake.committer.catalog.session() as session:
                pid = session.fetch("SELECT pg_backend_pid()", {})
                return [pid, *(session.fetch(query, {}) for query in state)]

        before = look()
        for number in range(1, 8):
            append(lake, number)
            write(lake, number)
        with pytest.raises(VersionConflict):
            SqlTxnLogWriter(lake).commit(lake.dataset("events").id, 3, [file(0, "stale")])
        TransactionManager(lake).begin(lake.dataset("events").id).rollback()
        lake.dataset("events").snapshot().files()
        assert look() == before
        assert before[2:] == [[]] * 5


@on_postgres
def test_a_session_that_is_reset_between_transactions_is_as_good(place: Place) -> None:
    prepare(place)
    with place.connect(pool_size=1, prepare_threshold=None) as lake:
        for number in range(1, 8):
            for change in (append, write, write_two_tables):
                change(lake, number)
                with lake.committer.catalog.session() as session:
                    session._connection.execute("DISCARD ALL")  # type: ignore[attr-defined]
            assert done(lake, number) == {"append", "change"}
        check_invariants(lake)


# Languages


@on_postgres
@pytest.mark.parametrize(
    ("state", "error", "says"),
    [
        ("55P03", LakelogTimeoutError, "lock"),
        ("57014", LakelogTimeoutError, "statement"),
        ("23505", DatabaseError, "constraint"),
        ("42501", DatabaseError, "privilege"),
        ("53100", DatabaseError, "53100"),
    ],
)
def test_an_error_is_recognised_in_any_language(place: Place, state: str, error: type[Exception], says: str) -> None:
    """The server has no other language installed, so it is made to say something German under the real code."""
    with place.connect() as lake:
        transaction = lake.committer.catalog.begin((), "00000000-0000-4000-8000-000000000000", 30.0)
        try:
            transaction.execute(
                f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{state}', "
                "MESSAGE = 'Vorgang konnte nicht ausgeführt werden'; END $$",
                {},
            )
            with pytest.raises(error, match=says):
                transaction.fetch("SELECT 1", {})
        finally:
            transaction.rollback()
