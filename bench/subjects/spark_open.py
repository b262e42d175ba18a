"""A table of a hundred thousand files: from ``read_dataset`` to the first row, and the memory that this takes.

Starting a scan means ``read_dataset(…).limit(1).collect()``: the catalog is asked, all files are planned, and the first
task gives its result. Warm is the same again in the same session, once for the same version, of which Spark knows the
files already, and once after another commit, when it knows nothing of the new version.
"""

from dataclasses import astuple
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.in_spark import in_spark
from bench.lab import Lab, Place
from bench.measure import Figure, Sample, Target, seconds
from bench.small_files import DATASET, add_one, linked_files
from lakelog import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SECONDS = {"unpartitioned": 3, "in {} directories": 4}
MEGABYTES = 1024
HEAP = 640
"""Megabytes. A larger heap fills with garbage before Java collects any, which says nothing of what is needed."""
BACKENDS = ("sqlite", "postgres")
_FILES_PER_DIRECTORY = 100


def measure(lab: Lab, backend: str) -> list[Figure]:
    if backend not in BACKENDS:
        return []
    return [figure for layout in SECONDS for figure in _open(lab, backend, layout)]


def _open(lab: Lab, backend: str, layout: str) -> list[Figure]:
    scale = lab.scale
    days = scale.huge // _FILES_PER_DIRECTORY if "{}" in layout else 0
    place = lab.place(backend)
    linked_files(place, scale.huge, days)
    config = {"spark.driver.memory": f"{HEAP}m"}
    found = in_spark(__name__, config, place=astuple(place), rounds=scale.spark_rounds)
    in_time, in_memory = Target(at_most=SECONDS[layout]), Target(at_most=MEGABYTES)
    lines = (
        ("first time", "cold", "s", None),
        ("the same version again", "same", "s", in_time),
        ("another version", "other", "s", in_time),
        ("memory held", "held", "MB", in_memory),
        ("memory at its peak", "peak", "MB", in_memory),
    )
    return [
        Figure(
            subject=f"{scale.huge:,} files opened by Spark, {layout.format(f'{days:,}')}",
            backend=backend,
            what=what,
            unit=unit,
            sample=Sample(tuple(found[name])),
            targets=(target,) if target and scale.full else (),
            note=f"heap of {HEAP} MB" if unit == "MB" else "",
        )
        for what, name, unit, target in lines
    ]


def run(spark: "SparkSession", place: list[str], rounds: int) -> dict[str, list[float]]:
    """Seconds, and megabytes of both processes of the driver, Python and Java."""
    from lakelog.spark import read_dataset

    def start(lake: Lake) -> float:
        rows: list[Any] = []
        elapsed = seconds(lambda: rows.extend(read_dataset(lake, DATASET).limit(1).collect()))
        assert len(rows) == 1
        return elapsed

    with Place(*place).connect() as lake:
        # A session that has done something, but nothing of this kind.
        spark.range(1).collect()
        memory = _Memory(spark)
        cold = start(lake)
        held = memory.held()
        same = [start(lake) for _ in range(rounds)]
        other = []
        for _ in range(rounds):
            add_one(lake)
            other.append(start(lake))
        return {"cold": [cold], "same": same, "other": other, "held": [held], "peak": [memory.peak()]}


class _Memory:
    """By how much the driver's two processes grow from now on."""

    def __init__(self, spark: "SparkSession") -> None:
        self._spark = spark
        java = spark._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
        self._processes = [Path("/proc/self"), Path(f"/proc/{java}")]
        self._collect()
        for process in self._processes:
            (process / "clear_refs").write_text("5")
        self._before = self._sum("VmRSS")

    def held(self) -> float:
        """After a garbage collection."""
        self._collect()
        return self._sum("VmRSS") - self._before

    def peak(self) -> float:
        return self._sum("VmHWM") - self._before

    def _collect(self) -> None:
        self._spark._jvm.System.gc()  # type: ignore[union-attr]

    def _sum(self, name: str) -> float:
        lines = [line for process in self._processes for line in (process / "status").read_text().splitlines()]
        return sum(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) / 1024
