"""The files beside a SQLite catalog by which its writers line up: what cannot be opened, is inherited, or is left."""

import gc
import logging
import os
import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import pytest

from lakelog import (
    DatabaseError,
    Dataset,
    Lake,
    LakelogTimeoutError,
    SqlTxnLogWriter,
    TransactionManager,
    VersionConflict,
)
from tests.faults.children import DEADLINE, Child, held_by_a_process, run
from tests.faults.scenarios import commit_file, file, prepare
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants

on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])


def beside(place: Place, suffix: str) -> Path:
    return Path(place.url.removeprefix("sqlite:///") + suffix)


@contextmanager
def unopenable(path: Path) -> Iterator[None]:
    """A directory where a file belongs. Not a matter of rights, of which root has all."""
    path.unlink(missing_ok=True)
    path.mkdir()
    try:
        yield
    finally:
        path.rmdir()


@contextmanager
def no_more_files() -> Iterator[None]:
    """No file can be opened, as in a process that has too many open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def lose(lake: Lake, other: Lake) -> None:
    """Loses a race: the head moves after this lake has seen it."""
    events = lake.dataset("events")
    version = commit_file(lake, events).version + 1
    commit_file(other, events)
    with pytest.raises(VersionConflict):
        SqlTxnLogWriter(lake).commit(events.id, version, [file(version, "late")])


# The turn, which is taken after a race was lost, and after the COMMIT of who won it


@on_sqlite
@pytest.mark.parametrize("suffix", ["-next", "-turn"])
def test_a_turn_that_cannot_be_taken_changes_no_answer(
    place: Place, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    prepare(place)
    with (
        place.connect(mirror="manual", timeout=5.0) as lake,
        place.connect(mirror="manual") as other,
        unopenable(beside(place, suffix)),
    ):
        events = lake.dataset("events")
        with caplog.at_level(logging.WARNING, "lakelog"):
            lose(lake, other)
            lost = len(caplog.records)
            assert commit_file(lake, events).version == 4
        assert 0 < lost < len(caplog.records), "it was tried after the loss and after the commit"
        assert all("writers do not take turns" in message for message in caplog.messages)
        assert [commit.version for commit in events.history()] == [4, 3, 2, 1, 0]
        check_invariants(lake)


def _commit_in_a_crowd_without_files(pipe: Connection, place: Place) -> None:
    with place.connect(mirror="manual", timeout=5.0) as lake, place.connect(mirror="manual") as other:
        events = lake.dataset("events")
        with unopenable(beside(place, "-turn")):
            lose(lake, other)
        with no_more_files():
            pipe.send(commit_file(lake, events).version)
        pipe.send(events.version)


@on_sqlite
def test_a_process_with_too_many_open_files_is_told_of_its_commit(place: Place) -> None:
    prepare(place)
    assert run(_commit_in_a_crowd_without_files, place) == (0, [4, 4])


@on_sqlite
@pytest.mark.parametrize("suffix", ["-next", "-turn"])
def test_a_turn_that_cannot_be_taken_leaves_no_file_open(place: Place, suffix: str) -> None:
    prepare(place)
    with (
        place.connect(mirror="manual", timeout=5.0) as lake,
        place.connect(mirror="manual") as other,
        unopenable(beside(place, suffix)),
    ):
        lose(lake, other)
        before = left(place)
        for _ in range(5):
            lose(lake, other)
        assert left(place) == before


# The lock


@on_sqlite
def test_a_lock_file_that_cannot_be_opened_is_named_and_leaves_nothing_locked(place: Place) -> None:
    prepare(place)
    with place.connect(mirror="manual", timeout=2.0) as lake:
        events = lake.dataset("events")
        with unopenable(beside(place, "-lock")):
            for _ in range(2):
                with pytest.raises(DatabaseError, match=r"cannot lock .*catalog.db by the file .*catalog.db-lock"):
                    commit_file(lake, events)
        assert_all_threads_can_commit(lake, events)


def _commit_without_files(pipe: Connection, place: Place) -> None:
    with place.connect(mirror="manual", timeout=2.0) as lake:
        events = lake.dataset("events")
        version = events.version + 1
        with no_more_files():
            try:
                SqlTxnLogWriter(lake).commit(events.id, version, [file(version, "one")])
            except DatabaseError as error:
                pipe.send(str(error))
        assert_all_threads_can_commit(lake, events)


@on_sqlite
def test_a_process_with_too_many_open_files_can_commit_when_it_has_closed_some(place: Place) -> None:
    prepare(place)
    code, (message,) = run(_commit_without_files, place)
    assert code == 0
    assert "catalog.db-lock" in message


def assert_all_threads_can_commit(lake: Lake, events: Dataset) -> None:
    version = commit_file(lake, events).version
    thread = threading.Thread(target=commit_file, args=(lake, events))
    thread.start()
    thread.join(DEADLINE)
    assert events.version == version + 1
    check_invariants(lake)


# Forks


def _fork_after_a_timeout(pipe: Connection, place: Place) -> None:
    lake = place.connect(mirror="manual", timeout=0.1)
    events = lake.dataset("events")
    try:
        commit_file(lake, events)
    except LakelogTimeoutError:
        pipe.send("gave up")
    ours, theirs = os.pipe()
    idle = os.fork()
    if idle == 0:
        os.close(theirs)
        os.read(ours, 1)
        os._exit(0)
    pipe.send("forked")
    assert pipe.recv() == "the holder is gone"
    lake.committer.timeout = 5.0
    pipe.send(commit_file(lake, events).version)
    assert pipe.recv() == "another process has committed"
    os.close(theirs)
    os.waitpid(idle, 0)
    pipe.send("the idle child lived until now")


@on_sqlite
def test_a_forked_child_that_does_nothing_holds_no_lock(place: Place) -> None:
    """Its parent had given up a wait for the lock, which was then still to be granted."""
    prepare(place)
    with place.connect(mirror="manual", timeout=5.0) as lake:
        events = lake.dataset("events")
        with held_by_a_process(place):
            parent = Child(_fork_after_a_timeout, place)
            assert [parent.receive(), parent.receive()] == ["gave up", "forked"]
        with parent:
            assert commit_file(lake, events).version == 2
            parent.send("the holder is gone")
            assert parent.receive() == 3
            assert commit_file(lake, events).version == 4
            parent.send("another process has committed")
            assert parent.end() == (0, ["the idle child lived until now"])


def _connect_in_a_fork(pipe: Connection, place: Place) -> None:
    with place.connect(mirror="manual") as lake:
        pipe.send(commit_file(lake, lake.dataset("events")).version)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with place.connect(mirror="manual") as lake:
                pipe.send(commit_file(lake, lake.dataset("events")).version)
            status = 0
        finally:
            os._exit(status)
    pipe.send(os.waitpid(child, 0)[1])
    with place.connect(mirror="manual") as lake:
        pipe.send(commit_file(lake, lake.dataset("events")).version)


def test_a_child_that_is_forked_after_the_lake_was_closed_can_connect(place: Place) -> None:
    prepare(place)
    assert run(_connect_in_a_fork, place) == (0, [2, 3, 0, 4])


# What is left


def left(place: Place) -> list[str]:
    """The threads that Lakelog has in this process, and the lock files of the catalog that are open."""
    files = {str(beside(place, suffix)) for suffix in ("-lock", "-next", "-turn")}
    opened = [file.path for file in psutil.Process().open_files() if file.path in files]
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("lakelog-")]
    return sorted(opened + threads)


def assert_nothing_is_left(place: Place) -> None:
    """Soon: a thread that was told to end needs a moment."""
    end = time.monotonic() + 5
    while left(place) and time.monotonic() < end:
        time.sleep(0.002)
    assert left(place) == []


def give_up(lake: Lake) -> None:
    with pytest.raises(LakelogTimeoutError, match="held by another process"):
        commit_file(lake, lake.dataset("events"))


@on_sqlite
def test_waits_that_time_out_leave_no_more_behind_than_the_first(place: Place) -> None:
    prepare(place)
    with place.connect(mirror="manual", timeout=5.0) as lake:
        with held_by_a_process(place):
            lake.committer.timeout = 0.01
            give_up(lake)
            before = left(place)
            for _ in range(20):
                give_up(lake)
            assert left(place) == before
        lake.committer.timeout = 5.0
        assert commit_file(lake, lake.dataset("events")).version == 2
        assert left(place) == before
    assert_nothing_is_left(place)


@on_sqlite
def test_turns_leave_no_more_behind_than_the_first(place: Place) -> None:
    prepare(place)
    with place.connect(mirror="manual", timeout=5.0) as lake, place.connect(mirror="manual") as other:
        lose(lake, other)
        before = left(place)
        for _ in range(5):
            lose(lake, other)
        assert left(place) == before
    assert_nothing_is_left(place)


@on_sqlite
def test_a_lake_that_committed_and_was_not_closed_leaves_nothing_behind(place: Place) -> None:
    prepare(place)
    for _ in range(5):
        lake = place.connect(mirror="manual")
        commit_file(lake, lake.dataset("events"))
    del lake
    gc.collect()
    assert_nothing_is_left(place)


@on_sqlite
def test_a_lake_that_waited_and_was_not_closed_leaves_nothing_behind(place: Place) -> None:
    prepare(place)
    with held_by_a_process(place):
        for _ in range(5):
            give_up(place.connect(mirror="manual", timeout=0.01))
        gc.collect()
    assert_nothing_is_left(place)


@on_sqlite
def test_a_lake_that_took_its_turn_and_was_not_closed_leaves_nothing_behind(place: Place) -> None:
    prepare(place)
    with place.connect(mirror="manual") as other:
        for _ in range(5):
            lose(place.connect(mirror="manual"), other)
        gc.collect()
    assert_nothing_is_left(place)


@on_sqlite
def test_a_lake_that_is_closed_during_a_commit_leaves_nothing_behind(place: Place) -> None:
    prepare(place)
    with place.connect(mirror="manual", timeout=5.0) as lake:
        with place.connect(mirror="manual") as other:
            lose(lake, other)
        manager = TransactionManager(lake)
        context = manager.begin(lake.dataset("events").id)
        lake.close()
        assert manager.commit(context, [file(1, "last")]) == 4
        assert_nothing_is_left(place)
