"""Two creators at once: of locations that overlap, exactly one is taken, whoever comes first."""

import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from lakelog import DatasetExistsError, Lake
from tests.contract.samples import table
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants

_PATIENCE = 20.0

overlapping = pytest.mark.parametrize(
    ("first", "second"),
    [("/data/t", "/data/t/inside"), ("/data/t/inside", "/data/t"), ("/data/t", "/data/t")],
    ids=["inside", "around", "same"],
)


class Creator(threading.Thread):
    """Creates a dataset, and remembers how that ended."""

    def __init__(self, lake: Lake, name: str, location: str) -> None:
        super().__init__()
        self._create = lambda: table(lake, name, location=location, mirror=False)
        self.refused: DatasetExistsError | None = None

    def run(self) -> None:
        try:
            self._create()
        except DatasetExistsError as error:
            self.refused = error


@overlapping
def test_only_one_of_two_creators_gets_locations_that_overlap(
    place: Place, lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch, first: str, second: str
) -> None:
    """The first one has looked for overlaps and found none when the second one comes."""
    early, late = Creator(lake, "early", first), Creator(other_lake, "late", second)
    looked, go_on = threading.Event(), threading.Event()
    look = lake.place_for

    looks: list[str] = []

    def stop_after_the_look(*arguments: Any) -> str:
        looks.append(look(*arguments))
        # The first look is a courtesy; the second one counts.
        if len(looks) == 2:
            looked.set()
            go_on.wait(_PATIENCE)
        return looks[-1]

    monkeypatch.setattr(lake, "place_for", stop_after_the_look)
    early.start()
    try:
        assert looked.wait(_PATIENCE)
        late.start()
        until(lambda: not late.is_alive() or waits_for_a_lock(place, other_lake))
    finally:
        go_on.set()
        early.join(_PATIENCE)
        if late.ident:
            late.join(_PATIENCE)
    assert early.refused is None
    assert "overlaps" in str(late.refused)
    assert [dataset.name for dataset in lake.datasets()] == ["early"]
    check_invariants(lake)


def test_creators_of_separate_locations_all_succeed(lake: Lake, other_lake: Lake) -> None:
    lakes = [lake, other_lake] * 3
    creators = [Creator(each, f"table-{n}", f"/data/{n}") for n, each in enumerate(lakes)]
    for creator in creators:
        creator.start()
    for creator in creators:
        creator.join(_PATIENCE)
    assert [creator.refused for creator in creators] == [None] * 6
    assert len(lake.datasets()) == 6


def waits_for_a_lock(place: Place, lake: Lake) -> bool:
    if place.backend == "postgres":
        with psycopg.connect(place.url, autocommit=True) as connection:
            waiting = connection.execute(
                "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            )
            return bool(waiting.fetchall())
    return lake.committer.catalog.usage() == (1, 0)


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end, "never happened"
        time.sleep(0.002)
