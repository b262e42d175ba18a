"""Compaction that a table asks for by a property: after a change that left many small files in a partition."""

import logging
from typing import TYPE_CHECKING

import pyarrow.compute as pc

from lakelog.changes.bins import TARGET_SIZE, Sizes, packed
from lakelog.log.snapshot.file_groups import TO_READ
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.spark.frames import session_for
from lakelog.spark.optimize.compaction import Asked, OptimizeResult, check_rewritable, rewritten
from lakelog.spark.write.prepared_change import PreparedChange, Result
from lakelog.telemetry import report_safely

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AUTO_COMPACT = "delta.autoOptimize.autoCompact"

_ON = ("true", "auto", "legacy")
_SMALL_FILES = 50
"""In a partition, from which on it is compacted. Delta's number, as the size below."""
_TARGET = 128 << 20
"""Smaller than what somebody asks for who has the time: a write waits for it."""


def commit(change: PreparedChange[Result], lake: Engine, retries: int, spark: "SparkSession | None") -> Result:
    """Commits a change by itself, and what it has left of small files is compacted if the table asks for it."""
    result = change.send(lake, retries)
    if result is not None:
        compact_after(lake, result.table_id, result.version, spark)
    return change.told(result)


def compact_after(lake: Engine, table_id: int, version: int, spark: "SparkSession | None") -> None:
    """A compaction, if one is due after a commit of this process. Whatever that runs into, the commit stands.

    Where the table's properties do not ask for it, nothing happens, and nobody is asked anything.
    """
    state = lake.committer.states.known(table_id, version)
    if state is None or state.metadata.action.configuration.get(AUTO_COMPACT, "").lower() not in _ON:
        return
    name = lake.committer.states.names.get(table_id, f"table {table_id}")
    try:
        with lake.committer.catalog.session() as session:
            dataset = lake.handle(lake.committer.head(session, table_id))
        done = _compact(lake, dataset, version, session_for(spark))
        if done.version is not None:
            report_safely(logging.INFO, "%s: compacted %d files into %d", name, done.files_removed, done.files_added)
    except Exception as error:
        message = "%s: version %d is committed, but could not be compacted: %s"
        report_safely(logging.WARNING, message, name, version, error)


def _compact(lake: Engine, dataset: Table, version: int, spark: "SparkSession") -> OptimizeResult:
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
