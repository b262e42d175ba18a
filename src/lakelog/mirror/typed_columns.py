"""Statistics and partition values of many files, out of the log's texts, as Arrow structs with the columns' types."""

import json
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from lakelog.log.pruning.bounds import Kind, kind_of
from lakelog.log.state import TableMetadata
from lakelog.mirror.typed_values import bound, partition_value
from lakelog.threads import threads_start

_ONE_BY_ONE = 64
_UNUSUAL = r"\n|NaN|Infinity"
_MAX_INT64 = (1 << 63) - 1


class TypedStatistics:
    """Delta's ``stats_parsed``. A bound that is no value of its column's type is null, and so is NaN."""

    def __init__(self, metadata: TableMetadata, *, tight_bounds: bool) -> None:
        values: dict[str, Any] = {}
        counts: dict[str, Any] = {}
        for leaf in metadata.indexed:
            if leaf.path[0] in metadata.partition_columns:
                continue
            if kind_of(leaf.type) not in (None, Kind.BOOLEAN):
                _plant(values, leaf.path, leaf.type)
            _plant(counts, leaf.path, pa.int64())
        fields = [("numRecords", pa.int64())]
        if tight_bounds:
            fields.append(("tightBounds", pa.bool_()))
        if values:
            fields += [("minValues", _struct(values)), ("maxValues", _struct(values))]
        if counts:
            fields.append(("nullCount", _struct(counts)))
        self.type = pa.struct(fields)
        self._json_schema = pa.schema([(name, _json_type(kind)) for name, kind in fields])

    def read(self, stats: Any) -> Any:
        """A struct array as long as the array of JSON texts; null where that is null or no JSON object."""
        # Arrow goes by lines, and takes no notice of one that is empty.
        usual = pc.and_(pc.starts_with(stats, "{"), pc.invert(pc.match_substring_regex(stats, _UNUSUAL)))
        usual = pc.fill_null(usual, True)
        if pc.all(usual).as_py():
            return self._read_usual(stats)
        unusual = pc.invert(usual)
        read = pa.concat_arrays([self._read_usual(stats.filter(usual)), self._one_by_one(stats.filter(unusual))])
        places = pa.concat_arrays([pc.indices_nonzero(usual), pc.indices_nonzero(unusual)])
        return read.take(pc.sort_indices(places))

    def _read_usual(self, stats: Any) -> Any:
        try:
            return self._read_together(stats)
        except pa.ArrowException:
            if len(stats) <= _ONE_BY_ONE:
                return self._one_by_one(stats)
        half = len(stats) // 2
        return pa.concat_arrays([self._read_usual(stats.slice(0, half)), self._read_usual(stats.slice(half))])

    def _read_together(self, stats: Any) -> Any:
        if len(stats) == 0:
            return pa.array([], self.type)
        if not threads_start():
            raise pa.ArrowException("no thread can start")
        lines = pc.fill_null(stats, "{}").cast(pa.large_string())
        whole = pa.ListArray.from_arrays(pa.array([0, len(lines)], pa.int32()), lines)
        joined = pc.binary_join(whole, pa.scalar("\n", pa.large_string()))[0].as_buffer()
        table = pj.read_json(
            pa.BufferReader(joined),
            pj.ReadOptions(block_size=len(joined)),
            pj.ParseOptions(explicit_schema=self._json_schema, unexpected_field_behavior="ignore"),
        )
        if table.num_rows != len(stats):
            raise pa.ArrowInvalid("more or fewer JSON objects than files")
        # Also that decimals have no more digits than their type.
        table.validate(full=True)
        children = [
            _typed(column.combine_chunks(), field.type, upper=field.name == "maxValues")
            for column, field in zip(table.columns, self.type, strict=True)
        ]
        return pa.StructArray.from_arrays(children, fields=list(self.type), mask=stats.is_null())

    def _one_by_one(self, stats: Any) -> Any:
        return pa.array([self._typed_object(text) for text in stats.to_pylist()], self.type)

    def _typed_object(self, text: str | None) -> dict[str, Any] | None:
        if text is None:
            return None
        try:
            said = json.loads(text, parse_float=Decimal)
        except (ValueError, ArithmeticError, RecursionError):
            return None
        if not isinstance(said, dict):
            return None
        return {
            field.name: _pruned(said.get(field.name), field.type, _READERS.get(field.name, _count))
            for field in self.type
        }


def typed_partitions(metadata: TableMetadata, values: Sequence[Mapping[str, str | None]]) -> Any:
    """Delta's ``partitionValues_parsed``, a struct for each of some files' values by physical name.

    None if one is no value of its column's type, since null would be another value.
    """
    fields = [
        metadata.physical.field(name).remove_metadata().with_nullable(True) for name in metadata.partition_columns
    ]
    columns = []
    for field in fields:
        texts = [found.get(field.name) or None for found in values]
        typed = [None if text is None else partition_value(text, field.type) for text in texts]
        if any(value is None and text is not None for value, text in zip(typed, texts, strict=True)):
            return None
        columns.append(pa.array(typed, field.type))
    return pa.StructArray.from_arrays(columns, fields=fields)


def _plant(tree: dict[str, Any], path: Sequence[str], kind: Any) -> None:
    for part in path[:-1]:
        tree = tree.setdefault(part, {})
    tree[path[-1]] = kind


def _struct(tree: Mapping[str, Any]) -> Any:
    return pa.struct([(name, _struct(kind) if isinstance(kind, dict) else kind) for name, kind in tree.items()])


def _json_type(kind: Any) -> Any:
    """What Arrow's reader of JSON is asked for. It knows no dates, and moves local times by a zone that they name."""
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _json_type(field.type)) for field in kind])
    is_local = pa.types.is_timestamp(kind) and kind.tz is None
    return pa.string() if is_local or pa.types.is_date(kind) else kind


def _typed(array: Any, kind: Any, *, upper: bool) -> Any:
    """What was read as ``_json_type`` in its own type."""
    if pa.types.is_struct(kind):
        children = [_typed(array.field(index), field.type, upper=upper) for index, field in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if pa.types.is_floating(kind):
        # JSON has no infinity: it was too large a number.
        return pc.if_else(pc.is_finite(array), array, pa.scalar(None, kind))
    return array if array.type == kind else array.cast(kind)


def _pruned(value: Any, kind: Any, read: Callable[[Any, Any], Any]) -> Any:
    """The parts of a JSON value that the type has, each read by its own type."""
    if not pa.types.is_struct(kind):
        return read(value, kind)
    if not isinstance(value, dict):
        return None
    return {field.name: _pruned(value.get(field.name), field.type, read) for field in kind}


def _count(value: Any, kind: Any) -> int | bool | None:
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else None
    return value if type(value) is int and 0 <= value <= _MAX_INT64 else None


_READERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "minValues": lambda value, kind: bound(value, kind, upper=False),
    "maxValues": lambda value, kind: bound(value, kind, upper=True),
}
