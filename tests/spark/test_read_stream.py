"""A stream out of a table: every row once, in the order of commits, and loud where that cannot be."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import lakelog
from lakelog import Lake, LakelogError, SqlTxnLogWriter, ValidationError, read_dataset, write_dataset
from lakelog.actions import AddFile, RemoveFile
from lakelog.spark import read_stream, write_stream
from tests.invariants import check_invariants

NOW = {"availableNow": True}


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def copy(lake: Lake, checkpoint: str, **options: Any) -> None:
    """Streams what is new of one table into another, and ends."""
    frame = read_stream(lake, "source", checkpoint=checkpoint, **options)
    write_stream(frame, lake, "target", checkpoint=checkpoint, trigger=NOW, schema_merge=True).awaitTermination()


def ids(lake: Lake, name: str = "target") -> list[int]:
    return sorted(row.id for row in read_dataset(lake, name).collect())


def test_the_table_as_it_is_comes_first_and_then_each_commit(lake: Lake, spark: SparkSession, checkpoint: str) -> None:
    write_dataset(lake, "source", spark.range(5))
    write_dataset(lake, "source", spark.range(5, 10))
    copy(lake, checkpoint)
    assert ids(lake) == list(range(10))
    write_dataset(lake, "source", spark.range(10, 12))
    copy(lake, checkpoint)
    copy(lake, checkpoint)
    assert ids(lake) == list(range(12))
    check_invariants(lake)


def test_a_running_query_sees_commits_as_they_come(local: Lake, spark: SparkSession, checkpoint: str) -> None:
    write_dataset(local, "source", spark.range(1))
    query = write_stream(read_stream(local, "source", checkpoint=checkpoint), local, "target", checkpoint=checkpoint)
    try:
        for number in range(1, 4):
            write_dataset(local, "source", spark.range(number, number + 1))
            wait_for(lambda number=number: _has(local, number))  # type: ignore[misc]
    finally:
        query.stop()
    assert ids(local) == [0, 1, 2, 3]


def test_batches_are_as_large_as_asked_for_in_the_order_of_versions(
    local: Lake, spark: SparkSession, checkpoint: str
) -> None:
    for number in range(5):
        write_dataset(local, "source", spark.range(number, number + 1))
    copy(local, checkpoint, max_files_per_trigger=2)
    found = [read_dataset(local, "target", version).collect() for version in range(3)]
    assert [sorted(row.id for row in rows) for rows in found] == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]]


@pytest.mark.parametrize(
    ("options", "expected"),
    [({"starting_version": 1}, [1, 2]), ({"starting_version": "latest"}, []), ({"starting_version": 0}, [0, 1, 2])],
)
def test_a_stream_begins_where_it_is_told(
    local: Lake, spark: SparkSession, checkpoint: str, options: dict[str, Any], expected: list[int]
) -> None:
    for number in range(3):
        write_dataset(local, "source", spark.range(number, number + 1))
    copy(local, checkpoint, **options)
    write_dataset(local, "source", spark.range(3, 4))
    copy(local, checkpoint, **options)
    assert ids(local) == [*expected, 3]


def test_a_stream_begins_at_a_time(local: Lake, spark: SparkSession, checkpoint: str) -> None:
    for number in range(3):
        write_dataset(local, "source", spark.range(number, number + 1))
        time.sleep(0.005)
    copy(local, checkpoint, starting_timestamp=local.dataset("source").history()[1].timestamp)
    assert ids(local) == [1, 2]


def test_partition_values_are_those_of_the_table(local: Lake, spark: SparkSession, checkpoint: str) -> None:
    texts = ["a b", "ü+%/:=é", None, "100%", "x?y#z", "a%2Bb"]
    rows = [(number, date(2026, 1, 1 + number), text) for number, text in enumerate(texts)]
    frame = spark.createDataFrame(rows, "id bigint, day date, text string")
    zoned = frame.selectExpr("*", "timestamp_seconds(id * 1000) AS at")
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        write_dataset(local, "source", zoned, partition_by=["day", "text", "at"])
        copy(local, checkpoint)
        assert table(read_dataset(local, "target")) == table(zoned)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


def test_a_compaction_is_not_seen_and_a_restart_does_not_begin_again(
    local: Lake, spark: SparkSession, checkpoint: str
) -> None:
    write_dataset(local, "source", spark.range(3).coalesce(1))
    copy(local, checkpoint)
    compacted(local, "source")
    write_dataset(local, "source", spark.range(3, 4))
    copy(local, checkpoint)
    assert ids(local) == [0, 1, 2, 3]


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_commit_that_takes_rows_away_is_refused_or_left_out(
    local: Lake, spark: SparkSession, checkpoint: str, overwrite: bool
) -> None:
    write_dataset(local, "source", spark.range(3))
    copy(local, checkpoint)
    if overwrite:
        write_dataset(local, "source", spark.range(100, 102), "overwrite")
    else:
        write_dataset(local, "source", spark.range(0), "overwrite", replace_where="id < 10")
    write_dataset(local, "source", spark.range(3, 4))
    with pytest.raises(LakelogError, match="a stream only appends"):
        copy(local, checkpoint)
    assert ids(local) == [0, 1, 2]
    if overwrite:
        with pytest.raises(LakelogError, match="changed or replaced rows"):
            copy(local, checkpoint, ignore_deletes=True)
        copy(local, checkpoint, skip_change_commits=True)
    else:
        copy(local, checkpoint, ignore_deletes=True)
    assert ids(local) == [0, 1, 2, 3]


def test_a_running_query_fails_when_rows_are_taken_away_and_can_go_on(
    local: Lake, spark: SparkSession, checkpoint: str
) -> None:
    write_dataset(local, "source", spark.range(1))
    query = write_stream(read_stream(local, "source", checkpoint=checkpoint), local, "target", checkpoint=checkpoint)
    wait_for(lambda: _has(local, 0))
    write_dataset(local, "source", spark.range(1, 2))
    write_dataset(local, "source", spark.range(50, 51), "overwrite")
    wait_for(lambda: not query.isActive)
    assert "stopped-version-2-of-source" in str(query.exception())
    write_dataset(local, "source", spark.range(2, 3))
    copy(local, checkpoint, skip_change_commits=True)
    assert ids(local) == [0, 1, 2]


def test_a_change_of_columns_stops_the_query_and_a_restart_reads_on(
    local: Lake, spark: SparkSession, checkpoint: str
) -> None:
    write_dataset(local, "source", spark.range(1))
    query = write_stream(read_stream(local, "source", checkpoint=checkpoint), local, "target", checkpoint=checkpoint)
    wait_for(lambda: _has(local, 0))
    write_dataset(local, "source", spark.range(1, 2).selectExpr("id", "'x' AS name"), schema_merge=True)
    wait_for(lambda: not query.isActive)
    assert "stopped-the-columns-of-source-were-changed" in str(query.exception())
    copy(local, checkpoint)
    assert table(read_dataset(local, "target")) == [(0, None), (1, "x")]


def test_a_change_of_a_comment_is_not_noticed(local: Lake, spark: SparkSession, checkpoint: str) -> None:
    write_dataset(local, "source", spark.range(1))
    query = write_stream(read_stream(local, "source", checkpoint=checkpoint), local, "target", checkpoint=checkpoint)
    wait_for(lambda: _has(local, 0))
    local.dataset("source").set_comment("id", "a number")
    write_dataset(local, "source", spark.range(1, 2))
    wait_for(lambda: _has(local, 1))
    query.stop()
    assert ids(local) == [0, 1]


def test_a_file_that_is_gone_is_never_left_out(local: Lake, spark: SparkSession, checkpoint: str) -> None:
    write_dataset(local, "source", spark.range(1))
    copy(local, checkpoint)
    write_dataset(local, "source", spark.range(1, 2))
    for path in Path(local.dataset("source").location).rglob("*.parquet"):
        path.unlink()
    with pytest.raises(LakelogError, match="is gone"):
        copy(local, checkpoint)


def test_a_renamed_column_is_read_under_its_new_name(local: Lake, spark: SparkSession, checkpoint: str) -> None:
    write_dataset(local, "source", spark.range(3).withColumnRenamed("id", "old"))
    local.dataset("source").rename_column("old", "id")
    write_dataset(local, "source", spark.range(3, 4))
    copy(local, checkpoint)
    assert ids(local) == [0, 1, 2, 3]


def test_what_is_wrong_is_said_before_a_query_starts(local: Lake, spark: SparkSession, checkpoint: str) -> None:
    write_dataset(local, "source", spark.range(1))
    with pytest.raises(ValidationError, match="max_files_per_trigger: give it, or max_bytes_per_trigger"):
        read_stream(local, "source", checkpoint=checkpoint, max_files_per_trigger=1, max_bytes_per_trigger=1)
    with pytest.raises(ValidationError, match="expected a version or 'latest', got str 'soon'"):
        read_stream(local, "source", checkpoint=checkpoint, starting_version="soon")
    copy(local, checkpoint)
    write_dataset(local, "other", spark.range(1))
    with pytest.raises(LakelogError, match="is of a query that did not read 'other'"):
        read_stream(local, "other", checkpoint=checkpoint)


def test_the_feed_holds_only_what_the_query_has_not_taken(local: Lake, spark: SparkSession, checkpoint: str) -> None:
    for number in range(20):
        write_dataset(local, "source", spark.range(number, number + 1))
    copy(local, checkpoint)
    read_stream(local, "source", checkpoint=checkpoint)
    (manifest,) = Path(checkpoint).glob("lakelog/*/_spark_metadata/0")
    assert len(manifest.read_text().splitlines()) == 2


KILLED = """
import os, signal, sys
import lakelog, lakelog.spark
from lakelog.log.commit.committer import Committer
from lakelog.spark.streaming import feed
url, root, checkpoint, step = sys.argv[1:]
spark = lakelog.spark.session("killed", master="local[1]", config={"spark.driver.memory": "512m"})
lake = lakelog.connect(url, root=root)
place, _, after = step.partition(" ")
owner, name, at = {"begin": (feed.Feed, "begin", 1), "publish": (feed.Feed, "_publish", 1),
                   "commit": (Committer, "commit", 2)}[place]
