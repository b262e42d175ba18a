"""The check of a dataset: it finds what is broken, says which versions that concerns, and mends only what is safe."""

import os
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog import Dataset, Lake, LakelogError, RowGroup, ValidationError, connect
from lakelog.actions import AddFile, CdcFile, RemoveFile, Txn
from lakelog.changes.leases import register_write
from lakelog.log.deletion_vectors import VectorFile
from lakelog.mirror.checkpoint import write_checkpoint
from lakelog.storage.log_store import LocalStore, log_store
from lakelog.upkeep.check.catalog import catalog_findings
from lakelog.upkeep.check.checkpoints import CheckpointCheck
from lakelog.upkeep.check.findings import CheckReport
from tests.contract.samples import commit, stats
from tests.contract.upkeep_tables import SCHEMA, ids, new_file, only_path, rewritten, settle
from tests.fixtures.lakes import execute, qualified, rows
from tests.invariants import check_invariants


def messages(report: CheckReport) -> list[str]:
    return list(map(str, report.findings))


def log_file(dataset: Dataset, version: int) -> Path:
    return Path(dataset.location, "_delta_log", f"{version:020}.json")


@pytest.mark.parametrize("deep", [False, True])
@pytest.mark.parametrize("mirror", [True, False])
def test_a_sound_dataset_has_no_findings(lake: Lake, deep: bool, mirror: bool) -> None:
    events = rewritten(lake, mirror=mirror)
    report = lake.check("events", deep=deep)
    assert (report.findings, report.is_sound) == ((), True)
    assert (report.version, report.first_version, report.files) == (3, 0, 3)
    events.expire_versions(keep_last=2)
    events.vacuum(0, force=True)
    assert lake.check("events", repair=True, deep=deep).findings == ()


def test_commits_that_come_meanwhile_are_not_findings(lake: Lake, other_lake: Lake) -> None:
    events = rewritten(lake)
    catalog = lake.committer.catalog
    with catalog.session() as session:
        head = lake.committer.head(session, events.id)
    commit(other_lake, other_lake.dataset("events"), RemoveFile(path="new.parquet"))
    with catalog.session() as session:
        assert catalog_findings(session, catalog.queries, head) == []


BROKEN = {
    "a gap": ("DELETE FROM dl_table_versions WHERE version = 1", 1, "expected 4 versions, found 3"),
    "no head": ("DELETE FROM dl_table_versions WHERE version = 3", 1, "expected versions up to 3, found 2"),
    "time": ("UPDATE dl_table_versions SET committed_at = 1 WHERE version = 2", 1, "not committed after"),
    "ahead": (
        f"INSERT INTO dl_table_versions VALUES (1, 5, 9, '{uuid.UUID(int=1)}', NULL, 'WRITE', '{{}}', NULL)",
        1,
        "is in the log, and the head is 3",
    ),
    "row group": ("INSERT INTO row_groups VALUES (1, 1, 7, 0, 5, NULL, NULL)", 2, "file 1-7, which does not exist"),
    "index": (
        "UPDATE dl_add_files SET removed_version = NULL WHERE version = 1",
        3,
        "is live, and by the log version 3",
    ),
    "index of a live file": (
        "UPDATE dl_add_files SET removed_version = 3 WHERE version = 2",
        3,
        "by the log it is live",
    ),
    "remove": ("UPDATE dl_remove_files SET added_ordinal = 9", 3, "does not name the file"),
    "count": ("UPDATE dl_add_files SET row_count = 9 WHERE version = 4", 4, "has 9 rows, its row groups have 3"),
    "statistics": ("UPDATE dl_add_files SET row_count = 9 WHERE version = 4", 4, "has 9 rows, its statistics say 3"),
    "partition": ("INSERT INTO partitions VALUES (1, 1, 0, 'day', 'x')", 4, "other partition values"),
    "schema": ("UPDATE dl_add_files SET schema_version = 7 WHERE version = 2", 5, "schema 7, which does not exist"),
    "rules": ("UPDATE dl_tables SET metadata_since = 1", 5, "the metadata of version 1, the log has that of 0"),
    "progress": (
        "INSERT INTO dl_txn_actions VALUES (1, 'a', 1, 5, NULL, NULL), (1, 'a', 2, 4, NULL, NULL)",
        6,
        "5 to 4",
    ),
}


