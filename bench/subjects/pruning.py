"""A predicate that keeps ten files, on a number, a string and a partition column."""

from collections.abc import Callable
from itertools import count

from bench.filled import DATASET, filled_place
from bench.lab import Lab
from bench.measure import Figure, Sample, Target, seconds
from bench.workload import FILES_PER_DAY, ROWS, day_of, name_of
from lakelog import Snapshot

NAME = "a predicate that keeps 10"
TARGETS = (Target(at_most=25),)
REPETITIONS = 5
"""Predicates of one measurement, whose median counts."""


def predicates(first: int) -> dict[str, str]:
    """Each keeps the ten files from ``first`` on, and no other."""
    low, high = first * ROWS, (first + FILES_PER_DAY) * ROWS - 1
    return {
        "number": f"id BETWEEN {low} AND {high}",
        "string": f"name >= '{name_of(low)}' AND name <= '{name_of(high)}'",
        "partition": f"day = DATE '{day_of(first)}'",
    }


def measure(lab: Lab, backend: str) -> list[Figure]:
    with filled_place(lab, backend).connect() as lake:
        snapshot = lake.dataset(DATASET).snapshot()
        figures = []
        for column in predicates(0):
            prune = searching(snapshot, column, lab.scale.live)
            prune()
            figures.append(
                Figure(
                    subject=f"{NAME} of {lab.scale.live:,} files",
                    backend=backend,
                    what=f"by a {column} column",
                    unit="ms",
                    sample=Sample(tuple(prune() for _ in range(lab.scale.rounds * REPETITIONS))),
                    targets=TARGETS if lab.scale.full else (),
                )
            )
    return figures


def searching(snapshot: Snapshot, column: str, live: int) -> Callable[[], float]:
    """Each call looks for other files, and says how many milliseconds that took."""
    days = live // FILES_PER_DAY
    numbers = count(1)

    def run() -> float:
        first = next(numbers) * 7919 % days * FILES_PER_DAY
        where = predicates(first)[column]
        found: list[object] = []
        elapsed = seconds(lambda: found.append(snapshot.files(where))) * 1000
        rows = found[0].num_rows  # type: ignore[attr-defined]
        assert rows == FILES_PER_DAY, f"{where} kept {rows} files"
        return elapsed

    return run
