"""Values as the text that Spark gives them: ``CAST(x AS STRING)``, and ``to_json`` for structs, lists and maps.

This is Spark 4 with ANSI mode on and UTC as the session's zone. ``to_json`` has its own ways: it leaves out the null
fields of structs, and writes dates and times that are keys of a map as the days and microseconds since 1970. Other
times have all six digits, as with ``JSON_OPTIONS``: by default ``to_json`` cuts them to milliseconds.

Floating-point numbers have the fewest digits that give the number back, as in Java 19 and later. Spark on an older Java
sometimes writes more (1.9999999999999998E23 for 2.0E23), and sometimes another last digit.
"""

import base64
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

JSON_OPTIONS = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""What Spark's ``to_json`` has to be told to give the same text."""

_DAY = 86_400_000_000
_MONTHS = "datetime64[M]"
_DAYS = "datetime64[D]"
_CONTROL = {chr(code): f"\\u{code:04X}" for code in range(0x20)}
_ESCAPES = {"\\": "\\\\", '"': '\\"'} | _CONTROL | {char: json.dumps(char)[1:-1] for char in "\b\t\n\f\r"}
"""As Jackson writes them, the backslash first."""


def has_text(kind: pa.DataType) -> bool:
    """Whether all values of a type have a text. Binary ones have none by themselves; in JSON they are base64."""
    return not pa.types.is_binary(kind) and _has_json(kind)


