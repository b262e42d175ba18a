"""Reading files of many schema versions as one: which of them a reader can take as they are, and which need a cast."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.schema.mapping import physical_name, physical_schema
from lakelog.schema.projection import Parts, composed, is_native, project

TO_READ = [
    "version",
    "ordinal",
    "path",
    "size",
    "partition_values",
    "schema_version",
    "row_count",
    "deletion_vector",
]
"""What of the log's columns it takes to read files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """Files that are read in one way."""

    files: Any
    """A ``pyarrow.Table`` as ``Snapshot.files`` gives it."""
    schema: Any
    """What to read them as, by the names that files use. A column that a file lacks is null, but partition columns have
    the values that ``files`` says."""
    columns: Parts
    """The table's columns out of these."""
    native: bool
    """Whether only names differ, so that no value has to be converted after the reader."""


def file_groups(
    files: Any, logical: pa.Schema, physical: pa.Schema, schemas: Mapping[int, pa.Schema]
) -> list[FileGroup]:
    """The files of a version, in as few groups as can be: one, unless a column became text or the like.

    ``schemas`` are all that led to the table's, by schema version, with logical names; ``logical`` and
    ``physical`` are what the files are to be read as. Files from before a change that no reader makes by itself are
    read as the schema just before it, whatever they were written under, and then converted: what becomes text is what
    a column showed last, under the names that it had then.
    """
    numbers = sorted(schemas)
    line = [*(schemas[number] for number in numbers), logical]
    changes = [place for place, pair in enumerate(pairwise(line)) if not is_native(_step(*pair))]
    versions = files.column("schema_version")
    groups = []
    start = -1
    for change in changes:
        kept = files.filter(pc.and_(pc.greater(versions, start), pc.less_equal(versions, numbers[change])))
        start = numbers[change]
        if kept.num_rows:
            read_as = physical_schema(line[change])
            ahead = [later for later in changes if later >= change]
            stations = [read_as, *(line[place] for end in ahead for place in (end, end + 1)), logical]
            columns = reduce(composed, (_step(*pair) for pair in pairwise(stations)))
            groups.append(FileGroup(files=kept, schema=read_as, columns=columns, native=False))
    kept = files.filter(pc.greater(versions, start))
    if kept.num_rows or not groups:
        groups.insert(0, FileGroup(files=kept, schema=physical, columns=_step(physical, logical), native=True))
    return groups


def lineage(version: int, restores: Mapping[int, int | None]) -> set[int]:
    """The schema versions that led to one: each follows the one before it, or the one that it restores.

    ``restores`` has every schema version. What came between a schema and its restoration led nowhere: no file of that
    time is read by it.
    """
    line: set[int] = set()
    following: int | None = version
    while following is not None and following in restores:
        line.add(following)
        restored = restores[following]
        following = following - 1 if restored is None else restored
    return line


def _step(before: pa.Schema, after: pa.Schema) -> Parts:
    return project(list(before), list(after), physical_name)
