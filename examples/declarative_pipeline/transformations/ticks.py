"""Numbers, one after the other, as a stream into a Lakelog table."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()

dp.create_sink("ticks", "lakelog", {"catalog": spark.conf.get("spark.lakelog.catalog"), "path": "ticks"})


@dp.append_flow(target="ticks")
def numbers() -> DataFrame:
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
