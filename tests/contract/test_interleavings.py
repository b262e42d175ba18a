"""Two operations at once: in whatever order their steps come, it is as if one had been done after the other."""

import itertools
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from typing import Any

import pytest

from lakelog import (
    ConcurrencyError,
    DatasetExistsError,
    Lake,
    LakelogError,
    LakelogTimeoutError,
    ValidationError,
    VersionNotFoundError,
)
from lakelog.changes import leases as writes
from tests.contract import rivals
from tests.contract.interleaving import Actor, explore
from tests.contract.rivals import BEFORE, HEAD, OLD, OPERATIONS, START, Operation, Rows, rows_of
from tests.contract.scene import Scene, anew
from tests.contract.upkeep_tables import SCHEMA, WEEKS, move_clock, there
from tests.contract.watched import step_by_step
from tests.fixtures.lakes import BACKENDS, new_place, rows
from tests.invariants import check_invariants

LIMIT = 120
"""Orders of two operations. More are no longer tried in a second or two: look for what the steps meet needlessly."""

LOST = {ConcurrencyError}
GONE = {VersionNotFoundError, ValidationError}
"""A version that is asked for, or that was asked for before, when it is gone."""

REFUSALS: dict[str, dict[str, set[type[LakelogError]]]] = {
    "overwrite": dict.fromkeys(("append", "put", "overwrite", "delete", "compact", "move", "restore"), LOST),
    "delete": dict.fromkeys(("overwrite", "delete", "compact", "restore"), LOST),
    "compact": dict.fromkeys(("overwrite", "delete", "compact", "move", "restore"), LOST),
    "move": dict.fromkeys(("overwrite", "compact", "move", "restore"), LOST),
    "restore": {
        **dict.fromkeys(("append", "put", "overwrite", "delete", "compact", "move", "restore"), LOST),
        # Files that are gone when it looks for them are no error of their own kind.
        "vacuum": {*GONE, LakelogError},
        "expire": GONE,
        "upkeep": {*GONE, LakelogError},
    },
    "clone": {"clone": {DatasetExistsError}, "vacuum": GONE, "expire": GONE, "upkeep": GONE},
}
"""How an operation may be refused, by what else was done. What is not here always succeeds."""

WRITES = ("append", "overwrite", "delete", "compact", "move")
GOING_BACK = ("restore", "clone")
UPKEEP = ("vacuum", "expire")
RACES = (
    ("append", "append"),
    ("append", "delete"),
    ("delete", "delete"),
    ("delete", "compact"),
    ("compact", "compact"),
    ("restore", "vacuum"),
    ("restore", "expire"),
    ("clone", "vacuum"),
)


def cases() -> Iterator[tuple[str, str, str, bool]]:
    """A database, two operations, and whether each statement is a step, or only each transaction."""
    for first, second in itertools.combinations_with_replacement((*WRITES, *GOING_BACK, *UPKEEP), 2):
        # What is no write meets all writes alike: one that both adds and removes files stands for the others, whose
        # transactions are enough. So they are for two that go back, since only upkeep takes older versions away.
        stands_for_all = first == "overwrite" or second in WRITES
        yield "sqlite", first, second, stands_for_all or (first not in WRITES and second in UPKEEP)
    # What expiry forgets, a vacuum takes for nobody's. Others than these meet only one of the two at a time.
    yield "sqlite", "restore", "upkeep", True
    yield "sqlite", "clone", "upkeep", True
    # What comes between transactions is the same on all databases.
    for backend in ("duckdb", "postgres"):
        for first, second in RACES:
            yield backend, first, second, False
    for second in ("put", "overwrite", "delete", "restore"):
        yield "postgres", "put", second, False


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(new_place(request.param, tmp_path_factory.mktemp("scene"), request))
    yield scene
    scene.close()


class Race:
    """Two operations, and what has to be true when both have ended."""

    def __init__(self, scene: Scene, operations: Sequence[Operation], *, small_steps: bool) -> None:
        self._scene = scene
        self._operations = operations
        self._small_steps = small_steps
        self.refusals: list[set[type[LakelogError]]] = [set(), set()]

    def start(self) -> list[Actor]:
        self._scene.reset()
        return [self._actor(number, lake) for number, lake in enumerate(self._scene.connect())]

    def _actor(self, number: int, lake: Lake) -> Actor:
        return Actor(lambda: self._operations[number].run(lake, number), small_steps=self._small_steps)

    def check(self, actors: Sequence[Actor]) -> None:
        lake = anew(self._scene.lake)
        check_invariants(lake)
        for number, actor in enumerate(actors):
            if actor.refusal is not None:
                self.refusals[number].add(type(actor.refusal))
        found = {dataset.name: rows_of(dataset) for dataset in lake.datasets()}
        assert found in list(self._serial_results(actors)), [actor.refusal for actor in actors]
        made = sorted(actor.result for actor in actors if actor.result is not None)
        assert made == list(range(HEAD + 1, lake.dataset("events").version + 1)), "a version is nobody's"
        assert rows(lake, "dl_writes") == [], "a write that has ended is still in flight"
        known = {row["path"] for row in rows(lake, "dl_add_files")}
        for dataset in lake.datasets():
            if dataset.version or found[dataset.name]:  # An archive that nobody touched need not be checked.
                # Also whether the files of all versions are there from the oldest on that vacuums have kept.
                assert lake.check(dataset.name, deep=False).findings == ()
            assert there(dataset) <= known | self._scene.files.get(dataset.name, set()), "a file is nobody's"

    def _serial_results(self, actors: Sequence[Actor]) -> Iterator[Rows]:
        """The rows if those that succeeded had been done one by one, in the order of the versions that they made."""
        done = [number for number, actor in enumerate(actors) if actor.refusal is None]
        for order in itertools.permutations(done):
            versions = [actors[number].result for number in order if actors[number].result is not None]
            if versions == sorted(versions):
                result = reduce(lambda rows, number: self._operations[number].effect(rows, number), order, START)
                yield {name: sorted(ids) for name, ids in result.items()}


