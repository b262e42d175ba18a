"""Arrow types that Delta has no word for, and what to use in their place."""

import pyarrow as pa

MAX_DECIMAL_DIGITS = 38

_INSTEAD = (
    (pa.types.is_uint8, "int16"),
    (pa.types.is_uint16, "int32"),
    (pa.types.is_uint32, "int64"),
    (pa.types.is_uint64, "decimal128(20, 0), or int64 if the values fit"),
    (pa.types.is_float16, "float32"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_string_view, "string"),
    (pa.types.is_large_binary, "binary"),
    (pa.types.is_binary_view, "binary"),
    (pa.types.is_fixed_size_binary, "binary"),
    (pa.types.is_date64, "date32"),
    (pa.types.is_time, "int64 microseconds since midnight, or string"),
    (pa.types.is_duration, "int64 microseconds"),
    (pa.types.is_interval, "int64 columns for its parts, or string"),
    (pa.types.is_null, "the type that the column's values will have"),
    (pa.types.is_union, "a struct with one nullable field for each alternative"),
    (pa.types.is_map, "a map without keys_sorted"),
    (pa.types.is_large_list, "list"),
    (pa.types.is_list_view, "list"),
    (pa.types.is_large_list_view, "list"),
    (pa.types.is_fixed_size_list, "list"),
)


def refusal(arrow_type: pa.DataType) -> str:
    """Why a column of this type cannot be stored, and what can."""
    return f"Delta has no type for Arrow's {arrow_type}; use {_instead(arrow_type)}"


def _instead(arrow_type: pa.DataType) -> str:
    for holds, replacement in _INSTEAD:
        if holds(arrow_type):
            return replacement
    if pa.types.is_decimal(arrow_type):
        return _decimal(arrow_type.precision, arrow_type.scale)
    if pa.types.is_timestamp(arrow_type):
        return str(pa.timestamp("us", tz=arrow_type.tz))
    if pa.types.is_dictionary(arrow_type) or pa.types.is_run_end_encoded(arrow_type):
        return f"the plain values ({arrow_type.value_type})"
    if isinstance(arrow_type, pa.BaseExtensionType):
        return f"its storage type ({arrow_type.storage_type})"
    return "another type"


def _decimal(precision: int, scale: int) -> str:
    digits, fraction = max(precision, scale, precision - scale), max(scale, 0)
    if digits <= MAX_DECIMAL_DIGITS:
        return f"decimal128({digits}, {fraction})"
    return f"a decimal128 of at most {MAX_DECIMAL_DIGITS} digits with a scale from 0 to its precision, or string"
