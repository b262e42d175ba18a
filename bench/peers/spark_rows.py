"""Rows written and scanned through one Spark: by Lakelog, delta-spark, Iceberg and Spark's own Parquet files.

All write the same frame, read from Parquet, to a new table: the same tasks, partitions and compression, each task
sorts its rows by partition. A day has a hundredth of the rows, and both days and ids ascend, as time does. Each system
then scans what it wrote, into Spark's ``noop`` sink. Iceberg's catalog is a directory, so no database costs it time.
"""

import shutil
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.lab import Lab, Place
from bench.measure import Sample, in_turns, seconds
from bench.peers.one_spark import DELTA_SPARK, ICEBERG, ICEBERG_CATALOG, OneSpark, one_spark
from bench.peers.systems import DATABASES
from bench.readings import LAKELOG, LIMIT, Goal, Reading
from lakelog import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SUBJECT = "spark rows"
UNPARTITIONED, BY_DAY = "unpartitioned", "by day"
_LAYOUTS: dict[str, list[str]] = {UNPARTITIONED: [], BY_DAY: ["day"]}
_DAYS = 100
_CONDITIONS = {
    "1% by partition": "day = DATE '2026-02-12'",
    "1% by a clustered column": "id BETWEEN {rows} * 42 div 100 AND {rows} * 43 div 100 - 1",
}
"""Kept of the table that is partitioned by day."""
WRITES = tuple(f"write, {layout}" for layout in _LAYOUTS)
SCANS = tuple(f"scan, {layout}" for layout in _LAYOUTS)
SELECTIONS = tuple(f"scan of {condition}" for condition in _CONDITIONS)
GOALS = (
    *(
        Goal(subject=SUBJECT, what=what, system="Lakelog on SQLite", over=DELTA_SPARK, times=1)
        for what in (*WRITES, *SCANS, *SELECTIONS)
    ),
    *(Goal(subject=SUBJECT, what=what, system="Lakelog on SQLite", over=LIMIT, times=1 / 1.1) for what in WRITES),
    *(Goal(subject=SUBJECT, what=what, system="Lakelog on SQLite", over=LIMIT, times=1 / 1.05) for what in SCANS),
)
_BACKENDS = ("sqlite", "postgres")
_TASKS = 8
_WARM_UPS = 5
"""Writes of few rows, for Java to compile how each system plans and commits: some take dozens of seconds at first."""
_COLUMNS = (
    "id",
    "timestamp_seconds(1767225600 + id) AS event_time",
    "pmod(hash(id), 100000) / 8.0D AS amount",
    "CAST(pmod(hash(id, 1), 1000000) / 100 AS DECIMAL(10, 2)) AS price",
    "id % 3 = 0 AS active",
    "element_at(array('Aachen', 'Bergen', 'Cork', 'Dijon', 'Faro'), 1 + pmod(hash(id, 3), 5)) AS city",
    "date_add(DATE '2026-01-01', CAST(id * {days} div {rows} AS INT)) AS day",
)


def measure(lab: Lab) -> list[Reading]:
    spark = one_spark(lab)
    found = spark.run(
        __name__,
        lab.directory / "spark-rows",
        # As many tasks as the source has files, and no more than these for a scan.
        {"spark.sql.files.minPartitionNum": str(_TASKS)},
        places=[astuple(lab.place(backend)) for backend in _BACKENDS],
        rows=lab.scale.rows,
        rounds=lab.scale.spark_rounds,
    )
    return [
        *(
            Reading(
                subject=SUBJECT,
                what=what,
                system=LAKELOG if name in _BACKENDS else name,
                database=DATABASES[name] if name in _BACKENDS else "",
                unit="s",
                sample=Sample(tuple(values)),
                size=lab.scale.rows,
                note=spark.note,
            )
            for what, samples in found.items()
            for name, values in samples.items()
        ),
        *_missing(spark, list(found), lab.scale.rows),
    ]


def _missing(spark: OneSpark, works: list[str], rows: int) -> list[Reading]:
    return [
        Reading(subject=SUBJECT, what=what, system=peer, unit="s", sample=None, size=rows, note=reason)
        for peer, reason in spark.problems
        for what in works
    ]


class _Table(Protocol):
    """How one system writes a frame to a new table, and reads the table that it wrote last."""

    def write(self, frame: "DataFrame", partition_by: list[str]) -> None: ...

    def read(self, where: str | None = None) -> "DataFrame": ...

    def clear(self) -> None:
        """Deletes the files of the table that was written last."""


def run(
    spark: "SparkSession", peers: list[str], directory: str, places: list[list[str]], rows: int, rounds: int
) -> dict[str, dict[str, tuple[float, ...]]]:
    """Seconds by work and system."""
    home = Path(directory)
    columns = [column.format(days=_DAYS, rows=rows) for column in _COLUMNS]
    source = home / "source"
    spark.range(0, rows, 1, _TASKS).selectExpr(*columns).write.parquet(str(source), compression="zstd")
    frame = spark.read.parquet(str(source))
    lakes = {place[0]: Place(*place).connect("sync") for place in places}
    tables: dict[str, _Table] = {
        **{backend: _Lakelog(lake) for backend, lake in lakes.items()},
        LIMIT: _Limit(spark, home / "limit"),
    }
    if DELTA_SPARK in peers:
        tables[DELTA_SPARK] = _Delta(spark, home / "delta")
    if ICEBERG in peers:
        task = sum(file.stat().st_size for file in source.glob("*.parquet")) // _TASKS
        tables[ICEBERG] = _Iceberg(spark, task)
    few = frame.where(f"id < {rows // 100}")
    found = {}
    for layout, partition_by in _LAYOUTS.items():
        for table in [*tables.values()] * _WARM_UPS:
            _write(table, few, partition_by)
            _scan(table)
        found[f"write, {layout}"] = _repeated(tables, partial(_write, frame=frame, partition_by=partition_by), rounds)
        found[f"scan, {layout}"] = _repeated(tables, _scan, rounds)
        _check_same(frame, tables, None)
    for name, condition in _CONDITIONS.items():
        where = condition.format(rows=rows)
        found[f"scan of {name}"] = _repeated(tables, partial(_scan, where=where), rounds)
        _check_same(frame, tables, where)
    for lake in lakes.values():
        lake.close()
    return found


