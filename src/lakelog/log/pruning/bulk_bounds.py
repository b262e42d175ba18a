"""Bounds of thousands of files at once. The rules are those of ``bounds``; anything unusual goes back to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from lakelog.log.pruning.bounds import FLOATS, TEXT_LENGTH, Kind, bounds_of, kind_of, single_margin
from lakelog.schema.leaves import Leaf
from lakelog.threads import threads_start

_BATCH = 16_384
_EXACT = 2.0**53
_UNUSUAL = r"NaN|Infinity|\n|\\u(?:0000|[dD][89a-fA-F])"


@dataclass(frozen=True, slots=True)
class ColumnBounds:
    """One column's bounds in many files: arrays as long as the files, null where a file has no statistics."""

    name: str
    span: Any
    minimum: Any
    maximum: Any
    null_count: Any
    is_text: bool


class UnusualStatistics(ValueError):
    """Statistics that need to be looked at one by one."""


@dataclass(frozen=True, slots=True)
class BulkStatistics:
    """What the statistics of many files say. Arrays of the same length as the files."""

    rows: Any
    columns: tuple[ColumnBounds, ...]
    contradictory: Any
    """True where the statistics contradict themselves."""


def read_statistics(stats: Any, leaves: Sequence[Leaf]) -> BulkStatistics:
    """Statistics of a string array of Delta's JSON.

    Raises ``UnusualStatistics`` where the JSON is not as Delta writers write it for these columns.
    """
    parts = [_read_batch(batch, leaves) for batch in _batches(stats)]
    if not parts:
        parts = [_read_batch(pa.array([], pa.string()), leaves)]
    columns = tuple(
        ColumnBounds(
            name=first.name,
            span=pa.chunked_array([part.columns[index].span for part in parts]),
            minimum=pa.chunked_array([part.columns[index].minimum for part in parts]),
            maximum=pa.chunked_array([part.columns[index].maximum for part in parts]),
            null_count=pa.chunked_array([part.columns[index].null_count for part in parts]),
            is_text=first.is_text,
        )
        for index, first in enumerate(parts[0].columns)
    )
    return BulkStatistics(
        rows=pa.chunked_array([part.rows for part in parts]),
        columns=columns,
        contradictory=pa.chunked_array([part.contradictory for part in parts]),
    )


def _batches(stats: Any) -> Iterator[Any]:
    for start in range(0, len(stats), _BATCH):
        part = stats.slice(start, _BATCH)
        yield part.combine_chunks() if isinstance(part, pa.ChunkedArray) else part


def _read_batch(stats: Any, leaves: Sequence[Leaf]) -> BulkStatistics:
    present = stats.is_valid()
    table = _parse(stats, leaves)
    rows = pc.if_else(present, table.column("numRecords").chunk(0), pa.scalar(None, pa.int64()))
    negative = pc.fill_null(pc.less(rows, 0), False)
    contradictory = negative
    columns = []
    for leaf in leaves:
        kind = kind_of(leaf.type)
        if kind is None:
            continue
        low = _values(table.column("minValues"), leaf, kind)
        high = _values(table.column("maxValues"), leaf, kind)
        nulls = _dig(table.column("nullCount"), leaf)
        contradictory = pc.or_(contradictory, _contradiction(low, high, nulls, rows))
        build = _text_column if kind is Kind.TEXT else _number_column
        columns.append(build(leaf.name, kind, low, high, nulls, rows, present))
    return BulkStatistics(rows=rows, columns=tuple(columns), contradictory=contradictory)


