"""A Spark application that is killed in the middle of a change: what stands is whole, and the rest is nobody's."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog import Lake, read_dataset, write_dataset
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants

APPLICATION = """
import os, signal, sys
import lakelog, lakelog.spark
from lakelog.log.commit.committer import Committer
from lakelog.spark.write.parquet_writer import Stage
url, root, schema, change, point = sys.argv[1:]

def killed(*arguments, **options):
    os.kill(os.getpid(), signal.SIGKILL)

config = {"spark.driver.memory": "512m", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
spark = lakelog.spark.session("killed", master="local[1]", config=config)
lake = lakelog.connect(url, root=root, schema=schema)
source = spark.createDataFrame([(3, "m"), (77, "m")], "id long, s string").alias("n")
if point == "files":
    Stage._harvest = killed
elif point == "commit":
    Committer.finish = killed
else:
    Committer.tell = killed
if change == "merge":
    merge = lake.dataset("one").merge(source, "t.id = n.id", alias="t")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
else:
    with lake.transaction() as tx:
        tx.write("two", tx.read("one", "id < 5"))
        tx.delete("one", "id < 5")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "change", "point"),
    [
        ("sqlite", "merge", "files"),
        ("postgres", "merge", "stands"),
        ("postgres", "transaction", "commit"),
        ("sqlite", "transaction", "stands"),
    ],
)
def test_a_change_that_is_killed_stands_whole_or_not_at_all(
    lake: Lake, place: Place, spark: SparkSession, change: str, point: str
) -> None:
    for name in ("one", "two"):
        write_dataset(lake, name, spark.range(10).selectExpr("id", "'old' AS s").coalesce(1))
    arguments = [place.url, str(place.root), place.schema, change, point]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    done = subprocess.run(
        [sys.executable, "-c", APPLICATION, *arguments], env=environment, capture_output=True, timeout=300, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()[-2000:]
    stands = point == "stands"
    one, two = (sorted(tuple(row) for row in read_dataset(lake, name).collect()) for name in ("one", "two"))
    if not stands:
        assert lake.versions() == {"one": 0, "two": 0}
        assert len(one) == len(two) == 10
    elif change == "merge":
        assert lake.versions() == {"one": 1, "two": 0}
        assert [row for row in one if row[1] == "m"] == [(3, "m"), (77, "m")]
    else:
        assert lake.versions() == {"one": 1, "two": 1}
        assert (len(one), len(two)) == (5, 15)
    for name in ("one", "two"):
        lake.dataset(name).mirror()
    check_invariants(lake)
    # Nothing is in the way of who does it again.
    lake.dataset("one").delete("id = 9")
    assert lake.dataset("one").count() == len(one) - 1
