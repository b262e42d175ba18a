"""Small batches of a stream into a table: by Lakelog, delta-spark, Iceberg and Spark's own Parquet sink.

A trigger takes one file of a thousand rows, and the next one follows at once. In every round each system goes on with
its own query where it left off, so the tables and the logs grow as those of a stream do. A round goes ahead that is not
counted: the first checkpoints of some logs take dozens of seconds, until Java has compiled them.
"""

import shutil
import statistics
from collections.abc import Callable
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.lab import Lab, Place
from bench.measure import Sample, in_turns
from bench.peers.one_spark import DELTA_SPARK, ICEBERG, ICEBERG_CATALOG, one_spark
from bench.peers.spark_rows import fingerprint
from bench.peers.systems import DATABASES
from bench.readings import LAKELOG, LIMIT, Goal, Reading
from lakelog import Lake

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SUBJECT = "spark stream"
RATE, TRIGGER = "rows of a stream", "one trigger of 1,000 rows"
UNITS = {RATE: "/s", TRIGGER: "ms"}
GOALS = tuple(Goal(subject=SUBJECT, what=what, system="Lakelog on SQLite", over=DELTA_SPARK, times=1) for what in UNITS)
_BACKENDS = ("sqlite", "postgres")
_ROWS = 1_000
_TABLE = "stream"
_ICEBERG_TABLE = f"{ICEBERG_CATALOG}.bench.{_TABLE}"
_SCHEMA = "id BIGINT, event_time TIMESTAMP, amount DOUBLE, city STRING"
_COLUMNS = (
    "id",
    "timestamp_seconds(1767225600 + id) AS event_time",
    "pmod(hash(id), 100000) / 8.0D AS amount",
    "element_at(array('Aachen', 'Bergen', 'Cork', 'Dijon', 'Faro'), 1 + pmod(hash(id, 3), 5)) AS city",
)

Start = Callable[["DataFrame", str], "StreamingQuery"]
"""Starts a query that takes what its source has, with this checkpoint, and ends."""


def measure(lab: Lab) -> list[Reading]:
    spark = one_spark(lab)
    rounds = lab.scale.spark_rounds
    triggers = lab.scale.commits // rounds
    found = spark.run(
        __name__,
        lab.directory / "spark-stream",
        {"spark.sql.streaming.numRecentProgressUpdates": str(triggers + 1)},
        places=[astuple(lab.place(backend)) for backend in _BACKENDS],
        triggers=triggers,
        rounds=rounds,
    )
    readings = [
        Reading(
            subject=SUBJECT,
            what=what,
            system=LAKELOG if name in _BACKENDS else name,
            database=DATABASES[name] if name in _BACKENDS else "",
            unit=unit,
            sample=Sample(tuple(values[what])),
            note=f"{spark.note}, {rounds} × {triggers} triggers",
        )
        for what, unit in UNITS.items()
        for name, values in found.items()
    ]
    missing = [
        Reading(subject=SUBJECT, what=what, system=peer, unit=unit, sample=None, note=reason)
        for what, unit in UNITS.items()
        for peer, reason in spark.problems
    ]
    return readings + missing


def run(
    spark: "SparkSession", peers: list[str], directory: str, places: list[list[str]], triggers: int, rounds: int
) -> dict[str, dict[str, list[float]]]:
    """By system, for each round: rows in a second, and the median of the triggers' milliseconds."""
    home = Path(directory)
    source = _files(spark, home, triggers * (rounds + 1))
    lakes = {place[0]: Place(*place).connect("sync") for place in places}
    systems: dict[str, tuple[Start, Callable[[], DataFrame]]] = {
        **{backend: _lakelog(lake) for backend, lake in lakes.items()},
        LIMIT: _limit(spark, home / "limit"),
    }
    if DELTA_SPARK in peers:
        systems[DELTA_SPARK] = _delta(spark, home / "delta")
    if ICEBERG in peers:
        systems[ICEBERG] = _iceberg(spark)
    streams = {name: _Stream(spark, start, source, home / f"in-{name}") for name, (start, _) in systems.items()}
    turns = {name: partial(stream.go_on, triggers) for name, stream in streams.items()}
    for warm_up in turns.values():
        warm_up()
    rates = in_turns(turns, rounds)
    written = spark.read.parquet(*map(str, source))
    expected = fingerprint(written, written.columns)
    for name, (_, read) in systems.items():
        rows = fingerprint(read(), written.columns)
        assert rows == expected, f"{name} has other rows: {rows}, expected {expected}"
    for lake in lakes.values():
        lake.close()
    return {
        name: {RATE: list(rates[name].values), TRIGGER: stream.milliseconds[-rounds:]}
        for name, stream in streams.items()
    }


