"""Tables of other formats that become datasets where they are, by the identifiers that Delta's users know."""

from typing import TYPE_CHECKING

from pyspark.sql.types import DataType, StructType

from lakelog.dataset import Dataset
from lakelog.errors import ValidationError, Violation
from lakelog.lake import Lake
from lakelog.schema.spark import from_spark
from lakelog.spark.identifiers import format_and_path, name_for

if TYPE_CHECKING:
    import pyarrow as pa


def convert(lake: Lake, identifier: str, partition_schema: "str | StructType | None", name: str | None) -> Dataset:
    """Raises ``ValidationError`` for what is not ``parquet.`/path` `` or ``delta.`/path` ``."""
    found = format_and_path(identifier) if isinstance(identifier, str) else None
    if found is None or found[0] not in ("parquet", "delta"):
        message = "expected parquet.`/path/to/files` or delta.`/path/to/table`"
        raise ValidationError("conversion", [Violation(repr(identifier), message)])
    kind, path = found
    if (known := lake.dataset_at(path)) is not None and name in (None, known.name):
        # It was converted before.
        return known
    chosen = name or name_for(lake, path)
    if kind == "delta":
        dataset = lake.import_delta(path, chosen).dataset
        assert dataset is not None, "it was not a dry run"
        return dataset
    return lake.register_parquet(path, chosen, _types(partition_schema))


def _types(schema: "str | StructType | None") -> "dict[str, pa.DataType] | None":
    if schema is None:
        return None
    struct = schema if isinstance(schema, StructType) else DataType.fromDDL(schema)
    if not isinstance(struct, StructType):
        raise ValidationError("conversion", [Violation("partitionSchema", f"expected columns, got {schema!r}")])
    return {field.name: field.type for field in from_spark(struct)}
