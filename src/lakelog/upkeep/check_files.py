"""Whether the files of a table are there, whole, and what the catalog says of them."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.catalog.base import Session
from lakelog.catalog.queries import Queries
from lakelog.errors import LakelogError, ValidationError
from lakelog.log.state import Head
from lakelog.parquet.schemas import FileSchema, file_schema, with_widenings
from lakelog.schema import from_bytes
from lakelog.schema.mapping import loosened, physical_schema
from lakelog.upkeep.findings import Finding
from lakelog.upkeep.places import Places

_THREADS = 16


class _File(NamedTuple):
    """A row of ``check_places``."""

    path: str
    size: int
    row_count: int | None
    deletion_vector: str | None
    schema_version: int
    version: int
    removed_version: int | None


class FileCheck:
    """The files that the versions of a table need from the first whole one on."""

    def __init__(self, session: Session, queries: Queries, head: Head, first: int, *, deep: bool) -> None:
        key = {"table_id": head.table_id, "version": head.version, "first": first}
        self._files = [_File(*row) for row in session.fetch(queries["check_places"], key)]
        self._head = head
        self._places = Places(head.location)
        self._deep = deep
        self._first = first
        self._schemas: dict[int, pa.Schema] = {}
        if deep:
            newest = {"table_id": head.table_id, "version": 1 << 30}
            rows = session.fetch(queries["schemas"], newest)
            self._schemas = {number: loosened(physical_schema(from_bytes(bytes(text)))) for number, text, _ in rows}

    def __len__(self) -> int:
        return len(self._files)

    def findings(self) -> Iterator[Finding]:
        with ThreadPoolExecutor(_THREADS, "lakelog-check") as threads:
            for file, problems in zip(self._files, threads.map(self._problems, self._files), strict=True):
                removed = file.removed_version
                last = self._head.version if removed is None else min(removed - 1, self._head.version)
                for invariant, message in problems:
                    versions = (max(file.version, self._first), last)
                    yield Finding(invariant=invariant, message=f"{file.path}: {message}", versions=versions)

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
        return found

    def _data_problems(self, file: _File, place: Path) -> list[tuple[int, str]]:
        try:
            size = place.stat().st_size
        except FileNotFoundError:
            return [(3, "the file does not exist")]
        except OSError as error:
            return [(3, f"the file cannot be looked at: {error.strerror}")]
        if size != file.size:
            return [(3, f"expected {file.size} bytes, found {size}")]
        return self._deep_problems(file, place) if self._deep else []

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
        problem = _schema_problem(schema, str(place), self._schemas.get(file.schema_version))
        return found if problem is None else [*found, (5, problem)]


def _schema_problem(parquet: Any, place: str, table: pa.Schema | None) -> str | None:
    """Why a file cannot be read as the schema that it was added under."""
    if table is None:
        return None  # The catalog's check says so.
    known = {field.name.lower() for field in table}
    try:
        whole = file_schema(parquet, place)
        # What the table does not have is not read.
        found, normal = (
            pa.schema([f for f in each if f.name.lower() in known]) for each in (whole.found, whole.normal)
        )
        with_widenings(table, [FileSchema(place, found, normal)])
    except ValidationError as error:
        return "; ".join(map(str, error.violations))
    return None
