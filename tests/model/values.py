"""Values from the edges of every type, as plain Python values, and how Arrow, Spark's SQL and an oracle see them.

Dates are days and times are microseconds, both since 1970: Python's own end with the year 9999.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

FIRST_DAY, LAST_DAY = date.min.toordinal() - date(1970, 1, 1).toordinal(), 2932896
FIRST_MICRO, LAST_MICRO = FIRST_DAY * 86_400_000_000, (LAST_DAY + 1) * 86_400_000_000 - 1
REPEATED_HOUR = 1_761_438_600_000_000
"""02:30 in Berlin on the 26th of October 2025, for the first time. An hour later it is 02:30 again."""
HOUR = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Kind:
    """A type with values that small tests do not have."""

    name: str
    type: pa.DataType
    sql: str
    edges: tuple[Any, ...]
    partitions: bool = True
    """Whether a table can be partitioned by it."""

    def some(self, random: Random, *, of_partition: bool = False) -> Any:
        """An edge or NULL. Of a partition's values, none that no directory's name can hold."""
        fit = [edge for edge in self.edges if not of_partition or self.names_a_directory(edge)]
        return random.choice([None, *fit])

    def array(self, values: Sequence[Any]) -> pa.Array:
        if pa.types.is_date(self.type):
            return pa.array(values, pa.int32()).cast(self.type)
        if pa.types.is_timestamp(self.type):
            return pa.array(values, pa.int64()).cast(self.type)
        return pa.array(values, self.type)

    def plain(self, column: pa.ChunkedArray) -> list[Any]:
        """What ``array`` was made of, with one NaN and one zero."""
        if pa.types.is_date(column.type):
            return list(column.cast(pa.int32()).to_pylist())
        if pa.types.is_timestamp(column.type):
            return list(column.cast(pa.int64()).to_pylist())
        return [same(value) for value in column.to_pylist()]

    def literal(self, value: Any) -> str:
        """The value in Spark's SQL, exactly."""
        if value is None:
            return f"CAST(NULL AS {self.sql})"
        if isinstance(value, str):
            return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
        if isinstance(value, bytes):
            return f"X'{value.hex()}'"
        if self.sql == "DATE":
            if FIRST_DAY <= value <= LAST_DAY:
                return f"DATE'{date(1970, 1, 1) + timedelta(value)}'"
            return f"date_from_unix_date({value})"
        if self.sql.startswith("TIMESTAMP"):
            if FIRST_MICRO <= value <= LAST_MICRO:
                moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=value)
                zone = "Z" if self.sql == "TIMESTAMP" else ""
                return f"{self.sql}'{moment.replace(tzinfo=None).isoformat()}{zone}'"
            if self.sql == "TIMESTAMP":
                return f"timestamp_micros({value}L)"
            return f"timestampadd(MICROSECOND, {value}L, TIMESTAMP_NTZ'1970-01-01')"
        return f"CAST('{value}' AS {self.sql})"

    def names_a_directory(self, value: Any) -> bool:
        if isinstance(value, str):
            return len(value.encode()) <= 60
        if self.sql == "DATE":
            return FIRST_DAY <= value <= LAST_DAY
        return not self.sql.startswith("TIMESTAMP") or FIRST_MICRO <= value <= LAST_MICRO


def same(value: Any) -> Any:
    """One value for all that Spark takes for equal."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    return value


def order(value: Any) -> Any:
    """By what Spark sorts: NaN is the largest number, and texts are bytes."""
    if isinstance(value, str):
        return (math.inf, 1) if value == "NaN" else value.encode()
    return (value, 0) if isinstance(value, float) else value


_MICROS = (0, 1, -1, FIRST_MICRO, LAST_MICRO, LAST_MICRO + 1, REPEATED_HOUR, REPEATED_HOUR + HOUR)
_FAR = (-9_030_000_000_000_001, -9_030_000_000_000_000, 9_030_000_000_000_000, 9_030_000_000_000_001)
_TENANTS = (1_729_000_000_000_000_001, 1_729_000_000_000_000_002)
_TEXTS = (
    "",
    "a",
    "A",
    "a ",
    "e\u0301",
    "\u00e9",
    "\u0160",
    "\U0001f600",
    "\uffff",
    "\t\x01\x7f",
    "a\\b",
    "a'b\"c",
    "50%/x=y",
)

KINDS = (
    Kind("bigint", pa.int64(), "BIGINT", (0, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1, -(2**63), *_TENANTS)),
    Kind(
        "decimal",
        pa.decimal128(38, 0),
        "DECIMAL(38,0)",
        (*(Decimal(sign * (10**38 - number)) for sign in (1, -1) for number in (1, 2)), Decimal(0)),
    ),
    Kind(
        "fraction",
        pa.decimal128(38, 18),
        "DECIMAL(38,18)",
        (
            Decimal("12345678901234567890.123456789012345678"),
            Decimal("12345678901234567890.123456789012345679"),
            Decimal("0.000000000000000001"),
            Decimal("-0.000000000000000001"),
        ),
    ),
    Kind("date", pa.date32(), "DATE", (0, FIRST_DAY, FIRST_DAY - 1, -141428, -141427, LAST_DAY, LAST_DAY + 1)),
    Kind("timestamp", pa.timestamp("us", "UTC"), "TIMESTAMP", (*_MICROS, *_FAR)),
    Kind("timestamp_ntz", pa.timestamp("us"), "TIMESTAMP_NTZ", (*_MICROS, *_FAR)),
    Kind(
        "double",
        pa.float64(),
        "DOUBLE",
        (0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, -1.7976931348623157e308, 0.1, 2.0**53),
    ),
    Kind("float", pa.float32(), "FLOAT", (0.0, -0.0, math.nan, math.inf, -math.inf, 2.0**-149, 2.0**24, -(2.0**24))),
    Kind("string", pa.string(), "STRING", (*_TEXTS, "x" * 1000, "x" * 999 + "y")),
    Kind("boolean", pa.bool_(), "BOOLEAN", (True, False)),
    Kind("tinyint", pa.int8(), "TINYINT", (0, 127, -128)),
    Kind("smallint", pa.int16(), "SMALLINT", (0, 2**15 - 1, -(2**15))),
    Kind("integer", pa.int32(), "INT", (0, 1, 2**31 - 1, -(2**31))),
    Kind("binary", pa.binary(), "BINARY", (b"", b"\x00", b"\x00\xff", b"a", b"\xff" * 40), partitions=False),
)
BIGINT = KINDS[0]
STRING = next(kind for kind in KINDS if kind.name == "string")
TIMESTAMP = next(kind for kind in KINDS if kind.name == "timestamp")
INT = Kind("int", pa.int32(), "INT", (0, 1, 2**31 - 1, -(2**31)))
