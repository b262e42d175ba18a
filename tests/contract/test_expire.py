"""Expiry of versions: what is forgotten, and that nothing else changes."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog import ConcurrencyError, Dataset, Lake, LakelogError, ValidationError, VersionNotFoundError
from lakelog.actions import AddFile, CdcFile, DomainMetadata, Protocol, RemoveFile, Txn
from lakelog.changes.conflicts import Reads
from lakelog.changes.retry import Prepared, commit_with_retries
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.feeds.change_feed import ChangeFeed
from lakelog.upkeep import expiry
from tests.contract.samples import commit, stats
from tests.contract.upkeep_tables import ids, numbers, only_path, rewritten, settle, there
from tests.fixtures.lakes import catalog_rows, rows
from tests.invariants import check_invariants
from tests.parquet import write

PROTOCOL = Protocol(
    min_reader_version=1,
    min_writer_version=7,
    writer_features=("domainMetadata", "changeDataFeed", "appendOnly", "invariants"),
)


def long_table(lake: Lake, **options: Any) -> Dataset:
    """A table with a history of every kind of action: versions 0 to 11."""
    events = rewritten(lake, **options)
    commit(lake, events, PROTOCOL)
    for number in range(3):
        commit(
            lake,
            events,
            Txn(app_id="app", version=number),
            Txn(app_id=f"once-{number}", version=1),
            DomainMetadata(domain="domain", configuration=str(number)),
            CdcFile(path=f"_change_data/{number}", size=1, partition_values={}),
        )
    events.add_column("name", pa.string())
    write(lake, events, pa.table({"id": [20], "name": ["a"]}))
    commit(lake, events, RemoveFile(path="new.parquet"))
    write(lake, events, pa.table({"id": [30], "name": ["b"]}))
    assert events.version == 11
    return events


def everything(dataset: Dataset, version: int) -> Any:
    """All that can be read of a version."""
    snapshot = dataset.snapshot(version)
    committer = dataset.committer
    content = committer.watcher.checkpoints.content(dataset.id, version)  # type: ignore[union-attr]
    key = [("version", "ascending"), ("ordinal", "ascending")]
    return (
        ids(dataset, version),
        snapshot.files().sort_by(key),
        snapshot.files("id = 20").sort_by(key),
        snapshot.row_groups(),
        snapshot.schema,
        snapshot.metadata,
        snapshot.protocol,
        sorted(map(str, content.txns)),
        sorted(map(str, content.domains)),
        dataset.changes(version).added if version else None,
    )


@pytest.mark.parametrize("first", [0, 1, 3, 6, 9, 10, 11])
def test_every_version_that_stays_reads_as_before(lake: Lake, first: int, reopen: Callable[[Lake], Lake]) -> None:
    events = long_table(lake)
    before = {version: everything(events, version) for version in range(first, 12)}
    report = events.expire_versions(keep_last=12 - first)
    assert (report.versions, report.before, report.first_version) == (first, 0, first)
    check_invariants(lake)
    lake = reopen(lake)
    events = lake.dataset("events")
    assert events.first_version == first
    assert {version: everything(events, version) for version in before} == before
    assert [each.version for each in events.history()] == list(range(11, first - 1, -1))
    assert [each.version for each in events.schema_history()] == [1, 0]
    for version in range(first):
        with pytest.raises(VersionNotFoundError, match=f"its versions are {first} to 11"):
            events.snapshot(version)
    commit(lake, events, AddFile(path="more.parquet", size=1, modification_time=0, stats=stats(1, id=(5, 5))))
    check_invariants(lake)


def test_rows_that_only_expired_versions_need_are_gone(lake: Lake) -> None:
    events = long_table(lake)
    report = events.expire_versions(keep_last=1)
    assert report.files == 2
    assert [row["version"] for row in rows(lake, "dl_table_versions")] == [11]
    assert len(rows(lake, "dl_add_files")) == 3
    assert (rows(lake, "dl_remove_files"), rows(lake, "dl_cdc_files")) == ([], [])
    assert len(rows(lake, "dl_domain_metadata")) == 1
    assert {row["app_id"]: row["app_version"] for row in rows(lake, "dl_txn_actions")} == {
        "app": 2,
        "once-0": 1,
        "once-1": 1,
        "once-2": 1,
    }
    assert lake.txn_version("events", "app") == 2


def test_the_version_that_was_current_at_a_time_stays(lake: Lake) -> None:
    events = long_table(lake)
    times = {each.version: each.timestamp for each in events.history()}
    report = events.expire_versions(times[6] + timedelta(microseconds=1))
    assert (report.first_version, report.since) == (6, times[6])
    assert events.snapshot(timestamp=times[6]).version == 6
    with pytest.raises(VersionNotFoundError, match="no version that was current"):
        events.snapshot(timestamp=times[5])
    assert "versions 0 to 5 are forgotten" in str(report)


def test_what_either_limit_asks_to_keep_stays(lake: Lake) -> None:
    events = long_table(lake)
    times = {each.version: each.timestamp for each in events.history()}
    assert events.expire_versions(times[9], keep_last=6).first_version == 6
    assert events.expire_versions(times[8], keep_last=1).first_version == 8
    assert events.expire_versions(times[11] + timedelta(days=1)).first_version == 11
    assert ids(events) == [2, 20, 30]


@pytest.mark.parametrize("asked", [{}, {"keep_last": 0}, {"keep_last": True}, {"older_than": "yesterday"}])
def test_what_cannot_be_meant_is_refused(lake: Lake, asked: dict[str, Any]) -> None:
    events = rewritten(lake)
    with pytest.raises(ValidationError):
        events.expire_versions(**asked)
    assert events.first_version == 0


def test_a_dry_run_says_what_would_be_forgotten_and_changes_nothing(lake: Lake) -> None:
    events = long_table(lake)
    before = catalog_rows(lake)
    report = events.expire_versions(keep_last=2, dry_run=True)
    assert (report.dry_run, report.versions) == (True, 10)
    assert "would be forgotten" in str(report)
    assert catalog_rows(lake) == before


def test_nothing_happens_where_no_version_is_old_enough(lake: Lake) -> None:
    events = rewritten(lake)
    before = catalog_rows(lake)
    assert events.expire_versions("2020-01-01").versions == 0
    assert events.expire_versions(keep_last=100).versions == 0
    assert catalog_rows(lake) == before


def test_a_snapshot_of_a_version_that_expires_is_refused_and_not_wrong(lake: Lake, other_lake: Lake) -> None:
    events = rewritten(lake)
    held = events.snapshot(1)
    other_lake.dataset("events").expire_versions(keep_last=1)
    with pytest.raises(VersionNotFoundError, match=r"version 1 .* has expired"):
        held.files()


def test_a_write_that_was_planned_on_a_version_that_expired_is_a_conflict(lake: Lake, other_lake: Lake) -> None:
    events = rewritten(lake)
    planned = events.version
    other = other_lake.dataset("events")
    commit(other_lake, other, RemoveFile(path="new.parquet"))
    commit(other_lake, other)
    other.expire_versions(keep_last=1)
    described = Description(operation="WRITE", operation_parameters={}, extra={})
    add = AddFile(path="mine.parquet", size=1, modification_time=0)
    prepared = Prepared(
        table_id=events.id,
        base_version=planned,
        draft_for=lambda expected: Draft(events.id, expected, [add], described),
        reads=Reads(files=frozenset({"new.parquet"})),
    )
    with pytest.raises(ConcurrencyError, match="has expired"):
        commit_with_retries(lake.committer, [prepared], retries=3)
    assert other.version == 5


def test_the_log_can_be_read_and_written_again_after_an_expiry(lake: Lake) -> None:
    events = long_table(lake)
    log = Path(events.location, "_delta_log")
    files = {each.name: each.read_bytes() for each in log.iterdir()}
    events.expire_versions(keep_last=3)
    now = {each.name: each.read_bytes() for each in log.iterdir()}
    assert now.items() >= files.items()
    assert f"{9:020}.checkpoint.parquet" in now
    commit(lake, events)
    for each in log.iterdir():
        each.unlink()
    assert events.mirror().state == "published"
    assert f"{9:020}.json" in {each.name for each in log.iterdir()}
    assert any(".checkpoint." in each.name for each in log.iterdir())
    check_invariants(lake)


def test_versions_that_are_not_published_yet_are_not_forgotten(connect: Callable[..., Lake]) -> None:
    lake = connect(mirror="manual")
    events = rewritten(lake)
    (Path(events.location) / "_delta_log").mkdir(parents=True, exist_ok=True)
    (Path(events.location) / "_delta_log" / f"{0:020}.json").write_text('{"commitInfo":{"operation":"OTHER"}}\n')
    with pytest.raises(LakelogError, match="nothing was forgotten: the mirror of 'events' is stopped"):
        events.expire_versions(keep_last=1)
    assert events.first_version == 0


def test_a_table_without_a_mirror_expires_too(lake: Lake) -> None:
    events = rewritten(lake, mirror=False)
    assert events.expire_versions(keep_last=1).first_version == 3
    assert ids(events) == [2, 10]
    check_invariants(lake)


def test_files_of_forgotten_versions_stay_for_the_retention_and_then_go(lake: Lake) -> None:
    events = rewritten(lake)
    old = only_path(events, 1)
    commit(lake, events)
    events.expire_versions(keep_last=1)
    assert events.vacuum().files == 0
    assert old in there(events)
    settle()
    assert events.vacuum(0, force=True).paths == (old,)
    assert ids(events) == [2, 10]


def test_a_table_made_of_files_remembers_that_it_was(lake: Lake, tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    for name in ("2025", "2026"):
        pq.write_table(numbers(1), tmp_path / "raw" / f"{name}.parquet")
    raw = lake.register_parquet(tmp_path / "raw" / "2026.parquet", "raw", location=tmp_path / "raw")
    commit(lake, raw)
    raw.expire_versions(keep_last=1)
    settle()
    assert raw.vacuum(0, force=True).files == 0
    assert (tmp_path / "raw" / "2025.parquet").exists()


def test_a_snapshot_of_a_version_that_expires_meanwhile_is_refused(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a reader has seen that the version is there, it expires elsewhere."""
    events = lake.create_dataset("events", pa.schema([("id", pa.int64())]), mirror=False)
    for number in range(3):
        events.set_properties({"a.b": str(number)})
    lake.committer.states.forget(events.id)
    look = Dataset._check

    def look_and_wait(self: Dataset, session: Any, version: int, head: Any) -> None:
        look(self, session, version, head)
        other_lake.dataset("events").expire_versions(keep_last=1)

    monkeypatch.setattr(Dataset, "_check", look_and_wait)
    with pytest.raises(VersionNotFoundError, match="version 1 of dataset 'events' has expired"):
        events.snapshot(1)
    assert events.first_version == 3


