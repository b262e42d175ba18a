"""``write_dataset``: native Parquet files first, then one commit that makes them part of the table."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

from lakelog.changes.evolution import WritePlan, plan_overwrite, plan_write
from lakelog.changes.staging_directory import OwnDirectory
from lakelog.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    SchemaMismatchError,
    ValidationError,
    VersionConflict,
    Violation,
)
from lakelog.log.pruning.predicate import Predicate
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import TableMetadata
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.schema.evolution.merge import MergeOptions
from lakelog.schema.evolution.projection import project
from lakelog.schema.mapping import physical_name
from lakelog.schema.spark import from_spark
from lakelog.spark.errors import spark_door
from lakelog.spark.expressions import columns as column_expressions
from lakelog.spark.expressions import quoted
from lakelog.spark.frames import frame_of
from lakelog.spark.optimize.auto_compact import commit, compact_after
from lakelog.spark.predicates.analysis import empty_frame, predicate_of
from lakelog.spark.predicates.determinism import parsed_once, refuse_changing
from lakelog.spark.read.partitions import files_matched_by_partition
from lakelog.spark.read.read import may_read, read_these
from lakelog.spark.rules.validate import check_new_rules
from lakelog.spark.write.options import WriteOptions, retries_of
from lakelog.spark.write.parquet_writer import Stage, Target, matches
from lakelog.spark.write.prepared_change import PreparedChange
from lakelog.spark.write.table_change import (
    Change,
    WriteResult,
    check_append_only,
    check_features,
    check_partitioning,
    commit_new,
    defined_by,
    is_done,
    prepare_change,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


@spark_door
def write_dataset(
    lake: Engine,
    name: str,
    data: Any,
    mode: str = "append",
    *,
    base_version: int | None = None,
    schema_merge: bool = False,
    promote_types: bool = True,
    promote_to_string: bool = False,
    retries: int | None = None,
    partition_by: Sequence[str] | None = None,
    partition_overwrite_mode: str = "static",
    replace_where: str | None = None,
    overwrite_schema: bool = False,
    sort_by: Sequence[str] = (),
    max_records_per_file: int | None = None,
    target_file_size: int | None = None,
    compression: str = "zstd",
    txn_app_id: str | None = None,
    txn_version: int | None = None,
    user_metadata: str | None = None,
    committer: str | None = None,
    properties: Mapping[str, str] | None = None,
    mirror: bool | str = True,
    spark: "SparkSession | None" = None,
) -> WriteResult:
    """Writes rows as the next version of a dataset; the first write to a new name creates it.

    ``data`` is a Spark or pandas DataFrame or a pyarrow Table. ``mode`` is ``append``, ``overwrite``, ``error`` or
    ``ignore``; with ``partition_overwrite_mode="dynamic"``, an overwrite replaces only the partitions that it writes,
    with ``replace_where``, the rows that match a condition, which all new rows have to match. With ``overwrite_schema``
    it replaces the columns, and with ``partition_by`` the partitioning, too.
    ``base_version`` is the version that the data was made from: the write becomes the next one or raises
    ``VersionConflict``. With ``retries``, a lost race is tried again unless the winner's change really conflicts: ten
    times by default for an append that names no ``base_version`` and whose data is not read from the table, 0 times for
    any other write.
    ``txn_app_id`` and ``txn_version`` make a write that was committed before a write that is skipped.

    Columns that the data lacks have their defaults, or are generated, or null. Raises ``SchemaMismatchError`` before
    any file exists if the data does not fit and the options do not allow it, and after Spark has looked at all rows if
    some of them break a constraint, another rule of the table, or a NOT NULL; then the files go.
    A write that fails leaves no trace in the log; after ``CommitOutcomeUnknown`` its files stay.
    """
    options = WriteOptions(
        mode={"errorifexists": "error"}.get(mode, mode),
        partition_by=partition_by,
        partition_overwrite_mode=partition_overwrite_mode,
        replace_where=replace_where,
        base_version=base_version,
        retries=retries_of(mode, base_version) if retries is None else retries,
        txn_app_id=txn_app_id,
        txn_version=txn_version,
        user_metadata=user_metadata,
        committer=committer,
        compression=compression,
        max_records_per_file=max_records_per_file,
        target_file_size=target_file_size,
        sort_by=sort_by,
        overwrite_schema=overwrite_schema,
    )
    if problems := options.problems():
        raise ValidationError("write", problems)
    frame = frame_of(data, spark)
    try:
        dataset = lake.dataset(name)
    except DatasetNotFoundError:
        if base_version is not None:
            raise
        try:
            return _create(lake, name, frame, options, properties, mirror)
        except DatasetExistsError:
            # Somebody created it in the meantime. Only an append does not care what is there.
            if options.mode != "ignore" and not (options.mode == "append" and options.retries):
                raise
            dataset = lake.dataset(name)
    if options.mode == "error":
        raise DatasetExistsError(f"there is already a dataset {name!r}: append to it, or overwrite it")
    if options.mode == "ignore" or is_done(dataset, options.txn):
        return WriteResult(version=dataset.version, files=0, rows=0, skipped=True)
    if retries is None and may_read(frame, dataset):
        # Rows that were made from the table are true for the version that they were made from.
        options = replace(options, retries=0)
    snapshot = dataset.snapshot()
    if base_version is not None and base_version != snapshot.version:
        raise VersionConflict(name, dataset.id, base_version, snapshot.version)
    if options.overwrite_schema:
        plan = plan_overwrite(snapshot, frame.schema, options.partition_by)
    else:
        plan = plan_write(snapshot, frame.schema, MergeOptions(schema_merge, promote_types, promote_to_string))
    return commit(prepare_write(dataset, snapshot, frame, plan, options), lake, options.retries, frame.sparkSession)


def _create(
    lake: Engine,
    name: str,
    frame: "DataFrame",
    options: WriteOptions,
    properties: Mapping[str, str] | None,
    mirror: bool | str,
) -> WriteResult:
    """The table and its first rows, all of it in version 0."""
    arriving = from_spark(frame.schema)
    defined = defined_by(name, arriving, options, properties, mirror)
    described = TableMetadata(0, defined[1], 0)
    check_features(described)
    if described.rules:
        check_new_rules(frame.sparkSession, described)
    where = parsed_once(frame.sparkSession, options.replace_where, "replace_where")
    if where is not None:
        _where_replaced(frame.sparkSession, described.schema, where)
    target = Target(
        location=lake.new_location(name),
        metadata=described,
        columns=project(list(arriving), list(described.schema)),
    )
    with OwnDirectory(lake.committer, target.location) as own:
        written = Stage(own, target, frame, options, where=where).write()
        result = commit_new(lake, name, defined, target.location, written, options, own)
    compact_after(lake, result.table_id, result.version, frame.sparkSession)
    return WriteResult(version=0, files=written.adds.num_rows, rows=written.rows, commit_id=result.commit_id)


def prepare_write(
    dataset: Table, snapshot: Snapshot, frame: "DataFrame", plan: WritePlan, options: WriteOptions
) -> PreparedChange[WriteResult]:
    """Writes the files of an append or overwrite of a table that exists."""
    change = Change(snapshot=snapshot, plan=plan)
    check_features(change.metadata)
    check_partitioning(change.metadata, options, "partition_by")
    check_append_only(snapshot.state.metadata, options)
    in_part = options.replace_where is not None or options.partition_overwrite_mode == "dynamic"
    if plan.rewrites and options.mode == "overwrite" and in_part:
        message = "would become a string, for which all files are written again: append, or overwrite the whole table"
        raise SchemaMismatchError("schema change", [Violation(path, message) for path in plan.promoted])
    rewritten = None
    where = parsed_once(frame.sparkSession, options.replace_where, "replace_where")
    if where is not None:
        # As this session means it, also when it comes to conflicts.
        predicate = _where_replaced(frame.sparkSession, snapshot.schema, where)
        candidates = snapshot.files(predicate)
        whole = files_matched_by_partition(frame.sparkSession, snapshot, candidates, where)
        rewritten = candidates if whole is None else None
        change = replace(change, predicate=predicate, replaced=candidates if whole is None else whole)
    elif options.mode != "overwrite" and plan.rewrites:
        rewritten = pa.concat_tables([group.files for group in plan.rewrites])
        change = replace(change, replaced=rewritten)
    target = Target(
        location=dataset.location,
        metadata=change.metadata,
        columns=project(list(plan.incoming), list(plan.schema)),
    )
    kept = None
    if rewritten is not None and rewritten.num_rows:
        kept = _kept(frame.sparkSession, dataset, change, rewritten, where)
    with OwnDirectory(dataset.committer, dataset.location) as own:
        written = Stage(own, target, frame, options, kept, where=where).write()
        return prepare_change(dataset, change, written, options, own)


def _where_replaced(spark: "SparkSession", schema: pa.Schema, condition: "str | Column") -> Predicate:
    predicate = predicate_of(spark, schema, condition)
    refuse_changing(empty_frame(spark, schema), condition, "replace_where")
    return predicate


def _kept(
    spark: "SparkSession", dataset: Table, change: Change, files: pa.Table, where: "str | Column | None"
) -> "DataFrame":
    """The rows of files that stay, and have to be written again, under the schema that the table will have."""
    kept = read_these(spark, dataset.location, change.snapshot, files)
    if where is not None:
        kept = kept.where(~matches(where))
    sources = [F.col(quoted(name)) for name in kept.columns]
    old, new = list(change.snapshot.schema), list(change.plan.schema)
    return kept.select(*column_expressions(project(old, new, physical_name), sources))
