"""The schemas of Parquet files as a table's: what unites them, and whether Spark reads each file as that.

Files stay as they are, so that a table can have only what its readers make of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa

from lakelog.errors import SchemaMismatchError, ValidationError, Violation
from lakelog.schema.checks import Path
from lakelog.schema.delta import to_delta_type
from lakelog.schema.evolution.changes import shown
from lakelog.schema.evolution.merge import MergeOptions, merge
from lakelog.schema.evolution.projection import is_list
from lakelog.schema.evolution.widening import can_widen, with_type_change
from lakelog.schema.leaves import join_path
from lakelog.schema.mapping import children, loosened, with_children
from lakelog.schema.normalize import normalize

_INSTANT = pa.timestamp("us", "UTC")
_KNOWN = frozenset({"NONE", "STRING", "ENUM", "JSON", "BSON", "INT", "DECIMAL", "DATE", "TIME", "TIMESTAMP", "UUID"})
"""Logical types of Parquet of which Arrow's type says all. Others may mean more than Spark would show."""
_UNREAD = (
    (pa.types.is_float16, "is a 16-bit float, which Spark does not read: write it as float32"),
    (
        pa.types.is_null,
        "has nulls only and no type, which Spark does not read: write it with the type it has elsewhere",
    ),
    (
        lambda kind: pa.types.is_timestamp(kind) and kind.unit == "ns",
        "is a timestamp in nanoseconds, which Spark does not read: write it in microseconds",
    ),
)
_UNITED = "; promote_to_string=True would allow it"
_SUBJECT = "files that do not fit together"


@dataclass(frozen=True, slots=True)
class FileSchema:
    """The schema that some files have."""

    file: str
    """One of them, for errors."""
    found: Any
    """In Arrow's types, but instants of any form are those of a table."""
    normal: Any
    """In a table's types."""


class Widening(NamedTuple):
    """A column that files have in a narrower type: the way from it through lists and maps, and both types."""

    steps: tuple[str, ...]
    source: pa.DataType
    target: pa.DataType


Widenings: TypeAlias = dict[Path, list[Widening]]
"""By the path of the column."""


def file_schema(parquet: Any, file: str) -> FileSchema:
    """What files of a Parquet schema hold. Raises ``ValidationError`` for what no table has, or Spark does not read."""
    walk = _Columns(parquet)
    try:
        found = pa.schema([walk.field(field, ()) for field in parquet.to_arrow_schema()])
        if walk.problems:
            raise ValidationError("schema", walk.problems)
        normal = normalize(found)
    except ValidationError as error:
        raise SchemaMismatchError("files that a table cannot have", _in_file(file, error)) from None
    return FileSchema(file, found, normal)


def united(schemas: Sequence[FileSchema]) -> pa.Schema:
    """The schema that holds the rows of all files, by the rules for writes that may merge schemas.

    No column is NOT NULL: that is for somebody to promise. Raises ``SchemaMismatchError``.
    """
    table = loosened(schemas[0].normal)
    for schema in schemas[1:]:
        try:
            table = merge(table, schema.normal, MergeOptions(schema_merge=True))
        except SchemaMismatchError as error:
            raise SchemaMismatchError(_SUBJECT, _in_file(schema.file, error)) from None
    return pa.schema([_without_metadata(field) for field in table])


def with_widenings(table: pa.Schema, schemas: Sequence[FileSchema]) -> pa.Schema:
    """The table's schema, with a note where files have a narrower type, as Delta wants it.

    Raises ``SchemaMismatchError`` with every column of a file that Spark does not read as the table's, that the table
    lacks, or that is spelled in another way.
    """
    widened: Widenings = {}
    problems: list[Violation] = []
    for schema in schemas:
        fitting = _Fitting(widened)
        fitting.fields((), list(schema.found), list(table))
        problems += _in_file(schema.file, fitting)
    if problems:
        raise SchemaMismatchError(_SUBJECT, problems)
    return pa.schema([_noted(field, (field.name,), widened) for field in table]) if widened else table


