"""Data through a table with pyarrow alone: written by a plan, read back by the groups of a snapshot."""

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog import CommitResult, Dataset, FileGroup, Lake, Snapshot, SqlTxnLogWriter
from lakelog.actions import Action, AddFile, RemoveFile
from lakelog.schema.evolution.convert import apply
from lakelog.schema.evolution.projection import project, renamed
from lakelog.schema.mapping import loosened
from lakelog.storage.uris import Storage, uri_of


def write(lake: Lake, dataset: Dataset, data: pa.Table, **options: Any) -> CommitResult:
    """Appends the data as one file, with whatever change of schema the options allow, in one commit."""
    plan = dataset.plan_write(data.schema, **options)
    actions: list[Action] = [*plan.actions, _added(dataset, plan.conform(data))]
    for group in plan.rewrites:
        rewritten = apply(renamed(group.columns, list(plan.physical)), _read(dataset.location, group))
        actions += [RemoveFile(path=path) for path in group.files.column("path").to_pylist()]
        actions.append(_added(dataset, rewritten))
    return SqlTxnLogWriter(lake).commit(dataset.id, plan.base_version + 1, actions)


def _added(dataset: Dataset, rows: pa.Table) -> AddFile:
    path = Path(dataset.location) / f"{uuid.uuid4()}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    # Files need not say NOT NULL, and pyarrow writes no null struct around a field that does.
    pq.write_table(rows.cast(loosened(rows.schema)), path)
    return AddFile(path=path.name, size=path.stat().st_size, modification_time=0)


def read(snapshot: Snapshot, location: str) -> pa.Table:
    """All rows of a snapshot under its schema."""
    parts = [apply(group.columns, _read(location, group)) for group in snapshot.file_groups()]
    return pa.concat_tables(parts or [snapshot.schema.empty_table()])


def _read(location: str, group: FileGroup) -> pa.Table:
    """What a reader of Parquet gives when it is told a schema."""
    parts = []
    for name in group.files.sort_by("version").column("path").to_pylist():
        system, place = Storage().at(uri_of(location, name))
        raw = pq.read_table(place, filesystem=system)
        parts.append(apply(project(list(raw.schema), list(group.schema), lambda field: field.name), raw))
    return pa.concat_tables(parts or [group.schema.empty_table()])
