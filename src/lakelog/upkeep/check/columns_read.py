"""Which columns of files a table shows, by the names that files use."""

from collections.abc import Collection, Iterator

import pyarrow as pa

from lakelog.catalog.base import Session
from lakelog.catalog.queries import Queries
from lakelog.log.snapshot.file_groups import file_groups
from lakelog.log.snapshot.snapshot import schemas_that_led_to
from lakelog.log.state import Head, read_metadata
from lakelog.schema.evolution.projection import Conversion, Kind, Parts
from lakelog.schema.mapping import children, physical_name

_Path = tuple[str, ...]
_INSIDE = {Kind.LIST: ("element",), Kind.MAP: ("key", "value")}


def columns_of(schema: pa.Schema) -> frozenset[_Path]:
    """All columns of a schema, and what lies inside of them."""
    return frozenset(path for field in schema for path in _paths(field.type, (field.name,)))


def null_columns(
    session: Session, queries: Queries, head: Head, schema_versions: Collection[int]
) -> dict[int, frozenset[_Path]]:
    """The columns at the head that are NULL in files, by the schema version that the files are recorded under."""
    changes = session.fetch(queries["metadata_history"], {"table_id": head.table_id, "version": head.version})
    if not changes:
        return {}  # The catalog's check says so.
    metadata = read_metadata(changes[0])
    rows = session.fetch(queries["schemas"], {"table_id": head.table_id, "version": metadata.schema_version})
    schemas = schemas_that_led_to(metadata, rows)
    found = {}
    for version in schema_versions:
        files = pa.table({"schema_version": pa.array([version], pa.int32())})
        (group,) = file_groups(files, metadata.schema, metadata.physical, schemas)
        found[version] = frozenset(_null_parts(group.columns, ()) if not group.native else ())
    return found


def _paths(kind: pa.DataType, path: _Path) -> Iterator[_Path]:
    yield path
    names: tuple[str, ...] = ("element",)
    if pa.types.is_struct(kind):
        names = tuple(field.name for field in kind)
    elif pa.types.is_map(kind):
        names = _INSIDE[Kind.MAP]
    for name, field in zip(names, children(kind), strict=False):
        yield from _paths(field.type, (*path, name))


def _null_parts(parts: Parts, path: _Path) -> Iterator[_Path]:
    for part in parts:
        column = (*path, physical_name(part.field))
        if part.conversion is None:
            yield column
        else:
            yield from _null_inside(part.conversion, column)


def _null_inside(conversion: Conversion, path: _Path) -> Iterator[_Path]:
    if conversion.kind is Kind.STRUCT:
        yield from _null_parts(conversion.parts, path)
    for step in conversion.steps:
        yield from _null_inside(step, path)
    for name, part in zip(_INSIDE.get(conversion.kind, ()), conversion.parts, strict=False):
        if part.conversion is not None:
            yield from _null_inside(part.conversion, (*path, name))
