"""Updating rows: files that hold one that matches are written again, or lose it to another by deletion vectors."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from lakelog.changes.conflicts import Reads
from lakelog.errors import ValidationError, Violation
from lakelog.log.feeds.change_feed import is_kept
from lakelog.log.feeds.columns import CHANGE_TYPE
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.table import Table
from lakelog.spark.dml.affected_files import matched_files
from lakelog.spark.dml.assign import Expression, assigned, unqualified
from lakelog.spark.dml.deletion_vectors import can_be_marked, indexes_by_file, parted, vector_metrics, wants_vectors
from lakelog.spark.dml.history_text import shown_condition
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
from lakelog.spark.expressions import quoted
from lakelog.spark.frames import aliased, exact_days, session_for
from lakelog.spark.predicates.analysis import empty_frame
from lakelog.spark.predicates.determinism import parsed_once
from lakelog.spark.read.read import ROW_FILE, ROW_INDEX, read_located, read_these
from lakelog.spark.write.options import WriteOptions
from lakelog.spark.write.parquet_writer import matches
from lakelog.spark.write.prepared_change import PreparedChange

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_BEFORE = "__lakelog_before"


def prepare_update(
    dataset: Table,
    snapshot: Snapshot,
    values: Mapping[str, Expression],
    condition: "str | Column | None",
    options: WriteOptions,
    spark: "SparkSession | None" = None,
    alias: str | None = None,
) -> PreparedChange[ChangeResult]:
    """Writes the files that take the place of those which hold a row that changes."""
    session = session_for(spark)
    with exact_days(session, snapshot.schema):
        return _prepared(session, dataset, snapshot, values, condition, options, alias)


def _prepared(
    session: "SparkSession",
    dataset: Table,
    snapshot: Snapshot,
    values: Mapping[str, Expression],
    condition: "str | Column | None",
    options: WriteOptions,
    alias: str | None,
) -> PreparedChange[ChangeResult]:
    refuse_append_only(dataset, snapshot, "update")
    refuse_reserved("update", snapshot.schema.names)
    schema = snapshot.schema
    old = {name: F.col(quoted(name)) for name in schema.names}
    if not isinstance(values, Mapping):
        raise ValidationError("update", [Violation("set", f"expected columns and their new values, got {values!r}")])
    named = {unqualified(name, alias, schema): value for name, value in values.items()}
    new = assigned(schema, aliased(empty_frame(session, schema), alias), named, old, "update")
    asked = parsed_once(session, condition, "condition")
    matched = matched_files(session, dataset, snapshot, asked, alias)
    changes = rows = marked = None
    removed = matched.files
    if matched.files.num_rows:
        by_vectors = wants_vectors(snapshot) and bool(matched.part.num_rows) and can_be_marked(snapshot, matched.files)
        is_match = F.lit(True) if asked is None else matches(asked)
        read, where = (read_located, (ROW_FILE, ROW_INDEX)) if by_vectors else (read_these, ())
        found = aliased(read(session, dataset.location, snapshot, matched.files), alias)
        found = found.select("*", is_match.alias(CHANGED))
        is_told = is_kept(snapshot.state.metadata)
        kept = {name: f"{_BEFORE}_{number}" for number, name in enumerate(old)} if is_told else {}
        rows = (found.where(CHANGED) if by_vectors else found).select(
            *[
                F.when(F.col(CHANGED), new[name]).otherwise(column).alias(name) if name in new else column
                for name, column in old.items()
            ],
            CHANGED,
            *[old[name].alias(before) for name, before in kept.items()],
            *where,
        )
        metadata = snapshot.state.metadata
        # Generated columns follow those that they are made of, unless somebody says what they are.
        left = metadata.rules.generated.keys() - new.keys()
        rows = following(rows, metadata, dict.fromkeys(left, F.col(CHANGED)))
        if is_told or by_vectors:
            # Once, so that feed, vectors and files say the same: an expression may be another one the next time.
            rows = rows.localCheckpoint(eager=True)
        if by_vectors:
            removed, marked = parted(matched.files, indexes_by_file(rows, dataset.location, matched.files))
        if is_told:
            changed = rows.where(CHANGED)
            before = changed.select(*[F.col(column).alias(name) for name, column in kept.items()])
            changes = before.withColumn(CHANGE_TYPE, F.lit("update_preimage")).union(
                changed.select(*old.values(), F.lit("update_postimage").alias(CHANGE_TYPE))
            )
        if by_vectors:
            # Few rows that come from many tasks are not to become as many files.
            rows = rows.hint("rebalance", *map(quoted, snapshot.metadata.partition_columns))

    def metrics(written: Written) -> dict[str, int]:
        updated = written.counts.get("updated", 0)
        return {
            "numRemovedFiles": removed.num_rows,
            "numRemovedBytes": total(removed),
            "numAddedFiles": written.files,
            "numAddedBytes": written.bytes,
            "numAddedChangeFiles": written.change_files,
            "numUpdatedRows": updated,
            "numCopiedRows": written.rows - updated,
            **vector_metrics(marked, removed),
        }

    return Rewrite(
        dataset=dataset,
        snapshot=snapshot,
        operation="UPDATE",
        parameters={"predicate": shown_condition(condition)},
        reads=Reads(everything=True) if condition is None else Reads(predicates=(matched.predicate,)),
        removed=removed,
        marked=marked,
        rows=rows,
        counted={"updated": F.col(CHANGED)},
        changes=changes,
        metrics=metrics,
    ).prepare(options)
