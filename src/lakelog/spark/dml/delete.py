"""Deleting rows: whole files by the catalog alone, others by writing what stays of them."""

from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.dataset import Dataset
from lakelog.log.change_feed import CHANGE_TYPE, is_kept
from lakelog.log.conflicts import Reads
from lakelog.log.deletion_vectors import live_rows
from lakelog.log.snapshot import Snapshot
from lakelog.spark.dml.matched import matched_files
from lakelog.spark.dml.rewrite import CHANGED, ChangeResult, Rewrite, Written, refuse_append_only, total
from lakelog.spark.dml.shown import shown_condition
from lakelog.spark.frames import session_for
from lakelog.spark.options import WriteOptions
from lakelog.spark.prepared import PreparedChange
from lakelog.spark.read import read_these
from lakelog.spark.stage import matches

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_GONE = "__lakelog_gone"


def prepare_delete(
    dataset: Dataset,
    snapshot: Snapshot,
    condition: "str | Column | None",
    options: WriteOptions,
    spark: "SparkSession | None" = None,
) -> PreparedChange[ChangeResult]:
    """Writes the files that take the place of those which hold a row that goes."""
    session = session_for(spark)
    refuse_append_only(dataset, snapshot, "delete")
    matched = matched_files(session, dataset, snapshot, condition)
    rows = changes = None
    if matched.part.num_rows:
        assert condition is not None, "without a condition every file goes as a whole"
        is_told = is_kept(snapshot.state.metadata)
        # Files that go as a whole are told with the others: a commit has changes of its own, or none.
        files = matched.files if is_told else matched.part
        marked = read_these(session, dataset.location, snapshot, files).select("*", matches(condition).alias(_GONE))
        if is_told:
            # Once, so that the feed says what is gone: a condition may have the time of day in it.
            marked = marked.localCheckpoint(eager=True)
            changes = marked.where(_GONE).drop(_GONE).withColumn(CHANGE_TYPE, F.lit("delete"))
        rows = marked.where(~F.col(_GONE)).drop(_GONE).withColumn(CHANGED, F.lit(False))

    def metrics(written: Written) -> dict[str, int]:
        before = live_rows(matched.part)
        deleted = matched.part_rows if before.null_count else int(pc.sum(before).as_py() or 0) - written.rows
        return {
            "numRemovedFiles": matched.whole.num_rows + matched.part.num_rows,
            "numRemovedBytes": total(matched.whole) + total(matched.part),
            "numAddedFiles": written.files,
            "numAddedBytes": written.bytes,
            "numAddedChangeFiles": written.change_files,
            "numCopiedRows": written.rows,
            "numDeletedRows": matched.whole_rows + deleted,
        }

    return Rewrite(
        dataset=dataset,
        snapshot=snapshot,
        operation="DELETE",
        parameters={"predicate": shown_condition(condition)},
        reads=Reads(everything=True) if condition is None else Reads(predicates=(matched.predicate,)),
        removed=matched.files,
        rows=rows,
        changes=changes,
        metrics=metrics,
    ).prepare(options)
