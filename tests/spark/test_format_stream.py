"""Streams through Spark's own door, into tables and out of them: each row once, whatever happens in between."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog import Lake, SqlTxnLogWriter, read_dataset, write_dataset
from lakelog.actions import AddFile, RemoveFile
from lakelog.spark.datasource.budget import Budget
from tests.fixtures.door import BACKENDS, NAME, Door
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants

COPY = "copy"


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


on_every_catalog = pytest.mark.parametrize("backend", BACKENDS, indirect=True)


def ids(lake: Lake, name: str = COPY) -> list[int]:
    return sorted(row[0] for row in read_dataset(lake, name).collect())


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return str(tmp_path / "checkpoint")


def copy(door: Door, checkpoint: str, **options: Any) -> None:
    """All that is there now, from one table into another."""
    door.write_stream(door.read_stream(**options), checkpoint, COPY).awaitTermination()


def drop_commit(checkpoint: str, batch: int) -> None:
    """As if Spark had died between our commit and its own."""
    for name in (f"{batch}", f".{batch}.crc"):
        Path(checkpoint, "commits", name).unlink()


class TestCopies:
    @on_every_catalog
    def test_the_table_as_it_is_and_then_its_commits(
        self, lake: Lake, door: Door, spark: SparkSession, checkpoint: str
    ) -> None:
        write_dataset(lake, NAME, spark.range(0, 40, numPartitions=4))
        write_dataset(lake, NAME, spark.range(40, 50, numPartitions=1))
        copy(door, checkpoint, maxFilesPerTrigger=2)
        assert ids(lake) == list(range(50))
        assert lake.dataset(COPY).version == 2, "five files, two at a time"
        write_dataset(lake, NAME, spark.range(50, 60, numPartitions=3))
        write_dataset(lake, NAME, spark.range(60, 70, numPartitions=1))
        copy(door, checkpoint, maxFilesPerTrigger=2)
        assert (ids(lake), lake.dataset(COPY).version) == (list(range(70)), 4)
        copy(door, checkpoint)
        assert lake.dataset(COPY).version == 4, "nothing new is no batch"
        drop_commit(checkpoint, 4)
        files = sorted(Path(lake.dataset(COPY).location).rglob("*.parquet"))
        copy(door, checkpoint)
        assert (ids(lake), lake.dataset(COPY).version) == (list(range(70)), 4), "a batch that was committed is skipped"
        assert sorted(Path(lake.dataset(COPY).location).rglob("*.parquet")) == files, "and leaves no files"
        check_invariants(lake)

    def test_where_a_stream_starts(self, lake: Lake, door: Door, spark: SparkSession, tmp_path: Path) -> None:
        for number in range(3):
            write_dataset(lake, NAME, spark.range(number, number + 1))
        second = lake.dataset(NAME).history()[1].timestamp
        for number, (options, expected) in enumerate(
            [
                ({"startingVersion": "1"}, [1, 2]),
                ({"startingVersion": "latest"}, []),
                ({"startingTimestamp": second.isoformat()}, [1, 2]),
                ({"startingTimestamp": "2000-01-01", "maxBytesPerTrigger": "1b"}, [0, 1, 2]),
            ]
        ):
            found = []
            query = (
                door.read_stream(**options)
                .writeStream.foreachBatch(lambda batch, _, found=found: found.extend(batch.collect()))
                .option("checkpointLocation", str(tmp_path / str(number)))
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination()
            assert sorted(row.id for row in found) == expected, options
        with pytest.raises(PySparkException, match="has no version 9: its versions are 0 to 2"):
            copy(door, str(tmp_path / "late"), startingVersion=9)

    def test_a_stream_of_no_rows_and_a_table_that_it_creates(
        self, lake: Lake, door: Door, spark: SparkSession, checkpoint: str, tmp_path: Path
    ) -> None:
        source = tmp_path / "source"
        source.mkdir()
        (source / "a.json").write_text('{"id": 1, "k": "x"}\n{"id": 2, "k": null}\n')
        frame = spark.readStream.schema("id bigint, k string").json(str(source))
        door.write_stream(frame.where("id > 5"), checkpoint, partitionColumns="k").awaitTermination()
        assert (ids(lake, NAME), lake.dataset(NAME).version) == ([], 0)
        (source / "b.json").write_text('{"id": 6, "k": "y"}\n')
        door.write_stream(frame.where("id > 5"), checkpoint, userMetadata="more").awaitTermination()
        assert ids(lake, NAME) == [6]
        assert lake.dataset(NAME).snapshot().metadata.partition_columns == ("k",)
        check_invariants(lake)


class TestChanges:
    def test_compactions_are_skipped_and_changes_stop_the_stream(
        self, lake: Lake, door: Door, spark: SparkSession, checkpoint: str
    ) -> None:
        write_dataset(lake, NAME, spark.range(0, 2, numPartitions=1))
        copy(door, checkpoint)
        dataset = lake.dataset(NAME)
        compact(lake)
        copy(door, checkpoint)
        assert lake.dataset(COPY).version == 0
        (path,) = dataset.snapshot().files().column("path").to_pylist()
        SqlTxnLogWriter(lake).commit(dataset.id, dataset.version + 1, [RemoveFile(path=path)], operation="DELETE")
        with pytest.raises(PySparkException, match=r"version 2 of 'events' \(DELETE\) deleted rows.*Set ignoreDeletes"):
            copy(door, checkpoint)
        write_dataset(lake, NAME, spark.range(2, 3))
        copy(door, checkpoint, ignoreDeletes="true")
        assert ids(lake) == [0, 1, 2]
        write_dataset(lake, NAME, spark.range(7, 8), "overwrite")
        write_dataset(lake, NAME, spark.range(3, 4))
        with pytest.raises(PySparkException, match=r"changed or replaced rows.*Set skipChangeCommits"):
            copy(door, checkpoint, ignoreDeletes="true")
        copy(door, checkpoint, skipChangeCommits="true")
        assert ids(lake) == [0, 1, 2, 3]

    def test_another_schema_needs_a_restart_and_a_lost_file_is_an_error(
        self, lake: Lake, door: Door, spark: SparkSession, checkpoint: str
    ) -> None:
        write_dataset(lake, NAME, spark.range(1))
        frame = door.read_stream()
        write_dataset(lake, NAME, spark.range(1, 2).withColumn("more", F.lit("x")), schema_merge=True)
        with pytest.raises(PySparkException, match=r"the schema of 'events' was changed after version 0.*restart"):
            door.write_stream(frame, checkpoint, COPY).awaitTermination()
        copy(door, checkpoint)
        assert ids(lake) == [0, 1]
        write_dataset(lake, NAME, spark.range(2, 3).withColumn("more", F.lit("x")))
        path = lake.dataset(NAME).changes(2).added.column("path")[0].as_py()
        lost = Path(lake.dataset(NAME).location, path)
        kept = lost.read_bytes()
        lost.unlink()
        with pytest.raises(PySparkException, match="is gone: it belongs to a version that was read too late"):
            copy(door, checkpoint)
        lost.write_bytes(kept)
        copy(door, checkpoint)
        assert ids(lake) == [0, 1, 2]

    def test_a_checkpoint_of_another_incarnation_is_refused(
        self, lake: Lake, door: Door, spark: SparkSession, checkpoint: str
    ) -> None:
        write_dataset(lake, NAME, spark.range(1))
        copy(door, checkpoint)
        lake.drop_dataset(NAME)
        write_dataset(lake, NAME, spark.range(5))
        with pytest.raises(PySparkException, match="the checkpoint is of another table"):
            copy(door, checkpoint)


class TestRefused:
    def test_options(self, lake: Lake, door: Door, spark: SparkSession, checkpoint: str, tmp_path: Path) -> None:
        write_dataset(lake, NAME, spark.range(1))
        rates = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load().select("value")
        with pytest.raises(PySparkException) as caught:
            door.write_stream(rates, checkpoint, COPY, txnAppId="a", replaceWhere="k = 1").awaitTermination()
        assert "txnAppId: is an option of df.write" in str(caught.value)
        assert "replaceWhere: is an option of df.write" in str(caught.value)
        with pytest.raises(PySparkException, match=r"versionAsOf: is an option of spark\.read"):
            copy(door, str(tmp_path / "other"), versionAsOf=0)
        duck = {**door.options, "catalog": f"duckdb:///{tmp_path}/duck.db"}
        with pytest.raises(PySparkException, match="a DuckDB catalog belongs to one process"):
            spark.readStream.format("lakelog").options(**duck).load(NAME)
        assert [dataset.name for dataset in lake.datasets()] == [NAME]


@pytest.mark.parametrize(
    ("files", "size", "taken"),
    [
        (None, None, [3, 2]),
        (2, None, [2, 0]),
        (4, None, [3, 1]),
        (None, 25, [2, 0]),
        (None, 5, [1, 0]),
        (9, 35, [3, 0]),
    ],
)
def test_a_batch_holds_no_more_than_it_may(files: int | None, size: int | None, taken: list[int]) -> None:
    budget = Budget(files, size)
    assert [budget.take(pa.table({"size": [10] * count})) for count in (3, 2)] == taken


def compact(lake: Lake) -> None:
    """The same rows in another file."""
    dataset = lake.dataset(NAME)
    files = dataset.snapshot().files()
    path, size = files.column("path")[0].as_py(), files.column("size")[0].as_py()
    Path(dataset.location, "compacted.parquet").write_bytes(Path(dataset.location, path).read_bytes())
    added = AddFile(path="compacted.parquet", size=size, modification_time=0, data_change=False)
    actions = [RemoveFile(path=path, data_change=False), added]
    SqlTxnLogWriter(lake).commit(dataset.id, dataset.version + 1, actions, operation="OPTIMIZE")


KILLED = """
import os, signal, sys
import lakelog, lakelog.spark
from lakelog.log.commit.committer import Committer
from lakelog.spark.datasource import stream_writer
from pyspark_lakelog import DefaultSource