def _files(spark: "SparkSession", home: Path, triggers: int) -> list[Path]:
    """What each trigger takes."""
    spark.range(0, triggers * _ROWS, 1, triggers).selectExpr(*_COLUMNS).write.parquet(str(home / "source"))
    files = sorted((home / "source").glob("*.parquet"))
    assert len(files) == triggers, f"{len(files)} files for {triggers} triggers"
    return files


class _Stream:
    """One system's query, which takes some more files each time."""

    def __init__(self, spark: "SparkSession", start: Start, source: list[Path], directory: Path) -> None:
        self._spark = spark
        self._start = start
        self._source = iter(source)
        self._directory = directory / "files"
        self._directory.mkdir(parents=True)
        self._checkpoint = str(directory / "checkpoint")
        self.milliseconds: list[float] = []

    def go_on(self, triggers: int) -> float:
        """Rows in a second, without the first trigger, which waits for the query's start."""
        for _ in range(triggers):
            file = next(self._source)
            shutil.copyfile(file, self._directory / file.name)
        frame = self._spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(self._directory))
        query = self._start(frame, self._checkpoint)
        query.awaitTermination()
        done = [progress for progress in query.recentProgress if progress.numInputRows]
        assert len(done) == triggers, f"{len(done)} triggers instead of {triggers}"
        took = [progress.durationMs["triggerExecution"] for progress in done[1:]]
        self.milliseconds.append(statistics.median(took))
        return float(_ROWS * len(took) / sum(took) * 1e3)


def _lakelog(lake: Lake) -> tuple[Start, "Callable[[], DataFrame]"]:
    from lakelog.spark import read_dataset, write_stream

    def start(frame: "DataFrame", checkpoint: str) -> "StreamingQuery":
        trigger = {"availableNow": True}
        return write_stream(frame, lake, _TABLE, checkpoint=checkpoint, trigger=trigger, compression="zstd")

    return start, lambda: read_dataset(lake, _TABLE)


def _limit(spark: "SparkSession", directory: Path) -> tuple[Start, "Callable[[], DataFrame]"]:
    from lakelog.spark.write.options import WriteOptions

    options = WriteOptions(mode="append", compression="zstd").for_spark

    def start(frame: "DataFrame", checkpoint: str) -> "StreamingQuery":
        return _writer(frame, checkpoint).options(**options).format("parquet").start(str(directory))

    return start, lambda: spark.read.parquet(str(directory))


def _delta(spark: "SparkSession", directory: Path) -> tuple[Start, "Callable[[], DataFrame]"]:
    def start(frame: "DataFrame", checkpoint: str) -> "StreamingQuery":
        writer = _writer(frame, checkpoint).option("compression", "zstd")
        return writer.format("delta").start(str(directory))

    return start, lambda: spark.read.format("delta").load(str(directory))


def _iceberg(spark: "SparkSession") -> tuple[Start, "Callable[[], DataFrame]"]:
    """It streams into tables that are there only."""
    spark.sql(
        f"CREATE TABLE {_ICEBERG_TABLE} ({_SCHEMA}) USING iceberg"
        " TBLPROPERTIES ('write.parquet.compression-codec' = 'zstd')"
    )

    def start(frame: "DataFrame", checkpoint: str) -> "StreamingQuery":
        return _writer(frame, checkpoint).format("iceberg").toTable(_ICEBERG_TABLE)

    return start, lambda: spark.table(_ICEBERG_TABLE)


def _writer(frame: "DataFrame", checkpoint: str) -> "DataStreamWriter":
    return frame.writeStream.option("checkpointLocation", checkpoint).trigger(availableNow=True)
