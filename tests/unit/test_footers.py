"""How many threads read footers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lakelog.parquet import footers
from lakelog.threads import map_in_threads

FILES = [(number, f"/data/{number}.parquet", 100) for number in range(200)]


class Clock:
    """A time that passes only when somebody says so: of this thread's processor, or while it waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.worked = self.waited = 0.0
        self.shared = 0
        """Parts that were given to threads."""

        def count(read: Callable[[Any], Any], parts: Iterable[Any]) -> Iterator[Any]:
            given = list(parts)
            self.shared += len(given)
            return map_in_threads(read, given)

        monkeypatch.setattr(footers, "map_in_threads", count)
        clocks = SimpleNamespace(thread_time=lambda: self.worked, perf_counter=lambda: self.worked + self.waited)
        monkeypatch.setattr(footers, "time", clocks)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def shared(clock: Clock, listed: Sequence[tuple[int, str, int]], worked: float, waited: float) -> tuple[int, int]:
    """How many parts of some files were given to threads, and of how many, if each keeps its reader so busy."""

    def read(part: Sequence[tuple[int, str, int]]) -> list[int]:
        clock.worked += worked
        clock.waited += waited
        return [number for number, _, _ in part]

    found: list[list[int]] = []
    for each in footers._batches(listed, read):
        found.append(each)
        # What becomes of the answers says nothing about the files.
        clock.waited += 1
    assert [number for numbers in found for number in numbers] == [number for number, _, _ in listed]
    return clock.shared, len(found)


def test_near_files_are_read_by_the_caller(clock: Clock) -> None:
    assert shared(clock, FILES, 0.005, 0.01) == (0, 4)


def test_files_that_turn_out_to_be_far_are_read_by_many(clock: Clock) -> None:
    assert shared(clock, FILES, 0.005, 0.05) == (3, 4)


def test_files_of_an_object_store_are_read_by_many_from_the_first(clock: Clock) -> None:
    stored = [(number, f"s3://bucket{place}", size) for number, place, size in FILES]
    assert shared(clock, stored, 0.005, 0) == (4, 4)


def test_there_may_be_none(clock: Clock) -> None:
    assert shared(clock, [], 0, 0) == (0, 0)
