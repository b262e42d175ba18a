"""``write_dataset``: native Parquet files first, then one commit that makes them part of the table."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.actions import Txn
from lakelog.dataset import Dataset
from lakelog.errors import (
    DatasetExistsError,
    DatasetNotFoundError,
    ValidationError,
    VersionConflict,
    Violation,
)
from lakelog.lake import Lake, definition
from lakelog.log.conflicts import Reads
from lakelog.log.draft import Description, Draft
from lakelog.log.evolution import WritePlan
from lakelog.log.files import AddFiles, RemoveFiles
from lakelog.log.retry import commit_with_retries
from lakelog.log.snapshot import Snapshot
from lakelog.log.state import TableMetadata
from lakelog.schema.mapping import loosened, physical_name
from lakelog.schema.projection import project
from lakelog.schema.spark import from_spark
from lakelog.spark.expressions import columns as column_expressions
from lakelog.spark.expressions import quoted
from lakelog.spark.footers import Harvest
from lakelog.spark.frames import frame_of
from lakelog.spark.predicates import predicate_of
from lakelog.spark.read import read_these
from lakelog.spark.stage import Stage, Target, WriteOptions, matches

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MODES = ("append", "overwrite", "error", "errorifexists", "ignore")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteResult:
    """A write that stands."""

    version: int
    """The version that it made; of a write that was skipped, the table's head."""
    files: int
    rows: int
    removed: int = 0
    """Files that it replaced."""
    commit_id: str | None = None
    skipped: bool = False
    """Whether nothing was written: the same batch was committed before, or the table existed and mode is ignore."""


