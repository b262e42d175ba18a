"""Waits that end without what they waited for, by a signal or by their timeout, and reads that are broken off."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import psycopg
import pytest

import lakelog.catalog.locks
import lakelog.catalog.sqlite.catalog
from lakelog import Lake, LakelogError, LakelogTimeoutError, TransactionManager
from tests.faults.children import DEADLINE, held_by_a_process, run
from tests.faults.scenarios import append, commit_file, prepare
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants

several_processes = pytest.mark.parametrize("backend", ["sqlite", "postgres"])
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])


@pytest.fixture
def lake(place: Place) -> Iterator[Lake]:
    """With tables, and with so much patience that a lock which nobody gives back is noticed."""
    prepare(place)
    with place.connect(timeout=5.0) as lake:
        yield lake


# Signals


class Interrupted(KeyboardInterrupt):
    """What a signal's handler raises."""


def _interrupt(*_: object) -> None:
    raise Interrupted


@contextmanager
def interrupted_while_waiting(place: Place) -> Iterator[None]:
    """For a block that waits for a lock, until a signal's handler raises in the middle of the wait."""
    me = threading.get_ident()

    def send() -> None:
        until(lambda: _waits(place, me))
        signal.pthread_kill(me, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, _interrupt)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        with pytest.raises(Interrupted):
            yield
    finally:
        sender.join(DEADLINE)
        signal.signal(signal.SIGUSR1, before)


def _waits(place: Place, thread: int) -> bool:
    """Whether the thread waits for a lock: in the database, or because it stands still in ours."""
    if place.backend == "postgres":
        with psycopg.connect(place.url, autocommit=True) as connection:
            waiting = connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            return bool(waiting.fetchall())
    innermost = frame = sys._current_frames()[thread]
    instruction = innermost.f_lasti
    while frame.f_back is not None and frame.f_code.co_filename != lakelog.catalog.locks.__file__:
        frame = frame.f_back
    if frame.f_back is None:
        return False
    time.sleep(0.02)
    return sys._current_frames()[thread] is innermost and innermost.f_lasti == instruction


@contextmanager
def held_by_a_thread(lake: Lake) -> Iterator[None]:
    """Another thread of this process has a transaction open."""
    held, enough = threading.Event(), threading.Event()

    def hold() -> None:
        with TransactionManager(lake).begin(lake.dataset("events").id):
            held.set()
            enough.wait(DEADLINE)

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert held.wait(DEADLINE)
        yield
    finally:
        enough.set()
        holder.join(DEADLINE)


def _commit(pipe: Connection, place: Place) -> None:
    with place.connect(timeout=5.0) as lake:
        pipe.send(commit_file(lake, lake.dataset("events")).version)


def assert_nothing_is_locked(place: Place, lake: Lake) -> None:
    """Everyone can commit: this thread, another one, another process."""
    events = lake.dataset("events")
    version = commit_file(lake, events).version
    thread = threading.Thread(target=commit_file, args=(lake, events))
    thread.start()
    thread.join(DEADLINE)
    assert events.version == version + 1
    if place.backend != "duckdb":
        assert run(_commit, place) == (0, [version + 2])
    assert lake.committer.catalog.usage() == (0, 0), "no connection is lost"
    check_invariants(lake)


def test_a_writer_interrupted_while_another_thread_holds_the_lock_leaves_nothing_locked(
    place: Place, lake: Lake
) -> None:
    events = lake.dataset("events")
    for _ in range(3):
        with held_by_a_thread(lake), interrupted_while_waiting(place):
            commit_file(lake, events)
    assert events.version == 1
    assert_nothing_is_locked(place, lake)


@several_processes
def test_a_writer_interrupted_while_another_process_holds_the_lock_leaves_nothing_locked(
    place: Place, lake: Lake
) -> None:
    events = lake.dataset("events")
    with held_by_a_process(place):
        for _ in range(3):
            with interrupted_while_waiting(place):
                commit_file(lake, events)
    assert events.version == 1
    assert_nothing_is_locked(place, lake)


@several_processes
def test_a_writer_interrupted_before_the_lock_is_free_does_not_keep_it_from_others(place: Place, lake: Lake) -> None:
    """The interrupted process does nothing more with the lake that could set things right."""
    with held_by_a_process(place), interrupted_while_waiting(place):
        commit_file(lake, lake.dataset("events"))
    assert run(_commit, place) == (0, [2])


def test_a_transaction_interrupted_at_its_begin_leaves_nothing_locked(place: Place, lake: Lake) -> None:
    events = lake.dataset("events")
    with held_by_a_thread(lake), interrupted_while_waiting(place):
        TransactionManager(lake).begin(events.id)
    assert_nothing_is_locked(place, lake)


# Listings


@on_sqlite
def test_an_interrupted_listing_leaves_no_old_snapshot_behind(
    place: Place, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is kept, as an interactive session does, and with it the statement that was not read to its end."""
    append(lake, 1)
    events = lake.dataset("events")
    snapshot = events.snapshot()
    with monkeypatch.context() as patched:
        # So few files are a listing of several parts, the first of which is interrupted.
        patched.setattr(lakelog.catalog.sqlite.catalog, "_CHUNK", 4)
        patched.setattr(lakelog.catalog.sqlite.catalog, "_array", _interrupt)
        with pytest.raises(Interrupted) as kept:
            snapshot.files()
    assert run(_commit, place) == (0, [3])
    assert events.version == 3
    assert events.snapshot().files().num_rows == snapshot.files().num_rows + 1
    assert commit_file(lake, events).version == 4
    assert kept.tb is not None
    assert lake.committer.catalog.usage() == (0, 0)


# Timeouts


def test_a_timeout_of_another_thread_does_not_erase_who_holds_the_table(place: Place, lake: Lake) -> None:
    events = lake.dataset("events")
    manager = TransactionManager(lake)
    with manager.begin(events.id):
        lake.committer.timeout = 0.1
        errors = in_a_thread(lambda: commit_file(lake, events)) + in_a_thread(lambda: manager.begin(events.id))
        assert [type(error) for error in errors] == [LakelogTimeoutError] * 2
        # With this much patience, a wait for itself would be the end of the test.
        lake.committer.timeout = DEADLINE
        for use in (lambda: manager.begin(events.id), lambda: commit_file(lake, events)):
            with pytest.raises(LakelogError, match="this thread already has an open transaction"):
                use()
    assert_nothing_is_locked(place, lake)


def in_a_thread(use: Callable[[], object]) -> list[BaseException]:
    """The errors, of which there is one or none."""
    errors: list[BaseException] = []

    def caught() -> None:
        try:
            use()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=caught)
    thread.start()
    thread.join(DEADLINE)
    return errors


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.002)
