"""Which files tell what commits did to rows, on each database, with a handful of queries for any range."""

from dataclasses import replace
from itertools import pairwise
from threading import get_ident
from typing import Any

import pyarrow as pa
import pytest

from lakelog import Dataset, Lake, ValidationError
from lakelog.actions import AddFile, CdcFile, RemoveFile
from lakelog.log.feeds.change_feed import FEED_SCHEMA, ChangeFeed
from tests.contract.samples import OTHER_VECTOR, VECTOR, add, commit, table

KEPT = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    return table(lake, properties=KEPT)


def feed(lake: Lake, dataset: Dataset) -> ChangeFeed:
    return ChangeFeed(lake.committer, dataset, dataset.snapshot())


def told(files: Any) -> list[tuple[int, str, str | None]]:
    names = ("commit_version", "path", "change_type")
    return list(zip(*(files.column(name).to_pylist() for name in names), strict=True))


def test_change_files_come_instead_of_what_their_commit_added_and_removed(lake: Lake, dataset: Dataset) -> None:
    commit(lake, dataset, add("a"), add("b"), add("quiet", data_change=False))
    commit(lake, dataset, RemoveFile(path="a"), add("a2"), CdcFile(path="_change_data/c", size=7))
    commit(lake, dataset, RemoveFile(path="b"), RemoveFile(path="quiet", data_change=False))
    files = feed(lake, dataset).files(0, 3)
    assert files.schema == FEED_SCHEMA
    assert told(files) == [(1, "a", "insert"), (1, "b", "insert"), (2, "_change_data/c", None), (3, "b", "delete")]
    times = {each.version: round(each.timestamp.timestamp() * 1000) for each in dataset.history()}
    assert files.column("commit_timestamp").to_pylist() == [times[1], times[1], times[2], times[3]]
    assert files.column("size").to_pylist() == [100, 100, 7, 100]


def test_a_removed_file_is_read_as_it_was_added(lake: Lake, dataset: Dataset) -> None:
    commit(lake, dataset, add("a", deletion_vector=VECTOR, stats='{"numRecords":9}'))
    dataset.add_column("more", dataset.schema().field("id").type)
    commit(lake, dataset, RemoveFile(path="a", deletion_vector=VECTOR))
    (row,) = feed(lake, dataset).files(3, 3).to_pylist()
    assert (row["schema_version"], row["row_count"], row["change_type"]) == (0, 9, "delete")
    assert VECTOR.to_json() == row["deletion_vector"]
    assert row["only_vector"] is None


def test_a_file_that_stays_changes_where_its_vectors_differ(lake: Lake, dataset: Dataset) -> None:
    states: list[AddFile] = [add("a", stats='{"numRecords":9}')]
    states += [replace(states[0], deletion_vector=vector) for vector in (VECTOR, OTHER_VECTOR, None)]
    commit(lake, dataset, states[0])
    for before, after in pairwise(states):
        commit(lake, dataset, RemoveFile(path="a", deletion_vector=before.deletion_vector), after)
    one, other = VECTOR.to_json(), OTHER_VECTOR.to_json()
    found = [
        (row["commit_version"], row["change_type"], row["deletion_vector"], row["only_vector"])
        for row in feed(lake, dataset).files(2, 4).to_pylist()
    ]
    assert found == [
        (2, "delete", None, one),
        (3, "delete", one, other),
        (3, "insert", other, one),
        (4, "insert", None, other),
    ]


def test_a_file_that_is_added_again_is_inserted_again(lake: Lake, dataset: Dataset) -> None:
    commit(lake, dataset, add("a"))
    commit(lake, dataset, add("a"))
    assert told(feed(lake, dataset).files(0, 2)) == [(1, "a", "insert"), (2, "a", "insert")]


def test_other_tables_and_versions_are_not_in_it(lake: Lake, dataset: Dataset) -> None:
    other = table(lake, "other", properties=KEPT)
    commit(lake, other, add("a"), CdcFile(path="_change_data/x", size=1))
    for name in ("a", "b", "c"):
        commit(lake, dataset, add(name))
    assert told(feed(lake, dataset).files(2, 2)) == [(2, "b", "insert")]
    assert told(feed(lake, dataset).files(1, 2)) == [(1, "a", "insert"), (2, "b", "insert")]


def test_versions_come_in_order_and_before_the_error_for_one_that_cannot(lake: Lake, dataset: Dataset) -> None:
    commit(lake, dataset, add("a"))
    metadata = dataset.snapshot().metadata
    commit(lake, dataset, replace(metadata, configuration={}))
    commit(lake, dataset, add("b"))
    commits = feed(lake, dataset).commits(0, 3)
    assert [(version, told(files)) for version, files in (next(commits), next(commits))] == [
        (0, []),
        (1, [(1, "a", "insert")]),
    ]
    with pytest.raises(ValidationError, match="version 2: "):
        next(commits)


def test_a_long_range_takes_no_more_queries_than_a_short_one(
    lake: Lake, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        commit(lake, dataset, add(f"{number}"))
    counts = []
    found = feed(lake, dataset)
    catalog = lake.committer.catalog
    sessions = catalog.session
    found.files(1, 1)  # What it learns of the table as a whole, it learns once.
    for last in (2, 30):
        asked: list[int] = []
        monkeypatch.setattr(catalog, "session", lambda asked=asked: asked.append(get_ident()) or sessions())
        found.files(1, last)
        # The thread that looks after mirrors asks when it likes to.
        counts.append(asked.count(get_ident()))
    assert counts[0] == counts[1] <= 5


def test_a_partition_value_that_is_not_the_tables_is_refused(lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"], properties=KEPT)
    commit(lake, dataset, CdcFile(path="_change_data/c", size=1))
    with pytest.raises(ValidationError, match="not partitioned by"):
        feed(lake, dataset).files(0, 1)


@pytest.mark.parametrize("name", ["_change_type", "_Commit_Version", "_commit_timestamp"])
def test_no_column_has_the_name_of_one_of_the_feed(lake: Lake, name: str) -> None:
    schema = pa.schema([("id", pa.int64()), (name, pa.string()), ("s", pa.struct([("_change_type", pa.string())]))])
    dataset = lake.create_dataset("events", schema)
    message = f"{name}.*has the name of a column of the change feed: copy it"
    with pytest.raises(ValidationError, match=message):
        dataset.set_properties({"delta.enableChangeDataFeed": "true"})
    dataset.rename_column(name, "kind")
    with pytest.raises(ValidationError, match=f"kind: this column of the table, which files call {name}, has the name"):
        dataset.set_properties({"delta.enableChangeDataFeed": "true"})
    dataset.drop_column("kind")
    dataset.set_properties({"delta.enableChangeDataFeed": "true"})
    before = dataset.version
    with pytest.raises(ValidationError, match=message):
        dataset.add_column(name, pa.string())
    with pytest.raises(ValidationError, match=message):
        dataset.rename_column("id", name)
    with pytest.raises(ValidationError, match=message):
        lake.create_dataset("others", schema, properties=KEPT)
    assert (dataset.version, [each.name for each in lake.datasets()]) == (before, ["events"])
