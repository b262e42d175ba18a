"""Column mapping: the physical names that a table's files and statistics use, where they differ from the logical."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

_PHYSICAL_NAME = b"delta.columnMapping.physicalName"


def is_mapped(configuration: Mapping[str, str]) -> bool:
    return configuration.get("delta.columnMapping.mode", "none") != "none"


def physical_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with every column, also inside structs, under its physical name."""
    return pa.schema([_physical(field) for field in schema])


def _physical(field: pa.Field) -> Any:
    name = (field.metadata or {}).get(_PHYSICAL_NAME, field.name.encode()).decode()
    kind = pa.struct([_physical(child) for child in field.type]) if pa.types.is_struct(field.type) else field.type
    return pa.field(name, kind, field.nullable, field.metadata)
