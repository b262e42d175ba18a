"""How the columns of one schema become the columns of another: decided once, carried out by Arrow or by Spark."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

import pyarrow as pa

from lakelog.schema.evolution.widening import can_widen
from lakelog.schema.mapping import children


class Kind(Enum):
    """What has to be done to a value."""

    SAME = "same"
    """Nothing."""
    CAST = "cast"
    """A cast that keeps the value or fails."""
    TEXT = "text"
    """The text that Spark's CAST gives; JSON for structs, lists and maps."""
    STRUCT = "struct"
    LIST = "list"
    MAP = "map"
    THEN = "then"
    """One conversion after another."""


@dataclass(frozen=True, slots=True)
class Conversion:
    """From one type to another. Nested ones have a part for each field, for the element, or for key and value."""

    kind: Kind
    target: pa.DataType
    parts: tuple["Part", ...] = ()
    source: pa.DataType | None = None
    """Of a cast, a text or a struct: what the values were."""
    steps: tuple["Conversion", ...] = ()
    """Of several: in order."""

    @property
    def is_identity(self) -> bool:
        """Whether nothing happens to a value: not even a name inside it changes."""
        if self.kind is Kind.STRUCT:
            assert self.source is not None
            names = [field.name for field in self.source]
            if names != [part.field.name for part in self.parts] or [p.source for p in self.parts] != [
                *range(len(names))
            ]:
                return False
        nested = all(part.conversion is not None and part.conversion.is_identity for part in self.parts)
        return nested and self.kind not in (Kind.CAST, Kind.TEXT, Kind.THEN)

    @property
    def is_native(self) -> bool:
        """Whether a reader of Parquet does all of it when it is told the target's schema."""
        if self.kind is Kind.CAST:
            assert self.source is not None
            return can_widen(self.source, self.target)
        return self.kind not in (Kind.TEXT, Kind.THEN) and is_native(self.parts)


@dataclass(frozen=True, slots=True)
class Part:
    """One column of the target, and where its values come from."""

    field: pa.Field
    """The target's field."""
    source: int | None
    """The position of the source's column, or None if it has none and every value is null."""
    conversion: Conversion | None
    """None if there is no source."""


Parts: TypeAlias = tuple[Part, ...]
Match: TypeAlias = Callable[[pa.Field], str]
"""The key by which a field is found on the other side."""


def by_name(field: pa.Field) -> str:
    """As Spark and Delta compare names: without case."""
    name: str = field.name.lower()
    return name


def project(source: Sequence[pa.Field], target: Sequence[pa.Field], key: Match = by_name) -> Parts:
    """The target's columns out of the source's. Whether that is allowed was decided before."""
    positions = {key(field): position for position, field in enumerate(source)}
    parts = []
    for field in target:
        position = positions.get(key(field))
        conversion = None if position is None else convert_type(source[position].type, field.type, key)
        parts.append(Part(field, position, conversion))
    return tuple(parts)


def missing(parts: Parts) -> tuple[str, ...]:
    """The target's columns that the source does not have."""
    return tuple(part.field.name for part in parts if part.source is None)


def convert_type(source: pa.DataType, target: pa.DataType, key: Match = by_name) -> Conversion:
    """How values of one type become values of another."""
    if source.equals(target, check_metadata=False) and not _holds_struct(target):
        return Conversion(Kind.SAME, target)
    if pa.types.is_struct(target) and pa.types.is_struct(source):
        return Conversion(Kind.STRUCT, target, project(list(source), list(target), key), source)
    if is_list(source) and pa.types.is_list(target):
        element = Part(target.value_field, 0, convert_type(source.value_type, target.value_type, key))
        return Conversion(Kind.LIST, target, (element,))
    if pa.types.is_map(source) and pa.types.is_map(target):
        return Conversion(
            Kind.MAP,
            target,
            (
                Part(target.key_field, 0, convert_type(source.key_type, target.key_type, key)),
                Part(target.item_field, 1, convert_type(source.item_type, target.item_type, key)),
            ),
        )
    if pa.types.is_string(target) and not is_text(source):
        return Conversion(Kind.TEXT, target, source=source)
    return Conversion(Kind.CAST, target, source=source)


def is_native(parts: Parts) -> bool:
    """Whether a reader of Parquet gives all columns by itself when it is told the target's schema."""
    return all(part.conversion is None or part.conversion.is_native for part in parts)


def composed(first: Parts, second: Parts) -> Parts:
    """The second's columns, out of what the first one gives."""
    parts = []
    for part in second:
        before = None if part.source is None else first[part.source]
        if before is None or before.source is None or before.conversion is None or part.conversion is None:
            parts.append(Part(part.field, None, None))
        else:
            parts.append(Part(part.field, before.source, _after(before.conversion, part.conversion)))
    return tuple(parts)


def _after(first: Conversion, second: Conversion) -> Conversion:
    if first.kind is Kind.SAME:
        return second
    if second.kind is Kind.SAME:
        return replace(first, target=second.target)
    return Conversion(Kind.THEN, second.target, steps=(first, second))


def renamed(parts: Parts, fields: Sequence[pa.Field]) -> Parts:
    """The same columns under other names, also inside structs: ``fields`` differ from the target's in nothing else."""
    return tuple(
        Part(field, part.source, part.conversion and _renamed(part.conversion, field.type))
        for part, field in zip(parts, fields, strict=True)
    )


def _renamed(conversion: Conversion, target: pa.DataType) -> Conversion:
    if conversion.kind is Kind.THEN:
        *before, last = conversion.steps
        return replace(conversion, target=target, steps=(*before, _renamed(last, target)))
    inside = children(target) if conversion.parts else ()
    return replace(conversion, target=target, parts=renamed(conversion.parts, inside))


def is_list(kind: pa.DataType) -> bool:
    """Whether a type is one of Arrow's many lists."""
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )


def is_text(kind: pa.DataType) -> bool:
    """Whether a type's values are strings already, or nothing at all."""
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return is_text(kind.value_type)
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_null(kind)
    )


def _holds_struct(kind: pa.DataType) -> bool:
    """Whether names inside decide, so that equal types may still be put together differently."""
    return bool(pa.types.is_struct(kind)) or any(_holds_struct(field.type) for field in children(kind))
