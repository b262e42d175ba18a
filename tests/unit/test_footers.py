"""How many threads read footers."""

import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.parquet import footers

FILES = [(number, f"/data/{number}.parquet", 100) for number in range(200)]


class Clock:
    """A time that passes only when somebody says so: of this thread's processor, or while it waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.worked = self.waited = 0.0
        clocks = SimpleNamespace(thread_time=lambda: self.worked, perf_counter=lambda: self.worked + self.waited)
        monkeypatch.setattr(footers, "time", clocks)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def readers(clock: Clock, listed: Sequence[tuple[int, str, int]], worked: float, waited: float) -> list[str]:
    """The threads that read each part of some files, and for how long each part keeps them busy or waiting."""

    def read(part: Sequence[tuple[int, str, int]]) -> tuple[list[int], str]:
        clock.worked += worked
        clock.waited += waited
        return [number for number, _, _ in part], threading.current_thread().name

    found: list[Any] = []
    for each in footers._batches(listed, read):
        found.append(each)
        # What becomes of the answers says nothing about the files.
        clock.waited += 1
    assert [number for numbers, _ in found for number in numbers] == [number for number, _, _ in listed]
    return [name.partition("_")[0] for _, name in found]


def test_near_files_are_read_by_the_caller(clock: Clock) -> None:
    assert readers(clock, FILES, 0.005, 0.01) == [threading.current_thread().name] * 4


def test_files_that_turn_out_to_be_far_are_read_by_many(clock: Clock) -> None:
    assert readers(clock, FILES, 0.005, 0.05) == [threading.current_thread().name, *["lakelog-footers"] * 3]


def test_files_of_an_object_store_are_read_by_many_from_the_first(clock: Clock) -> None:
    stored = [(number, f"s3://bucket{place}", size) for number, place, size in FILES]
    assert readers(clock, stored, 0.005, 0) == ["lakelog-footers"] * 4


def test_there_may_be_none(clock: Clock) -> None:
    assert readers(clock, [], 0, 0) == []
