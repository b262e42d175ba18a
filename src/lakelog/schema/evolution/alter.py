"""Explicit changes of a table's columns, each from one layout to the next.

Columns are named by dotted paths, without regard to case; the way through a list is ``element``, through a map ``key``
and ``value``: ``tags.element.label``. What cannot be done raises a ``ValidationError`` that says why. Files are never
touched: what they hold must make sense under every layout that a table ever had.
"""

import difflib
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import pyarrow as pa

from lakelog.errors import ValidationError, Violation
from lakelog.schema import field_metadata
from lakelog.schema.delta import from_delta_json, to_delta_json, to_delta_type
from lakelog.schema.evolution import widening
from lakelog.schema.leaves import join_path, parse_path
from lakelog.schema.mapping import (
    children,
    is_mapped,
    name_new_columns,
    physical_name,
    with_children,
    with_mapping,
    without_mapping,
)
from lakelog.schema.rules import DEFAULT, GENERATED, text_of, users_of, with_text
from lakelog.schema.unsupported import MAX_DECIMAL_DIGITS
from lakelog.strict_json import describe

_COMMENT = "comment"
STATS_COLUMNS = "delta.dataSkippingStatsColumns"
_CLUSTERING = ("clusteringColumns", "delta.clusteringColumns")
_ICEBERG = ("delta.enableIcebergCompatV1", "delta.enableIcebergCompatV2")
_IDENTITY = b"delta.identity."
_WIDER = (pa.int16(), pa.int32(), pa.int64(), pa.float64(), pa.timestamp("us"))
_LIST_COMMA = re.compile(r",(?=(?:[^`]*`[^`]*`)*[^`]*$)")
"""A comma that does not stand in backticks."""
_PLAIN_NAME = re.compile(r"\w+", re.ASCII)
_WORD = re.compile(r"[^\[\]\",`.\s]+")
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a table, and all that refers to them by name."""

    schema: pa.Schema
    """Logical names, and types and metadata as ``from_delta_json`` gives them."""
    configuration: Mapping[str, str]
    """The table's properties."""
    partition_columns: tuple[str, ...]
    """Logical names."""
    clustering: tuple[tuple[str, ...], ...] = ()
    """Paths of the columns that the table is clustered by, in physical names."""


def add_column(
    layout: Layout, name: str, type: pa.DataType, *, nullable: bool = True, comment: str | None = None
) -> Layout:
    """A new last column, or a new last field of a struct. It is null in all rows that exist, so it cannot be NOT NULL.

    Metadata that the type brings along from another table is dropped.
    """
    path = _parts(name)
    _check_is_type(name, type)
    parent = _find(layout.schema, path[:-1]) if path[1:] else ()
    path = (*(step.name for step in parent), path[-1])
    if not nullable:
        raise _refused(path, "a new column is null in the rows that exist, so it cannot be NOT NULL; add it nullable")
    _check_parent(path, parent)
    _check_not_generated(parent)
    _check_new_name(path, children(parent[-1].field.type) if parent else list(layout.schema))
    column = without_mapping(_with_comment(pa.field(path[-1], type), comment, path))
    if parent:
        schema = _edited(layout.schema, parent, lambda struct: [struct.with_type(pa.struct([*struct.type, column]))])
    else:
        schema = layout.schema.append(column)
    named, configuration = name_new_columns(_checked(schema, layout.configuration), layout.configuration)
    return replace(layout, schema=named, configuration=configuration)


