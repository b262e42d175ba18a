"""The locks themselves, in threads and in real processes."""

import multiprocessing
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from lakelog.catalog.locks import FairLock, FileLock
from lakelog.catalog.sqlite.fair_turns import Turn

_PATIENCE = 20.0


def until(condition: Any) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.002)


class TestFairLock:
    def test_is_handed_over_in_order_of_arrival(self) -> None:
        lock, order = FairLock(), []
        lock.acquire(0)

        def wait(number: int) -> None:
            assert lock.acquire(_PATIENCE)
            order.append(number)
            lock.release()

        threads = []
        for number in range(5):
            threads.append(threading.Thread(target=wait, args=(number,)))
            threads[-1].start()
            until(lambda number=number: len(lock._waiting) > number)
        lock.release()
        for thread in threads:
            thread.join(_PATIENCE)
        assert order == [0, 1, 2, 3, 4]

    def test_a_wait_that_was_given_up_is_not_served(self) -> None:
        lock = FairLock()
        lock.acquire(0)
        assert not lock.acquire(0.01)
        lock.release()
        assert lock.acquire(0)

    def test_a_holder_that_was_served_stands_back_behind_those_who_come_once_more(self) -> None:
        lock, order = FairLock(), []
        lock.acquire(0)

        def wait(name: str) -> None:
            assert lock.acquire(_PATIENCE)
            order.append(name)
            lock.release()

        loser = threading.Thread(target=lambda: (wait("first"), wait("again")))
        loser.start()
        until(lambda: lock._waiting)
        hold = threading.Thread(target=lambda: (lock.acquire(_PATIENCE), time.sleep(0.05), lock.release()))
        hold.start()
        until(lambda: len(lock._waiting) == 2)
        lock.release(served=True)
        wait("winner")
        loser.join(_PATIENCE)
        hold.join(_PATIENCE)
        assert order == ["first", "again", "winner"]


def hold_lock(path: Path, words: Any) -> None:
    lock = FileLock(path)
    assert lock.acquire(_PATIENCE)
    words.send("held")
    words.recv()
    lock.release()


def hold_turn(path: Path, words: Any, trying: bool) -> None:
    turn = Turn(path)
    turn.take(_PATIENCE)
    if trying:
        turn.try_begins()
    words.send("held")
    words.recv()


@contextmanager
def another_process(target: Any, path: Path, *arguments: Any) -> Iterator[tuple[Any, Any]]:
    """A process that holds something until it is told to end."""
    context = multiprocessing.get_context("spawn")
    words, theirs = context.Pipe()
    process = context.Process(target=target, args=(path, theirs, *arguments))
    process.start()
    try:
        assert words.poll(_PATIENCE)
        words.recv()
        yield process, words
    finally:
        with suppress(OSError):
            words.send("end")
        process.join(_PATIENCE)


class TestFileLock:
    def test_waits_for_another_process(self, tmp_path: Path) -> None:
        with another_process(hold_lock, tmp_path / "lock") as (_, words):
            lock = FileLock(tmp_path / "lock")
            assert not lock.try_acquire()
            assert not lock.acquire(0.02)
            words.send("end")
            assert lock.acquire(_PATIENCE)
            lock.forget()

    def test_a_wait_that_was_given_up_does_not_keep_the_lock(self, tmp_path: Path) -> None:
        lock, other = FileLock(tmp_path / "lock"), FileLock(tmp_path / "lock")
        with another_process(hold_lock, tmp_path / "lock"):
            assert not lock.acquire(0.02)
        assert other.acquire(_PATIENCE)
        other.forget()

    def test_ends_with_its_process(self, tmp_path: Path) -> None:
        with another_process(hold_lock, tmp_path / "lock") as (process, _):
            process.kill()
            lock = FileLock(tmp_path / "lock")
            assert lock.acquire(_PATIENCE)
            lock.forget()


class TestTurn:
    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        return tmp_path / "turn"

    def test_ends_when_its_holder_makes_no_try(self, path: Path) -> None:
        with another_process(hold_turn, path, False):
            turn = Turn(path)
            turn.take(_PATIENCE)
            assert turn.is_ours
            until(lambda: not turn.is_ours)
            turn.forget()

    def test_lasts_as_long_as_a_try_but_holds_nobody_up_for_longer_than_they_will_wait(self, path: Path) -> None:
        with another_process(hold_turn, path, True) as (_, words):
            turn = Turn(path)
            started = time.monotonic()
            turn.take(0.1)
            assert not turn.is_ours
            assert time.monotonic() - started < _PATIENCE / 2
            words.send("end")
            turn.take(_PATIENCE)
            assert turn.is_ours
            turn.forget()

    def test_ends_after_a_few_tries_however_long_they_take(self, path: Path) -> None:
        turn, other = Turn(path), Turn(path)
        turn.take(_PATIENCE)
        tries = 0
        while turn.is_ours:
            turn.try_begins()
            time.sleep(0.02)
            turn.try_ends()
            tries += 1
        assert 1 < tries < 10
        other.take(_PATIENCE)
        assert other.is_ours
        turn.forget()
        other.forget()

    def test_ends_with_its_process(self, path: Path) -> None:
        with another_process(hold_turn, path, True) as (process, _):
            process.kill()
            turn = Turn(path)
            turn.take(_PATIENCE)
            assert turn.is_ours
            turn.forget()

    def test_leaves_no_thread_behind(self, path: Path) -> None:
        before = threading.active_count()
        turn = Turn(path)
        turn.take(_PATIENCE)
        turn.forget()
        until(lambda: threading.active_count() <= before)
