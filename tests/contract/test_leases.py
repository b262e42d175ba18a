"""The leases of writes in flight: a commit needs them and ends them, and a vacuum that takes one back forbids it."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from lakelog import (
    Dataset,
    Lake,
    LakelogError,
    LakelogTimeoutError,
    TransactionManager,
    ValidationError,
    VersionConflict,
)
from lakelog.actions import RemoveFile, Txn
from lakelog.changes.leases import LEASE, end_expired_writes, register_write, take_back
from lakelog.changes.staging_directory import OwnDirectory
from lakelog.log.commit.draft import Description, Draft
from lakelog.upkeep import vacuum
from tests.contract.samples import commit
from tests.contract.upkeep_tables import SCHEMA, ids, move_clock, new_file, rewritten, settle
from tests.fixtures.lakes import qualified, rows
from tests.invariants import check_invariants

WRITES = [f"__w={letter * 32}=" for letter in "cab"]
"""Not in the order in which they are locked."""

Commits = Callable[..., Any]


@pytest.fixture(params=["at once", "long"])
def send(request: pytest.FixtureRequest) -> Commits:
    """Commits a file, by the one statement that PostgreSQL has for that, and by many."""
    more = [Txn(app_id="etl", version=1)] if request.param == "long" else []
    return lambda lake, dataset, *actions, **options: commit(lake, dataset, *actions, *more, **options)


def leases(lake: Lake) -> set[str]:
    return {row["directory"] for row in rows(lake, "dl_writes")}


def _begin(lake: Lake, dataset: Dataset, *directories: str) -> list[Any]:
    """Writes in flight, and their files."""
    for directory in directories:
        register_write(lake.committer, dataset.location, directory)
    return [new_file(dataset, f"{each}/part-0.parquet", number) for number, each in enumerate(directories, 100)]


def test_a_commit_ends_its_leases_and_no_others(lake: Lake, send: Commits) -> None:
    events = rewritten(lake)
    files = _begin(lake, events, *WRITES)
    result = send(lake, events, *files[:2], leases=WRITES[:2])
    assert result.version == events.version == 4
    assert leases(lake) == {WRITES[2]}
    check_invariants(lake)


def test_a_write_whose_files_a_vacuum_deleted_is_refused(
    lake: Lake, send: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The vacuum's clock is ahead; the write's lease is young, by its own."""
    events = rewritten(lake)
    (file,) = _begin(lake, events, WRITES[0])
    settle()
    with monkeypatch.context() as ahead:
        move_clock(ahead, LEASE + timedelta(days=1))
        assert events.vacuum(0, force=True).orphans == 1
    with pytest.raises(LakelogError, match=f"the write to {WRITES[0]} is not registered any more.*write again"):
        send(lake, events, file, leases=[WRITES[0]])
    assert events.version == 3
    assert lake.check("events").findings == ()
    check_invariants(lake)


def test_a_commit_needs_all_of_its_leases(lake: Lake, send: Commits) -> None:
    events = rewritten(lake)
    files = _begin(lake, events, *WRITES)
    assert take_back(lake.committer, WRITES[1])
    with pytest.raises(LakelogError, match="not registered"):
        send(lake, events, *files, leases=WRITES)
    assert events.version == 3
    assert leases(lake) == {WRITES[0], WRITES[2]}


def test_a_commit_that_is_refused_keeps_its_leases(lake: Lake, send: Commits) -> None:
    events = rewritten(lake)
    files = _begin(lake, events, WRITES[0])
    with pytest.raises(VersionConflict):
        send(lake, events, *files, leases=[WRITES[0]], version=3)
    with pytest.raises(ValidationError, match="not a live file"):
        send(lake, events, *files, RemoveFile(path="never.parquet"), leases=[WRITES[0]])
    assert leases(lake) == {WRITES[0]}
    send(lake, events, *files, leases=[WRITES[0]])
    assert leases(lake) == set()


