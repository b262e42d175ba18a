"""``TransactionManager``: the lock first, then the commit."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from lakelog import (
    Dataset,
    Lake,
    LakelogError,
    LakelogTimeoutError,
    RowGroup,
    SqlTxnLogWriter,
    TransactionManager,
    ValidationError,
    VersionConflict,
)
from lakelog.actions import RemoveFile
from tests.contract.samples import add, commit, paths, stats, table
from tests.fixtures.lakes import catalog_rows, rows
from tests.invariants import check_invariants

SHORT = 0.3
"""Seconds of patience, where a test needs a wait that runs out."""


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    return table(lake)


@pytest.fixture
def manager(lake: Lake) -> TransactionManager:
    return TransactionManager(lake)


def in_thread(call: Callable[[], Any]) -> Any:
    """What a call gives or raises in another thread, which must end by itself."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert outcome, "the call still waits"
    return outcome[0]


def until(condition: Callable[[], bool]) -> None:
    """Waits for what a timer of the lake does."""
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.01)


def test_begin_and_commit_make_the_next_version(lake: Lake, dataset: Dataset, manager: TransactionManager) -> None:
    context = manager.begin(dataset.id)
    assert (context.dataset_id, context.base_version, context.is_open) == (dataset.id, 0, True)
    groups = [RowGroup(path="a.parquet", row_group=n, row_count=n, byte_size=10) for n in (1, 2)]
    metadata = {"operation": "MERGE", "operation_parameters": {"x": 1}, "committer": "ana", "engine": "test"}
    version = manager.commit(context, [add(stats=stats(3))], groups, metadata)

    assert version == dataset.version == 1
    entry = dataset.history()[0]
    assert (entry.operation, entry.operation_parameters, entry.committer) == ("MERGE", {"x": 1}, "ana")
    assert (entry.extra, entry.commit_id) == ({"engine": "test"}, context.commit_id)
    assert [row["row_count"] for row in rows(lake, "row_groups")] == [1, 2]
    assert not context.is_open
    check_invariants(lake)


def test_file_records_may_be_an_arrow_table(lake: Lake, dataset: Dataset, manager: TransactionManager) -> None:
    files = pa.table({"path": ["a.parquet", "b.parquet"], "size": [1, 2]})
    groups = pa.table({"path": ["a.parquet", "b.parquet"], "row_group": [0, 0], "row_count": [5, 6]})
    assert manager.commit(manager.begin(dataset.id), files, groups) == 1
    found = dataset.snapshot().files(columns=["path", "size", "row_count"]).sort_by("path").to_pylist()
    assert found == [
        {"path": "a.parquet", "size": 1, "row_count": 5},
        {"path": "b.parquet", "size": 2, "row_count": 6},
    ]


def test_the_current_version_may_be_named(dataset: Dataset, manager: TransactionManager) -> None:
    assert manager.commit(manager.begin(dataset.id, base_version=0), []) == 1
    assert manager.commit(manager.begin(dataset.id, base_version=1), []) == 2


@pytest.mark.parametrize("stale", [0, 2, 99])
def test_a_stale_base_version_is_rejected_at_once(
    lake: Lake, dataset: Dataset, manager: TransactionManager, stale: int
) -> None:
    commit(lake, dataset)
    with pytest.raises(VersionConflict) as caught:
        manager.begin(dataset.id, base_version=stale)
    error = caught.value
    assert (error.table, error.table_id, error.expected, error.actual) == ("events", dataset.id, stale, 1)
    assert manager.commit(manager.begin(dataset.id, base_version=1), []) == 2, "the lock is free"


def test_rollback_leaves_nothing_and_frees_the_lock(
    lake: Lake, dataset: Dataset, manager: TransactionManager, other_lake: Lake
) -> None:
    before = catalog_rows(lake)
    context = manager.begin(dataset.id)
    manager.rollback(context)
    manager.rollback(context)
    assert catalog_rows(lake) == before
    assert commit(other_lake, dataset).version == 1
    assert lake.committer.catalog.usage() == (0, 0)


def test_leaving_the_context_rolls_back(lake: Lake, dataset: Dataset, manager: TransactionManager) -> None:
    with manager.begin(dataset.id) as context:
        pass
    assert not context.is_open
    with pytest.raises(ZeroDivisionError), manager.begin(dataset.id):
        raise ZeroDivisionError
    with manager.begin(dataset.id) as context:
        manager.commit(context, [add()])
    assert dataset.version == 1
    assert lake.committer.catalog.usage() == (0, 0)


@pytest.mark.parametrize("end", ["committed", "rolled back"])
def test_a_context_that_ended_cannot_be_used_again(dataset: Dataset, manager: TransactionManager, end: str) -> None:
    context = manager.begin(dataset.id)
    {"committed": lambda: manager.commit(context, []), "rolled back": lambda: manager.rollback(context)}[end]()
    version = dataset.version
    with pytest.raises(LakelogError, match=f"{end}: begin a new one"):
        manager.commit(context, [add()])
    manager.rollback(context)
    assert dataset.version == version
    assert end in str(context)


def test_invalid_records_leave_the_transaction_open_for_better_ones(
    dataset: Dataset, manager: TransactionManager
) -> None:
    with manager.begin(dataset.id) as context:
        with pytest.raises(ValidationError):
            manager.commit(context, [add(size=-1)])
        assert context.is_open
        assert manager.commit(context, [add()]) == 1


