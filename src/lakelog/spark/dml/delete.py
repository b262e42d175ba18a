"""Deleting rows: whole files by the catalog alone, others by writing what stays of them, or by deletion vectors."""

from typing import TYPE_CHECKING

import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.changes.conflicts import Reads
from lakelog.log.deletion_vectors import live_rows
from lakelog.log.feeds.change_feed import is_kept
from lakelog.log.feeds.columns import CHANGE_TYPE
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.table import Table
from lakelog.spark.dml.affected_files import matched_files
from lakelog.spark.dml.deletion_vectors import Marked, can_be_marked, vector_metrics, wants_vectors
from lakelog.spark.dml.history_text import shown_condition
from lakelog.spark.dml.rewrite import CHANGED, ChangeResult, Rewrite, Written, refuse_append_only, total
from lakelog.spark.frames import aliased, exact_days, session_for
from lakelog.spark.predicates.determinism import parsed_once
from lakelog.spark.read.read import read_these
from lakelog.spark.write.options import WriteOptions
from lakelog.spark.write.parquet_writer import matches
from lakelog.spark.write.prepared_change import PreparedChange

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_GONE = "__lakelog_gone"


def prepare_delete(
    dataset: Table,
    snapshot: Snapshot,
    condition: "str | Column | None",
    options: WriteOptions,
    spark: "SparkSession | None" = None,
    alias: str | None = None,
) -> PreparedChange[ChangeResult]:
    """Writes the files that take the place of those which hold a row that goes."""
    session = session_for(spark)
    with exact_days(session, snapshot.schema):
        return _prepared(session, dataset, snapshot, condition, options, alias)


def _prepared(
    session: "SparkSession",
    dataset: Table,
    snapshot: Snapshot,
    condition: "str | Column | None",
    options: WriteOptions,
    alias: str | None,
) -> PreparedChange[ChangeResult]:
    refuse_append_only(dataset, snapshot, "delete")
    wanted = wants_vectors(snapshot)
    asked = parsed_once(session, condition, "condition")
    matched = matched_files(session, dataset, snapshot, asked, alias, indexed=wanted)
    marked = (
        Marked(files=matched.part, rows=matched.indexes) if wanted and can_be_marked(snapshot, matched.part) else None
    )
    removed = matched.files if marked is None else matched.whole
    rows = changes = None
    # The change feed needs no more than the vectors, as in Delta: what one deletes that the one before did not is told.
    if matched.part.num_rows and marked is None:
        assert asked is not None, "without a condition every file goes as a whole"
        is_told = is_kept(snapshot.state.metadata)
        # Files that go as a whole are told with the others: a commit has changes of its own, or none.
        files = matched.files if is_told else matched.part
        found = aliased(read_these(session, dataset.location, snapshot, files), alias)
        told = found.select("*", matches(asked).alias(_GONE))
        if is_told:
            # Once, so that the feed says what is gone: a condition may have the time of day in it.
            told = told.localCheckpoint(eager=True)
            changes = told.where(_GONE).drop(_GONE).withColumn(CHANGE_TYPE, F.lit("delete"))
        rows = told.where(~F.col(_GONE)).drop(_GONE).withColumn(CHANGED, F.lit(False))

    def metrics(written: Written) -> dict[str, int]:
        before = live_rows(matched.part)
        by_count = before.null_count or marked is not None
        deleted = matched.part_rows if by_count else int(pc.sum(before).as_py() or 0) - written.rows
        return {
            "numRemovedFiles": removed.num_rows,
            "numRemovedBytes": total(removed),
            "numAddedFiles": written.files,
            "numAddedBytes": written.bytes,
            "numAddedChangeFiles": written.change_files,
            "numCopiedRows": written.rows,
            "numDeletedRows": matched.whole_rows + deleted,
            **vector_metrics(marked, removed),
        }

    return Rewrite(
        dataset=dataset,
        snapshot=snapshot,
        operation="DELETE",
        parameters={"predicate": shown_condition(condition)},
        reads=Reads(everything=True) if condition is None else Reads(predicates=(matched.predicate,)),
        removed=removed,
        marked=marked,
        rows=rows,
        changes=changes,
        metrics=metrics,
    ).prepare(options)
