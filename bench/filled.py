"""Catalogs with a past: rows that Lakelog would have written in thousands of commits, loaded in bulk."""

import uuid
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.lab import Lab, Place, new_dataset
from bench.limits.base import Limit
from bench.recorded import Rows, recorded_rows, removes, with_values
from lakelog.catalog.tables import TABLES

DATASET = "filled"
_PER_VERSION = 10


def filled_place(lab: Lab, backend: str, *, generations: int = 0) -> Place:
    """A catalog whose dataset has as many live files as the scale says, ten by each of its last commits.

    Before them come generations of as many files, each added by one commit and removed by the next.
    """
    key = ("filled", backend, generations)
    if key not in lab.kept:
        lab.kept[key] = _fill(lab, backend, generations)
    return lab.kept[key]  # type: ignore[return-value]


def _fill(lab: Lab, backend: str, generations: int) -> Place:
    place = lab.place(backend)
    with place.connect() as lake:
        dataset = new_dataset(lake, DATASET)
    rows = recorded_rows(lab, lab.scale.live, groups=False)
    connection = place.limit()
    try:
        for generation in range(1, generations + 1):
            connection.load(_removed(rows, dataset.id, generation))
        last = generations + lab.scale.versions
        connection.load(_live(rows, dataset.id, generations + 1))
        connection.load({"dl_table_versions": _versions(dataset.id, last)})
        connection.execute(
            f"UPDATE dl_tables SET current_version = {last}, committed_at = committed_at + {last} "
            f"WHERE table_id = {dataset.id}"
        )
        _settle(connection, backend)
    finally:
        connection.close()
    return place


def _live(rows: Rows, table_id: int, first: int) -> Rows:
    """Ten files for each version from ``first`` on."""
    result = {}
    for name, table in rows.items():
        file = table.column("ordinal").combine_chunks()
        version = pc.add(pc.cast(pc.divide(file, _PER_VERSION), pa.int64()), first)
        ordinal = pa.array(np.asarray(file) % _PER_VERSION, pa.int32())
        result[name] = with_values(table, {"table_id": table_id, "version": version, "ordinal": ordinal})
    return result


def _removed(rows: Rows, table_id: int, version: int) -> Rows:
    """All files as one commit added them, and as the next removed them."""
    result = {name: with_values(table, {"table_id": table_id, "version": version}) for name, table in rows.items()}
    adds = result["dl_add_files"]
    paths = pc.binary_join_element_wise(f"generation-{version}", adds.column("path"), "/")
    adds = with_values(adds, {"path": paths})
    removed = pa.repeat(pa.scalar(version + 1, pa.int64()), adds.num_rows)
    result["dl_add_files"] = adds.append_column("removed_version", removed)
    result["dl_remove_files"] = removes(adds, version + 1)
    return result


def _versions(table_id: int, last: int) -> Any:
    """The commits after version 0, which creating the dataset made."""
    known = {
        "table_id": pa.repeat(pa.scalar(table_id, pa.int64()), last),
        "version": pa.array(range(1, last + 1), pa.int64()),
        # Long ago and each later than the one before: all that the log promises of time.
        "committed_at": pa.array(range(1, last + 1), pa.int64()),
        "commit_id": pa.array([str(uuid.uuid4()) for _ in range(last)]),
        "operation": pa.repeat("WRITE", last),
        "operation_parameters": pa.repeat("{}", last),
    }
    schema = TABLES["dl_table_versions"]
    return pa.table({field.name: known.get(field.name, pa.nulls(last, field.type)) for field in schema}, schema)


def _settle(connection: Limit, backend: str) -> None:
    """What the database itself would have done by the time that so much had been committed."""
    connection.execute({"postgres": "VACUUM (ANALYZE)", "duckdb": "CHECKPOINT"}.get(backend, "PRAGMA wal_checkpoint"))