def test_a_change_feed_of_versions_that_expired_meanwhile_is_refused(lake: Lake, other_lake: Lake) -> None:
    events = lake.create_dataset(
        "events", pa.schema([("id", pa.int64())]), mirror=False, properties={"delta.enableChangeDataFeed": "true"}
    )
    for number in range(4):
        write(lake, events, pa.table({"id": [number]}))
    feed = ChangeFeed(lake.committer, events, events.snapshot())
    assert feed.files(1, 4).num_rows == 4
    other_lake.dataset("events").expire_versions(keep_last=2)
    for read in (lambda: feed.files(1, 4), lambda: feed.files(1, 1)):
        with pytest.raises(VersionNotFoundError, match=r"versions 1 to . of dataset 'events' are no longer all there"):
            read()


def test_files_whose_schema_expires_once_they_are_listed_are_not_read_by_another(lake: Lake, other_lake: Lake) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    events = lake.create_dataset("events", schema, mirror=False)
    write(lake, events, pa.table({"id": [1], "at": pa.array([0], schema.field("at").type)}))
    texts = pa.table({"id": [2], "at": ["never"]})
    write(lake, events, texts, schema_merge=True, promote_to_string=True)
    snapshot = events.snapshot()
    files = snapshot.files()
    assert len(snapshot.file_groups_as(snapshot.schema, snapshot.schema, files)) == 2
    (older,) = (each["path"] for each in files.to_pylist() if each["schema_version"] == 0)
    commit(lake, events, RemoveFile(path=older))
    events.set_properties({"a.b": "c"})
    other_lake.dataset("events").expire_versions(keep_last=1)
    with pytest.raises(VersionNotFoundError, match="version 2 of dataset 'events' has expired"):
        snapshot.file_groups_as(snapshot.schema, snapshot.schema, files)


