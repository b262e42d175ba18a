"""A COMMIT whose answer never comes. Afterwards the caller knows what happened, or knows that it does not know."""

import itertools
import random
import resource
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from lakelog import CommitOutcomeUnknown, DatabaseError, Lake, LakelogError, LakelogTimeoutError
from lakelog.log.commit.draft import Description, Draft
from tests.faults.children import die, run
from tests.faults.proxy import Link, Proxy
from tests.faults.scenarios import (
    add,
    append,
    commit_file,
    create,
    done,
    file,
    prepare,
    rename,
    verify,
    write,
    write_two_tables,
)
from tests.faults.sqlite_vfs import FaultyDisk, io_error
from tests.fixtures.lakes import Place
from tests.fixtures.postgres import FAST, Server, start_server
from tests.invariants import check_invariants

SYNC = b"S\0\0\0\4"

on_postgres = pytest.mark.parametrize("backend", ["postgres"])
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])
on_duckdb = pytest.mark.parametrize("backend", ["duckdb"])


@pytest.fixture
def proxy(place: Place) -> Iterator[Proxy]:
    prepare(place)
    with Proxy(place.url) as proxy:
        yield proxy


@pytest.fixture
def remote(place: Place, proxy: Proxy) -> Iterator[Lake]:
    """The lake through the network that fails."""
    with Place(place.backend, proxy.url, place.root, place.schema).connect(mirror="manual", timeout=5.0) as lake:
        append(lake, 1)
        yield lake


@pytest.fixture
def impatient(place: Place, proxy: Proxy) -> Iterator[Lake]:
    """The same, for who does not ask for long."""
    with Place(place.backend, proxy.url, place.root, place.schema).connect(mirror="manual", timeout=1.0) as lake:
        append(lake, 1)
        yield lake


@pytest.fixture
def direct(place: Place, proxy: Proxy) -> Iterator[Lake]:
    """The same lake, without that network."""
    with place.connect(mirror="manual") as lake:
        yield lake


def until(happened: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not happened():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


# PostgreSQL, over a network

CHANGES = {change.__name__: change for change in (write, add, write_two_tables, create, rename)}
on_every_change = pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)


@on_postgres
@on_every_change
def test_a_commit_that_never_arrived_is_reported_as_not_made(
    proxy: Proxy, remote: Lake, direct: Lake, change: Callable[[Lake, int], None]
) -> None:
    proxy.at_commit = lambda link, _: link.cut()
    with pytest.raises(DatabaseError, match="nothing was"):
        change(remote, 1)
    assert "change" not in done(direct, 1)
    change(remote, 1)
    assert "change" in done(direct, 1)
    check_invariants(direct)


@on_postgres
@on_every_change
def test_a_commit_whose_answer_was_lost_is_reported_as_made(
    proxy: Proxy, remote: Lake, direct: Lake, change: Callable[[Lake, int], None]
) -> None:
    proxy.at_commit = Link.swallow_answer
    change(remote, 1)
    assert "change" in done(direct, 1)
    assert "change" in done(remote, 1)
    check_invariants(direct)


@on_postgres
@pytest.mark.parametrize("prepared", [False, True])
def test_a_session_that_ends_right_after_its_commit_does_not_make_it_undone(
    place: Place, proxy: Proxy, remote: Lake, direct: Lake, prepared: bool
) -> None:
    def commit_and_terminate(link: Link, message: bytes) -> None:
        assert message.endswith(SYNC)
        link.server.sendall(message.removesuffix(SYNC))
        until(lambda: "change" in done(direct, 9))
        with psycopg.connect(place.url, autocommit=True) as administrator:
            administrator.execute("SELECT pg_terminate_backend(%s)", (link.backend,))

    for number in range(2, 9 if prepared else 2):
        append(remote, number)
    append(remote, 9)
    proxy.at_commit = commit_and_terminate
    write(remote, 9)
    check_invariants(direct)


@on_postgres
def test_a_commit_that_arrives_late_is_waited_for(place: Place, proxy: Proxy, remote: Lake, direct: Lake) -> None:
    """The client's connection is gone, and the server still has to get the COMMIT: a plain look would find nothing."""

    def deliver_late(link: Link, message: bytes) -> None:
        link.hang_up()
        with psycopg.connect(place.url, autocommit=True) as administrator:
            until(lambda: _waits_for_lock(administrator))
        assert "change" not in done(direct, 1)
        link.server.sendall(message)

    proxy.at_commit = deliver_late
    write(remote, 1)
    assert "change" in done(direct, 1)


