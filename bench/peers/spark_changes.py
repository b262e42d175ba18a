"""Rows deleted and merged through one Spark, by Lakelog, delta-spark and Iceberg; and by delta-rs, without any.

All start with the same rows, ten million in ten partitions, delta-rs and delta-spark with copies of Lakelog's files.
Each round deletes one in a hundred rows of one partition, and merges as many as a hundredth of all, half of which are
there, spread over the whole table: once by writing files again, and once by marking rows as deleted, which delta-rs
does not do. The systems have to agree on the rows in the end, and tell how long it takes to scan them then.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import astuple
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from bench.lab import Lab, Place
from bench.measure import Sample, in_turns, seconds
from bench.peers.one_spark import DELTA_SPARK, ICEBERG, ICEBERG_CATALOG, one_spark
from bench.peers.systems import DATABASES, DELTA_RS
from bench.readings import LAKELOG, Goal, Reading
from lakelog import Lake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUBJECT = "spark changes"
COPIES, MARKS = "files written again", "rows marked"
DELETE, MERGE, SCAN = "delete of 1% of a partition", "merge of 1%", "scan after that"
_VERBS = (DELETE, MERGE)
_MINE = "Lakelog on SQLite"
_NOT_MUCH_SLOWER = 1 / 1.2
GOALS = (
    *(
        Goal(subject=SUBJECT, what=f"{verb}, {way}", system=_MINE, over=peer, times=_NOT_MUCH_SLOWER, over_what=other)
        for verb in _VERBS
        for way, peer, other in (
            (COPIES, DELTA_SPARK, ""),
            (COPIES, DELTA_RS, ""),
            (MARKS, DELTA_SPARK, ""),
            (MARKS, DELTA_RS, f"{verb}, {COPIES}"),
        )
    ),
    *(
        Goal(subject=SUBJECT, what=f"{verb}: files written again", system=_MINE, over=peer, times=1)
        for verb in _VERBS
        for peer in (DELTA_SPARK, DELTA_RS)
    ),
)
_BACKEND = "sqlite"
_ROUNDS = 3
_TASKS = 8
_COLUMNS = (
    "id",
    "timestamp_seconds(1767225600 + id) AS event_time",
    "pmod(hash(id), 100000) / 8.0D AS amount",
    "CAST(pmod(hash(id, 1), 1000000) / 100 AS DECIMAL(10, 2)) AS price",
    "element_at(array('Aachen', 'Bergen', 'Cork', 'Dijon', 'Faro'), 1 + pmod(hash(id, 3), 5)) AS city",
    "date_add(DATE '2026-01-01', pmod(hash(id, 4), 10)) AS day",
)
_DELETED = "day = DATE '2026-01-01' AND id % 100 = {round}"
_MERGED = "MERGE INTO {table} t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


def measure(lab: Lab) -> list[Reading]:
    spark = one_spark(lab)
    found = spark.run(
        __name__,
        lab.directory / "spark-changes",
        {"spark.driver.memory": "4g"},
        place=astuple(lab.place(_BACKEND)),
        rows=lab.scale.rows,
        rounds=min(lab.scale.spark_rounds, _ROUNDS),
    )
    return [
        Reading(
            subject=SUBJECT,
            what=what,
            system=name,
            database=DATABASES[_BACKEND] if name == LAKELOG else "",
            unit="files" if isinstance(values, int) else "s",
            sample=Sample((float(values),) if isinstance(values, int) else tuple(values)),
            size=lab.scale.rows,
            note=spark.note,
        )
        for what, samples in found.items()
        for name, values in samples.items()
    ] + [
        Reading(subject=SUBJECT, what=what, system=peer, unit="s", sample=None, size=lab.scale.rows, note=reason)
        for peer, reason in spark.problems
        for what in found
    ]


class _Table(Protocol):
    """How one system changes the rows of its table."""

    def delete(self, condition: str) -> None: ...

    def merge(self, source: Path) -> None: ...

    def totals(self) -> list[int]:
        """The number of rows, and sums of two columns: a scan."""

    def rewritten(self) -> int | None:
        """Files that the last change wrote again, if that is told."""


def run(
    spark: "SparkSession", peers: list[str], directory: str, place: list[str], rows: int, rounds: int
) -> dict[str, dict[str, Any]]:
    """Seconds, or files, by work and system."""
    home = Path(directory)
    home.mkdir(parents=True, exist_ok=True)
    with Place(*place).connect("sync") as lake:
        ways = {way: dict(_tables(spark, lake, peers, home, rows, way)) for way in (COPIES, MARKS)}
        sources = [_source(spark, rows, number, home) for number in range(rounds + 1)]
        found: dict[str, dict[str, Any]] = {}
        for way, tables in ways.items():
            for verb in _VERBS:
                turns = {name: _turn(table, verb, sources) for name, table in tables.items()}
                for warm_up in turns.values():
                    warm_up()
                # From here on the files of the systems differ.
                files = {name: table.rewritten() for name, table in tables.items()}
                found[f"{verb}, {way}"] = _seconds(in_turns(turns, rounds))
                if way == COPIES:
                    told = {name: count for name, count in files.items() if count is not None}
                    found[f"{verb}: files written again"] = told
        totals = {f"{name}, {way}": table.totals() for way, tables in ways.items() for name, table in tables.items()}
        assert len(set(map(str, totals.values()))) == 1, f"the rows differ: {totals}"
        for way, tables in ways.items():
            scans = {name: partial(seconds, table.totals) for name, table in tables.items() if name != DELTA_RS}
            found[f"{SCAN}, {way}"] = _seconds(in_turns(scans, rounds))
        return found


def _seconds(samples: dict[str, Sample]) -> dict[str, tuple[float, ...]]:
    return {name: sample.values for name, sample in samples.items()}


def _turn(table: _Table, verb: str, sources: list[Path]) -> Callable[[], float]:
    rounds = iter(range(len(sources)))

    def run() -> float:
        number = next(rounds)
        if verb == DELETE:
            return seconds(lambda: table.delete(_DELETED.format(round=number)))
        return seconds(lambda: table.merge(sources[number]))

    return run


def _tables(
    spark: "SparkSession", lake: Lake, peers: list[str], home: Path, rows: int, way: str
) -> Iterator[tuple[str, _Table]]:
    from lakelog.spark import write_dataset

    properties = {"delta.enableDeletionVectors": "true"} if way == MARKS else None
    frame = spark.range(0, rows, 1, _TASKS).selectExpr(*_COLUMNS)
    write_dataset(lake, way, frame, partition_by=["day"], properties=properties)
    yield LAKELOG, _Lakelog(spark, lake, way)
    if way == COPIES:
        yield DELTA_RS, _DeltaRs(_copied(lake, way, home / f"delta-rs, {way}"))
    if DELTA_SPARK in peers:
        yield DELTA_SPARK, _DeltaSpark(spark, _copied(lake, way, home / f"delta-spark, {way}"))
    if ICEBERG in peers:
        yield ICEBERG, _Iceberg(spark, frame, way)


def _copied(lake: Lake, name: str, place: Path) -> Path:
    shutil.copytree(lake.dataset(name).location, place)
    return place


def _source(spark: "SparkSession", rows: int, number: int, home: Path) -> Path:
    """One in two hundred rows with another amount, and as many that are new."""
    half = rows // 200
    there = spark.range(half).selectExpr(f"id * 200 + {number} AS id")
    new = spark.range(rows * 2 + number * half, rows * 2 + (number + 1) * half)
    place = home / f"source-{number}"
    frame = there.union(new).selectExpr(*_COLUMNS)
    frame = frame.selectExpr("id", "event_time", "-1D AS amount", "price", "city", "day")
    frame.coalesce(1).write.parquet(str(place))
    return place


class _Lakelog:
    def __init__(self, spark: "SparkSession", lake: Lake, name: str) -> None:
        self._spark = spark
        self._lake = lake
        self._dataset = lake.dataset(name)
        self._rewritten = 0

    def delete(self, condition: str) -> None:
        self._rewritten = self._dataset.delete(condition).metrics["numRemovedFiles"]

    def merge(self, source: Path) -> None:
        frame = self._spark.read.parquet(str(source)).alias("s")
        merge = self._dataset.merge(frame, "t.id = s.id", alias="t")
        result = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        self._rewritten = result.metrics["numTargetFilesRemoved"]

    def totals(self) -> list[int]:
        from lakelog.spark import read_dataset

        return _totals(read_dataset(self._lake, self._dataset.name))

    def rewritten(self) -> int:
        return self._rewritten


class _DeltaRs:
    def __init__(self, place: Path) -> None:
        self._place = str(place)
        self._rewritten = 0

    def _table(self) -> Any:
        from deltalake import DeltaTable

        return DeltaTable(self._place)

    def delete(self, condition: str) -> None:
        self._rewritten = self._table().delete(condition)["num_removed_files"]

    def merge(self, source: Path) -> None:
        import pyarrow.parquet as pq

        merge = self._table().merge(pq.read_table(source), "t.id = s.id", source_alias="s", target_alias="t")
        done = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self._rewritten = done["num_target_files_removed"]

    def totals(self) -> list[int]:
        import pyarrow.compute as pc

        table = self._table().to_pyarrow_table(columns=["id", "amount"])
        return [table.num_rows, *(int(pc.sum(table.column(name)).as_py()) for name in ("id", "amount"))]

    def rewritten(self) -> int:
        return self._rewritten


class _BySql:
    """A table that Spark's SQL changes."""

    def __init__(self, spark: "SparkSession", table: str) -> None:
        self._spark = spark
        self._table = table

    def delete(self, condition: str) -> None:
        self._spark.sql(f"DELETE FROM {self._table} WHERE {condition}")

    def merge(self, source: Path) -> None:
        self._spark.read.parquet(str(source)).createOrReplaceTempView("s")
        self._spark.sql(_MERGED.format(table=self._table))

    def totals(self) -> list[int]:
        return _totals(self._spark.table(self._table))

    def rewritten(self) -> int | None:
        return None