@pytest.mark.parametrize("broken", BROKEN)
def test_what_is_broken_in_the_catalog_is_found(lake: Lake, broken: str) -> None:
    statement, invariant, message = BROKEN[broken]
    events = rewritten(lake, mirror=False)
    group = RowGroup(path="four.parquet", row_group=0, row_count=3)
    four = AddFile(path="four.parquet", size=1, modification_time=0, stats=stats(3))
    if " 4" in statement:
        commit(lake, events, four, row_groups=[group])
    for table in ("dl_table_versions", "row_groups", "dl_add_files", "dl_remove_files", "partitions", "dl_tables"):
        statement = statement.replace(f" {table} ", f" {qualified(lake, table)} ")
    execute(lake, statement.replace(" dl_txn_actions ", f" {qualified(lake, 'dl_txn_actions')} "))
    report = lake.check("events", deep=False)
    found = [each for each in report.findings if message in each.message]
    assert [each.invariant for each in found] == [invariant], messages(report)
    assert not report.is_sound


def test_the_index_of_removed_files_is_mended(lake: Lake) -> None:
    events = rewritten(lake)
    table = qualified(lake, "dl_add_files")
    execute(lake, f"UPDATE {table} SET removed_version = NULL WHERE version = 1")
    execute(lake, f"UPDATE {table} SET removed_version = 3 WHERE version = 2")
    assert ids(events) == [1, 10]
    assert not lake.check("events").is_sound
    report = lake.check("events", repair=True)
    assert [each.repaired for each in report.findings] == [True, True]
    assert report.is_sound
    assert ids(events) == [2, 10]
    assert lake.check("events").findings == ()
    check_invariants(lake)


WRONG_BOUNDS = {
    "another minimum": "UPDATE column_stats SET min_num = 5, max_num = 9, span = 16 WHERE version = 3",
    "another maximum": "UPDATE column_stats SET max_num = min_num, span = 0 WHERE version = 3",
    "no values": "UPDATE column_stats SET span = -1 WHERE version = 3",
    "another class": "UPDATE column_stats SET span = 0 WHERE version = 3",
    "nulls": "UPDATE column_stats SET null_count = 7 WHERE version = 3",
    "gone": "DELETE FROM column_stats WHERE version = 3",
}


@pytest.mark.parametrize("wrong", WRONG_BOUNDS)
def test_bounds_that_would_lose_rows_are_found_and_mended(lake: Lake, wrong: str) -> None:
    events = lake.create_dataset("events", SCHEMA, mirror=False)
    for numbers in ([1, 4], [5, 7], [2, 100]):
        added = new_file(events, f"{numbers[0]}.parquet", *numbers)
        commit(lake, events, replace(added, stats=stats(2, id=(numbers[0], numbers[1]))))
    assert lake.check("events").findings == ()
    before = rows(lake, "column_stats")
    execute(lake, WRONG_BOUNDS[wrong].replace("column_stats", qualified(lake, "column_stats")))
    (finding,) = lake.check("events").findings
    assert (finding.invariant, finding.versions) == (9, (3, 3))
    assert "what searches read of 2.parquet is not what its statistics say: id" in finding.message
    assert rows(lake, "column_stats") != before
    assert lake.check("events", repair=True).is_sound
    assert rows(lake, "column_stats") == before
    assert lake.check("events").findings == ()


def test_a_lost_change_file_is_reported(lake: Lake) -> None:
    events = rewritten(lake)
    commit(lake, events, CdcFile(path="_change_data/lost.parquet", size=3, partition_values={}))
    (finding,) = lake.check("events", deep=False).findings
    assert (finding.invariant, finding.versions) == (3, (4, 4))
    assert "lost.parquet, of the change feed: the file does not exist" in finding.message


