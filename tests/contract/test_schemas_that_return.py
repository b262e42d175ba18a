"""Columns that went and came back: a file shows what it holds, whatever schemas lie between."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelog
from lakelog import Dataset, Lake
from lakelog.actions import RemoveFile
from tests.contract.evolution import data, ids
from tests.contract.samples import commit
from tests.fixtures.lakes import execute, qualified
from tests.invariants import check_invariants
from tests.parquet import read, write

POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema([("id", pa.int32()), ("name", pa.string()), ("point", POINT), ("at", pa.timestamp("us", "UTC"))])
ROWS = {
    "name": ["a"],
    "point": pa.array([{"x": 2**31 - 1, "y": "é"}], POINT),
    "at": pa.array([datetime(2026, 10, 25, 0, 30, tzinfo=UTC)], pa.timestamp("us", "UTC")),
}


def rows(dataset: Dataset) -> list[Any]:
    return sorted(read(dataset.snapshot(), dataset.location).to_pylist(), key=str)


def check_search(dataset: Dataset) -> None:
    """Every file holds the value, whether it was recorded with the column or without it."""
    everything = dataset.snapshot().files().num_rows
    for condition in ("name = 'a'", "name <> 'b'", "name IS NOT NULL", f"point.x = {2**31 - 1}", "point.y = 'é'"):
        assert dataset.snapshot().files(condition).num_rows == everything, condition


def filled(lake: Lake, name: str, **options: Any) -> Dataset:
    dataset = lake.create_dataset(name, SCHEMA, **options)
    write(lake, dataset, data(id=ids(1), **ROWS))
    return dataset


def evolve(dataset: Dataset) -> None:
    """Takes columns away, also inside of one that stays, and widens what is left."""
    dataset.drop_column("name")
    dataset.drop_column("point.y")
    dataset.widen_column("point.x", pa.int64())
    dataset.widen_column("id", pa.int64())


@pytest.fixture
def restored(tmp_path: Path) -> Dataset:
    """A mirrored table of another catalog, whose latest version is what its second one was."""
    lake = lakelog.connect(f"sqlite:///{tmp_path}/elsewhere.db", root=str(tmp_path / "elsewhere"), mirror="sync")
    dataset = filled(lake, "events")
    evolve(dataset)
    dataset.restore(1)
    write(lake, dataset, data(id=ids(2), **ROWS))
    assert len(rows(dataset)) == 2
    return dataset


def whole(lake: Lake, place: str, restored: Dataset) -> Dataset:
    found = lake.import_delta(place, "events", history=True).dataset
    assert found is not None
    return found


def adopted(lake: Lake, place: str, restored: Dataset, *, history: bool = True) -> Dataset:
    """Imported as it was before the restoration."""
    found = lake.import_delta(place, "events", up_to_version=restored.version - 2, history=history).dataset
    assert found is not None
    found.adopt()
    return found


def adopted_without_history(lake: Lake, place: str, restored: Dataset) -> Dataset:
    """No schema that had the columns is known before they return."""
    return adopted(lake, place, restored, history=False)


REPLAYS = [whole, adopted, adopted_without_history]


@pytest.mark.parametrize("replay", REPLAYS)
def test_a_restoration_that_is_replayed_shows_what_it_restored(
    lake: Lake, restored: Dataset, tmp_path: Path, replay: Callable[[Lake, str, Dataset], Dataset]
) -> None:
    place = str(tmp_path / "copy")
    shutil.copytree(restored.location, place)
    dataset = replay(lake, place, restored)
    assert dataset.version == restored.version
    assert rows(dataset) == rows(restored)
    check_search(dataset)
    if replay is not adopted_without_history:
        # Its first version is a whole table, and the log's file of that number one commit.
        check_invariants(lake)


@pytest.mark.parametrize("replay", [whole, adopted])
def test_a_file_is_read_as_it_is_though_nothing_says_that_a_schema_returned(
    lake: Lake, restored: Dataset, tmp_path: Path, replay: Callable[[Lake, str, Dataset], Dataset]
) -> None:
    """As in a catalog whose import did not mark the schema: its first files have all columns of the last."""
    place = str(tmp_path / "copy")
    shutil.copytree(restored.location, place)
    dataset = replay(lake, place, restored)
    newest = dataset.snapshot().state.metadata.schema_version
    execute(lake, f"UPDATE {qualified(lake, 'schema_versions')} SET merge = NULL WHERE version = {newest}")
    assert rows(dataset) == rows(restored)


def found_in_files(lake: Lake, **options: bool) -> list[str]:
    return [each.message for each in lake.check("events", **options).findings if each.invariant == 5]


@pytest.mark.parametrize("replay", REPLAYS)
def test_the_check_finds_columns_that_a_replay_hides(
    lake: Lake, restored: Dataset, tmp_path: Path, replay: Callable[[Lake, str, Dataset], Dataset]
) -> None:
    """As in a catalog whose import did not mark the schema, and whose file was recorded without the columns."""
    place = str(tmp_path / "copy")
    shutil.copytree(restored.location, place)
    dataset = replay(lake, place, restored)
    assert found_in_files(lake) == []
    newest = dataset.snapshot().state.metadata.schema_version
    files, schemas = (qualified(lake, name) for name in ("dl_add_files", "schema_versions"))
    execute(
        lake,
        f"UPDATE {schemas} SET merge = NULL WHERE version = {newest}",
        f"UPDATE {files} SET schema_version = {newest - 1} WHERE schema_version < {newest}",
    )
    hidden = [row for row in rows(dataset) if row["name"] is None]
    assert [row["point"] for row in hidden] == [{"x": 2**31 - 1, "y": None}]
    (found,) = found_in_files(lake)
    assert "has the columns name, point.y of the table, and they are read as NULL" in found
    assert found_in_files(lake, deep=False) == []


def narrow(dataset: Dataset, lake: Lake) -> None:
    evolve(dataset)


def text(dataset: Dataset, lake: Lake) -> None:
    """Times as text, that a reader would take for times of its own zone."""
    evolve(dataset)
    arriving = data(
        id=ids(9, type=pa.int64()), point=pa.array([{"x": 1}], pa.struct([("x", pa.int64())])), at=["never"]
    )
    write(lake, dataset, arriving, schema_merge=True, promote_to_string=True)


@pytest.mark.parametrize("change", [narrow, text])
def test_a_clone_that_is_replaced_shows_its_source(lake: Lake, change: Callable[[Dataset, Lake], None]) -> None:
    source = filled(lake, "source", mirror=False)
    clone = source.clone("copy")
    change(clone, lake)
    assert source.clone("copy", replace=True).version == clone.version
    assert rows(clone) == rows(source)
    check_search(clone)
    check_invariants(lake)


def test_a_clone_that_goes_back_to_an_older_version_of_its_source_shows_it(lake: Lake) -> None:
    """The clone never had the column that comes back."""
    source = filled(lake, "source", mirror=False)
    before = rows(source)
    evolve(source)
    clone = source.clone("copy")
    source.clone("copy", version=1, replace=True)
    assert rows(clone) == before
    check_search(clone)
    clone.restore(0)
    assert rows(clone) == rows(source)
    clone.restore(1)
    assert rows(clone) == before
    check_invariants(lake)


def test_a_restored_file_keeps_its_schema_when_the_versions_that_had_it_expire(lake: Lake) -> None:
    """The row that first added it goes with them, and so does all metadata of its schema."""
    dataset = filled(lake, "events", mirror=False)
    before = rows(dataset)
    text(dataset, lake)
    version = dataset.version
    shown = rows(dataset)
    commit(lake, dataset, *(RemoveFile(path=path) for path in dataset.snapshot().files().column("path").to_pylist()))
    removed = dataset.version
    dataset.set_properties({"a.b": "between"})
    dataset.restore(version)
    restored = dataset.version
    dataset.restore(1)
    for first in range(removed, dataset.version + 1):
        dataset.expire_versions(keep_last=dataset.version - first + 1)
        assert dataset.first_version == first
        check_invariants(lake)
        assert lake.check("events").findings == ()
        if first <= restored:
            assert sorted(read(dataset.snapshot(restored), dataset.location).to_pylist(), key=str) == shown
        assert rows(dataset) == before
