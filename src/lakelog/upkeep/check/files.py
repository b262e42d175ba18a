"""Whether the files of a table are there, whole, and what the catalog says of them."""

import stat
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.actions import DeletionVector
from lakelog.catalog.base import Session
from lakelog.catalog.queries import Queries
from lakelog.errors import ConfigurationError, LakelogError, ValidationError
from lakelog.log.deletion_vectors import FileVector
from lakelog.log.state import Head
from lakelog.parquet.schemas import FileSchema, file_schema, with_widenings
from lakelog.schema import from_bytes, join_path
from lakelog.schema.mapping import children, loosened, physical_schema, with_children
from lakelog.storage.uris import Storage, root_uri
from lakelog.threads import map_in_threads
from lakelog.upkeep.check.columns_read import columns_of, null_columns
from lakelog.upkeep.check.findings import Finding
from lakelog.upkeep.places import Places


class _File(NamedTuple):
    """A row of ``check_places``."""

    path: str
    size: int
    row_count: int | None
    deletion_vector: str | None
    schema_version: int
    version: int
    ordinal: int
    removed_version: int | None


class FileCheck:
    """The files that the versions of a table need from the first whole one on."""

    def __init__(self, session: Session, queries: Queries, head: Head, first: int, *, deep: bool) -> None:
        key = {"table_id": head.table_id, "version": head.version, "first": first}
        self._files = [_File(*row) for row in session.fetch(queries["check_places"], key)]
        self._changes = session.fetch(queries["check_cdc_places"], key)
        self._groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._head = head
        self._places = Places(head.location)
        self._deep = deep
        self._first = first
        self._storage = Storage()
        self._schemas: dict[int, pa.Schema] = {}
        self._null_columns: dict[int, frozenset[tuple[str, ...]]] = {}
        if deep:
            for version, ordinal, rows in session.fetch(queries["check_groups"], {"table_id": head.table_id}):
                self._groups[version, ordinal].append(rows)
            newest = {"table_id": head.table_id, "version": 1 << 30}
            rows = session.fetch(queries["schemas"], newest)
            self._schemas = {number: loosened(physical_schema(from_bytes(bytes(text)))) for number, text, _ in rows}
            live = {file.schema_version for file in self._files if self._is_live(file)}
            self._null_columns = null_columns(session, queries, head, live)

    def __len__(self) -> int:
        return len(self._files)

    def findings(self) -> Iterator[Finding]:
        for file, problems in zip(self._files, map_in_threads(self._problems, self._files), strict=True):
            removed = file.removed_version
            last = self._head.version if removed is None else min(removed - 1, self._head.version)
            for invariant, message in problems:
                versions = (max(file.version, self._first), last)
                yield Finding(invariant=invariant, message=f"{file.path}: {message}", versions=versions)
        for path, size, version in self._changes:
            place = self._places.of(path)
            if place is not None and (problem := _place_problem(Path(place), size)) is not None:
                message = f"{path}, of the change feed: {problem}"
                yield Finding(invariant=3, message=message, versions=(version, version))

    def _is_live(self, file: _File) -> bool:
        return file.removed_version is None or file.removed_version > self._head.version

    def _problems(self, file: _File) -> list[tuple[int, str]]:
        try:
            place = self._places.of(file.path)
            vector = None
            if file.deletion_vector is not None:
                vector = self._places.of_vector(file.deletion_vector, file.path)
        except LakelogError as error:
            return [(3, str(error))]
        found = [] if place is None else self._data_problems(file, Path(place))
        if vector is not None and not Path(vector).is_file():
            found.append((3, f"the file of its deletion vector, {vector}, does not exist"))
        elif file.deletion_vector is not None and self._deep:
            found += self._vector_problems(file)
        return found

    def _data_problems(self, file: _File, place: Path) -> list[tuple[int, str]]:
        if (problem := _place_problem(place, file.size)) is not None:
            return [(3, problem)]
        return self._deep_problems(file, place) if self._deep else []

    def _vector_problems(self, file: _File) -> list[tuple[int, str]]:
        assert file.deletion_vector is not None
        vector = FileVector(
            file=file.path,
            rows=file.row_count,
            root=root_uri(self._head.location),
            vector=DeletionVector.from_json(file.deletion_vector),
        )
        try:
            vector.read(self._open)
        except ConfigurationError:
            raise
        except LakelogError as error:
            return [(3, str(error))]
        return []

    def _open(self, uri: str) -> Any:
        system, path = self._storage.at(uri)
        return system.open_input_file(path)

    def _deep_problems(self, file: _File, place: Path) -> list[tuple[int, str]]:
        try:
            with pq.ParquetFile(place) as parquet:
                metadata, schema = parquet.metadata, parquet.schema
                rows = metadata.num_rows
        except (OSError, pa.ArrowException) as error:
            return [(3, f"is no whole Parquet file: {error}")]
        found = []
        if file.row_count is not None and rows != file.row_count:
            found.append((4, f"expected {file.row_count} rows, found {rows}"))
        groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
        recorded = self._groups.get((file.version, file.ordinal), groups)
        if recorded != groups:
            found.append((4, f"expected row groups of {recorded} rows, found {groups}"))
        problem = _schema_problem(schema, str(place), self._schemas.get(file.schema_version))
        if problem is None and self._is_live(file):
            problem = _hidden_columns(schema, str(place), self._null_columns.get(file.schema_version, frozenset()))
        return found if problem is None else [*found, (5, problem)]