class _DeltaSpark(_BySql):
    def __init__(self, spark: "SparkSession", place: Path) -> None:
        super().__init__(spark, f"delta.`{place}`")

    def rewritten(self) -> int:
        (entry,) = self._spark.sql(f"DESCRIBE HISTORY {self._table} LIMIT 1").collect()
        said = entry["operationMetrics"]
        return int(said["numTargetFilesRemoved" if entry["operation"] == "MERGE" else "numRemovedFiles"])


class _Iceberg(_BySql):
    def __init__(self, spark: "SparkSession", frame: Any, way: str) -> None:
        from pyspark.sql import functions as F

        super().__init__(spark, f"{ICEBERG_CATALOG}.bench.changes_{'copies' if way == COPIES else 'marks'}")
        mode = "copy-on-write" if way == COPIES else "merge-on-read"
        writer = frame.writeTo(self._table).using("iceberg").partitionedBy(F.col("day"))
        for name in ("write.delete.mode", "write.update.mode", "write.merge.mode"):
            writer = writer.tableProperty(name, mode)
        properties = {
            "write.parquet.compression-codec": "zstd",
            "write.distribution-mode": "none",
            "format-version": "3" if way == MARKS else "2",
        }
        for name, value in properties.items():
            writer = writer.tableProperty(name, value)
        writer.create()


def _totals(frame: Any) -> list[int]:
    return [int(value) for value in frame.selectExpr("count(*)", "sum(id)", "sum(amount)").collect()[0]]
