"""A projection as Spark's own expressions, so that rows never pass through Python."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, MapType, StructField, StructType

from lakelog.schema.evolution.projection import Conversion, Kind, Part, Parts
from lakelog.schema.mapping import column_id
from lakelog.schema.spark import to_spark
from lakelog.schema.spark_text import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType

_UTC_JSON = {**JSON_OPTIONS, "timeZone": "UTC"}


def columns(parts: Parts, sources: Sequence["Column"]) -> list["Column"]:
    """The target's columns, each under its name, out of the source's."""
    return [_column(part, sources).alias(part.field.name) for part in parts]


def quoted(name: str) -> str:
    """A column's name as Spark reads it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"


def spark_type(kind: pa.DataType) -> "DataType":
    """A type that tables have, as Spark's."""
    return to_spark(pa.schema([pa.field("value", kind)]))["value"].dataType


def field_id(field: pa.Field) -> dict[str, int]:
    """Metadata with which Spark writes a mapped column's id into Parquet, too."""
    known = column_id(field)
    return {} if known is None else {"parquet.field.id": known}


def with_field_ids(field: pa.Field) -> "DataType":
    """A mapped column's type with the ids of what is in it."""
    return _with_ids(spark_type(field.type), field.type)


def _with_ids(spark: "DataType", kind: pa.DataType) -> "DataType":
    if isinstance(spark, StructType):
        return StructType(
            [
                StructField(each.name, _with_ids(each.dataType, child.type), each.nullable, field_id(child))
                for each, child in zip(spark.fields, kind, strict=True)
            ]
        )
    if isinstance(spark, ArrayType):
        return ArrayType(_with_ids(spark.elementType, kind.value_type), spark.containsNull)
    if isinstance(spark, MapType):
        key, value = _with_ids(spark.keyType, kind.key_type), _with_ids(spark.valueType, kind.item_type)
        return MapType(key, value, spark.valueContainsNull)
    return spark


def local_time(moment: "Column") -> "Column":
    """An instant as the date and time that clocks show in UTC, whatever the session's zone is."""
    start = F.expr("TIMESTAMP_NTZ '1970-01-01 00:00:00'")
    return F.timestamp_add("MICROSECOND", F.unix_micros(moment), start)


def nulls_in(field: pa.Field, value: "Column") -> "Column | None":
    """Whether a value breaks a NOT NULL of its column, or of something in it; None if nothing in it is NOT NULL."""
    kind = field.type
    inside: list[Column] = []
    if pa.types.is_struct(kind):
        inside = [found for child in kind if (found := nulls_in(child, value.getField(child.name))) is not None]
    elif pa.types.is_list(kind) and _asks(kind.value_field):
        inside = [F.exists(value, lambda each: _known(nulls_in(kind.value_field, each)))]
    elif pa.types.is_map(kind) and _asks(kind.item_field):
        inside = [F.exists(F.map_values(value), lambda each: _known(nulls_in(kind.item_field, each)))]
    broken = None if not inside else value.isNotNull() & _any(inside)
    if field.nullable:
        return broken
    return value.isNull() if broken is None else value.isNull() | broken


def _asks(field: pa.Field) -> bool:
    return nulls_in(field, F.lit(None)) is not None


def _known(condition: "Column | None") -> "Column":
    assert condition is not None, "asked before"
    return condition


def _any(conditions: Sequence["Column"]) -> "Column":
    found = conditions[0]
    for condition in conditions[1:]:
        found = found | condition
    return F.coalesce(found, F.lit(False))


def _column(part: Part, sources: Sequence["Column"]) -> "Column":
    if part.source is None or part.conversion is None:
        return F.lit(None).cast(spark_type(part.field.type))
    return _converted(sources[part.source], part.conversion)


def _converted(value: "Column", conversion: Conversion) -> "Column":
    if conversion.is_identity:
        return value
    if conversion.kind is Kind.THEN:
        for step in conversion.steps:
            value = _converted(value, step)
        return value
    if conversion.kind is Kind.CAST:
        return value.cast(spark_type(conversion.target))
    if conversion.kind is Kind.TEXT:
        return _text(value, conversion.source)
    if conversion.kind is Kind.STRUCT:
        return _struct(value, conversion)
    if conversion.kind is Kind.LIST:
        (element,) = conversion.parts
        return F.transform(value, lambda each: _column(element, [each]))
    key, item = conversion.parts
    keyed = value if _is_identity(key) else F.transform_keys(value, lambda name, _: _column(key, [name]))
    return keyed if _is_identity(item) else F.transform_values(keyed, lambda _, each: _column(item, [each, each]))


def _is_identity(part: Part) -> bool:
    return part.conversion is not None and part.conversion.is_identity


def _struct(value: "Column", conversion: Conversion) -> "Column":
    assert conversion.source is not None
    sources = [value.getField(field.name) for field in conversion.source]
    built = F.struct(*columns(conversion.parts, sources))
    return F.when(value.isNotNull(), built)


def _text(value: "Column", source: pa.DataType | None) -> "Column":
    """As ``spark_text`` has it."""
    assert source is not None
    if pa.types.is_nested(source):
        return F.to_json(value, _UTC_JSON)
    if pa.types.is_timestamp(source) and source.tz is not None:
        value = local_time(value)
    return value.cast("string")
