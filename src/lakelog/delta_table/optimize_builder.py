"""``OptimizeBuilder``: compaction and z-order under the names that Delta's users know."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.dataset import Dataset
from lakelog.delta_table.optimize_frame import optimize_frame
from lakelog.delta_table.table_builder import names_of
from lakelog.lake import Lake
from lakelog.spark.errors import spark_doors
from lakelog.spark.optimize.compaction import Asked, OptimizeResult, optimize

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@spark_doors
class OptimizeBuilder:
    """``where`` chooses partitions; one of the other methods does it, in one commit."""

    def __init__(self, spark: "SparkSession", lake: Lake, dataset: Dataset, alias: str | None = None) -> None:
        self._spark = spark
        self._lake = lake
        self._dataset = dataset
        self._alias = alias
        self._where: str | None = None

    def where(self, partitionFilter: str) -> "OptimizeBuilder":
        """Of several, all have to be true."""
        self._where = partitionFilter if self._where is None else f"({self._where}) AND ({partitionFilter})"
        return self

    def executeCompaction(self) -> "DataFrame":
        """Small files become larger ones. One row, with the table's path and metrics."""
        return optimize_frame(self._spark, self._dataset, self._optimized(()))

    def executeZOrderBy(self, *cols: str | Sequence[str]) -> "DataFrame":
        """Rows that are near each other in these columns come to lie in the same files."""
        return optimize_frame(self._spark, self._dataset, self._optimized(names_of(cols)), is_sorted=True)

    def _optimized(self, zorder_by: Sequence[str]) -> OptimizeResult:
        asked = Asked(where=self._where, zorder_by=zorder_by, alias=self._alias)
        return optimize(self._lake, self._dataset, asked, spark=self._spark)
