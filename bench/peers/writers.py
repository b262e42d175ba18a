"""Many processes that commit one file at a time: all to one table, or each to a table of its own."""

import multiprocessing
import statistics
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from bench.lab import Lab
from bench.limits.base import FileRows
from bench.measure import Sample
from bench.peers.committing import committing, create
from bench.peers.systems import Spot, spots
from bench.readings import Goal, Reading
from bench.recorded import recorded_files

SUBJECT = "writers"
ONE_TABLE, OWN_TABLES = "all on one table", "each on its own table"
BACKENDS = ("sqlite", "postgres")
"""A DuckDB file belongs to one process."""
GOALS = tuple(
    Goal(
        subject=SUBJECT,
        what=f"{ONE_TABLE}: commits",
        system=f"Lakelog on {database}",
        over=f"DuckLake on {database}",
        times=10,
        size=8,
    )
    for database in ("PostgreSQL", "SQLite")
)
_PATIENCE = 300
"""Seconds that all processes may take to start."""


@dataclass(frozen=True, slots=True)
class _Share:
    """What one process did in one round."""

    took: tuple[float, ...]
    failures: tuple[str, ...]
    elapsed: float

    @property
    def rate(self) -> float:
        return len(self.took) / self.elapsed


def measure(lab: Lab) -> list[Reading]:
    crowds = (8, 32) if lab.scale.full else (4,)
    return [
        reading
        for crowd in crowds
        for where in (ONE_TABLE, OWN_TABLES)
        for spot in spots(lab, backends=BACKENDS)
        for reading in race(lab, spot, crowd, where)
    ]


def race(lab: Lab, spot: Spot, crowd: int, where: str) -> Iterator[Reading]:
    tables = ["shared"] if where == ONE_TABLE else [f"own_{number}" for number in range(crowd)]
    create(spot, tables)
    common: dict[str, Any] = {"subject": SUBJECT, "system": spot.system, "database": spot.database, "size": crowd}
    rounds = 3 if lab.scale.full else 1
    try:
        shares = _run(spot, tables, crowd, recorded_files(lab, 1)[0], rounds, lab.scale.seconds)
    except Exception as error:  # whatever keeps a peer from taking part is its result
        note = f"{type(error).__name__}: {error}".splitlines()[0][:120]
        yield Reading(**common, what=f"{where}: commits", unit="/s", sample=None, note=note)
        return
    failures = [failure for each in shares for share in each for failure in share.failures]
    note = f"{len(failures):,} failed, the first with {failures[0]}" if failures else ""
    rates = [[share.rate for share in each] for each in shares]
    total = Sample(tuple(sum(each) for each in rates))
    yield Reading(**common, what=f"{where}: commits", unit="/s", sample=total, note=note)
    slowest = Sample(tuple(min(each) * len(each) / (sum(each) or 1) for each in rates))
    yield Reading(**common, what=f"{where}: slowest writer", unit="of mean", sample=slowest)
    late = [[took * 1e3 for share in each for took in share.took] for each in shares]
    if all(len(each) > 1 for each in late):
        p99 = Sample(tuple(statistics.quantiles(each, n=100)[98] for each in late))
        yield Reading(**common, what=f"{where}: commit, 99th percentile", unit="ms", sample=p99)


def _run(
    spot: Spot, tables: list[str], crowd: int, file: FileRows, rounds: int, seconds: float
) -> list[tuple[_Share, ...]]:
    """Of each round what each process did."""
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(crowd)
    # Each process gets one task, since none ends before all have begun.
    with ProcessPoolExecutor(crowd, context, _enter, (gate,)) as pool:
        tasks = [
            pool.submit(_write, spot, tables[number % len(tables)], number, file, rounds, seconds)
            for number in range(crowd)
        ]
        return list(zip(*(task.result() for task in tasks), strict=True))


_gates: list[Any] = []
"""In a writer's process, the one barrier that all of them pass together."""


def _enter(gate: Any) -> None:
    _gates.append(gate)


def _write(spot: Spot, table: str, number: int, file: FileRows, rounds: int, seconds: float) -> list[_Share]:
    gate = _gates[0]
    try:
        with committing(spot, table, file, alone=False) as commit:
            found = []
            for round_number in range(rounds):
                took: list[float] = []
                failures: list[str] = []
                gate.wait(_PATIENCE)
                begun = time.monotonic()
                while (started := time.monotonic()) < begun + seconds:
                    try:
                        commit(f"{number}/{round_number}/{len(took) + len(failures)}")
                    except Exception as error:  # counted, and named in the report
                        failures.append(f"{type(error).__name__}: {error}".splitlines()[0][:120])
                    else:
                        took.append(time.monotonic() - started)
                found.append(_Share(tuple(took), tuple(failures), time.monotonic() - begun))
            return found
    except BaseException:
        # The others would wait for it.
        gate.abort()
        raise