def widen_column(layout: Layout, name: str, type: pa.DataType) -> Layout:
    """The column with a type that holds more, as Delta's type widening allows. The same type changes nothing."""
    _check_is_type(name, type)
    steps = _find(layout.schema, _parts(name))
    path, source = _path(steps), steps[-1].field.type
    if source.equals(type):
        return layout
    _check_not_partition(layout, steps, "its type stands in the partition values of all files; write a new table")
    if not widening.can_widen(source, type):
        raise _refused(path, f"cannot go from {source} to {type}; {_could_become(source)}")
    _check_type_change(layout, steps, type)
    schema = _edited(layout.schema, steps, lambda field: [field.with_type(type)])
    length = max(index for index, step in enumerate(steps, 1) if step.is_column)
    change = path[length:], to_delta_type(source), to_delta_type(type)
    schema = _edited(schema, steps[:length], lambda field: [widening.with_type_change(field, *change)])
    configuration = {**layout.configuration, widening.ENABLED: "true"}
    return replace(layout, schema=_checked(schema, configuration), configuration=configuration)


def type_change_problems(layout: Layout, merged: pa.Schema, name: str) -> list[Violation]:
    """Why a column cannot have the type that it has in another schema of the same columns."""
    steps = _find(layout.schema, _parts(name))
    try:
        _check_type_change(layout, steps, _find(merged, _parts(name))[-1].field.type)
    except ValidationError as error:
        return list(error.violations)
    return []


def _check_type_change(layout: Layout, steps: Sequence["_Step"], type: pa.DataType) -> None:
    source = steps[-1].field.type
    if not _iceberg_widens(source, type) and any(layout.configuration.get(key) == "true" for key in _ICEBERG):
        message = f"cannot go from {source} to {type} in a table that Iceberg's readers have to understand"
        raise _refused(_path(steps), message)
    if any(key.startswith(_IDENTITY) for key in steps[-1].field.metadata or {}):
        raise _refused(_path(steps), "is an identity column, which is int64 for ever")
    _check_not_generated(steps)
    _check_expressions(layout.configuration, layout.schema, steps)


def make_nullable(layout: Layout, name: str) -> Layout:
    """The column, element or value without NOT NULL. One that is nullable already changes nothing."""
    steps = _find(layout.schema, _parts(name))
    if steps[-1].field.nullable:
        return layout
    if steps[-1].is_key:
        raise _refused(_path(steps), "the keys of a map are never null")
    return replace(layout, schema=_edited(layout.schema, steps, lambda field: [field.with_nullable(True)]))


def set_comment(layout: Layout, name: str, comment: str | None) -> Layout:
    """The column with a comment, or with None without one. The comment that it has changes nothing."""
    steps = _find_column(layout.schema, name, "commented on")
    column = _with_comment(steps[-1].field, comment, _path(steps))
    if column.equals(steps[-1].field, check_metadata=True):
        return layout
    return replace(layout, schema=_edited(layout.schema, steps, lambda _: [column]))


def set_default(layout: Layout, name: str, sql: str | None) -> Layout:
    """The column with another default, or with None without one. The default that it has changes nothing."""
    steps = _find_column(layout.schema, name, "given a default")
    column = steps[-1].field
    if sql is not None and len(steps) > 1:
        raise _refused(_path(steps), "is inside of another column; only columns of the table itself have defaults")
    if sql is not None and text_of(column, GENERATED) is not None:
        raise _refused(_path(steps), "is generated, so it cannot have a default")
    if text_of(column, DEFAULT) == sql:
        return layout
    schema = _edited(layout.schema, steps, lambda field: [with_text(field, DEFAULT, sql)])
    return replace(layout, schema=schema)


def rename_column(layout: Layout, name: str, new_name: str) -> Layout:
    """The column under another name, of which ``new_name`` is the last part. The name that it has changes nothing.

    Files keep the old name, so column mapping is switched on.
    """
    steps = _find_column(layout.schema, name, "renamed")
    path = _path(steps)
    if not isinstance(new_name, str):
        raise _refused(path, f"expected a text as its new name, found {describe(new_name)}")
    new_path = (*path[:-1], new_name)
    if new_path == path:
        return layout
    if path[1:] and new_name.lower().startswith(join_path(path[:-1]).lower() + "."):
        raise _refused(path, f"expected only the last part of the new name, found {new_name!r}")
    _check_new_name(new_path, _others(layout.schema, steps))
    _check_not_generated(steps[:-1])
    _check_expressions(layout.configuration, layout.schema, steps)
    _check_clustering(layout.configuration, path)
    schema, configuration = with_mapping(layout.schema, _follow_stats_columns(layout.configuration, path, new_path))
    schema = _edited(schema, steps, lambda field: [field.with_name(new_name)])
    partitions = tuple(new_name if (column,) == path else column for column in layout.partition_columns)
    return Layout(_checked(schema, configuration), configuration, partitions)


