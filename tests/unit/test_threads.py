"""Work in threads: in order, by as many as can start, ended by the first error."""

import _thread
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from lakelog.threads import Worker, map_in_threads


def refuse(*_: Any) -> None:
    raise RuntimeError("can't start new thread")


def die(*_: Any) -> int:
    """As a thread does that lacks the memory to begin: nobody is told."""
    return 0


@pytest.mark.parametrize("starts", [0, 1, 99])
@pytest.mark.parametrize("then", [refuse, die])
def test_results_come_in_order_whatever_threads_there_are(
    monkeypatch: pytest.MonkeyPatch, starts: int, then: Callable[..., Any]
) -> None:
    start = _thread.start_new_thread
    left = [starts]

    def limited(run: Callable[[], None], arguments: tuple[()]) -> Any:
        left[0] -= 1
        return (start if left[0] >= 0 else then)(run, arguments)

    monkeypatch.setattr(_thread, "start_new_thread", limited)

    def late(number: int) -> int:
        time.sleep(0.001 * (7 - number % 8))
        return number * number

    assert list(map_in_threads(late, range(100), 8)) == [number * number for number in range(100)]


def test_the_first_error_ends_it_and_no_thread_is_left() -> None:
    worked: list[int] = []

    def fail(number: int) -> int:
        worked.append(number)
        if number == 3:
            raise ValueError("three")
        time.sleep(0.002)
        return number

    with pytest.raises(ValueError, match="three"):
        list(map_in_threads(fail, range(10_000), 4))
    count = len(worked)
    assert count < 100
    time.sleep(0.02)
    assert len(worked) == count


def test_what_is_not_wanted_any_more_is_not_worked_on() -> None:
    worked: list[int] = []
    found = map_in_threads(lambda number: worked.append(number) or time.sleep(0.002), range(10_000), 4)  # type: ignore[func-returns-value]
    next(found)
    found.close()  # type: ignore[attr-defined]
    assert len(worked) < 100


def test_nothing_needs_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_thread, "start_new_thread", refuse)
    work: Callable[[int], int] = abs
    assert list(map_in_threads(work, [])) == []


class TestWorker:
    def test_it_starts_once_and_again_when_its_work_is_over(self) -> None:
        runs: list[int] = []
        go_on = threading.Event()

        def run() -> None:
            runs.append(1)
            go_on.wait(20)

        worker = Worker(run)
        assert not worker.is_alive
        for _ in range(3):
            worker.start()
            assert worker.is_alive
        go_on.set()
        worker.join(20)
        assert not worker.is_alive
        assert len(runs) == 1
        worker.start()
        worker.join(20)
        assert len(runs) == 2

    def test_one_that_never_began_is_started_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        began = threading.Event()
        worker = Worker(began.set)
        with monkeypatch.context() as patched:
            patched.setattr(_thread, "start_new_thread", die)
            worker.start()
            assert not worker.is_alive
        worker.start()
        assert began.wait(20)

    def test_it_knows_itself(self) -> None:
        found: list[bool] = []
        worker = Worker(lambda: found.append(worker.is_current))
        worker.start()
        worker.join(20)
        assert (found, worker.is_current) == ([True], False)
