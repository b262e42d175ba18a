"""Reading files of many schema versions as one: which of them a reader can take as they are, and which need a cast."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.schema.evolution.projection import Parts, composed, is_native, project
from lakelog.schema.mapping import physical_name, physical_schema

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
    ``physical`` are what the files are to be read as. A file that a reader can take as that is read so, whatever lies
    between. Others are read as the last schema that a reader can take them as, and converted from there: what becomes
    text is what a column showed last, under the names that it had then.
    """
    numbers = sorted(schemas)
    line = _Line([*(schemas[number] for number in numbers), logical])
    versions = files.column("schema_version")
    by_end: dict[int, list[int]] = {}
    for version in sorted(pc.unique(versions).to_pylist()):
        by_end.setdefault(line.last_native(bisect_left(numbers, version)), []).append(version)
    whole = by_end.pop(len(numbers), [])
    groups = []
    for end, written in sorted(by_end.items()):
        kept = files.filter(pc.is_in(versions, pa.array(written, versions.type)))
        read_as = physical_schema(line.schemas[end])
        groups.append(FileGroup(files=kept, schema=read_as, columns=line.converted(read_as, end), native=False))
    if whole or not groups:
        kept = files.filter(pc.is_in(versions, pa.array(whole, versions.type))) if groups else files
        groups.insert(0, FileGroup(files=kept, schema=physical, columns=_step(physical, logical), native=True))
    return groups


class _Line:
    """Schemas that followed each other."""

    def __init__(self, schemas: Sequence[pa.Schema]) -> None:
        self.schemas = schemas
        ends = [place for place, pair in enumerate(pairwise(schemas)) if not is_native(_step(*pair))]
        self._ends = [len(schemas) - 1, *reversed(ends)]

    def last_native(self, start: int) -> int:
        """The last schema that a reader gives by itself of files that were written under one of them."""
        later = (end for end in self._ends if end > start)
        return next((end for end in later if is_native(_step(self.schemas[start], self.schemas[end]))), start)

    def converted(self, read_as: pa.Schema, start: int) -> Parts:
        """The last schema's columns, of files that are read as one of them."""
        stations = [read_as, self.schemas[start]]
        while start < len(self.schemas) - 1:
            stations.append(self.schemas[start + 1])
            start = self.last_native(start + 1)
            stations.append(self.schemas[start])
        return reduce(composed, (_step(*pair) for pair in pairwise(stations)))


def lineage(version: int, restores: Mapping[int, int | None]) -> set[int]:
    """The schema versions that led to one: each follows the one before it, or the one that it restores.

    ``restores`` has every schema version. What came between a schema and its restoration led nowhere: no file of that
    time is read by it. One that restores itself reads every file as it is: nothing led to it.
    """
    line: set[int] = set()
    following: int | None = version
    while following is not None and following in restores:
        line.add(following)
        restored = restores[following]
        if restored == following:
            break
        following = following - 1 if restored is None else restored
    return line


def _step(before: pa.Schema, after: pa.Schema) -> Parts:
    return project(list(before), list(after), physical_name)
