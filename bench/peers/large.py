"""Thousands of files in one commit: to a new table, and to one that has a hundred thousand already."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import Any

from bench.lab import Lab, new_dataset
from bench.measure import in_turns
from bench.peers import systems
from bench.peers.committing import create
from bench.peers.grown import grown
from bench.peers.systems import DELTA_RS, PYICEBERG, TABLE, Spot, spots
from bench.readings import LAKELOG, LIMIT, Goal, Reading
from bench.recorded import moved, recorded_rows
from bench.workload import files
from lakelog import AddFiles, SqlTxnLogWriter

SUBJECT = "large commit"
EMPTY, FULL_TABLE = "files in one commit to a new table", "10,000 files in one commit to a table of 100,000"
GOALS = tuple(
    goal
    for database in ("SQLite", "DuckDB", "PostgreSQL")
    for goal in (
        Goal(subject=SUBJECT, what=FULL_TABLE, system=f"Lakelog on {database}", over="delta-rs", times=1, size=10_000),
        Goal(
            subject=SUBJECT,
            what=FULL_TABLE,
            system=f"Lakelog on {database}",
            over=f"Lakelog on {database}",
            over_what=EMPTY,
            times=1 / 1.2,
            size=10_000,
        ),
    )
)
_ROUNDS = 3
_MOST = {PYICEBERG: 10_000}

Load = Callable[[], float]
"""Seconds of one such commit."""


def measure(lab: Lab) -> list[Reading]:
    sizes = (10_000, 100_000) if lab.scale.full else (1_000,)
    readings = []
    for size in sizes:
        wanted = [
            spot for spot in spots(lab, [LAKELOG, LIMIT, DELTA_RS, PYICEBERG]) if size <= _MOST.get(spot.system, size)
        ]
        readings += _in_turns(lab, wanted, EMPTY, size)
    grown_tables = [grown(lab, spot.system, spot.backend, sizes[-1]) for spot in spots(lab, [LAKELOG, LIMIT, DELTA_RS])]
    return readings + _in_turns(lab, grown_tables, FULL_TABLE, sizes[0])


def _in_turns(lab: Lab, wanted: list[Spot], what: str, size: int) -> list[Reading]:
    with ExitStack() as stack:
        loads = {}
        for spot in wanted:
            function = {LAKELOG: _lakelog, LIMIT: _by_hand, DELTA_RS: _delta_rs, PYICEBERG: _pyiceberg}[spot.system]
            loads[spot.name] = stack.enter_context(function(lab, spot, what, size))
        samples = in_turns(loads, _ROUNDS if lab.scale.full else 1)
    return [
        Reading(
            subject=SUBJECT,
            what=what,
            system=spot.system,
            database=spot.database,
            unit="s",
            size=size,
            sample=samples[spot.name],
        )
        for spot in wanted
    ]


def _first(what: str, number: int, size: int) -> int:
    """The first of the files: those of a table that has some come after them, as the rows of a later day do."""
    return 0 if what == EMPTY else 10 * size * number


def _timed(action: Callable[[], Any]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


@contextmanager
def _lakelog(lab: Lab, spot: Spot, what: str, size: int) -> Iterator[Load]:
    numbers = count(1)
    with spot.place.connect() as lake:
        writer = SqlTxnLogWriter(lake)

        def load() -> float:
            number = next(numbers)
            table = lake.dataset(TABLE) if what == FULL_TABLE else new_dataset(lake, f"new {number}")
            first = _first(what, number, size)
            adds, expected = AddFiles(files(size, first=first, prefix=f"{number}/")), table.version + 1
            return _timed(lambda: writer.commit(table.id, expected, [adds]))

        yield load


@contextmanager
def _by_hand(lab: Lab, spot: Spot, what: str, size: int) -> Iterator[Load]:
    numbers = count(1)
    connection = spot.place.limit(create=what == EMPTY)

    def load() -> float:
        number = next(numbers)
        rows = recorded_rows(lab, size, groups=False, first=_first(what, number, size))
        if what == EMPTY:
            table_id, head = connection.create_table(f"new {number}"), -1
        else:
            found = connection.execute(f"SELECT table_id, current_version FROM dl_tables WHERE name = '{TABLE}'")
            table_id, head = found[0]
        ready = moved(rows, table_id, head + 1)
        return _timed(lambda: connection.commit_many(table_id, head, ready))

    try:
        yield load
    finally:
        connection.close()


@contextmanager
def _delta_rs(lab: Lab, spot: Spot, what: str, size: int) -> Iterator[Load]:
    from deltalake import DeltaTable

    numbers = count(1)

    def load() -> float:
        number = next(numbers)
        name = TABLE if what == FULL_TABLE else f"new_{number}"
        if what == EMPTY:
            create(spot, [name])
        table = DeltaTable(systems.delta_path(spot, name))
        first = _first(what, number, size)
        adds = [systems.delta_add(file, f"{number}/") for file in range(first, first + size)]
        return _timed(lambda: systems.delta_commit(table, adds))

    yield load


@contextmanager
def _pyiceberg(lab: Lab, spot: Spot, what: str, size: int) -> Iterator[Load]:
    numbers = count(1)
    with systems.iceberg(spot) as catalog:

        def load() -> float:
            table = systems.create_iceberg(catalog, f"new_{next(numbers)}")
            adds = [systems.iceberg_file(table, file) for file in range(size)]
            return _timed(lambda: systems.iceberg_commit(table, adds))

        yield load
