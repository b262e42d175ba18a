"""Arrow schemas, and the other forms in which Lakelog stores and speaks them."""

from lakelog.schema.delta import from_delta_json, to_delta_json
from lakelog.schema.leaves import Leaf, indexed_leaves, join_path, leaf_columns, parse_path
from lakelog.schema.serialize import from_bytes, to_bytes

__all__ = [
    "Leaf",
    "from_bytes",
    "from_delta_json",
    "indexed_leaves",
    "join_path",
    "leaf_columns",
    "parse_path",
    "to_bytes",
    "to_delta_json",
]
