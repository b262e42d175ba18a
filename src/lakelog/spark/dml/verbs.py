"""Delete, update and merge on the head of a table, each committed by itself."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lakelog.errors import ValidationError
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.spark.dml.assign import Expression
from lakelog.spark.dml.builder import MergeBuilder
from lakelog.spark.dml.delete import prepare_delete
from lakelog.spark.dml.merge import Merge, prepare_merge
from lakelog.spark.dml.rewrite import ChangeResult
from lakelog.spark.dml.update import prepare_update
from lakelog.spark.errors import spark_door
from lakelog.spark.frames import frame_of
from lakelog.spark.optimize.auto_compact import commit
from lakelog.spark.write.options import WriteOptions

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def options(retries: int, committer: str | None, user_metadata: str | None) -> WriteOptions:
    """Raises ``ValidationError``."""
    found = WriteOptions(mode="overwrite", retries=retries, committer=committer, user_metadata=user_metadata)
    if problems := found.problems():
        raise ValidationError("change", problems)
    return found


@spark_door
def delete(
    lake: Engine,
    dataset: Table,
    where: "str | Column | None",
    options: WriteOptions,
    spark: "SparkSession | None",
    alias: str | None = None,
) -> ChangeResult:
    change = prepare_delete(dataset, dataset.snapshot(), where, options, spark, alias)
    return commit(change, lake, options.retries, spark)


@spark_door
def update(
    lake: Engine,
    dataset: Table,
    values: Mapping[str, Expression],
    where: "str | Column | None",
    options: WriteOptions,
    spark: "SparkSession | None",
    alias: str | None = None,
) -> ChangeResult:
    change = prepare_update(dataset, dataset.snapshot(), values, where, options, spark, alias)
    return commit(change, lake, options.retries, spark)


@spark_door
def merge(
    lake: Engine,
    dataset: Table,
    source: Any,
    condition: Expression,
    alias: str | None,
    options: WriteOptions,
    spark: "SparkSession | None",
) -> MergeBuilder[ChangeResult]:
    frame = frame_of(source, spark)

    def run(merge: Merge) -> ChangeResult:
        change = prepare_merge(dataset, dataset.snapshot(), merge, options, frame.sparkSession)
        return commit(change, lake, options.retries, frame.sparkSession)

    return MergeBuilder(Merge(source=frame, condition=condition, clauses=(), alias=alias), run)
