"""Updating rows: files that hold one that matches are written again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakelog.dataset import Dataset
from lakelog.log.change_feed import CHANGE_TYPE, is_kept
from lakelog.log.conflicts import Reads
from lakelog.log.snapshot import Snapshot
from lakelog.spark.dml.assign import Expression, assigned
from lakelog.spark.dml.matched import matched_files
from lakelog.spark.dml.rewrite import (
    CHANGED,
    ChangeResult,
    Rewrite,
    Written,
    following,
    refuse_append_only,
    refuse_reserved,
    total,
)
from lakelog.spark.dml.shown import shown_condition
from lakelog.spark.expressions import quoted
from lakelog.spark.frames import session_for
from lakelog.spark.options import WriteOptions
from lakelog.spark.predicates import empty_frame
from lakelog.spark.prepared import PreparedChange
from lakelog.spark.read import read_these
from lakelog.spark.stage import matches

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_BEFORE = "__lakelog_before"


def prepare_update(
    dataset: Dataset,
    snapshot: Snapshot,
    values: Mapping[str, Expression],
    condition: "str | Column | None",
    options: WriteOptions,
    spark: "SparkSession | None" = None,
) -> PreparedChange[ChangeResult]:
    """Writes the files that take the place of those which hold a row that changes."""
    session = session_for(spark)
    refuse_append_only(dataset, snapshot, "update")
    refuse_reserved("update", snapshot.schema.names)
    schema = snapshot.schema
    old = {name: F.col(quoted(name)) for name in schema.names}
    new = assigned(schema, empty_frame(session, schema), values, old, "update")
    matched = matched_files(session, dataset, snapshot, condition)
    counted = Observation()
    changes = rows = None
    if matched.files.num_rows:
        is_match = F.lit(True) if condition is None else matches(condition)
        found = read_these(session, dataset.location, snapshot, matched.files)
        marked = found.select("*", is_match.alias(CHANGED))
        marked = marked.observe(counted, F.count_if(F.col(CHANGED)).alias("updated"))
        is_told = is_kept(snapshot.state.metadata)
        kept = {name: f"{_BEFORE}_{number}" for number, name in enumerate(old)} if is_told else {}
        rows = marked.select(
            *[
                F.when(F.col(CHANGED), new[name]).otherwise(column).alias(name) if name in new else column
                for name, column in old.items()
            ],
            CHANGED,
            *[old[name].alias(before) for name, before in kept.items()],
        )
        metadata = snapshot.state.metadata
        # Generated columns follow those that they are made of, unless somebody says what they are.
        rows = following(rows, metadata, metadata.rules.generated.keys() - new.keys())
        if is_told:
            # Once, so that the feed says what the files have: an expression may be another one the next time.
            rows = rows.localCheckpoint(eager=True)
            changed = rows.where(CHANGED)
            before = changed.select(*[F.col(column).alias(name) for name, column in kept.items()])
            changes = before.withColumn(CHANGE_TYPE, F.lit("update_preimage")).union(
                changed.select(*old.values(), F.lit("update_postimage").alias(CHANGE_TYPE))
            )

    def metrics(written: Written) -> dict[str, int]:
        updated = int(counted.get["updated"]) if rows is not None else 0
        return {
            "numRemovedFiles": matched.files.num_rows,
            "numRemovedBytes": total(matched.files),
            "numAddedFiles": written.files,
            "numAddedBytes": written.bytes,
            "numAddedChangeFiles": written.change_files,
            "numUpdatedRows": updated,
            "numCopiedRows": written.rows - updated,
        }

    return Rewrite(
        dataset=dataset,
        snapshot=snapshot,
        operation="UPDATE",
        parameters={"predicate": shown_condition(condition)},
        reads=Reads(everything=True) if condition is None else Reads(predicates=(matched.predicate,)),
        removed=matched.files,
        rows=rows,
        changes=changes,
        metrics=metrics,
    ).prepare(options)
