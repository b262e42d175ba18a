"""Going back to an older version: the rows that were there, as they were, whatever happened to the columns since."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog import ConcurrencyError, Dataset, Lake, LakelogError, ValidationError, VersionConflict
from lakelog.actions import DeletionVector, Protocol, RemoveFile, Txn
from lakelog.changes.restore import restore
from tests.contract.evolution import SCHEMA, data, everything, ids
from tests.contract.samples import add, commit, paths, stats, table
from tests.fixtures.lakes import rows
from tests.fixtures.vectors import delete, deleted_rows
from tests.invariants import check_invariants
from tests.parquet import read, write


def shown(dataset: Dataset, version: int | None = None) -> list[dict[str, Any]]:
    return sorted(read(dataset.snapshot(version), dataset.location).to_pylist(), key=str)


def emptied(lake: Lake, dataset: Dataset) -> None:
    """Every file removed, so that nothing that is restored was there all along."""
    commit(lake, dataset, *(RemoveFile(path=path) for path in paths(dataset.snapshot().files())))


def with_vectors(lake: Lake) -> Dataset:
    """A table that takes deletion vectors, with a file of the ids 1 to 3."""
    dataset = lake.create_dataset("events", SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    place = Path(dataset.location, "a.parquet")
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data(id=ids(1, 2, 3), name=["a", "b", "c"]), place)
    commit(lake, dataset, add(place.name, size=place.stat().st_size, stats=stats(3, id=(1, 3))))
    return dataset


Change = Callable[[Lake, Dataset], Any]

CHANGES: dict[str, Change] = {
    "appended": lambda lake, dataset: write(lake, dataset, data(id=ids(7), name=["later"])),
    "emptied": emptied,
    "a column added": lambda lake, dataset: write(
        lake, dataset, data(id=ids(7), name=["x"], more=["y"]), schema_merge=True
    ),
    "a column widened": lambda lake, dataset: dataset.widen_column("id", pa.int64()),
    "a column widened and used": lambda lake, dataset: write(
        lake, dataset, data(id=pa.array([1 << 40]), name=["wide"]), schema_merge=True
    ),
    "a column renamed": lambda lake, dataset: dataset.rename_column("name", "title"),
    "a column dropped": lambda lake, dataset: dataset.drop_column("name"),
    "a column became text": lambda lake, dataset: write(
        lake, dataset, data(id=["text"], name=["x"]), schema_merge=True, promote_to_string=True
    ),
}


@pytest.mark.parametrize("mirror", [True, False])
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_rows_are_what_they_were_whatever_happened_since(lake: Lake, name: str, empty: bool, mirror: bool) -> None:
    dataset = lake.create_dataset("events", SCHEMA, mirror=mirror)
    write(lake, dataset, data(id=ids(1, 2), name=["a", "b"]))
    write(lake, dataset, data(id=ids(3)))
    before, schema, properties = shown(dataset), dataset.schema(), dict(dataset.snapshot().metadata.configuration)
    CHANGES[name](lake, dataset)
    if empty and name != "emptied":
        emptied(lake, dataset)
    changed = shown(dataset)

    result = dataset.restore(2)

    assert (result.version, result.restored_version) == (dataset.version, 2)
    assert shown(dataset) == before
    assert dataset.schema().equals(schema, check_metadata=True)
    assert dict(dataset.snapshot().metadata.configuration) == properties
    assert shown(dataset, 2) == before
    assert shown(dataset, dataset.version - 1) == changed
    check_invariants(lake)


@pytest.mark.parametrize("name", CHANGES)
def test_a_restoration_is_restored_too_and_the_table_goes_on(lake: Lake, name: str) -> None:
    dataset = lake.create_dataset("events", SCHEMA)
    write(lake, dataset, data(id=ids(1, 2), name=["a", "b"]))
    before = shown(dataset)
    CHANGES[name](lake, dataset)
    changed, schema = shown(dataset), dataset.schema()
    version = dataset.version
    dataset.restore(1)
    write(lake, dataset, data(id=ids(9), name=["new"], extra=ids(5)), schema_merge=True)
    assert len(shown(dataset)) == len(before) + 1
    assert {row["extra"] for row in shown(dataset)} == {None, 5}
    branch = shown(dataset)
    grown = dataset.version

    dataset.restore(version)
    assert shown(dataset) == changed
    assert dataset.schema().equals(schema, check_metadata=True)
    dataset.restore(grown)
    assert shown(dataset) == branch
    dataset.restore(0)
    assert shown(dataset) == []
    check_invariants(lake)


def test_statistics_and_row_groups_come_back_and_still_prune(lake: Lake) -> None:
    dataset = table(lake)
    first, second = (add(path, stats=stats(3, id=(low, low + 9))) for path, low in (("a", 0), ("b", 100)))
    commit(lake, dataset, first, second)
    _present(dataset, "a", "b")
    commit(lake, dataset, RemoveFile(path="a"), RemoveFile(path="b"))
    dataset.widen_column("id", pa.decimal128(20, 0))

    dataset.restore(1)

    assert paths(dataset.snapshot().files("id < 50")) == ["a"]
    assert dataset.snapshot().files().sort_by("path").column("stats").to_pylist() == [first.stats, second.stats]
    check_invariants(lake)


def test_statistics_for_other_types_keep_a_file(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add("old", stats=stats(3, id=(0, 9))))
    _present(dataset, "old")
    dataset.widen_column("id", pa.decimal128(20, 0))
    commit(lake, dataset, RemoveFile(path="old"))
    dataset.restore(2)
    assert paths(dataset.snapshot().files("id > 50")) == ["old"]
    assert dataset.snapshot().files().column("schema_version").to_pylist() == [0]
    check_invariants(lake)


def test_statistics_from_before_a_column_became_text_keep_a_file(lake: Lake) -> None:
    dataset = table(lake, mirror=False)
    commit(lake, dataset, add("old", stats=stats(3, id=(1, 9), name=("a", "b"))))
    _present(dataset, "old")
    write(lake, dataset, data(id=["x"]), schema_merge=True, promote_to_string=True)
    emptied(lake, dataset)
    dataset.restore(2)
    assert "old" in paths(dataset.snapshot().files("id = '5'"))
    assert "old" in paths(dataset.snapshot().files("id = 'x'"))
    assert sorted(dataset.snapshot().files().column("schema_version").to_pylist()) == [0, 1]
    check_invariants(lake)


def test_a_deletion_vector_is_what_it_was(lake: Lake) -> None:
    dataset = with_vectors(lake)
    delete(lake, dataset, "id", {2})
    delete(lake, dataset, "id", {2, 3})

    def deleted() -> set[int]:
        return deleted_rows(dataset, dataset.snapshot().files().to_pylist()[0])

    assert deleted() == {1, 2}
    dataset.restore(2)
    assert deleted() == {1}
    dataset.restore(1)
    assert dataset.snapshot().files().column("deletion_vector").to_pylist() == [None]
    dataset.restore(3)
    assert deleted() == {1, 2}
    check_invariants(lake)


def test_the_history_says_it_in_deltas_words(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add("a", size=10), add("b", size=20))
    _present(dataset, "a", "b")
    commit(lake, dataset, RemoveFile(path="a"), add("c", size=5))
    result = dataset.restore(1)
    entry = dataset.history(1)[0]
    assert (entry.operation, entry.operation_parameters) == ("RESTORE", {"version": 1, "timestamp": None})
    assert result.metrics == {
        "tableSizeAfterRestore": 30,
        "numOfFilesAfterRestore": 2,
        "numRemovedFiles": 1,
        "numRestoredFiles": 1,
        "removedFilesSize": 5,
        "restoredFilesSize": 10,
    }
    assert entry.extra["operationMetrics"] == {name: str(value) for name, value in result.metrics.items()}
    assert (result.files_restored, result.files_removed) == (1, 1)


def test_a_time_is_the_version_that_was_there_then(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add("a"))
    _present(dataset, "a")
    then = dataset.history(1)[0].timestamp
    commit(lake, dataset, RemoveFile(path="a"))
    assert dataset.restore(timestamp=then).restored_version == 1
    assert paths(dataset.snapshot().files()) == ["a"]
    assert dataset.history(1)[0].operation_parameters == {"version": None, "timestamp": then.isoformat()}


def test_a_table_that_is_like_it_already_gets_no_version(lake: Lake) -> None:
    dataset = table(lake)
    assert dataset.restore(0).version is None
    commit(lake, dataset, Txn(app_id="app", version=1))
    assert dataset.restore(0).version is None
    assert (dataset.version, lake.txn_version("events", "app")) == (1, 1)


def test_files_that_are_gone_are_named_and_nothing_changes(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add("gone", size=7), add("there", size=9))
    _present(dataset, "there")
    commit(lake, dataset, RemoveFile(path="gone"), RemoveFile(path="there"))
    before = everything(lake, dataset)
    with pytest.raises(LakelogError, match=r"1 files of version 1 are gone.*gone"):
        dataset.restore(1)
    assert everything(lake, dataset) == before
    result = dataset.restore(1, ignore_missing_files=True)
    assert paths(dataset.snapshot().files()) == ["there"]
    assert (result.metrics["numOfFilesAfterRestore"], result.metrics["tableSizeAfterRestore"]) == (1, 9)


def test_a_vector_that_is_gone_is_a_file_that_is_gone(lake: Lake) -> None:
    dataset = with_vectors(lake)
    delete(lake, dataset, "id", {2})
    vectors = list(Path(dataset.location).rglob("deletion_vector_*.bin"))
    file = dataset.snapshot().files().to_pylist()[0]
    commit(
        lake, dataset, RemoveFile(path=file["path"], deletion_vector=DeletionVector.from_json(file["deletion_vector"]))
    )
    assert vectors
    vectors[0].unlink()
    with pytest.raises(LakelogError, match="are gone"):
        dataset.restore(2)


def test_the_protocol_is_never_lowered(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, Protocol(min_reader_version=2, min_writer_version=5))
    dataset.rename_column("name", "title")
    raised = dataset.snapshot().protocol
    dataset.restore(0)
    assert dataset.snapshot().protocol == raised
    assert dataset.schema().names == ["id", "day", "name"]


def test_ids_of_columns_are_never_used_again(lake: Lake) -> None:
    dataset = lake.create_dataset("events", SCHEMA, properties={"delta.columnMapping.mode": "name"})
    dataset.add_column("more", pa.string())
    largest = dataset.snapshot().metadata.configuration["delta.columnMapping.maxColumnId"]
    dataset.restore(0)
    assert dataset.snapshot().metadata.configuration["delta.columnMapping.maxColumnId"] == largest
    dataset.add_column("other", pa.string())
    used = int(dataset.snapshot().metadata.configuration["delta.columnMapping.maxColumnId"])
    assert used == int(largest) + 1
    check_invariants(lake)


@pytest.mark.parametrize("arguments", [{}, {"version": 1, "timestamp": 5}, {"version": "1"}])
def test_a_restoration_names_one_version(lake: Lake, arguments: dict[str, Any]) -> None:
    dataset = table(lake)
    with pytest.raises(ValidationError):
        dataset.restore(**arguments)


def test_an_append_only_table_keeps_its_rows(lake: Lake) -> None:
    dataset = table(lake, properties={"delta.appendOnly": "true"})
    commit(lake, dataset, add("a"))
    with pytest.raises(ValidationError, match="append-only"):
        dataset.restore(0)


@pytest.mark.parametrize("retries", [0, 1])
def test_rows_that_came_meanwhile_are_not_lost_silently(lake: Lake, other_lake: Lake, retries: int) -> None:
    dataset = table(lake)
    commit(lake, dataset, add("a"))
    commit(lake, dataset, add("b"))
    old, now = dataset.snapshot(1), dataset.snapshot()
    commit(other_lake, dataset, add("c"))
    with pytest.raises(ConcurrencyError if retries else VersionConflict):
        restore(lake.committer, dataset.location, old, now, {}, retries=retries)
    assert paths(dataset.snapshot().files()) == ["a", "b", "c"]
    commit(other_lake, dataset, Txn(app_id="app", version=1))
    now = dataset.snapshot(3)
    if retries:
        restore(lake.committer, dataset.location, old, now, {}, retries=retries)
        assert paths(dataset.snapshot().files()) == ["a"]
    check_invariants(lake)


def test_many_files_come_back(lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"])
    many = [add(f"{n}.parquet", partition_values={"day": f"2026-01-{n % 28 + 1:02}"}) for n in range(300)]
    commit(lake, dataset, *many)
    _present(dataset, *(each.path for each in many))
    commit(lake, dataset, *(RemoveFile(path=each.path) for each in many))
    dataset.restore(1)
    assert len(rows(lake, "dl_add_files", removed_version=None)) == 300
    assert len(paths(dataset.snapshot().files("day = DATE'2026-01-03'"))) == 11
    check_invariants(lake)


def _present(dataset: Dataset, *names: str) -> None:
    for name in names:
        (Path(dataset.location) / name).parent.mkdir(parents=True, exist_ok=True)
        (Path(dataset.location) / name).touch()
