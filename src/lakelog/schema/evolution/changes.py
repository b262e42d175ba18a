"""What changed between two versions of a table's schema, in words that are kept."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakelog.schema.evolution.widening import can_widen
from lakelog.schema.leaves import join_path
from lakelog.schema.mapping import physical_name
from lakelog.schema.rules import DEFAULT, text_of

PROMOTED_FROM = "lakelog.promotedFrom"
"""Field metadata that says which types a column had before it became a string."""

_COMMENT = b"comment"
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One difference. ``before`` and ``after`` are types, names, comments, expressions or ``NULL`` and ``NOT NULL``."""

    path: str
    """The column, by the name that it has afterwards, or had if it was dropped."""
    what: str
    """``added``, ``dropped``, ``renamed``, ``widened``, ``promoted``, ``retyped``, ``nullability``, ``comment``,
    ``default``."""
    before: str | None = None
    after: str | None = None

    def __str__(self) -> str:
        if self.before is None:
            return f"{self.path} {self.what}: {self.after}"
        return f"{self.path} {self.what}: {self.before}" + ("" if self.after is None else f" to {self.after}")

    def to_dict(self) -> dict[str, Any]:
        known = {"path": self.path, "what": self.what, "before": self.before, "after": self.after}
        return {name: value for name, value in known.items() if value is not None}

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> "SchemaChange":
        return cls(said["path"], said["what"], said.get("before"), said.get("after"))


def changes_between(before: pa.Schema, after: pa.Schema) -> tuple[SchemaChange, ...]:
    """Every difference that a reader or a writer would notice, in the order of the columns."""
    return tuple(_struct((), list(before), list(after)))


def shown(kind: pa.DataType) -> str:
    """A type for people: cut where it is long."""
    text = str(kind)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _struct(path: tuple[str, ...], before: Sequence[pa.Field], after: Sequence[pa.Field]) -> Iterator[SchemaChange]:
    old = {physical_name(field): field for field in before}
    for field in after:
        was = old.pop(physical_name(field), None)
        place = (*path, field.name)
        if was is None:
            yield SchemaChange(join_path(place), "added", None, shown(field.type))
        else:
            yield from _field(place, was, field)
    for gone in old.values():
        yield SchemaChange(join_path((*path, gone.name)), "dropped", shown(gone.type))


def _field(path: tuple[str, ...], before: pa.Field, after: pa.Field) -> Iterator[SchemaChange]:
    name = join_path(path)
    if before.name != after.name:
        yield SchemaChange(name, "renamed", before.name, after.name)
    yield from _type(path, before, after)
    comments = [(field.metadata or {}).get(_COMMENT) for field in (before, after)]
    if comments[0] != comments[1]:
        yield SchemaChange(
            name, "comment", *(None if text is None else text.decode(errors="replace") for text in comments)
        )
    defaults = [text_of(field, DEFAULT) for field in (before, after)]
    if defaults[0] != defaults[1]:
        yield SchemaChange(name, "default", *defaults)


def _type(path: tuple[str, ...], before: pa.Field, after: pa.Field) -> Iterator[SchemaChange]:
    old, new = before.type, after.type
    name = join_path(path)
    if before.nullable != after.nullable:
        words = ("NOT NULL", "NULL")
        yield SchemaChange(name, "nullability", words[before.nullable], words[after.nullable])
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        yield from _struct(path, list(old), list(new))
    elif pa.types.is_list(old) and pa.types.is_list(new):
        yield from _type((*path, "element"), old.value_field, new.value_field)
    elif pa.types.is_map(old) and pa.types.is_map(new):
        yield from _type((*path, "key"), old.key_field, new.key_field)
        yield from _type((*path, "value"), old.item_field, new.item_field)
    elif old != new:
        what = "widened" if can_widen(old, new) else "promoted" if pa.types.is_string(new) else "retyped"
        yield SchemaChange(name, what, shown(old), shown(new))
