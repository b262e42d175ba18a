"""Statistics as other readers get them: a file has both bounds of all columns, or no bounds.

delta-rs takes a bound that is missing, and NaN, for one that no row meets, as soon as any column of the file has
bounds: a filter on the column finds no rows of the file. The catalog keeps what is known.
"""

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from lakelog.errors import ValidationError
from lakelog.log.pruning.bounds import FLOATS, Kind, kind_of
from lakelog.log.state import TableMetadata
from lakelog.schema.evolution.alter import STATS_COLUMNS, parse_columns
from lakelog.schema.mapping import physical_schema
from lakelog.strict_json import encode_json

_BOUNDS = ("minValues", "maxValues")
# As Lakelog writes them, without nested columns and escaped characters: what is in quotes is a whole name or value.
_flat = re.compile(r'\{"numRecords":\d+,"minValues":\{([^{}\\]*)\},"maxValues":\{([^{}\\]*)\},"nullCount":\{').match
NO_SCHEMAS: Mapping[int, pa.Schema] = MappingProxyType({})
_is_plain = re.compile(r"\w+").fullmatch


class SharedStatistics:
    """Statistics of files of a table, as its mirror publishes them."""

    def __init__(self, metadata: TableMetadata, schemas: Mapping[int, pa.Schema] = NO_SCHEMAS) -> None:
        """``schemas`` are those that led to the table's, as far as files were written under them."""
        self._columns = {version: frozenset(physical_schema(schema).names) for version, schema in schemas.items()}
        chosen = _chosen(metadata)
        # Readers do not look at bounds inside of structs for this.
        self._kinds = {
            leaf.path[0]: kind
            for leaf in metadata.measured
            if len(leaf.path) == 1
            and leaf.path[0] not in metadata.partition_columns
            and (chosen is None or leaf.path[0] in chosen)
            and (kind := kind_of(leaf.type)) is not None
        }
        self._keys = [f'"{name}":' for name in self._kinds]
        self._is_plain = all(map(_is_plain, self._kinds))

    def of(self, text: str, schema_version: int) -> str:
        """A file's statistics: the same text, or one without bounds if one is missing."""
        if self._is_plain and (found := _flat(text)) is not None:
            lows, highs = found.groups()
            is_odd = "null" in lows or "null" in highs or '"NaN"' in lows or '"NaN"' in highs
            if not is_odd and all(key in lows and key in highs for key in self._keys):
                return text
        try:
            stats = json.loads(text)
        except (ValueError, RecursionError):
            return text
        if not isinstance(stats, dict) or not any(stats.get(name) for name in _BOUNDS):
            return text
        if self._is_whole(stats, self._columns.get(schema_version)):
            return text
        return encode_json({name: value for name, value in stats.items() if name not in _BOUNDS})

    def of_all(self, texts: Any, schema_versions: Any) -> Any:
        """Statistics of many files, as an array."""
        pairs = zip(texts.to_pylist(), schema_versions.to_pylist(), strict=True)
        return pa.array([None if text is None else self.of(text, version) for text, version in pairs], pa.string())

    def _is_whole(self, stats: dict[str, Any], columns: frozenset[str] | None) -> bool:
        """``columns`` are those that the file was written with, if they are known."""
        lows, highs, nulls = (_members(stats.get(name)) for name in (*_BOUNDS, "nullCount"))
        for name, kind in self._kinds.items():
            bounds = [lows.get(name), highs.get(name)]
            if None not in bounds and not (kind in FLOATS and "NaN" in bounds):
                continue
            # NULL in all rows, also because the file is older than the column.
            count = nulls.get(name)
            is_empty = count is not None and count == stats.get("numRecords")
            is_absent = columns is not None and name not in columns and count is None
            # delta-spark writes no bounds of booleans: all of its files would lose all bounds.
            is_usual = kind is Kind.BOOLEAN or is_absent
            if not is_empty and not (is_usual and bounds == [None, None]):
                return False
        return True


def _chosen(metadata: TableMetadata) -> set[str] | None:
    """The columns of which a property says that only they have bounds, by physical name; None if there is none."""
    listed = metadata.action.configuration.get(STATS_COLUMNS, "")
    try:
        names = {path[0].lower() for path in parse_columns(listed).values()} if listed.strip() else None
    except ValidationError:
        return None
    if names is None:
        return None
    pairs = zip(metadata.schema.names, metadata.physical.names, strict=True)
    return {physical for logical, physical in pairs if logical.lower() in names}


def _members(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