def _has_json(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return False
    if pa.types.is_struct(kind):
        return all(_has_json(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _has_json(kind.value_type)
    if pa.types.is_map(kind):
        key = kind.key_type
        return not (pa.types.is_nested(key) or pa.types.is_binary(key)) and _has_json(kind.item_type)
    return True


def spark_text(array: pa.Array) -> pa.Array:
    """The text of every value; null for null. The types are those that tables have.

    Raises ``TypeError`` for types without a text: binary, and maps whose keys are binary or nested.
    """
    kind = array.type
    if pa.types.is_binary(kind):
        raise TypeError("Spark's text of binary values cannot be turned back into them")
    if pa.types.is_nested(kind):
        return _json(array)
    if pa.types.is_floating(kind):
        return _float_text(array)
    if pa.types.is_decimal(kind):
        return _decimal_text(array)
    if pa.types.is_date(kind):
        return _date_text(array)
    if pa.types.is_timestamp(kind):
        date, time = _date_and_time(array)
        return _join(date, " ", pc.utf8_rtrim(pc.utf8_rtrim(time, "0"), "."))
    return array.cast(pa.string())


def _float_text(array: pa.Array) -> pa.Array:
    """As Java has it: plain from 0.001 to 10 million and for zero, otherwise with an exponent."""
    shortest = array.cast(pa.string())
    whole = pc.invert(pc.match_substring(shortest, "."))
    text = pc.if_else(whole, _join(shortest, ".0"), shortest)
    size = pc.abs(array)
    plain = pc.or_(pc.equal(size, 0), pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)))
    others = shortest.filter(pc.invert(plain)).dictionary_encode()
    if len(others) == 0:
        return text
    number = np.float32 if pa.types.is_float32(array.type) else np.float64
    texts = pa.array([_with_exponent(item, number) for item in others.dictionary.to_pylist()], pa.string())
    return pc.replace_with_mask(text, pc.invert(plain), texts.take(others.indices))


def _with_exponent(shortest: str, number: type[np.floating]) -> str:
    if shortest.endswith(("nan", "inf")):
        return shortest.replace("inf", "Infinity").replace("nan", "NaN")
    sign, digits, _ = (value := Decimal(shortest).normalize()).as_tuple()
    if len(digits) == 1:
        # Java writes at least two digits, and of all numbers with two it takes the nearest: 4.9E-324, not 5E-324.
        value = Decimal(f"{float(number(shortest)):.1e}")
        digits = value.as_tuple().digits
    mantissa = "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{digits[0]}.{mantissa}E{value.adjusted()}"


def _decimal_text(array: pa.Array) -> pa.Array:
    """With all digits of the scale and without an exponent, which Arrow would use for small numbers."""
    scale = array.type.scale
    if scale == 0:
        return array.cast(pa.string())
    whole_type = pa.decimal128(array.type.precision, 0)
    unscaled = pa.Array.from_buffers(whole_type, len(array), array.buffers(), offset=array.offset).cast(pa.string())
    digits = pc.utf8_lpad(pc.utf8_ltrim(unscaled, "-"), scale + 1, "0")
    sign = pc.if_else(pc.starts_with(unscaled, "-"), "-", "")
    return _join(sign, pc.utf8_slice_codeunits(digits, 0, -scale), ".", pc.utf8_slice_codeunits(digits, -scale))


def _date_text(array: pa.Array) -> pa.Array:
    days = array.cast(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
    return _only_valid(array, _dates(days.astype(np.int64)))


def _date_and_time(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The text of the date, and of the time with six digits after the point."""
    micros = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    time = pa.array(micros % _DAY).cast(pa.time64("us")).cast(pa.string())
    return _only_valid(array, _dates(micros // _DAY)), time


def _dates(days: np.ndarray) -> pa.Array:
    """Days since 1970 as text, also beyond the years that Arrow and Python know."""
    months = days.astype(_DAYS).astype(_MONTHS)
    since = months.astype(np.int64)
    year, month = pa.array(since // 12 + 1970), pa.array(since % 12 + 1)
    day = pa.array(days - months.astype(_DAYS).astype(np.int64) + 1)
    sign = pc.if_else(pc.less(year, 0), "-", pc.if_else(pc.greater(year, 9999), "+", ""))
    return _join(sign, _padded(pc.abs(year), 4), "-", _padded(month, 2), "-", _padded(day, 2))


def _padded(numbers: pa.Array, width: int) -> pa.Array:
    return pc.utf8_lpad(numbers.cast(pa.string()), width, "0")


def _json(array: pa.Array) -> pa.Array:
    """The JSON text of every value; null for null, which is for the parent to leave out or to write."""
    kind = array.type
    if pa.types.is_struct(kind):
        return _json_struct(array)
    if pa.types.is_map(kind):
        entries, offsets = _inner(array)
        members = _join(_json_keys(entries.field(0)), ":", _json(entries.field(1)).fill_null("null"))
        return _join("{", _joined_lists(array, offsets, members), "}")
    if pa.types.is_list(kind):
        elements, offsets = _inner(array)
        return _join("[", _joined_lists(array, offsets, _json(elements).fill_null("null")), "]")
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind):
        return array.cast(pa.string())
    if pa.types.is_floating(kind):
        text = _float_text(array)
        return pc.if_else(pc.is_finite(array), text, _quoted(text))
    return _quoted(_json_string(array))


def _json_string(array: pa.Array) -> pa.Array:
    """What stands between the quotes."""
    kind = array.type
    if pa.types.is_date(kind):
        return _date_text(array)
    if pa.types.is_timestamp(kind):
        date, time = _date_and_time(array)
        return _join(date, "T", time, "Z" if kind.tz else "")
    if pa.types.is_binary(kind):
        texts = [None if value is None else base64.b64encode(value).decode() for value in array.to_pylist()]
        return pa.array(texts, pa.string())
    return _escaped(array)


def _json_struct(array: pa.Array) -> pa.Array:
    members = [_join("," + _json_name(field.name), _json(array.field(i))) for i, field in enumerate(array.type)]
    empty = pa.repeat("", len(array))
    # Arrow's null_handling="skip" loses the rows in which all is null.
    joined = pc.binary_join_element_wise(empty, *members, "", null_handling="replace", null_replacement="")
    return _only_valid(array, _join("{", pc.utf8_slice_codeunits(joined, 1), "}"))


def _json_name(name: str) -> str:
    return f'"{_escaped(pa.array([name]))[0]}":'


def _json_keys(keys: pa.Array) -> pa.Array:
    """As Spark's own form of the values has them, which for dates and times is a number."""
    kind = keys.type
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise TypeError(f"Spark's JSON has no lasting text for a map's keys of type {kind}")
    if pa.types.is_date(kind):
        return _quoted(keys.cast(pa.int32()).cast(pa.string()))
    if pa.types.is_timestamp(kind):
        return _quoted(keys.cast(pa.int64()).cast(pa.string()))
    if pa.types.is_floating(kind):
        return _quoted(_float_text(keys))
    return _quoted(_escaped(keys.cast(pa.string())))


def _inner(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """The elements of lists or the entries of maps, and where those of each row begin."""
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    return array.values.slice(first, last - first), pc.subtract(offsets, first)


def _joined_lists(array: pa.Array, offsets: pa.Array, texts: pa.Array) -> pa.Array:
    """The texts of every row's elements with commas between them; null for a null row."""
    return pc.binary_join(pa.ListArray.from_arrays(offsets, texts, mask=array.is_null()), ",")


def _escaped(array: pa.Array) -> pa.Array:
    if not pc.any(pc.match_substring_regex(array, '["\\\\\x00-\x1f]')).as_py():
        return array
    for char, escape in _ESCAPES.items():
        array = pc.replace_substring(array, char, escape)
    return array


def _quoted(array: pa.Array) -> pa.Array:
    return _join('"', array, '"')


def _only_valid(array: pa.Array, texts: pa.Array) -> pa.Array:
    return pc.if_else(array.is_valid(), texts, pa.scalar(None, pa.string())) if array.null_count else texts


def _join(*texts: pa.Array | str) -> pa.Array:
    return pc.binary_join_element_wise(*texts, "")
