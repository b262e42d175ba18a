"""After COMMIT nothing fails: whatever becomes of what watches commits, each answers that it stands."""

import _thread
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import lakelog
import lakelog.telemetry
from lakelog import Dataset, Lake, LakelogError, SqlTxnLogWriter, TransactionManager
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.outcomes import Committed, Conflict
from tests.contract.mirror_files import log_of, versions, wait_until
from tests.contract.registering import put
from tests.contract.samples import SCHEMA, add, commit, table
from tests.contract.upkeep_tables import ids, new_file, rewritten, settle
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants


class Broken:
    """A watcher that fails whenever it is told of a commit."""

    def __init__(self) -> None:
        self.told_of: list[int] = []

    def check(self, table_id: int, expected: int | None) -> None:
        pass

    def told(self, committed: Sequence[Committed]) -> None:
        self.told_of += [each.result.version for each in committed]
        raise OverflowError("int too large to convert to float")


def _append(lake: Lake, dataset: Dataset) -> int:
    return SqlTxnLogWriter(lake).append(dataset.id, [add("b.parquet")]).version


def _managed(lake: Lake, dataset: Dataset) -> int:
    manager = TransactionManager(lake)
    return manager.commit(manager.begin(dataset.id), [add("b.parquet")])


def _several(lake: Lake, dataset: Dataset) -> int:
    other = lake.dataset("other")
    description = Description(operation="WRITE", operation_parameters={}, extra={})
    drafts = [Draft(each.id, each.version, [add("b.parquet")], description) for each in (dataset, other)]
    outcome = lake.committer.commit(drafts)
    assert not isinstance(outcome, Conflict)
    return outcome[0].version


def _created(lake: Lake, dataset: Dataset) -> int:
    return lake.create_dataset("new", SCHEMA).version + 1


