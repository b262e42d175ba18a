"""Carries a projection out on Arrow data, and finds the nulls where there must be none."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.errors import SchemaMismatchError, ValidationError, Violation
from lakelog.schema.checks import Path
from lakelog.schema.evolution.projection import Conversion, Kind, Part, Parts, convert_type, is_list
from lakelog.schema.leaves import join_path
from lakelog.schema.normalize import normalize
from lakelog.schema.spark_text import spark_text

_MAX_BYTES = 1 << 28
_MAX_ROWS = 1 << 22
"""What is converted at once. Both leave room for text and for decoded values below the 2 GiB of 32-bit offsets."""
_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError)


def apply(parts: Parts, table: pa.Table) -> pa.Table:
    """The table with the parts' fields as its columns.

    Values that their column cannot hold raise a ``SchemaMismatchError`` that lists every such column.
    """
    work = _Work()
    columns = [work.column(part, table) for part in parts]
    if work.problems:
        violations = [Violation(where, message) for where, message in work.problems.items()]
        raise SchemaMismatchError("values of the incoming data", violations)
    return pa.Table.from_arrays(columns, schema=pa.schema([part.field for part in parts]))


def null_problems(table: pa.Table) -> list[Violation]:
    """Every field that is not nullable and holds nulls. What lies under a null struct, list or map does not count."""
    counts: Counter[str] = Counter()
    for column_field, column in zip(table.schema, table.columns, strict=True):
        for chunk in column.chunks:
            for path, count in _nulls(column_field, chunk, (column_field.name,)):
                counts[join_path(path)] += count
    return [Violation(where, _found_nulls(count)) for where, count in counts.items()]


@dataclass(slots=True)
class _Work:
    """Converts array by array. A column that fails is noted and null from there on, so that the rest is tried too."""

    problems: dict[str, str] = field(default_factory=dict)

    def column(self, part: Part, table: pa.Table) -> pa.ChunkedArray:
        if part.source is None or part.conversion is None:
            return pa.chunked_array([pa.nulls(table.num_rows, part.field.type)])
        column = table.column(part.source)
        if part.conversion.kind is Kind.SAME and _is_exactly(column.type, part.field.type):
            return column
        pieces = [piece for chunk in column.chunks for piece in _pieces(chunk)]
        converted = [self._value(part.conversion, piece, (part.field.name,)) for piece in pieces]
        return pa.chunked_array(converted, part.field.type)

    def _value(self, conversion: Conversion, array: pa.Array, path: Path) -> pa.Array:
        if len(array) == 0:
            return pa.nulls(0, conversion.target)
        return _CARRY_OUT[conversion.kind](self, conversion, array, path)

    def _same(self, conversion: Conversion, array: pa.Array, path: Path) -> pa.Array:
        # The names and the metadata of elements may differ.
        return array if _is_exactly(array.type, conversion.target) else array.cast(conversion.target)

    def _then(self, conversion: Conversion, array: pa.Array, path: Path) -> pa.Array:
        for step in conversion.steps:
            array = self._value(step, array, path)
        return array

    def _cast(self, conversion: Conversion, array: pa.Array, path: Path) -> pa.Array:
        plain = array
        try:
            plain = _decoded(array)
            if pa.types.is_nested(plain.type) and plain is not array:
                return self._value(convert_type(plain.type, conversion.target), plain, path)
            return _cast(plain, conversion.target)
        except _REFUSALS as error:
            return self._refused(conversion, plain, path, error)

    def _text(self, conversion: Conversion, array: pa.Array, path: Path) -> pa.Array:
        try:
            array = _decoded(array)
            normal = normalize(pa.schema([pa.field("value", array.type)])).field(0).type
            array = self._value(convert_type(array.type, normal, _exact_name), array, path)
            return spark_text(array)
        except (*_REFUSALS, TypeError, ValidationError) as error:
            return self._refused(conversion, array, path, error)

    def _struct(self, conversion: Conversion, array: pa.Array, path: Path) -> pa.Array:
        fields = _children(array)
        children = [
            self._part(part, array if part.source is None else fields[part.source], (*path, part.field.name))
            for part in conversion.parts
        ]
        return _build(conversion.target, array, [], children)

    def _list(self, conversion: Conversion, array: pa.Array, path: Path) -> pa.Array:
        values = self._part(conversion.parts[0], array.flatten(), (*path, "element"))
        return _build(conversion.target, array, [_offsets(array)], [values])

    def _map(self, conversion: Conversion, array: pa.Array, path: Path) -> pa.Array:
        lists = _as_list(array)
        entries = lists.flatten()
        key, value = conversion.parts
        keys = self._part(key, entries.field(0), (*path, "key"))
        values = self._part(value, entries.field(1), (*path, "value"))
        if keys.null_count:
            # Arrow ends the process when a map has null keys. They come from keys that were refused, or a dictionary.
            self.problems.setdefault(join_path((*path, "key")), _found_nulls(keys.null_count))
            return pa.nulls(len(array), conversion.target)
        kind = pa.struct([key.field, value.field])
        pairs = pa.Array.from_buffers(kind, len(entries), [None], children=[keys, values])
        return _build(conversion.target, array, [_offsets(lists)], [pairs])

    def _part(self, part: Part, array: pa.Array, path: Path) -> pa.Array:
        if part.conversion is None:
            return pa.nulls(len(array), part.field.type)
        return self._value(part.conversion, array, path)

    def _refused(self, conversion: Conversion, array: pa.Array, path: Path, error: Exception) -> pa.Array:
        self.problems.setdefault(join_path(path), _explained(array.type, conversion.target, error))
        return pa.nulls(len(array), conversion.target)


_CARRY_OUT: dict[Kind, Callable[[_Work, Conversion, pa.Array, Path], pa.Array]] = {
    Kind.SAME: _Work._same,
    Kind.CAST: _Work._cast,
    Kind.TEXT: _Work._text,
    Kind.STRUCT: _Work._struct,
    Kind.LIST: _Work._list,
    Kind.MAP: _Work._map,
    Kind.THEN: _Work._then,
}


def _pieces(array: pa.Array) -> Iterator[pa.Array]:
    """The array in parts that are small enough to be converted at once."""
    count = max(array.nbytes // _MAX_BYTES, len(array) // _MAX_ROWS) + 1
    rows = -(-len(array) // count) or 1
    return (array[start : start + rows] for start in range(0, len(array) or 1, rows))


def _decoded(array: pa.Array) -> pa.Array:
    """The values themselves: no dictionary, runs, views or extension type."""
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _decoded(array.storage)
    if pa.types.is_dictionary(kind):
        return _decoded(array.dictionary).take(array.indices)
    if pa.types.is_run_end_encoded(kind):
        return _decoded(array.values).take(_run_numbers(array))
    if pa.types.is_string_view(kind):
        return array.cast(pa.string())
    return array.cast(pa.binary()) if pa.types.is_binary_view(kind) else array


def _run_numbers(array: pa.Array) -> pa.Array:
    """For every row the position of its value."""
    numbers = pa.array(np.arange(len(array.run_ends)))
    runs = pa.RunEndEncodedArray.from_arrays(array.run_ends, numbers)
    return pc.run_end_decode(runs[array.offset : array.offset + len(array)])


def _cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_date64(array.type):
        # Only on the way to days does Arrow refuse dates with a time of day.
        array = array.cast(pa.date32())
    return array.cast(target)


def _children(array: pa.Array) -> list[pa.Array]:
    """The values of a struct's fields, null where the struct is, so that what lies there cannot fail."""
    fields = [array.field(position) for position in range(array.type.num_fields)]
    if array.null_count == 0:
        return fields
    valid = array.is_valid()
    # Arrow would give runs a validity bitmap, which they do not have.
    return [
        _only_where(valid, _decoded(child)) if pa.types.is_run_end_encoded(child.type) else masked
        for child, masked in zip(fields, array.flatten(), strict=True)
    ]


