"""Millions of rows written and scanned through Lakelog, beside ``df.write.parquet`` and ``spark.read.parquet``.

Both write the same frame, read from Parquet, with the same options and partitions; Lakelog's time ends with its commit.
Both scan the files that Lakelog wrote: all rows and columns, into Spark's ``noop`` sink.
"""

import shutil
from collections.abc import Callable
from dataclasses import astuple
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.in_spark import in_spark
from bench.lab import Lab, Place
from bench.measure import Figure, Sample, Target, in_turns, seconds
from lakelog import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TARGETS = {"write": (Target(at_most=1.1, ratio=True),), "scan": (Target(at_most=1.05, ratio=True),)}
REFERENCES = {"write": "df.write.parquet", "scan": "spark.read.parquet"}
LAYOUTS = {"unpartitioned": (), "by day": ("day",)}
SCANS = 2
"""Scans of a round: they take a fraction of a write's time, and have less room."""
BACKENDS = ("sqlite",)
_TASKS = 8
_DAYS = 10
_COLUMNS = (
    "id",
    "timestamp_seconds(1767225600 + id) AS event_time",
    "pmod(hash(id), 100000) / 8.0D AS amount",
    "CAST(pmod(hash(id, 1), 1000000) / 100 AS DECIMAL(10, 2)) AS price",
    "id % 3 = 0 AS active",
    "element_at(array('Aachen', 'Bergen', 'Cork', 'Dijon', 'Faro'), 1 + pmod(hash(id, 3), 5)) AS city",
    f"date_add(DATE '2026-01-01', pmod(hash(id, 4), {_DAYS})) AS day",
)


def measure(lab: Lab, backend: str) -> list[Figure]:
    if backend not in BACKENDS:
        return []
    scale = lab.scale
    found = in_spark(
        __name__,
        # As many tasks as the source has files, and no more than these for a scan.
        {"spark.sql.files.minPartitionNum": str(_TASKS)},
        place=astuple(lab.place(backend)),
        directory=str(lab.directory / "spark-io"),
        rows=scale.rows,
        rounds=scale.spark_rounds,
    )
    return [
        Figure(
            subject=f"{scale.rows:,} rows through Spark",
            backend=backend,
            what=f"{action}, {layout}",
            unit="s",
            sample=Sample(tuple(samples["lakelog"])),
            limit=Sample(tuple(samples["reference"])),
            against=REFERENCES[action],
            targets=TARGETS[action] if scale.full else (),
        )
        for layout, actions in found.items()
        for action, samples in actions.items()
    ]


def run(spark: "SparkSession", place: list[str], directory: str, rows: int, rounds: int) -> dict[str, Any]:
    """Seconds by layout, action and system."""
    home = Path(directory)
    spark.range(0, rows, 1, _TASKS).selectExpr(*_COLUMNS).write.parquet(str(home / "source"))
    frame = spark.read.parquet(str(home / "source"))
    found = {}
    with Place(*place).connect() as lake:
        for layout, partition_by in LAYOUTS.items():
            bench = _Layout(spark, lake, frame, partition_by, home)
            writes = {"lakelog": bench.writing(), "reference": bench.writing_natively()}
            scans = {"lakelog": bench.scanning, "reference": bench.scanning_natively}
            found[layout] = {"write": _repeated(writes, rounds), "scan": _repeated(scans, rounds * SCANS)}
            bench.check()
    return found


def _repeated(systems: dict[str, Callable[[], float]], rounds: int) -> dict[str, tuple[float, ...]]:
    for warm_up in systems.values():
        warm_up()
    return {name: sample.values for name, sample in in_turns(systems, rounds).items()}


class _Layout:
    """One way to lay the same rows out in files. Of the files, those of the last write are kept."""

    def __init__(
        self, spark: "SparkSession", lake: Lake, frame: "DataFrame", partition_by: tuple[str, ...], home: Path
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._frame = frame
        self._partition_by = partition_by
        self._native = home / "native"
        self._name = ""

    def writing(self) -> Callable[[], float]:
        from lakelog.schema.spark import from_spark
        from lakelog.spark import write_dataset

        numbers = count(1)

        def run() -> float:
            if self._name:
                shutil.rmtree(self._lake.dataset(self._name).location)
            self._name = f"{'-'.join(('rows', *self._partition_by))}-{next(numbers)}"
            self._lake.create_dataset(self._name, from_spark(self._frame.schema), self._partition_by)
            return seconds(lambda: write_dataset(self._lake, self._name, self._frame))

        return run

    def writing_natively(self) -> Callable[[], float]:
        options = _options()

        def run() -> float:
            shutil.rmtree(self._native, ignore_errors=True)
            writer = self._frame.write.options(**options).partitionBy(*self._partition_by)
            return seconds(lambda: writer.parquet(str(self._native)))

        return run

    def scanning(self) -> float:
        from lakelog.spark import read_dataset

        return seconds(lambda: _scan(read_dataset(self._lake, self._name)))

    def scanning_natively(self) -> float:
        return seconds(lambda: _scan(self._spark.read.parquet(self._files)))

    def check(self) -> None:
        """Both systems wrote the same rows, and both read them all."""
        from pyspark.sql import functions as F

        from lakelog.spark import read_dataset

        columns = self._frame.columns
        frames = [
            self._frame,
            self._spark.read.parquet(str(self._native)),
            self._spark.read.parquet(self._files),
            read_dataset(self._lake, self._name),
        ]
        sums = [
            frame.select(F.xxhash64(*columns).alias("h")).agg(F.count("h"), F.bit_xor("h")).first() for frame in frames
        ]
        assert all(found == sums[0] for found in sums), f"the rows differ: {sums}"

    @property
    def _files(self) -> str:
        """The directory of the last write."""
        location = Path(self._lake.dataset(self._name).location)
        return str(next(path for path in location.iterdir() if path.name.startswith("__w=")))


def _scan(frame: "DataFrame") -> None:
    frame.write.format("noop").mode("overwrite").save()


def _options() -> dict[str, str]:
    """What ``write_dataset`` asks of Spark by default."""
    from lakelog.spark.write.options import WriteOptions

    return WriteOptions(mode="append").for_spark
