"""A condition that needs few of ten thousand files, beside ``spark.read.parquet(directory).where(…)``.

Each file has its own range of ids, the condition is on the id, and every round asks for other files.
"""

from collections.abc import Callable
from dataclasses import astuple
from itertools import count
from typing import TYPE_CHECKING, Any

from bench.in_spark import in_spark
from bench.lab import Lab, Place
from bench.measure import Figure, Sample, Target, in_turns, seconds
from bench.small_files import DATASET, DIRECTORY, clustered_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGETS = {
    10: (Target(at_most=1 / 30, ratio=True),),
    100: (Target(at_most=1 / 30, ratio=True),),
    1_000: (Target(at_most=1 / 10, ratio=True),),
}
"""By how many files are kept."""
BACKENDS = ("sqlite",)


def measure(lab: Lab, backend: str) -> list[Figure]:
    if backend not in BACKENDS:
        return []
    scale = lab.scale
    rows = scale.rows // scale.large
    place = lab.place(backend)
    clustered_files(place, scale.large, rows)
    found = in_spark(
        __name__,
        {},
        place=astuple(place),
        files=scale.large,
        rows=rows,
        keeps=list(TARGETS),
        rounds=scale.spark_rounds,
    )
    return [
        _figure(lab, backend, keep, Sample(tuple(samples["lakelog"])), Sample(tuple(samples["reference"])))
        for keep, samples in zip(TARGETS, found, strict=True)
    ]


def _figure(lab: Lab, backend: str, keep: int, lakelog: Sample, reference: Sample) -> Figure:
    return Figure(
        subject=f"a condition on {lab.scale.large:,} files through Spark",
        backend=backend,
        what=f"keeps {keep:,}",
        unit="s",
        sample=lakelog,
        limit=reference,
        against="spark.read.parquet",
        targets=TARGETS[keep] if lab.scale.full else (),
        note=f"{1 / lakelog.over(reference):.0f} times faster",
    )


def run(
    spark: "SparkSession", place: list[str], files: int, rows: int, keeps: list[int], rounds: int
) -> list[dict[str, Any]]:
    """Seconds by system, for each number of files to keep."""
    from lakelog.spark import read_dataset

    found = []
    with Place(*place).connect() as lake:
        directory = f"{lake.dataset(DATASET).location}/{DIRECTORY}"

        def lakelog(where: str) -> "DataFrame":
            kept = lake.dataset(DATASET).snapshot().files(where).num_rows if counting else keep
            assert kept == keep, f"{where} keeps {kept} files"
            return read_dataset(lake, DATASET, where=where)

        def reference(where: str) -> "DataFrame":
            return spark.read.parquet(directory).where(where)

        for keep in keeps:
            systems = {
                "lakelog": _searching(lakelog, files, keep, rows),
                "reference": _searching(reference, files, keep, rows),
            }
            counting = True
            systems["lakelog"]()
            counting = False
            if keep == keeps[0]:
                systems["reference"]()
            found.append({name: sample.values for name, sample in in_turns(systems, rounds).items()})
    return found


def _searching(read: "Callable[[str], DataFrame]", files: int, keep: int, rows: int) -> Callable[[], float]:
    """Each call asks for other files, and for the sum of a column of their rows."""
    numbers = count(1)

    def run() -> float:
        first = next(numbers) * 7919 % (files - keep)
        where = f"id BETWEEN {first * rows} AND {(first + keep) * rows - 1}"
        answers: list[Any] = []
        elapsed = seconds(
            lambda: answers.append(read(where).selectExpr("count(*) AS rows", "sum(amount) AS amount").first())
        )
        assert answers[0].rows == keep * rows, f"{where} gave {answers[0].rows} rows"
        return elapsed

    return run
