"""Eight processes that commit one file at a time to one table: whoever loses a race reads the head and tries again."""

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from bench.lab import Lab, Place, new_dataset
from bench.limits.base import FileRows
from bench.measure import Figure, Sample, Target, in_turns
from bench.recorded import recorded_files
from bench.workload import add_file, path_of
from lakelog import SqlTxnLogWriter, VersionConflict

NAME = "one-file commits, 8 writers"
WRITERS = 8
BACKENDS = ("sqlite", "postgres")
"""A DuckDB file belongs to one process."""
TARGETS = (Target(at_least=0.6, ratio=True),)
FAIRNESS = (Target(at_least=0.5),)
_PATIENCE = 120
"""Seconds that all writers may take to start."""

Attempt = Callable[[str], bool]
Counts = list[int]


def measure(lab: Lab, backend: str) -> list[Figure]:
    if backend not in BACKENDS:
        return []
    written = recorded_files(lab, WRITERS)
    by_hand, through_lakelog = lab.place(backend), lab.place(backend)
    by_hand.limit(create=True).close()
    through_lakelog.connect().close()
    shares: list[Counts] = []

    def limit() -> float:
        return sum(_race(by_hand, _new_limit_table(by_hand), lab.scale.seconds, written)) / lab.scale.seconds

    def lakelog() -> float:
        shares.append(_race(through_lakelog, _new_table(through_lakelog), lab.scale.seconds, None))
        return sum(shares[-1]) / lab.scale.seconds

    samples = in_turns({"limit": limit, "lakelog": lakelog}, 3 if lab.scale.full else 1)
    common: dict[str, Any] = {"subject": NAME, "backend": backend}
    fastest = max(_of_mean(counts, max) for counts in shares)
    return [
        Figure(
            **common,
            what="commits",
            unit="/s",
            sample=samples["lakelog"],
            limit=samples["limit"],
            targets=TARGETS if lab.scale.full else (),
        ),
        Figure(
            **common,
            what="slowest writer",
            unit="of mean",
            sample=Sample(tuple(_of_mean(counts, min) for counts in shares)),
            targets=FAIRNESS if lab.scale.full else (),
            note=f"fastest {fastest:.2f} of mean",
        ),
    ]


def _of_mean(counts: Counts, which: Callable[[Counts], int]) -> float:
    return which(counts) * len(counts) / sum(counts)


def _new_limit_table(place: Place) -> int:
    connection = place.limit()
    try:
        return connection.create_table(f"race {time.monotonic_ns()}")
    finally:
        connection.close()


def _new_table(place: Place) -> int:
    with place.connect() as lake:
        return new_dataset(lake, f"race {time.monotonic_ns()}").id


def _race(place: Place, table_id: int, seconds: float, written: list[FileRows] | None) -> Counts:
    """How many commits each writer made; by hand if it is told what to write."""
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(WRITERS)
    first = _head(place, table_id)
    # Each process gets one task, since none ends before all have begun.
    with ProcessPoolExecutor(WRITERS, context, _enter, (gate,)) as pool:
        tasks = [
            pool.submit(_write, place, table_id, number, seconds, None if written is None else written[number])
            for number in range(WRITERS)
        ]
        counts = [task.result() for task in tasks]
    assert _head(place, table_id) - first == sum(counts), "a commit was lost"
    return counts


def _head(place: Place, table_id: int) -> int:
    connection = place.limit()
    try:
        return connection.head(table_id)
    finally:
        connection.close()


_gates: list[Any] = []
"""In a writer's process, the one barrier that all of them pass together."""


def _enter(gate: Any) -> None:
    _gates.append(gate)


def _write(place: Place, table_id: int, number: int, seconds: float, file: FileRows | None) -> int:
    if file is None:
        with place.connect() as lake:
            dataset = next(each for each in lake.datasets() if each.id == table_id)
            writer, add = SqlTxnLogWriter(lake), add_file(number)

            def attempt(path: str) -> bool:
                try:
                    writer.commit(table_id, dataset.version + 1, [replace(add, path=path)])
                except VersionConflict:
                    return False
                return True

            return _repeat(attempt, number, seconds)
    connection = place.limit()
    try:
        return _repeat(lambda path: connection.commit(table_id, connection.head(table_id), path, file), number, seconds)
    finally:
        connection.close()


def _repeat(attempt: Attempt, number: int, seconds: float) -> int:
    """Commits until the time is over, and how many of them succeeded."""
    done = 0
    _gates[0].wait(_PATIENCE)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done += attempt(path_of(number, f"{done}/"))
    return done
