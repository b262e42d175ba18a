"""What stands in ``_delta_log`` and not in the catalog: another writer's commits, and our own that a catalog lost."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelog.importing.loading
import lakelog.mirror.checkpoints
import lakelog.mirror.publisher
import lakelog.mirror.reconciler
import lakelog.storage.log_store
from lakelog import Dataset, Lake, ReadOnlyError, TransactionManager, ValidationError
from lakelog.actions import CommitInfo, RemoveFile
from tests.contract.mirror_files import file_of, foreign, log_of, versions
from tests.contract.samples import add, commit, paths, table
from tests.fixtures.lakes import execute, qualified, rows
from tests.invariants import check_invariants


@pytest.fixture
def events(lake: Lake) -> Dataset:
    return table(lake)


class TestForeign:
    def test_a_foreign_file_stops_the_mirror_and_is_not_touched(
        self, lake: Lake, events: Dataset, caplog: pytest.LogCaptureFixture
    ) -> None:
        file_of(events, 1).write_bytes(foreign(1))
        with caplog.at_level(logging.ERROR, "lakelog.mirror"):
            commit(lake, events, add("a.parquet"))
        commit(lake, events, add("b.parquet"))
        assert file_of(events, 1).read_bytes() == foreign(1)
        assert versions(events) == [0, 1]
        status = events.mirror_status()
        assert (status.state, status.published, status.pending) == ("stopped", 0, 2)
        assert "Apache-Spark/4.0.0" in (status.error or "")
        assert "stopped" in caplog.text

    def test_a_foreign_file_is_noticed_without_a_commit(self, lake: Lake, events: Dataset) -> None:
        file_of(events, 1).write_bytes(foreign(1))
        assert events.mirror_status().state == "stopped"

    def test_a_file_that_cannot_be_read_does_not_fail_the_commit(self, lake: Lake, events: Dataset) -> None:
        file_of(events, 1).mkdir()
        assert commit(lake, events, add()).version == 1

    def test_the_mirror_goes_on_when_the_foreign_file_is_gone(self, lake: Lake, events: Dataset) -> None:
        file_of(events, 1).write_bytes(foreign(1))
        commit(lake, events, add("a.parquet"))
        file_of(events, 1).unlink()
        assert (events.mirror().state, versions(events)) == ("published", [0, 1])
        check_invariants(lake)

    def test_foreign_files_can_be_set_aside(self, lake: Lake, events: Dataset) -> None:
        file_of(events, 1).write_bytes(foreign(1))
        file_of(events, 2).write_bytes(foreign(2))
        (log_of(events) / "_last_checkpoint").write_text('{"version":2,"size":1}')
        (log_of(events) / f"{2:020}.checkpoint.parquet").write_bytes(b"")
        (log_of(events) / f"{1:020}.{2:020}.compacted.json").write_bytes(b"")
        commit(lake, events, add("a.parquet"))
        assert events.mirror(set_aside=True).published == 1
        assert versions(events) == [0, 1]
        assert not (log_of(events) / "_last_checkpoint").exists()
        aside = sorted(file.name for file in log_of(events).glob("_set_aside/*/*"))
        compacted = f"{1:020}.{2:020}.compacted.json"
        assert aside == [
            compacted,
            f"{1:020}.json",
            f"{2:020}.checkpoint.parquet",
            f"{2:020}.json",
            "_last_checkpoint",
        ]
        check_invariants(lake)

    def test_foreign_commits_can_be_adopted(self, lake: Lake, events: Dataset) -> None:
        for version in (1, 2):
            file_of(events, version).write_bytes(foreign(version))
        assert events.adopt() == 2
        assert paths(events.snapshot().files()) == ["foreign-1.parquet", "foreign-2.parquet"]
        assert events.history()[0].extra["engineInfo"].startswith("Apache-Spark")
        assert (events.mirror_status().state, events.mirror_status().published) == ("published", 2)
        commit(lake, events, RemoveFile(path="foreign-1.parquet"))
        assert versions(events) == [0, 1, 2, 3]
        check_invariants(lake)

    def test_an_adoption_that_fails_later_can_be_continued(
        self, lake: Lake, events: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lakelog.importing.loading, "_BATCH", 1)
        for version in (1, 2, 3):
            file_of(events, version).write_bytes(foreign(version))
        whole = file_of(events, 3).read_bytes()
        file_of(events, 3).write_bytes(whole.replace(b"foreign-3", b"../foreign-3"))
        with pytest.raises(ValidationError, match="version 3 of"):
            events.adopt()
        assert (events.version, events.mirror_status().published) == (2, 2)
        file_of(events, 3).write_bytes(whole)
        assert events.adopt() == 3
        assert events.mirror_status().state == "published"
        check_invariants(lake)

    def test_two_who_set_aside_at_once_leave_no_hole(
        self, lake: Lake, events: Dataset, other_lake: Lake, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        file_of(events, 1).write_bytes(foreign(1))
        commit(lake, events, add())
        commit(lake, events, add("b.parquet"))
        theirs = other_lake.dataset("events")
        real = lakelog.storage.log_store.LocalStore.names
        calls: list[int] = []

        def interrupted(store: Any) -> Any:
            found = real(store)
            calls.append(1)
            if len(calls) == 1:
                # They come while our list is made and nothing is moved yet.
                theirs.mirror(set_aside=True)
            return found

        monkeypatch.setattr(lakelog.storage.log_store.LocalStore, "names", interrupted)
        with pytest.raises(lakelog.LakelogError, match=r"another process|set aside"):
            events.mirror(set_aside=True)
        monkeypatch.undo()
        assert events.mirror().published == 2
        assert versions(events) == [0, 1, 2]
        check_invariants(lake)

    def test_foreign_commits_that_contradict_the_catalog_are_not_adopted(self, lake: Lake, events: Dataset) -> None:
        file_of(events, 1).write_bytes(foreign(1))
        commit(lake, events, add("a.parquet"))
        with pytest.raises(lakelog.LakelogError, match="contradicts"):
            events.adopt()
        assert events.version == 1

    def test_adopting_what_cannot_be_kept_changes_nothing(self, lake: Lake, events: Dataset) -> None:
        file_of(events, 1).write_bytes(foreign(1))
        broken = foreign(2).replace(b"foreign-2.parquet", b"../foreign-2.parquet")
        file_of(events, 2).write_bytes(broken)
        with pytest.raises(ValidationError, match="version 2 of"):
            events.adopt()
        assert events.version == 0
        check_invariants(lake)

    def test_a_dataset_is_not_created_on_top_of_a_delta_table(self, lake: Lake, tmp_path: Path) -> None:
        place = tmp_path / "theirs"
        (place / "_delta_log").mkdir(parents=True)
        (place / "_delta_log" / f"{0:020}.json").write_bytes(foreign(0))
        with pytest.raises(lakelog.DatasetExistsError, match="import_delta"):
            table(lake, location=str(place))


class TestLostCommits:
    @pytest.fixture
    def restored(self, lake: Lake, events: Dataset, connect: Callable[..., Lake]) -> Dataset:
        """A table whose catalog has lost its last two versions, as after an older backup was restored."""
        for name in ("a", "b", "c"):
            commit(lake, events, add(f"{name}.parquet"))
        at = rows(lake, "dl_table_versions", version=1)[0]["committed_at"]
        for name in ("dl_table_versions", "dl_add_files", "column_stats"):
            execute(lake, f"DELETE FROM {qualified(lake, name)} WHERE version > 1")
        execute(
            lake,
            f"UPDATE {qualified(lake, 'dl_tables')} SET current_version = 1, committed_at = {at}",
            f"UPDATE {qualified(lake, 'dl_mirror_status')} SET published_version = 1",
        )
        lake.close()
        return connect().dataset("events")

    def test_a_table_that_lost_commits_is_read_only(self, restored: Dataset) -> None:
        lake = restored._lake
        for _ in range(2):
            with pytest.raises(ReadOnlyError, match="adopt"):
                commit(lake, restored, add("d.parquet"))
        with pytest.raises(ReadOnlyError, match="adopt"):
            TransactionManager(lake).begin(restored.id)
        assert restored.snapshot().files().num_rows == 1
        assert restored.mirror_status().state == "behind"
        assert restored.version == 1

    def test_lost_commits_come_back_from_the_mirror(self, restored: Dataset) -> None:
        lost = json.loads(file_of(restored, 3).read_text().splitlines()[0])["commitInfo"]["txnId"]
        with pytest.raises(ReadOnlyError):
            commit(restored._lake, restored, add("d.parquet"))
        assert restored.adopt() == 3
        assert restored._lake.commit_status(lost)[0].version == 3
        commit(restored._lake, restored, add("d.parquet"))
        assert versions(restored) == [0, 1, 2, 3, 4]
        check_invariants(restored._lake)

    def test_lost_commits_can_be_given_up(self, restored: Dataset) -> None:
        with pytest.raises(ReadOnlyError):
            commit(restored._lake, restored, add("d.parquet"))
        restored.mirror(set_aside=True)
        commit(restored._lake, restored, add("d.parquet"))
        assert versions(restored) == [0, 1, 2]
        check_invariants(restored._lake)

    def test_another_process_goes_on_once_somebody_has_decided(
        self, restored: Dataset, connect: Callable[..., Lake]
    ) -> None:
        with pytest.raises(ReadOnlyError):
            commit(restored._lake, restored, add("d.parquet"))
        connect().dataset("events").adopt()
        assert commit(restored._lake, restored, add("d.parquet")).version == 4

    def test_a_transaction_without_a_base_notices_it(self, lake: Lake, events: Dataset) -> None:
        commit(lake, events, add("a.parquet"))
        file_of(events, 2).write_bytes(foreign(2, "Lakelog"))
        with pytest.raises(ReadOnlyError):
            TransactionManager(lake).begin(events.id)

    def test_lost_commits_of_a_writer_with_a_name_of_its_own_are_known(self, lake: Lake, events: Dataset) -> None:
        commit(lake, events, add("a.parquet"), CommitInfo(engine_info="etl/1"))
        theirs = file_of(events, 1).read_bytes()
        file_of(events, 2).write_bytes(theirs)
        with pytest.raises(ReadOnlyError):
            commit(lake, events, add("b.parquet"))

    def test_a_log_that_is_gone_is_written_again(self, lake: Lake, events: Dataset, other_lake: Lake) -> None:
        for name in ("a", "b", "c"):
            commit(lake, events, add(f"{name}.parquet"))
        before = {version: file_of(events, version).read_bytes() for version in range(4)}
        for version in (1, 2, 3):
            file_of(events, version).unlink()
        assert events.mirror().published == 3
        assert {version: file_of(events, version).read_bytes() for version in range(4)} == before
        for version in range(4):
            file_of(events, version).unlink()
        commit(other_lake, other_lake.dataset("events"), add("d.parquet"))
        assert versions(events) == [0, 1, 2, 3, 4]
        check_invariants(lake)

    def test_a_process_that_is_already_writing_notices_it(self, lake: Lake, events: Dataset) -> None:
        commit(lake, events, add("a.parquet"))
        file_of(events, 2).write_bytes(foreign(2, "Lakelog"))
        with pytest.raises(ReadOnlyError):
            commit(lake, events, add("b.parquet"))
        assert events.version == 1
