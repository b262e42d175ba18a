"""Vacuum: what goes, what stays whatever happens, and what can be read afterwards."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakelog import Dataset, Lake, LakelogError, LakelogTimeoutError, ValidationError, VersionNotFoundError
from lakelog.actions import AddFile, CdcFile, DeletionVector, Metadata, Protocol, RemoveFile
from lakelog.changes.leases import LEASE, register_write, take_back
from lakelog.changes.restore import restore
from lakelog.log.deletion_vectors import FileVector
from lakelog.log.snapshot.snapshot import milliseconds_of
from lakelog.upkeep import vacuum as vacuum_module
from tests.contract.samples import commit
from tests.contract.upkeep_tables import (
    SCHEMA,
    WEEKS,
    ids,
    move_clock,
    new_file,
    numbers,
    only_path,
    put,
    rewritten,
    settle,
    there,
)
from tests.fixtures.lakes import catalog_rows, execute, qualified, rows
from tests.invariants import check_invariants
from tests.parquet import write

WRITE = f"__w={'0123456789abcdef' * 2}="
VECTORS = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "appendOnly", "invariants", "changeDataFeed"),
)


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two weeks have passed since the test's tables were written."""
    move_clock(monkeypatch, WEEKS)


def at_once(dataset: Dataset, **options: Any) -> Any:
    settle()
    return dataset.vacuum(0, force=True, **options)


# What goes


def test_a_file_that_was_removed_long_ago_goes_and_its_versions_are_refused(lake: Lake, later: None) -> None:
    events = rewritten(lake)
    before = there(events)
    old = only_path(events, 1)
    report = events.vacuum()
    assert (report.files, report.removed, report.orphans, report.failures) == (1, 1, 0, ())
    assert report.paths == (old,)
    assert report.bytes > 0
    assert before - there(events) == {old}
    assert ids(events) == [2, 10]
    for version in (1, 2):
        with pytest.raises(VersionNotFoundError, match=r"not whole: a vacuum at .* from version 3 on"):
            events.snapshot(version).files()
        with pytest.raises(VersionNotFoundError):
            events.snapshot(version).files("id = 1")
        with pytest.raises(VersionNotFoundError):
            events.count(version=version)
    assert report.oldest_version == 3
    assert events.schema(1).names == ["id"]
    assert [each.version for each in events.history()] == [3, 2, 1, 0]
    check_invariants(lake)


def test_a_version_of_which_no_file_is_gone_is_still_whole(lake: Lake) -> None:
    events = lake.create_dataset("events", SCHEMA)
    for number in (1, 2):
        write(lake, events, numbers(number))
    commit(lake, events, RemoveFile(path=only_path(events, 2)))
    assert at_once(events).oldest_version == 3
    assert ids(events, 1) == [1]
    assert ids(events, 0) == []
    with pytest.raises(VersionNotFoundError, match="not whole"):
        events.snapshot(2).files()
    write(lake, events, numbers(3))
    assert events.restore(1).version == 5
    assert ids(events) == [1]
    assert lake.clone(events, "copy", version=1).version == 0
    with pytest.raises(VersionNotFoundError, match="not whole"):
        lake.clone(events, "other", version=2)
    check_invariants(lake)
    assert lake.check("events").findings == ()


def test_what_is_left_of_a_version_is_restored_only_if_asked(lake: Lake) -> None:
    events = lake.create_dataset("events", SCHEMA)
    for number in (1, 2):
        write(lake, events, numbers(number))
    commit(lake, events, RemoveFile(path=only_path(events, 2)))
    at_once(events)
    commit(lake, events, RemoveFile(path=only_path(events, 1)))
    with pytest.raises(VersionNotFoundError, match="not whole"):
        events.restore(2)
    assert events.restore(2, ignore_missing_files=True).files_restored == 1
    assert ids(events) == [1]
    check_invariants(lake)


def test_a_file_that_was_removed_lately_stays(lake: Lake) -> None:
    events = rewritten(lake)
    before = there(events)
    report = events.vacuum()
    assert (report.files, report.oldest_version) == (0, 0)
    assert there(events) == before
    assert ids(events, 1) == [1]


