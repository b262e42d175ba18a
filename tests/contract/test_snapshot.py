"""Reading the log: any version, any time, and what happened between two."""

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakelog import DatasetNotFoundError, Lake, ValidationError, VersionNotFoundError
from lakelog.actions import Action, Metadata, Protocol, RemoveFile, Txn
from lakelog.schema import to_delta_json
from tests.contract.samples import SCHEMA, add, commit, paths, set_clock, stats, table
from tests.fixtures.lakes import rows
from tests.invariants import check_invariants

FILES = [f"{letter}.parquet" for letter in "abcdef"]

commits = st.lists(
    st.dictionaries(st.sampled_from(FILES), st.sampled_from(["add", "remove"]), max_size=4), min_size=1, max_size=8
)


@given(history=commits)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_files_of_every_version_are_a_replay_of_the_log(lake: Lake, history: list[dict[str, str]]) -> None:
    dataset = table(lake, uuid.uuid4().hex)
    live: dict[str, int] = {}
    expected = [dict(live)]
    for version, wanted in enumerate(history, start=1):
        actions: list[Action] = []
        for path, what in wanted.items():
            if what == "add":
                actions.append(add(path, size=version))
                live[path] = version
            elif path in live:
                actions.append(RemoveFile(path=path))
                del live[path]
        commit(lake, dataset, *actions, version=version)
        expected.append(dict(live))
    for version, files in enumerate(expected):
        found = dataset.snapshot(version=version).files(columns=["path", "size"]).to_pylist()
        assert {row["path"]: row["size"] for row in found} == files
        assert len(found) == len(files), "no path is live twice"


def test_a_snapshot_stays_as_it_was_while_later_commits_change_the_table(lake: Lake, other_lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, *(add(path, stats=stats(1, id=(n, n))) for n, path in enumerate(FILES)))
    before = dataset.snapshot()
    everything, pruned = before.files(), before.files("id >= 4")

    commit(other_lake, dataset, *(RemoveFile(path=path) for path in FILES))
    commit(other_lake, dataset, *(add(path, stats=stats(1, id=(100, 100))) for path in FILES))
    assert before.version == 1
    assert before.files().sort_by("ordinal").equals(everything.sort_by("ordinal"))
    assert paths(before.files("id >= 4")) == paths(pruned) == FILES[4:]
    assert before.files("id >= 100").num_rows == 0
    lake.drop_dataset("events")
    assert before.files().num_rows == len(FILES), "even if the dataset is dropped"


def test_a_snapshot_has_the_metadata_and_protocol_of_its_version(lake: Lake, reopen: Callable[[Lake], Lake]) -> None:
    dataset = table(lake)
    wider = SCHEMA.append(pa.field("more", pa.int64()))
    metadata = Metadata(id="x", schema_string=to_delta_json(wider), configuration={"k": "v"})
    protocol = Protocol(min_reader_version=1, min_writer_version=3)
    commit(lake, dataset, add())
    commit(lake, dataset, metadata)
    commit(lake, dataset, protocol)
    dataset = reopen(lake).dataset("events")
    columns = [len(dataset.snapshot(version=version).schema) for version in range(4)]
    writers = [dataset.snapshot(version=version).protocol.min_writer_version for version in range(4)]
    assert (columns, writers) == ([3, 3, 4, 4], [2, 2, 2, 3])
    assert dataset.snapshot().metadata == metadata
    assert str(dataset.snapshot(version=2)) == "Snapshot('events', version=2)"


@pytest.mark.parametrize("version", [-1, 3, 2**63])
def test_a_version_that_does_not_exist_is_said_to_be_out_of_range(lake: Lake, version: int) -> None:
    dataset = table(lake)
    commit(lake, dataset)
    commit(lake, dataset)
    for read in (dataset.snapshot, dataset.changes):
        with pytest.raises(VersionNotFoundError, match=f"no version {version}: its versions are 0 to 2"):
            read(version)
    with pytest.raises(VersionNotFoundError):
        dataset.changes(0, version)