def _parse(stats: Any, leaves: Sequence[Leaf]) -> Any:
    if len(stats) == 0:
        return _schema(leaves).empty_table().combine_chunks()
    if pc.any(pc.match_substring_regex(stats, _UNUSUAL)).as_py():
        raise UnusualStatistics("NaN, infinity, line breaks, NUL or surrogates")
    # Arrow crashes where a line is null, and takes no notice of one that is empty.
    if pc.any(pc.invert(pc.match_substring_regex(stats, r"^[ \t\r]*\{"))).as_py():
        raise UnusualStatistics("not a JSON object")
    if not threads_start():
        raise UnusualStatistics("no thread can start")
    lines = pc.fill_null(stats, "{}").cast(pa.large_string())
    whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
    joined = pc.binary_join(whole, pa.scalar("\n", pa.large_string()))
    try:
        table = pj.read_json(
            pa.BufferReader(joined[0].as_buffer()),
            pj.ReadOptions(block_size=max(len(joined[0].as_buffer()), 1)),
            pj.ParseOptions(explicit_schema=_schema(leaves), unexpected_field_behavior="ignore"),
        )
    except pa.ArrowException as error:
        raise UnusualStatistics(str(error)) from None
    if table.num_rows != len(stats):
        raise UnusualStatistics("more or fewer JSON objects than files")
    return table.combine_chunks()


def _schema(leaves: Sequence[Leaf]) -> Any:
    values: dict[str, Any] = {}
    counts: dict[str, Any] = {}
    for leaf in leaves:
        kind = kind_of(leaf.type)
        if kind is not None:
            _plant(values, leaf.path, _JSON_TYPES.get(kind, pa.float64()))
            _plant(counts, leaf.path, pa.int64())
    return pa.schema(
        [
            ("numRecords", pa.int64()),
            ("minValues", _struct(values)),
            ("maxValues", _struct(values)),
            ("nullCount", _struct(counts)),
        ]
    )


_JSON_TYPES = {
    Kind.TEXT: pa.string(),
    Kind.DATE: pa.string(),
    Kind.TIMESTAMP: pa.string(),
    Kind.BOOLEAN: pa.bool_(),
}