def test_records_that_contradict_the_table_end_the_transaction(
    lake: Lake, dataset: Dataset, manager: TransactionManager
) -> None:
    before = catalog_rows(lake)
    for record in (RemoveFile(path="never.parquet"), add(partition_values={"no": "column"})):
        context = manager.begin(dataset.id)
        with pytest.raises(ValidationError):
            manager.commit(context, [record])
        assert not context.is_open
    assert catalog_rows(lake) == before
    assert commit(lake, dataset).version == 1


def test_a_second_begin_by_the_same_thread_fails_at_once(dataset: Dataset, manager: TransactionManager) -> None:
    with manager.begin(dataset.id) as context:
        with pytest.raises(LakelogError, match="wait for itself") as caught:
            manager.begin(dataset.id)
        assert not isinstance(caught.value, LakelogTimeoutError)
        assert manager.commit(context, []) == 1


def test_a_commit_by_the_same_thread_would_wait_for_itself_too(lake: Lake, dataset: Dataset) -> None:
    with TransactionManager(lake).begin(dataset.id), pytest.raises(LakelogError, match="wait for itself"):
        SqlTxnLogWriter(lake).commit(dataset.id, 1, [add()])
    assert dataset.version == 0


def test_another_writer_waits_and_then_commits(lake: Lake, dataset: Dataset, other_lake: Lake) -> None:
    """The one that waited sees what was committed while it waited."""
    manager, other = TransactionManager(lake), TransactionManager(other_lake)
    context = manager.begin(dataset.id)
    waiting = threading.Event()
    versions: list[int] = []

    def wait_and_commit() -> None:
        waiting.set()
        theirs = other.begin(dataset.id)
        versions.append(theirs.base_version)
        versions.append(other.commit(theirs, [add("theirs.parquet")]))

    thread = threading.Thread(target=wait_and_commit)
    thread.start()
    waiting.wait()
    assert dataset.snapshot().version == 0, "readers do not wait"
    assert manager.commit(context, [add("mine.parquet")]) == 1
    thread.join(60)
    assert versions == [1, 2]
    assert paths(dataset.snapshot().files()) == ["mine.parquet", "theirs.parquet"]


@pytest.mark.parametrize("handle", ["same", "other"])
def test_a_writer_that_waits_too_long_says_what_it_waited_for(
    connect: Callable[..., Lake], lake: Lake, dataset: Dataset, handle: str
) -> None:
    impatient = connect(timeout=SHORT)
    holder = TransactionManager(impatient if handle == "same" else lake)
    holder._committer.timeout = 60.0
    with holder.begin(dataset.id) as context:
        impatient.committer.timeout = SHORT
        for attempt in (
            lambda: SqlTxnLogWriter(impatient).commit(dataset.id, 1, [add()]),
            lambda: TransactionManager(impatient).begin(dataset.id),
            lambda: impatient.drop_dataset("events"),
        ):
            error = in_thread(attempt)
            assert isinstance(error, LakelogTimeoutError)
            assert "lock" in error.waited_for
            # What was done before the wait has taken its part of the time.
            assert SHORT / 2 < error.seconds <= SHORT
            assert f"gave up after {error.seconds:.1f} s" in str(error)
        assert holder.commit(context, []) == 1
    assert commit(impatient, dataset).version == 2, "and is well afterwards"


def test_a_transaction_that_is_held_too_long_is_rolled_back(connect: Callable[..., Lake], dataset: Dataset) -> None:
    lake = connect(timeout=SHORT)
    manager = TransactionManager(lake)
    before = catalog_rows(lake)
    context = manager.begin(dataset.id)
    until(lambda: not context.is_open)
    with pytest.raises(LakelogTimeoutError, match="held open too long"):
        manager.commit(context, [add()])
    manager.rollback(context)
    assert catalog_rows(lake) == before
    until(lambda: lake.committer.catalog.usage() == (0, 0))
    assert commit(lake, dataset).version == 1, "the lock is free"


def test_a_commit_in_time_is_not_disturbed_by_its_deadline(connect: Callable[..., Lake], dataset: Dataset) -> None:
    lake = connect(timeout=SHORT)
    manager = TransactionManager(lake)
    first = manager.begin(dataset.id)
    assert manager.commit(first, [add()]) == 1
    time.sleep(2 * SHORT)
    assert "committed" in str(first)
    assert manager.commit(manager.begin(dataset.id), []) == 2


def test_transactions_of_different_tables_follow_one_another(lake: Lake, manager: TransactionManager) -> None:
    for name in ("a", "b"):
        dataset = table(lake, name)
        assert manager.commit(manager.begin(dataset.id), [add()]) == 1


def test_a_context_may_be_handed_to_another_thread(lake: Lake, dataset: Dataset, manager: TransactionManager) -> None:
    context = manager.begin(dataset.id)
    assert in_thread(lambda: manager.commit(context, [add()])) == 1
    assert commit(lake, dataset).version == 2


@pytest.mark.parametrize("unfit", ["events", None, 1.5, True])
def test_a_dataset_is_named_by_its_id(manager: TransactionManager, unfit: Any) -> None:
    with pytest.raises(ValidationError, match="id"):
        manager.begin(unfit)


@pytest.mark.parametrize(
    "metadata", [{"operation": 7}, {"operation": None}, {"operation_parameters": None}, {"x": object()}], ids=str
)
def test_metadata_of_another_shape_is_refused(
    dataset: Dataset, manager: TransactionManager, metadata: dict[str, Any]
) -> None:
    with manager.begin(dataset.id) as context, pytest.raises(ValidationError):
        manager.commit(context, [], metadata=metadata)
    assert dataset.version == 0
