"""Rows deleted and merged, beside delta-rs, and delta-spark where its jars can be had.

All start from copies of the same files: ten million rows in ten partitions. Each round deletes one in a hundred rows of
one partition, and merges a hundred thousand rows, half of which are there, spread over the whole table. The systems
have to agree on the rows in the end.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakelog.bench.in_spark import in_spark
from lakelog.bench.lab import Lab, Place
from lakelog.bench.measure import Figure, Sample, Target, in_turns, seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BACKENDS = ("sqlite",)
TARGETS = (Target(at_most=1.2, ratio=True),)
JARS, PYTHON = "LAKELOG_TEST_DELTA_JARS", "LAKELOG_TEST_DELTA_PYTHON"
_NAME = "events"
_TASKS = 8
_COLUMNS = (
    "id",
    "timestamp_seconds(1767225600 + id) AS event_time",
    "pmod(hash(id), 100000) / 8.0D AS amount",
    "CAST(pmod(hash(id, 1), 1000000) / 100 AS DECIMAL(10, 2)) AS price",
    "element_at(array('Aachen', 'Bergen', 'Cork', 'Dijon', 'Faro'), 1 + pmod(hash(id, 3), 5)) AS city",
    "date_add(DATE '2026-01-01', pmod(hash(id, 4), 10)) AS day",
)
_DELETED = "day = '2026-01-01' AND id % 100 = {round}"


def measure(lab: Lab, backend: str) -> list[Figure]:
    if backend not in BACKENDS:
        return []
    scale = lab.scale
    found = in_spark(
        __name__,
        {},
        place=astuple(lab.place(backend)),
        directory=str(lab.directory / "spark-change"),
        rows=scale.rows,
        rounds=min(scale.spark_rounds, 3),
    )
    figures = []
    for what, samples in found["seconds"].items():
        others = {name: times for name, times in samples.items() if name != "lakelog"}
        fastest = min(others, key=lambda name: Sample(tuple(others[name])).median)
        figures.append(
            Figure(
                subject=f"{scale.rows:,} rows changed",
                backend=backend,
                what=what,
                unit="s",
                sample=Sample(tuple(samples["lakelog"])),
                limit=Sample(tuple(others[fastest])),
                against=fastest,
                targets=TARGETS if scale.full else (),
                note="; ".join(
                    f"{name} {Sample(tuple(times)).median:.3g} s, {found['files'][what][name]} files written again"
                    for name, times in samples.items()
                ),
            )
        )
    return figures


def run(spark: "SparkSession", place: list[str], directory: str, rows: int, rounds: int) -> dict[str, Any]:
    """Seconds, and files that were written again, by what was done and by whom."""
    home = Path(directory)
    with Place(*place).connect("sync") as lake:
        from lakelog.spark import write_dataset

        frame = spark.range(0, rows, 1, _TASKS).selectExpr(*_COLUMNS)
        write_dataset(lake, _NAME, frame, partition_by=["day"])
        location = lake.dataset(_NAME).location
        systems: dict[str, Any] = {"lakelog": _Lakelog(spark, lake)}
        for name, make in (("delta-rs", _DeltaRs), ("delta-spark", _DeltaSpark.start)):
            shutil.copytree(location, home / name)
            system = make(home / name)
            if system is not None:
                systems[name] = system
        found: dict[str, Any] = {"seconds": {}, "files": {}}
        for what in ("delete", "merge"):
            sources = [_source(spark, rows, number, home) for number in range(rounds + 1)] if what == "merge" else []
            turns = {name: _turn(system, what, sources) for name, system in systems.items()}
            for warm_up in turns.values():
                warm_up()
            # From here on the files of the systems differ.
            files = {name: system.files for name, system in systems.items()}
            samples = in_turns(turns, rounds)
            label = {
                "delete": "delete of 1% of the rows of one partition",
                "merge": f"merge of {rows // 100:,} rows",
            }[what]
            found["seconds"][label] = {name: sample.values for name, sample in samples.items()}
            found["files"][label] = files
        sums = {name: system.checksum() for name, system in systems.items()}
        assert len(set(map(str, sums.values()))) == 1, f"the rows differ: {sums}"
        return found


def _turn(system: Any, what: str, sources: list[Path]) -> Callable[[], float]:
    rounds = iter(range(100))

    def run() -> float:
        number = next(rounds)
        if what == "delete":
            return seconds(lambda: system.delete(_DELETED.format(round=number)))
        return seconds(lambda: system.merge(sources[number]))

    return run


def _source(spark: "SparkSession", rows: int, number: int, home: Path) -> Path:
    """One in two hundred rows with another amount, and as many that are new."""
    half = rows // 200
    there = spark.range(half).selectExpr(f"id * 200 + {number} AS id")
    new = spark.range(rows * 2 + number * half, rows * 2 + (number + 1) * half)
    place = home / f"source-{number}"
    frame = (
        there.union(new).selectExpr(*_COLUMNS).selectExpr("id", "event_time", "-1D AS amount", "price", "city", "day")
    )
    frame.coalesce(1).write.parquet(str(place))
    return place


class _Lakelog:
    def __init__(self, spark: "SparkSession", lake: Any) -> None:
        self._spark = spark
        self._dataset = lake.dataset(_NAME)
        self._lake = lake
        self.files = 0

    def delete(self, condition: str) -> None:
        self.files = self._dataset.delete(condition).metrics["numRemovedFiles"]

    def merge(self, source: Path) -> None:
        frame = self._spark.read.parquet(str(source)).alias("s")
        merge = self._dataset.merge(frame, "t.id = s.id", alias="t")
        result = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        self.files = result.metrics["numTargetFilesRemoved"]

    def checksum(self) -> Any:
        from lakelog.spark import read_dataset

        row = read_dataset(self._lake, _NAME).selectExpr("count(*)", "sum(id)", "sum(amount)").collect()[0]
        return [int(value) for value in row]


class _DeltaRs:
    def __init__(self, location: Path) -> None:
        self._location = str(location)
        self.files = 0

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._location)

    def delete(self, condition: str) -> None:
        self.files = self._table().delete(condition)["num_removed_files"]

    def merge(self, source: Path) -> None:
        import pyarrow.parquet as pq

        merge = self._table().merge(pq.read_table(source), "t.id = s.id", source_alias="s", target_alias="t")
        done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self.files = done["num_target_files_removed"]

    def checksum(self) -> Any:
        import pyarrow.compute as pc

        table = self._table().to_pyarrow_table(columns=["id", "amount"])
        return [table.num_rows, *(int(pc.sum(table.column(name)).as_py()) for name in ("id", "amount"))]


class _DeltaSpark:
    """In a process and a Python of its own: it runs on another Spark than ours."""

    def __init__(self, location: Path, process: "subprocess.Popen[str]") -> None:
        self._location = str(location)
        self._process = process
        self.files = 0
        self._ask({"ready": True})

    @classmethod
    def start(cls, location: Path) -> "_DeltaSpark | None":
        jars = os.environ.get(JARS)
        if jars is None:
            return None
        python = os.environ.get(PYTHON, sys.executable)
        script = Path(__file__).parents[1] / "delta_spark.py"
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK"))}
        process = subprocess.Popen(
            [python, str(script), jars],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        return cls(location, process)

    def _ask(self, message: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer
        return answer["found"]

    def delete(self, condition: str) -> None:
        self.files = self._ask({"delete": condition, "location": self._location})

    def merge(self, source: Path) -> None:
        self.files = self._ask({"merge": str(source), "location": self._location})

    def checksum(self) -> Any:
        return self._ask({"sum": True, "location": self._location})
