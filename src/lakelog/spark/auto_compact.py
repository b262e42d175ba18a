"""Compaction that a table asks for by a property: after a write that left many small files in a partition."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lakelog.dataset import Dataset
from lakelog.lake import Lake
from lakelog.log.bins import TARGET_SIZE, Sizes, packed
from lakelog.log.reading import TO_READ
from lakelog.spark.commits import WriteResult
from lakelog.spark.optimize import Asked, OptimizeResult, check_rewritable, rewritten
from lakelog.telemetry import log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTO_COMPACT = "delta.autoOptimize.autoCompact"

_ON = ("true", "auto", "legacy")
_SMALL_FILES = 50
"""In a partition, from which on it is compacted. Delta's number, as the size below."""
_TARGET = 128 << 20
"""Smaller than what somebody asks for who has the time: a write waits for it."""


def compacted(
    lake: Lake, name: str, configuration: Mapping[str, str], result: WriteResult, spark: "SparkSession"
) -> WriteResult:
    """The result of a write as it is, after a compaction if one is due. Whatever that runs into, the write stands.

    Where the table's properties do not ask for it, nothing happens, and nobody is asked anything.
    """
    if configuration.get(AUTO_COMPACT, "").lower() not in _ON or result.skipped or not result.files:
        return result
    try:
        done = _compact(lake, lake.dataset(name), result.version, spark)
        if done.version is not None:
            log.info("%s: compacted %d files into %d", name, done.files_removed, done.files_added)
    except Exception as error:
        log.warning("%s: version %d stands, but could not be compacted: %s", name, result.version, error)
    return result


def _compact(lake: Lake, dataset: Dataset, version: int, spark: "SparkSession") -> OptimizeResult:
    """Of the partitions that a version added files to, those with many small ones."""
    snapshot = dataset.snapshot()
    configuration = snapshot.metadata.configuration
    sizes = Sizes.of(configuration, None if TARGET_SIZE in configuration else _TARGET)
    sizes = Sizes(target=sizes.target, minimum=max(sizes.target // 2, 1))
    check_rewritable(snapshot.state.metadata)
    touched = pc.unique(dataset.changes(version, version).added.column("partition_values"))
    files = snapshot.files(columns=TO_READ)
    files = files.filter(pc.is_in(files.column("partition_values"), touched))
    small = files.filter(pc.less(files.column("size"), sizes.minimum)).group_by("partition_values")
    counts = small.aggregate([("path", "count")])
    many = counts.filter(pc.greater_equal(counts.column("path_count"), _SMALL_FILES)).column("partition_values")
    files = files.filter(pc.is_in(files.column("partition_values"), many.combine_chunks()))
    return rewritten(lake, dataset, snapshot, files, packed(files, sizes), Asked(auto=True), spark)
