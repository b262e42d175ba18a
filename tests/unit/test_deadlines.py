"""Waits that share what is left of a time."""

import threading

import pytest

from lakelog.catalog.deadlines import limited, sharing


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("lakelog.catalog.deadlines.time.monotonic", lambda: now[0])
    return now


def test_a_wait_by_itself_has_its_own_limit() -> None:
    assert limited(30.0) == 30.0


def test_waits_of_a_block_share_its_time(clock: list[float]) -> None:
    with sharing(10.0) as deadline:
        assert limited(30.0) == 10.0
        assert limited(2.0) == 2.0
        clock[0] += 7
        assert (limited(30.0), deadline.left) == (3.0, 3.0)
        clock[0] += 7
        assert limited(30.0) == 0.0
        assert deadline.passed
    assert limited(30.0) == 30.0


def test_a_block_inside_of_another_has_no_more_than_that(clock: list[float]) -> None:
    with sharing(10.0):
        clock[0] += 8
        with sharing(5.0):
            assert limited(30.0) == 2.0
        with sharing(1.0):
            assert limited(30.0) == 1.0
        assert limited(30.0) == 2.0


def test_another_thread_shares_nothing() -> None:
    found: list[float] = []
    with sharing(1.0):
        thread = threading.Thread(target=lambda: found.append(limited(30.0)))
        thread.start()
        thread.join()
    assert found == [30.0]
