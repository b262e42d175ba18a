"""A stream into a dataset holds each row once, whatever happens between two steps."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import lakelog
from lakelog import Lake, ValidationError, read_dataset
from lakelog.spark import write_stream
from tests.invariants import check_invariants

NAME = "events"
FILES = 4


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A directory of small files, which a stream takes one at a time."""
    directory = tmp_path / "source"
    directory.mkdir()
    for number in range(FILES):
        (directory / f"{number}.json").write_text("".join(f'{{"id": {number * 10 + row}}}\n' for row in range(10)))
    return directory


def stream_of(spark: SparkSession, source: Path):  # type: ignore[no-untyped-def]
    return spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).json(str(source))


def ids(lake: Lake) -> list[int]:
    return sorted(row.id for row in read_dataset(lake, NAME).collect())


def test_each_batch_is_one_commit_and_a_restart_goes_on(
    lake: Lake, spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    options = {"checkpoint": str(tmp_path / "checkpoint"), "trigger": {"availableNow": True}}
    write_stream(stream_of(spark, source), lake, NAME, **options).awaitTermination()
    assert ids(lake) == list(range(FILES * 10))
    assert lake.dataset(NAME).version == FILES - 1
    (source / "more.json").write_text('{"id": 1000}\n')
    write_stream(stream_of(spark, source), lake, NAME, **options).awaitTermination()
    assert ids(lake) == [*range(FILES * 10), 1000]
    check_invariants(lake)


def test_a_batch_that_was_committed_but_not_checkpointed_is_skipped(
    lake: Lake, spark: SparkSession, source: Path, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    options = {"checkpoint": str(checkpoint), "trigger": {"availableNow": True}}
    write_stream(stream_of(spark, source), lake, NAME, **options).awaitTermination()
    # As if Spark had died between our commit and its own.
    for name in (f"{FILES - 1}", f".{FILES - 1}.crc"):
        (checkpoint / "commits" / name).unlink()
    write_stream(stream_of(spark, source), lake, NAME, **options).awaitTermination()
    assert ids(lake) == list(range(FILES * 10))
    assert lake.dataset(NAME).version == FILES - 1


def test_what_a_stream_sets_itself_is_refused(local: Lake, spark: SparkSession, tmp_path: Path, source: Path) -> None:
    checkpoint = str(tmp_path / "checkpoint")
    with pytest.raises(ValidationError) as caught:
        write_stream(spark.range(1), local, NAME, checkpoint=checkpoint, txn_version=1, mode="overwrite")
    assert {violation.where for violation in caught.value.violations} == {"txn_version", "frame", "mode"}


KILLED = """
import os, signal, sys
import lakelog, lakelog.spark, lakelog.spark.write.parquet_writer as stage
from lakelog.log.commit.committer import Committer
url, root, source, checkpoint, step = sys.argv[1:]
spark = lakelog.spark.session("killed", master="local[1]", config={"spark.driver.memory": "512m"})
lake = lakelog.connect(url, root=root)
place, _, after = step.partition(" ")
owner, name = {"write": (stage.Stage, "write"), "harvest": (stage.Stage, "_harvest"),
               "commit": (Committer, "commit"), "finish": (Committer, "finish")}[place]
original, calls = getattr(owner, name), 0
def dies(self, *arguments):
    global calls
    calls += 1
    if calls == 2 and not after:
        os.kill(os.getpid(), signal.SIGKILL)
    result = original(self, *arguments)
    if calls == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return result
setattr(owner, name, dies)
frame = spark.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).json(source)
query = lakelog.spark.write_stream(frame, lake, "events", checkpoint=checkpoint, trigger={"availableNow": True})
query.awaitTermination()
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["write", "harvest", "finish", "finish after", "commit after"])
def test_a_stream_that_is_killed_at_any_step_holds_each_row_once(
    spark: SparkSession, source: Path, tmp_path: Path, step: str
) -> None:
    """Before its files, with files alone, inside the transaction, when it stands, and when it is mirrored."""
    url, root, checkpoint = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "lake"), str(tmp_path / "checkpoint")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, url, root, str(source), checkpoint, step],
        capture_output=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")},
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    with lakelog.connect(url, root=root) as lake:
        write_stream(
            stream_of(spark, source), lake, NAME, checkpoint=checkpoint, trigger={"availableNow": True}
        ).awaitTermination()
        assert ids(lake) == list(range(FILES * 10))
        check_invariants(lake)
