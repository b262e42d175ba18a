"""Delta logs made by hand, for what no writer at hand writes."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.storage.log_store import LocalStore

UUIDS = ("80a083e8-7026-4e79-81be-64bd76c43a11", "3a0d65cd-4056-49b8-937b-95f9e3ee90e5")
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
METADATA = {
    "metaData": {
        "id": "0f5a",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": [],
        "configuration": {},
    }
}

_MAP = pa.map_(pa.string(), pa.string())
_NAMES = pa.list_(pa.string())
ADD_TYPE = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", _MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)
TYPES = {
    "add": ADD_TYPE,
    "metaData": pa.struct(
        [
            ("id", pa.string()),
            ("name", pa.string()),
            ("description", pa.string()),
            ("format", pa.struct([("provider", pa.string()), ("options", _MAP)])),
            ("schemaString", pa.string()),
            ("partitionColumns", _NAMES),
            ("configuration", _MAP),
            ("createdTime", pa.int64()),
        ]
    ),
    "protocol": pa.struct(
        [
            ("minReaderVersion", pa.int32()),
            ("minWriterVersion", pa.int32()),
            ("readerFeatures", _NAMES),
            ("writerFeatures", _NAMES),
        ]
    ),
    "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
    "domainMetadata": pa.struct([("domain", pa.string()), ("configuration", pa.string()), ("removed", pa.bool_())]),
    "sidecar": pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]),
}


def add(path: str, **fields: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {}, "size": 1, "modificationTime": 7, "dataChange": True}
    return {"add": body | fields}


def log_at(directory: Path) -> LocalStore:
    (directory / "_delta_log" / "_sidecars").mkdir(parents=True, exist_ok=True)
    return LocalStore(directory / "_delta_log")


def write_commit(store: LocalStore, version: int, *actions: dict[str, Any]) -> None:
    write_json(store, f"{version:020}.json", *(actions or (add(f"{version}.parquet"),)))


def write_json(store: LocalStore, name: str, *actions: dict[str, Any]) -> None:
    Path(store.place, name).write_text("".join(json.dumps(action) + "\n" for action in actions))


def write_parquet(
    store: LocalStore, name: str, *actions: dict[str, Any], types: dict[str, pa.DataType] | None = None, **options: Any
) -> None:
    """A file of a checkpoint with these actions, one in each row. ``types`` replace the usual ones."""
    kinds = TYPES | (types or {})
    present = dict.fromkeys(key for action in actions for key in action)
    columns = {key: pa.array([action.get(key) for action in actions], kinds[key]) for key in present}
    pq.write_table(pa.table(columns), Path(store.place, name), **options)


def checkpoint_name(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"


def part_name(version: int, part: int, parts: int) -> str:
    return f"{version:020}.checkpoint.{part:010}.{parts:010}.parquet"


def top_name(version: int, suffix: str = "json", uuid: str = UUIDS[0]) -> str:
    return f"{version:020}.checkpoint.{uuid}.{suffix}"
