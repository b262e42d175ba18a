"""The mirror: what stands in the catalog becomes Delta's log, in order, never ahead, and never at a commit's cost."""

import json
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest

import lakelog.importing.loading
import lakelog.mirror.checkpoints
import lakelog.mirror.publisher
import lakelog.mirror.reconciler
import lakelog.storage.log_store
from lakelog import Dataset, Lake, SqlTxnLogWriter, TransactionManager, ValidationError
from lakelog.actions import CommitInfo, DomainMetadata, Metadata, RemoveFile, Txn
from lakelog.changes.evolution import MIRROR
from tests.contract.mirror_files import actions, file_of, log_of, run_together, versions, wait_until
from tests.contract.samples import add, commit, stats, table
from tests.fixtures.lakes import Place, execute, qualified
from tests.fixtures.vectors import inline
from tests.invariants import check_invariants


@pytest.fixture
def events(lake: Lake) -> Dataset:
    return table(lake)


DAYS = ("2026-01-01", "2026-01-31")


class TestContent:
    def test_a_commit_is_a_file_with_its_actions(self, lake: Lake, events: Dataset) -> None:
        given = [
            add("a.parquet", stats=stats(3, id=(1, 9), day=DAYS, name=("a", "b")), tags={"x": "y"}),
            Txn(app_id="b", version=2, last_updated=5),
            Txn(app_id="a", version=1),
            DomainMetadata(domain="d.x", configuration="{}"),
        ]
        domain = lake.create_dataset("domains", events.schema(), properties={"delta.enableRowTracking": "true"})
        result = commit(lake, domain, *given, operation="MERGE", committer="etl", operation_parameters={"n": 1})
        info, *found = actions(domain, 1)
        assert isinstance(info, CommitInfo)
        assert (info.operation, info.operation_parameters, info.user_name) == ("MERGE", {"n": "1"}, "etl")
        assert (info.txn_id, info.timestamp, info.engine_info) == (result.commit_id, result.committed_at, "Lakelog")
        assert sorted(found, key=str) == sorted(given, key=str)
        commit(lake, domain, RemoveFile(path="a.parquet", partition_values={}, size=100))
        (removed,) = actions(domain, 2)[1:]
        assert (removed.path, removed.extended_file_metadata, removed.data_change) == ("a.parquet", True, True)
        check_invariants(lake)

    def test_unknown_fields_are_written_back(self, lake: Lake, events: Dataset) -> None:
        commit(lake, events, add("a.parquet", extra={"new": {"deep": [1, None]}}, clustering_provider="liquid"))
        (found,) = actions(events, 1)[1:]
        assert (found.extra, found.clustering_provider) == ({"new": {"deep": [1, None]}}, "liquid")

    def test_a_large_commit_is_the_same_file_as_if_it_were_small(
        self, lake: Lake, events: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        texts = [stats(1, id=(number, number), day=DAYS, name=("a", "b")) for number in range(300)]
        files = [add(f"{number}.parquet", stats=text) for number, text in enumerate(texts)]
        commit(lake, events, *files)
        assert actions(events, 1)[1:] == files
        check_invariants(lake)

    def test_the_files_time_is_the_commits(self, lake: Lake, events: Dataset) -> None:
        result = commit(lake, events, add())
        assert file_of(events, 1).stat().st_mtime_ns == result.committed_at * 1_000_000

    def test_in_commit_timestamps_come_first_where_they_are_asked_for(self, lake: Lake) -> None:
        dataset = table(lake, properties={"delta.enableInCommitTimestamps": "true"})
        result = commit(lake, dataset, add())
        first = json.loads(file_of(dataset, 1).read_text().splitlines()[0])
        assert next(iter(first["commitInfo"])) == "inCommitTimestamp"
        assert first["commitInfo"]["inCommitTimestamp"] == result.committed_at
        assert "inCommitTimestamp" in (dataset.snapshot().protocol.writer_features or ())

    def test_in_commit_timestamps_cannot_begin_later(self, lake: Lake, events: Dataset) -> None:
        metadata = events.snapshot().metadata
        changed = {**metadata.configuration, "delta.enableInCommitTimestamps": "true"}
        later = Metadata(id=metadata.id, schema_string=metadata.schema_string, configuration=changed)
        with pytest.raises(ValidationError, match="only when a table is created"):
            commit(lake, events, later)

    def test_every_way_to_commit_is_mirrored(self, lake: Lake, events: Dataset) -> None:
        manager = TransactionManager(lake)
        manager.commit(manager.begin(events.id), [add("a.parquet")])
        commit(lake, events, add("b.parquet"))
        events.set_comment("id", "a number")
        assert versions(events) == [0, 1, 2, 3]
        check_invariants(lake)

    def test_a_plain_table_asks_the_least_of_its_readers(self, lake: Lake, events: Dataset) -> None:
        protocol = actions(events, 0)[1]
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 2)

    def test_a_fenced_table_is_refused_by_writers_and_not_by_readers(self, lake: Lake) -> None:
        protocol = actions(table(lake, mirror="fenced"), 0)[1]
        assert (protocol.min_reader_version, protocol.min_writer_version) == (1, 7)
        assert "lakelog.managed" in protocol.writer_features


