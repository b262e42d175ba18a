"""Reads and changes Delta tables with delta-spark, in a process and a Python of its own: it runs on another Spark than
ours.

Started as a script with a folder of jars. For each line of JSON on standard input it answers with a line. A location,
a version and a condition are answered by the path of an Arrow file with the rows; a story (``stories.py``), and a
location that is free for its table, by what is seen in it.
"""

import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any


def main(jars: str) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars", ",".join(str(jar) for jar in Path(jars).glob("*.jar")))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "America/New_York")  # A table means the same in every zone.
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.ansi.doubleQuotedIdentifiers", "true")
        .config("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        .getOrCreate()
    )
    # The jar has DeltaTable for Python in it.
    sys.path += [str(jar) for jar in Path(jars).glob("delta-spark*.jar")]
    answer({"ready": True})
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer({"seen": played(spark, **asked)} if "story" in asked else {"rows": rows(spark, **asked)})
        except Exception as error:
            answer({"error": f"{type(error).__name__}: {error}"[:2000]})


def rows(spark: Any, location: str, version: int | None, where: str | None) -> str:
    import pyarrow as pa
    import pyarrow.parquet as pq

    reader = spark.read.format("delta")
    if version is not None:
        reader = reader.option("versionAsOf", version)
    frame = reader.load(location)
    # Not by toArrow(), which takes a null struct for a broken one if something in it is NOT NULL.
    with tempfile.TemporaryDirectory() as directory:
        (frame if where is None else frame.where(where)).write.mode("overwrite").parquet(f"file://{directory}/rows")
        table = pq.read_table(f"{directory}/rows")
    with tempfile.NamedTemporaryFile(suffix=".arrow", delete=False) as file, pa.ipc.new_file(file, table.schema) as out:
        out.write_table(table)
    return file.name


def played(spark: Any, location: str, story: dict[str, Any]) -> Any:
    from delta.tables import DeltaTable

    table = f"delta.`{location}`"
    # Started as a script, so that modules of this folder have no package.
    stories = importlib.import_module("stories")
    side = stories.Side(
        spark=spark,
        builder=lambda: DeltaTable.create(spark).location(location),
        table=lambda: DeltaTable.forPath(spark, location),
        append=lambda frame: frame.write.format("delta").mode("append").save(location),
        add_constraint=lambda name, expression: spark.sql(
            f"ALTER TABLE {table} ADD CONSTRAINT {name} CHECK ({expression})"
        ),
        changes=lambda version: (
            spark.read.format("delta")
            .options(readChangeFeed="true", startingVersion=version, endingVersion=version)
            .load(location)
        ),
        kind=kind,
    )
    return stories.play(side, story)


KINDS = {
    "DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE": "several matches",
    "DELTA_VIOLATE_CONSTRAINT": "rule",
    "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION": "rule",
    "DELTA_NOT_NULL_CONSTRAINT_VIOLATED": "rule",
    "NOT_NULL_ASSERT_VIOLATION": "rule",
    "CAST_OVERFLOW": "does not fit",
}


def kind(error: Exception) -> str:
    found = next((word for part, word in KINDS.items() if part in str(error)), None)
    return found or ("refused" if type(error).__name__ == "AnalysisException" else str(error)[:300])


def answer(message: dict[str, Any]) -> None:
    print(json.dumps(message, default=str), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