def _plant(tree: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = value


def _struct(tree: dict[str, Any]) -> Any:
    return pa.struct([(name, _struct(kind) if isinstance(kind, dict) else kind) for name, kind in tree.items()])


def _dig(column: Any, leaf: Leaf) -> Any:
    array = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    return pc.struct_field(array, list(leaf.path))


def _values(column: Any, leaf: Leaf, kind: Kind) -> Any:
    """Numbers for everything but strings."""
    values = _dig(column, leaf)
    if kind is Kind.BOOLEAN:
        return values.cast(pa.int8()).cast(pa.float64())
    if kind in (Kind.DATE, Kind.TIMESTAMP):
        return _microseconds(values, kind)
    return values


def _microseconds(values: Any, kind: Kind) -> Any:
    try:
        if kind is Kind.DATE:
            moments = values.cast(pa.date32()).cast(pa.timestamp("us"))
        else:
            zoned = pc.any(pc.match_substring_regex(values, "(Z|[+-][0-9:]+)$")).as_py()
            moments = values.cast(pa.timestamp("us", "UTC") if zoned else pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        raise UnusualStatistics(str(error)) from None
    return moments.cast(pa.int64()).cast(pa.float64(), safe=False)


def _contradiction(low: Any, high: Any, nulls: Any, rows: Any) -> Any:
    crossed = pc.fill_null(pc.less(high, low), False)
    # Arrow compares strings by their bytes, as Delta does.
    negative = pc.fill_null(pc.less(nulls, 0), False)
    too_many = pc.fill_null(pc.greater(nulls, rows), False)
    return pc.or_(crossed, pc.or_(negative, too_many))


def _number_column(name: str, kind: Kind, low: Any, high: Any, nulls: Any, rows: Any, present: Any) -> ColumnBounds:
    minimum = _floor(low, kind)
    maximum = _ceiling(high, kind)
    with np.errstate(over="ignore", invalid="ignore"):
        width = maximum - minimum
        exponent = np.frexp(width)[1] + 1
        exponent = exponent + (exponent & 1)
        span = np.where(np.isfinite(width) & (exponent < 1024), np.ldexp(1.0, np.minimum(exponent, 1023)), np.inf)
        span[width == 0] = 0.0
    all_null = _all_null(nulls, rows)
    minimum[all_null] = maximum[all_null] = 0.0
    span[all_null] = -1.0
    missing = ~np.asarray(present)
    return ColumnBounds(
        name,
        pa.array(span, mask=missing),
        pa.array(minimum, mask=missing),
        pa.array(maximum, mask=missing),
        nulls,
        is_text=False,
    )


def _floor(values: Any, kind: Kind) -> Any:
    numbers = np.array(pc.fill_null(values, float("-inf")))
    loose = _loose(numbers, kind)
    numbers[loose] = np.nextafter(numbers[loose], -np.inf)
    return numbers - single_margin(numbers) if kind is Kind.SINGLE else numbers


def _ceiling(values: Any, kind: Kind) -> Any:
    numbers = np.array(pc.fill_null(values, float("inf")))
    loose = _loose(numbers, kind)
    numbers[loose] = np.nextafter(numbers[loose], np.inf)
    if kind is Kind.SINGLE:
        return numbers + single_margin(numbers)
    if kind is Kind.TIMESTAMP:
        numbers += 1000
    return numbers


def _loose(numbers: Any, kind: Kind) -> Any:
    """Where a double may not be the value itself."""
    if kind in FLOATS:
        return np.zeros(len(numbers), dtype=bool)
    finite = np.isfinite(numbers)
    if kind is Kind.LONG_DECIMAL:
        return finite
    return finite & ((np.abs(numbers) >= _EXACT) | (numbers != np.floor(numbers)))


def _all_null(nulls: Any, rows: Any) -> Any:
    return np.array(pc.fill_null(pc.equal(nulls, rows), False))


def _text_column(name: str, kind: Kind, low: Any, high: Any, nulls: Any, rows: Any, present: Any) -> ColumnBounds:
    unusual = pc.any(
        pc.or_(
            pc.fill_null(pc.or_(pc.match_substring(low, "\0"), pc.match_substring(high, "\0")), False),
            pc.fill_null(pc.greater(pc.utf8_length(high), TEXT_LENGTH), False),
        )
    ).as_py()
    all_null = pa.array(_all_null(nulls, rows))
    if unusual:
        one_by_one = [
            bounds_of(kind, *values)
            for values in zip(low.to_pylist(), high.to_pylist(), nulls.to_pylist(), rows.to_pylist(), strict=True)
        ]
        minimum = pa.array([bounds.min_text for bounds in one_by_one], pa.string())
        maximum = pa.array([bounds.max_text for bounds in one_by_one], pa.string())
    else:
        minimum = pc.if_else(all_null, "", pc.utf8_slice_codeunits(pc.fill_null(low, ""), 0, TEXT_LENGTH))
        maximum = pc.if_else(all_null, pa.scalar(None, pa.string()), high)
    span = pc.if_else(all_null, -1.0, _text_spans(minimum, maximum))
    none = pa.scalar(None, pa.float64())
    return ColumnBounds(
        name,
        pc.if_else(present, span, none),
        pc.if_else(present, minimum, pa.scalar(None, pa.string())),
        maximum,
        nulls,
        is_text=True,
    )


def _text_spans(low: Any, high: Any) -> Any:
    """How many leading characters both bounds of each file share."""
    unbounded = np.array(high.is_null())
    lower = _code_points(low)
    upper = _code_points(pc.fill_null(high, ""))
    width = min(lower.shape[1], upper.shape[1])
    differs = (lower[:, :width] != upper[:, :width]) | (lower[:, :width] == 0)
    shared = np.where(differs.any(axis=1), differs.argmax(axis=1), width).astype(np.float64)
    shared[unbounded] = 0.0
    return pa.array(shared)


def _code_points(texts: Any) -> Any:
    characters = np.array(texts.to_pylist() or [""], dtype=np.str_)
    return (
        characters.view(np.uint32).reshape(len(characters), -1)[: len(texts)]
        if characters.itemsize
        else np.zeros((len(texts), 1), np.uint32)
    )
