"""Columns by path: the leaves of a schema, and the dotted names that people and statistics know them by."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakelog.errors import ValidationError, Violation

_PART = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


LONGEST_NAME = 1500
"""Bytes of a name that an index can hold beside a column's bounds: a page of PostgreSQL's takes 2,704 in a row."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column that can have bounds: ``path`` holds the plain names, ``name`` is ``join_path(path)``."""

    path: tuple[str, ...]
    name: str
    type: pa.DataType


def leaf_columns(schema: pa.Schema) -> tuple[Leaf, ...]:
    """Every column below structs that is not nested itself, in schema order.

    Lists and maps give no leaf, since they have no bounds.
    """
    return tuple(_leaves(schema, ()))


def indexed_leaves(
    schema: pa.Schema, partition_columns: Sequence[str], limit: int = 32, longest: int = LONGEST_NAME
) -> tuple[Leaf, ...]:
    """The leaves that statistics are kept for, in schema order: every partition column, and the first others.

    ``limit`` works as ``delta.dataSkippingNumIndexedCols`` does: it counts the leaves of the data columns, partition
    columns come on top, and a negative limit is none. (Delta lets lists and maps use up the limit; here they do not.)
    A leaf with a name of more than ``longest`` bytes, too long for an index, has none, though it counts.
    ``partition_columns`` are plain names of top-level columns; one that is not a leaf raises ``ValidationError``.
    """
    leaves = leaf_columns(schema)
    paths = {leaf.path for leaf in leaves}
    unknown = [name for name in partition_columns if (name,) not in paths]
    if unknown:
        message = "is not a top-level column of a simple type, so the table cannot be partitioned by it"
        raise ValidationError("partition columns", [Violation(join_path([name]), message) for name in unknown])
    partitions = {(name,) for name in partition_columns}
    data = [leaf.path for leaf in leaves if leaf.path not in partitions]
    indexed = partitions.union(data if limit < 0 else data[:limit])
    return tuple(leaf for leaf in leaves if leaf.path in indexed and len(leaf.name.encode()) <= longest)


def join_path(path: Iterable[str]) -> str:
    """The dotted name of a path, as Spark writes it.

    A part that is empty or holds a dot or a backtick stands in backticks, with its own backticks doubled.
    """
    return ".".join(_quoted(part) if not part or "." in part or "`" in part else part for part in path)


def parse_path(name: str) -> tuple[str, ...]:
    """The inverse of ``join_path``. A name that is not one, such as ``a..b`` or ```a``, raises ``ValidationError``."""
    parts: list[str] = []
    position = 0
    while match := _PART.match(name, position):
        quoted, plain = match.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        position = match.end()
        if position == len(name):
            return tuple(parts)
        if name[position] != ".":
            break
        position += 1
    message = (
        f"cannot be read as a column name from character {position + 1} on: expected names with dots between them, "
        "and backticks around a name that holds a dot or a backtick (its own backticks doubled)"
    )
    raise ValidationError("column name", [Violation(repr(name), message)])


def _leaves(fields: Iterable[pa.Field], parent: tuple[str, ...]) -> Iterator[Leaf]:
    for field in fields:
        path = (*parent, field.name)
        if pa.types.is_struct(field.type):
            yield from _leaves(field.type, path)
        elif not pa.types.is_nested(field.type):
            yield Leaf(path, join_path(path), field.type)


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"
