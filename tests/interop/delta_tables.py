"""Delta tables by hand: real Parquet files, a log of JSON, and a checkpoint in its place."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.actions import Action, AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from lakelog.log.commit.files import AddFiles
from lakelog.log.snapshot.snapshot import FILE_SCHEMA, REMOVED_SCHEMA
from lakelog.log.state import TableMetadata
from lakelog.mirror.checkpoint import CheckpointContent, write_checkpoint
from lakelog.schema import leaf_columns, to_delta_json
from lakelog.storage.log_store import LocalStore
from lakelog.strict_json import encode_json

NTZ_PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("timestampNtz",),
    writer_features=("timestampNtz",),
)
_PREFIX = 32
_NULL = "__HIVE_DEFAULT_PARTITION__"
_SPECIAL = re.compile(r'[\x01-\x1f"#%\'*/:=?\\\x7f{[\]^]')
_LAST = "\U0010ffff"


def spark_stats(rows: pa.Table) -> str:
    """The statistics that delta-spark writes for rows: strings and times cut, no bounds for booleans and binary."""
    said: dict[str, Any] = {"numRecords": rows.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for leaf in leaf_columns(rows.schema):
        column = rows.column(leaf.path[0])
        for name in leaf.path[1:]:
            column = pa.chunked_array([chunk.flatten()[chunk.type.get_field_index(name)] for chunk in column.chunks])
        _plant(said["nullCount"], leaf.path, column.null_count)
        values = [value for value in column.to_pylist() if value is not None]
        if values and not isinstance(values[0], bool | bytes):
            order = sorted(values, key=lambda value: (isinstance(value, float) and math.isnan(value), value))
            _plant(said["minValues"], leaf.path, _spark_bound(order[0], upper=False))
            _plant(said["maxValues"], leaf.path, _spark_bound(order[-1], upper=True))
    return _Encoder().encode(said)


def _plant(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _spark_bound(value: Any, *, upper: bool) -> Any:
    if isinstance(value, str):
        return value if len(value) <= _PREFIX else value[:_PREFIX] + (_LAST if upper else "")
    if isinstance(value, datetime):
        return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return _Digits(value) if isinstance(value, Decimal) else value


class _Digits(float):
    """A decimal as JSON's number, with all its digits."""

    def __new__(cls, value: Decimal) -> "_Digits":
        made = super().__new__(cls, value)
        made.digits = f"{value:f}"
        return made

    digits: str

    def __repr__(self) -> str:
        return self.digits


class _Encoder(json.JSONEncoder):
    def encode(self, o: Any) -> str:
        if isinstance(o, dict):
            return "{" + ",".join(f"{json.dumps(key)}:{self.encode(value)}" for key, value in o.items()) + "}"
        return repr(o) if isinstance(o, _Digits) else json.dumps(o, ensure_ascii=False)


@dataclass
class HandMadeTable:
    """A table whose files are written one after the other, each in a commit of its own."""

    location: Path
    schema: pa.Schema
    partition_columns: tuple[str, ...] = ()
    protocol: Protocol = NTZ_PROTOCOL
    configuration: Mapping[str, str] = field(default_factory=dict)
    adds: list[AddFile] = field(default_factory=list)
    removes: list[RemoveFile] = field(default_factory=list)
    txns: list[Txn] = field(default_factory=list)
    domains: list[DomainMetadata] = field(default_factory=list)
    version: int = -1

    def __post_init__(self) -> None:
        self._log.mkdir(parents=True)
        schema_string = to_delta_json(self.schema, column_mapping="delta.columnMapping.mode" in self.configuration)
        action = Metadata(
            id="7b3ec4ee-6f2c-4f3a-9c9b-5e5f6a1f0c11",
            schema_string=schema_string,
            partition_columns=self.partition_columns,
            configuration=self.configuration,
            created_time=1_700_000_000_000,
        )
        self.metadata = TableMetadata(0, action, 0)
        self.commit(self.protocol, action)

    @property
    def _log(self) -> Path:
        return self.location / "_delta_log"

    def commit(self, *actions: Action) -> None:
        self.version += 1
        lines = "".join(f"{action.to_json()}\n" for action in actions)
        (self._log / f"{self.version:020}.json").write_text(lines)

    def write(self, rows: pa.Table, partition: Mapping[str, str | None] | None = None, **said: Any) -> AddFile:
        """Adds a file of rows under physical names, without their partition columns, where Spark would put it."""
        directory = "".join(
            f"{_hive(name)}={_NULL if value is None else _hive(value)}/" for name, value in (partition or {}).items()
        )
        path = f"{directory}part-{len(self.adds):05}.parquet"
        target = self.location / path
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, target)
        add = AddFile(
            path=quote(path),
            size=target.stat().st_size,
            partition_values=partition or {},
            modification_time=1_700_000_000_000,
            **{"stats": spark_stats(rows), **said},
        )
        self.adds.append(add)
        self.commit(add)
        return add

    def content(self) -> CheckpointContent:
        return CheckpointContent(
            version=self.version,
            protocol=self.protocol,
            metadata=self.metadata,
            files=live_files(self.adds),
            removed=removed_files(self.removes),
            txns=self.txns,
            domains=self.domains,
        )

    def checkpoint(self) -> int:
        """Puts a checkpoint in the place of all commits but the last, which delta-spark asks for."""
        size = write_checkpoint(LocalStore(self._log), self.content())
        for commit in sorted(self._log.glob("*.json"))[:-1]:
            commit.unlink()
        return size


def _hive(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", text)


def live_files(adds: Sequence[AddFile]) -> pa.Table:
    """The files as a snapshot gives them, one for each version from 1 on."""
    table = AddFiles.of(adds).table
    keys = {
        "version": pa.array(range(1, len(adds) + 1), pa.int64()),
        "ordinal": pa.array([0] * len(adds), pa.int32()),
        "schema_version": pa.array([0] * len(adds), pa.int32()),
    }
    return pa.table(
        {name: keys[name] if name in keys else table.column(name) for name in FILE_SCHEMA.names}, FILE_SCHEMA
    )


def removed_files(removes: Sequence[RemoveFile]) -> pa.Table:
    rows = [
        {
            "version": number,
            "ordinal": 0,
            "path": remove.path,
            "deletion_timestamp": remove.deletion_timestamp,
            "data_change": remove.data_change,
            "extended_file_metadata": remove.extended_file_metadata,
            "partition_values": None if remove.partition_values is None else encode_json(remove.partition_values),
            "size": remove.size,
            "deletion_vector": None if remove.deletion_vector is None else remove.deletion_vector.to_json(),
        }
        for number, remove in enumerate(removes, 1)
    ]
    return pa.Table.from_pylist(rows, REMOVED_SCHEMA)
