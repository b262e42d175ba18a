"""Whatever Spark writes for a commit is on the disk before the commit is, unless that is waived."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog import Lake, LakelogError, read_dataset, write_dataset
from lakelog.spark import write_stream
from tests.fixtures.disk import Disk, files_of

FEED = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_writer_syncs_what_it_commits(spark: SparkSession, lake: Lake, disk: Disk, tmp_path: Path) -> None:
    frame = spark.range(8, numPartitions=2).selectExpr("id", "concat('é ', id % 2) AS part")
    write_dataset(lake, "events", frame, partition_by=["part"], properties=FEED)
    dataset = lake.dataset("events")
    dataset.delete("id = 3", spark=spark)
    dataset.update({"part": "'é 2'"}, where="id < 3", spark=spark)
    stream = spark.readStream.schema("id long, part string").json(str(_json(tmp_path)))
    checkpoint = str(tmp_path / "checkpoint")
    write_stream(stream, lake, "events", checkpoint=checkpoint, trigger={"availableNow": True}).awaitTermination()
    dataset.optimize(spark=spark)
    files = files_of(lake, dataset)
    kinds = {(each.suffix, "_change_data" in each.parts) for each in files}
    assert kinds == {(".parquet", False), (".parquet", True), (".bin", False)}
    assert disk.lost(files) == []
    assert read_dataset(lake, "events", spark=spark).count() == 8


def test_rows_that_do_not_reach_the_disk_are_not_committed(spark: SparkSession, lake: Lake, disk: Disk) -> None:
    write_dataset(lake, "events", spark.range(3))
    dataset = lake.dataset("events")
    version, before = dataset.version, set(Path(dataset.location).rglob("*.parquet"))
    disk.fails = lambda path: path.suffix == ".parquet" and path not in before
    with pytest.raises(LakelogError, match="cannot be made durable"):
        write_dataset(lake, "events", spark.range(3))
    assert dataset.version == version
    assert set(Path(dataset.location).rglob("*.parquet")) == before


def _json(directory: Path) -> Path:
    place = directory / "json"
    place.mkdir()
    (place / "a.json").write_text('{"id": 9, "part": "é 1"}\n')
    return place
