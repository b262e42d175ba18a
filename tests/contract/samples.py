"""Small tables, files and commits that the contract's tests share."""

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import lakelog.log.commit.committer
from lakelog import AddFiles, CommitResult, Dataset, Lake, SqlTxnLogWriter
from lakelog.actions import Action, AddFile, DeletionVector

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("name", pa.string())])

VECTOR = DeletionVector(
    storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=2
)
OTHER_VECTOR = DeletionVector(storage_type="i", path_or_inline_dv="00000", size_in_bytes=4, cardinality=1)


def stats(rows: int = 3, **bounds: tuple[Any, Any]) -> str:
    """Statistics of a file without nulls: ``stats(5, id=(1, 9))``."""
    return json.dumps(
        {
            "numRecords": rows,
            "minValues": {name: low for name, (low, _) in bounds.items()},
            "maxValues": {name: high for name, (_, high) in bounds.items()},
            "nullCount": dict.fromkeys(bounds, 0),
        }
    )


def bounded(low: Any, high: Any, nulls: int = 0) -> str:
    """Statistics of three rows of a column ``x``."""
    return json.dumps({"numRecords": 3, "minValues": {"x": low}, "maxValues": {"x": high}, "nullCount": {"x": nulls}})


def add(path: str = "a.parquet", **fields: Any) -> AddFile:
    return AddFile(**{"path": path, "size": 100, "modification_time": 1_700_000_000_000, **fields})


def arrow(adds: list[AddFile]) -> AddFiles:
    return AddFiles.of(adds)


def table(lake: Lake, name: str = "events", **options: Any) -> Dataset:
    return lake.create_dataset(name, **{"schema": SCHEMA, **options})


def commit(lake: Lake, dataset: Dataset, *actions: Action, **options: Any) -> CommitResult:
    """Commits the actions as the version after the head."""
    version = options.pop("version", None)
    version = dataset.version + 1 if version is None else version
    return SqlTxnLogWriter(lake).commit(dataset.id, version, list(actions), **options)


def paths(files: Any) -> list[str]:
    """The paths of an Arrow table of files."""
    return sorted(files.column("path").to_pylist())


def messages(violations: Sequence[Any]) -> str:
    return "\n".join(map(str, violations))


def set_clock(patched: pytest.MonkeyPatch, lake: Lake, milliseconds: int) -> None:
    """Sets the time of the commits that follow: this machine's, and on PostgreSQL what it answers on the long way."""
    patched.setattr(lakelog.log.commit.committer, "now_ms", lambda: milliseconds)
    catalog = lake.committer.catalog
    if catalog.dialect == "postgres":
        patched.setitem(catalog.queries._ready, "clock", f"SELECT CAST({milliseconds} AS bigint)")
