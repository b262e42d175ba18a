"""How many threads read footers."""

import threading
import time
from collections.abc import Sequence
from typing import Any

from lakelog.parquet.footers import _batches

FILES = [(number, f"/data/{number}.parquet", 100) for number in range(200)]


def readers(listed: Sequence[tuple[int, str, int]], seconds: float) -> list[str]:
    """The threads that read each part of some files, of which each takes its time without the processor."""

    def read(part: Sequence[tuple[int, str, int]]) -> tuple[list[int], str]:
        time.sleep(seconds)
        return [number for number, _, _ in part], threading.current_thread().name

    found: list[Any] = list(_batches(listed, read))
    assert [number for numbers, _ in found for number in numbers] == [number for number, _, _ in listed]
    return [name.partition("_")[0] for _, name in found]


def test_near_files_are_read_by_the_caller() -> None:
    def busy(part: Sequence[Any]) -> str:
        end = time.thread_time() + 0.02
        while time.thread_time() < end:
            pass
        return threading.current_thread().name

    assert set(_batches(FILES[:64], busy)) == {threading.current_thread().name}


def test_files_that_turn_out_to_be_far_are_read_by_many() -> None:
    assert readers(FILES, 0.05) == [threading.current_thread().name, *["lakelog-footers"] * 3]


def test_files_of_an_object_store_are_read_by_many_from_the_first() -> None:
    stored = [(number, f"s3://bucket{place}", size) for number, place, size in FILES]
    assert readers(stored, 0) == ["lakelog-footers"] * 4


def test_who_takes_their_time_with_the_answers_makes_no_file_far() -> None:
    def busy(part: Sequence[Any]) -> str:
        end = time.thread_time() + 0.005
        while time.thread_time() < end:
            pass
        return threading.current_thread().name

    for name in _batches(FILES, busy):
        assert name == threading.current_thread().name
        time.sleep(0.05)


def test_there_may_be_none() -> None:
    assert readers([], 0) == []
