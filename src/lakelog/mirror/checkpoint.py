"""Delta's classic checkpoint: everything that the log says at a version, as one Parquet file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelog.actions import DomainMetadata, Protocol, Txn
from lakelog.catalog.stored import stored_json
from lakelog.delta_log.hint import last_checkpoint
from lakelog.delta_log.names import LAST_CHECKPOINT, checkpoint_name
from lakelog.log.state import TableMetadata
from lakelog.mirror.shared_stats import SharedStatistics
from lakelog.mirror.typed_columns import TypedStatistics, typed_partitions
from lakelog.storage.log_store import LogStore
from lakelog.strict_json import encode_json

_ROW_GROUP = 32_768
_ROW_GROUP_BYTES = 1 << 28
"""Of statistics, on average: Arrow's texts and what is made of them end at 2 GiB."""

_INT, _TEXT, _BOOL = pa.int64(), pa.string(), pa.bool_()
_TEXT_MAP = pa.map_(_TEXT, _TEXT)
_VECTOR = pa.struct(
    [
        ("storageType", _TEXT),
        ("pathOrInlineDv", _TEXT),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", _INT),
    ]
)
_ADD = [
    ("path", _TEXT),
    ("partitionValues", _TEXT_MAP),
    ("size", _INT),
    ("modificationTime", _INT),
    ("dataChange", _BOOL),
    ("tags", _TEXT_MAP),
    ("deletionVector", _VECTOR),
    ("baseRowId", _INT),
    ("defaultRowCommitVersion", _INT),
    ("clusteringProvider", _TEXT),
]
_REMOVE = pa.struct(
    [
        ("path", _TEXT),
        ("deletionTimestamp", _INT),
        ("dataChange", _BOOL),
        ("extendedFileMetadata", _BOOL),
        ("partitionValues", _TEXT_MAP),
        ("size", _INT),
        ("deletionVector", _VECTOR),
        ("baseRowId", _INT),
        ("defaultRowCommitVersion", _INT),
    ]
)
_TXN = pa.struct([("appId", _TEXT), ("version", _INT), ("lastUpdated", _INT)])
_METADATA = pa.struct(
    [
        ("id", _TEXT),
        ("name", _TEXT),
        ("description", _TEXT),
        ("format", pa.struct([("provider", _TEXT), ("options", _TEXT_MAP)])),
        ("schemaString", _TEXT),
        ("partitionColumns", pa.list_(_TEXT)),
        ("configuration", _TEXT_MAP),
        ("createdTime", _INT),
    ]
)
_PROTOCOL = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(_TEXT)),
        ("writerFeatures", pa.list_(_TEXT)),
    ]
)
_DOMAIN = pa.struct([("domain", _TEXT), ("configuration", _TEXT), ("removed", _BOOL)])


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointContent:
    """A table at a version. ``files`` has the columns of ``FILE_SCHEMA``, ``removed`` those of ``REMOVED_SCHEMA``."""

    version: int
    protocol: Protocol
    metadata: TableMetadata
    files: Any
    removed: Any
    txns: Sequence[Txn]
    domains: Sequence[DomainMetadata]
    schemas: Mapping[int, Any] = field(default_factory=dict)
    """Those that led to the table's, if files were written under them."""


def write_checkpoint(store: LogStore, content: CheckpointContent) -> int:
    """Makes the checkpoint, unless there is one of this version, and names it as the last. Returns its bytes."""
    name = checkpoint_name(content.version)
    size = _whole_size(store, name)
    if size is None:
        data = checkpoint_parquet(content)
        size = len(data)
        if not store.create(name, data):
            there = _whole_size(store, name)
            if there is None:
                store.replace(name, data)
            else:
                size = there
    if not _has_later(store, content.version):
        store.replace(LAST_CHECKPOINT, last_checkpoint_json(content, size))
    return size


