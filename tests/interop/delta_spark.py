"""Reads Delta tables with delta-spark, in a process and a Python of its own: it runs on another Spark than ours.

Started as a script with a folder of jars. For each line of JSON on standard input, with a location, a version and a
condition, it answers with a line: the path of an Arrow file with the rows, or an error.
"""

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
    answer({"ready": True})
    for line in sys.stdin:
        try:
            answer({"rows": rows(spark, **json.loads(line))})
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


def answer(message: dict[str, Any]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