def _only_where(valid: pa.Array, array: pa.Array) -> pa.Array:
    return pc.if_else(valid, array, pa.scalar(None, array.type))


def _as_list(array: pa.Array) -> pa.Array:
    """A map as the list of its entries: Arrow's kernels for lists do not take maps."""
    entries = array.values
    buffers = array.buffers()[:2]
    return pa.Array.from_buffers(pa.list_(entries.type), len(array), buffers, offset=array.offset, children=[entries])


def _offsets(array: pa.Array) -> pa.Buffer:
    """Where the lists begin and end in the flattened array, whatever kind of list it is."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
    return pa.array(offsets).cast(pa.int32()).buffers()[1]


def _build(kind: pa.DataType, array: pa.Array, buffers: list[pa.Buffer], children: list[pa.Array]) -> pa.Array:
    """A nested array that is null where another one is."""
    valid = pc.invert(array.is_null()).buffers()[1] if array.null_count else None
    return pa.Array.from_buffers(kind, len(array), [valid, *buffers], children=children)


def _is_exactly(kind: pa.DataType, target: pa.DataType) -> bool:
    return bool(kind.equals(target, check_metadata=True))


def _exact_name(column: pa.Field) -> str:
    name: str = column.name
    return name


def _explained(source: pa.DataType, target: pa.DataType, error: Exception) -> str:
    if pa.types.is_timestamp(source) and source.unit == "ns" and pa.types.is_timestamp(target):
        found = "timestamps with nanoseconds that a column of microseconds cannot hold"
    else:
        found = f"{source} that it cannot hold"
    return f"expected values for a column of {target}, found {found}: {error}"


def _found_nulls(count: int) -> str:
    return f"expected no nulls, found {count} null value{'s' if count != 1 else ''}"


def _nulls(column: pa.Field, array: pa.Array, path: Path) -> Iterator[tuple[Path, int]]:
    if not column.nullable and array.null_count:
        yield path, array.null_count
    if len(array) and _requires(column.type):
        for inner, values, step in _below(column.type, array):
            yield from _nulls(inner, values, (*path, step))


def _below(kind: pa.DataType, array: pa.Array) -> Iterator[tuple[pa.Field, pa.Array, str]]:
    """The fields inside with those of their values that count."""
    if pa.types.is_struct(kind):
        present = array.drop_null() if array.null_count else array
        for position, inner in enumerate(kind):
            yield inner, present.field(position), inner.name
    elif pa.types.is_map(kind):
        entries = _as_list(array).flatten()
        yield kind.key_field, entries.field(0), "key"
        yield kind.item_field, entries.field(1), "value"
    else:
        yield kind.value_field, array.flatten(), "element"


def _requires(kind: pa.DataType) -> bool:
    """Whether a field inside must not be null."""
    if not (pa.types.is_struct(kind) or pa.types.is_map(kind) or is_list(kind)):
        return False
    if pa.types.is_map(kind):
        return True
    inner = [kind.field(index) for index in range(kind.num_fields)]
    return any(not column.nullable or _requires(column.type) for column in inner)
