"""Upkeep beside other engines: tables that came from delta-rs, and what delta-rs reads afterwards."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakelog
from lakelog import Lake
from tests.contract.samples import commit
from tests.contract.upkeep_tables import ids, move_clock, numbers, rewritten, settle, there
from tests.interop.readers import rows_by_delta_rs


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lakelog.connect(f"sqlite:///{tmp_path}/catalog.db", root=tmp_path / "lake") as lake:
        yield lake


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A Delta table with a history: appends, a checkpoint, a delete that rewrites files, a compaction."""
    place = str(tmp_path / "source")
    for number in range(4):
        write_deltalake(place, pa.table({"id": [number, number + 10]}), mode="append")
    DeltaTable(place).create_checkpoint()
    DeltaTable(place).delete("id = 1")
    DeltaTable(place).optimize.compact()
    settle()
    return place


def read(place: str, version: int | None = None) -> list[int]:
    return sorted(row["id"] for row in rows_by_delta_rs(place, version))


@pytest.mark.parametrize("history", [True, False])
def test_a_table_that_was_imported_is_sound(lake: Lake, source: str, history: bool) -> None:
    dataset = lake.import_delta(source, "events", history=history).dataset
    assert dataset is not None
    assert lake.check("events", deep=True).findings == ()
    commit(lake, dataset)
    assert lake.check("events", repair=True, deep=True).findings == ()


@pytest.mark.parametrize("history", [True, False])
def test_what_was_removed_before_an_import_stays_for_the_retention_and_then_goes(
    lake: Lake, source: str, history: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = lake.import_delta(source, "events", history=history).dataset
    assert dataset is not None
    expected = read(source)
    before = there(dataset)
    assert dataset.vacuum().files == 0
    move_clock(monkeypatch, timedelta(days=8))
    report = dataset.vacuum()
    assert (report.removed, report.orphans) == ((5, 0) if history else (0, 5))
    assert len(there(dataset)) == len(before) - 5 == 1
    assert read(source) == expected
    assert lake.check("events", deep=True).findings == ()


def test_an_imported_table_expires(lake: Lake, source: str) -> None:
    dataset = lake.import_delta(source, "events").dataset
    assert dataset is not None
    expected = [read(source, version) for version in (4, 5)]
    assert dataset.expire_versions(keep_last=2).first_version == 4
    assert [read(source, version) for version in (4, 5)] == expected
    assert lake.check("events", deep=True).findings == ()


@pytest.mark.parametrize("lost", [False, True])
def test_other_readers_see_the_versions_that_have_not_expired(lake: Lake, lost: bool) -> None:
    events = rewritten(lake)
    events.expire_versions(keep_last=2)
    commit(lake, events)
    if lost:
        shutil.rmtree(Path(events.location, "_delta_log"))
        events.mirror()
    assert [read(events.location, version) for version in (2, 3, 4)] == [ids(events, version) for version in (2, 3, 4)]
    write_deltalake(events.location, numbers(50), mode="append")
    assert events.adopt() == 5
    assert ids(events) == [2, 10, 50]
