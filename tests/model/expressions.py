"""Random SQL expressions of every type over a table's columns, all of them deterministic.

A grammar of templates makes them: ``{date}`` stands for an expression of that type, ``{date.column}`` for a column,
``{date.literal}`` for a constant, ``{op}`` for a comparison. What depends on the session's zone is frequent. What can
fail in ANSI mode (``FRAGILE``) is not, since a query of several such expressions hardly ever has an answer.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from random import Random
from typing import TypeAlias

import pyarrow as pa

from tests.model.values import HOUR, REPEATED_HOUR, Kind

_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 24 * HOUR


def _day(year: int, month: int, day: int) -> int:
    return date(year, month, day).toordinal() - _EPOCH


_SPRING = _day(2026, 3, 29) * _DAY
"""Midnight in UTC of the day on which clocks go forward in Berlin; in New York they did on the 8th."""
_DAYS = (0, -1, _day(1582, 10, 10), _day(2024, 2, 29), *(_day(2026, 3, day) for day in (8, 28, 29, 30)))
_MOMENTS = (0, -1, _SPRING - HOUR, _SPRING, _SPRING + HOUR + 1, _SPRING + 23 * HOUR, REPEATED_HOUR)
_TEXTS = (
    *("", "a", "A", "ab ", " b", "é", "a_%", "a'b", "a\\b", "true", "no"),
    *("12", " 7 ", "-1", "1e3", "12.345", "9999999999", "abc"),
    *("2026-03-29", "2026-3-8", "2026-03-29 02:30:00", "2026-03-29T01:30:00Z", "2026-10-25 02:30:00 America/New_York"),
)
_STRUCT = pa.struct([("a", pa.int32()), ("b", pa.string())])
_STRUCTS = (*({"a": a, "b": b} for a, b in ((1, "a"), (None, "b"), (7, None), (-(2**31), "2026-03-29"))),)
_DECIMALS = ("0", "1.5", "-1.5", "12.345", "0.0000000001", "9999999999999999999999999999.9999999999")
_DOUBLES = (0.0, -0.0, 1.5, -2.5, 0.1, 1e18, 2147483648.5, float("nan"), float("inf"))

KINDS = {
    kind.name: kind
    for kind in (
        Kind("int", pa.int32(), "INT", (0, 1, -1, 7, 12, 2**31 - 1, -(2**31))),
        Kind("bigint", pa.int64(), "BIGINT", (0, 1, -7, 100, 2**31, 2**63 - 1, -(2**63))),
        Kind("double", pa.float64(), "DOUBLE", _DOUBLES),
        Kind("decimal", pa.decimal128(38, 10), "DECIMAL(38,10)", tuple(map(Decimal, _DECIMALS))),
        Kind("money", pa.decimal128(10, 2), "DECIMAL(10,2)", (*map(Decimal, ("0", "12.34", "-0.01", "99999999.99")),)),
        Kind("string", pa.string(), "STRING", _TEXTS),
        Kind("date", pa.date32(), "DATE", _DAYS),
        Kind("timestamp", pa.timestamp("us", "UTC"), "TIMESTAMP", _MOMENTS),
        Kind("ntz", pa.timestamp("us"), "TIMESTAMP_NTZ", _MOMENTS),
        Kind("boolean", pa.bool_(), "BOOLEAN", (True, False)),
        Kind("binary", pa.binary(), "BINARY", (b"", b"a", b"12", b"\xff\x00"), partitions=False),
        Kind("struct", _STRUCT, "STRUCT<a: INT, b: STRING>", _STRUCTS, partitions=False),
        Kind("array", pa.list_(pa.int32()), "ARRAY<INT>", ([], [1, 2], [None], [7], [2**31 - 1, 0]), partitions=False),
    )
}
ATOMIC = tuple(name for name in KINDS if name not in ("struct", "array"))

ASSIGNED = {
    "int": ("bigint", "double", "decimal", "string", "boolean"),
    "bigint": ("int", "double", "decimal", "string"),
    "double": ("int", "bigint", "decimal", "string"),
    "decimal": ("int", "double", "money", "string"),
    "money": ("int", "double", "decimal", "string"),
    "string": ("timestamp", "timestamp", "ntz", "date", "double", "decimal", "boolean", "int"),
    "date": ("timestamp", "timestamp", "ntz", "string"),
    "timestamp": ("date", "ntz", "string"),
    "ntz": ("date", "timestamp", "timestamp", "string"),
    "boolean": ("int", "string"),
}
"""The other types whose values can be put into a column, if they fit."""

STEADY = {
    "int": (
        *("length({string})", "hour({timestamp})", "hour({timestamp})", "day({timestamp})", "month({timestamp})"),
        *("dayofweek({date})", "datediff({date}, {timestamp})", "{struct.column}.a", "size({array})", "hour({ntz})"),
        *("try_add({int}, {int})", "try_cast({string} AS INT)", "try_element_at({array}, 2)", "greatest({int}, {int})"),
    ),
    "bigint": (
        *(
            "unix_micros({timestamp})",
            "CAST({timestamp} AS BIGINT)",
            "CAST({int} AS BIGINT) * 2",
            "ceil({double.column})",
        ),
        *(
            "try_multiply({bigint}, {bigint})",
            "try_cast({string} AS BIGINT)",
            "unix_timestamp(CAST({date} AS TIMESTAMP))",
        ),
    ),
    "double": (
        *("{double} + {int}", "{double} * {double}", "try_divide({int}, {int})", "try_divide({double}, {double})"),
        *(
            "CAST({decimal} AS DOUBLE)",
            "try_cast({string} AS DOUBLE)",
            "round({double}, 1)",
            "CAST({bigint} AS DOUBLE)",
        ),
    ),
    "decimal": (
        "CAST({money} AS DECIMAL(38,10))",
        "CAST({int} AS DECIMAL(38,10))",
        "try_cast({string} AS DECIMAL(38,10))",
    ),
    "money": ("try_cast({decimal} AS DECIMAL(10,2))", "abs({money})", "try_cast({string} AS DECIMAL(10,2))"),
    "string": (
        *("upper({string})", "trim({string})", "substr({string}, 1, 2)", "substr({string}, {int}, 3)", "hex({binary})"),
        *("concat({string}, {string})", "concat_ws('-', {string}, {date})", "{struct.column}.b", "reverse({string})"),
        *(
            "CAST({timestamp} AS STRING)",
            "CAST({timestamp} AS STRING)",
            "CAST({date} AS STRING)",
            "CAST({ntz} AS STRING)",
        ),
        *("date_format({timestamp}, 'yyyy-MM-dd HH:mm')", "date_format({date}, 'EEE XXX')", "CAST({double} AS STRING)"),
        *("CAST({int} AS STRING)", "CAST({boolean} AS STRING)", "CAST({decimal} AS STRING)"),
    ),
    "date": (
        *("CAST({timestamp} AS DATE)", "to_date({timestamp})", "CAST({timestamp} AS DATE)", "CAST({ntz} AS DATE)"),
        *(
            "try_cast({string} AS DATE)",
            "date_add({date}, 1)",
            "date_add({date}, size({array}))",
            "trunc({date}, 'MM')",
        ),
        *("last_day({date})", "add_months({date}, 1)", "date_sub({timestamp}, 1)"),
    ),
    "timestamp": (
        *("CAST({date} AS TIMESTAMP)", "CAST({date} AS TIMESTAMP)", "CAST({ntz} AS TIMESTAMP)"),
        *("try_cast({string} AS TIMESTAMP)", "try_cast({string} AS TIMESTAMP)", "try_to_timestamp({string})"),
        *("date_trunc('DAY', {timestamp})", "date_trunc('HOUR', {timestamp})", "date_trunc('MONTH', {timestamp})"),
        *("{timestamp} + INTERVAL '1' DAY", "{timestamp} - INTERVAL '3' HOUR", "{timestamp} + INTERVAL '1' MONTH"),
        *("from_utc_timestamp({timestamp}, 'Asia/Tokyo')", "to_utc_timestamp({timestamp}, 'America/New_York')"),
        *("TIMESTAMP'2026-03-29 02:30:00'", "TIMESTAMP'2026-10-25 02:30:00 Europe/Berlin'", "timestamp_seconds({int})"),
    ),
    "ntz": (
        *("CAST({timestamp} AS TIMESTAMP_NTZ)", "CAST({timestamp} AS TIMESTAMP_NTZ)", "CAST({date} AS TIMESTAMP_NTZ)"),
        *("try_cast({string} AS TIMESTAMP_NTZ)", "{ntz} + INTERVAL '1' DAY"),
    ),
    "binary": ("CAST({string} AS BINARY)", "encode({string}, 'UTF-8')", "concat({binary}, {binary})"),
    "struct": ("named_struct('a', {int}, 'b', {string})",),
    "array": (
        *("array({int}, {int})", "concat({array}, array({int}))", "sort_array({array})", "array_distinct({array})"),
        "filter({array}, x -> x > 0)",
    ),
    "boolean": (
        *(
            "{date} {op} {timestamp}",
            "{timestamp} {op} {date}",
            "{ntz} {op} {timestamp}",
            "{timestamp.column} {op} {ntz}",
        ),
        *("CAST({timestamp.column} AS DATE) {op} {date.literal}", "{date.column} {op} {timestamp.literal}"),
        *("{timestamp.column} {op} TIMESTAMP'2026-03-29 00:00:00'", "hour({timestamp.column}) {op} 2"),
        *(
            "{date.column} {op} '2026-03-29'",
            "{timestamp.column} {op} '2026-03-29'",
            "{ntz.column} {op} '2026-03-28 23'",
        ),
        *("{timestamp.column} BETWEEN {timestamp} AND {timestamp}", "{date.column} BETWEEN {date} AND {timestamp}"),
        *(
            "{int} {op} {bigint}",
            "{int} {op} {double}",
            "{decimal} {op} {int}",
            "{money.column} {op} {decimal.literal}",
        ),
        *("{bigint.column} {op} {double.literal}", "{int.column} {op} {decimal.literal}", "{bigint.column} {op} 1.5"),
        *(
            "{string.column} LIKE 'a%'",
            "{string} LIKE '%2026%'",
            "{string.column} LIKE 'a\\\\_%'",
            "{string.column} LIKE ''",
        ),
        *("{string} RLIKE '^[0-9]+$'", "startswith({string.column}, '2026')", "contains({string}, '-')"),
        *("array_contains({array}, {int})", "exists({array}, x -> x > {int})", "{struct.column}.a {op} {int}"),
        *("{struct.column}.b {op} {string.literal}", "{struct.column} IS NULL", "{struct.column}.a IS NOT NULL"),
    ),
}
"""What has a value for every row, in any mode."""

FRAGILE = {
    "int": (
        *("{int} + {int}", "{int} - {int}", "{int} * {int}", "{int} % {int}", "-{int}", "CAST({double} AS INT)"),
        *("CAST({bigint} AS INT)", "CAST({string} AS INT)", "element_at({array}, 1)", "{array.column}[0]"),
    ),
    "bigint": ("{bigint} + {int}", "{bigint} * {bigint}", "{int} div {int}", "CAST({string} AS BIGINT)"),
    "double": ("{int} / {int}", "{double} / {double}", "CAST({string} AS DOUBLE)"),
    "decimal": (
        "{decimal} + {money}",
        "{decimal} * {money}",
        "{money} / {decimal}",
        "CAST({double} AS DECIMAL(38,10))",
    ),
    "money": ("CAST({decimal} AS DECIMAL(10,2))", "CAST({int} AS DECIMAL(10,2))", "{money} * {money}"),
    "string": ("substr({string}, {int} + 1)", "CAST(CAST({double} AS INT) AS STRING)"),
    "date": ("CAST({string} AS DATE)", "to_date({string})", "make_date(2026, {int}, 1)", "date_add({date}, {int} + 1)"),
    "timestamp": ("CAST({string} AS TIMESTAMP)", "to_timestamp({string})", "make_timestamp(2026, 3, 29, {int}, 30, 0)"),
    "ntz": ("CAST({string} AS TIMESTAMP_NTZ)",),
    "array": ("transform({array}, x -> x + 1)", "array({int} + 1)"),
    "boolean": (
        *("{string} {op} {int}", "{string} {op} {date}", "{timestamp} {op} {string}", "{string.column} {op} {double}"),
        *("CAST({string} AS BOOLEAN)", "CAST({string.column} AS DATE) {op} {date}", "10 / {int.column} {op} 3"),
        *(
            "CAST({double.column} AS INT) {op} {int}",
            "{int.column} * 2 {op} {int}",
            "{bigint.column} + 1 {op} {bigint}",
        ),
    ),
}
"""What has no value for some rows: an error in ANSI mode, NULL or something else otherwise."""

_OPERATORS = ("=", "<", "<=", ">", ">=", "<>", "<=>")
_PLACE = re.compile(r"\{(\w+)(?:\.(\w+))?\}")


@dataclass(frozen=True, slots=True)
class Named:
    """A column, as expressions call it."""

    sql: str
    kind: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A condition without AND, OR and NOT at its top."""

    sql: str
    has_parts = False

    @property
    def mirrored(self) -> "Leaf":
        return self


