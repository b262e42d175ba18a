"""Clocks that disagree: whose time commits and leases have, and what a vacuum does."""

import logging
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import lakelog.changes.leases
import lakelog.log.commit.committer
import lakelog.log.commit.times
import lakelog.opening.engine
import lakelog.upkeep.clocks
from lakelog import Lake, LakelogError
from lakelog.actions import Txn
from lakelog.catalog.base import now_ms
from lakelog.changes.leases import register_write
from lakelog.log.commit.draft import Description, Draft
from tests.contract.samples import add, commit, set_clock, table
from tests.contract.upkeep_tables import rewritten, there
from tests.fixtures.lakes import execute, qualified, rows

DAY = timedelta(days=1) // timedelta(milliseconds=1)
MODULES = (
    lakelog.log.commit.committer,
    lakelog.log.commit.times,
    lakelog.changes.leases,
    lakelog.upkeep.clocks,
    lakelog.opening.engine,
)


@pytest.fixture
def wrong(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets this machine's clock wrong, and neither the database's nor the file system's."""

    def set_wrong(ahead: int) -> None:
        for module in MODULES:
            monkeypatch.setattr(module, "now_ms", lambda: now_ms() + ahead)

    return set_wrong


def _drafts(*datasets: Any) -> list[Draft]:
    return [Draft(each.id, each.version, [add()], Description(operation_parameters={}, extra={})) for each in datasets]


def _commit(lake: Lake, *datasets: Any) -> list[int]:
    outcome: Any = lake.committer.commit(_drafts(*datasets))
    return [result.committed_at for result in outcome]


def test_a_commit_has_one_time_on_all_its_tables(lake: Lake) -> None:
    """Between two times of one commit, time travel would see a part of it."""
    tables = [table(lake, name) for name in "abcdefgh"]
    (one,) = set(_commit(lake, *tables))
    assert {row["committed_at"] for row in rows(lake, "dl_table_versions") if row["version"] == 1} == {one}


def test_a_commit_comes_after_the_heads_of_all_its_tables(lake: Lake) -> None:
    tables = [table(lake, name) for name in "abc"]
    ahead = now_ms() + 30 * 1000
    where = f"WHERE table_id = {tables[1].id}"
    execute(lake, f"UPDATE {qualified(lake, 'dl_tables')} SET committed_at = {ahead} {where}")
    execute(lake, f"UPDATE {qualified(lake, 'dl_table_versions')} SET committed_at = {ahead} {where}")
    assert _commit(lake, *tables) == [ahead + 1] * 3


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("ahead", [-DAY, DAY])
def test_times_are_those_of_the_server(lake: Lake, wrong: Callable[[int], None], ahead: int) -> None:
    wrong(ahead)
    before = now_ms()
    a, b = (table(lake, name) for name in "ab")
    commit(lake, a, add())
    _commit(lake, a, b)
    register_write(lake.committer, a.location, "__w=a=")
    lake.drop_dataset("b")
    times = [row["committed_at"] for row in rows(lake, "dl_table_versions")]
    times += [row["created_at"] for row in rows(lake, "dl_tables")]
    times += [row["dropped_at"] for row in rows(lake, "dl_tables") if row["dropped_at"] is not None]
    times += [row["started_at"] for row in rows(lake, "dl_writes")]
    assert len(times) == 9
    assert all(before <= each <= now_ms() + 1000 for each in times)


@pytest.mark.parametrize("backend", ["postgres"])
def test_what_was_dropped_last_comes_back_whoever_dropped_it(lake: Lake, wrong: Callable[[int], None]) -> None:
    first = table(lake, "t", mirror=False)
    wrong(DAY)
    lake.drop_dataset("t")
    wrong(0)
    last = table(lake, "t", mirror=False)
    lake.drop_dataset("t")
    assert lake.undrop_dataset("t").id == last.id != first.id


@pytest.mark.parametrize("backend", ["postgres"])
@pytest.mark.parametrize("more", [[], [Txn(app_id="etl", version=1)]], ids=["at once", "long"])
def test_a_commit_has_the_time_at_which_it_got_its_lock(lake: Lake, other_lake: Lake, more: list[Txn]) -> None:
    """Who looks at a time that was over before it shows must not find it later."""
    events = table(lake)
    commit(lake, events, add())
    holder = other_lake.committer.catalog.begin([events.id], str(uuid.uuid4()), 10)
    with ThreadPoolExecutor(1) as thread:
        try:
            other_lake.committer.lock(holder, events.id, None)
            waiting = thread.submit(commit, lake, events, add("b.parquet"), *more, version=2)
            time.sleep(1)
            before = now_ms()
        finally:
            holder.rollback()
        assert waiting.result(30).committed_at >= before


def test_a_clone_comes_after_what_it_is_a_clone_of(lake: Lake) -> None:
    source = table(lake, "source", mirror=False)
    ahead = now_ms() + 30 * 1000
    execute(lake, f"UPDATE {qualified(lake, 'dl_tables')} SET committed_at = {ahead} WHERE table_id = {source.id}")
    execute(
        lake, f"UPDATE {qualified(lake, 'dl_table_versions')} SET committed_at = {ahead} WHERE table_id = {source.id}"
    )
    (created,) = lake.clone(source, "copy").history()
    assert created.timestamp > source.history()[0].timestamp


@pytest.mark.parametrize("ahead", [-DAY, -90_000, 90_000, 73 * 365 * DAY])
def test_a_vacuum_whose_clock_is_wrong_is_refused(lake: Lake, wrong: Callable[[int], None], ahead: int) -> None:
    events = rewritten(lake)
    before = there(events)
    wrong(ahead)
    with pytest.raises(
        LakelogError, match=r"nothing was deleted: the clock of .* says .*: set the clock that is wrong"
    ):
        events.vacuum(0, force=True)
    assert there(events) == before
    wrong(0)
    assert events.vacuum(0, force=True).removed == 1
    assert not [path for path in there(events) if Path(path).name.startswith(".lakelog")]


def test_a_file_system_whose_clock_is_wrong_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    events = rewritten(lake)
    before = there(events)
    monkeypatch.setattr(lakelog.upkeep.clocks, "_time_of_a_file", lambda root: now_ms() - 120_000)
    with pytest.raises(LakelogError, match=f"that of the file system of {Path(events.location).resolve()} "):
        events.vacuum(0, force=True)
    assert there(events) == before


def _ms(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) * 1000


@pytest.mark.parametrize("future", [_ms(2099), 2**53 + 1], ids=["2099", "beyond all calendars"])
def test_a_table_that_a_clock_has_put_into_the_future_is_told(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, future: int
) -> None:
    events, other = table(lake), table(lake, "other")
    commit(lake, events, add())
    assert _of_times(lake, "events") == []
    with caplog.at_level(logging.WARNING, "lakelog"):
        with monkeypatch.context() as wrong:
            set_clock(wrong, lake, future)
            commit(lake, events)
        results = [
            commit(each, events, add(f"{number}.parquet")) for number, each in enumerate([lake, other_lake, other_lake])
        ]
        commit(lake, other, add())
    assert [result.committed_at - future for result in results] == [1, 2, 3]
    # Once for each process.
    assert [text.partition(" was committed at ")[0] for text in caplog.messages] == [
        "version 2 of events",
        "version 4 of events",
    ]
    assert all("ahead of this machine's clock" in text for text in caplog.messages)
    (found,) = _of_times(lake, "events")
    assert found.versions == (2, 5)
    assert "a clock was wrong" in found.message
    assert _of_times(lake, "other") == []


def _of_times(lake: Lake, name: str) -> list[Any]:
    return [each for each in lake.check(name, deep=False).findings if each.invariant == 1]


def test_a_clock_that_is_a_little_behind_is_not_told(
    lake: Lake, wrong: Callable[[int], None], caplog: pytest.LogCaptureFixture
) -> None:
    events = table(lake)
    commit(lake, events, add())
    wrong(-50_000)
    with caplog.at_level(logging.WARNING, "lakelog"):
        commit(lake, events, add("b.parquet"))
    assert caplog.messages == []
    assert _of_times(lake, "events") == []
