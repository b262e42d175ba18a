"""A thousand small files written together, and ten thousand removed files vacuumed, beside delta-spark and delta-rs.

All begin with copies of the same files. Those of a compaction have to be one in the end, those of a vacuum gone.
"""

import shutil
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.lab import Lab, Place
from bench.measure import Sample, in_turns, seconds
from bench.peers.one_spark import DELTA_SPARK, one_spark
from bench.peers.systems import DATABASES, DELTA_RS
from bench.readings import LAKELOG, Goal, Reading
from lakelog import Dataset, Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBJECT = "spark upkeep"
COMPACTION, VACUUM = "small files written together", "removed files vacuumed"
GOALS = tuple(
    Goal(subject=SUBJECT, what=what, system="Lakelog on SQLite", over=DELTA_SPARK, times=1)
    for what in (COMPACTION, VACUUM)
)
_BACKEND = "sqlite"
_ROWS = 1000
"""Of a small file."""


def measure(lab: Lab) -> list[Reading]:
    spark = one_spark(lab)
    sizes = {COMPACTION: lab.scale.large // 10, VACUUM: lab.scale.large}
    found = spark.run(
        __name__,
        lab.directory / "spark-upkeep",
        {"spark.databricks.delta.retentionDurationCheck.enabled": "false"},
        place=astuple(lab.place(_BACKEND)),
        sizes=sizes,
        rounds=min(lab.scale.spark_rounds, 3),
    )
    common: dict[str, Any] = {"subject": SUBJECT, "unit": "s"}
    return [
        Reading(
            **common,
            what=what,
            system=name,
            database=DATABASES[_BACKEND] if name == LAKELOG else "",
            sample=Sample(tuple(values)),
            size=sizes[what],
            note=spark.note,
        )
        for what, samples in found.items()
        for name, values in samples.items()
    ] + [
        Reading(**common, what=what, system=peer, sample=None, size=sizes[what], note=reason)
        for peer, reason in spark.problems
        if peer == DELTA_SPARK
        for what in found
    ]


def run(
    spark: "SparkSession", peers: list[str], directory: str, place: list[str], sizes: dict[str, int], rounds: int
) -> dict[str, dict[str, tuple[float, ...]]]:
    """Seconds by work and system."""
    actions = {LAKELOG: _lakelog, DELTA_RS: _delta_rs} | ({DELTA_SPARK: _delta_spark} if DELTA_SPARK in peers else {})
    with Place(*place).connect("sync") as lake:
        found = {}
        for what, files in sizes.items():
            bench = _Bench(spark, lake, Path(directory), files, what)
            turns = {name: partial(bench.turn, name, action) for name, action in actions.items()}
            for warm_up in [*turns.values()] * 2:
                warm_up()
            found[what] = {name: sample.values for name, sample in in_turns(turns, rounds).items()}
        return found


class _Bench:
    """Each turn has a table of its own, of the same files."""

    def __init__(self, spark: "SparkSession", lake: Lake, home: Path, files: int, what: str) -> None:
        self._spark = spark
        self._lake = lake
        self._home = home / ("compaction" if what == COMPACTION else "vacuum")
        self._what = what
        self._files = files
        self._numbers = count()
        rows = _ROWS if what == COMPACTION else 1
        frame = spark.range(0, files * rows, 1, 16).selectExpr("id", "CAST(id AS string) AS text")
        frame.write.options(maxRecordsPerFile=rows).parquet(str(self._home / "source"))

    def turn(self, name: str, action: "Callable[[SparkSession, Dataset, str], Callable[[], object]]") -> float:
        table = f"{self._home.name}-{next(self._numbers)}"
        place = self._home / table
        shutil.copytree(self._home / "source", place)
        dataset = self._lake.register_parquet(place, table, location=str(place))
        if self._what == VACUUM:
            dataset.delete(spark=self._spark)
        took = seconds(action(self._spark, dataset, self._what))
        left = len(list(place.rglob("*.parquet")))
        assert left < self._files / 2 if self._what == VACUUM else left > self._files, f"{name} has left {left} files"
        shutil.rmtree(place)
        return took


def _lakelog(spark: "SparkSession", dataset: Dataset, what: str) -> Callable[[], object]:
    return partial(dataset.vacuum, 0, force=True) if what == VACUUM else partial(dataset.optimize, spark=spark)


def _delta_rs(spark: "SparkSession", dataset: Dataset, what: str) -> Callable[[], object]:
    from deltalake import DeltaTable

    table = DeltaTable(dataset.location)
    if what == VACUUM:
        return partial(table.vacuum, 0, dry_run=False, enforce_retention_duration=False)
    return partial(table.optimize.compact, target_size=1 << 30)


def _delta_spark(spark: "SparkSession", dataset: Dataset, what: str) -> Callable[[], object]:
    table = f"delta.`{dataset.location}`"
    return partial(spark.sql, f"VACUUM {table} RETAIN 0 HOURS" if what == VACUUM else f"OPTIMIZE {table}")