@on_postgres
def test_a_small_commit_that_arrives_when_it_was_given_up_does_nothing(
    proxy: Proxy, remote: Lake, direct: Lake
) -> None:
    """All of it was sent in one piece, which the network has kept: the server holds no lock for it when it is asked."""
    add(remote, 1)
    given_up, arrived = threading.Event(), threading.Event()

    def keep(link: Link, message: bytes) -> None:
        link.hang_up()
        given_up.wait(30)
        link.commit_unheard(message)
        arrived.set()

    proxy.at_begin = keep
    with pytest.raises(DatabaseError, match="nothing was committed"):
        add(remote, 2)
    before = direct.dataset("events").version
    given_up.set()
    assert arrived.wait(30)
    assert (direct.dataset("events").version, done(direct, 2)) == (before, set())
    add(remote, 2)
    assert direct.dataset("events").version == before + 1
    check_invariants(direct)


@on_postgres
def test_a_commit_that_is_lost_with_its_session_left_behind_is_waited_for(
    place: Place, proxy: Proxy, remote: Lake, direct: Lake
) -> None:
    """The server never hears of the client's end: the session's own limit ends it, and then it is certain."""
    proxy.at_commit = lambda link, _: link.hang_up()
    with pytest.raises(DatabaseError, match="nothing was committed"):
        write(remote, 1)
    assert "change" not in done(direct, 1)


@on_postgres
@pytest.mark.parametrize("stands", [True, False])
@pytest.mark.parametrize("tables", [("events",), ("users", "events")], ids=["one table", "two tables"])
def test_a_commit_that_cannot_be_asked_about_is_unknown_until_it_can(
    proxy: Proxy, impatient: Lake, direct: Lake, tables: tuple[str, ...], stands: bool
) -> None:
    def lose_everything(link: Link, message: bytes) -> None:
        if stands:
            link.commit_unheard(message)
        proxy.cut_all(but=link)
        link.cut()

    description = Description(operation="CHANGE", committer="1", operation_parameters={}, extra={})
    datasets = [impatient.dataset(name) for name in tables]
    drafts = [Draft(each.id, each.version, [file(1, "new")], description) for each in datasets]
    proxy.at_commit = lose_everything
    with pytest.raises(CommitOutcomeUnknown) as caught:
        impatient.committer.commit(drafts)
    assert caught.value.tables == tables
    assert caught.value.commit_id in str(caught.value)
    with pytest.raises(LakelogError):
        impatient.commit_status(caught.value.commit_id)
    proxy.reachable = True
    for lake in (direct, impatient):
        found = lake.commit_status(caught.value.commit_id)
        assert [(each.table_id, each.version) for each in found] == (
            sorted((draft.table_id, draft.version) for draft in drafts) if stands else []
        )
        assert {each.table for each in found} == (set(tables) if stands else set())
    check_invariants(direct)


@on_postgres
def test_a_change_of_name_that_cannot_be_asked_about_does_not_claim_anything(proxy: Proxy, impatient: Lake) -> None:
    def lose_everything(link: Link, message: bytes) -> None:
        proxy.cut_all(but=link)
        link.cut()

    proxy.at_commit = lose_everything
    with pytest.raises(LakelogError, match=r"look at lake.datasets\(\)") as caught:
        rename(impatient, 1)
    assert not isinstance(caught.value, DatabaseError | TimeoutError)


@on_postgres
def test_an_acknowledged_change_needs_nothing_more_from_the_server(proxy: Proxy, remote: Lake, direct: Lake) -> None:
    """What stands is not reported as an error because a later read fails."""

    def commit_and_vanish(link: Link, message: bytes) -> None:
        proxy.cut_all(but=link)
        link.commit_and_end(message)

    for change in (create, rename):
        proxy.reachable = True
        until(lambda: [dataset.name for dataset in remote.datasets()])
        proxy.at_commit = commit_and_vanish
        change(remote, 2)
    assert {"created-2", "named-2"} <= {dataset.name for dataset in direct.datasets()}


def _waits_for_lock(administrator: Any) -> bool:
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    return administrator.execute(waiting).fetchone() is not None


# PostgreSQL, stuck in COMMIT