@pytest.mark.parametrize("broken", ["bitmap", "torn", "gone"])
def test_a_deletion_vector_that_cannot_be_applied_is_reported(lake: Lake, broken: str) -> None:
    events = lake.create_dataset("events", SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    added = new_file(events, "a.parquet", 1, 2, 3)
    found = VectorFile.of("", [np.array([0, 2])])
    vector = found.vectors[0]
    content = bytearray(found.content)
    if broken == "bitmap":
        content[-6] ^= 1
    if broken != "gone":
        Path(events.location, found.path.lstrip("/")).write_bytes(content[:-9] if broken == "torn" else content)
    commit(lake, events, replace(added, stats=stats(3), deletion_vector=vector))
    shallow, deep = (lake.check("events", deep=deep).findings for deep in (False, True))
    assert [each.invariant for each in deep] == [3]
    assert len(shallow) == (broken == "gone")
    assert "deletion vector" in deep[0].message


def test_row_groups_are_compared_with_the_footer(lake: Lake) -> None:
    events = lake.create_dataset("events", SCHEMA)
    added = new_file(events, "a.parquet", 1, 2, 3)
    groups = [RowGroup(path=added.path, row_group=number, row_count=count) for number, count in enumerate((1, 2))]
    commit(lake, events, replace(added, stats=stats(3)), row_groups=groups)
    (finding,) = lake.check("events").findings
    assert "expected row groups of [1, 2] rows, found [3]" in finding.message


class TestCheckpoints:
    @staticmethod
    def checkpointed(lake: Lake) -> tuple[Dataset, Path, Path]:
        events = lake.create_dataset("events", SCHEMA, properties={"delta.checkpointInterval": "2"})
        for number in (1, 2):
            commit(lake, events, new_file(events, f"{number}.parquet", number))
        commit(lake, events, RemoveFile(path="1.parquet"))
        commit(lake, events, Txn(app_id="a", version=7))
        lake.mirror.checkpoint(events.id, 3)
        log = Path(events.location, "_delta_log")
        newest = max(log.glob("*.checkpoint.parquet"))
        assert lake.check("events").findings == ()
        return events, newest, log / "_last_checkpoint"

    @pytest.mark.parametrize("broken", ["garbage", "empty", "another table's"])
    def test_one_that_misleads_readers_is_written_again(self, lake: Lake, broken: str) -> None:
        _, newest, _ = self.checkpointed(lake)
        content = newest.read_bytes()
        if broken == "another table's":
            other = lake.create_dataset("other", SCHEMA, properties={"delta.checkpointInterval": "1"})
            for number in (1, 2):
                commit(lake, other, new_file(other, f"{number}.parquet", number))
            lake.mirror.checkpoint(other.id, 2)
            newest.write_bytes(max(Path(other.location, "_delta_log").glob("*.checkpoint.parquet")).read_bytes())
        else:
            newest.write_bytes(b"PAR1 nothing PAR1" if broken == "garbage" else b"")
        found = lake.check("events", deep=False).findings
        assert [each.invariant for each in found if newest.name in each.message] == [7], list(map(str, found))
        assert lake.check("events", repair=True).is_sound
        assert newest.read_bytes() == content
        assert lake.check("events").findings == ()

    @pytest.mark.parametrize("said", ["{", '{"version": 1}', "[]"])
    def test_a_hint_that_misleads_readers_is_written_again(self, lake: Lake, said: str) -> None:
        _, _, hint = self.checkpointed(lake)
        content = hint.read_bytes()
        hint.write_text(said)
        (finding,) = lake.check("events", deep=False).findings
        assert (finding.invariant, finding.mend) == (7, "write it again")
        assert lake.check("events", repair=True).is_sound
        assert (hint.read_bytes(), lake.check("events").findings) == (content, ())


def test_a_missing_file_is_reported_with_its_versions_and_never_mended(lake: Lake) -> None:
    events = rewritten(lake)
    Path(events.location, only_path(events, 1)).unlink()
    Path(events.location, "new.parquet").write_text("short")
    before = rows(lake, "dl_add_files")
    for repair in (False, True):
        report = lake.check("events", repair=repair)
        assert sorted((each.versions, each.mend) for each in report.findings) == [((1, 2), None), ((3, 3), None)]
        assert "does not exist" in "".join(messages(report))
        assert "bytes, found 5" in "".join(messages(report))
    assert rows(lake, "dl_add_files") == before


def test_a_deep_check_reads_footers(lake: Lake) -> None:
    events = lake.create_dataset("events", SCHEMA)
    good = new_file(events, "good.parquet", 1, 2)
    wrong_type = Path(events.location, "type.parquet")
    pq.write_table(pa.table({"id": ["text"]}), wrong_type)
    torn = Path(events.location, "torn.parquet")
    torn.write_bytes(b"PAR1 not whole PAR1")
    commit(
        lake,
        events,
        AddFile(path=good.path, size=good.size, modification_time=0, stats=stats(7)),
        AddFile(path="type.parquet", size=wrong_type.stat().st_size, modification_time=0),
        AddFile(path="torn.parquet", size=torn.stat().st_size, modification_time=0),
    )
    assert lake.check("events", deep=False).findings == ()
    report = lake.check("events")
    assert sorted(each.invariant for each in report.findings) == [3, 4, 5]
    text = "".join(messages(report))
    assert "good.parquet: expected 7 rows, found 2" in text
    assert "which Spark does not read as" in text
    assert "is no whole Parquet file" in text


def test_a_lost_file_of_the_mirror_is_written_again(lake: Lake) -> None:
    events = rewritten(lake)
    content = log_file(events, 2).read_bytes()
    log_file(events, 2).unlink()
    report = lake.check("events")
    assert messages(report) == [
        f"invariant 7: {2:020}.json was published and is gone (version 2); repair would: write the file again"
    ]
    assert not log_file(events, 2).exists()
    assert lake.check("events", repair=True).is_sound
    assert log_file(events, 2).read_bytes() == content
    assert lake.check("events").findings == ()


def test_a_torn_file_of_the_mirror_is_written_again(lake: Lake) -> None:
    events = rewritten(lake)
    content = log_file(events, 1).read_bytes()
    log_file(events, 1).write_bytes(content[:-20])
    assert not lake.check("events").is_sound
    assert lake.check("events", repair=True).is_sound
    assert log_file(events, 1).read_bytes() == content


def test_a_file_of_the_mirror_that_somebody_else_wrote_is_left_for_a_person(lake: Lake) -> None:
    events = rewritten(lake)
    log_file(events, 1).write_text('{"commitInfo":{"operation":"WRITE","engineInfo":"Other"}}\n')
    log_file(events, 9).write_text('{"commitInfo":{"operation":"WRITE","engineInfo":"Other"}}\n')
    for repair in (False, True):
        text = "".join(messages(lake.check("events", repair=repair)))
        assert "is not what was published; Other has written it. If the catalog is right, move the file away" in text
        assert f"{9:020}.json is ahead of the catalog" in text
    assert "Other" in log_file(events, 1).read_text()


def test_a_checkpoint_that_is_made_meanwhile_is_no_finding(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = rewritten(lake)
    store = log_store(events.location)
    write_checkpoint(store, other_lake.mirror.checkpoints.content(events.id, 1))
    listed = LocalStore.files

    def list_and_wait(self: LocalStore, start: str = "") -> Any:
        found = listed(self, start)
        with monkeypatch.context() as late:
            late.setattr(LocalStore, "files", listed)
            write_checkpoint(store, other_lake.mirror.checkpoints.content(events.id, events.version))
        return found

    findings = CheckpointCheck.findings

    def look_late(self: CheckpointCheck, **options: bool) -> Any:
        monkeypatch.setattr(LocalStore, "files", list_and_wait)
        return findings(self, **options)

    monkeypatch.setattr(CheckpointCheck, "findings", look_late)
    assert lake.check("events").findings == ()


def test_a_table_is_sound_that_was_imported_from_a_log_of_ours_without_its_history(lake: Lake, tmp_path: Path) -> None:
    """The log has the last commit itself, and the catalog one in the place of all."""
    with connect(f"sqlite:///{tmp_path}/first.db", root=tmp_path / "first") as first:
        location = rewritten(first).location
    imported = lake.import_delta(location, "imported", history=False).dataset
    assert imported.first_version == imported.version > 0
    assert lake.check("imported", deep=True).findings == ()
    commit(lake, imported, new_file(imported, "new.parquet", 11))
    assert lake.check("imported").findings == ()
    check_invariants(lake)


def test_a_table_is_sound_after_its_old_rules_have_expired(lake: Lake) -> None:
    events = rewritten(lake)
    events.add_column("x", pa.string())
    events.rename_column("x", "y")
    events.expire_versions(keep_last=1)
    assert lake.check("events").findings == ()


def test_the_lease_of_a_write_that_died_is_taken_back(lake: Lake) -> None:
    events = rewritten(lake)
    register_write(lake.committer, events.location, f"__w={'a' * 32}=", timedelta(0))
    register_write(lake.committer, events.location, f"__w={'b' * 32}=")
    settle()
    (finding,) = lake.check("events").findings
    assert finding.invariant == 8
    assert "never said that it ended" in finding.message
    assert lake.check("events", repair=True).is_sound
    assert [row["directory"] for row in rows(lake, "dl_writes")] == [f"__w={'b' * 32}="]


@pytest.mark.parametrize("asked", [{"repair": "yes"}, {"deep": 1}])
def test_options_that_cannot_be_meant_are_refused(lake: Lake, asked: dict[str, Any]) -> None:
    rewritten(lake)
    with pytest.raises(ValidationError):
        lake.check("events", **asked)


def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(lake: Lake, tmp_path: Path) -> None:
    events = lake.create_dataset("events", SCHEMA, mirror=False)
    pipe = Path(events.location) / "pipe.parquet"
    pipe.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(pipe)
    commit(lake, events, AddFile(path="pipe.parquet", size=0, modification_time=0))
    (found,) = lake.check("events").findings
    assert "it is no file" in found.message
    with pytest.raises(LakelogError, match="no file, but a pipe"):
        lake.clone(events, "copy", shallow=False)
    with pytest.raises(LakelogError, match="no file, but a pipe"):
        lake.register_parquet(pipe.parent, "again", location=str(tmp_path))