class TestStatus:
    def test_a_mirror_is_as_far_as_its_table(self, lake: Lake, events: Dataset) -> None:
        commit(lake, events, add())
        status = events.mirror_status()
        assert (status.state, status.published, status.head, status.pending) == ("published", 1, 1, 0)

    def test_a_table_without_a_mirror_has_no_log(self, lake: Lake) -> None:
        dataset = table(lake, mirror=False)
        commit(lake, dataset, add())
        assert not log_of(dataset).exists()
        assert (dataset.mirror_status().state, dataset.mirror_status().pending) == ("off", 0)
        assert dataset.mirror().state == "off"

    def test_a_mirror_that_is_switched_off_says_so(self, lake: Lake, events: Dataset) -> None:
        metadata = events.snapshot().metadata
        commit(
            lake,
            events,
            Metadata(id=metadata.id, schema_string=metadata.schema_string, configuration={MIRROR: "false"}),
        )
        assert (events.mirror_status().state, events.mirror_status().pending) == ("off", 0)
        assert versions(events) == [0]

    def test_a_mirror_that_is_switched_on_publishes_what_was_before(self, lake: Lake) -> None:
        dataset = table(lake, mirror=False)
        commit(lake, dataset, add())
        assert dataset.mirror_status().state == "off"
        metadata = dataset.snapshot().metadata
        properties = {name: value for name, value in metadata.configuration.items() if name != MIRROR}
        commit(lake, dataset, Metadata(id=metadata.id, schema_string=metadata.schema_string, configuration=properties))
        assert versions(dataset) == [0, 1, 2]
        assert dataset.mirror_status().state == "published"

    def test_pending_is_what_nobody_published(self, connect: Callable[..., Lake]) -> None:
        dataset = table(connect(mirror="manual"))
        assert (dataset.mirror_status().published, dataset.mirror_status().pending) == (-1, 1)
        assert not log_of(dataset).exists()
        assert dataset.mirror().pending == 0
        assert versions(dataset) == [0]

    def test_the_next_commit_publishes_what_is_pending(self, connect: Callable[..., Lake]) -> None:
        dataset = table(connect(mirror="manual"))
        lake = connect()
        commit(lake, lake.dataset("events"), add())
        assert versions(dataset) == [0, 1]
        check_invariants(lake)

    def test_many_pending_versions_are_published_in_batches(
        self, connect: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lakelog.mirror.publisher, "_BATCH", 3)
        monkeypatch.setattr(lakelog.mirror.publisher, "_BATCH_FILES", 2)
        lake = connect(mirror="manual")
        dataset = table(lake)
        for number in range(10):
            commit(lake, dataset, *[add(f"{number}-{file}.parquet") for file in range(number % 4)], operation="WRITE")
        assert dataset.mirror().published == 10
        check_invariants(lake)