def test_a_change_feed_whose_schemas_expire_once_it_is_listed_is_refused(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = lake.create_dataset(
        "events", pa.schema([("id", pa.int64())]), mirror=False, properties={"delta.enableChangeDataFeed": "true"}
    )
    write(lake, events, pa.table({"id": [1]}))
    commit(lake, events, RemoveFile(path=events.snapshot().files().column("path")[0].as_py()))
    events.add_column("more", pa.string())
    feed = ChangeFeed(lake.committer, events, events.snapshot())
    commits = ChangeFeed._commits

    def list_and_wait(self: ChangeFeed, first: int, last: int) -> Any:
        found = commits(self, first, last)
        other_lake.dataset("events").expire_versions(keep_last=1)
        return found

    monkeypatch.setattr(ChangeFeed, "_commits", list_and_wait)
    with pytest.raises(VersionNotFoundError, match="changes of dataset 'events' have expired"):
        feed.files(1, 2)


def test_expiries_at_once_do_not_disturb_each_other(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = lake.create_dataset("events", pa.schema([("id", pa.int64())]), mirror=False)
    for number in range(6):
        events.set_properties({"a.b": str(number)})
    plan = expiry._Plan.of.__func__  # type: ignore[attr-defined]
    met = []

    def plan_and_wait(cls: Any, lake: Any, session: Any, *rest: Any) -> Any:
        found = plan(cls, lake, session, *rest)
        if lake is not other_lake and not met:
            met.append(other_lake.dataset("events").expire_versions(keep_last=1))
        return found

    monkeypatch.setattr(expiry._Plan, "of", classmethod(plan_and_wait))
    report = events.expire_versions(keep_last=4)
    assert (met[0].first_version, report.first_version, report.versions) == (6, 6, 0)
    assert events.first_version == 6
    check_invariants(lake)