original, calls = getattr(owner, name), 0
def dies(self, *arguments):
    global calls
    calls += 1
    if calls == at and not after:
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(self, *arguments)
    if calls == at:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(owner, name, dies)
frame = lakelog.spark.read_stream(lake, "source", checkpoint=checkpoint, max_files_per_trigger=1)
query = lakelog.spark.write_stream(frame, lake, "target", checkpoint=checkpoint, trigger={"availableNow": True})
query.awaitTermination()
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["begin after", "publish after", "commit", "commit after"])
def test_a_query_that_is_killed_at_any_step_copies_each_row_once(
    spark: SparkSession, tmp_path: Path, checkpoint: str, step: str
) -> None:
    url, root = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "lake")
    with lakelog.connect(url, root=root) as lake:
        for number in range(4):
            write_dataset(lake, "source", spark.range(number * 10, number * 10 + 10).coalesce(1))
        killed = subprocess.run(
            [sys.executable, "-c", KILLED, url, root, checkpoint, step],
            capture_output=True,
            check=False,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
        compacted(lake, "source")
        copy(lake, checkpoint)
        assert ids(lake) == list(range(40))
        check_invariants(lake)


def compacted(lake: Lake, name: str) -> None:
    """Gives the table's first file another name, which changes no rows."""
    dataset = lake.dataset(name)
    (old, size), *_ = [
        (row["path"], row["size"]) for row in dataset.snapshot().files(columns=["path", "size"]).to_pylist()
    ]
    place = Path(dataset.location, old)
    copied = place.with_name("compacted.parquet")
    copied.write_bytes(place.read_bytes())
    new = str(copied.relative_to(dataset.location))
    actions = [RemoveFile(path=old, data_change=False), AddFile(path=new, size=size, data_change=False)]
    SqlTxnLogWriter(lake).commit(dataset.id, dataset.version + 1, actions, operation="OPTIMIZE")


def table(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=str)


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.1)


