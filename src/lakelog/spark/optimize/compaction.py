"""``Dataset.optimize``: the same rows in better files. Nothing that anybody reads changes."""

import json
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from lakelog.actions import DeletionVector
from lakelog.arguments import NAMES
from lakelog.changes.bins import Bin, Sizes, packed, whole_partitions
from lakelog.changes.conflicts import Reads
from lakelog.changes.partition_values import files_in
from lakelog.changes.retry import Prepared, commit_with_retries
from lakelog.changes.staging_directory import OwnDirectory, leases_of
from lakelog.errors import LakelogError, ValidationError, Violation
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.files import REMOVED, AddFiles, RemoveFiles
from lakelog.log.snapshot.file_groups import TO_READ
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import TableMetadata
from lakelog.log.table import Table
from lakelog.log.validation.features import unenforced_features
from lakelog.opening.engine import Engine
from lakelog.parquet.footers import Harvest
from lakelog.schema.evolution.projection import project
from lakelog.schema.leaves import leaf_columns, parse_path
from lakelog.spark.errors import spark_door
from lakelog.spark.expressions import quoted
from lakelog.spark.frames import session_for
from lakelog.spark.optimize.zorder import MOST_COLUMNS
from lakelog.spark.read.partitions import files_matched_by_partition
from lakelog.spark.write.options import WriteOptions
from lakelog.spark.write.parquet_writer import Stage, Target
from lakelog.spark.write.regroup import gathered

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

RETRIES = 10
"""How often a lost race is tried again: an append is no reason to write a gigabyte once more."""

_BYTES_PER_JOB = 16 << 30
_BINS_PER_JOB = 1000
"""What one of Spark's jobs takes on: it has to hold all of it between reading and writing."""

_HOLD_ALREADY = frozenset({"checkConstraints", "generatedColumns", "identityColumns", "invariants"})
"""What a table asks of rows when they are new: these have been accepted before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizeResult:
    """What an optimization did."""

    version: int | None
    """The version that it made; None if there was nothing to do."""
    files_added: int = 0
    files_removed: int = 0
    bytes_added: int = 0
    bytes_removed: int = 0
    files_considered: int = 0
    """Files in the partitions that were asked for."""
    partitions: int = 0
    """Partitions with files that were removed."""
    bins: int = 0
    """Sets of files that were written together."""
    sizes_removed: tuple[int, int] | None = None
    """Of the smallest and the largest file, in bytes."""
    metrics: Mapping[str, int]
    """What the history says of it, by Delta's names."""
    commit_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a caller asks for."""

    where: str | None = None
    zorder_by: Sequence[str] = ()
    retries: int = RETRIES
    alias: str | None = None
    """How ``where`` may call the table."""
    auto: bool = False
    """Whether nobody asked, and a table's property did."""

    def problems(self) -> list[Violation]:
        found = []
        if self.where is not None and not isinstance(self.where, str):
            found.append(Violation("where", f"expected a condition as text, got {self.where!r}"))
        if not NAMES.fits(self.zorder_by):
            found.append(Violation("zorder_by", f"expected a list of column names, got {self.zorder_by!r}"))
        if not isinstance(self.retries, int) or isinstance(self.retries, bool) or self.retries < 0:
            found.append(Violation("retries", f"expected a count, got {self.retries!r}"))
        return found

    @property
    def parameters(self) -> dict[str, Any]:
        """Delta's operationParameters."""
        return {
            "predicate": json.dumps([] if self.where is None else [self.where]),
            "zOrderBy": json.dumps(list(self.zorder_by)),
            "clusterBy": "[]",
            "auto": self.auto,
        }


@spark_door
def optimize(
    lake: Engine,
    dataset: Table,
    asked: Asked,
    target_file_size: int | None = None,
    min_file_size: int | None = None,
    spark: "SparkSession | None" = None,
) -> OptimizeResult:
    """Raises ``ValidationError`` before anything is written, ``ConcurrencyError`` if a file was removed meanwhile."""
    if problems := asked.problems():
        raise ValidationError("optimize", problems)
    snapshot = dataset.snapshot()
    sizes = Sizes.of(snapshot.metadata.configuration, target_file_size, min_file_size)
    check_rewritable(snapshot.state.metadata)
    columns = _curve_columns(snapshot.state.metadata, asked.zorder_by)
    session = session_for(spark)
    files = snapshot.files(columns=TO_READ)
    if asked.where is not None:
        files = _in_partitions(session, snapshot, files, asked.where, asked.alias)
    bins = whole_partitions(files, sizes) if columns else packed(files, sizes)
    return rewritten(lake, dataset, snapshot, files, bins, asked, session, columns)