@pytest.mark.parametrize(
    ("scene", "first", "second", "small_steps"),
    [pytest.param(*case, id="-".join(case[:3])) for case in cases()],
    indirect=["scene"],
)
def test_two_operations_at_once_do_what_one_after_the_other_does(
    scene: Scene, first: str, second: str, small_steps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_by_step(monkeypatch)
    by_name = {operation.name: operation for operation in OPERATIONS}
    race = Race(scene, [by_name[first], by_name[second]], small_steps=small_steps)
    explore(race.start, race.check, LIMIT)
    expected = [REFUSALS.get(mine, {}).get(other, set()) for mine, other in ((first, second), (second, first))]
    assert race.refusals == expected


on_each_database = pytest.mark.parametrize("scene", BACKENDS, indirect=True)


class RaceWithAWrongClock(Race):
    """One of the two takes leases for expired that have just begun."""

    def check(self, actors: Sequence[Actor]) -> None:
        # Files of a write that was refused are left to a vacuum.
        rivals.vacuum(anew(self._scene.lake))
        super().check(actors)


@on_each_database
def test_a_vacuum_whose_clock_is_ahead_deletes_no_file_that_is_committed(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    step_by_step(monkeypatch)
    monkeypatch.setattr(writes, "LEASE", WEEKS / 2)
    by_name = {operation.name: operation for operation in OPERATIONS}
    race = RaceWithAWrongClock(scene, [by_name["append"], by_name["vacuum"]], small_steps=False)
    explore(race.start, race.check, LIMIT)
    assert race.refusals == [{LakelogError}, set()]


@on_each_database
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "replaced"])
def test_a_vacuum_waits_for_a_clone_that_is_being_committed(
    scene: Scene, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction is one step above because it has its locks: here is the one that is not on its own table."""
    scene.reset()
    lake, impatient = scene.connect()
    if is_there:
        lake.create_dataset("copy", SCHEMA, mirror=False)
    move_clock(monkeypatch, WEEKS)
    impatient.committer.timeout = 0.2
    finish = lake.committer.finish

    def finish_late(*arguments: Any) -> Any:
        with ThreadPoolExecutor(1) as pool, pytest.raises(LakelogTimeoutError):
            pool.submit(rivals.vacuum, impatient).result()
        return finish(*arguments)

    monkeypatch.setattr(lake.committer, "finish", finish_late)
    copy = lake.clone("events", "copy", OLD, replace=is_there)
    rivals.vacuum(lake)
    assert rows_of(copy) == BEFORE["events"]


@on_each_database
def test_a_reader_sees_both_sides_of_a_move_or_none(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    step_by_step(monkeypatch)
    seen: list[Rows] = []

    def start() -> list[Actor]:
        scene.reset()
        writer, reader = scene.connect()
        return [Actor(lambda: rivals.move(writer, 5)), Actor(lambda: rows_at_once(reader))]

    def check(actors: Sequence[Actor]) -> None:
        seen.append(actors[1].result)

    explore(start, check, LIMIT)
    moved = {"events": [3, 4, 6], "archive": [5]}
    assert [START in seen, moved in seen] == [True, True]
    assert [each for each in seen if each not in (START, moved)] == []


def rows_at_once(lake: Lake) -> Rows:
    return {name: rows_of(lake.dataset(name), version) for name, version in lake.versions().items()}


@on_each_database
def test_a_move_that_is_under_way_is_seen_at_one_instant(scene: Scene) -> None:
    """The same without steps, so that a reader may also come in the middle of a transaction."""
    scene.reset()
    writer, reader = scene.connect()
    enough = threading.Event()

    def move_to_and_fro() -> None:
        for source, target in itertools.cycle([("events", "archive"), ("archive", "events")]):
            if enough.is_set():
                return
            rivals.move(writer, 5, source, target)

    seen: set[int] = set()
    with ThreadPoolExecutor(1) as pool:
        moving = pool.submit(move_to_and_fro)
        try:
            while len(seen) < 12 and not moving.done():
                versions = reader.versions()
                assert versions["events"] - versions["archive"] == HEAD, "one table has moved on without the other"
                seen.add(versions["events"])
        finally:
            enough.set()
        moving.result()