def test_a_commit_to_several_tables_ends_the_leases_of_all(lake: Lake) -> None:
    tables = [lake.create_dataset(name, SCHEMA) for name in "ab"]
    files = [*_begin(lake, tables[0], WRITES[0]), *_begin(lake, tables[1], WRITES[1])]

    def drafts() -> list[Draft]:
        return [
            Draft(each.id, 0, [file], Description(operation_parameters={}, extra={}), leases=[directory])
            for each, file, directory in zip(tables, files, WRITES, strict=False)
        ]

    assert take_back(lake.committer, WRITES[1])
    with pytest.raises(LakelogError, match=f"{WRITES[1]} is not registered"):
        lake.committer.commit(drafts())
    assert leases(lake) == {WRITES[0]}
    register_write(lake.committer, tables[1].location, WRITES[1])
    lake.committer.commit(drafts())
    assert leases(lake) == set()
    assert [each.version for each in tables] == [1, 1]


def test_a_lease_that_has_expired_is_good_until_a_vacuum_takes_it_back(lake: Lake, send: Commits) -> None:
    events = rewritten(lake)
    register_write(lake.committer, events.location, WRITES[0], timedelta(0))
    send(lake, events, new_file(events, f"{WRITES[0]}/part-0.parquet", 1), leases=[WRITES[0]])
    assert leases(lake) == set()


@pytest.mark.parametrize("error", [LakelogError("late"), KeyboardInterrupt()], ids=["ours", "interrupt"])
def test_an_error_after_commit_deletes_no_file_of_a_write(lake: Lake, send: Commits, error: BaseException) -> None:
    events = rewritten(lake)

    def fail_late() -> None:
        with OwnDirectory(lake.committer, events.location) as own:
            own.begin()
            send(lake, events, new_file(events, f"{own.name}/part-0.parquet", 7), leases=own.leases)
            raise error

    with pytest.raises(type(error)):
        fail_late()
    assert ids(events) == [2, 7, 10]
    assert (leases(lake), lake.check("events").findings) == (set(), ())


