"""What a write commits, whichever door its files came through."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import Metadata, Protocol, Txn
from lakelog.changes.changeset import Contents
from lakelog.changes.conflicts import Reads
from lakelog.changes.evolution import WritePlan
from lakelog.changes.new_table import definition
from lakelog.changes.partition_values import files_in
from lakelog.changes.staging_directory import OwnDirectory, leases_of
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.files import REMOVED
from lakelog.log.commit.outcomes import CommitResult
from lakelog.log.feeds.columns import feed_column_problems
from lakelog.log.pruning.predicate import Predicate
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import TableMetadata
from lakelog.log.table import Table
from lakelog.log.validation.features import unenforced_features
from lakelog.opening.engine import Engine
from lakelog.parquet.footers import Harvest
from lakelog.schema.mapping import loosened, without_mapping
from lakelog.spark.write.options import WriteOptions
from lakelog.spark.write.prepared_change import PreparedChange


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What a write does to a table that exists, apart from the files that it brings."""

    snapshot: Snapshot
    """The table as the write found it."""
    plan: WritePlan
    predicate: Predicate | None = None
    """Of a write that replaces the rows that match a condition, where these can be."""
    replaced: pa.Table | None = None
    """The files that go, as far as that is known before any is written."""

    @property
    def metadata(self) -> TableMetadata:
        """The table as it will be."""
        action = next((each for each in self.plan.actions if isinstance(each, Metadata)), self.snapshot.metadata)
        return TableMetadata(self.plan.base_version + 1, action, 0)

    def removes(self, written: Harvest, options: WriteOptions) -> tuple[pa.Table | None, Reads]:
        """The files that go, and what the write had to look at to know that."""
        if self.predicate is not None:
            return self.replaced, Reads(predicates=(self.predicate,))
        if options.mode != "overwrite":
            return self.replaced, Reads(everything=self.plan.holds_for_every_row)
        files = self.snapshot.files(columns=REMOVED)
        if options.partition_overwrite_mode == "static" or not self.snapshot.metadata.partition_columns:
            return files, Reads(everything=True)
        texts = pc.unique(written.adds.column("partition_values")).to_pylist()
        partitions = tuple(json.loads(text) for text in texts)
        return files_in(files, partitions, self.snapshot.state.metadata), Reads(partitions=partitions)


def is_done(dataset: Table, txn: Txn | None) -> bool:
    """Whether an application's batch was committed to a table before, whatever the table is called by now."""
    if txn is None:
        return False
    done = dataset.txn_version(txn.app_id)
    return done is not None and done >= txn.version


def check_features(metadata: TableMetadata) -> None:
    """Refuses rows for a table that asks something of its writers that would be left undone."""
    message = "is in use, and not enforced by Lakelog yet: write with the engine that the table comes from"
    names = unenforced_features(metadata.schema, metadata.action.configuration)
    found = [Violation(f"table feature {name}", message) for name in names]
    found += [
        Violation(name, "is generated or has a default inside of another column, which nobody can fill in")
        for name in metadata.rules.inside
    ]
    found += feed_column_problems(metadata.schema, metadata.action.configuration)
    if found:
        raise ValidationError("write", found)


def check_append_only(metadata: TableMetadata, options: WriteOptions) -> None:
    """Refuses a write that would remove rows of a table which only ever gets more."""
    if options.mode == "overwrite" and metadata.action.is_on("delta.appendOnly"):
        message = (
            "the table is append-only, and an overwrite removes rows: append, or switch that off with "
            "dataset.set_properties({'delta.appendOnly': 'false'})"
        )
        raise ValidationError("write", [Violation("mode", message)])


def check_partitioning(metadata: TableMetadata, options: WriteOptions, argument: str) -> None:
    """Refuses a write that names other partition columns than the table has."""
    asked, has = options.partition_by, metadata.action.partition_columns
    if asked is not None and [name.lower() for name in asked] != [name.lower() for name in has]:
        message = f"the table is partitioned by {list(has)}, not by {list(asked)}; leave it out to write to the table"
        raise ValidationError("write", [Violation(argument, message)])


def defined_by(
    name: str,
    arriving: pa.Schema,
    options: WriteOptions,
    properties: Mapping[str, str] | None = None,
    mirror: bool | str = True,
) -> tuple[Protocol, Metadata]:
    """The table that a first write defines. What is wrong with it is said here, before any file is written."""
    # Spark says NOT NULL of what happens to be a literal, and carries along what other tables say of their columns; a
    # table's promise is made explicitly.
    promised = loosened(pa.schema(map(without_mapping, arriving)))
    defined = definition(name, promised, options.partition_by or (), properties, mirror)
    Draft(0, -1, defined, Description(operation_parameters={}, extra={}))
    return defined


def commit_new(
    lake: Engine,
    name: str,
    defined: tuple[Protocol, Metadata],
    location: str,
    written: Harvest,
    options: WriteOptions,
    *directories: OwnDirectory,
) -> CommitResult:
    """The table and its first rows, all of it in version 0. Raises ``DatasetExistsError``."""
    description = _description(options, defined[1], written, "CREATE TABLE AS SELECT")
    contents = Contents(
        table_id=0,
        description=description,
        actions=[*defined, *_progress(options)],
        adds=written.adds,
        row_groups=written.row_groups,
        leases=leases_of(*directories),
    )
    _, result = lake.create_from(name, contents.draft(-1), location)
    return result


def prepare_change(
    dataset: Table, change: Change, written: Harvest, options: WriteOptions, *directories: OwnDirectory
) -> PreparedChange[WriteResult]:
    """The next version, or one after it, if a race is lost that does not matter."""
    removed, reads = change.removes(written, options)
    contents = Contents(
        table_id=dataset.id,
        description=_description(options, change.metadata.action, written, "WRITE"),
        actions=[*change.plan.actions, *_progress(options)],
        adds=written.adds,
        removes=None if removed is None else removed.select(REMOVED),
        row_groups=written.row_groups,
        leases=leases_of(*directories),
    )

    def told(result: CommitResult | None) -> WriteResult:
        assert result is not None, "there is always something to commit"
        return WriteResult(
            version=result.version,
            files=written.adds.num_rows,
            rows=written.rows,
            removed=0 if removed is None else removed.num_rows,
            commit_id=result.commit_id,
        )

    return PreparedChange(
        contents=contents, base_version=change.plan.base_version, reads=reads, told=told, directories=directories
    )


def _progress(options: WriteOptions) -> list[Txn]:
    return [] if options.txn is None else [options.txn]


def _description(options: WriteOptions, metadata: Metadata, written: Harvest, operation: str) -> Description:
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
        "partitionBy": json.dumps(list(metadata.partition_columns)),
    }
    if options.replace_where is not None:
        parameters["predicate"] = options.replace_where
    return Description(operation=operation, operation_parameters=parameters, committer=options.committer, extra=extra)
