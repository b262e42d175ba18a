"""Writes register their directories before the first file, and their commits end that."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakelog import (
    CommitOutcomeUnknown,
    Lake,
    LakelogError,
    SchemaMismatchError,
    VersionNotFoundError,
    read_dataset,
    write_dataset,
)
from tests.contract.upkeep_tables import move_clock
from tests.fixtures.door import Door
from tests.fixtures.lakes import rows


class Watcher:
    """Looks at the catalog between a write's last file and its commit."""

    def __init__(self, lake: Lake, error: BaseException | None = None) -> None:
        self.seen: list[dict[str, Any]] = []
        self._lake = lake
        self._error = error

    def check(self, table_id: int, expected: int | None) -> None:
        self.seen += rows(self._lake, "dl_writes")
        if self._error is not None:
            raise self._error

    def told(self, committed: Sequence[Any]) -> None:
        pass


def test_a_write_is_registered_while_it_is_under_way(spark: SparkSession, local: Lake) -> None:
    write_dataset(local, "events", spark.range(3))
    assert rows(local, "dl_writes") == []
    watcher = local.committer.watcher = Watcher(local)
    write_dataset(local, "events", spark.range(3))
    (seen,) = watcher.seen
    assert seen["location"] == local.dataset("events").location
    assert any(Path(seen["location"], seen["directory"]).iterdir())
    assert seen["expires_at"] - seen["started_at"] == 7 * 24 * 3600 * 1000
    assert rows(local, "dl_writes") == []


def test_a_write_that_fails_takes_its_files_and_its_word_back(spark: SparkSession, local: Lake) -> None:
    write_dataset(local, "events", spark.sql("SELECT 'a' AS day, 1 AS id"), partition_by=["day"])
    reserved = spark.sql("SELECT '__HIVE_DEFAULT_PARTITION__' AS day, 1 AS id")
    with pytest.raises(SchemaMismatchError, match="reserved"):
        write_dataset(local, "events", reserved)
    assert rows(local, "dl_writes") == []
    assert len(list(Path(local.dataset("events").location).glob("__w=*"))) == 1


def test_a_write_of_unknown_outcome_stays_registered(spark: SparkSession, local: Lake) -> None:
    write_dataset(local, "events", spark.range(3))
    local.committer.watcher = Watcher(local, CommitOutcomeUnknown("id"))
    with pytest.raises(CommitOutcomeUnknown):
        write_dataset(local, "events", spark.range(3))
    assert len(rows(local, "dl_writes")) == 1


@pytest.mark.parametrize(("days", "passes"), [(5, True), (8, False)])
def test_a_write_commits_unless_a_vacuum_has_taken_its_lease_back(
    spark: SparkSession, local: Lake, monkeypatch: pytest.MonkeyPatch, days: int, passes: bool
) -> None:
    write_dataset(local, "events", spark.range(3))
    events = local.dataset("events")
    refused = nullcontext() if passes else pytest.raises(LakelogError, match="is not registered any more")
    with refused, local.transaction() as transaction:
        transaction.write("events", spark.range(3))
        time.sleep(0.005)
        move_clock(monkeypatch, timedelta(days=days))
        assert events.vacuum(0, force=True).writes_in_flight == tuple(
            row["directory"] for row in rows(local, "dl_writes")
        )
    assert events.version == passes
    assert rows(local, "dl_writes") == []
    assert len(list(Path(events.location).glob("__w=*"))) == 1 + passes
    assert local.check("events").findings == ()


def test_an_error_before_the_commit_lets_the_files_go(spark: SparkSession, local: Lake) -> None:
    write_dataset(local, "events", spark.range(3))
    local.committer.watcher = Watcher(local, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        write_dataset(local, "events", spark.range(3))
    assert rows(local, "dl_writes") == []
    assert len(list(Path(local.dataset("events").location).glob("__w=*"))) == 1


@pytest.mark.parametrize("backend", ["sqlite"])
def test_writes_through_sparks_door_leave_nothing_registered(
    door: Door, lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    door.write(spark.range(3).coalesce(1))
    door.write_stream(door.read_stream(), f"{tmp_path}/checkpoint", name="copy").awaitTermination()
    assert lake.dataset("copy").count() == 3
    assert rows(lake, "dl_writes") == []


def test_what_spark_wrote_and_replaced_is_vacuumed(spark: SparkSession, local: Lake) -> None:
    for mode in ("append", "overwrite"):
        write_dataset(local, "events", spark.range(3).selectExpr("id", "id % 2 AS day"), mode, partition_by=["day"])
    events = local.dataset("events")
    time.sleep(0.005)
    report = events.vacuum(0, force=True)
    assert report.removed >= 2
    assert report.orphans + report.removed == report.files
    assert len(list(Path(events.location).glob("__w=*"))) == 1
    assert local.check("events", deep=True).findings == ()
    assert read_dataset(local, "events").count() == 3
    with pytest.raises(VersionNotFoundError, match="not whole"):
        read_dataset(local, "events", version=0)