def drop_column(layout: Layout, name: str) -> Layout:
    """The table without the column. Files keep its values, under a name that no other column gets: mapping is on."""
    steps = _find_column(layout.schema, name, "dropped")
    path = _path(steps)
    _check_not_partition(layout, steps, "the files are partitioned by it; write a new table")
    if any(step.is_key for step in steps):
        raise _refused(path, "is part of a map's keys, which would no longer differ without it")
    beside = {field.name for field in _others(layout.schema, steps)}
    if not beside.difference(() if steps[1:] else layout.partition_columns):
        message = "is the last field of its struct; drop the struct" if steps[1:] else "is the last column in the files"
        raise _refused(path, f"{message}, or add another one first")
    _check_not_generated(steps[:-1])
    _check_expressions(layout.configuration, _edited(layout.schema, steps, lambda _: []), steps)
    physical = tuple(physical_name(step.field) for step in steps if step.is_column)
    if any(column[: len(physical)] == physical for column in layout.clustering):
        raise _refused(path, "the table is clustered by it; cluster by other columns first")
    _check_clustering(layout.configuration, path)
    schema, configuration = with_mapping(layout.schema, _follow_stats_columns(layout.configuration, path, None))
    return replace(layout, schema=_edited(schema, steps, lambda _: []), configuration=configuration)


def find_column(layout: Layout, name: str) -> pa.Field:
    """The column of a name. Raises ``ValidationError``."""
    return _find(layout.schema, _parts(name))[-1].field


class _Step(NamedTuple):
    """One step of the way to a column."""

    name: str
    position: int
    field: pa.Field
    is_column: bool
    """Whether it has a name and metadata of its own, as elements, keys and values have not."""

    @property
    def is_key(self) -> bool:
        return not self.is_column and self.name == "key"


def _find(schema: pa.Schema, path: Sequence[str]) -> tuple[_Step, ...]:
    """The way to a column, in the table's spelling. Raises ValidationError."""
    steps: list[_Step] = []
    options = _steps(pa.struct(list(schema)))
    for part in path:
        found = [step for step in options if step.name.lower() == part.lower()]
        if not found:
            raise _refused(path, f"there is no such column; {_nearest(schema, path)}")
        steps += found
        options = _steps(found[0].field.type)
    return tuple(steps)


def _find_column(schema: pa.Schema, name: str, what: str) -> tuple[_Step, ...]:
    steps = _find(schema, _parts(name))
    if not steps[-1].is_column:
        raise _refused(_path(steps), f"is not a column but part of a list or map, which cannot be {what}")
    return steps


def _others(schema: pa.Schema, steps: Sequence[_Step]) -> list[pa.Field]:
    """The columns beside the one that the steps lead to."""
    fields = list(steps[-2].field.type) if steps[1:] else list(schema)
    return [field for position, field in enumerate(fields) if position != steps[-1].position]


def _steps(kind: pa.DataType) -> list[_Step]:
    """What can follow after a value of this type."""
    is_struct = pa.types.is_struct(kind)
    fixed = ("key", "value") if pa.types.is_map(kind) else ("element",)
    return [
        _Step(field.name if is_struct else fixed[position], position, field, is_struct)
        for position, field in enumerate(children(kind))
    ]


def _edited(schema: pa.Schema, steps: Sequence[_Step], edit: Callable[[pa.Field], list[pa.Field]]) -> pa.Schema:
    """The schema with what an edit gives in place of the field that the steps lead to."""
    return pa.schema(_edited_fields(list(schema), [step.position for step in steps], edit), schema.metadata)