def test_the_version_that_was_current_at_the_limit_is_whole(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    events = rewritten(lake)
    changed = milliseconds_of(events.history()[0].timestamp)
    week = timedelta(hours=168) // timedelta(milliseconds=1)
    monkeypatch.setattr(vacuum_module, "agreed_time", lambda *_: changed - 1 + week)
    assert events.vacuum().files == 0
    assert ids(events, 2) == [1, 2]
    monkeypatch.setattr(vacuum_module, "agreed_time", lambda *_: changed + week)
    assert events.vacuum().removed == 1
    assert ids(events, 3) == [2, 10]


def test_what_a_failed_write_left_goes_with_its_directories(lake: Lake, later: None) -> None:
    events = rewritten(lake)
    left = [f"{WRITE}/day=1/part-0.parquet", f"{WRITE}/day=1/.part-0.parquet.crc", f"{WRITE}/_temporary/0/x"]
    for path in left:
        put(events, path)
    report = events.vacuum()
    assert (report.orphans, report.removed) == (2, 1)
    assert report.directories == 4
    assert not Path(events.location, WRITE).exists()
    assert ids(events) == [2, 10]


def test_orphans_of_other_writers_go_and_what_is_not_data_stays(lake: Lake, later: None) -> None:
    events = rewritten(lake)
    put(events, "part-1.parquet")
    put(events, ".part-1.parquet.crc")
    put(events, f"deletion_vector_{'0' * 8}.bin")
    put(events, "nested/_delta_log/0.json")
    kept = {
        "README.md",
        "nested/part-2.parquet",
        "nested/day=1/part-2.parquet",
        "_lakelog/scans/1/0",
        ".hidden/x.parquet",
        "_mine/x.parquet",
        "day=1/note.txt",
    }
    for path in kept:
        put(events, path)
    assert events.vacuum().orphans == 2
    assert there(events) >= kept
    assert list(Path(events.location, "_delta_log").iterdir())


def test_a_young_orphan_stays(lake: Lake) -> None:
    events = rewritten(lake)
    put(events, f"{WRITE}/part-0.parquet")
    os.utime(Path(events.location, WRITE, "part-0.parquet"), (0, 0))  # As a copy that keeps its time has it.
    assert events.vacuum().files == 0
    assert at_once(events).orphans == 1


def test_a_checksum_goes_with_its_file(lake: Lake, later: None) -> None:
    events = rewritten(lake)
    gone = put(events, f".{only_path(events, 1)}.crc")
    kept = put(events, ".new.parquet.crc")
    report = events.vacuum()
    assert (report.files, report.removed, report.paths) == (1, 1, (only_path(events, 1),))
    assert (gone.exists(), kept.exists()) == (False, True)


def test_files_of_changed_rows_go_with_their_versions(lake: Lake, later: None) -> None:
    events = rewritten(lake)
    commit(lake, events, VECTORS)
    for number in (1, 2):
        put(events, f"_change_data/cdc-{number}.parquet")
        commit(lake, events, CdcFile(path=f"_change_data/cdc-{number}.parquet", size=1, partition_values={}))
    report = events.vacuum()
    assert set(report.paths) == {only_path(events, 1), "_change_data/cdc-1.parquet"}
    assert Path(events.location, "_change_data/cdc-2.parquet").exists()


def test_a_file_of_deletion_vectors_stays_as_long_as_one_of_them_is_needed(lake: Lake, later: None) -> None:
    events = lake.create_dataset("events", SCHEMA)
    commit(lake, events, VECTORS)
    shared = _vector("ab^-aqEH.-t@S}K{vb[*k^", 1)
    files = [new_file(events, f"{name}.parquet", 1, 2) for name in "ab"]
    bins = put(events, f"ab/{Path(_place(shared)).name}")
    commit(lake, events, *(_masked(file, _vector("ab^-aqEH.-t@S}K{vb[*k^", at)) for at, file in enumerate(files)))
    commit(lake, events, RemoveFile(path="a.parquet", deletion_vector=_vector("ab^-aqEH.-t@S}K{vb[*k^", 0)))
    assert events.vacuum().paths == ("a.parquet",)
    assert bins.exists()
    commit(lake, events, RemoveFile(path="b.parquet", deletion_vector=_vector("ab^-aqEH.-t@S}K{vb[*k^", 1)))
    settle()
    assert set(events.vacuum().paths) == {"b.parquet", f"ab/{bins.name}"}


def _vector(name: str, offset: int) -> DeletionVector:
    return DeletionVector(storage_type="u", path_or_inline_dv=name, offset=offset, size_in_bytes=4, cardinality=1)


def _place(vector: DeletionVector) -> str:
    place = FileVector(file="a", rows=None, root="file:///t", vector=vector).place
    assert place is not None
    return place


def _masked(file: AddFile, vector: DeletionVector) -> AddFile:
    return AddFile(
        path=file.path, size=file.size, modification_time=0, deletion_vector=vector, stats='{"numRecords":2}'
    )


# What stays


def test_a_write_in_flight_is_not_harmed_until_its_lease_is_over(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    events = rewritten(lake)
    register_write(lake.committer, events.location, WRITE)
    file = put(events, f"{WRITE}/part-0.parquet")
    settle()
    report = at_once(events)
    assert (report.in_flight, report.orphans, report.writes_in_flight) == (1, 0, (WRITE,))
    assert file.exists()
    move_clock(monkeypatch, LEASE + timedelta(seconds=1))
    assert at_once(events).orphans == 1
    assert not file.exists()
    assert rows(lake, "dl_writes") == []


def test_only_who_takes_a_lease_back_knows_that_nothing_was_committed(lake: Lake) -> None:
    events = rewritten(lake)
    register_write(lake.committer, events.location, WRITE)
    assert [row["directory"] for row in rows(lake, "dl_writes")] == [WRITE]
    assert take_back(lake.committer, WRITE)
    assert rows(lake, "dl_writes") == []
    assert not take_back(lake.committer, WRITE)


def test_a_file_that_is_committed_between_listing_and_deletion_stays(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = rewritten(lake)
    late = new_file(events, f"{WRITE}/late.parquet", 7)
    settle()
    list_files = vacuum_module.list_files

    def list_then_commit(root: str) -> Any:
        listing = list_files(root)
        commit(other_lake, other_lake.dataset("events"), late)
        return listing

    monkeypatch.setattr(vacuum_module, "list_files", list_then_commit)
    assert events.vacuum(0, force=True).orphans == 0
    assert ids(events) == [2, 7, 10]


def test_a_file_that_is_added_again_before_the_deletion_stays(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = rewritten(lake)
    old = only_path(events, 1)
    size = Path(events.location, old).stat().st_size
    announce = vacuum_module._Vacuum._announce

    def announce_then_commit(self: Any, oldest: int) -> str:
        registration = announce(self, oldest)
        commit(other_lake, other_lake.dataset("events"), AddFile(path=old, size=size, modification_time=0))
        return registration

    monkeypatch.setattr(vacuum_module._Vacuum, "_announce", announce_then_commit)
    assert at_once(events).files == 0
    assert ids(events) == [1, 2, 10]


def test_a_file_that_was_removed_and_added_again_stays(lake: Lake, later: None) -> None:
    events = rewritten(lake)
    old = only_path(events, 1)
    commit(lake, events, new_file(events, old, 1))
    settle()
    assert events.vacuum().files == 0
    assert ids(events) == [1, 2, 10]


def test_nothing_outside_of_the_location_is_touched(lake: Lake, later: None, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    files = [outside / name for name in ("linked.parquet", "named.parquet", "target.parquet")]
    for file in files:
        file.write_text("mine")
    events = rewritten(lake)
    Path(events.location, "link").symlink_to(outside, target_is_directory=True)
    Path(events.location, "target.parquet").symlink_to(files[2])
    for path in ("link/linked.parquet", "target.parquet"):
        commit(lake, events, AddFile(path=path, size=4, modification_time=0))
        commit(lake, events, RemoveFile(path=path))
    commit(lake, events)
    settle()
    assert events.vacuum().paths == (only_path(events, 1),)
    assert all(file.exists() for file in files)
    assert Path(events.location, "target.parquet").is_symlink()


def test_a_directory_that_becomes_a_link_in_between_is_not_followed(
    lake: Lake, later: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "part-0.parquet").write_text("mine")
    events = rewritten(lake)
    put(events, f"{WRITE}/part-0.parquet")
    list_files = vacuum_module.list_files

    def list_then_link(root: str) -> Any:
        listing = list_files(root)
        Path(root, WRITE).rename(tmp_path / "moved")
        Path(root, WRITE).symlink_to(outside, target_is_directory=True)
        return listing

    monkeypatch.setattr(vacuum_module, "list_files", list_then_link)
    report = events.vacuum()
    assert report.failures == (f"{WRITE}/part-0.parquet: its directory is no longer where it was",)
    assert (outside / "part-0.parquet").exists()


def test_files_that_another_table_names_by_absolute_paths_stay(lake: Lake, later: None) -> None:
    events = rewritten(lake)
    old = only_path(events, 1)
    clone = lake.create_dataset("clone", SCHEMA)
    _add_absolute(lake, clone, f"file://{events.location}/{old}")
    assert events.vacuum().files == 0
    assert ids(events, 1) == [1]


def _add_absolute(lake: Lake, dataset: Dataset, path: str) -> None:
    """As an import of a shallow clone leaves it."""
    commit(lake, dataset, AddFile(path="x.parquet", size=1, modification_time=0))
    execute(lake, f"UPDATE {qualified(lake, 'dl_add_files')} SET path = '{path}' WHERE path = 'x.parquet'")


def test_a_clone_that_was_dropped_needs_nothing(lake: Lake) -> None:
    events = rewritten(lake)
    lake.clone(events, "copy", version=2)
    first = only_path(events, 1)
    assert at_once(events).files == 0
    lake.drop_dataset("copy")
    assert at_once(events).paths == (first,)


def test_a_location_that_is_two_tables_by_a_link_is_refused(lake: Lake, later: None, tmp_path: Path) -> None:
    events = rewritten(lake)
    lake.create_dataset("alias", SCHEMA, location=str(tmp_path / "alias/inside"), mirror=False)
    (tmp_path / "alias").symlink_to(events.location, target_is_directory=True)
    before = there(events)
    with pytest.raises(LakelogError, match="same place by a symbolic link"):
        events.vacuum()
    assert there(events) == before


def test_files_that_were_there_before_a_table_was_made_of_others_stay(lake: Lake, later: None, tmp_path: Path) -> None:
    for name in ("2025-a", "2026-a"):
        (tmp_path / "raw").mkdir(exist_ok=True)
        pq.write_table(numbers(1), tmp_path / "raw" / f"{name}.parquet")
    raw = lake.register_parquet(tmp_path / "raw" / "2026-*.parquet", "raw")
    put(raw, f"{WRITE}/part-0.parquet")
    settle()
    assert raw.vacuum().paths == (f"{WRITE}/part-0.parquet",)
    assert (tmp_path / "raw" / "2025-a.parquet").exists()


@pytest.mark.parametrize("engine", ["Lakelog", "Other"])
def test_a_table_whose_log_has_more_commits_than_the_catalog_is_refused(lake: Lake, later: None, engine: str) -> None:
    events = rewritten(lake)
    put(events, f"{WRITE}/of-a-lost-commit.parquet")
    mark = '"lakelog":"1",' if engine == "Lakelog" else ""
    lost = f'{{"commitInfo":{{"operation":"WRITE",{mark}"engineInfo":"{engine}"}}}}\n'
    put(events, f"_delta_log/{4:020}.json", lost)
    before = there(events)
    with pytest.raises(LakelogError, match="may have commits that the catalog does not have"):
        events.vacuum()
    assert there(events) == before


def test_a_write_waits_to_register_and_does_not_wait_to_take_that_back(
    lake: Lake, connect: Callable[..., Lake], backend: str
) -> None:
    events = rewritten(lake)
    register_write(lake.committer, events.location, WRITE)
    impatient = connect(timeout=0.3)
    holder = lake.committer.catalog.begin([events.id], "holder", 10)
    try:
        lake.committer.lock(holder, events.id, None)
        before = time.monotonic()
        # On PostgreSQL a table's lock concerns only its commits.
        with nullcontext() if backend == "postgres" else pytest.raises(LakelogTimeoutError):
            _in_thread(lambda: register_write(impatient.committer, events.location, "__w=other="))
        _in_thread(lambda: take_back(impatient.committer, WRITE))
        assert time.monotonic() - before < 5
    finally:
        holder.rollback()
    found = [row["directory"] for row in rows(lake, "dl_writes")]
    assert found == (["__w=other="] if backend == "postgres" else [WRITE])


def _in_thread(do: Callable[[], object]) -> None:
    with ThreadPoolExecutor(1) as thread:
        thread.submit(do).result(30)


# How it is asked for


@pytest.mark.parametrize(
    ("hours", "interval", "problem"),
    [
        (1, None, "168 hours is the least that is safe"),
        (24, "interval 2 days", "48 hours is what the table asks for"),
        (200, "interval 30 days", "720 hours is what the table asks for"),
        (None, "interval 1 month", "is no interval"),
        (-1, None, "a number of hours"),
        (float("nan"), None, "a number of hours"),
        ("7", None, "a number of hours"),
    ],
)
def test_a_retention_that_is_not_safe_is_refused(
    lake: Lake, later: None, hours: Any, interval: str | None, problem: str
) -> None:
    events = rewritten(lake)
    if interval is not None:
        # As of a table that came from elsewhere: our own doors take no nonsense.
        properties = {"delta.deletedFileRetentionDuration": interval}
        commit(lake, events, replace(events.snapshot().metadata, configuration=properties))
    before = there(events)
    with pytest.raises(ValidationError, match=problem):
        events.vacuum(hours)
    assert there(events) == before


@pytest.mark.parametrize(
    ("interval", "files"), [("interval 1 week", 1), ("interval 2 days 12 hours", 1), ("30 days", 0), ("0 hours", 1)]
)
def test_the_tables_property_says_how_long_files_are_kept(lake: Lake, later: None, interval: str, files: int) -> None:
    events = rewritten(lake, properties={"delta.deletedFileRetentionDuration": interval})
    assert events.vacuum().files == files


def test_a_dry_run_says_what_would_go_and_changes_nothing(lake: Lake, later: None) -> None:
    events = rewritten(lake)
    put(events, f"{WRITE}/part-0.parquet")
    before, known = there(events), catalog_rows(lake)
    report = events.vacuum(dry_run=True)
    assert (report.dry_run, report.files, report.removed, report.orphans) == (True, 2, 1, 1)
    assert there(events) == before
    assert catalog_rows(lake) == known
    assert events.vacuum().paths == report.paths


def test_a_second_vacuum_finds_nothing(lake: Lake, later: None) -> None:
    events = rewritten(lake)
    assert events.vacuum().files == 1
    again = events.vacuum()
    assert (again.files, again.oldest_version) == (0, 3)


def test_a_table_that_is_not_on_a_disk_is_refused(lake: Lake) -> None:
    far = lake.create_dataset("far", SCHEMA, location="s3://bucket/far", mirror=False)
    with pytest.raises(LakelogError, match="local disks"):
        far.vacuum()


def test_an_overwritten_table_is_vacuumed_to_its_head(lake: Lake, later: None, reopen: Callable[[Lake], Lake]) -> None:
    events = rewritten(lake)
    for number in range(20, 25):
        gone = events.snapshot().files(columns=["path"]).column("path").to_pylist()
        write(lake, events, numbers(number))
        commit(lake, events, *(RemoveFile(path=path) for path in gone))
    settle()
    assert events.vacuum().removed == 7
    events = reopen(lake).dataset("events")
    assert ids(events) == [24]
    assert len(there(events)) == 1
    with pytest.raises(VersionNotFoundError):
        events.snapshot(events.version - 1).files()


def test_metadata_that_changes_takes_no_file(lake: Lake, later: None) -> None:
    events = rewritten(lake)
    state = events.snapshot().metadata
    commit(lake, events, Metadata(id=state.id, schema_string=state.schema_string, configuration={"a": "b"}))
    assert events.vacuum().removed == 1
    assert ids(events) == [2, 10]


def test_a_restoration_that_a_vacuum_overtakes_is_refused(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has seen its files, which go before it is committed."""
    dataset = rewritten(lake)
    old, now = dataset.snapshot(1), dataset.snapshot()
    commit_drafts = lake.committer.commit

    def overtaken(*arguments: Any, **options: Any) -> Any:
        with monkeypatch.context() as patched:
            move_clock(patched, WEEKS)
            assert other_lake.dataset("events").vacuum().removed == 1
        return commit_drafts(*arguments, **options)

    monkeypatch.setattr(lake.committer, "commit", overtaken)
    with pytest.raises(ValidationError, match="of version 1: may be vacuumed"):
        restore(lake.committer, dataset.location, old, now, {})
    assert dataset.version == now.version
    check_invariants(lake)