def _has(lake: Lake, number: int) -> bool:
    return any(each.name == "target" for each in lake.datasets()) and number in ids(lake)


def test_a_change_of_partitioning_stops_the_query_and_a_restart_reads_on(
    local: Lake, spark: SparkSession, checkpoint: str
) -> None:
    write_dataset(local, "source", spark.range(0).selectExpr("id", "id AS k"))
    query = write_stream(read_stream(local, "source", checkpoint=checkpoint), local, "target", checkpoint=checkpoint)
    rows = spark.range(2).selectExpr("id", "id AS k")
    write_dataset(local, "source", rows, "overwrite", overwrite_schema=True, partition_by=["k"])
    wait_for(lambda: not query.isActive)
    assert "stopped-the-partitioning-of-source-was-changed" in str(query.exception())
    copy(local, checkpoint)
    assert table(read_dataset(local, "target")) == [(0, 0), (1, 1)]


def test_a_file_of_a_batch_that_was_begun_is_not_left_out(local: Lake, spark: SparkSession, checkpoint: str) -> None:
    for number in range(3):
        write_dataset(local, "source", spark.range(number, number + 1).coalesce(1))
    copy(local, checkpoint)
    # As if the process had died in the middle of the batch.
    for path in Path(checkpoint, "commits").iterdir():
        path.unlink()
    copy(local, checkpoint)
    for path in Path(checkpoint, "commits").iterdir():
        path.unlink()
    first = local.dataset("source").snapshot(0).files(columns=["path"]).column("path")[0].as_py()
    Path(local.dataset("source").location, first).unlink()
    with pytest.raises(LakelogError, match="has not read yet is gone"):
        copy(local, checkpoint)


