"""Which files a query has to read, where its condition keeps ten of them: how that grows with the table."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import date
from itertools import count

from bench.lab import Lab
from bench.measure import in_turns
from bench.peers import systems
from bench.peers.grown import grown
from bench.peers.systems import DELTA_RS, DUCKLAKE, PYICEBERG, TABLE, Spot, spots
from bench.readings import LAKELOG, Goal, Reading
from bench.workload import FILES_PER_DAY, ROWS, day_of

SUBJECT = "planning"
BY_PARTITION, BY_NUMBER = "ten files by a partition column", "ten files by a number column"
GOALS = tuple(
    Goal(
        subject=SUBJECT,
        what=what,
        system=f"Lakelog on {database}",
        over=f"DuckLake on {database}",
        times=3,
        size=100_000,
    )
    for what in (BY_PARTITION, BY_NUMBER)
    for database in ("SQLite", "DuckDB", "PostgreSQL")
)
MOST = {PYICEBERG: 100_000}
"""The largest table that a system is asked for: more would take it half an hour."""

Plan = Callable[[int, str], int]
"""How many files a query reads that asks for the ten from this one on, by one of the columns."""


def measure(lab: Lab) -> list[Reading]:
    sizes = (1_000, 10_000, 100_000, 1_000_000) if lab.scale.full else (1_000, 5_000)
    return [reading for size in sizes for reading in _at(lab, size)]


def _at(lab: Lab, size: int) -> list[Reading]:
    wanted = [
        spot
        for spot in spots(lab, [LAKELOG, DUCKLAKE, DELTA_RS, PYICEBERG])
        if size <= MOST.get(spot.system, size) and (spot.system != PYICEBERG or spot.backend == "sqlite")
    ]
    tables = [grown(lab, spot.system, spot.backend, size) for spot in wanted]
    readings = []
    with ExitStack() as stack:
        plans = {spot.name: stack.enter_context(planning(spot)) for spot in tables}
        for what in (BY_PARTITION, BY_NUMBER):
            timed = {name: _timed(plan, what, size) for name, plan in plans.items()}
            for warm_up in timed.values():
                warm_up()
            samples = in_turns(timed, lab.scale.rounds)
            readings += [
                Reading(
                    subject=SUBJECT,
                    what=what,
                    system=spot.system,
                    database=spot.database,
                    unit="ms",
                    size=size,
                    sample=samples[spot.name],
                )
                for spot in tables
            ]
    return readings


def _timed(plan: Plan, what: str, size: int) -> Callable[[], float]:
    """Each call asks for other files."""
    numbers = count(1)

    def run() -> float:
        first = next(numbers) * 7919 % (size // FILES_PER_DAY) * FILES_PER_DAY
        started = time.perf_counter()
        kept = plan(first, what)
        elapsed = time.perf_counter() - started
        assert kept in (FILES_PER_DAY, _UNTOLD), f"kept {kept} files"
        return elapsed * 1e3

    return run


_UNTOLD = -1
"""The number of kept files, where a plan does not say it."""


@contextmanager
def planning(spot: Spot) -> Iterator[Plan]:
    """A connection to a table that is open, as a session has it that queries it again and again."""
    open_table = {LAKELOG: _lakelog, DUCKLAKE: _ducklake, DELTA_RS: _delta_rs, PYICEBERG: _pyiceberg}[spot.system]
    with ExitStack() as stack:
        yield open_table(spot, stack)


def _condition(first: int, what: str) -> str:
    if what == BY_PARTITION:
        return f"day = DATE '{day_of(first)}'"
    return f"id BETWEEN {first * ROWS} AND {(first + FILES_PER_DAY) * ROWS - 1}"


def _lakelog(spot: Spot, stack: ExitStack) -> Plan:
    dataset = stack.enter_context(spot.place.connect()).dataset(TABLE)
    return lambda first, what: dataset.snapshot().files(_condition(first, what)).num_rows


def _ducklake(spot: Spot, stack: ExitStack) -> Plan:
    connection = stack.enter_context(systems.ducklake(spot))

    def plan(first: int, what: str) -> int:
        connection.execute(f"EXPLAIN SELECT * FROM lake.{TABLE} WHERE {_condition(first, what)}").fetchall()
        return _UNTOLD

    return plan


def _delta_rs(spot: Spot, stack: ExitStack) -> Plan:
    from deltalake import DeltaTable

    table = DeltaTable(systems.delta_path(spot, TABLE))

    def plan(first: int, what: str) -> int:
        # A session that asks again looks for new commits, as the others do.
        table.update_incremental()
        condition = f"day = '{day_of(first)}'" if what == BY_PARTITION else _condition(first, what)
        return len(table.file_uris(file_pruning_predicate=condition))

    return plan


def _pyiceberg(spot: Spot, stack: ExitStack) -> Plan:
    from pyiceberg.expressions import And, EqualTo, GreaterThanOrEqual, LessThanOrEqual

    catalog = stack.enter_context(systems.iceberg(spot))

    def plan(first: int, what: str) -> int:
        table = catalog.load_table(f"bench.{TABLE}")
        low, high = first * ROWS, (first + FILES_PER_DAY) * ROWS - 1
        condition = (
            EqualTo("day", date.fromisoformat(day_of(first)).isoformat())
            if what == BY_PARTITION
            else And(GreaterThanOrEqual("id", low), LessThanOrEqual("id", high))
        )
        return len(list(table.scan(row_filter=condition).plan_files()))

    return plan
