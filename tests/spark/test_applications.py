"""Several Spark applications on one table at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from lakelog import Lake, read_dataset
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants

APPLICATIONS = 4
APPENDS = 3

APPLICATION = """
import sys, time
from pathlib import Path
import lakelog, lakelog.spark
url, root, schema, number, appends, others = sys.argv[1:]
config = {"spark.driver.memory": "512m", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
spark = lakelog.spark.session(f"application-{number}", master="local[1]", config=config)
lake = lakelog.connect(url, root=root, schema=schema)
Path(root, f"ready-{number}").touch()
while len(list(Path(root).glob("ready-*"))) < int(others):
    time.sleep(0.1)
for append in range(int(appends)):
    start = int(number) * 1000 + append * 10
    lakelog.write_dataset(lake, "events", spark.range(start, start + 10), retries=50, committer=number)
"""


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["postgres"])
def test_applications_append_to_one_table_at_once_and_nothing_is_lost(
    lake: Lake, place: Place, spark: SparkSession
) -> None:
    """All of them start without the table, so that its creation is one of the races."""
    arguments = [place.url, str(place.root), place.schema]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", APPLICATION, *arguments, str(number), str(APPENDS), str(APPLICATIONS)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for number in range(APPLICATIONS)
    ]
    for process in running:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors.decode()[-2000:]
    rows = sorted(row.id for row in read_dataset(lake, "events", spark=spark).collect())
    assert rows == sorted(number * 1000 + row for number in range(APPLICATIONS) for row in range(APPENDS * 10))
    history = lake.dataset("events").history()
    assert [commit.version for commit in reversed(history)] == list(range(APPLICATIONS * APPENDS))
    made = [commit.committer for commit in history]
    assert all(made.count(str(number)) == APPENDS for number in range(APPLICATIONS))
    check_invariants(lake)