url, root, checkpoint, step = sys.argv[1:]
place, _, after = step.partition(" ")
spark = lakelog.spark.session("killed", master="local[1]", config={"spark.driver.memory": "512m"})
victims = [spark.sparkContext._gateway.proc.pid, os.getpid()]


class Dying(stream_writer.StreamWriter):
    def commit(self, messages, batchId):
        def die():
            for victim in [*victims, os.getpid()]:
                os.kill(victim, signal.SIGKILL)

        def dies(*arguments):
            if not after:
                die()
            result = original(*arguments)
            die()
            return result

        parent = super().commit
        if batchId != 1:
            return parent(messages, batchId)
        if place == "batch":
            original = parent
            return dies(messages, batchId)
        original = getattr(Committer, place)
        setattr(Committer, place, dies)
        parent(messages, batchId)


class Source(DefaultSource):
    def streamWriter(self, schema, overwrite):
        return Dying(self.options, schema, overwrite)


spark.dataSource.register(Source)
options = {"catalog": url, "root": root}
frame = spark.readStream.format("lakelog").options(**options).option("maxFilesPerTrigger", 1).load("events")
writer = frame.writeStream.format("lakelog").options(**options).option("checkpointLocation", checkpoint)
writer.trigger(availableNow=True).start("copy").awaitTermination()
"""


@pytest.mark.slow
@pytest.mark.parametrize("step", ["commit", "batch after"])
def test_a_stream_that_is_killed_at_any_step_copies_each_row_once(
    lake: Lake, door: Door, place: Place, spark: SparkSession, checkpoint: str, step: str
) -> None:
    write_dataset(lake, NAME, spark.range(0, 40, numPartitions=4))
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, place.url, str(place.root), checkpoint, step],
        capture_output=True,
        check=False,
        env=dict(os.environ),
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()[-2000:]
    assert len(ids(lake)) == (20 if "after" in step else 10)
    copy(door, checkpoint, maxFilesPerTrigger=1)
    assert ids(lake) == list(range(40))
    check_invariants(lake)