class _Columns:
    """Walks an Arrow schema together with the columns of the Parquet schema that it was made from."""

    def __init__(self, parquet: Any) -> None:
        self._columns: Iterator[Any] = (parquet.column(number) for number in range(len(parquet)))
        self.problems: list[Violation] = []

    def field(self, field: pa.Field, path: Path) -> pa.Field:
        here = (*path, field.name)
        stored = field.type.storage_type if isinstance(field.type, pa.BaseExtensionType) else field.type
        inside = [self.field(child, here) for child in children(stored)]
        if not inside:
            kind = self._leaf(next(self._columns), field.type, here)
        else:
            kind = with_children(stored, inside) if stored is field.type else field.type
        return pa.field(field.name, kind, field.nullable)

    def _leaf(self, column: Any, kind: pa.DataType, path: Path) -> pa.DataType:
        if column.physical_type == "INT96":
            return _INSTANT
        problem = next((message for is_it, message in _UNREAD if is_it(kind)), None)
        logical = column.logical_type.type
        if problem is None and logical not in _KNOWN:
            problem = f"is of Parquet's type {logical}, which Delta has no type for"
        if problem is not None:
            self.problems.append(Violation(join_path(path), problem))
        return kind


class _Fitting:
    """Compares a file's columns with a table's."""

    def __init__(self, widened: Widenings) -> None:
        self._widened = widened
        self.violations: list[Violation] = []

    def fields(self, path: Path, ours: Sequence[pa.Field], table: Sequence[pa.Field]) -> None:
        known = {field.name.lower(): field for field in table}
        for field in ours:
            here = (*path, field.name)
            target = known.pop(field.name.lower(), None)
            if target is None:
                self._add(here, "is not in the schema, so that it would be lost")
            elif target.name != field.name:
                self._add(here, f"is spelled {target.name!r} in the schema or in other files")
            else:
                self._nulls(here, field, target)
                self._type(here, here, field.type, target.type)
        for missing in known.values():
            if not missing.nullable:
                self._add((*path, missing.name), "is NOT NULL in the schema, and the file has no such column")

    def _type(self, path: Path, column: Path, found: pa.DataType, target: pa.DataType) -> None:
        """``column`` is the path of the nearest field around what stands at ``path``."""
        if pa.types.is_struct(found) and pa.types.is_struct(target):
            self.fields(path, list(found), list(target))
        elif (is_list(found) and is_list(target)) or (pa.types.is_map(found) and pa.types.is_map(target)):
            for step, field, other in zip(_steps(found), children(found), children(target), strict=True):
                self._nulls((*path, step), field, other)
                self._type((*path, step), column, field.type, other.type)
        elif not _reads(found, target):
            self._add(path, f"the file has {found}, which Spark does not read as {shown(target)}")
        elif (normal := _normal(found)) != target:
            change = Widening(path[len(column) :], normal, target)
            if change not in (known := self._widened.setdefault(column, [])):
                known.append(change)

    def _nulls(self, path: Path, found: pa.Field, target: pa.Field) -> None:
        if found.nullable and not target.nullable:
            self._add(path, "is NOT NULL in the schema, and the file may have nulls")

    def _add(self, path: Path, message: str) -> None:
        self.violations.append(Violation(join_path(path), message))


def _reads(found: pa.DataType, target: pa.DataType) -> bool:
    """Whether Spark reads a simple type of a file as a table's."""
    if pa.types.is_nested(found) or pa.types.is_nested(target):
        return False
    normal = _normal(found)
    if normal == target:
        return True
    # Spark has no way from an unsigned number to a decimal but one, from 64 bits to 20 digits.
    return can_widen(normal, target) and not (pa.types.is_unsigned_integer(found) and pa.types.is_decimal(target))


def _normal(kind: pa.DataType) -> pa.DataType:
    return normalize(pa.schema([pa.field("value", kind)])).field(0).type


def _steps(kind: pa.DataType) -> tuple[str, ...]:
    return ("key", "value") if pa.types.is_map(kind) else ("element",)


def _noted(field: pa.Field, path: Path, widened: Widenings) -> pa.Field:
    for steps, source, target in widened.get(path, ()):
        field = with_type_change(field, steps, to_delta_type(source), to_delta_type(target))
    return field.with_type(_noted_inside(field.type, path, widened))


def _noted_inside(kind: pa.DataType, path: Path, widened: Widenings) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([_noted(child, (*path, child.name), widened) for child in kind])
    inside = children(kind)
    noted = [
        child.with_type(_noted_inside(child.type, (*path, step), widened))
        for step, child in zip(_steps(kind), inside, strict=False)
    ]
    return with_children(kind, noted) if inside else kind


def _without_metadata(field: pa.Field) -> pa.Field:
    inside = [_without_metadata(child) for child in children(field.type)]
    return (field.with_type(with_children(field.type, inside)) if inside else field).remove_metadata()


def _in_file(file: str, found: "ValidationError | _Fitting") -> list[Violation]:
    return [Violation(f"{file}: {each.where}", each.message.removesuffix(_UNITED)) for each in found.violations]