def last_checkpoint_json(content: CheckpointContent, size_in_bytes: int) -> bytes:
    """What ``_last_checkpoint`` says of a checkpoint."""
    return encode_json(
        {
            "version": content.version,
            "size": len(_small_actions(content)) + content.files.num_rows + content.removed.num_rows,
            "sizeInBytes": size_in_bytes,
            "numOfAddFiles": content.files.num_rows,
        }
    ).encode()


def checkpoint_parquet(content: CheckpointContent) -> bytes:
    """The checkpoint's file. The same content gives the same bytes, in whatever order its rows are."""
    adds = _Adds(content)
    removed = _in_order(content.removed)
    small = _small_actions(content)
    schema = pa.schema(
        [
            ("txn", _TXN),
            ("add", adds.type),
            ("remove", _REMOVE),
            ("metaData", _METADATA),
            ("protocol", _PROTOCOL),
            ("domainMetadata", _DOMAIN),
        ]
    )
    sink = pa.BufferOutputStream()
    options = {"compression": "snappy", "use_dictionary": False, "store_schema": False}
    with pq.ParquetWriter(sink, schema, **options) as writer:
        # In a row group of their own, for readers that look for these alone.
        columns = [pa.array([action.get(field.name) for action in small], field.type) for field in schema]
        writer.write_table(pa.table(columns, schema))
        for start in range(0, content.files.num_rows, adds.row_group):
            writer.write_table(_only("add", adds.read(start, adds.row_group), schema))
        for start in range(0, removed.num_rows, _ROW_GROUP):
            writer.write_table(_only("remove", _removes(removed.slice(start, _ROW_GROUP)), schema))
    return bytes(sink.getvalue())


