"""An incoming schema against a table's: what passes as it is, what would change the table, and what may."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakelog.errors import SchemaMismatchError, Violation
from lakelog.schema import field_metadata
from lakelog.schema.checks import Path
from lakelog.schema.delta import to_delta_type
from lakelog.schema.evolution.changes import PROMOTED_FROM, shown
from lakelog.schema.evolution.widening import common, holds, with_type_change, without_type_changes
from lakelog.schema.leaves import join_path
from lakelog.schema.mapping import children, without_mapping
from lakelog.schema.rules import is_filled
from lakelog.schema.spark_text import has_text

_STRING = pa.string()


@dataclass(frozen=True, slots=True)
class MergeOptions:
    """What a write may do to the table's schema. By default nothing."""

    schema_merge: bool = False
    """Columns may be added and become nullable."""
    promote_types: bool = True
    """With ``schema_merge``: columns may be widened without loss."""
    promote_to_string: bool = False
    """With ``schema_merge``: columns may become strings where nothing else holds both sides."""


def merge(
    table: pa.Schema, incoming: pa.Schema, options: MergeOptions, partition_columns: Sequence[str] = ()
) -> pa.Schema:
    """The schema that holds the table's rows and the incoming ones: the table's own object if nothing changes.

    Both are in normal types. Raises ``SchemaMismatchError`` with every difference that the options do not allow.
    """
    if table.equals(incoming):
        return table
    merging = _Merging(options, frozenset(name.lower() for name in partition_columns))
    fields = merging.fields((), list(table), incoming)
    if merging.differences:
        raise SchemaMismatchError("the incoming schema does not fit the table's", merging.differences)
    return table if fields is None else pa.schema(fields, table.metadata)


@dataclass(slots=True)
class _Place:
    """Where in the schema a type stands, and what is to be noted on the nearest field around it."""

    path: Path
    partition: bool = False
    key: bool = False
    """Inside the key of a map, which cannot get new fields."""
    steps: tuple[str, ...] = ()
    """The way from that field through lists and maps."""
    widened: list[tuple[tuple[str, ...], pa.DataType, pa.DataType]] = field(default_factory=list)
    promoted: list[dict[str, Any]] = field(default_factory=list)

    def within(self, step: str) -> "_Place":
        return _Place(
            (*self.path, step),
            self.partition,
            self.key or step == "key",
            (*self.steps, step),
            self.widened,
            self.promoted,
        )