def _place_problem(place: Path, expected: int) -> str | None:
    try:
        status = place.stat()
    except FileNotFoundError:
        return "the file does not exist"
    except OSError as error:
        return f"the file cannot be looked at: {error.strerror}"
    if not stat.S_ISREG(status.st_mode):
        return "it is no file, but a directory, a pipe or a device"
    return None if status.st_size == expected else f"expected {expected} bytes, found {status.st_size}"


def _schema_problem(parquet: Any, place: str, table: pa.Schema | None) -> str | None:
    """Why a file cannot be read as the schema that it was added under."""
    if table is None:
        return None  # The catalog's check says so.
    try:
        whole = file_schema(parquet, place)
        # What the table does not have is not read.
        found, normal = (pa.schema(_known(list(each), list(table))) for each in (whole.found, whole.normal))
        with_widenings(table, [FileSchema(place, found, normal)])
    except ValidationError as error:
        return "; ".join(map(str, error.violations))
    return None


def _known(fields: Sequence[pa.Field], table: Sequence[pa.Field]) -> list[pa.Field]:
    """The fields that a table has too, also inside of others."""
    ours = {field.name.lower(): field.type for field in table}
    return [
        field.with_type(_known_inside(field.type, ours[field.name.lower()]))
        for field in fields
        if field.name.lower() in ours
    ]


def _known_inside(kind: pa.DataType, table: pa.DataType) -> pa.DataType:
    inside, ours = children(kind), children(table)
    if pa.types.is_struct(kind) and pa.types.is_struct(table):
        return with_children(kind, _known(inside, ours))
    if not inside or len(inside) != len(ours) or pa.types.is_struct(kind) or pa.types.is_struct(table):
        return kind
    pairs = zip(inside, ours, strict=True)
    return with_children(kind, [field.with_type(_known_inside(field.type, other.type)) for field, other in pairs])


def _hidden_columns(parquet: Any, place: str, null: frozenset[tuple[str, ...]]) -> str | None:
    """Which columns a file has that are shown as NULL."""
    hidden = null & columns_of(file_schema(parquet, place).normal) if null else None
    if not hidden:
        return None
    names = ", ".join(map(join_path, sorted(hidden)))
    return (
        f"has the columns {names} of the table, and they are read as NULL: a schema between its own and the table's "
        "lacks them. Import or clone the table again, under another name"
    )
