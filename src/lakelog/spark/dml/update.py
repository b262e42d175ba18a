"""Updating rows: files that hold one that matches are written again."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from lakelog.dataset import Dataset
from lakelog.log.change_feed import CHANGE_TYPE, is_kept
from lakelog.log.conflicts import Reads
from lakelog.log.snapshot import Snapshot
from lakelog.spark.constraints import filled
from lakelog.spark.dml.assign import Expression, assigned
from lakelog.spark.dml.matched import matched_files
from lakelog.spark.dml.rewrite import ChangeResult, Rewrite, Written, refuse_append_only, total
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

_CHANGED = "__lakelog_changed"


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
    schema = snapshot.schema
    old = {name: F.col(quoted(name)) for name in schema.names}
    new = assigned(schema, empty_frame(session, schema), values, old, "update")
    matched = matched_files(session, dataset, snapshot, condition)
    counted = Observation()
    changes = rows = None
    if matched.files.num_rows:
        is_match = F.lit(True) if condition is None else matches(condition)
        before = read_these(session, dataset.location, snapshot, matched.files)
        marked = before.select("*", is_match.alias(_CHANGED))
        marked = marked.observe(counted, F.count_if(F.col(_CHANGED)).alias("updated"))
        rows = marked.select(
            *[
                F.when(F.col(_CHANGED), new[name]).otherwise(column).alias(name) if name in new else column
                for name, column in old.items()
            ]
        )
        metadata = snapshot.state.metadata
        # Generated columns follow those that they are made of, unless somebody says what they are.
        following = metadata.rules.generated.keys() - new.keys()
        rows = filled(rows, metadata, following)
        if is_kept(snapshot.state.metadata):
            after = before.where(is_match).select(*[new.get(name, column).alias(name) for name, column in old.items()])
            told = before.where(is_match).withColumn(CHANGE_TYPE, F.lit("update_preimage"))
            changes = told.union(filled(after, metadata, following).withColumn(CHANGE_TYPE, F.lit("update_postimage")))

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