def _edited_fields(
    fields: list[pa.Field], positions: list[int], edit: Callable[[pa.Field], list[pa.Field]]
) -> list[pa.Field]:
    position, *rest = positions
    field = fields[position]
    if rest:
        inside = _edited_fields(children(field.type), rest, edit)
        edited = [field.with_type(with_children(field.type, inside))]
    else:
        edited = edit(field)
    return [*fields[:position], *edited, *fields[position + 1 :]]


def _checked(schema: pa.Schema, configuration: Mapping[str, str]) -> pa.Schema:
    """The schema as the table will give it back. Raises ValidationError if a table cannot hold it."""
    mapped = is_mapped(configuration)
    try:
        return from_delta_json(to_delta_json(schema, column_mapping=mapped), column_mapping=mapped)
    except ValidationError as error:
        raise ValidationError("schema change", error.violations) from None


def _check_parent(path: Sequence[str], parent: Sequence[_Step]) -> None:
    if any(step.is_key for step in parent):
        raise _refused(path, "a map's keys cannot get new fields, since the keys that exist would have to change")
    if parent and not pa.types.is_struct(parent[-1].field.type):
        inner = [join_path([*_path(parent), step.name]) for step in _steps(parent[-1].field.type)]
        hint = f"; did you mean a field of {' or '.join(inner)}?" if inner else ""
        raise _refused(path, f"{join_path(_path(parent))} is not a struct but {parent[-1].field.type}{hint}")


def _check_new_name(path: Sequence[str], siblings: Sequence[pa.Field]) -> None:
    try:
        path[-1].encode()
    except UnicodeEncodeError:
        raise _refused(path, "the name holds half of a surrogate pair, which is not a character") from None
    taken = [field.name for field in siblings if field.name.lower() == path[-1].lower()]
    if taken:
        spelling = "" if taken[0] == path[-1] else f" as {taken[0]!r}, since case makes no difference"
        raise _refused(path, f"there is such a column already{spelling}; choose another name")


def _check_not_partition(layout: Layout, steps: Sequence[_Step], why: str) -> None:
    if len(steps) == 1 and steps[0].name in layout.partition_columns:
        raise _refused(_path(steps), f"is a partition column: {why}")


def _with_comment(column: pa.Field, comment: str | None, path: Sequence[str]) -> pa.Field:
    if not isinstance(comment, str | None):
        raise _refused(path, f"expected text or None as comment, found {describe(comment)}")
    metadata = {key: value for key, value in (column.metadata or {}).items() if key != _COMMENT.encode()}
    try:
        noted = {} if comment is None else field_metadata.from_json_object({_COMMENT: comment})
    except UnicodeEncodeError:
        raise _refused(path, "the comment holds half of a surrogate pair, which is not a character") from None
    return column.with_metadata({**metadata, **noted})


def _could_become(source: pa.DataType) -> str:
    """What a column of a type can be widened to, in words."""
    wider = [str(kind) for kind in _WIDER if widening.can_widen(source, kind)]
    if pa.types.is_integer(source):
        digits = 10 if widening.can_widen(source, pa.decimal128(10, 0)) else 20
        wider.append(f"a decimal128 with {digits} or more digits before the point")
    if pa.types.is_decimal128(source) and source.precision < MAX_DECIMAL_DIGITS:
        before = source.precision - source.scale
        wider.append(f"a larger decimal128 with {before} or more digits before the point and {source.scale} after it")
    return f"it could become {' or '.join(wider)}" if wider else "add a column of the other type instead"


