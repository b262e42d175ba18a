"""Reading files of many schema versions as one: which of them a reader can take as they are, and which need a cast."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.schema.mapping import physical_name, physical_schema
from lakelog.schema.projection import Parts, is_native, project


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files that are read in one way."""

    files: Any
    """A ``pyarrow.Table`` as ``Snapshot.files`` gives it."""
    schema: Any
    """What to read them as, by the names that files use. A column that a file lacks is null."""
    columns: Parts
    """The table's columns out of these."""
    native: bool
    """Whether only names differ, so that no value has to be converted after the reader."""


def file_groups(files: Any, logical: pa.Schema, physical: pa.Schema, schemas: dict[int, pa.Schema]) -> list[FileGroup]:
    """The files of a version, in as few groups as can be: one, unless a column once had a type that no reader converts.

    ``schemas`` are those that the files were written under, by schema version, with logical names.
    """
    apart = {}
    for version, schema in schemas.items():
        columns = project(list(schema), list(logical), physical_name)
        if not is_native(columns):
            apart[version] = (schema, columns)
    versions = files.column("schema_version")
    together = files
    if apart:
        together = files.filter(pc.invert(pc.is_in(versions, value_set=pa.array(list(apart), versions.type))))
    groups = []
    if together.num_rows or not apart:
        same = project(list(logical), list(logical), physical_name)
        groups.append(FileGroup(files=together, schema=physical, columns=same, native=True))
    for version, (schema, columns) in sorted(apart.items()):
        kept = files.filter(pc.equal(versions, version))
        groups.append(FileGroup(files=kept, schema=physical_schema(schema), columns=columns, native=False))
    return groups
