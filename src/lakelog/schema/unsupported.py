"""Arrow types that Delta has no word for: which type holds their values, or what to use in their place."""

import pyarrow as pa

MAX_DECIMAL_DIGITS = 38

_STORED_AS = {
    pa.uint8().id: "int16",
    pa.uint16().id: "int32",
    pa.uint32().id: "int64",
    pa.float16().id: "float32",
    pa.large_string().id: "string",
    pa.string_view().id: "string",
    pa.large_binary().id: "binary",
    pa.binary_view().id: "binary",
    pa.binary(1).id: "binary",
    pa.date64().id: "date32",
}
"""The type that holds all values of another, by its id and by Arrow's name for it."""
_UINT64 = pa.decimal128(20, 0)

_INSTEAD = (
    (pa.types.is_uint64, f"{_UINT64}, or int64 if the values fit"),
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


def stored_as(arrow_type: pa.DataType) -> pa.DataType | None:
    """The type in which a table keeps the values of a simple type that Delta lacks, or None if there is none."""
    if name := _STORED_AS.get(arrow_type.id):
        return pa.type_for_alias(name)
    if pa.types.is_uint64(arrow_type):
        return _UINT64
    if pa.types.is_timestamp(arrow_type):
        return pa.timestamp("us", tz=arrow_type.tz and "UTC")
    if pa.types.is_decimal(arrow_type):
        return _decimal(arrow_type.precision, arrow_type.scale)
    if isinstance(arrow_type, pa.BaseExtensionType) and _is_text(arrow_type.storage_type):
        return pa.string()
    return None


def refusal(arrow_type: pa.DataType) -> str:
    """Why a column of this type cannot be stored, and what can."""
    return f"Delta has no type for Arrow's {arrow_type}; use {_instead(arrow_type)}"


def _instead(arrow_type: pa.DataType) -> str:
    if name := _STORED_AS.get(arrow_type.id):
        return name
    for holds, replacement in _INSTEAD:
        if holds(arrow_type):
            return replacement
    if pa.types.is_decimal(arrow_type):
        fallback = (
            f"a decimal128 of at most {MAX_DECIMAL_DIGITS} digits with a scale from 0 to its precision, or string"
        )
        return str(_decimal(arrow_type.precision, arrow_type.scale) or fallback)
    if pa.types.is_timestamp(arrow_type):
        return str(pa.timestamp("us", tz=arrow_type.tz))
    if pa.types.is_dictionary(arrow_type) or pa.types.is_run_end_encoded(arrow_type):
        return f"the plain values ({arrow_type.value_type})"
    if isinstance(arrow_type, pa.BaseExtensionType):
        return f"its storage type ({arrow_type.storage_type})"
    return "another type"


def _decimal(precision: int, scale: int) -> pa.DataType | None:
    digits, fraction = max(precision, scale, precision - scale), max(scale, 0)
    return pa.decimal128(digits, fraction) if digits <= MAX_DECIMAL_DIGITS else None


def _is_text(arrow_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow_type)) or _STORED_AS.get(arrow_type.id) == "string"