def _iceberg_widens(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Iceberg, too, can read a column after this widening."""
    if pa.types.is_decimal(source):
        return bool(pa.types.is_decimal(target) and source.scale == target.scale)
    return bool(pa.types.is_integer(target) or pa.types.is_float32(source))


# What else refers to columns by name: SQL expressions, which must not lose a column, and lists of columns.


def _check_expressions(configuration: Mapping[str, str], schema: pa.Schema, steps: Sequence[_Step]) -> None:
    """Refuse to change a column that an expression mentions, or may mention through a list or map around it."""
    path = [step.name for step in itertools.takewhile(lambda step: step.is_column, steps)]
    found = users_of(configuration, schema, path)
    if found:
        raise _refused(_path(steps), f"is used by {' and '.join(found)}; change or drop that first")


def _check_not_generated(steps: Sequence[_Step]) -> None:
    """Refuse to change the type of a generated column, also from inside: it is its expression's."""
    for step in steps:
        if (sql := text_of(step.field, GENERATED)) is not None:
            raise _refused(_path(steps), f"is part of what is generated as {sql}, and has its type")


def _check_clustering(configuration: Mapping[str, str], path: Sequence[str]) -> None:
    for key in _CLUSTERING:
        if path[0].lower() in _WORD.findall(configuration.get(key, "").lower()):
            raise _refused(path, f"is named by the table property {key}; cluster by other columns first")


def _follow_stats_columns(
    configuration: Mapping[str, str], path: Sequence[str], new_path: Sequence[str] | None
) -> dict[str, str]:
    """The properties, with a renamed or dropped column also in the list of those that statistics are kept for."""
    listed = configuration.get(STATS_COLUMNS, "")
    if not listed.strip():
        return dict(configuration)
    try:
        known = parse_columns(listed)
    except ValidationError as error:
        message = f"the table property {STATS_COLUMNS} cannot follow, since it is not a list of columns: {error}"
        raise _refused(path, message) from None
    kept = []
    for entry, parts in known.items():
        if not _begins(parts, path):
            kept.append(entry)
        elif new_path is not None:
            kept.append(".".join(_quoted(part) for part in (*new_path, *parts[len(path) :])))
    return {**configuration, STATS_COLUMNS: ",".join(kept)} if kept != [*known] else dict(configuration)


def parse_columns(listed: str) -> dict[str, tuple[str, ...]]:
    """The paths of columns in a list with commas, by what stands there. Raises ``ValidationError``."""
    return {entry.strip(): parse_path(entry.strip()) for entry in _LIST_COMMA.split(listed)}


def _begins(parts: Sequence[str], path: Sequence[str]) -> bool:
    return [part.lower() for part in parts[: len(path)]] == [part.lower() for part in path]


def _quoted(part: str) -> str:
    return part if _PLAIN_NAME.fullmatch(part) else "`" + part.replace("`", "``") + "`"


def _nearest(schema: pa.Schema, path: Sequence[str]) -> str:
    """The columns that may be meant by a name that is none."""
    names = {name.lower(): name for name in map(join_path, _paths(pa.struct(list(schema)), ()))}
    near = difflib.get_close_matches(join_path(path).lower(), names)
    if near:
        return f"did you mean {' or '.join(names[name] for name in near)}?"
    shown = [*names.values()][:_SHOWN]
    return f"there are {', '.join(shown)}{', …' if len(names) > _SHOWN else ''}"


def _paths(kind: pa.DataType, parent: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for step in _steps(kind):
        yield (*parent, step.name)
        yield from _paths(step.field.type, (*parent, step.name))


def _parts(name: str) -> tuple[str, ...]:
    if not isinstance(name, str):
        raise ValidationError(
            "schema change", [Violation("column", f"expected a column's name, found {describe(name)}")]
        )
    try:
        return parse_path(name)
    except ValidationError as error:
        raise ValidationError("schema change", error.violations) from None


def _check_is_type(name: str, type: Any) -> None:
    if not isinstance(type, pa.DataType):
        message = f"expected an Arrow type such as pyarrow.int64(), found {describe(type)}"
        raise ValidationError("schema change", [Violation(describe(name), message)])


def _path(steps: Sequence[_Step]) -> tuple[str, ...]:
    return tuple(step.name for step in steps)


def _refused(path: Sequence[str], message: str) -> ValidationError:
    return ValidationError("schema change", [Violation(join_path(path), message)])