@dataclass(frozen=True, slots=True)
class Joined:
    """Two conditions, joined by AND or OR."""

    operator: str
    left: "Condition"
    right: "Condition"
    has_parts = True

    @property
    def sql(self) -> str:
        return f"({self.left.sql}) {self.operator} ({self.right.sql})"

    @property
    def mirrored(self) -> "Joined":
        """The same condition, asked from right to left."""
        return Joined(self.operator, self.right.mirrored, self.left.mirrored)


@dataclass(frozen=True, slots=True)
class Negated:
    """The opposite of a condition."""

    inner: "Condition"

    @property
    def has_parts(self) -> bool:
        return self.inner.has_parts

    @property
    def sql(self) -> str:
        return f"NOT ({self.inner.sql})"

    @property
    def mirrored(self) -> "Negated":
        return Negated(self.inner.mirrored)


Condition: TypeAlias = Leaf | Joined | Negated


class Expressions:
    """Makes up expressions over some columns."""

    def __init__(self, random: Random, columns: Sequence[Named], fragile: float = 0.12) -> None:
        """``fragile`` is the share of templates that may have no value."""
        self._random = random
        self._columns = columns
        self._fragile = fragile

    def of(self, kind: str, depth: int = 2) -> str:
        """An expression whose type is, or can be put into a column of, the given one."""
        if kind == "boolean" and depth > 0:
            return f"({self._compared(depth - 1)})"
        if depth <= 0 or self._random.random() < 0.25:
            return self.column(kind) if self._random.random() < 0.8 else self.literal(kind)
        if self._random.random() < 0.2:
            return self._random.choice(self._chosen(kind, depth - 1))()
        return f"({self._filled(self._template(kind), depth - 1)})"

    def condition(self, leaves: int = 3) -> Condition:
        """A condition of at most as many comparisons."""
        if leaves > 1 and self._random.random() < 0.55:
            left = self._random.randint(1, leaves - 1)
            operator = self._random.choice(("AND", "AND", "OR"))
            return Joined(operator, self.condition(left), self.condition(leaves - left))
        if self._random.random() < 0.15:
            return Negated(self.condition(leaves))
        return Leaf(self._compared(1))

    def column(self, kind: str) -> str:
        """A column of a type; a constant where there is none."""
        names = [column.sql for column in self._columns if column.kind == kind]
        return self._random.choice(names) if names else self.literal(kind)

    def literal(self, kind: str) -> str:
        value = self._random.choice([*KINDS[kind].edges, None]) if self._random.random() < 0.2 else self.value(kind)
        if value is not None and kind == "struct":
            fields = ((KINDS["int"], value["a"]), (KINDS["string"], value["b"]))
            a, b = (each.literal(field) for each, field in fields)
            return f"named_struct('a', {a}, 'b', {b})"
        if value is not None and kind == "array":
            return f"CAST(array({', '.join(KINDS['int'].literal(each) for each in value)}) AS ARRAY<INT>)"
        return KINDS[kind].literal(value)

    def value(self, kind: str) -> object:
        return self._random.choice(KINDS[kind].edges)

    def _compared(self, depth: int) -> str:
        """Half of the time a column with a constant, of which statistics of files say something."""
        known = sorted({column.kind for column in self._columns} & set(ATOMIC))
        if not known or self._random.random() < 0.4:
            return self._filled(self._template("boolean"), depth)
        kind = self._random.choice(known)
        column, literal = self.column(kind), self.literal(kind)
        operator = self._random.choice(_OPERATORS)
        templates = (
            *[f"{column} {operator} {literal}"] * 4,
            *[f"{column} {operator} {self.column(kind)}"] * 2,
            f"{column} {operator} {self.of(kind, depth)}",
            f"{self.of(kind, depth)} {operator} {literal}",
            f"{column} IN ({literal}, {self.literal(kind)})",
            f"{column} NOT IN ({literal}, {self.literal(kind)})",
            f"{column} BETWEEN {literal} AND {self.literal(kind)}",
            f"{column} IS NULL",
            f"{self.of(kind, depth)} IS NOT NULL",
            f"coalesce({column}, {literal}) = {literal}",
        )
        return self._random.choice(templates)

    def _chosen(self, kind: str, depth: int) -> Sequence[Callable[[], str]]:
        """One of several values, of which not all are computed."""
        return (
            lambda: f"coalesce({self.of(kind, depth)}, {self.of(kind, depth)})",
            lambda: f"CASE WHEN {self._compared(0)} THEN {self.of(kind, depth)} ELSE {self.of(kind, depth)} END",
            lambda: f"if({self._compared(0)}, {self.of(kind, depth)}, {self.literal(kind)})",
            lambda: f"nullif({self.column(kind)}, {self.literal(kind)})" if kind in ATOMIC else self.column(kind),
        )

    def _template(self, kind: str) -> str:
        fragile = FRAGILE.get(kind, ())
        is_fragile = bool(fragile) and self._random.random() < self._fragile
        return self._random.choice(fragile if is_fragile else STEADY[kind])

    def _filled(self, template: str, depth: int) -> str:
        def fill(place: re.Match[str]) -> str:
            kind, what = place.groups()
            if kind == "op":
                return self._random.choice(_OPERATORS)
            if what == "column":
                return self.column(kind)
            return self.literal(kind) if what == "literal" else self.of(kind, depth)

        return _PLACE.sub(fill, template)
