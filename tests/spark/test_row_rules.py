"""What Python says of a rule, Spark says, too; what it cannot know, it refuses."""

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog.changes.row_rules import RowRules
from lakelog.errors import ValidationError
from lakelog.schema.rules import Check, Rules
from lakelog.spark.frames import frame_of

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("j", pa.int32()),
        ("l", pa.int64()),
        ("s", pa.string()),
        ("d", pa.date32()),
        ("f", pa.float64()),
        ("n", pa.decimal128(10, 2)),
        ("t", pa.timestamp("us")),
        ("b", pa.bool_()),
        ("p", pa.struct([("x", pa.int64())])),
    ]
)
VALUES: list[tuple[Any, ...]] = [
    (1, 1, 2**40, "a", date(2026, 1, 1), 1.5, Decimal("1.50"), datetime(2026, 1, 1), True, {"x": 1}),  # noqa: DTZ001
    (-1, 2, -1, "B", date(1969, 1, 1), float("nan"), Decimal("-2.00"), datetime(1969, 1, 1), False, {"x": None}),  # noqa: DTZ001
    (0, None, 0, "", None, float("inf"), Decimal("0.00"), None, None, None),
    (None, 5, None, None, date(2026, 1, 2), -0.0, None, datetime(2026, 1, 2), True, {"x": 7}),  # noqa: DTZ001
    (5, 0, 7, "é", date(9999, 12, 31), None, Decimal("99999999.99"), datetime(2026, 1, 1), False, {"x": -1}),  # noqa: DTZ001
]
FOLLOWED = [
    "i > 0",
    "0 <= I",
    "i = 1 OR i IS NULL",
    "NOT (i < 0)",
    "i <> 1",
    "i IN (1, -1)",
    "i NOT IN (1, 5)",
    "i BETWEEN -1 AND 1",
    "i NOT BETWEEN -1 AND 1",
    "i <= j",
    "l >= 1099511627776",
    "s >= 'a'",
    "s IN ('a', 'é')",
    "s <> ''",
    "d >= '2026-01-01'",
    "d < DATE'2026-01-02'",
    "d = DATE '1969-01-01'",
    "f > 1.5",
    "f >= 0",
    "f < 1e3",
    "f = 0",
    "f <> 1.5",
    "n > 0",
    "n <= 1.5",
    "t < t",
    "t <= t",
    "b",
    "NOT b",
    "b = true",
    "b IS NOT NULL AND p.x IS NULL",
    "p.X > 0",
    "p IS NULL",
    "i IS NOT NULL AND (s = 'a' OR f > 0)",
    "true",
    "i > 0 AND false",
]
REFUSED = [
    "i + 1 > 0",
    "length(s) > 0",
    "i > 1.5",
    "i > 99999999999",
    "i < l",
    "f < f",
    "s = 5",
    "i = '1'",
    "d IN ('2026-01-01')",
    "i IN (1, NULL)",
    "i > NULL",
    "t > TIMESTAMP'2026-01-01 00:00:00'",
    "s LIKE 'a%'",
    "i <=> 1",
    "nope > 1",
    "i > 0 -- really",
    "CASE WHEN i > 0 THEN true END",
    "i",
    "(((",
]


def rules(sql: str) -> RowRules:
    return RowRules(Rules(checks=(Check("rule", sql),)), SCHEMA, ())


def test_python_counts_the_rows_that_spark_counts(spark: SparkSession) -> None:
    rows = pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in VALUES], SCHEMA)
    counts = [F.count_if(~F.coalesce(F.expr(sql), F.lit(False))) for sql in FOLLOWED]
    expected = dict(zip(FOLLOWED, frame_of(rows, spark).select(*counts).first() or (), strict=True))
    found = {sql: sum(int(each.message.split()[0]) for each in rules(sql).problems(rows)) for sql in FOLLOWED}
    assert found == expected


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_not_certain_is_refused(sql: str) -> None:
    with pytest.raises(ValidationError, match=r"write with lakelog\.write_dataset"):
        rules(sql)


@pytest.mark.parametrize(
    ("column", "sql"),
    [
        ("i", "-3"),
        ("s", "'it''s'"),
        ("d", "DATE'2026-01-01'"),
        ("f", "2.5"),
        ("f", "1e3"),
        ("n", "1.5"),
        ("b", "false"),
        ("l", "NULL"),
    ],
)
def test_a_default_is_the_value_that_spark_gives(spark: SparkSession, column: str, sql: str) -> None:
    empty = pa.Table.from_pylist([{}], SCHEMA)
    found = RowRules(Rules(defaults={column: sql}), SCHEMA, [column]).filled(empty).column(column)[0]
    expected = spark.range(1).select(F.expr(sql)).first()
    assert expected is not None
    assert found.as_py() == expected[0]
    assert RowRules(Rules(defaults={column: sql}), SCHEMA, []).filled(empty).equals(empty)


@pytest.mark.parametrize(
    ("column", "sql"), [("i", "1.5"), ("i", "2 + 3"), ("d", "current_date()"), ("n", "1.555"), ("s", "5")]
)
def test_a_default_that_is_not_a_constant_of_the_column_is_refused(column: str, sql: str) -> None:
    with pytest.raises(ValidationError, match=f"{column}: its default"):
        RowRules(Rules(defaults={column: sql}), SCHEMA, [column])