def test_a_call_that_is_refused_leaves_a_running_query_as_it_is(
    local: Lake, spark: SparkSession, checkpoint: str
) -> None:
    write_dataset(local, "source", spark.range(1))
    frame = read_stream(local, "source", checkpoint=checkpoint, ignore_deletes=True)
    query = write_stream(frame, local, "target", checkpoint=checkpoint)
    wait_for(lambda: _has(local, 0))
    write_dataset(local, "source", spark.range(0), "overwrite", replace_where="id < 10")
    with pytest.raises(LakelogError, match="deleted rows"):
        read_stream(local, "source", checkpoint=checkpoint)
    write_dataset(local, "source", spark.range(1, 2))
    wait_for(lambda: _has(local, 1))
    query.stop()


def test_a_table_can_be_read_twice_in_one_query(local: Lake, spark: SparkSession, checkpoint: str) -> None:
    for number in range(4):
        write_dataset(local, "source", spark.range(number, number + 1))
    one = read_stream(local, "source", checkpoint=checkpoint, max_files_per_trigger=1)
    two = read_stream(local, "source", checkpoint=checkpoint, max_files_per_trigger=3)
    query = write_stream(one.union(two), local, "target", checkpoint=checkpoint, trigger=NOW)
    query.awaitTermination()
    assert ids(local) == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize("limit", [{"max_files_per_trigger": 0}, {"max_bytes_per_trigger": "1g"}])
def test_a_limit_is_a_positive_number(local: Lake, spark: SparkSession, checkpoint: str, limit: dict[str, Any]) -> None:
    write_dataset(local, "source", spark.range(1))
    with pytest.raises(ValidationError, match="expected a positive integer"):
        read_stream(local, "source", checkpoint=checkpoint, **limit)