@pytest.fixture
def stuck(tmp_path: Path) -> Iterator[tuple[Server, Place]]:
    """A server whose commits wait for a standby that does not exist."""
    with start_server(tmp_path, **FAST) as server:
        place = Place("postgres", server.url, tmp_path / "lake", "lakelog")
        prepare(place)
        with place.connect(mirror="manual") as lake:
            append(lake, 1)
        with psycopg.connect(server.url, autocommit=True) as administrator:
            administrator.execute("ALTER SYSTEM SET synchronous_standby_names = 'nosuch'")
        # By a new start: after a reload, sessions know of it before the process that makes them wait.
        server.halt()
        server.start()
        yield server, place


def _release(server: Server) -> None:
    """Nobody waits for a standby any more."""
    with psycopg.connect(server.url, autocommit=True) as administrator:
        administrator.execute("ALTER SYSTEM SET synchronous_standby_names = ''")
        administrator.execute("SELECT pg_reload_conf()")


def _stuck_backend(administrator: Any) -> int | None:
    row = administrator.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchone()
    return row[0] if row else None


@pytest.mark.parametrize("how", ["pg_terminate_backend", "pg_cancel_backend"])
@pytest.mark.parametrize("change", [write, add])
def test_a_commit_that_no_standby_has_is_unknown_until_one_has_it(
    stuck: tuple[Server, Place], change: Callable[[Lake, int], None], how: str
) -> None:
    """PostgreSQL answers a wait that is cancelled with COMMIT and a warning."""
    server, place = stuck
    ended: list[int] = []

    def end_each() -> None:
        with psycopg.connect(server.url, autocommit=True) as administrator:
            until(lambda: _stuck_backend(administrator))
            ended.append(_stuck_backend(administrator) or 0)
            administrator.execute(f"SELECT {how}(%s)", (ended[0],))

    with place.connect(mirror="manual", timeout=1.0) as lake:
        with _in_background(end_each), pytest.raises(CommitOutcomeUnknown) as unknown, within(lake):
            change(lake, 1)
        assert "change" in done(lake, 1), "it is there, and may be lost with this server"
        with pytest.raises(CommitOutcomeUnknown), within(lake):
            lake.commit_status(unknown.value.commit_id)
        _release(server)
        assert [result.commit_id for result in lake.commit_status(unknown.value.commit_id)] == [unknown.value.commit_id]


def test_a_name_that_no_standby_has_is_not_acknowledged(stuck: tuple[Server, Place]) -> None:
    """Whoever asks again and again gets no other answer, though each wait is cancelled."""
    server, place = stuck
    done_asking = threading.Event()

    def cancel_all() -> None:
        with psycopg.connect(server.url, autocommit=True) as administrator:
            while not done_asking.is_set():
                administrator.execute(
                    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                )
                time.sleep(0.02)

    with place.connect(mirror="manual", timeout=2.0) as lake, _in_background(cancel_all):
        try:
            with pytest.raises(LakelogError, match="could not be asked again"), within(lake):
                rename(lake, 1)
        finally:
            done_asking.set()
    _release(server)


def test_a_catalog_that_no_standby_has_is_not_said_to_be_missing(stuck: tuple[Server, Place]) -> None:
    server, place = stuck
    new = Place(place.backend, place.url, place.root, "new")
    with pytest.raises(DatabaseError, match=r"were made, or upgraded, is not known.*Connect again"):
        new.connect(timeout=1.0)
    _release(server)
    new.connect(timeout=1.0, create=False).close()


@pytest.mark.parametrize("change", [write, add, rename])
def test_a_commit_that_waits_for_a_standby_is_given_up_and_never_cancelled(
    stuck: tuple[Server, Place], change: Callable[[Lake, int], None]
) -> None:
    server, place = stuck
    with place.connect(mirror="manual", timeout=1.0) as lake:
        # Which error it is depends on what can be said of the change.
        with pytest.raises(LakelogError, match="could not be asked again"), within(lake):
            change(lake, 1)
        with psycopg.connect(server.url, autocommit=True) as administrator:
            assert _stuck_backend(administrator), "somebody cancelled the wait for the standby"
            with pytest.raises(LakelogTimeoutError), within(lake):
                change(lake, 1)
            _release(server)
            until(lambda: not _stuck_backend(administrator))
        assert "change" in done(lake, 1)


@pytest.mark.parametrize("change", [write, add])
def test_ctrl_c_does_not_cancel_a_commit(stuck: tuple[Server, Place], change: Callable[[Lake, int], None]) -> None:
    """It would end the wait for the standby as if the standby had it."""
    server, place = stuck

    def interrupt() -> None:
        with psycopg.connect(server.url, autocommit=True) as administrator:
            until(lambda: _stuck_backend(administrator))
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with place.connect(mirror="manual", timeout=10.0) as lake:
        with pytest.raises(KeyboardInterrupt), _in_background(interrupt):
            change(lake, 1)
        with psycopg.connect(server.url, autocommit=True) as administrator:
            assert _stuck_backend(administrator), "somebody cancelled the wait for the standby"
            _release(server)
            until(lambda: not _stuck_backend(administrator))
        assert "change" in done(lake, 1)


