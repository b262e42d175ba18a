"""A write from beginning to end: planned before its first file, carried out by tasks, committed once."""

from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from lakelog.actions import Metadata, Protocol
from lakelog.changes.evolution import WritePlan, plan_overwrite, plan_write
from lakelog.changes.leases import register_write
from lakelog.changes.row_rules import RowRules
from lakelog.changes.staging_directory import OwnDirectory
from lakelog.errors import DatasetNotFoundError, LakelogError
from lakelog.log.state import TableMetadata
from lakelog.log.table import Table
from lakelog.opening.engine import Engine
from lakelog.parquet.footers import Harvest
from lakelog.schema.evolution.merge import MergeOptions
from lakelog.schema.evolution.projection import missing, project
from lakelog.schema.normalize import normalize
from lakelog.schema.spark import from_spark
from lakelog.spark.datasource.options import Place, SinkOptions
from lakelog.spark.datasource.pin import pinned_dataset
from lakelog.spark.datasource.replace_where import Replaced, replaced
from lakelog.spark.write.options import WriteOptions
from lakelog.spark.write.table_change import (
    Change,
    check_append_only,
    check_features,
    check_partitioning,
    commit_new,
    defined_by,
    is_done,
    prepare_change,
)
from lakelog.storage.uris import write_directory

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, kw_only=True)
class Job:
    """What tasks and commit have to know. It travels between processes."""

    place: Place
    options: WriteOptions
    plan: WritePlan
    metadata: TableMetadata
    """The table as it will be."""
    location: str
    directory: str
    """The write's own, below the location."""
    table_id: int | None
    """None if the write creates the table, as ``defined``."""
    defined: tuple[Protocol, Metadata] | None = None
    replaced: Replaced | None = None
    """What goes by replaceWhere."""
    skipped: bool = False
    """Whether the same batch was committed before. Then its directory is not registered."""

    def commit(self, written: Harvest) -> None:
        """Makes the files part of the table. If that is known to have failed, they go."""
        with self.place.connect(create=True) as lake, self._own(lake) as own:
            self._commit(lake, written, own)

    def is_done(self, lake: Engine) -> bool:
        """Whether an application's batch was committed before."""
        try:
            known = self.table_id
            dataset = lake.dataset(self.place.table) if known is None else pinned_dataset(lake, self.place, known)
        except DatasetNotFoundError:
            return False
        return is_done(dataset, self.options.txn)

    def discard(self) -> None:
        """Deletes what the write has written, unless it is committed. Never raises."""
        if not self.skipped:
            with suppress(LakelogError), self.place.connect(create=False) as lake:
                self._own(lake).discard()

    def _own(self, lake: Engine) -> OwnDirectory:
        return OwnDirectory(lake.committer, self.location, None if self.skipped else self.directory)

    def _commit(self, lake: Engine, written: Harvest, own: OwnDirectory) -> None:
        if self.defined is not None:
            commit_new(lake, self.place.table, self.defined, self.location, written, self.options, own)
            return
        dataset = pinned_dataset(lake, self.place, self.table_id)
        change = Change(snapshot=dataset.snapshot(self.plan.base_version), plan=self.plan)
        if self.replaced is not None:
            change = replace(change, predicate=self.replaced.condition.rows, replaced=self.replaced.files)
        prepare_change(dataset, change, written, self.options, own).commit(lake, self.options.retries)


def plan_job(options: SinkOptions, schema: "StructType") -> Job:
    """Everything that can be refused is refused here, before any file exists."""
    with options.place.connect(create=True) as lake:
        try:
            dataset = lake.dataset(options.place.table)
        except DatasetNotFoundError:
            job = _new_table(lake, options, schema)
        else:
            job = _change(lake, dataset, options, schema)
        if "://" in job.location:
            raise LakelogError(f"rows can be written to local files only so far, not to {job.location}")
        if not job.skipped:
            register_write(lake.committer, job.location, job.directory)
    return job


def _new_table(lake: Engine, options: SinkOptions, schema: "StructType") -> Job:
    arriving = normalize(from_spark(schema))
    defined = defined_by(options.place.table, arriving, options.write)
    metadata = TableMetadata(0, defined[1], 0)
    plan = WritePlan(
        base_version=-1,
        schema=metadata.schema,
        changes=(),
        actions=defined,
        incoming=arriving,
        physical=metadata.physical,
    )
    return Job(
        place=options.place,
        options=options.write,
        plan=plan,
        metadata=metadata,
        location=lake.new_location(options.place.table),
        directory=write_directory(),
        table_id=None,
        defined=defined,
    )


def _change(lake: Engine, dataset: Table, options: SinkOptions, schema: "StructType") -> Job:
    write = options.write
    snapshot = dataset.snapshot()
    if write.overwrite_schema:
        plan = plan_overwrite(snapshot, schema, write.partition_by)
    else:
        plan = plan_write(snapshot, schema, MergeOptions(options.merge_schema, True, False))
    change = Change(snapshot=snapshot, plan=plan)
    check_features(change.metadata)
    check_partitioning(change.metadata, write, "partitionColumns")
    check_append_only(snapshot.state.metadata, write)
    # What tasks could not follow is refused now.
    RowRules(plan.rules, plan.schema, missing(project(list(plan.incoming), list(plan.schema))))
    return Job(
        place=options.place,
        options=write,
        plan=plan,
        metadata=change.metadata,
        location=dataset.location,
        directory=write_directory(),
        table_id=dataset.id,
        replaced=None if write.replace_where is None else replaced(snapshot, write.replace_where),
        skipped=is_done(dataset, write.txn),
    )
