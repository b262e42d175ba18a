"""Checkpoints of a Delta log: the whole state of a table at one version, as Parquet or JSON, in one file or many."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakelog.actions import Action, AddFile, DomainMetadata, Metadata, Protocol, Txn, from_json
from lakelog.delta_log.added_files import COPIES, PARSED_STATS, adds_of, parsed_stats_of
from lakelog.delta_log.commit import RESTORE, SIDECAR, actions_of, broken, missing, read_lines, understood
from lakelog.delta_log.json_text import stats_text
from lakelog.delta_log.listing import Checkpoint
from lakelog.delta_log.paths import TableRoot
from lakelog.delta_log.statistics import sound_stats
from lakelog.errors import DeltaLogError, LakelogError, ValidationError
from lakelog.log.commit.files import ADD_COLUMNS, AddFiles
from lakelog.storage.log_store import LogStore

SIDECARS = "_sidecars"

_BATCH = 16_384
_SHOWN = 5
_KEYS = {
    "metaData": "id",
    "protocol": "minReaderVersion",
    "txn": "appId",
    "domainMetadata": "domain",
    SIDECAR: "path",
}
"""The actions of which there are few, each with a field that none can be without."""

_Found = TypeVar("_Found", Metadata, Protocol, Txn, DomainMetadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """A table at one version. ``adds`` has the columns of ``ADD_COLUMNS``; domains that were removed are not there.

    ``dropped_stats`` counts the files whose statistics contradict themselves.
    """

    protocol: Protocol
    metadata: Metadata
    adds: pa.Table
    txns: tuple[Txn, ...]
    domains: tuple[DomainMetadata, ...]
    dropped_stats: int


@dataclass(slots=True)
class _Contents:
    adds: list[pa.Table] = field(default_factory=list)
    others: list[Action] = field(default_factory=list)
    sidecars: list[str] = field(default_factory=list)
    dropped_stats: int = 0


def read_checkpoint(store: LogStore, checkpoint: Checkpoint) -> LogState:
    """The state that a checkpoint holds. Raises ``DeltaLogError`` if a file of it is missing or broken."""
    contents = _Contents()
    for file in checkpoint.files:
        _read(store, file.name, contents)
    for name in tuple(contents.sidecars):
        _read(store, name, contents)
    where = f"{store.place}/{checkpoint.files[0].name}"
    schema = pa.schema(list(ADD_COLUMNS.items()))
    adds = pa.concat_tables([schema.empty_table(), *contents.adds])
    _refuse_repeated(_repeated(adds.column("path")), "file", where)
    txns = _all(contents.others, Txn)
    _refuse_repeated(_twice(txn.app_id for txn in txns), "application", where)
    domains = _all(contents.others, DomainMetadata)
    _refuse_repeated(_twice(domain.domain for domain in domains), "domain", where)
    return LogState(
        protocol=_only(contents.others, Protocol, where),
        metadata=_only(contents.others, Metadata, where),
        adds=adds,
        txns=txns,
        domains=tuple(domain for domain in domains if not domain.removed),
        dropped_stats=contents.dropped_stats,
    )


def is_whole(store: LogStore, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint's files can be opened, and have all their sidecars."""
    contents = _Contents()
    try:
        for file in checkpoint.files:
            _read(store, file.name, contents, only=SIDECAR)
    except DeltaLogError:
        return False
    return all(store.exists(name) for name in contents.sidecars)


def _read(store: LogStore, name: str, contents: _Contents, only: str | None = None) -> None:
    if name.endswith(".json"):
        _read_json(store, name, contents)
    else:
        with _parquet(store, name) as file:
            _read_parquet(store, name, file, contents, only)


def _read_json(store: LogStore, name: str, contents: _Contents) -> None:
    lines = read_lines(store, name)
    for line in lines:
        if line.name == SIDECAR:
            contents.sidecars.append(_sidecar(line.body, f"{store.place}/{name}"))
    found, dropped = actions_of(store, name, lines)
    contents.adds.append(AddFiles.of([action for action in found if isinstance(action, AddFile)]).table)
    contents.others += found
    contents.dropped_stats += dropped


def _read_parquet(store: LogStore, name: str, file: Any, contents: _Contents, only: str | None) -> None:
    kinds = {column.name: column.type for column in file.schema_arrow}
    few = [action for action in _KEYS if action in kinds and only in {None, action}]
    has_adds = "add" in kinds and only is None
    fields = [f"add.{each.name}" for each in kinds["add"] if each.name not in COPIES] if has_adds else []
    root = TableRoot.of(store)
    adds = []
    for batch in file.iter_batches(_BATCH, columns=[*few, *fields]):
        for action in few:
            for body in _bodies(batch.column(action), _KEYS[action]):
                _put(action, body, f"{store.place}/{name}", contents)
        if fields:
            adds.append(adds_of(batch.column("add"), root))
    if adds:
        table = pa.concat_tables(adds)
        if table.column("stats").null_count and kinds["add"].get_field_index(PARSED_STATS) >= 0:
            table = _with_parsed_stats(table, file)
        contents.adds.append(_with_sound_stats(table, contents))


