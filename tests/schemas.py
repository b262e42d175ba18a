"""Random schemas that often share names, and values for them."""

from datetime import UTC, date
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

SIMPLE = (
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.decimal128(5, 2),
    pa.decimal128(20, 0),
    pa.decimal128(38, 10),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.timestamp("us", "UTC"),
    pa.timestamp("us"),
)
"""Every type that Arrow, Delta and Spark have in common, with a few decimals."""

_EXACT = Context(prec=50)
_NAMES = ("a", "B", "c", "d.e")
_KEYS = (pa.string(), pa.int32(), pa.int64())


def types(depth: int = 2) -> st.SearchStrategy[pa.DataType]:
    if depth == 0:
        return st.sampled_from(SIMPLE)
    inner = types(depth - 1)
    return (
        st.sampled_from(SIMPLE)
        | st.sampled_from(SIMPLE)
        | fields(depth - 1).map(pa.struct)
        | st.builds(lambda kind, nullable: pa.list_(pa.field("item", kind, nullable)), inner, st.booleans())
        | st.builds(
            lambda key, kind, nullable: pa.map_(key, pa.field("value", kind, nullable)),
            st.sampled_from(_KEYS),
            inner,
            st.booleans(),
        )
    )


@st.composite
def fields(draw: st.DrawFn, depth: int = 2) -> list[pa.Field]:
    names = draw(st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3, unique=True))
    cases = draw(st.lists(st.booleans(), min_size=len(names), max_size=len(names)))
    return [
        pa.field(name.swapcase() if swapped else name, draw(types(depth)), draw(st.booleans()))
        for name, swapped in zip(names, cases, strict=True)
    ]


def schemas() -> st.SearchStrategy[pa.Schema]:
    return fields().map(pa.schema)


@st.composite
def tables(draw: st.DrawFn) -> pa.Table:
    """A few rows that Spark can take, NaN among them: all columns are nullable, and no name has a dot."""
    schema = pa.schema([pa.field(field.name.replace(".", "_"), field.type) for field in draw(schemas())])
    row = st.fixed_dictionaries({field.name: values(field.type, nan=True) for field in schema})
    return pa.Table.from_pylist(draw(st.lists(row, max_size=4)), schema)


def values(kind: pa.DataType, nullable: bool = True, nan: bool = False) -> st.SearchStrategy[Any]:
    """Values of a type as Python knows them. NaN, which equals nothing, comes only if asked for."""
    found = _values(kind, nan)
    return st.none() | found if nullable else found


def _values(kind: pa.DataType, nan: bool) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        return st.fixed_dictionaries({field.name: values(field.type, field.nullable, nan) for field in kind})
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_type, kind.value_field.nullable, nan), max_size=3)
    if pa.types.is_map(kind):
        keys = _values(kind.key_type, nan)
        return st.dictionaries(keys, values(kind.item_type, kind.item_field.nullable, nan), max_size=3).map(
            lambda entries: list(entries.items())
        )
    if pa.types.is_integer(kind):
        largest = 2 ** (kind.bit_width - 1)
        return st.integers(-largest, largest - 1)
    if pa.types.is_decimal(kind):
        largest = 10**kind.precision - 1
        return st.integers(-largest, largest).map(lambda digits: Decimal(digits).scaleb(-kind.scale, _EXACT))
    if pa.types.is_floating(kind):
        return st.floats(width=kind.bit_width, allow_nan=nan)
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_string(kind):
        return st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
    if pa.types.is_binary(kind):
        return st.binary(max_size=5)
    if pa.types.is_date(kind):
        return st.dates(date(1, 1, 1), date(9999, 12, 31))
    zone = UTC if kind.tz else None
    return st.datetimes().map(lambda moment: moment.replace(tzinfo=zone))
