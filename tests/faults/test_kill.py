"""Power cuts. Whatever was acknowledged is there afterwards, and whatever is there is whole."""

import itertools
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lakelog import DatabaseError, Lake, SqlTxnLogWriter
from tests.faults.children import Child, die, run
from tests.faults.scenarios import CHANGES, append, done, file, prepare, verify, write
from tests.faults.sqlite_vfs import FaultyDisk
from tests.faults.steps import Steps
from tests.fixtures.lakes import Place
from tests.fixtures.postgres import Server, start_server
from tests.invariants import check_invariants

MOMENTS = {name: ("before", "after") if name in ("write", "add") else ("after",) for name in CHANGES}
"""What is true after a step is true before the next, so both are tried only once, and where there may be one step."""

RUNS = 8
"""On one catalog: a run goes on where another was killed, but the longer the log, the longer it takes to verify."""


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that a test may crash, and that keeps what it promised."""
    with start_server(tmp_path, fsync="on", full_page_writes="on") as server:
        yield server


# Between the statements


def _change_until_step(pipe: Connection, place: Place, name: str, number: int, step: int, moment: str) -> None:
    import lakelog.catalog.postgres.transaction

    lakelog.catalog.postgres.transaction._COPY_FROM = 10  # A small load takes the way of a large one.
    lake = place.connect()
    append(lake, number)
    pipe.send("append")
    Steps(lake, step, moment, lambda _: die())
    CHANGES[name](lake, number)
    pipe.send("change")
    die()


BY_BACKEND = {
    "sqlite": tuple(CHANGES),
    # It takes ten times as long, and its transactions hold whatever is in them.
    "duckdb": ("write", "write_many", "write_two_tables"),
    "postgres": tuple(CHANGES),
}


@pytest.mark.parametrize(("backend", "name"), [(each, name) for each, names in BY_BACKEND.items() for name in names])
def test_a_process_killed_at_any_step_leaves_a_whole_change_or_none(place: Place, name: str) -> None:
    outcomes: set[tuple[bool, bool]] = set()
    runs = itertools.count(1)
    for step in itertools.count(1):
        acknowledged: list[str] = []
        for moment in MOMENTS[name]:
            number = next(runs)
            if number % RUNS == 1:
                here = place.beside(number)
                prepare(here)
            code, acknowledged = run(_change_until_step, here, name, number, step, moment)
            assert code == -signal.SIGKILL
            found = verify(here, number, acknowledged)
            outcomes.add(("change" in acknowledged, "change" in found))
        if "change" in acknowledged:
            break
    # Killed before COMMIT, killed between COMMIT and its answer, not killed.
    assert outcomes == {(False, False), (False, True), (True, True)}
    assert step > (1 if name == "add" else 4)


# Inside the statements


def _change_until_write(pipe: Connection, place: Place, number: int, fatal: int, torn: bool) -> None:
    disk = FaultyDisk()

    def fault(count: int, kind: str, name: str, real: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if count == fatal:
            if torn and kind == "write":
                data, offset = arguments
                real(data[: len(data) // 2], offset)
            die()
        real(*arguments)

    lake = place.connect()
    append(lake, number)
    pipe.send("append")
    disk.fault = fault
    write(lake, number)
    pipe.send("change")
    lake.close()  # Copies the WAL into the database.
    pipe.send("closed")
    die()


@pytest.mark.parametrize("backend", ["sqlite"])
@pytest.mark.parametrize("torn", [False, True])
def test_sqlite_survives_a_kill_at_any_write_or_sync(place: Place, torn: bool) -> None:
    outcomes: set[tuple[str, ...]] = set()
    for number in itertools.count(1):
        if number % RUNS == 1:
            here = place.beside(number)
            prepare(here)
        code, acknowledged = run(_change_until_write, here, number, number, torn)
        assert code == -signal.SIGKILL
        verify(here, number, acknowledged)
        outcomes.add(tuple(acknowledged))
        if "closed" in acknowledged:
            break
    assert outcomes == {("append",), ("append", "change"), ("append", "change", "closed")}
    assert number > 20


def _change_until_size(pipe: Connection, place: Place, number: int, growth: int, closing: bool) -> None:
    """The kernel ends the process in the middle of the write that makes a file longer than allowed."""
    database = Path(place.url.removeprefix("duckdb:///"))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    lake = place.connect()
    append(lake, number)
    pipe.send("append")
    if closing:
        write(lake, number)
        pipe.send("change")
        _allow(database.stat().st_size + growth)
        lake.close()  # Copies the WAL into the database.
        pipe.send("closed")
    else:
        _allow(database.with_name(f"{database.name}.wal").stat().st_size + growth)
        write(lake, number)
        pipe.send("change")
    die()


def _allow(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.parametrize("backend", ["duckdb"])
@pytest.mark.parametrize(("closing", "stride"), [(False, 397), (True, 65_521)])
def test_duckdb_survives_a_kill_in_the_middle_of_a_write(place: Place, closing: bool, stride: int) -> None:
    prepare(place)
    codes: set[int] = set()
    for number in itertools.count(1):
        code, acknowledged = run(_change_until_size, place, number, (number - 1) * stride, closing)
        codes.add(code)
        verify(place, number, acknowledged)
        if code == -signal.SIGKILL:
            break
    assert codes == {-signal.SIGXFSZ, -signal.SIGKILL}
    assert number > 2


# At any time


def _commit_for_ever(pipe: Connection, place: Place) -> None:
    lake = place.connect()
    events = lake.dataset("events")
    writer = SqlTxnLogWriter(lake)
    for version in itertools.count(events.version + 1):
        result = writer.commit(events.id, version, [file(version, "one")])
        pipe.send((result.version, result.commit_id))


def test_a_process_killed_at_a_random_time_loses_nothing_acknowledged(place: Place) -> None:
    prepare(place)
    delays = random.Random(2)
    acknowledged: dict[int, str] = {}
    for _ in range(8):
        with Child(_commit_for_ever, place) as child:
            acknowledged |= [child.receive()]
            time.sleep(delays.uniform(0, 0.1))  # Not to wait for anything: this is when the power goes.
            child.signal(signal.SIGKILL)
            code, rest = child.end()
        assert code == -signal.SIGKILL
        acknowledged |= rest
        with place.connect() as lake:
            check_invariants(lake)
            history = {commit.version: commit.commit_id for commit in lake.dataset("events").history()}
        assert history.items() >= acknowledged.items()


# The server's side


def _change_or_fail(lake: Lake, number: int, at: int, moment: str, fault: Callable[[Any], None]) -> tuple[int, bool]:
    """How many steps were made, and whether the change was acknowledged; asserts that the answer was true."""
    append(lake, number)
    begin = lake.committer.catalog.begin
    steps = Steps(lake, at, moment, fault)
    try:
        write(lake, number)
        acknowledged = True
    except DatabaseError:
        acknowledged = False
    finally:
        lake.committer.catalog.begin = begin  # type: ignore[method-assign]
    assert ("change" in done(lake, number)) == acknowledged
    return steps.count, acknowledged


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_backend_terminated_at_any_step_gives_a_true_answer(place: Place, moment: str) -> None:
    prepare(place)
    with place.connect() as lake, psycopg.connect(place.url, autocommit=True) as administrator:

        def terminate(transaction: Any) -> None:
            pid = None if transaction is None else transaction._connection.info.backend_pid
            administrator.execute(
                "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
                "WHERE application_name = 'lakelog' AND datname = current_database() AND (pid = %s OR %s)",
                (pid, pid is None),
            )

        for step in itertools.count(1):
            count, acknowledged = _change_or_fail(lake, step, step, moment, terminate)
            if count < step:
                break
        assert acknowledged
        assert step > 15
        check_invariants(lake)


def test_a_server_crash_gives_a_true_answer(own_server: Server, tmp_path: Path) -> None:
    place = Place("postgres", own_server.url, tmp_path / "lake", "lakelog")
    prepare(place)

    def crash(_: Any) -> None:
        own_server.halt(crash=True)
        own_server.start()

    with place.connect() as lake:
        steps = _change_or_fail(lake, 1, 0, "after", crash)[0]
        for number, step in enumerate((1, 2, steps // 2, steps - 1, steps), 2):
            acknowledged = _change_or_fail(lake, number, step, "after", crash)[1]
            assert acknowledged == (step == steps)
        check_invariants(lake)


def test_a_server_crash_loses_no_acknowledged_commit_even_of_a_careless_role(
    own_server: Server, tmp_path: Path
) -> None:
    place = Place("postgres", own_server.url, tmp_path / "lake", "lakelog")
    prepare(place)
    with psycopg.connect(own_server.url, autocommit=True) as administrator:
        administrator.execute("ALTER SYSTEM SET wal_writer_delay = '10s'")
        administrator.execute("SELECT pg_reload_conf()")
        administrator.execute("ALTER ROLE postgres SET synchronous_commit = off")
    for number in range(1, 4):
        with place.connect() as lake:
            append(lake, number)
            write(lake, number)
            own_server.halt(crash=True)
        own_server.start()
        verify(place, number, ["append", "change"])
