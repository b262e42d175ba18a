"""The name under which Spark finds ``format("lakelog")`` by itself: it imports every module that begins so.

It looks whenever any Python data source is asked for, so nothing is imported here before it is used.
"""

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

    from lakelog.spark.datasource.pin import Pin


class DefaultSource(DataSource):
    """Spark's own door to Lakelog's tables. Each method may run in another process."""

    _pin: "Pin | None" = None
    """What ``schema`` saw. Spark keeps it together with the schema, so that rows are those of the same version."""

    @classmethod
    def name(cls) -> str:
        return "lakelog"

    def schema(self) -> "StructType":
        from lakelog.spark.datasource.options import read_options
        from lakelog.spark.datasource.pin import pin

        self._pin = pin(read_options(self.options))
        return self._pin.spark_schema

    def reader(self, schema: "StructType") -> "DataSourceReader":
        from lakelog.spark.datasource.reader import BatchReader

        return BatchReader(self.options, self._pin, schema)

    def writer(self, schema: "StructType", overwrite: bool) -> "DataSourceWriter":
        from lakelog.spark.datasource.writer import BatchWriter

        return BatchWriter(self.options, schema, overwrite)

    def streamReader(self, schema: "StructType") -> "DataSourceStreamReader":
        from lakelog.spark.datasource.stream_reader import StreamReader

        return StreamReader(self.options, self._pin, schema)

    def streamWriter(self, schema: "StructType", overwrite: bool) -> "DataSourceStreamWriter":
        from lakelog.spark.datasource.stream_writer import StreamWriter

        return StreamWriter(self.options, schema, overwrite)