def write_dataset(
    lake: Lake,
    name: str,
    data: Any,
    mode: str = "append",
    *,
    base_version: int | None = None,
    schema_merge: bool = False,
    promote_types: bool = True,
    promote_to_string: bool = False,
    retries: int = 0,
    partition_by: Sequence[str] | None = None,
    partition_overwrite_mode: str = "static",
    replace_where: str | None = None,
    sort_by: Sequence[str] = (),
    max_records_per_file: int | None = None,
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
    with ``replace_where``, the rows that match a condition, which all new rows have to match.
    ``base_version`` is the version that the data was made from: the write becomes the next one or raises
    ``VersionConflict``. With ``retries``, a lost race is tried again unless the winner's change really conflicts.
    ``txn_app_id`` and ``txn_version`` make a write that was committed before a write that is skipped.

    Raises ``SchemaMismatchError`` before any file exists if the data does not fit and the options do not allow it.
    A write that fails leaves no trace in the log; after ``CommitOutcomeUnknown`` its files stay.
    """
    options = WriteOptions(
        mode={"errorifexists": "error"}.get(mode, mode),
        partition_by=None if partition_by is None else tuple(partition_by),
        dynamic=partition_overwrite_mode == "dynamic",
        replace_where=replace_where,
        retries=retries,
        txn=None if txn_app_id is None or txn_version is None else Txn(app_id=txn_app_id, version=txn_version),
        user_metadata=user_metadata,
        committer=committer,
        writer=_writer_options(compression, max_records_per_file),
        sort_by=tuple(sort_by),
    )
    _check(options, mode, partition_by, partition_overwrite_mode, (txn_app_id, txn_version), (base_version, retries))
    frame = frame_of(data, spark)
    try:
        dataset = lake.dataset(name)
    except DatasetNotFoundError:
        if base_version is not None:
            raise
        return _create(lake, name, frame, options, properties, mirror)
    if options.mode == "error":
        raise DatasetExistsError(f"there is already a dataset {name!r}: append to it, or overwrite it")
    if options.mode == "ignore" or _is_done(lake, name, options.txn):
        return WriteResult(version=dataset.version, files=0, rows=0, skipped=True)
    head = dataset.version
    if base_version is not None and base_version != head:
        raise VersionConflict(name, dataset.id, base_version, head)
    plan = dataset.plan_write(
        frame.schema,
        schema_merge=schema_merge,
        promote_types=promote_types,
        promote_to_string=promote_to_string,
        version=base_version,
    )
    return _write(lake, dataset, frame, plan, options)


def _check(
    options: WriteOptions,
    mode: Any,
    partition_by: Any,
    overwrite: Any,
    txn: tuple[Any, Any],
    numbers: tuple[Any, Any],
) -> None:
    found = []
    if options.replace_where is not None:
        if not isinstance(options.replace_where, str):
            found.append(Violation("replace_where", f"expected a condition as text, got {options.replace_where!r}"))
        if options.mode != "overwrite" or options.dynamic:
            found.append(Violation("replace_where", "goes with mode='overwrite' and no dynamic partition overwrite"))
    if mode not in _MODES:
        found.append(Violation("mode", f"expected one of {', '.join(_MODES)}, got {mode!r}"))
    if isinstance(partition_by, str):
        found.append(Violation("partition_by", "expected a list of column names, got one text"))
    if overwrite not in ("static", "dynamic"):
        found.append(Violation("partition_overwrite_mode", f"expected static or dynamic, got {overwrite!r}"))
    if (txn[0] is None) != (txn[1] is None):
        found.append(Violation("txn_app_id", "goes together with txn_version: give both or neither"))
    base_version, retries = numbers
    if not isinstance(retries, int) or isinstance(retries, bool) or retries < 0:
        found.append(Violation("retries", f"expected a count, got {retries!r}"))
    elif retries and base_version is not None:
        found.append(Violation("retries", "a write that names its base_version is never tried on another one"))
    if found:
        raise ValidationError("write", found)


def _writer_options(compression: str, max_records_per_file: int | None) -> dict[str, str]:
    options = {
        "compression": compression,
        # Not INT96, which has no statistics.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        # Of longer strings Parquet would keep no statistics at all, not even how many are null.
        "parquet.statistics.truncate.length": "64",
    }
    if max_records_per_file is not None:
        options["maxRecordsPerFile"] = str(max_records_per_file)
    return options


def _is_done(lake: Lake, name: str, txn: Txn | None) -> bool:
    """Whether an application's batch was committed before."""
    done = None if txn is None else lake.txn_version(name, txn.app_id)
    return txn is not None and done is not None and done >= txn.version


def _create(
    lake: Lake,
    name: str,
    frame: "DataFrame",
    options: WriteOptions,
    properties: Mapping[str, str] | None,
    mirror: bool | str,
) -> WriteResult:
    """The table and its first rows, all of it in version 0."""
    arriving = from_spark(frame.schema)
    # Spark says NOT NULL of what happens to be a literal; a table's promise is made explicitly.
    protocol, metadata = definition(name, loosened(arriving), options.partition_by or (), properties, mirror)
    described = TableMetadata(0, metadata, 0)
    target = Target(
        location=lake.new_location(name),
        metadata=described,
        columns=project(list(arriving), list(described.schema)),
    )
    with Stage(target, frame, options) as stage:
        written = stage.write()
        description = _description(options, described, written, "CREATE TABLE AS SELECT")
        draft = Draft(0, -1, [protocol, metadata, *_actions(written, options)], description, written.row_groups)
        _, result = lake.create_from(name, draft, target.location)
    return WriteResult(version=0, files=written.adds.num_rows, rows=written.rows, commit_id=result.commit_id)


def _write(lake: Lake, dataset: Dataset, frame: "DataFrame", plan: WritePlan, options: WriteOptions) -> WriteResult:
    snapshot = dataset.snapshot(plan.base_version)
    action = next((action for action in plan.actions if action.action == "metaData"), snapshot.metadata)
    metadata = TableMetadata(plan.base_version + 1, action, 0)  # type: ignore[arg-type]
    _check_partitioning(options.partition_by, metadata)
    target = Target(
        location=dataset.location,
        metadata=metadata,
        columns=project(list(plan.incoming), list(plan.schema)),
    )
    touched = _touched(frame.sparkSession, snapshot, plan, options)
    kept = None
    if touched is not None and touched.num_rows:
        kept = read_these(frame.sparkSession, dataset.location, snapshot, touched)
        if options.replace_where is not None:
            kept = kept.where(~matches(options.replace_where))
        old, new = list(snapshot.schema), list(plan.schema)
        sources = [F.col(quoted(name)) for name in kept.columns]
        kept = kept.select(*column_expressions(project(old, new, physical_name), sources))
    with Stage(target, frame, options, kept) as stage:
        written = stage.write()
        removed, reads = _replaced(snapshot, written, touched, options)
        actions = [*plan.actions, *_actions(written, options)]
        if removed is not None and removed.num_rows:
            actions.append(RemoveFiles(removed))
        description = _description(options, metadata, written, "WRITE")
        result = commit_with_retries(
            lake.committer,
            dataset.id,
            plan.base_version,
            lambda expected: Draft(dataset.id, expected, actions, description, written.row_groups),
            reads,
            retries=options.retries,
            apps=frozenset([options.txn.app_id] if options.txn else []),
            changes_metadata=bool(plan.actions),
        )
    return WriteResult(
        version=result.version,
        files=written.adds.num_rows,
        rows=written.rows,
        removed=0 if removed is None else removed.num_rows,
        commit_id=result.commit_id,
    )


def _check_partitioning(asked: tuple[str, ...] | None, metadata: TableMetadata) -> None:
    has = metadata.action.partition_columns
    if asked is not None and [name.lower() for name in asked] != [name.lower() for name in has]:
        message = f"the table is partitioned by {list(has)}, not by {list(asked)}; leave it out to write to the table"
        raise ValidationError("write", [Violation("partition_by", message)])


def _touched(spark: "SparkSession", snapshot: Snapshot, plan: WritePlan, options: WriteOptions) -> pa.Table | None:
    """The files of which rows stay, and have to be written again. None if there are none whatever the table holds."""
    if options.replace_where is not None:
        return snapshot.files(predicate_of(spark, snapshot.schema, options.replace_where))
    if options.mode != "overwrite" and plan.rewrites:
        return pa.concat_tables([group.files for group in plan.rewrites])
    return None


def _replaced(
    snapshot: Snapshot, written: Harvest, touched: pa.Table | None, options: WriteOptions
) -> tuple[pa.Table | None, Reads]:
    """The files that a write replaces, and what it had to look at to know that."""
    needed = ["path", "partition_values", "size", "deletion_vector"]
    if options.replace_where is not None:
        assert touched is not None
        return touched.select(needed), Reads(predicates=(options.replace_where,))
    if options.mode != "overwrite":
        return (None, Reads()) if touched is None else (touched.select(needed), Reads(everything=True))
    files = snapshot.files(columns=needed)
    if not (options.dynamic and snapshot.metadata.partition_columns):
        return files, Reads(everything=True)
    texts = pc.unique(written.adds.column("partition_values"))
    partitions = tuple(json.loads(text) for text in texts.to_pylist())
    known = {frozenset(values.items()) for values in partitions}
    kept = [frozenset(json.loads(text).items()) in known for text in files.column("partition_values").to_pylist()]
    return files.filter(pa.array(kept, pa.bool_())), Reads(partitions=partitions)


def _actions(written: Harvest, options: WriteOptions) -> list[Any]:
    actions: list[Any] = []
    if written.adds.num_rows:
        actions.append(AddFiles(written.adds))
    if options.txn is not None:
        actions.append(options.txn)
    return actions


def _description(options: WriteOptions, metadata: TableMetadata, written: Harvest, operation: str) -> Description:
    extra: dict[str, Any] = {
        "operationMetrics": {
            "numFiles": str(written.adds.num_rows),
            "numOutputRows": str(written.rows),
            "numOutputBytes": str(pc.sum(written.adds.column("size")).as_py() or 0),
        },
        "isBlindAppend": options.mode != "overwrite",
    }
    if options.user_metadata is not None:
        extra["userMetadata"] = options.user_metadata
    parameters: dict[str, Any] = {
        "mode": {"overwrite": "Overwrite"}.get(options.mode, "Append"),
        "partitionBy": json.dumps(list(metadata.action.partition_columns)),
    }
    return Description(operation=operation, operation_parameters=parameters, committer=options.committer, extra=extra)