class TestFailure:
    def test_a_commit_stands_when_its_mirror_fails(
        self, lake: Lake, events: Dataset, caplog: pytest.LogCaptureFixture
    ) -> None:
        log_of(events).rename(log_of(events).with_name("away"))
        log_of(events).write_text("a file where the directory should be")
        with caplog.at_level(logging.WARNING, "lakelog.mirror"):
            commit(lake, events, add("a.parquet"))
        assert events.version == 1
        status = events.mirror_status()
        assert (status.state, status.published, status.pending) == ("failing", 0, 1)
        assert "00000000000000000001.json" in (status.error or "")
        assert "failing" in caplog.text
        log_of(events).unlink()
        log_of(events).with_name("away").rename(log_of(events))
        commit(lake, events, add("b.parquet"))
        assert versions(events) == [0, 1, 2]
        assert (events.mirror_status().state, events.mirror_status().error) == ("published", None)
        check_invariants(lake)

    def test_a_thread_publishes_what_failed_when_the_place_is_back(
        self, lake: Lake, events: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lakelog.mirror.reconciler, "_FIRST_PAUSE", 0.05)
        log_of(events).rename(log_of(events).with_name("away"))
        log_of(events).write_text("")
        commit(lake, events, add("a.parquet"))
        log_of(events).unlink()
        log_of(events).with_name("away").rename(log_of(events))
        wait_until(lambda: versions(events) == [0, 1])

    def test_a_mirror_that_breaks_in_any_way_does_not_break_the_commit(
        self, lake: Lake, events: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lakelog.mirror.publisher, "delta_json", lambda *_: 1 / 0)
        assert commit(lake, events, add()).version == 1
        monkeypatch.undo()
        assert events.mirror().published == 1

    def test_the_beginning_of_our_file_is_finished(self, connect: Callable[..., Lake]) -> None:
        lake = connect(mirror="manual")
        dataset = table(lake)
        dataset.mirror()
        commit(lake, dataset, add())
        commit(lake, dataset, add("b.parquet"))
        dataset.mirror()
        whole = file_of(dataset, 2).read_bytes()
        for length in (0, 1, len(whole) // 2, len(whole) - 1):
            execute(lake, f"UPDATE {qualified(lake, 'dl_mirror_status')} SET published_version = 1")
            file_of(dataset, 2).write_bytes(whole[:length])
            assert dataset.mirror().published == 2
            assert file_of(dataset, 2).read_bytes() == whole
        check_invariants(lake)

    def test_our_commit_in_other_words_is_ours(self, lake: Lake, events: Dataset) -> None:
        result = commit(lake, events, add())
        lines = [json.loads(line) for line in file_of(events, 1).read_text().splitlines()]
        other = "\n".join(json.dumps(line, indent=None, sort_keys=True) for line in lines)
        file_of(events, 1).write_text(other)
        execute(lake, f"UPDATE {qualified(lake, 'dl_mirror_status')} SET published_version = 0")
        assert (events.mirror().state, events.mirror().published) == ("published", 1)
        assert file_of(events, 1).read_text() == other
        assert result.commit_id in other


class TestTogether:
    def test_two_mirrors_at_once_publish_each_version_once(self, connect: Callable[..., Lake]) -> None:
        lake = connect(mirror="manual")
        dataset = table(lake)
        for number in range(60):
            commit(lake, dataset, add(f"{number}.parquet"))
        mirrors = [lake.dataset("events"), connect(mirror="manual").dataset("events")]
        run_together([each.mirror for each in mirrors for _ in range(3)])
        assert (dataset.mirror_status().state, dataset.mirror_status().published) == ("published", 60)
        check_invariants(lake)

    def test_writers_at_once_leave_nothing_unpublished(self, lake: Lake, events: Dataset, other_lake: Lake) -> None:
        def write(writer: SqlTxnLogWriter, name: str) -> None:
            done = 0
            while done < 10:
                try:
                    writer.commit(events.id, events.version + 1, [add(f"{name}-{done}.parquet")])
                    done += 1
                except lakelog.VersionConflict:
                    continue

        writers = [SqlTxnLogWriter(each) for each in (lake, other_lake, lake, other_lake)]
        run_together([lambda w=w, n=n: write(w, f"w{n}") for n, w in enumerate(writers)])  # type: ignore[misc]
        assert events.mirror().published == 40
        assert versions(events) == list(range(41))
        check_invariants(lake)

    def test_a_lake_in_the_background_publishes_and_finishes_at_its_end(self, connect: Callable[..., Lake]) -> None:
        lake = connect(mirror="background")
        dataset = table(lake)
        wait_until(lambda: log_of(dataset).exists() and versions(dataset) == [0])
        for number in range(5):
            commit(lake, dataset, add(f"{number}.parquet"))
        lake.close()
        assert versions(dataset) == [0, 1, 2, 3, 4, 5]
        assert not [thread for thread in threading.enumerate() if thread.name == "lakelog-mirror"]

    def test_a_lake_in_the_background_does_what_others_left(self, connect: Callable[..., Lake], place: Place) -> None:
        left = connect(mirror="manual")
        dataset = table(left)
        commit(left, dataset, add())
        connect(mirror="background")
        wait_until(lambda: log_of(dataset).exists() and versions(dataset) == [0, 1])

    def test_a_commit_does_not_wait_for_the_catalogs_lock_to_note_its_mirror(
        self, lake: Lake, events: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        commit(lake, events, add("a.parquet"))
        monkeypatch.setattr(lakelog.mirror.publisher, "_PATIENCE", 0.2)
        told = lake.mirror._publish
        held: list[float] = []

        def while_somebody_holds_the_lock(*arguments: Any) -> None:
            catalog = lake.committer.catalog
            ready, go_on = threading.Event(), threading.Event()

            def hold() -> None:
                transaction = catalog.begin([events.id], "00000000-0000-0000-0000-000000000000", 5)
                transaction.fetch(catalog.queries["lock_head"], {"table_id": events.id, "expected": None})
                transaction.execute(f"UPDATE {qualified(lake, 'dl_mirror_status')} SET error = NULL", {})
                transaction.fetch(catalog.queries["locations"], {})
                ready.set()
                go_on.wait(10)
                transaction.rollback()

            holder = threading.Thread(target=hold)
            holder.start()
            ready.wait(10)
            started = time.monotonic()
            try:
                told(*arguments)
            finally:
                held.append(time.monotonic() - started)
                go_on.set()
                holder.join()

        monkeypatch.setattr(lake.mirror, "_publish", while_somebody_holds_the_lock)
        assert commit(lake, events, add("b.parquet")).version == 2
        monkeypatch.undo()
        assert held[0] < 3
        assert events.mirror().published == 2
        check_invariants(lake)

    def test_the_thread_forgets_a_table_that_was_dropped(self, lake: Lake, events: Dataset) -> None:
        lake.drop_dataset("events")
        assert lake.mirror._work(events.id) is False

    def test_an_unknown_mode_is_refused(self, place: Place) -> None:
        with pytest.raises(lakelog.ConfigurationError, match="sync, background, manual"):
            place.connect(mirror="sometimes")


class TestCheckpoints:
    def test_a_checkpoint_is_made_when_the_commits_outweigh_the_last(
        self, lake: Lake, events: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lakelog.mirror.checkpoints, "_FLOOR", 4000)
        for number in range(41):
            commit(lake, events, add(f"{number}.parquet", stats=stats(3, id=(number, number + 5))))
        lake.close()
        made = sorted(int(file.name[:20]) for file in log_of(events).glob("*.checkpoint.parquet"))
        hint = json.loads((log_of(events) / "_last_checkpoint").read_text())
        assert made
        assert hint["version"] == made[-1]
        # Each weighs some kilobytes, and the commits between two of them at least as much as the floor.
        assert len(made) <= 41 * file_of(events, 1).stat().st_size // 4000

    def test_a_table_can_ask_for_checkpoints_at_an_interval(self, lake: Lake) -> None:
        dataset = table(lake, properties={"delta.checkpointInterval": "5"})
        for number in range(4):
            commit(lake, dataset, add(f"{number}.parquet"))
            dataset.mirror()
        assert [file.name for file in log_of(dataset).glob("*.checkpoint.parquet")] == [f"{4:020}.checkpoint.parquet"]

    def test_a_vector_that_was_replaced_is_remembered_as_long_as_a_file(self, lake: Lake) -> None:
        """Else another engine's vacuum would take it from versions that it keeps."""
        properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "1"}
        dataset = table(lake, properties=properties)
        file = add("a.parquet", stats=stats(9))
        vectors = [inline([number]) for number in (1, 2)]
        commit(lake, dataset, file)
        commit(lake, dataset, RemoveFile(path="a.parquet"), replace(file, deletion_vector=vectors[0]))
        commit(
            lake,
            dataset,
            RemoveFile(path="a.parquet", deletion_vector=vectors[0]),
            replace(file, deletion_vector=vectors[1]),
        )
        dataset.mirror()
        newest = max(log_of(dataset).glob("*.checkpoint.parquet"))
        removed = [row for row in pq.read_table(newest).column("remove").to_pylist() if row]
        found = [row["deletionVector"] and row["deletionVector"]["pathOrInlineDv"] for row in removed]
        assert (newest.name[:20], found) == (f"{3:020}", [None, vectors[0].path_or_inline_dv])

    def test_a_commit_does_not_wait_for_a_checkpoint(
        self, lake: Lake, events: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, go_on = threading.Event(), threading.Event()

        def slow(*_: Any) -> bool:
            begun.set()
            return go_on.wait(20)

        monkeypatch.setattr(lakelog.mirror.checkpoints.Checkpoints, "make_if_due", slow)
        for number in range(12):
            commit(lake, events, add(f"{number}.parquet"))
        assert begun.wait(10)
        assert versions(events) == list(range(13))
        go_on.set()
