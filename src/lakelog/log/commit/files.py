"""Files and row groups as they come from a caller: a few as values, thousands as Arrow tables."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import AddFile, DeletionVector
from lakelog.errors import ValidationError, Violation
from lakelog.strict_json import encode_json, loads_strict

_TEXT, _INT = pa.string(), pa.int64()

ADD_COLUMNS: dict[str, Any] = {
    "path": _TEXT,
    "size": _INT,
    "partition_values": _TEXT,
    "stats": _TEXT,
    "row_count": _INT,
    "modification_time": _INT,
    "data_change": pa.bool_(),
    "tags": _TEXT,
    "deletion_vector": _TEXT,
    "base_row_id": _INT,
    "default_row_commit_version": _INT,
    "extra": _TEXT,
}
REMOVE_COLUMNS: dict[str, Any] = {
    "path": _TEXT,
    "deletion_timestamp": _INT,
    "data_change": pa.bool_(),
    "extended_file_metadata": pa.bool_(),
    "partition_values": _TEXT,
    "size": _INT,
    "stats": _TEXT,
    "tags": _TEXT,
    "deletion_vector": _TEXT,
    "base_row_id": _INT,
    "default_row_commit_version": _INT,
    "extra": _TEXT,
}
ROW_GROUP_COLUMNS: dict[str, Any] = {
    "path": _TEXT,
    "row_group": pa.int32(),
    "row_count": _INT,
    "byte_size": _INT,
    "stats": _TEXT,
}
REMOVED = ["path", "partition_values", "size", "deletion_vector"]
"""What a commit that removes a file of a snapshot says of it."""


@dataclass(frozen=True, slots=True)
class AddFiles:
    """Many added files as an Arrow table with one row per file.

    ``path`` and ``size`` are required. ``partition_values`` is JSON text or a map of strings; ``stats``, ``tags``,
    ``deletion_vector`` and ``extra`` are JSON text in Delta's spelling. Columns that are not there take the defaults
    of ``AddFile``.
    """

    table: Any

    @classmethod
    def of(cls, adds: Sequence[AddFile]) -> "AddFiles":
        """The same files, from their actions."""
        columns: dict[str, list[Any]] = {name: [] for name in ADD_COLUMNS}
        for add in adds:
            for name, value in zip(ADD_COLUMNS, add_values(add, None), strict=True):
                columns[name].append(value)
        return cls(pa.table(columns, pa.schema(list(ADD_COLUMNS.items()))))


@dataclass(frozen=True, slots=True)
class RemoveFiles:
    """Many removed files as an Arrow table with one row per file: ``path``, and whatever else ``RemoveFile`` has."""

    table: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """A row group of a file that the same commit adds. ``stats`` is JSON text in the shape of a file's statistics."""

    path: str
    row_group: int
    row_count: int
    byte_size: int | None = None
    stats: str | None = None


def add_values(add: AddFile, rows: int | None) -> tuple[Any, ...]:
    """The values of ``ADD_COLUMNS`` for one file."""
    extra = {**add.extra, "clusteringProvider": add.clustering_provider} if add.clustering_provider else add.extra
    return (
        add.path,
        add.size,
        encode_json(add.partition_values),
        add.stats,
        rows,
        add.modification_time,
        add.data_change,
        None if add.tags is None else encode_json(add.tags),
        None if add.deletion_vector is None else encode_json(add.deletion_vector.to_dict()),
        add.base_row_id,
        add.default_row_commit_version,
        encode_json(extra) if extra else None,
    )


def conformed(table: Any, columns: dict[str, Any], required: Sequence[str], what: str) -> Any:
    """The table with exactly these columns and types; what is missing is null. Raises ``ValidationError``."""
    if not isinstance(table, pa.Table):
        raise ValidationError(what, [Violation(what, f"expected a pyarrow.Table, got {type(table).__name__}")])
    problems = [
        Violation(f"{what}.{name}", f"is not one of {', '.join(columns)}")
        for name in table.column_names
        if name not in columns
    ]
    problems += [
        Violation(f"{what}.{name}", "is a required column") for name in required if name not in table.column_names
    ]
    if len(set(table.column_names)) < len(table.column_names):
        problems.append(Violation(what, "has two columns of the same name"))
    if problems:
        raise ValidationError(what, problems)
    arrays = []
    for name, kind in columns.items():
        if name not in table.column_names:
            arrays.append(pa.nulls(table.num_rows, kind))
            continue
        try:
            arrays.append(_cast(table.column(name), kind))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            problems.append(Violation(f"{what}.{name}", f"cannot be read as {kind}: {error}"))
    problems += [
        Violation(f"{what}.{name}", f"is null in {table.column(name).null_count} rows")
        for name in required
        if table.column(name).null_count
    ]
    if problems:
        raise ValidationError(what, problems)
    return pa.table(arrays, pa.schema(list(columns.items())))


def _cast(column: Any, kind: Any) -> Any:
    if pa.types.is_map(column.type) and kind == _TEXT:
        return pa.chunked_array(
            [
                pa.array([None if value is None else encode_json(dict(value)) for value in chunk.to_pylist()], _TEXT)
                for chunk in column.chunks
            ],
            _TEXT,
        )
    return column if column.type == kind else column.cast(kind)


def repeated_paths(paths: Any) -> list[str]:
    """The paths that occur more than once, also in another spelling of the same file."""
    counts = pc.value_counts(paths)
    found = [entry["values"] for entry in counts.filter(pc.greater(counts.field("counts"), 1)).to_pylist()]
    values = counts.field("values")
    escaped = values.filter(pc.match_substring(values, "%")).to_pylist()
    if escaped:
        plain = set(values.to_pylist()).difference(escaped)
        for path in escaped:
            spelled = unquote(path)
            if spelled in plain:
                found.append(path)
            plain.add(spelled)
    return found


def any_valid(table: Any, columns: Sequence[str]) -> Any:
    """A mask of the rows that have a value in one of the columns."""
    return reduce(pc.or_, (table.column(name).is_valid() for name in columns))


def partition_text_problems(text: str) -> list[Violation]:
    """What is wrong with partition values as JSON text."""
    where = f"partition values {text[:200]}"
    try:
        values = loads_strict(text)
    except ValueError as error:
        return [Violation(where, str(error))]
    if not isinstance(values, dict):
        return [Violation(where, "expected a JSON object")]
    return [
        Violation(where, f"the value of {name!r} is neither text nor null")
        for name, value in values.items()
        if not (value is None or isinstance(value, str))
    ]


def identities(files: Any) -> Any:
    """What tells files of a table from each other: path and deletion vector, as one text."""
    paths = files.column("path").combine_chunks()
    vectors = files.column("deletion_vector")
    if vectors.null_count == files.num_rows:
        return paths
    pairs = zip(paths.to_pylist(), vectors.to_pylist(), strict=True)
    # A path has no spaces.
    named = [path if text is None else f"{path} {DeletionVector.from_json(text).unique_id}" for path, text in pairs]
    return pa.array(named, pa.string())


def among(files: Any, others: Any) -> Any:
    """Which files are among others, with the same deletion vector."""
    return pc.is_in(identities(files), identities(others))
