"""Statistics that a Delta log has and that cannot be trusted, found among those of thousands of files.

Texts are looked at together as far as they are alike. What seems odd then is looked at closely, one by one.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from lakelog.log.validation.fields import MAX_INT64
from lakelog.log.validation.stats import checked_stats
from lakelog.log.validation.text import MAX_TEXT_BYTES
from lakelog.strict_json import encode_json, loads_strict
from lakelog.threads import threads_start

_FEW = 64
_BATCH = 4096
_SAMPLES = 16
# What Arrow's JSON lets through and the standard does not, or databases cannot hold.
_ODD = r"NaN|Infinity|\n|\\u(?:0000|[dD][89a-fA-F])"
_PARTS = frozenset({"numRecords", "tightBounds", "minValues", "maxValues", "nullCount"})


def sound_stats(stats: pa.Array, vectors: pa.Array) -> tuple[pa.Array, int]:
    """The statistics without those that are no JSON or contradict themselves, and how many these were.

    Of a file with a deletion vector the number of rows is kept where it can be, since it cannot do without.
    """
    parts, dropped = [], 0
    for start in range(0, len(stats), _BATCH):
        batch = stats.slice(start, _BATCH)
        suspects = pc.indices_nonzero(pc.and_(batch.is_valid(), pc.invert(_surely_sound(batch))))
        texts = batch.take(suspects).to_pylist()
        found = [
            _mended(text, vector)
            for text, vector in zip(texts, vectors.slice(start, _BATCH).take(suspects).to_pylist(), strict=True)
        ]
        changed = sum(new != old for new, old in zip(found, texts, strict=True))
        if changed:
            mask = pc.is_in(pa.array(range(len(batch)), suspects.type), suspects)
            batch = pc.replace_with_mask(batch, mask, pa.array(found, batch.type))
            dropped += changed
        parts.append(batch)
    return pa.concat_arrays(parts) if parts else stats, dropped


def _mended(text: str, vector: bool) -> str | None:
    if not checked_stats(text, "stats")[1]:
        return text
    if not vector:
        return None
    try:
        # Python's own reader takes NaN and repeated keys.
        records = json.loads(text)["numRecords"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return encode_json({"numRecords": records}) if type(records) is int and 0 <= records <= MAX_INT64 else None


def _surely_sound(stats: pa.Array) -> pa.Array:
    """For each text whether it is sound. False says only that it needs a closer look."""
    count = len(stats)
    nothing = pa.repeat(False, count)
    if count < _FEW:
        return nothing
    odd = pc.or_(
        pc.match_substring_regex(stats, _ODD),
        pc.or_(
            pc.invert(pc.match_substring_regex(stats, r"^[ \t\r]*\{")),
            pc.greater(pc.binary_length(stats), MAX_TEXT_BYTES),
        ),
    )
    plain = pc.invert(pc.fill_null(odd, True))
    table = _parsed(stats.filter(plain))
    if table is None:
        return nothing
    return pc.replace_with_mask(nothing, plain, _consistent(table))


def _parsed(stats: pa.Array) -> pa.Table | None:
    """The texts as a table, or None if they are not as alike as Delta's writers write them."""
    samples = [stats[index].as_py() for index in range(0, len(stats), max(1, len(stats) // _SAMPLES))]
    try:
        parsed = [loads_strict(text) for text in samples]
    except ValueError:
        return None
    if not threads_start():
        return None
    lines = stats.cast(pa.large_string())
    whole = pa.LargeListArray.from_arrays(pa.array([0, len(lines)], pa.int64()), lines)
    buffer = pc.binary_join(whole, pa.scalar("\n", pa.large_string()))[0].as_buffer()
    try:
        table = pj.read_json(
            pa.BufferReader(buffer),
            pj.ReadOptions(block_size=max(len(buffer), 1)),
            pj.ParseOptions(explicit_schema=pa.schema(list(_struct(parsed)))),
        )
    except pa.ArrowException:
        return None
    return table if table.num_rows == len(stats) else None


def _struct(samples: Sequence[dict[str, Any]]) -> Any:
    """A type for JSON objects like these. Without it, Arrow would take some texts for times."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    values = {name: [sample[name] for sample in samples if sample.get(name) is not None] for name in names}
    return pa.struct([(name, kind) for name in names if (kind := _kind(values[name])) is not None])


def _kind(values: list[Any]) -> Any:
    kinds = {type(value) for value in values}
    if kinds == {dict}:
        return _struct(values)
    return pa.string() if kinds == {str} else None


def _consistent(table: pa.Table) -> pa.Array:
    """For each row whether counts and bounds are possible. Anything that Delta does not have is not."""
    root = table.combine_chunks().to_struct_array().combine_chunks()
    fields = _fields(root)
    count = len(root)
    good = pa.repeat(True, count)
    for name in fields.keys() - _PARTS:
        good = pc.and_(good, fields[name].is_null())
    records = fields.get("numRecords", pa.nulls(count))
    tight = fields.get("tightBounds", pa.nulls(count))
    if not (_is(records, pa.int64()) and _is(tight, pa.bool_())):
        return pa.repeat(False, count)
    records = pc.fill_null(records.cast(pa.int64()), MAX_INT64)
    good = pc.and_(good, pc.greater_equal(records, 0))
    parts = [fields.get(name, pa.nulls(count)) for name in ("nullCount", "minValues", "maxValues")]
    if not all(pa.types.is_null(part.type) or pa.types.is_struct(part.type) for part in parts):
        return pa.repeat(False, count)
    for check in (*_counts(parts[0], records), *_bounds(parts[1], parts[2])):
        good = pc.and_(good, pc.fill_null(check, True))
    return good


def _counts(part: pa.Array, records: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_struct(part.type):
        for child in _fields(part).values():
            yield from _counts(child, records)
    elif pa.types.is_int64(part.type):
        yield pc.and_(pc.greater_equal(part, 0), pc.less_equal(part, records))
    elif not pa.types.is_null(part.type):
        yield part.is_null()


def _bounds(low: pa.Array, high: pa.Array) -> Iterator[pa.Array]:
    if pa.types.is_null(low.type) or pa.types.is_null(high.type):
        return
    if pa.types.is_struct(low.type) and pa.types.is_struct(high.type):
        lows, highs = _fields(low), _fields(high)
        for name in lows.keys() & highs.keys():
            yield from _bounds(lows[name], highs[name])
    elif pa.types.is_boolean(low.type) and pa.types.is_boolean(high.type):
        yield pc.or_(pc.invert(low), high)
    elif low.type == high.type and not pa.types.is_nested(low.type):
        yield pc.less_equal(low, high)
    else:
        yield pc.or_(low.is_null(), high.is_null())


def _fields(struct: pa.StructArray) -> dict[str, pa.Array]:
    return {field.name: array for field, array in zip(struct.type, struct.flatten(), strict=True)}


def _is(array: pa.Array, kind: pa.DataType) -> bool:
    return bool(pa.types.is_null(array.type) or array.type == kind)