def _repeated(
    tables: dict[str, _Table], action: Callable[[_Table], float], rounds: int
) -> dict[str, tuple[float, ...]]:
    for table in tables.values():
        action(table)
    turns = {name: partial(action, table) for name, table in tables.items()}
    return {name: sample.values for name, sample in in_turns(turns, rounds).items()}


def _write(table: _Table, frame: "DataFrame", partition_by: list[str]) -> float:
    table.clear()
    return seconds(lambda: table.write(frame, partition_by))


def _scan(table: _Table, where: str | None = None) -> float:
    """From the opening of the table on."""
    return seconds(lambda: table.read(where).write.format("noop").mode("overwrite").save())


def _check_same(frame: "DataFrame", tables: dict[str, _Table], where: str | None) -> None:
    expected = fingerprint(frame if where is None else frame.where(where), frame.columns)
    assert expected[0], f"{where} keeps no row"
    for name, table in tables.items():
        rows = fingerprint(table.read(where), frame.columns)
        assert rows == expected, f"{name} has other rows where {where}: {rows}, expected {expected}"


def fingerprint(frame: "DataFrame", columns: list[str]) -> list[Any]:
    """Equal for frames with the same rows, in whatever order."""
    from pyspark.sql import functions as F

    hashed = frame.select(F.xxhash64(*columns).alias("h"))
    return list(hashed.agg(F.count("h"), F.bit_xor("h"), F.sum(F.col("h").cast("decimal(38, 0)"))).first() or ())


class _Lakelog:
    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._names = (f"rows-{number}" for number in count(1))
        self._name = ""

    def write(self, frame: "DataFrame", partition_by: list[str]) -> None:
        from lakelog.spark import write_dataset

        self._name = next(self._names)
        write_dataset(self._lake, self._name, frame, partition_by=partition_by, compression="zstd")

    def read(self, where: str | None = None) -> "DataFrame":
        from lakelog.spark import read_dataset

        return read_dataset(self._lake, self._name, where=where)

    def clear(self) -> None:
        if self._name:
            shutil.rmtree(self._lake.dataset(self._name).location)


class _Limit:
    """``df.write.parquet`` with what ``write_dataset`` asks of it, and ``spark.read.parquet``."""

    def __init__(self, spark: "SparkSession", directory: Path) -> None:
        self._spark = spark
        self._directory = directory

    def write(self, frame: "DataFrame", partition_by: list[str]) -> None:
        from lakelog.spark.write.options import WriteOptions

        options = WriteOptions(mode="append", compression="zstd").for_spark
        frame.write.options(**options).partitionBy(*partition_by).parquet(str(self._directory))

    def read(self, where: str | None = None) -> "DataFrame":
        return _where(self._spark.read.parquet(str(self._directory)), where)

    def clear(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


class _Delta:
    """Each table has another place: delta-spark remembers what it saw at one."""

    def __init__(self, spark: "SparkSession", directory: Path) -> None:
        self._spark = spark
        self._places = (directory / str(number) for number in count(1))
        self._place: Path | None = None

    def write(self, frame: "DataFrame", partition_by: list[str]) -> None:
        self._place = next(self._places)
        writer = frame.write.format("delta").option("compression", "zstd")
        writer.partitionBy(*partition_by).save(str(self._place))

    def read(self, where: str | None = None) -> "DataFrame":
        return _where(self._spark.read.format("delta").load(str(self._place)), where)

    def clear(self) -> None:
        if self._place:
            shutil.rmtree(self._place)


class _Iceberg:
    """With as many tasks as the others: no shuffle before it writes partitions, and so many bytes for a task's scan."""

    def __init__(self, spark: "SparkSession", task: int) -> None:
        self._spark = spark
        self._scan = {"split-size": task, "file-open-cost": 1}
        self._names = (f"{ICEBERG_CATALOG}.bench.rows_{number}" for number in count(1))
        self._name = ""

    def write(self, frame: "DataFrame", partition_by: list[str]) -> None:
        from pyspark.sql import functions as F

        self._name = next(self._names)
        writer = frame.writeTo(self._name).using("iceberg")
        writer = writer.tableProperty("write.parquet.compression-codec", "zstd")
        writer = writer.tableProperty("write.distribution-mode", "none")
        if partition_by:
            writer = writer.partitionedBy(*map(F.col, partition_by))
        writer.create()

    def read(self, where: str | None = None) -> "DataFrame":
        return _where(self._spark.read.options(**self._scan).table(self._name), where)

    def clear(self) -> None:
        if self._name:
            self._spark.sql(f"DROP TABLE {self._name} PURGE")


def _where(frame: "DataFrame", condition: str | None) -> "DataFrame":
    return frame if condition is None else frame.where(condition)
