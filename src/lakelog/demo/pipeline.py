"""The pipeline: lines as they came (bronze), events one can trust (silver), figures (gold).

Each function is what you would write yourself, with nothing but Lakelog and Spark.
"""

import json
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from lakelog import Dataset, Lake, WriteResult, read_dataset, write_dataset
from lakelog.demo.events import COUNTRIES
from lakelog.spark import write_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

BRONZE, SILVER, GOLD, QUARANTINE = "demo_bronze", "demo_silver", "demo_gold", "demo_quarantine"

OLD_APP = "event_id STRING, user_id INT, type STRING, price STRING, country STRING, event_time TIMESTAMP"
NEW_APP = OLD_APP.replace("user_id INT", "user_id BIGINT") + ", device STRING"
"""What the events look like since the app's new release: one column wider, one column more."""


def ingest(spark: "SparkSession", lake: Lake, landing: str, checkpoint: str) -> "StreamingQuery":
    """Streams new files into bronze as they are: each batch is one commit, and each line arrives once."""
    lines = spark.readStream.schema("value STRING, delivery DATE").option("maxFilesPerTrigger", 4).text(landing)
    query = write_stream(lines, lake, BRONZE, checkpoint=checkpoint, trigger={"availableNow": True})
    query.awaitTermination()
    return query


def check(lines: "DataFrame", columns: str) -> "DataFrame":
    """Lines as events, with the problem of what is none."""
    event = F.from_json("value", f"{columns}, broken STRING", {"columnNameOfCorruptRecord": "broken"})
    price = F.expr("try_cast(price AS DECIMAL(10, 2))")
    problem = (
        F.when(F.col("broken").isNotNull(), "not JSON")
        .when(price.isNull(), "no price")
        .when(~F.col("country").isin(*COUNTRIES), "unknown country")
    )
    events = lines.select("delivery", "value", event.alias("event")).select("delivery", "value", "event.*")
    return events.withColumns({"problem": problem, "price": price, "day": F.to_date("event_time")}).drop("broken")


def quarantine(lake: Lake, checked: "DataFrame", batch: int) -> WriteResult:
    """Keeps what is no event, and why."""
    refused = checked.where("problem IS NOT NULL").select("delivery", "problem", "value")
    return write_dataset(lake, QUARANTINE, refused, txn_app_id="demo", txn_version=batch)


def refine(lake: Lake, checked: "DataFrame", batch: int, *, schema_merge: bool = False) -> WriteResult:
    """Appends the events that silver does not have yet. With ``schema_merge`` they may bring columns along."""
    events = checked.where("problem IS NULL").drop("delivery", "value", "problem")
    events = events.dropDuplicates(["event_id"])
    if batch > 0:
        known = read_dataset(lake, SILVER, columns=["event_id"])
        events = events.join(known, "event_id", "left_anti")
    return write_dataset(
        lake,
        SILVER,
        events,
        partition_by=["day"],
        schema_merge=schema_merge,
        txn_app_id="demo",
        txn_version=batch,
    )


def touched_days(silver: Dataset, version: int) -> list[str]:
    """The days that a version of silver added rows to. The log knows, no file is read."""
    partitions = silver.changes(version, version).added.column("partition_values").unique().to_pylist()
    return sorted(json.loads(values)["day"] for values in partitions)


def aggregate(lake: Lake, days: list[str]) -> WriteResult:
    """Computes the figures of these days anew. Other days stay as they are."""
    wanted = ", ".join(f"'{day}'" for day in days)
    figures = (
        read_dataset(lake, SILVER, where=f"day IN ({wanted})")
        .groupBy("day", "country")
        .agg(
            F.count("*").alias("events"),
            F.count_if(F.col("type") == "purchase").alias("orders"),
            F.sum(F.when(F.col("type") == "purchase", F.col("price")).otherwise(0)).alias("revenue"),
        )
    )
    return write_dataset(
        lake,
        GOLD,
        figures.coalesce(1),
        mode="overwrite",
        partition_by=["day"],
        partition_overwrite_mode="dynamic",
    )


def correct(lake: Lake, figures: "DataFrame", day: str, percent: int) -> WriteResult:
    """Lowers a day's revenue in gold, if nobody has changed gold since ``figures`` were read."""
    lowered = figures.withColumn("revenue", (F.col("revenue") * (100 - percent) / 100).cast("decimal(20,2)"))
    return write_dataset(
        lake,
        GOLD,
        lowered,
        mode="overwrite",
        replace_where=f"day = '{day}'",
        base_version=lake.dataset(GOLD).version_of(figures),
    )


def totals(lake: Lake, **moment: Any) -> tuple[int, Any]:
    """Events and revenue in gold now, or at a ``version`` or ``timestamp``."""
    row = read_dataset(lake, GOLD, **moment).agg(F.sum("events"), F.sum("revenue")).first()
    assert row is not None
    return row[0], row[1]


def rows_of(lake: Lake, name: str, version: int | None = None) -> int:
    """The rows of a dataset. The log knows, no file is read."""
    return lake.dataset(name).count(version=version)


def pruned(lake: Lake, name: str, where: str) -> tuple[int, int]:
    """How many of a dataset's files a condition leaves, and how many there are."""
    files = lake.dataset(name).scan(where).explain().files
    return files.kept, files.total
