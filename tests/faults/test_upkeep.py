"""Upkeep that is killed, and upkeep beside writers that know nothing of it."""

import itertools
import os
import signal
import threading
import uuid
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from lakelog import Lake, VersionConflict
from lakelog.actions import RemoveFile
from lakelog.changes.leases import register_write
from lakelog.upkeep import vacuum
from tests.contract.samples import commit
from tests.contract.upkeep_tables import ids, new_file, numbers, put, rewritten, settle
from tests.faults.children import die, run
from tests.faults.steps import Steps
from tests.fixtures.lakes import BACKENDS, Place
from tests.invariants import check_invariants
from tests.parquet import write

WRITE = f"__w={'0123456789abcdef' * 2}="


def _prepare(place: Place) -> None:
    """A table with files that a vacuum deletes: some removed, some orphans."""
    with place.connect() as lake:
        events = rewritten(lake)
        for number in range(3):
            gone = events.snapshot().files(columns=["path"]).column("path").to_pylist()
            write(lake, events, numbers(number))
            commit(lake, events, *(RemoveFile(path=path) for path in gone))
            put(events, f"{WRITE}/day={number}/part-{number}.parquet")
    settle()


def _vacuum_until_file(pipe: Connection, place: Place, fatal: int) -> None:
    unlink, count = os.unlink, itertools.count(1)

    def unlink_or_die(place: str | Path) -> None:
        if str(place).endswith(".parquet") and next(count) == fatal:
            die()
        unlink(place)

    vacuum.os.unlink = unlink_or_die  # type: ignore[assignment]
    lake = place.connect()
    pipe.send(lake.dataset("events").vacuum(0, force=True).files)
    die()


def test_a_vacuum_killed_at_any_file_leaves_a_sound_table_and_the_next_one_finishes(place: Place) -> None:
    _prepare(place)
    runs = 0
    while True:
        # Each gets one file further than the one before.
        runs += 1
        code, finished = run(_vacuum_until_file, place, 2)
        assert code == -signal.SIGKILL
        with place.connect() as lake:
            events = lake.dataset("events")
            # Every version that is not refused is whole.
            assert lake.check("events", deep=True).findings == ()
            assert ids(events) == [2]
            check_invariants(lake)
        if finished:
            break
    assert runs > 3
    with place.connect() as lake:
        assert lake.dataset("events").vacuum(0, force=True).files == 0
        assert not Path(lake.dataset("events").location, WRITE).exists()


def _expire_until_step(pipe: Connection, place: Place, step: int, moment: str) -> None:
    lake = place.connect()
    events = lake.dataset("events")
    Steps(lake, step, moment, lambda _: die())
    pipe.send(events.expire_versions(keep_last=2).first_version)
    die()


@pytest.mark.parametrize(("backend", "moment"), [("sqlite", "before"), *((backend, "after") for backend in BACKENDS)])
def test_an_expiry_killed_at_any_step_forgets_all_of_it_or_nothing(place: Place, moment: str) -> None:
    _prepare(place)
    with place.connect() as lake:
        head = lake.dataset("events").version
        before = {version: ids(lake.dataset("events"), version) for version in range(head + 1)}
    outcomes = set()
    for step in itertools.count(1):
        code, finished = run(_expire_until_step, place, step, moment)
        assert code == -signal.SIGKILL
        with place.connect() as lake:
            events = lake.dataset("events")
            first = events.first_version
            assert first in (0, head - 1)
            assert {version: ids(events, version) for version in range(first, head + 1)} == {
                version: rows for version, rows in before.items() if version >= first
            }
            assert lake.check("events").findings == ()
            check_invariants(lake)
        outcomes.add((bool(finished), first))
        if first:
            break
    assert step > 5
    assert (False, 0) in outcomes


def _write_as_spark_does(lake: Lake, number: int) -> None:
    """Registers, writes and commits. Every other write removes what the one before added."""
    events = lake.dataset("events")
    directory = f"__w={uuid.uuid4().hex}="
    register_write(lake.committer, events.location, directory)
    file = new_file(events, f"{directory}/part-0.parquet", number)
    removed: list[Any] = []
    if number % 2:
        removed = [RemoveFile(path=path) for path in events.snapshot().files().column("path").to_pylist()[-1:]]
    while True:
        try:
            commit(lake, events, file, *removed, leases=[directory])
            break
        except VersionConflict:
            continue


def test_vacuums_beside_writers_delete_nothing_that_is_needed(lake: Lake, other_lake: Lake) -> None:
    events = rewritten(lake)
    ended = threading.Event()
    problems: list[Any] = []
    deleted = 0

    def write_on() -> None:
        try:
            for number in range(40):
                _write_as_spark_does(other_lake, number)
        except Exception as error:
            problems.append(error)
        finally:
            ended.set()

    writer = threading.Thread(target=write_on)
    writer.start()
    while not ended.is_set():
        report = events.vacuum(0, force=True)
        deleted += report.files
        problems += report.failures
    writer.join()
    assert problems == []
    assert deleted > 0
    assert lake.check("events", deep=True).findings == ()
    assert len(ids(events)) == events.snapshot().files().num_rows