class _Adds:
    """The live files as values of the checkpoint's column ``add``."""

    def __init__(self, content: CheckpointContent) -> None:
        metadata = content.metadata
        self._files = _in_order(content.files)
        self._shared = SharedStatistics(metadata, content.schemas)
        texts = _whole(self._files.column("partition_values")).dictionary_encode()
        self._partitions = texts.indices
        values = [stored_json(text) for text in texts.dictionary.to_pylist()]
        self._maps = pa.array([list(found.items()) for found in values], _TEXT_MAP)
        self._typed_partitions: Any = None
        self._typed_stats: TypedStatistics | None = None
        self._fields = list(_ADD)
        if _is_on(metadata, "delta.checkpoint.writeStatsAsJson"):
            self._fields.append(("stats", _TEXT))
        if _is_on(metadata, "delta.checkpoint.writeStatsAsStruct"):
            self._typed_partitions = typed_partitions(metadata, values) if metadata.partition_columns else None
            if self._typed_partitions is not None:
                self._fields.append(("partitionValues_parsed", self._typed_partitions.type))
            said = pc.any(pc.match_substring_regex(self._files.column("stats"), '"tightBounds"')).as_py()
            self._typed_stats = TypedStatistics(metadata, tight_bounds=bool(said))
            self._fields.append(("stats_parsed", self._typed_stats.type))
        self.type = pa.struct(self._fields)
        size = pc.sum(pc.binary_length(self._files.column("stats"))).as_py() or 1
        self.row_group = min(max(_ROW_GROUP_BYTES * self._files.num_rows // size, 1), _ROW_GROUP)

    def read(self, start: int, count: int) -> Any:
        """A struct array of so many files."""
        files = self._files.slice(start, count)
        found = {name: _whole(files.column(name)) for name in files.column_names}
        found["stats"] = self._shared.of_all(found["stats"], found["schema_version"])
        partitions = self._partitions.slice(start, count)
        values = {
            "path": found["path"],
            "partitionValues": self._maps.take(partitions),
            "size": found["size"],
            "modificationTime": found["modification_time"],
            "dataChange": pa.repeat(False, len(partitions)),
            "tags": _by_text(found["tags"], _TEXT_MAP, _map),
            "deletionVector": _by_text(found["deletion_vector"], _VECTOR, stored_json),
            "baseRowId": found["base_row_id"],
            "defaultRowCommitVersion": found["default_row_commit_version"],
            "clusteringProvider": _by_text(found["extra"], _TEXT, _clustering_provider),
            "stats": found["stats"],
        }
        if self._typed_partitions is not None:
            values["partitionValues_parsed"] = self._typed_partitions.take(partitions)
        if self._typed_stats is not None:
            values["stats_parsed"] = self._typed_stats.read(found["stats"])
        return pa.StructArray.from_arrays([values[field.name] for field in self.type], fields=list(self.type))


def _removes(removed: Any) -> Any:
    """Removed files as values of the checkpoint's column ``remove``."""
    found = {name: _whole(removed.column(name)) for name in removed.column_names}
    values = [
        found["path"],
        found["deletion_timestamp"],
        pa.repeat(False, removed.num_rows),
        found["extended_file_metadata"],
        _by_text(found["partition_values"], _TEXT_MAP, _map),
        found["size"],
        _by_text(found["deletion_vector"], _VECTOR, stored_json),
        found["base_row_id"],
        found["default_row_commit_version"],
    ]
    return pa.StructArray.from_arrays(values, fields=list(_REMOVE))


def _small_actions(content: CheckpointContent) -> list[dict[str, Any]]:
    """The actions that are not about files, each by its name."""
    metadata = content.metadata.action
    form = metadata.format
    said = {
        **metadata.to_dict(),
        "format": {"provider": form["provider"], "options": list(form["options"].items())},
        "configuration": list(metadata.configuration.items()),
    }
    txns = sorted(content.txns, key=lambda txn: txn.app_id)
    domains = sorted((each for each in content.domains if not each.removed), key=lambda each: each.domain)
    others = [content.protocol, *txns, *domains]
    return [{"metaData": said}, *({action.action: action.to_dict()} for action in others)]


def _only(name: str, values: Any, schema: Any) -> Any:
    """Rows that hold one kind of action."""
    columns = [values if field.name == name else pa.nulls(len(values), field.type) for field in schema]
    return pa.table(columns, schema)


def _in_order(files: Any) -> Any:
    order = pc.sort_indices(files.select(["version", "ordinal"]), [("version", "ascending"), ("ordinal", "ascending")])
    if order.equals(pa.array(range(len(order)), order.type)):
        return files
    # To take rows, Arrow joins the pieces of a column, which may be too large for short offsets.
    wide = [field.with_type(pa.large_string()) if field.type == _TEXT else field for field in files.schema]
    return files.cast(pa.schema(wide)).take(order)


def _by_text(texts: Any, kind: Any, read: Callable[[str], Any]) -> Any:
    """What texts say, where each is likely to occur often."""
    if texts.null_count == len(texts):
        return pa.nulls(len(texts), kind)
    encoded = texts.dictionary_encode()
    return pa.array([read(text) for text in encoded.dictionary.to_pylist()], kind).take(encoded.indices)


def _map(text: str) -> list[tuple[str, str | None]]:
    return list(stored_json(text).items())


def _clustering_provider(text: str) -> str | None:
    provider = stored_json(text).get("clusteringProvider")
    return provider if isinstance(provider, str) else None


def _whole(column: Any) -> Any:
    """A column in one piece."""
    joined = column.combine_chunks()
    return joined.cast(_TEXT) if pa.types.is_large_string(joined.type) else joined


def _is_on(metadata: TableMetadata, name: str) -> bool:
    return metadata.action.configuration.get(name, "true").lower() != "false"


def _whole_size(store: LogStore, name: str) -> int | None:
    """The bytes of a checkpoint that is there; None if there is none, or only the beginning of one."""
    try:
        with store.open(name) as opened:
            pq.read_metadata(opened)
            return int(opened.size())
    except (FileNotFoundError, pa.ArrowInvalid):
        return None


def _has_later(store: LogStore, version: int) -> bool:
    """Whether ``_last_checkpoint`` names this version or a later one, of which there is a checkpoint."""
    hint = last_checkpoint(store)
    if hint is None or hint < version:
        return False
    return any(each.name.startswith(f"{hint:020}.checkpoint.") for each in store.files(f"{hint:020}.checkpoint."))
