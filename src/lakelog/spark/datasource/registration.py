"""``format("lakelog")`` in a session that does not find it by itself."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: "SparkSession") -> None:
    """Makes ``format("lakelog")`` known to a session.

    Spark finds it by itself where the Python that it starts, PYSPARK_DRIVER_PYTHON, PYSPARK_PYTHON or python3, has
    Lakelog installed, as it has in a local session of ``lakelog.spark.session``.
    """
    from pyspark_lakelog import DefaultSource

    spark.dataSource.register(DefaultSource)