def rewritten(
    lake: Engine,
    dataset: Table,
    snapshot: Snapshot,
    files: Any,
    bins: Sequence[Bin],
    asked: Asked,
    spark: "SparkSession",
    columns: Sequence["Column"] = (),
) -> OptimizeResult:
    """The bins' files, replaced in one commit by the files that they are to become."""
    if not bins:
        return OptimizeResult(version=None, metrics={}, files_considered=files.num_rows)
    metadata = snapshot.state.metadata
    schema = list(metadata.schema)
    target = Target(location=dataset.location, metadata=metadata, columns=project(schema, schema))
    options = WriteOptions(mode="append")
    written = []
    with ExitStack() as pending:
        directories = [pending.enter_context(OwnDirectory(dataset.committer, dataset.location)) for _ in _jobs(bins)]
        for job, own in zip(_jobs(bins), directories, strict=True):
            rows = gathered(spark, dataset.location, snapshot, files, job, columns)
            written.append(Stage(own, target, rows, options, is_new=F.lit(False)).write())
            _check(written[-1], files, job, metadata)
        return _commit(lake, dataset, snapshot, files, bins, written, asked, leases_of(*directories))


def check_rewritable(metadata: TableMetadata) -> None:
    """Refuses a table whose files say more than their rows, which would be lost."""
    found = set(unenforced_features(metadata.schema, metadata.action.configuration)) - _HOLD_ALREADY
    if found:
        message = "is in use, and Lakelog's files would not have what it needs: optimize with the table's own engine"
        raise ValidationError("optimize", [Violation(f"table feature {name}", message) for name in sorted(found)])


def _in_partitions(spark: "SparkSession", snapshot: Snapshot, files: Any, where: str, alias: str | None) -> Any:
    found = files_matched_by_partition(spark, snapshot, files, where, alias)
    if found is None:
        has = list(snapshot.metadata.partition_columns)
        message = f"{where!r} has to be on partition columns only, since whole files are replaced; they are {has}"
        raise ValidationError("optimize", [Violation("where", message)])
    return found


def _curve_columns(metadata: TableMetadata, names: Sequence[str]) -> list["Column"]:
    """The columns to sort by. Raises ``ValidationError`` where sorting would not let anybody skip a file."""
    leaves = zip(leaf_columns(metadata.schema), leaf_columns(metadata.physical), strict=True)
    known = {tuple(part.lower() for part in logical.path): (logical, physical) for logical, physical in leaves}
    bounded = {leaf.path for leaf, _ in metadata.bounded}
    problems, columns = [], []
    seen: set[tuple[str, ...]] = set()
    for name in names:
        path = tuple(part.lower() for part in parse_path(name))
        leaf = known.get(path)
        if leaf is None:
            problems.append(Violation(repr(name), "is not a column of the table, or is a list, a map or a struct"))
        elif leaf[1].path[0] in metadata.partition_columns:
            problems.append(Violation(repr(name), "is a partition column, so all rows of a file have the same value"))
        elif leaf[1].path not in bounded:
            message = "has no statistics, so no file could be skipped by it: raise delta.dataSkippingNumIndexedCols"
            if leaf[1].path in {each.path for each in metadata.indexed}:
                message = f"is of type {leaf[1].type}, which has no bounds, so no file could be skipped by it"
            problems.append(Violation(repr(name), message))
        elif path in seen:
            problems.append(Violation(repr(name), "is there twice"))
        else:
            columns.append(F.col(".".join(map(quoted, leaf[0].path))))
        seen.add(path)
    if len(columns) > MOST_COLUMNS:
        problems.append(Violation("zorder_by", f"takes up to {MOST_COLUMNS} columns; each takes away from the others"))
    if problems:
        raise ValidationError("zorder_by", problems)
    return columns


