"""Collations of strings, which Delta keeps in the metadata of columns whose type it calls ``string``."""

import pyarrow as pa

from lakelog.schema import field_metadata
from lakelog.schema.mapping import columns
from lakelog.strict_json import describe

COLLATIONS = "__COLLATIONS"
DEFAULT_COLLATION = "UTF8_BINARY"
"""Compares strings byte by byte, as Lakelog does."""


def collated_columns(schema: pa.Schema) -> dict[str, str]:
    """The collations that compare in another way, by column, as the metadata names it: ``tags.element`` in a list."""
    found: dict[str, str] = {}
    for column in columns(schema):
        if column.metadata is None or COLLATIONS.encode() not in column.metadata:
            continue
        said = field_metadata.to_json_object(column.metadata)[COLLATIONS]
        named = said if isinstance(said, dict) else {column.name: describe(said)}
        found |= {place: str(name) for place, name in named.items() if str(name).split(".", 1)[-1] != DEFAULT_COLLATION}
    return found