@pytest.mark.parametrize("change", [_append, _managed, _several, _created])
def test_a_commit_that_stands_is_an_answer_whatever_its_watcher_does(
    lake: Lake,
    change: Callable[[Lake, Dataset], int],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []
    monkeypatch.setattr(lakelog.telemetry._failed_watches, "add", counted.append)
    dataset, _ = table(lake), table(lake, "other")
    watcher = lake.committer.watcher = Broken()
    with caplog.at_level(logging.ERROR, "lakelog"):
        assert change(lake, dataset) == 1
    assert watcher.told_of, "nobody was told"
    assert counted == [1]
    assert "committed, but what watches commits has failed" in caplog.text
    lake.committer.watcher = lake.mirror
    assert [each.mirror().pending for each in lake.datasets()] == [0] * len(lake.datasets())
    check_invariants(lake)


def test_a_mirror_that_has_failed_thousands_of_times_fails_no_commit(lake: Lake) -> None:
    events = table(lake)
    log = log_of(events)
    log.rename(log.with_name("elsewhere"))
    log.write_text("a full or read-only disk answers in the same way")
    commit(lake, events, add("a.parquet"))
    reconciler = lake.mirror._reconciler
    for _ in range(3000):
        reconciler.retry(events.id)
    assert commit(lake, events, add("b.parquet")).version == 2
    status = events.mirror_status()
    assert (status.state, status.published, status.pending) == ("failing", 0, 2)
    assert "cannot write" in (status.error or "")
    log.unlink()
    log.with_name("elsewhere").rename(log)
    assert (events.mirror().state, versions(events)) == ("published", [0, 1, 2])


def test_a_commit_that_cannot_be_put_into_words_is_no_published_mirror(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = table(lake)

    def fail(*_: object) -> bytes:
        raise ValueError("no such text")

    monkeypatch.setattr("lakelog.mirror.publisher.delta_json", fail)
    assert commit(lake, events, add()).version == 1
    status = events.mirror_status()
    assert (status.state, status.pending) == ("failing", 1)
    assert "ValueError: no such text" in (status.error or "")


def test_a_report_that_fails_is_no_failed_commit(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    events = table(lake)

    def fail(*_: object) -> None:
        raise RuntimeError("the exporter is gone")

    monkeypatch.setattr(lakelog.telemetry._durations, "record", fail)
    assert commit(lake, events, add()).version == 1


@pytest.fixture
def no_threads() -> Iterator[Callable[[], None]]:
    """Until the call, no thread starts: none finds room for its stack."""
    before = threading.stack_size(1 << 46)
    yield lambda: threading.stack_size(before) and None
    threading.stack_size(before)


def test_a_thread_that_cannot_start_is_started_later(
    tmp_path: Path, no_threads: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    place = Place("sqlite", f"sqlite:///{tmp_path}/catalog.db", tmp_path, "lakelog")
    with caplog.at_level(logging.WARNING, "lakelog.mirror"), place.connect(mirror="background") as lake:
        events = table(lake)
        commit(lake, events, add("a.parquet"))
        assert versions(events) == []
        no_threads()
        commit(lake, events, add("b.parquet"))
        wait_until(lambda: versions(events) == [0, 1, 2])
    assert "thread cannot start" in caplog.text


def test_a_lake_whose_thread_cannot_start_closes(tmp_path: Path, no_threads: Callable[[], None]) -> None:
    place = Place("sqlite", f"sqlite:///{tmp_path}/catalog.db", tmp_path, "lakelog")
    lake = place.connect(mirror="background")
    commit(lake, table(lake), add("a.parquet"))
    lake.close()
    no_threads()
    with place.connect() as again:
        assert again.dataset("events").mirror().published == 1


def test_a_thread_that_died_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Place("sqlite", f"sqlite:///{tmp_path}/catalog.db", tmp_path, "lakelog")
    with place.connect(mirror="background") as lake:
        thread = lake.mirror._reconciler._thread
        with monkeypatch.context() as broken:
            broken.setattr(sys, "unraisablehook", lambda _: None)
            broken.setattr(lake.mirror._reconciler, "_next", lambda: 1 // 0)
            commit(lake, lake.create_dataset("events", pa.schema([("id", pa.int64())])), add("a.parquet"))
            thread.join(20)
        assert not thread.is_alive
        events = lake.dataset("events")
        commit(lake, events, add("b.parquet"))
        wait_until(lambda: versions(events) == [0, 1, 2])


def test_a_transaction_without_a_thread_for_its_deadline_locks_nothing(
    tmp_path: Path, no_threads: Callable[[], None]
) -> None:
    place = Place("sqlite", f"sqlite:///{tmp_path}/catalog.db", tmp_path, "lakelog")
    with place.connect() as lake:
        events = table(lake)
        manager = TransactionManager(lake)
        with pytest.raises(LakelogError, match="its deadline needs a thread"):
            manager.begin(events.id)
        no_threads()
        assert manager.commit(manager.begin(events.id), [add()]) == 1


@pytest.fixture
def stillborn() -> Iterator[Callable[[], None]]:
    """Until the call, a thread that starts dies before it runs, as for want of memory, and nobody is told."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_thread, "start_new_thread", lambda run, arguments: 0)
        yield patched.undo


def test_a_thread_that_dies_before_it_runs_is_not_waited_for(place: Place, stillborn: Callable[[], None]) -> None:
    if place.backend == "postgres":
        # The pool's own threads are psycopg's.
        stillborn()
    with place.connect(timeout=5) as lake, place.connect(timeout=5) as other:
        events = rewritten(lake)
        before = time.monotonic()
        commit(lake, events, *(new_file(events, f"{number}/a.parquet", number) for number in range(5)))
        manager = TransactionManager(lake)
        manager.commit(manager.begin(events.id), [new_file(events, "managed.parquet", 6)])
        lake.mirror._reconciler.wake(events.id)
        assert lake.check("events").findings == ()
        assert time.monotonic() - before < 10
        stillborn()
        commit(other, other.dataset("events"), new_file(events, "last.parquet", 7))
        lake.mirror._reconciler.wake(events.id)
        wait_until(lambda: versions(events) == list(range(7)))
        check_invariants(lake)


class Breaking(logging.Handler):
    """A log that cannot be written to."""

    def emit(self, record: logging.LogRecord) -> None:
        raise OSError("the disk of the log is full")


@pytest.mark.parametrize("change", [_append, _managed, _several, _created])
def test_a_log_that_cannot_be_written_fails_no_commit(
    lake: Lake, change: Callable[[Lake, Dataset], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    events = table(lake)
    table(lake, "other")
    monkeypatch.setattr(lakelog.telemetry, "SLOW_COMMIT", -1.0)
    lake.committer.watcher = Broken()
    handler = Breaking()
    logging.getLogger("lakelog").addHandler(handler)
    try:
        assert change(lake, events) == 1
    finally:
        logging.getLogger("lakelog").removeHandler(handler)


def test_files_are_synced_looked_at_and_deleted_where_no_thread_can_start(
    tmp_path: Path, no_threads: Callable[[], None]
) -> None:
    with lakelog.connect(f"sqlite:///{tmp_path}/catalog.db", root=tmp_path / "lake", mirror="manual") as lake:
        events = rewritten(lake)
        commit(lake, events, *(new_file(events, f"{number}/a.parquet", number) for number in range(5)))
        assert lake.check("events").findings == ()
        assert ids(lake.clone(events, "copy", shallow=False)) == ids(events)
        settle()
        assert events.vacuum(0, force=True).removed == 1
        for number in range(5):
            put(tmp_path / "files" / f"{number}.parquet", {"id": [number]})
        assert ids(lake.register_parquet(tmp_path / "files", "registered")) == [0, 1, 2, 3, 4]
    no_threads()


def test_a_pool_whose_threads_cannot_start_is_our_error(place: Place, no_threads: Callable[[], None]) -> None:
    if place.backend == "postgres":
        with pytest.raises(LakelogError, match="no thread can start for the connections"):
            place.connect()
    no_threads()
    with place.connect() as lake:
        assert table(lake).version == 0