def _jobs(bins: Sequence[Bin]) -> list[list[Bin]]:
    """The bins in lists that are each one of Spark's jobs."""
    jobs: list[list[Bin]] = []
    filled = 0
    for each in bins:
        if not jobs or filled + each.size > _BYTES_PER_JOB or len(jobs[-1]) >= _BINS_PER_JOB:
            jobs.append([])
            filled = 0
        jobs[-1].append(each)
        filled += each.size
    return jobs


def _check(written: Harvest, files: Any, bins: Sequence[Bin], metadata: TableMetadata) -> None:
    """Whether just the rows that were read are there again, in the partitions in which they were."""
    counts = [each.rows for each in bins if each.rows is not None]
    if len(counts) == len(bins) and sum(counts) != written.rows:
        raise LakelogError(
            f"expected {sum(counts)} rows, by the catalog, and Spark read {written.rows}: nothing was committed. "
            "The files differ from what the catalog says of them"
        )
    positions = [position for each in bins for position in each.files]
    texts = pc.unique(files.column("partition_values").take(positions)).to_pylist()
    there = files_in(written.adds, [json.loads(text) for text in texts], metadata)
    if there.num_rows < written.adds.num_rows:
        strange = pc.unique(written.adds.column("partition_values")).to_pylist()
        raise LakelogError(
            f"expected files of the partitions {texts[:5]}, and Spark wrote {strange[:5]}: nothing was committed. "
            "Partition values of this kind cannot be written by Spark as they are"
        )


def _commit(
    lake: Engine,
    dataset: Table,
    snapshot: Snapshot,
    files: Any,
    bins: Sequence[Bin],
    written: Sequence[Harvest],
    asked: Asked,
    leases: Sequence[str],
) -> OptimizeResult:
    removed = files.take([position for each in bins for position in each.files])
    adds = pa.concat_tables([each.adds for each in written])
    place = adds.column_names.index("data_change")
    adds = adds.set_column(place, "data_change", pa.repeat(False, adds.num_rows))
    row_groups = pa.concat_tables([each.row_groups for each in written])
    removes = removed.select(REMOVED).append_column("data_change", pa.repeat(False, removed.num_rows))
    metrics = _metrics(adds, removed)
    description = Description(
        operation="OPTIMIZE",
        operation_parameters=asked.parameters,
        extra={"operationMetrics": {name: str(value) for name, value in metrics.items()}, "isBlindAppend": False},
    )
    actions: list[Any] = [RemoveFiles(removes)]
    if adds.num_rows:
        actions.append(AddFiles(adds))
    prepared = Prepared(
        table_id=dataset.id,
        base_version=snapshot.version,
        draft_for=lambda expected: Draft(dataset.id, expected, actions, description, row_groups, leases=leases),
        reads=Reads(data_change=False),
    )
    (result,) = commit_with_retries(lake.committer, [prepared], retries=asked.retries)
    return OptimizeResult(
        version=result.version,
        files_added=metrics["numAddedFiles"],
        files_removed=metrics["numRemovedFiles"],
        bytes_added=metrics["numAddedBytes"],
        bytes_removed=metrics["numRemovedBytes"],
        files_considered=files.num_rows,
        partitions=pc.count_distinct(removed.column("partition_values")).as_py(),
        bins=len(bins),
        sizes_removed=tuple(pc.min_max(removed.column("size")).as_py().values()),
        metrics=metrics,
        commit_id=result.commit_id,
    )


def _metrics(adds: Any, removed: Any) -> dict[str, int]:
    """Delta's operationMetrics."""
    sizes = sorted(adds.column("size").to_pylist()) or [0]
    vectors = [DeletionVector.from_json(text) for text in removed.column("deletion_vector").drop_null().to_pylist()]
    return {
        "numRemovedFiles": removed.num_rows,
        "numRemovedBytes": pc.sum(removed.column("size")).as_py(),
        "numAddedFiles": adds.num_rows,
        "numAddedBytes": sum(sizes),
        "minFileSize": sizes[0],
        "p25FileSize": sizes[len(sizes) // 4],
        "p50FileSize": sizes[len(sizes) // 2],
        "p75FileSize": sizes[len(sizes) * 3 // 4],
        "maxFileSize": sizes[-1],
        "numDeletionVectorsRemoved": len(vectors),
        "numDeletionVectorRowsRemoved": sum(vector.cardinality for vector in vectors),
        "numDeletionVectorBytesRemoved": sum(vector.size_in_bytes for vector in vectors),
    }
