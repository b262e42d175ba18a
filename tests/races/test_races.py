"""Eight writers at once, who reload and try again when they lose: nothing is lost, doubled or starved."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import NamedTuple

import pyarrow as pa
import pytest

from lakelog import Lake, SqlTxnLogWriter, VersionConflict
from lakelog.actions import AddFile
from tests.faults.children import DEADLINE, Child
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants

WRITERS = 8
COMMITS = {"sqlite": 120, "postgres": 120, "duckdb": 30}

SCHEMA = pa.schema([("id", pa.int64())])


class Made(NamedTuple):
    """An acknowledged commit, and when its writer heard of it."""

    table: str
    version: int
    commit_id: str
    moment: float


class Work(NamedTuple):
    """What a writer did."""

    made: list[Made]
    conflicts: int


def write(lake: Lake, table: str, writer: int, count: int) -> Work:
    dataset = lake.dataset(table)
    log = SqlTxnLogWriter(lake)
    made: list[Made] = []
    conflicts = 0
    while len(made) < count:
        add = AddFile(path=f"{writer}/{len(made)}.parquet", size=1, modification_time=0)
        try:
            result = log.commit(dataset.id, dataset.version + 1, [add], committer=str(writer))
        except VersionConflict:
            conflicts += 1
        else:
            made.append(Made(table, result.version, result.commit_id, time.monotonic()))
    return Work(made, conflicts)


def _write_in_process(pipe: Connection, place: Place, table: str, writer: int, count: int) -> None:
    with place.connect(timeout=DEADLINE) as lake:
        lake.dataset(table).snapshot()
        pipe.send("ready")
        pipe.recv()
        pipe.send(write(lake, table, writer, count))


def race_in_processes(place: Place, tables: list[str], count: int) -> list[Work]:
    with _all(Child(_write_in_process, place, table, writer, count) for writer, table in enumerate(tables)) as children:
        for child in children:
            assert child.receive() == "ready"
        for child in children:
            child.send("go")
        return [child.receive() for child in children]


@contextmanager
def _all(children: Iterator[Child]) -> Iterator[list[Child]]:
    started: list[Child] = []
    try:
        started += children
        yield started
    finally:
        for child in started:
            child.__exit__()


def race_in_threads(place: Place, tables: list[str], count: int) -> list[Work]:
    work: dict[int, Work] = {}
    gate = threading.Barrier(len(tables))

    def run(writer: int, table: str) -> None:
        gate.wait()
        work[writer] = write(lake, table, writer, count)

    with place.connect(timeout=DEADLINE) as lake:
        threads = [threading.Thread(target=run, args=each) for each in enumerate(tables)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return [work[writer] for writer in range(len(tables))]


def race(place: Place) -> Callable[[Place, list[str], int], list[Work]]:
    return race_in_threads if place.backend == "duckdb" else race_in_processes


@pytest.mark.parametrize("tables", [1, 8])
def test_eight_writers_lose_nothing_and_starve_nobody(place: Place, tables: int) -> None:
    count = COMMITS[place.backend]
    names = [f"table_{writer % tables}" for writer in range(WRITERS)]
    with place.connect() as lake:
        for name in sorted(set(names)):
            lake.create_dataset(name, SCHEMA)

    started = time.monotonic()
    work = race(place)(place, names, count)
    made = sorted((each for done in work for each in done.made), key=lambda each: each.moment)
    seconds = made[-1].moment - started

    first_to_finish = min(done.made[-1].moment for done in work)
    shares = [sum(each.moment <= first_to_finish for each in done.made) for done in work]
    conflicts = [done.conflicts for done in work]
    print(
        f"\n{place.backend}, {WRITERS} writers, {tables} tables: {len(made) / seconds:.0f} commits/s, "
        f"shares {shares} when the first was done, conflicts {conflicts}"
    )

    with place.connect() as lake:
        check_invariants(lake)
        for name in set(names):
            history = {(commit.version, commit.commit_id) for commit in lake.dataset(name).history() if commit.version}
            acknowledged = [(each.version, each.commit_id) for each in made if each.table == name]
            assert len(acknowledged) == len(set(acknowledged)), "a version was acknowledged twice"
            assert history == set(acknowledged)
            assert {version for version, _ in acknowledged} == set(range(1, len(acknowledged) + 1))
    assert len(made) == WRITERS * count
    assert tables == 1 or not any(conflicts), "a writer alone on its table lost a race"
    assert min(shares) >= sum(shares) / len(shares) / 2, f"a writer starved: {shares}"
