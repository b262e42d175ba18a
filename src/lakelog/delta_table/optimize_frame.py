"""What Delta answers to an optimization: one row, whose metrics are a struct with many fields."""

from typing import TYPE_CHECKING, Any

from lakelog.dataset import Dataset
from lakelog.spark.optimize.compaction import OptimizeResult

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SIZES = "struct<min: long, max: long, avg: double, totalFiles: long, totalSize: long>"
_CUBE, _Z_CUBE = "struct<num: long, size: long>", "struct<numFiles: long, size: long>"
_METRICS = {
    "numFilesAdded": "long",
    "numFilesRemoved": "long",
    "filesAdded": _SIZES,
    "filesRemoved": _SIZES,
    "partitionsOptimized": "long",
    "zOrderStats": (
        f"struct<strategyName: string, inputCubeFiles: {_CUBE}, inputOtherFiles: {_CUBE}, inputNumCubes: long, "
        f"mergedFiles: {_CUBE}, numOutputCubes: long, mergedNumCubes: long>"
    ),
    "clusteringStats": (
        f"struct<inputZCubeFiles: {_Z_CUBE}, inputOtherFiles: {_Z_CUBE}, inputNumZCubes: long, mergedFiles: {_Z_CUBE}, "
        "numOutputZCubes: long>"
    ),
    "numBins": "long",
    "numBatches": "long",
    "totalConsideredFiles": "long",
    "totalFilesSkipped": "long",
    "preserveInsertionOrder": "boolean",
    "numFilesSkippedToReduceWriteAmplification": "long",
    "numBytesSkippedToReduceWriteAmplification": "long",
    "startTimeMs": "long",
    "endTimeMs": "long",
    "totalClusterParallelism": "long",
    "totalScheduledTasks": "long",
    "autoCompactParallelismStats": (
        "struct<maxClusterActiveParallelism: long, minClusterActiveParallelism: long, "
        "maxSessionActiveParallelism: long, minSessionActiveParallelism: long>"
    ),
    "deletionVectorStats": "struct<numDeletionVectorsRemoved: long, numDeletionVectorRowsRemoved: long>",
    "numTableColumns": "long",
    "numTableColumnsWithStats": "long",
}
"""Fields by their types. What says how Delta's own engine went about it is null."""


def optimize_frame(
    spark: "SparkSession", dataset: Dataset, result: OptimizeResult, *, is_sorted: bool = False
) -> "DataFrame":
    """A row with the table's path and the metrics of an optimization, which are zero if there was nothing to do."""
    metadata = dataset.snapshot().state.metadata
    removed = result.metrics.get("numDeletionVectorsRemoved")
    added = (result.metrics["minFileSize"], result.metrics["maxFileSize"]) if result.files_added else None
    told = {
        "numFilesAdded": result.files_added,
        "numFilesRemoved": result.files_removed,
        "filesAdded": _sizes(added, result.files_added, result.bytes_added),
        "filesRemoved": _sizes(result.sizes_removed, result.files_removed, result.bytes_removed),
        "partitionsOptimized": result.partitions,
        "zOrderStats": _z_order(result) if is_sorted else None,
        "numBins": result.bins,
        "numBatches": 1,
        "totalConsideredFiles": result.files_considered,
        "totalFilesSkipped": result.files_considered - result.files_removed,
        "preserveInsertionOrder": False,
        "numFilesSkippedToReduceWriteAmplification": 0,
        "numBytesSkippedToReduceWriteAmplification": 0,
        "deletionVectorStats": (removed, result.metrics["numDeletionVectorRowsRemoved"]) if removed else None,
        "numTableColumns": len(metadata.schema),
        "numTableColumnsWithStats": len({leaf.path[0] for leaf in metadata.indexed}),
    }
    fields = ", ".join(f"{name}: {kind}" for name, kind in _METRICS.items())
    row = (dataset.location, tuple(told.get(name) for name in _METRICS))
    return spark.createDataFrame([row], f"path string, metrics struct<{fields}>")


def _sizes(ends: tuple[int, int] | None, files: int, size: int) -> tuple[Any, ...]:
    return (*(ends or (None, None)), size / files if files else 0.0, files, size)


def _z_order(result: OptimizeResult) -> tuple[Any, ...]:
    """Nothing is known of files that were sorted before, so that all are taken for others."""
    files = (result.files_removed, result.bytes_removed)
    return ("all", (0, 0), files, 0, files, result.partitions, None)
