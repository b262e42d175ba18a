"""A thousand small files written together, and ten thousand removed files vacuumed, beside delta-rs.

Both begin from copies of the same files. The compaction's files have to be one in the end, with the same rows; the
vacuum's have to be gone.
"""

import shutil
from collections.abc import Callable
from dataclasses import astuple
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakelog.bench.in_spark import in_spark
from lakelog.bench.lab import Lab, Place
from lakelog.bench.measure import Figure, Sample, Target, in_turns, seconds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BACKENDS = ("sqlite",)
TARGETS = {"compaction": (Target(at_most=1.2, ratio=True),), "vacuum": ()}
_ROWS = 1000
"""Of a small file."""


def measure(lab: Lab, backend: str) -> list[Figure]:
    if backend not in BACKENDS:
        return []
    scale = lab.scale
    found = in_spark(
        __name__,
        {},
        place=astuple(lab.place(backend)),
        directory=str(lab.directory / "spark-compact"),
        small=scale.large // 10,
        removed=scale.large,
        rounds=min(scale.spark_rounds, 3),
    )
    labels = {
        "compaction": f"compaction of {scale.large // 10:,} small files",
        "vacuum": f"vacuum of {scale.large:,} files",
    }
    return [
        Figure(
            subject=labels[what],
            backend=backend,
            what="time",
            unit="s",
            sample=Sample(tuple(samples["lakelog"])),
            limit=Sample(tuple(samples["delta-rs"])),
            against="delta-rs",
            targets=TARGETS[what] if scale.full else (),
        )
        for what, samples in found.items()
    ]


def run(
    spark: "SparkSession", place: list[str], directory: str, small: int, removed: int, rounds: int
) -> dict[str, dict[str, tuple[float, ...]]]:
    home = Path(directory)
    with Place(*place).connect("sync") as lake:
        found = {}
        for what, files in (("compaction", small), ("vacuum", removed)):
            bench = _Bench(spark, lake, home / what, files, what)
            turns = {"lakelog": bench.lakelog(), "delta-rs": bench.delta_rs()}
            for warm_up in turns.values():
                warm_up()
            found[what] = {name: sample.values for name, sample in in_turns(turns, rounds).items()}
        return found


class _Bench:
    """Each round has a table of its own, of the same files."""

    def __init__(self, spark: "SparkSession", lake: Any, home: Path, files: int, what: str) -> None:
        self._lake = lake
        self._home = home
        self._what = what
        self._files = files
        rows = _ROWS if what == "compaction" else 1
        spark.range(0, files * rows, 1, 16).selectExpr("id", "CAST(id AS string) AS text").write.options(
            maxRecordsPerFile=rows
        ).parquet(str(home / "source"))

    def _fresh(self, numbers: Any, who: str) -> tuple[str, Any]:
        """A dataset of copies, with its mirror."""
        name = f"{self._what}-{who}-{next(numbers)}"
        shutil.copytree(self._home / "source", self._home / name)
        dataset = self._lake.register_parquet(self._home / name, name, location=str(self._home / name))
        if self._what == "vacuum":
            dataset.delete()
        return name, dataset

    def lakelog(self) -> Callable[[], float]:
        numbers = count()

        def run() -> float:
            name, dataset = self._fresh(numbers, "lakelog")
            if self._what == "vacuum":
                took = seconds(lambda: dataset.vacuum(0, force=True))
            else:
                took = seconds(dataset.optimize)
                assert dataset.snapshot().files().num_rows == 1, "Lakelog has made another number of files"
            return self._checked(name, took)

        return run

    def delta_rs(self) -> Callable[[], float]:
        from deltalake import DeltaTable

        numbers = count()

        def run() -> float:
            name, _ = self._fresh(numbers, "delta-rs")
            table = DeltaTable(str(self._home / name))
            if self._what == "vacuum":
                took = seconds(lambda: table.vacuum(0, dry_run=False, enforce_retention_duration=False))
            else:
                took = seconds(lambda: table.optimize.compact(target_size=1 << 30))
                assert len(table.file_uris()) == 1, "delta-rs has made another number of files"
            return self._checked(name, took)

        return run

    def _checked(self, name: str, took: float) -> float:
        left = len(list((self._home / name).rglob("*.parquet")))
        if self._what == "vacuum":
            assert left < self._files / 2, f"{left} files are left"
        shutil.rmtree(self._home / name)
        return took