class _Merging:
    def __init__(self, options: MergeOptions, partition_columns: frozenset[str]) -> None:
        self._options = options
        self._partition_columns = partition_columns
        self.differences: list[Violation] = []

    def fields(
        self, path: Path, ours: Sequence[pa.Field], theirs: Iterable[pa.Field], key: bool = False
    ) -> list[pa.Field] | None:
        """The fields of a struct, or None if they stay as they are."""
        incoming = {field.name.lower(): field for field in theirs}
        merged = []
        changed = False
        for mine in ours:
            other = incoming.pop(mine.name.lower(), None)
            new = self._missing(path, mine) if other is None else self._field(path, mine, other, key)
            changed |= new is not mine
            merged.append(new)
        merged += [self._added(path, field, key) for field in incoming.values()]
        return merged if changed or incoming else None

    def _field(self, path: Path, ours: pa.Field, theirs: pa.Field, key: bool) -> pa.Field:
        kind, other = ours.type, theirs.type
        loosened = self._options.schema_merge and theirs.nullable and not ours.nullable
        if kind != other:
            place = _Place((*path, ours.name), not path and ours.name.lower() in self._partition_columns, key)
            merged = self._type(place, kind, other)
            if merged is not kind:
                ours = _noted(ours.with_type(merged), place)
        return ours.with_nullable(True) if loosened else ours

    def _missing(self, path: Path, ours: pa.Field) -> pa.Field:
        if ours.nullable or (not path and is_filled(ours)):
            return ours
        if not self._options.schema_merge:
            found = f"the table has {shown(ours.type)} NOT NULL, the data has no such column"
            self._differ((*path, ours.name), found, "schema_merge")
        return ours.with_nullable(True)

    def _added(self, path: Path, theirs: pa.Field, key: bool) -> pa.Field:
        place = (*path, theirs.name)
        if _holds_null(theirs.type):
            self._differ(place, f"the table has no such column, and {shown(theirs.type)} says no type: cast the nulls")
        elif key:
            self._differ(place, "the table has no such column, and the key of a map cannot get new ones")
        elif not self._options.schema_merge:
            self._differ(place, f"the table has no such column, the data has {shown(theirs.type)}", "schema_merge")
        return without_mapping(theirs).with_nullable(True)

    def _type(self, place: _Place, ours: pa.DataType, theirs: pa.DataType) -> pa.DataType:
        """The type that holds both: our own object if it stays as it is."""
        if pa.types.is_null(theirs):
            return ours
        if pa.types.is_struct(ours) and pa.types.is_struct(theirs):
            fields = self.fields(place.path, list(ours), theirs, place.key)
            return ours if fields is None else pa.struct(fields)
        if pa.types.is_list(ours) and pa.types.is_list(theirs):
            mine = ours.value_field  # a new object each time that it is asked for
            element = self._inner(place.within("element"), mine, theirs.value_field)
            return ours if element is mine else pa.list_(element)
        if pa.types.is_map(ours) and pa.types.is_map(theirs):
            return self._map(place, ours, theirs)
        if holds(ours, theirs):
            return ours
        return self._wider(place, ours, theirs)

    def _inner(self, place: _Place, ours: pa.Field, theirs: pa.Field) -> pa.Field:
        """A list's element or a map's value."""
        kind = ours.type
        merged = self._type(place, kind, theirs.type)
        nullable = ours.nullable or (self._options.schema_merge and theirs.nullable)
        if merged is kind and nullable == ours.nullable:
            return ours
        return ours.with_type(merged).with_nullable(nullable)

    def _map(self, place: _Place, ours: pa.MapType, theirs: pa.MapType) -> pa.DataType:
        mine, value = ours.key_type, ours.item_field
        key = self._type(place.within("key"), mine, theirs.key_type)
        item = self._inner(place.within("value"), value, theirs.item_field)
        return ours if key is mine and item is value else pa.map_(key, item)

    def _wider(self, place: _Place, ours: pa.DataType, theirs: pa.DataType) -> pa.DataType:
        found = f"the table has {shown(ours)}, the data has {shown(theirs)}"
        if place.partition:
            self._differ(place.path, f"{found}, and the type of a partition column stays as it is")
            return ours
        wide = None if pa.types.is_nested(ours) or pa.types.is_nested(theirs) else common(ours, theirs)
        if wide is not None:
            if self._options.schema_merge and self._options.promote_types:
                place.widened.append((place.steps, ours, wide))
                return wide
            self._differ(place.path, found, "schema_merge", "promote_types")
            return ours
        return self._text(place, ours, theirs, found)

    def _text(self, place: _Place, ours: pa.DataType, theirs: pa.DataType, found: str) -> pa.DataType:
        """The last resort: a string that shows either."""
        textless = next((kind for kind in (ours, theirs) if not has_text(kind)), None)
        if textless is not None:
            self._differ(place.path, f"{found}, and not every {shown(textless)} has a text to be read back from")
            return ours
        becomes_text = ours != _STRING
        if self._options.promote_to_string and (self._options.schema_merge or not becomes_text):
            if becomes_text:
                note = {"fromType": to_delta_type(ours), "incomingType": to_delta_type(theirs)}
                if place.steps:
                    note["fieldPath"] = ".".join(place.steps)
                place.promoted.append(note)
            return ours if not becomes_text else _STRING
        self._differ(place.path, found, *["schema_merge"] * becomes_text, "promote_to_string")
        return ours

    def _differ(self, path: Path, message: str, *options: str) -> None:
        missing = [f"{option}=True" for option in options if not getattr(self._options, option)]
        if missing:
            message += f"; {' and '.join(missing)} would allow it"
        self.differences.append(Violation(join_path(path), message))


def _noted(merged: pa.Field, place: _Place) -> pa.Field:
    """The field with the widenings and promotions of its type in its metadata."""
    for steps, before, after in place.widened:
        merged = with_type_change(merged, steps, to_delta_type(before), to_delta_type(after))
    if place.promoted:
        known = field_metadata.to_json_object(merged.metadata or {}).get(PROMOTED_FROM, [])
        noted = field_metadata.from_json_object({PROMOTED_FROM: [*known, *place.promoted]})
        merged = merged.with_metadata({**(merged.metadata or {}), **noted})
        for note in place.promoted:
            merged = without_type_changes(merged, note.get("fieldPath"))
    return merged


def _holds_null(kind: pa.DataType) -> bool:
    """Whether something in a type has no type yet."""
    return bool(pa.types.is_null(kind)) or any(_holds_null(child.type) for child in children(kind))
