"""delta-spark, asked by lines of JSON: a script for the Python that has its Spark, with a folder of its jars."""

import json
import sys
from pathlib import Path
from typing import Any


def main(jars: str) -> None:
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", ",".join(str(jar) for jar in Path(jars).glob("*.jar")))
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.databricks.delta.snapshotPartitions", "2")
        .getOrCreate()
    )
    for line in sys.stdin:
        try:
            found = answer(spark, **json.loads(line))
        except Exception as error:
            print(json.dumps({"error": f"{type(error).__name__}: {error}"[:2000]}), flush=True)
        else:
            print(json.dumps({"found": found}), flush=True)


def answer(spark: Any, location: str = "", **asked: Any) -> Any:
    table = f"delta.`{location}`"
    if "delete" in asked:
        spark.sql(f"DELETE FROM {table} WHERE {asked['delete']}")
        return _rewritten(spark, table, "numRemovedFiles")
    if "merge" in asked:
        spark.read.parquet(asked["merge"]).createOrReplaceTempView("s")
        spark.sql(
            f"MERGE INTO {table} t USING s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        return _rewritten(spark, table, "numTargetFilesRemoved")
    if "sum" in asked:
        row = spark.sql(f"SELECT count(*), sum(id), sum(amount) FROM {table}").first()
        return [int(value) for value in row]
    return None


def _rewritten(spark: Any, table: str, metric: str) -> int:
    return int(spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").first()["operationMetrics"][metric])


if __name__ == "__main__":
    main(sys.argv[1])