@pytest.mark.parametrize("version", ["1", 1.0, True])
def test_a_version_is_an_integer(lake: Lake, version: Any) -> None:
    dataset = table(lake)
    commit(lake, dataset)
    with pytest.raises(ValidationError, match="integer"):
        dataset.snapshot(version)


@pytest.fixture
def clock(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets the time of the commits that follow."""
    return partial(set_clock, monkeypatch, lake)


START = 2_200_000_000_000


@pytest.mark.parametrize(
    ("after", "version"), [(0, 0), (1, 0), (999, 0), (1000, 1), (1001, 1), (1999, 1), (2000, 2), (2**40, 2)]
)
def test_a_time_means_the_last_version_committed_until_then(
    lake: Lake, clock: Callable[[int], None], after: int, version: int
) -> None:
    clock(START)
    dataset = table(lake)
    for seconds in (1, 2):
        clock(START + 1000 * seconds)
        commit(lake, dataset)
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=START + after)
    spellings: list[Any] = [START + after, moment, moment.replace(tzinfo=None), moment.isoformat()]
    spellings.append(moment.astimezone(timezone(timedelta(hours=-8))))
    assert [dataset.snapshot(timestamp=spelling).version for spelling in spellings] == [version] * len(spellings)


def test_the_time_in_the_history_leads_back_to_its_version(lake: Lake, clock: Callable[[int], None]) -> None:
    """Milliseconds survive the way through a datetime, though a float cannot hold all of them."""
    clock(START)
    dataset = table(lake)
    for n in range(1, 60):
        clock(START + 1001 * n)
        commit(lake, dataset)
    for entry in dataset.history():
        assert dataset.snapshot(timestamp=entry.timestamp).version == entry.version
        earlier = entry.timestamp - timedelta(microseconds=1)
        if entry.version:
            assert dataset.snapshot(timestamp=earlier).version == entry.version - 1


@pytest.mark.parametrize("timestamp", [START - 1, 0, -1, "1999-12-31", datetime(1, 1, 1, tzinfo=UTC)])
def test_a_time_before_the_first_commit_is_an_error_that_names_it(
    lake: Lake, clock: Callable[[int], None], timestamp: Any
) -> None:
    clock(START)
    dataset = table(lake)
    with pytest.raises(VersionNotFoundError, match=r"did not exist .* version 0 was committed at 2039-09-18T23:06:40"):
        dataset.snapshot(timestamp=timestamp)


@pytest.mark.parametrize("timestamp", ["yesterday", "", 1.5, True, [], 2**80, -(2**62)])
def test_a_time_that_is_none_is_refused(lake: Lake, timestamp: Any) -> None:
    with pytest.raises(ValidationError, match="timestamp"):
        table(lake).snapshot(timestamp=timestamp)


def test_version_and_time_exclude_each_other(lake: Lake) -> None:
    with pytest.raises(ValidationError, match="not both"):
        table(lake).snapshot(version=0, timestamp=START)


def test_one_connection_is_enough_to_read(connect: Callable[..., Lake]) -> None:
    lake = connect(pool_size=1, timeout=5.0)
    dataset = table(lake)
    commit(lake, dataset, add(stats=stats(1, id=(1, 1))))
    snapshot = dataset.snapshot(timestamp=START + 10**10)
    assert (snapshot.version, snapshot.files("id = 1").num_rows) == (1, 1)
    assert dataset.snapshot(version=0).files().num_rows == 0
    assert len(dataset.changes(0).commits) == 2
    with pytest.raises(VersionNotFoundError):
        dataset.snapshot(timestamp=0)


def test_changes_give_what_the_commits_of_a_range_did(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add("a.parquet"), add("b.parquet"), operation="FIRST")
    commit(lake, dataset, RemoveFile(path="a.parquet"), operation="SECOND")
    commit(lake, dataset, add("c.parquet"), RemoveFile(path="b.parquet"), operation="THIRD")

    changes = dataset.changes(2)
    assert (changes.from_version, changes.to_version) == (2, 3)
    assert [entry.operation for entry in changes.commits] == ["SECOND", "THIRD"]
    assert changes.added.column("path").to_pylist() == ["c.parquet"]
    assert changes.removed.column("path").to_pylist() == ["a.parquet", "b.parquet"]
    assert changes.removed.column("added_version").to_pylist() == [1, 1]

    first = dataset.changes(0, 1)
    assert [entry.version for entry in first.commits] == [0, 1]
    assert first.added.column("path").to_pylist() == ["a.parquet", "b.parquet"]
    assert first.removed.num_rows == 0
    assert dataset.changes(2, 2).added.num_rows == 0
    with pytest.raises(ValidationError, match="after"):
        dataset.changes(3, 1)


def test_history_can_be_cut_short(lake: Lake) -> None:
    dataset = table(lake)
    for _ in range(3):
        commit(lake, dataset)
    assert [entry.version for entry in dataset.history(limit=2)] == [3, 2]
    assert dataset.history(limit=0) == []
    assert len(dataset.history(limit=99)) == 4
    for unfit in (-1, "2", True, 1.5):
        with pytest.raises(ValidationError, match="limit"):
            dataset.history(limit=unfit)  # type: ignore[arg-type]


def test_an_applications_progress_is_the_last_that_it_recorded(lake: Lake, other_lake: Lake) -> None:
    dataset = table(lake)
    table(lake, "other")
    assert lake.txn_version("events", "app") is None
    commit(lake, dataset, Txn(app_id="app", version=3))
    commit(lake, dataset, Txn(app_id="app'; --", version=-7))
    commit(lake, dataset, Txn(app_id="app", version=2**63 - 1))
    assert other_lake.txn_version("events", "app") == 2**63 - 1
    assert other_lake.txn_version("events", "app'; --") == -7
    assert other_lake.txn_version("other", "app") is None
    with pytest.raises(DatasetNotFoundError):
        other_lake.txn_version("nothing", "app")


def test_files_can_be_read_by_column(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add("b.parquet", size=2), add("a.parquet", size=1, tags={"k": "v"}))
    snapshot = dataset.snapshot()
    assert snapshot.files(columns=["size", "path"]).column_names == ["size", "path"]
    assert sorted(snapshot.files(columns=["size"]).column("size").to_pylist()) == [1, 2]
    for column in snapshot.files().column_names:
        assert snapshot.files(columns=[column]).num_rows == 2, f"a null {column} is a row, too"
    with pytest.raises(ValidationError, match="'colour': is not one of"):
        snapshot.files(columns=["path", "colour"])
    with pytest.raises(ValidationError, match="'colour'"):
        snapshot.row_groups(columns=["colour"])


def test_texts_come_back_byte_for_byte(lake: Lake) -> None:
    """Statistics and tags with every kind of character that JSON can hold."""
    dataset = table(lake)
    texts = ['{ "numRecords" :\n 1,\t"x": "\\u0001\\n" }', '{"a":"☃ \\" \' \\\\ , ; | 🦆"}', "{}", '{"":""}']
    commit(lake, dataset, *(add(f"{n}.parquet", stats=text) for n, text in enumerate(texts)))
    found = dataset.snapshot().files(columns=["path", "stats"]).sort_by("path").column("stats").to_pylist()
    assert found == texts
    assert [row["stats"] for row in rows(lake, "dl_add_files")] == texts
    check_invariants(lake)


def test_two_handles_read_the_same(lake: Lake, other_lake: Lake) -> None:
    dataset = table(lake)
    for n in range(3):
        commit(lake, dataset, add(f"{n}.parquet"))
        assert other_lake.dataset("events").snapshot().files().num_rows == n + 1