@contextmanager
def within(lake: Lake) -> Iterator[None]:
    """What a lake's timeout promises of everything that it does."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 2 * lake.committer.timeout + 2


def test_a_commit_that_is_stuck_without_its_client_is_waited_for(stuck: tuple[Server, Place]) -> None:
    server, place = stuck
    seen: list[bool] = []
    with Proxy(place.url) as proxy, place.connect(mirror="manual") as direct:

        def hang_up_and_release(link: Link, message: bytes) -> None:
            link.server.sendall(message)
            with psycopg.connect(server.url, autocommit=True) as administrator:
                until(lambda: _stuck_backend(administrator))
                link.hang_up()
                until(lambda: _waits_for_lock(administrator))
            seen.append("change" in done(direct, 1))
            _release(server)

        proxy.at_commit = hang_up_and_release
        with Place("postgres", proxy.url, place.root, place.schema).connect(mirror="manual") as lake:
            write(lake, 1)
        assert seen == [False], "a plain look finds nothing while the COMMIT is under way"
        assert "change" in done(direct, 1)


def test_a_standby_tells_what_it_has_and_not_what_it_lacks(tmp_path: Path) -> None:
    with start_server(tmp_path, **FAST) as server:
        place = Place("postgres", server.url, tmp_path / "lake", "lakelog")
        prepare(place)
        with place.connect(mirror="manual") as lake:
            (known,) = lake.dataset("events").history(1)
        server.halt()
        server.become_standby()
        server.start()
        with place.connect(mirror="manual", timeout=1.0) as lake:
            (found,) = lake.commit_status(known.commit_id)
            assert (found.table, found.version) == ("events", known.version)
            with pytest.raises(CommitOutcomeUnknown, match=r"is a standby.*Ask the primary"), within(lake):
                lake.commit_status(str(uuid.uuid4()))


@pytest.mark.parametrize("arrived", [True, False])
def test_a_server_that_crashes_inside_commit_tells_when_it_is_back(tmp_path: Path, arrived: bool) -> None:
    with start_server(tmp_path, fsync="on") as server:
        place = Place("postgres", server.url, tmp_path / "lake", "lakelog")
        prepare(place)

        def crash(link: Link, message: bytes) -> None:
            if arrived:
                link.commit_unheard(message)
            server.halt(crash=True)
            server.start()

        with (
            Proxy(place.url) as proxy,
            Place("postgres", proxy.url, place.root, place.schema).connect(mirror="manual") as lake,
        ):
            append(lake, 1)
            proxy.at_commit = crash
            if arrived:
                write(lake, 1)
            else:
                with pytest.raises(DatabaseError, match="nothing was committed"):
                    write(lake, 1)
        assert ("change" in verify(place, 1, ["append"])) == arrived


class _in_background:
    """Runs something beside the test, and fails the test if it failed."""

    def __init__(self, target: Callable[[], None]) -> None:
        self._error: BaseException | None = None
        self._target = target
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._target()
        except BaseException as error:
            self._error = error


# SQLite, on a disk that fails


def _commit_on_faulty_disk(pipe: Connection, place: Place, number: int, kind: str, nth: int, lasting: bool) -> None:
    """Sends what the caller was told, then what it is told when the disk works again, and dies without closing."""
    disk = FaultyDisk()
    count = 0

    def fault(_: int, called: str, name: str, real: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        nonlocal count
        count += called == kind.partition(" ")[0]
        if called == kind.partition(" ")[0] and (count == nth or (lasting and count > nth)):
            raise {
                "sync": lambda: io_error(apsw.SQLITE_IOERR_FSYNC),
                "write": lambda: io_error(apsw.SQLITE_IOERR_WRITE),
                "write full": lambda: apsw.FullError("injected"),
            }[kind]()
        real(*arguments)

    lake = place.connect(mirror="manual", timeout=0.5)
    append(lake, number)
    disk.fault = fault
    try:
        write(lake, number)
        pipe.send("made")
    except CommitOutcomeUnknown as error:
        disk.fault = None
        pipe.send("unknown")
        pipe.send("made" if lake.commit_status(error.commit_id) else "not made")
    except DatabaseError:
        disk.fault = None
        pipe.send("not made")
        append(lake, number + 1_000_000)
        pipe.send("works again")
    die()


@on_sqlite
@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("kind", ["sync", "write", "write full"])
def test_sqlite_tells_the_truth_about_a_commit_that_its_disk_refused(place: Place, kind: str, lasting: bool) -> None:
    """The file is looked at by a process that recovers it, after the one that committed died without closing it."""
    prepare(place)
    told: set[tuple[str, ...]] = set()
    # A frame of the WAL is two writes, so an odd stride meets both.
    for nth in itertools.count(1, 1 if kind == "sync" else 9):
        _, answers = run(_commit_on_faulty_disk, place, nth, kind, nth, lasting)
        told.add(tuple(answers))
        final = "made" if "made" in answers else "not made"
        assert final in answers
        assert ("change" in verify(place, nth, ["append"])) == (final == "made")
        if answers == ["made"]:
            break
    assert len(told) > 1
    # Frames that are written and perhaps not durable can be settled only by a disk that works again.
    assert any("unknown" in answers for answers in told) == (lasting and kind != "write full")


# DuckDB, on a disk that is full


def _commit_on_full_disk(pipe: Connection, place: Place, number: int, room: int) -> None:
    database = Path(place.url.removeprefix("duckdb:///"))
    lake = place.connect(mirror="manual")
    append(lake, number)
    log = database.with_name(f"{database.name}.wal")
    limit = log.stat().st_size + room
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        write(lake, number)
        pipe.send("made")
    except CommitOutcomeUnknown as error:
        _no_limit()
        pipe.send("unknown")
        pipe.send("made" if lake.commit_status(error.commit_id) else "not made")
    except DatabaseError:
        pipe.send("not made")
    _no_limit()
    append(lake, number + 1_000_000)
    pipe.send("works again")
    die()


def _no_limit() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


@on_duckdb
def test_duckdb_tells_the_truth_about_a_commit_that_its_disk_refused(place: Place) -> None:
    prepare(place)
    for number in itertools.count(1):
        _, answers = run(_commit_on_full_disk, place, number, (number - 1) * 797)
        assert answers[-1] == "works again", answers
        final = "made" if "made" in answers else "not made"
        assert ("change" in verify(place, number, ["append"])) == (final == "made")
        if answers[0] == "made":
            break
    assert number > 4


def _commit_with_failing_checkpoint(pipe: Connection, place: Place, limit: int, away: bool) -> None:
    """DuckDB copies its WAL into the database as part of the commit that makes it long, and cannot do so."""
    noise = random.Random(1)
    database = Path(place.url.removeprefix("duckdb:///"))
    log = database.with_name(f"{database.name}.wal")
    lake = place.connect(mirror="manual", timeout=1.0)
    append(lake, 1)
    events = lake.dataset("events")

    def grow() -> None:
        commit_file(lake, events, tags={"noise": noise.randbytes(500_000).hex()})

    while log.stat().st_size < 15_000_000:
        grow()
    made = events.version
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    elsewhere = database.parent.with_name("elsewhere")
    if away:
        database.parent.rename(elsewhere)
    told = "never"
    try:
        for _ in range(10):
            grow()
            made += 1
    except CommitOutcomeUnknown as error:
        told = error.commit_id
    except DatabaseError:
        told = "not made"
    if away:
        elsewhere.rename(database.parent)
    _no_limit()
    if told not in ("never", "not made"):
        made += bool(lake.commit_status(told))
        told = "unknown"
    pipe.send((told, made))
    append(lake, 2)
    pipe.send(("works again", events.version))
    die()


@on_duckdb
@pytest.mark.parametrize(("limit", "away"), [(15_500_000, False), (17_500_000, False), (17_500_000, True)])
def test_duckdb_tells_the_truth_about_a_commit_whose_checkpoint_failed(
    place: Place, tmp_path: Path, limit: int, away: bool
) -> None:
    """Where the directory is away for a while, too, the file cannot even be opened again at once."""
    directory = tmp_path / "database"
    directory.mkdir()
    place = Place("duckdb", f"duckdb:///{directory / 'catalog.db'}", place.root, place.schema)
    prepare(place)
    _, ((told, version), *rest) = run(_commit_with_failing_checkpoint, place, limit, away)
    assert told == ("unknown" if away else "not made")
    assert rest == [("works again", version + 1)]
    verify(place, 2, ["append"])
