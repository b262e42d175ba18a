"""The added files of a checkpoint, as the columns that Lakelog commits many files by."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.delta_log.json_text import map_text
from lakelog.delta_log.paths import TableRoot
from lakelog.log.commit.files import ADD_COLUMNS
from lakelog.strict_json import encode_json

PARSED_STATS = "stats_parsed"
# Copies of other fields, for engines that read checkpoints column by column.
COPIES = frozenset({PARSED_STATS, "partitionValues_parsed"})

_TEXT, _INT, _FLAG = pa.string(), pa.int64(), pa.bool_()
_FIELDS = frozenset(
    {
        "path",
        "partitionValues",
        "size",
        "modificationTime",
        "dataChange",
        "stats",
        "tags",
        "deletionVector",
        "baseRowId",
        "defaultRowCommitVersion",
    }
)


def adds_of(rows: pa.StructArray, root: TableRoot) -> pa.Table:
    """Added files with the columns of ``ADD_COLUMNS``. Fields that a checkpoint lacks have the defaults of ``AddFile``.

    Statistics are taken as they are. Raises ``ValueError`` for anything else that is not as Delta has it.
    """
    rows = rows.filter(_present(rows))
    fields = {field.name: array for field, array in zip(rows.type, rows.flatten(), strict=True)}
    for name, array in fields.items():
        if name != "stats":
            _refuse_bad_text(name, array)
    count = len(rows)
    columns = {
        "path": root.relatives(_column(fields, "path", _TEXT, count)),
        "size": _required(_column(fields, "size", _INT, count), "size"),
        "partition_values": pc.fill_null(_maps(fields, "partitionValues", count, empty_is_null=True), "{}"),
        "stats": _stats(_column(fields, "stats", _TEXT, count)),
        "row_count": pa.nulls(count, _INT),
        "modification_time": pc.fill_null(_column(fields, "modificationTime", _INT, count), 0),
        "data_change": pc.fill_null(_column(fields, "dataChange", _FLAG, count), True),
        "tags": _maps(fields, "tags", count),
        "deletion_vector": _vectors(fields.get("deletionVector"), count),
        "base_row_id": _column(fields, "baseRowId", _INT, count),
        "default_row_commit_version": _column(fields, "defaultRowCommitVersion", _INT, count),
        "extra": _extra(fields, count),
    }
    return pa.table(columns, pa.schema(list(ADD_COLUMNS.items())))


def parsed_stats_of(rows: pa.StructArray) -> pa.StructArray:
    """The statistics of the same files as a struct."""
    return pc.struct_field(rows.filter(_present(rows)), PARSED_STATS)


def _present(rows: pa.StructArray) -> pa.Array:
    """Which rows hold a file. A few writers leave structs that are not null where they mean none."""
    if rows.type.get_field_index("path") < 0:
        raise ValueError("expected a field path, found none")
    present = pc.struct_field(rows, "path").is_valid()
    nameless = pc.and_(rows.is_valid(), pc.invert(present))
    others = [array for field, array in zip(rows.type, rows.flatten(), strict=True) if field.name == "size"]
    if others and pc.any(pc.and_(nameless, others[0].is_valid())).as_py():
        raise ValueError("expected a path, found null")
    return present


def _column(fields: dict[str, pa.Array], name: str, kind: pa.DataType, count: int) -> pa.Array:
    if name not in fields:
        return pa.nulls(count, kind)
    try:
        return fields[name].cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(f"expected {name} as {kind}, found {fields[name].type}: {error}") from None


def _required(column: pa.Array, name: str) -> pa.Array:
    if column.null_count:
        raise ValueError(f"expected a {name} for every file, found none for {column.null_count}")
    return column


def _refuse_bad_text(name: str, array: pa.Array) -> None:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as error:
        raise ValueError(f"expected UTF-8 in {name}, found: {error}") from None


def _maps(fields: dict[str, pa.Array], name: str, count: int, *, empty_is_null: bool = False) -> pa.Array:
    maps = fields.get(name)
    if maps is None or pa.types.is_null(maps.type):
        return pa.nulls(count, _TEXT)
    entries = pa.types.is_list(maps.type) and pa.types.is_struct(maps.type.value_type) and maps.type.value_type
    if not (pa.types.is_map(maps.type) or (entries and entries.num_fields == 2)):
        raise ValueError(f"expected {name} as a map of strings, found {maps.type}")
    try:
        return map_text(maps, empty_is_null=empty_is_null)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise ValueError(f"expected {name} as a map of strings, found {maps.type}") from None


def _stats(texts: pa.Array) -> pa.Array:
    """Statistics without empty ones. A text that is not UTF-8 becomes one that is not JSON, either."""
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, _TEXT), texts)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_decoded(data) for data in texts.cast(pa.binary()).to_pylist()], _TEXT)
    return texts


def _decoded(data: bytes | None) -> str | None:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return ""


def _vectors(vectors: pa.Array | None, count: int) -> pa.Array:
    if vectors is None or pa.types.is_null(vectors.type):
        return pa.nulls(count, _TEXT)
    if not pa.types.is_struct(vectors.type) or vectors.type.get_field_index("storageType") < 0:
        raise ValueError(f"expected deletionVector as a struct with storageType, found {vectors.type}")
    return _objects(vectors, pc.struct_field(vectors, "storageType").is_valid())


def _extra(fields: dict[str, pa.Array], count: int) -> pa.Array:
    """Fields that newer writers may have added, as far as JSON has such values."""
    beyond = {name: array for name, array in fields.items() if name not in _FIELDS | COPIES and _is_plain(array.type)}
    rows = pa.nulls(count, _TEXT)
    if all(array.null_count == count for array in beyond.values()):
        return rows
    structs = pa.StructArray.from_arrays(list(beyond.values()), list(beyond))
    present = pa.repeat(False, count)
    for array in beyond.values():
        present = pc.or_(present, array.is_valid())
    return _objects(structs, present)


def _is_plain(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind))


def _objects(structs: pa.StructArray, present: pa.Array) -> pa.Array:
    """Structs as JSON objects without the fields that are null; null where none is present."""
    texts = [encode_json(_without_nulls(row)) for row in structs.filter(present).to_pylist()]
    return pc.replace_with_mask(pa.nulls(len(structs), _TEXT), present, pa.array(texts, _TEXT))


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}
