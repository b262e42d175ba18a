"""Power cuts. Whatever was acknowledged is there afterwards, and whatever is there is whole."""

import itertools
import signal
from multiprocessing.connection import Connection

import pytest

from tests.faults.children import die, run
from tests.faults.scenarios import CHANGES, append, prepare, verify
from tests.faults.steps import Steps
from tests.fixtures.lakes import Place


def _change_until(pipe: Connection, place: Place, name: str, number: int, step: int, moment: str) -> None:
    import lakelog.catalog.postgres

    lakelog.catalog.postgres._COPY_FROM = 10  # A small load takes the way of a large one.
    lake = place.connect()
    append(lake, number)
    pipe.send("append")
    Steps(lake, step, moment, lambda _: die())
    CHANGES[name](lake, number)
    pipe.send("change")
    die()


@pytest.mark.parametrize("name", CHANGES)
def test_a_process_killed_at_any_step_leaves_a_whole_commit_or_none(place: Place, name: str) -> None:
    prepare(place)
    outcomes: set[tuple[bool, bool]] = set()
    runs = itertools.count(1)
    for step in itertools.count(1):
        acknowledged: list[str] = []
        for moment in ("before", "after"):
            number = next(runs)
            code, acknowledged = run(_change_until, place, name, number, step, moment)
            assert code == -signal.SIGKILL
            found = verify(place, number, acknowledged)
            outcomes.add(("change" in acknowledged, "change" in found))
        if "change" in acknowledged:
            break
    # Killed before COMMIT, killed between COMMIT and its answer, not killed.
    assert outcomes == {(False, False), (False, True), (True, True)}
    assert step > 4