@pytest.mark.parametrize("replaces", [False, True])
def test_an_error_after_commit_deletes_no_file_of_a_clone(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    def told(drafts: Any) -> None:
        raise LakelogError("late")

    events = rewritten(lake)
    if replaces:
        lake.create_dataset("copy", SCHEMA)
    with monkeypatch.context() as late:
        late.setattr(lake.committer, "tell", told)
        with pytest.raises(LakelogError, match="late"):
            lake.clone(events, "copy", shallow=False, replace=replaces)
    assert ids(lake.dataset("copy")) == [2, 10]
    assert leases(lake) == set()


@pytest.mark.parametrize("answers", [True, False])
def test_files_go_only_if_it_is_proven_that_they_are_not_committed(
    lake: Lake, connect: Callable[..., Lake], answers: bool
) -> None:
    events = rewritten(lake)
    own = OwnDirectory(connect(timeout=0.3).committer, events.location)
    own.begin()
    new_file(events, f"{own.name}/part-0.parquet", 7)
    catalog = lake.committer.catalog
    holder = catalog.begin([events.id], "holder", 10)
    try:
        if answers:
            holder.rollback()
        else:
            holder.execute(catalog.queries["end_lease"], {"directory": own.name})
            lake.committer.lock(holder, events.id, None)
        with ThreadPoolExecutor(1) as thread:
            thread.submit(own.discard).result(30)
    finally:
        holder.rollback()
    assert Path(events.location, own.name).exists() is not answers
    assert leases(lake) == (set() if answers else {own.name})


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_vacuum_leaves_a_lease_to_the_commit_that_has_locked_it(lake: Lake, other_lake: Lake) -> None:
    """Each has a lease that the other wants: who would wait for the other would wait for ever."""
    events = rewritten(lake)
    for directory in WRITES:
        register_write(lake.committer, events.location, directory, timedelta(0))
    queries = lake.committer.catalog.queries
    holder = lake.committer.catalog.begin([events.id], "holder", 10)
    try:
        assert holder.fetch(queries["lock_lease"], {"directory": WRITES[0]})
        with other_lake.committer.catalog.session() as session:
            now = other_lake.committer.now(session)
        before = time.monotonic()
        assert set(end_expired_writes(other_lake.committer, events.location, now)) == set(WRITES[1:])
        assert time.monotonic() - before < 5
        assert not holder.fetch(queries["lock_lease"], {"directory": WRITES[1]})
    finally:
        holder.rollback()
    assert leases(lake) == {WRITES[0]}


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_vacuum_keeps_the_files_of_a_commit_that_has_locked_its_expired_lease(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot take the lease back, and must not take its files for those of nobody either."""
    events = rewritten(lake)
    settle()
    events.vacuum(0, force=True)
    register_write(lake.committer, events.location, WRITES[0], timedelta(0))
    file = new_file(events, f"{WRITES[0]}/part-0.parquet", 7)
    settle()
    finish, end_expired = lake.committer.finish, vacuum.end_expired_writes
    announced, has_locked = Event(), Event()
    reports = []

    def end_after_the_lock(*arguments: Any) -> Any:
        announced.set()
        assert has_locked.wait(30)
        return end_expired(*arguments)

    def finish_after_the_vacuum(*arguments: Any) -> Any:
        has_locked.set()
        reports.append(running.result(30))
        return finish(*arguments)

    monkeypatch.setattr(vacuum, "end_expired_writes", end_after_the_lock)
    monkeypatch.setattr(lake.committer, "finish", finish_after_the_vacuum)
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(other_lake.dataset("events").vacuum, 0, force=True)
        assert announced.wait(30)
        commit(lake, events, file, Txn(app_id="etl", version=1), leases=WRITES[:1])
    assert [report.orphans for report in reports] == [0]
    assert ids(events) == [2, 7, 10]
    assert lake.check("events").findings == ()


@pytest.mark.parametrize("backend", ["postgres"])
def test_leases_are_locked_in_order_and_for_as_long_as_the_timeout(
    lake: Lake, connect: Callable[..., Lake], send: Commits
) -> None:
    events = rewritten(lake)
    files = _begin(lake, events, *WRITES)
    catalog = lake.committer.catalog
    impatient = connect(timeout=2)
    holder = catalog.begin([events.id], "holder", 10)
    try:
        # The last in order, and the first in the table.
        assert holder.fetch(catalog.queries["lock_lease"], {"directory": WRITES[0]})
        with ThreadPoolExecutor(1) as thread:
            sent = thread.submit(send, impatient, impatient.dataset("events"), *files, leases=WRITES)
            deadline = time.monotonic() + 10
            free = f"SELECT directory FROM {qualified(lake, 'dl_writes')} FOR UPDATE SKIP LOCKED"
            seen: set[str] = set(WRITES)
            while seen and not sent.done() and time.monotonic() < deadline:
                probe = catalog.begin((), "probe", 5)
                try:
                    seen = {row[0] for row in probe.fetch(free, {})} - {WRITES[0]}
                finally:
                    probe.rollback()
            assert not seen, "it has locked those that come before"
            with pytest.raises(LakelogTimeoutError):
                sent.result(10)
    finally:
        holder.rollback()
    assert leases(lake) == set(WRITES)
    assert events.version == 3


def test_a_transaction_that_locks_first_ends_its_leases_too(lake: Lake) -> None:
    events = rewritten(lake)
    (file,) = _begin(lake, events, WRITES[0])
    manager = TransactionManager(lake)
    assert take_back(lake.committer, WRITES[0])
    with manager.begin(events.id) as context, pytest.raises(LakelogError, match="not registered any more"):
        manager.commit(context, [file], leases=WRITES[:1])
    register_write(lake.committer, events.location, WRITES[0])
    with manager.begin(events.id) as context:
        manager.commit(context, [file], leases=WRITES[:1])
    assert (ids(events), leases(lake)) == ([2, 10, 100], set())
