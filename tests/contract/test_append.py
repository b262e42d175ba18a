"""``SqlTxnLogWriter.append``: files on top of whatever the head is."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lakelog import AddFiles, Dataset, Lake, SqlTxnLogWriter, TransactionManager, ValidationError
from lakelog.actions import Action, DomainMetadata, Protocol, RemoveFile, Txn
from lakelog.catalog.base import Session
from lakelog.errors import ConcurrencyError, DatasetNotFoundError, LakelogTimeoutError
from lakelog.log.commit.outcomes import Conflict
from lakelog.log.state import Head, TableMetadata
from lakelog.schema.delta import to_delta_json
from tests.contract.samples import SCHEMA, add, commit, paths, stats, table
from tests.fixtures.lakes import catalog_rows, execute, qualified, rows
from tests.invariants import check_invariants


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    return table(lake)


@pytest.fixture
def writer(lake: Lake) -> SqlTxnLogWriter:
    return SqlTxnLogWriter(lake)


def test_it_makes_the_next_version_whoever_made_the_last(
    lake: Lake, other_lake: Lake, dataset: Dataset, writer: SqlTxnLogWriter
) -> None:
    result = writer.append(
        dataset.id,
        [add("a", stats=stats(3, id=(1, 9)))],
        operation="COPY",
        operation_parameters={"x": 1},
        committer="ana",
        extra={"engine": "test"},
    )
    assert (result.version, result.table) == (1, "events")
    for number in range(3):
        commit(other_lake, other_lake.dataset("events"), add(f"b{number}"))
    assert writer.append(dataset.id, [add("c"), add("d")]).version == 5
    assert paths(dataset.snapshot().files()) == ["a", "b0", "b1", "b2", "c", "d"]
    entry = dataset.history()[-2]
    assert (entry.operation, entry.operation_parameters, entry.committer) == ("COPY", {"x": 1}, "ana")
    assert (entry.extra, entry.commit_id) == ({"engine": "test"}, result.commit_id)
    assert {row["version"] for row in rows(lake, "column_stats")} == {1, 2, 3, 4, 5}
    check_invariants(lake)


def test_many_files_as_a_table(lake: Lake, other_lake: Lake, dataset: Dataset, writer: SqlTxnLogWriter) -> None:
    writer.append(dataset.id, [add("a")])
    commit(other_lake, other_lake.dataset("events"), add("b"))
    many = AddFiles.of([add(f"c{number}", stats=stats(1, id=(number, number))) for number in range(2000)])
    assert writer.append(dataset.id, [many]).version == 3
    assert dataset.snapshot().files().num_rows == 2002
    assert paths(dataset.snapshot().files(where="id = 1500")) == ["a", "b", "c1500"]
    check_invariants(lake)


@pytest.mark.parametrize(
    "action",
    [
        RemoveFile(path="a"),
        Protocol(min_reader_version=1, min_writer_version=3),
        DomainMetadata(domain="d", configuration="{}", removed=False),
    ],
)
def test_what_depends_on_the_tables_state_is_refused(
    lake: Lake, dataset: Dataset, writer: SqlTxnLogWriter, action: Action
) -> None:
    writer.append(dataset.id, [add("a")])
    with pytest.raises(ValidationError, match="name the version"):
        writer.append(dataset.id, [add("b"), action])
    with pytest.raises(ValidationError, match="name the version"):
        writer.append(dataset.id, [replace(dataset.snapshot().metadata, description="other")])
    assert dataset.version == 1


def test_it_is_checked_against_the_rules_that_hold_then(
    lake: Lake, other_lake: Lake, dataset: Dataset, writer: SqlTxnLogWriter
) -> None:
    writer.append(dataset.id, [add("a")])
    metadata = dataset.snapshot().metadata
    wider = replace(metadata, schema_string=to_delta_json(SCHEMA.append(pa.field("more", pa.int64()))))
    commit(other_lake, other_lake.dataset("events"), wider)
    writer.append(dataset.id, [add("b", stats=stats(3, more=(1, 9)))])
    assert paths(dataset.snapshot().files(where="more = 10")) == ["a"], "the new column has bounds"
    commit(other_lake, other_lake.dataset("events"), replace(wider, configuration={"delta.appendOnly": "true"}))
    assert writer.append(dataset.id, [add("c")]).version == 5
    check_invariants(lake)


def test_what_the_rules_forbid_is_refused_at_once_while_others_commit(
    lake: Lake, other_lake: Lake, dataset: Dataset, writer: SqlTxnLogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.append(dataset.id, [add("a")])
    looks = []
    head = lake.committer.head

    def busy_head(session: Session, table_id: int) -> Head:
        assert len(looks) < 10, "it looks for a head that does not move"
        looks.append(commit(other_lake, other_lake.dataset("events"), add(f"b{len(looks)}")))
        return head(session, table_id)

    monkeypatch.setattr(lake.committer, "head", busy_head)
    with pytest.raises(ValidationError, match="day"):
        writer.append(dataset.id, [add("c", partition_values={"day": "2026-01-01"})])
    assert len(looks) <= 2, "the mirror looks, too"


def test_a_file_that_is_there_is_replaced(
    lake: Lake, other_lake: Lake, dataset: Dataset, writer: SqlTxnLogWriter
) -> None:
    writer.append(dataset.id, [add("a")])
    commit(other_lake, other_lake.dataset("events"), add("b", size=1))
    writer.append(dataset.id, [add("b", size=2)])
    assert sorted(dataset.snapshot().files().column("size").to_pylist()) == [2, 100]
    check_invariants(lake)


def test_an_applications_progress_never_goes_back(
    lake: Lake, other_lake: Lake, dataset: Dataset, writer: SqlTxnLogWriter
) -> None:
    writer.append(dataset.id, [add("a"), Txn(app_id="stream", version=1)])
    commit(other_lake, other_lake.dataset("events"), Txn(app_id="stream", version=5))
    with pytest.raises(ValidationError, match="version 5 is not after 5"):
        writer.append(dataset.id, [add("b"), Txn(app_id="stream", version=5)])
    assert writer.append(dataset.id, [add("b"), Txn(app_id="stream", version=6)]).version == 3


def test_a_table_that_is_gone(lake: Lake, other_lake: Lake, dataset: Dataset, writer: SqlTxnLogWriter) -> None:
    writer.append(dataset.id, [add("a")])
    other_lake.drop_dataset("events")
    with pytest.raises(DatasetNotFoundError):
        writer.append(dataset.id, [add("b")])


@pytest.mark.parametrize("table_id", [None, "1", 1.5, True, [1], 2**70])
def test_an_id_that_cannot_be_one(writer: SqlTxnLogWriter, table_id: Any) -> None:
    with pytest.raises(ValidationError, match="table id: expected an integer"):
        writer.append(table_id, [add("a")])


def test_a_catalog_that_was_put_back_to_an_older_state(lake: Lake, dataset: Dataset, writer: SqlTxnLogWriter) -> None:
    for number in range(3):
        writer.append(dataset.id, [add(f"a{number}")])
    states = lake.committer.states
    seen = dataset.snapshot().state
    states.put(replace(seen, version=7))
    assert writer.append(dataset.id, [add("b")]).version == 4
    assert states.latest(dataset.id) == dataset.snapshot().state, "what was lost is forgotten"
    lost = TableMetadata(2, seen.metadata.action, seen.metadata.schema_version)
    for commit_again in (
        lambda: writer.append(dataset.id, [add("c")]),
        lambda: writer.commit(dataset.id, dataset.version + 1, [add("d")]),
    ):
        states.put(replace(seen, version=dataset.version, metadata=lost))
        states._latest[dataset.id] = states.known(dataset.id, dataset.version)  # type: ignore[assignment]
        with pytest.raises(ConcurrencyError, match="restored"):
            commit_again()
        commit_again()
    assert paths(dataset.snapshot().files()) == ["a0", "a1", "a2", "b", "c", "d"]
    check_invariants(lake)


def test_rules_that_never_stay_the_same_are_waited_for_no_longer_than_for_a_lock(
    lake: Lake, dataset: Dataset, writer: SqlTxnLogWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake.committer, "commit", lambda drafts: Conflict("events", dataset.id, 0, 1))
    monkeypatch.setattr(lake.committer, "timeout", 0.1)
    with pytest.raises(LakelogTimeoutError, match="columns keep changing"):
        writer.append(dataset.id, [add("a")])


def test_who_waits_is_served_in_order(lake: Lake, other_lake: Lake, dataset: Dataset) -> None:
    holder, writer = TransactionManager(other_lake), SqlTxnLogWriter(lake)
    held = holder.begin(dataset.id)
    with ThreadPoolExecutor(5) as crowd:
        waiting = []
        for number in range(5):
            waiting.append(crowd.submit(writer.append, dataset.id, [add(f"{number}")]))
            time.sleep(0.2)
        holder.commit(held, [add("first")])
        assert [each.result().version for each in waiting] == [2, 3, 4, 5, 6]


def test_a_crowd_loses_nothing(lake: Lake, other_lake: Lake, dataset: Dataset) -> None:
    writers = [SqlTxnLogWriter(each) for each in (lake, other_lake)]

    def work(number: int) -> list[int]:
        return [writers[number % 2].append(dataset.id, [add(f"{number}/{each}")]).version for each in range(10)]

    with ThreadPoolExecutor(6) as crowd:
        versions = [version for made in crowd.map(work, range(6)) for version in made]
    assert sorted(versions) == list(range(1, 61))
    assert dataset.snapshot().files().num_rows == 60
    check_invariants(lake)


def test_a_table_that_is_another_one_by_now_is_refused(lake: Lake) -> None:
    """As after an older backup of the catalog was restored, in which ids are given away again."""
    dataset = table(lake)
    commit(lake, dataset, add())
    names = f"name = 'salaries', created_at = created_at + 1 WHERE table_id = {dataset.id}"
    execute(lake, f"UPDATE {qualified(lake, 'dl_tables')} SET {names}")
    before = catalog_rows(lake)
    writer = SqlTxnLogWriter(lake)
    for attempt in (
        lambda: writer.append(dataset.id, [add("b.parquet")]),
        lambda: writer.commit(dataset.id, 2, [add("b.parquet")]),
        lambda: writer.commit(dataset.id, 2, [RemoveFile(path="a.parquet")]),
        lambda: TransactionManager(lake).begin(dataset.id),
        dataset.snapshot,
    ):
        with pytest.raises(ConcurrencyError, match="'salaries' now"):
            attempt()
    assert catalog_rows(lake) == before
