"""One version, one winner: what a commit says when the head is not where its caller thought."""

import pickle
import threading
from collections.abc import Callable

import pytest

import lakelog
from lakelog import (
    CommitOutcomeUnknown,
    ConcurrencyError,
    DatabaseError,
    Lake,
    LakelogError,
    LakelogTimeoutError,
    SchemaMismatchError,
    SqlTxnLogWriter,
    ValidationError,
    VersionConflict,
    Violation,
)
from lakelog.actions import Action, Metadata, Protocol, RemoveFile
from lakelog.schema import to_delta_json
from tests.contract.samples import SCHEMA, add, commit, paths, table
from tests.fixtures.lakes import catalog_rows
from tests.invariants import check_invariants


def test_a_stale_version_is_rejected_with_both_heads_and_the_table(lake: Lake, other_lake: Lake) -> None:
    dataset = table(lake)
    for _ in range(3):
        commit(other_lake, dataset)
    before = catalog_rows(lake)
    with pytest.raises(VersionConflict) as caught:
        SqlTxnLogWriter(lake).commit(dataset.id, 2, [add()])
    error = caught.value
    assert (error.table, error.table_id, error.expected, error.actual) == ("events", dataset.id, 1, 3)
    assert isinstance(error, ConcurrencyError)
    for part in ("'events'", f"id {dataset.id}", "expected head 1", "found 3", "Reload"):
        assert part in str(error)
    assert catalog_rows(lake) == before


def test_a_repeated_version_is_rejected_and_changes_nothing(lake: Lake) -> None:
    dataset = table(lake)
    result = commit(lake, dataset, add())
    before = catalog_rows(lake)
    with pytest.raises(VersionConflict) as caught:
        SqlTxnLogWriter(lake).commit(dataset.id, 1, [add()])
    assert (caught.value.expected, caught.value.actual) == (0, 1)
    assert catalog_rows(lake) == before
    assert lake.commit_status(result.commit_id) == [result]


@pytest.mark.parametrize("version", [3, 17, 2**63 - 1])
def test_a_version_that_would_leave_a_gap_is_rejected(lake: Lake, version: int) -> None:
    dataset = table(lake)
    commit(lake, dataset)
    before = catalog_rows(lake)
    with pytest.raises(VersionConflict, match="does not exist yet") as caught:
        SqlTxnLogWriter(lake).commit(dataset.id, version, [add()])
    assert (caught.value.expected, caught.value.actual) == (version - 1, 1)
    assert catalog_rows(lake) == before


def test_version_0_belongs_to_the_creation(lake: Lake) -> None:
    dataset = table(lake)
    metadata = Metadata(id="x", schema_string=to_delta_json(SCHEMA))
    with pytest.raises(VersionConflict) as caught:
        SqlTxnLogWriter(lake).commit(dataset.id, 0, [metadata])
    assert (caught.value.expected, caught.value.actual) == (-1, 0)


@pytest.mark.parametrize("writers", [2, 8])
def test_of_writers_that_commit_the_same_version_exactly_one_wins(connect: Callable[..., Lake], writers: int) -> None:
    lakes = [connect() for _ in range(writers)]
    dataset = table(lakes[0])
    start = threading.Barrier(writers)
    outcomes: dict[int, object] = {}

    def write(index: int) -> None:
        start.wait()
        try:
            SqlTxnLogWriter(lakes[index]).commit(dataset.id, 1, [add(f"{index}.parquet")])
            outcomes[index] = "committed"
        except LakelogError as error:
            outcomes[index] = error

    threads = [threading.Thread(target=write, args=(index,)) for index in range(writers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [index for index, outcome in outcomes.items() if outcome == "committed"]
    losers = [outcome for outcome in outcomes.values() if outcome != "committed"]
    assert len(winners) == 1
    assert len(losers) == writers - 1
    for error in losers:
        assert isinstance(error, VersionConflict)
        assert (error.expected, error.actual) == (0, 1)
    assert paths(dataset.snapshot().files()) == [f"{winners[0]}.parquet"]
    check_invariants(lakes[0])


def test_a_loser_that_reloads_can_commit(lake: Lake, other_lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add("mine.parquet"))
    with pytest.raises(VersionConflict) as caught:
        commit(other_lake, dataset, add("theirs.parquet"), version=1)
    commit(other_lake, dataset, add("theirs.parquet"), version=caught.value.actual + 1)
    assert paths(dataset.snapshot().files()) == ["mine.parquet", "theirs.parquet"]


@pytest.mark.parametrize(
    "action",
    [
        RemoveFile(path="not-there.parquet"),
        add(partition_values={"nothing": "1"}),
        Protocol(min_reader_version=1, min_writer_version=1),
    ],
    ids=["remove", "partition", "protocol"],
)
@pytest.mark.parametrize("remembers", [True, False], ids=["known state", "unknown state"])
def test_when_the_head_has_moved_the_answer_is_the_conflict(
    lake: Lake, other_lake: Lake, action: Action, remembers: bool
) -> None:
    """Not a complaint about a state that is no longer there."""
    dataset = table(lake)
    writer = SqlTxnLogWriter(lake if remembers else other_lake)
    commit(lake, dataset)
    commit(other_lake, dataset)
    with pytest.raises(VersionConflict):
        writer.commit(dataset.id, 2, [action])
    with pytest.raises(ValidationError):
        writer.commit(dataset.id, 3, [action])


ERRORS = [
    LakelogError("text"),
    ConcurrencyError("text"),
    VersionConflict("events", 7, 3, 5),
    ValidationError("commit", [Violation("a", "is wrong"), Violation("b", "too")]),
    SchemaMismatchError("schema", [Violation("a", "is a string")]),
    DatabaseError("broke", "the_constraint", "detail"),
    lakelog.CatalogVersionError("old"),
    lakelog.PrivilegeError("must not", None, "detail"),
    LakelogTimeoutError("a lock", 2.5),
    CommitOutcomeUnknown("id", ["a", "b"], "lost"),
    lakelog.ConfigurationError("text"),
    lakelog.DatasetNotFoundError("text"),
    lakelog.VersionNotFoundError("text"),
    lakelog.DatasetExistsError("text"),
    lakelog.DeltaLogError("broken", "a.json", 3),
    lakelog.ReadOnlyError("text"),
]


def test_every_error_is_in_the_list() -> None:
    public = {getattr(lakelog, name) for name in lakelog.__all__}
    errors = {each for each in public if isinstance(each, type) and issubclass(each, Exception)}
    assert {type(error) for error in ERRORS} == errors


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_errors_survive_pickling(error: Exception, protocol: int) -> None:
    copy = pickle.loads(pickle.dumps(error, protocol))
    assert type(copy) is type(error)
    assert (str(copy), copy.args, vars(copy)) == (str(error), error.args, vars(error))


def test_a_timeout_is_also_pythons_own() -> None:
    assert isinstance(LakelogTimeoutError("a lock", 2.5), TimeoutError)
    assert "2.5 s" in str(LakelogTimeoutError("a lock", 2.5))
