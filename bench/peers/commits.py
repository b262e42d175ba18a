"""Small commits by one writer: to a new table, and how they go on as it ages."""

import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from bench.lab import Lab
from bench.measure import Sample, in_turns
from bench.peers.committing import Commit, committing, create
from bench.peers.systems import TABLE, Spot, spots
from bench.readings import Goal, Reading
from bench.recorded import recorded_files

SUBJECT = "commits"
YOUNG, AGED = "commits of one file by one writer", "one commit, after so many before it"
GOALS = (
    Goal(subject=SUBJECT, what=YOUNG, system="Lakelog on PostgreSQL", over="DuckLake on PostgreSQL", times=5),
    Goal(subject=SUBJECT, what=YOUNG, system="Lakelog on SQLite", over="DuckLake on SQLite", times=8),
)
_ROUND = 0.7
"""Seconds of commits in a round."""
_WINDOW = 15
"""Commits whose median is one value of a sample, when a table ages."""
_WINDOWS = 5


def measure(lab: Lab) -> list[Reading]:
    file = recorded_files(lab, 1)[0]
    places = spots(lab)
    with ExitStack() as stack:
        commits: dict[str, Commit] = {}
        for spot in places:
            create(spot, [TABLE])
            commits[spot.name] = stack.enter_context(committing(spot, TABLE, file))
        rates = {name: _rate(commit) for name, commit in commits.items()}
        for warm_up in rates.values():
            warm_up()
        samples = in_turns(rates, lab.scale.rounds)
    young = [
        Reading(
            subject=SUBJECT,
            what=YOUNG,
            system=spot.system,
            database=spot.database,
            unit="/s",
            sample=samples[spot.name],
        )
        for spot in places
    ]
    return [*young, *(reading for spot in spots(lab) for reading in _aged(lab, spot))]


def _rate(commit: Commit) -> Callable[[], float]:
    done = 0

    def run() -> float:
        nonlocal done
        first, started = done, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < _ROUND:
            commit(f"young/{done}")
            done += 1
        return (done - first) / elapsed

    return run


def _aged(lab: Lab, spot: Spot) -> list[Reading]:
    """Commits until there are as many as the scale says or its patience ends, each with its time."""
    create(spot, [TABLE])
    took: list[float] = []
    with committing(spot, TABLE, recorded_files(lab, 1)[0]) as commit:
        end = time.monotonic() + lab.scale.patience
        while len(took) < lab.scale.versions and time.monotonic() < end:
            started = time.perf_counter()
            commit(f"aged/{len(took)}")
            took.append(time.perf_counter() - started)
    note = "" if len(took) >= lab.scale.versions else f"{len(took):,} in {lab.scale.patience:g} s"
    return [
        Reading(
            subject=SUBJECT,
            what=AGED,
            system=spot.system,
            database=spot.database,
            unit="ms",
            size=size,
            sample=_windows(took[:size]),
            note=note,
        )
        for size in (100, 1_000, 10_000, 100_000)
        if len(took) >= size
    ]


def _windows(took: Sequence[float]) -> Sample:
    """The last commits, some at a time."""
    last = took[-_WINDOW * _WINDOWS :]
    parts = [last[start : start + _WINDOW] for start in range(0, len(last), _WINDOW)]
    return Sample(tuple(statistics.median(part) * 1e3 for part in parts))