def _bodies(column: pa.StructArray, key: str) -> Iterator[dict[str, Any]]:
    """The actions of a column as JSON would have them."""
    if pa.types.is_null(column.type):
        return
    if column.type.get_field_index(key) < 0:
        raise ValueError(f"expected a field {key}, found {column.type}")
    present = pc.struct_field(column, key).is_valid()
    for row in column.filter(present).to_pylist(maps_as_pydicts="strict"):
        yield _plain(row, column.type)


def _plain(value: Any, kind: pa.DataType) -> Any:
    """A value with objects where a writer had lists of keys and values, and without nulls in structs."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {each.name: _plain(value[each.name], each.type) for each in kind if value[each.name] is not None}
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        return {entry["key"]: entry["value"] for entry in value}
    return value


def _put(action: str, body: dict[str, Any], where: str, contents: _Contents) -> None:
    if action == SIDECAR:
        contents.sidecars.append(_sidecar(body, where))
        return
    try:
        contents.others.append(from_json({action: understood(action, body)}))
    except ValidationError as error:
        raise broken(error, where) from None


def _sidecar(body: Any, where: str) -> str:
    """The name of a sidecar below the log."""
    path = body.get("path") if isinstance(body, dict) else None
    name = unquote(path) if isinstance(path, str) else ""
    if not name or "/" in name or name in {".", ".."}:
        raise DeltaLogError(
            f"expected the name of a file in {SIDECARS}, found {path!r}. "
            "Write another checkpoint, or choose a version that does not need this one.",
            where,
        )
    return f"{SIDECARS}/{name}"


def _with_parsed_stats(adds: pa.Table, file: Any) -> pa.Table:
    """The files with statistics from the struct where they have none as text."""
    prefix = f"add.{PARSED_STATS}."
    columns = (file.schema.column(index) for index in range(len(file.schema)))
    # Spark's old form of a point in time, which Arrow reads as one without a zone.
    times = frozenset(each.path.removeprefix(prefix) for each in columns if each.physical_type == "INT96")
    texts = [
        stats_text(parsed_stats_of(batch.column("add")), times)
        for batch in file.iter_batches(_BATCH, columns=["add.path", "add.size", f"add.{PARSED_STATS}"])
    ]
    index = adds.column_names.index("stats")
    return adds.set_column(index, "stats", pc.coalesce(adds.column("stats"), pa.chunked_array(texts, pa.string())))


def _with_sound_stats(adds: pa.Table, contents: _Contents) -> pa.Table:
    chunks = []
    for batch in adds.select(["stats", "deletion_vector"]).to_batches(_BATCH):
        texts, dropped = sound_stats(batch.column("stats"), batch.column("deletion_vector").is_valid())
        chunks.append(texts)
        contents.dropped_stats += dropped
    return adds.set_column(adds.column_names.index("stats"), "stats", pa.chunked_array(chunks, pa.string()))


@contextmanager
def _parquet(store: LogStore, name: str) -> Iterator[Any]:
    where = f"{store.place}/{name}"
    try:
        source = store.open(name)
    except FileNotFoundError:
        raise missing(where) from None
    try:
        with source, pq.ParquetFile(source, coerce_int96_timestamp_unit="us") as file:
            yield file
    except LakelogError:
        raise
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise DeltaLogError(f"expected a checkpoint as Parquet, found: {error}. {RESTORE}", where) from error


def _repeated(paths: pa.ChunkedArray) -> list[str]:
    if pc.count_distinct(paths).as_py() == len(paths):
        return []
    counts = pc.value_counts(paths)
    found: list[str] = counts.field("values").filter(pc.greater(counts.field("counts"), 1)).to_pylist()
    return found


def _twice(names: Iterable[str]) -> list[str]:
    return [name for name, count in Counter(names).items() if count > 1]


def _refuse_repeated(names: list[str], what: str, where: str) -> None:
    if names:
        shown = ", ".join(map(repr, names[:_SHOWN])) + (" …" if len(names) > _SHOWN else "")
        raise DeltaLogError(f"expected each {what} once, found more than one for {shown}. {RESTORE}", where)


def _all(actions: Sequence[Action], kind: type[_Found]) -> tuple[_Found, ...]:
    return tuple(action for action in actions if isinstance(action, kind))


def _only(actions: Sequence[Action], kind: type[_Found], where: str) -> _Found:
    found = _all(actions, kind)
    if len(found) != 1:
        raise DeltaLogError(f"expected one {kind.action} action, found {len(found)}. {RESTORE}", where)
    return found[0]
