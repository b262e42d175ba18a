"""``OptimizeBuilder``: compaction and z-order under the names that Delta's users know."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.dataset import Dataset
from lakelog.spark.errors import spark_doors
from lakelog.spark.optimize_frame import optimize_frame
from lakelog.spark.table_builder import names_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@spark_doors
class OptimizeBuilder:
    """``where`` chooses partitions; one of the other methods does it, in one commit."""

    def __init__(self, spark: "SparkSession", dataset: Dataset) -> None:
        self._spark = spark
        self._dataset = dataset
        self._where: str | None = None

    def where(self, partitionFilter: str) -> "OptimizeBuilder":
        """Of several, all have to be true."""
        self._where = partitionFilter if self._where is None else f"({self._where}) AND ({partitionFilter})"
        return self

    def executeCompaction(self) -> "DataFrame":
        """Small files become larger ones. One row, with the table's path and metrics."""
        result = self._dataset.optimize(self._where, spark=self._spark)
        return optimize_frame(self._spark, self._dataset, result)

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> "DataFrame":
        """Rows that are near each other in these columns come to lie in the same files."""
        result = self._dataset.optimize(self._where, zorder_by=names_of(cols), spark=self._spark)
        return optimize_frame(self._spark, self._dataset, result, is_sorted=True)
