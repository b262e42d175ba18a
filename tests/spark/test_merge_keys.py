"""Merges by keys that are computed: what Spark joins is what is merged, whatever the text of the key would mean."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog import Dataset, Lake, read_dataset, write_dataset
from lakelog.log.pruning.predicate import Everything
from lakelog.spark.dml.clauses import Act, Clause, When
from lakelog.spark.dml.merge import Merge, prepare_merge
from lakelog.spark.dml.merge_pruning import merge_scope, never_fails
from lakelog.spark.dml.verbs import options
from lakelog.spark.frames import exact_days, setting
from lakelog.spark.predicates.determinism import is_steady

ZONE = "spark.sql.session.timeZone"
RAW = "spark.sql.parser.escapedStringLiterals"
CALENDAR = "spark.sql.datetime.java8API.enabled"
FAR = 10**6
"""The ids of rows that the source inserts begin here."""


def make(lake: Lake, spark: SparkSession, keys: list[str], kind: str, **more: Any) -> Dataset:
    """A table with one file for each key, which is an expression of that type."""
    for number, key in enumerate(keys):
        row = spark.range(1).select(
            F.lit(number).alias("id"), F.expr(f"CAST({key} AS {kind})").alias("k"), F.lit("old").alias("s")
        )
        write_dataset(lake, "t", row.coalesce(1), **more)
    return lake.dataset("t")


def check_like_a_join(lake: Lake, spark: SparkSession, dataset: Dataset, source: DataFrame, on: Column | str) -> None:
    """Updates, deletes and inserts: each row of the table that Spark's own join of all rows matches, and no other."""
    table = read_dataset(lake, "t").localCheckpoint().alias("t")
    condition = F.expr(on) if isinstance(on, str) else on
    matched = {row[0]: row[1] for row in table.join(source, condition).select("t.id", "src.act").collect()}
    met = {row[0] for row in table.join(source, condition).select("src.n").collect()}
    assert matched, "the oracle has no match, so the test shows nothing"
    wanted = {
        (row.id, "new" if row.id in matched else "old")
        for row in table.select("id").collect()
        if matched.get(row.id) != "delete"
    } | {(FAR + row.n, "insert") for row in source.select("src.n").collect() if row.n not in met}
    clauses = [
        Clause(when=When.MATCHED, act=Act.DELETE, condition="src.act = 'delete'"),
        Clause(when=When.MATCHED, act=Act.UPDATE, values={"s": "'new'"}),
        Clause(when=When.NOT_MATCHED, act=Act.INSERT, values={"id": f"{FAR} + src.n", "s": "'insert'"}),
    ]
    merge = Merge(source=source, condition=on, clauses=clauses, alias="t")
    result = prepare_merge(dataset, dataset.snapshot(), merge, options(0, None, None), spark).commit(lake, 0)
    found = [(row.id, row.s) for row in read_dataset(lake, "t", columns=["id", "s"]).collect()]
    assert sorted(found) == sorted(wanted)
    assert result.metrics["numTargetRowsUpdated"] + result.metrics["numTargetRowsDeleted"] == len(matched)


def source_of(spark: SparkSession, values: list[str], kind: str) -> DataFrame:
    """Rows with a key each, of which every other one deletes what it matches."""
    rows = [
        f"SELECT {number} AS n, CAST({value} AS {kind}) AS k, '{'delete' if number % 2 else 'update'}' AS act"
        for number, value in enumerate(values)
    ]
    return spark.sql(" UNION ALL ".join(rows)).alias("src")


def upper(value: str) -> str:
    return f"zz-{value}"


def trim(value: str) -> str:
    return value[::-1]


@pytest.mark.parametrize(("function", "partitioned"), [(upper, False), (trim, True)], ids=["plain", "partitioned"])
def test_a_function_that_is_called_like_another_is_still_itself(
    local: Lake, spark: SparkSession, function: Callable[[str], str], partitioned: bool
) -> None:
    keys = ["ab", "cd", "ef"]
    dataset = make(
        local, spark, [f"'{function(key)}'" for key in keys], "STRING", partition_by=["k"] if partitioned else None
    )
    source = source_of(spark, [f"'{key}'" for key in ["ab", "cd", "nobody"]], "STRING")
    own = F.udf(function, "string", useArrow=False)
    check_like_a_join(local, spark, dataset, source, F.col("t.k") == own(F.col("src.k")))


def test_a_repeated_hour_is_the_one_that_was_meant(local: Lake, spark: SparkSession) -> None:
    """New York has 01:30 twice on 3 November 2024: at 05:30 and at 06:30 UTC. A text without a zone is the first."""
    with setting(spark, ZONE, "America/New_York"):
        dataset = make(
            local, spark, [f"TIMESTAMP '2024-11-03 {hour}:30:00Z'" for hour in ("05", "06", "07")], "TIMESTAMP"
        )
        source = source_of(spark, [f"TIMESTAMP '2024-11-03 {hour}:30:00Z'" for hour in ("04", "09")], "TIMESTAMP")
        on = "t.k = least(src.k, TIMESTAMP '2024-11-03 06:30:00Z')"
        check_like_a_join(local, spark, dataset, source, on)


@pytest.mark.parametrize("own", ["t.k = TIMESTAMP '2024-11-03 06:30:00Z'", "TIMESTAMP '2024-11-03 06:30:00Z' <= t.k"])
def test_what_is_asked_of_the_table_alone_is_what_was_meant(local: Lake, spark: SparkSession, own: str) -> None:
    with setting(spark, ZONE, "America/New_York"):
        dataset = make(local, spark, [f"TIMESTAMP '2024-11-03 {hour}:30:00Z'" for hour in ("05", "06")], "TIMESTAMP")
        source = source_of(spark, ["1"], "INT")
        check_like_a_join(local, spark, dataset, source, f"t.id = src.k AND {own}")


def test_strings_that_the_session_does_not_unescape_are_as_they_are(local: Lake, spark: SparkSession) -> None:
    with setting(spark, RAW, "true"):
        dataset = make(local, spark, [r"'a\tb'", r"'z\nb'", "'a\tb'"], "STRING")
        source = source_of(spark, [r"'a'", "'z'", "'none'"], "STRING")
        on = r"t.k = concat(src.k, CASE src.k WHEN 'a' THEN '\tb' ELSE '\nb' END)"
        check_like_a_join(local, spark, dataset, source, on)


@pytest.mark.parametrize(
    ("on", "is_known"),
    [
        ("t.k = src.d", True),
        ("t.k = src.d + 1", True),
        ("t.k = date_add(DATE '2024-01-01', src.n)", True),
        ("t.k = date_add(CAST('2024-01-01' AS DATE), src.n)", True),
        ("t.k = date_add(current_date(), src.n)", False),
        ("t.k = date_add(CAST('today' AS DATE), src.n)", False),
        ("t.k = date_add(try_cast(concat('to', 'morrow') AS DATE), src.n)", False),
        ("t.k = date_add(to_date('yesterday'), src.n)", False),
        ("t.k = date_add(to_timestamp(' NOW '), src.n)", False),
        ("t.k = date_add(CAST('12:00' AS TIMESTAMP), src.n)", False),
        ("t.k = src.d + (SELECT max(n) FROM lakelog_numbers)", False),
    ],
)
def test_only_what_is_the_same_the_next_time_tells_a_range(spark: SparkSession, on: str, is_known: bool) -> None:
    from pyarrow import date32, schema

    spark.range(3).selectExpr("CAST(id AS INT) AS n").createOrReplaceTempView("lakelog_numbers")
    try:
        source = spark.sql("SELECT 1 AS n, DATE '2024-01-01' AS d").alias("src")
        scope = merge_scope(spark, schema([("k", date32())]), "t", source, F.expr(on), ())
        assert (scope.predicate != Everything()) is is_known
        assert scope.rows == 1
    finally:
        spark.catalog.dropTempView("lakelog_numbers")


@pytest.mark.parametrize(
    ("condition", "steady"),
    [
        ("d = CAST('2024-01-01' AS DATE)", True),
        ("d = CAST(s AS DATE)", True),
        ("s = 'today'", True),
        ("d = 'today'", False),
        ("d = CAST('today' AS DATE)", False),
        ("at < CAST('now' AS TIMESTAMP)", False),
        ("at < CAST('tomorrow' AS TIMESTAMP_NTZ)", False),
        ("at < to_timestamp_ntz('now')", False),
        ("d IN ('2024-01-01', 'yesterday')", False),
        ("at < '12:00'", False),
        ("d = current_date() AND s = 'x'", False),
        ("rand() < 0.5", False),
        ("d IN (SELECT date_add('2024-01-01', CAST(id AS INT)) FROM range(3))", False),
    ],
)
def test_times_that_are_written_as_texts_are_times(spark: SparkSession, condition: str, steady: bool) -> None:
    frame = spark.sql("SELECT DATE '2024-01-01' AS d, TIMESTAMP '2024-01-01' AS at, 'x' AS s")
    assert is_steady(frame.where(condition)) is steady


DAYS = ["1582-10-04", "1582-10-05", "1582-10-10", "1582-10-14", "1582-10-15", "9999-12-31", "0001-01-01"]


@pytest.fixture(params=["true", "false"])
def calendar(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    """Sessions as Lakelog makes them, and as Spark does."""
    before = spark.conf.get(CALENDAR)
    spark.conf.set(CALENDAR, request.param)
    yield request.param
    spark.conf.set(CALENDAR, before or "")


@pytest.mark.parametrize("partitioned", [False, True], ids=["plain", "partitioned"])
def test_days_that_an_older_calendar_lacks_are_keys_like_others(
    local: Lake, spark: SparkSession, partitioned: bool, calendar: str
) -> None:
    """Python's dates become days of Java's older calendar, which has none from 5 to 14 October 1582."""
    # Python has no day after the year 9999, and no partition can have one.
    days = DAYS if partitioned else [*DAYS, "+11111-01-01"]
    dataset = make(local, spark, [f"DATE'{day}'" for day in days], "DATE", partition_by=["k"] if partitioned else None)
    asked = ["1582-10-05", "1582-10-14", "1582-10-11"] if partitioned else ["1582-10-14", "+11111-01-01"]
    source = source_of(spark, [f"DATE'{day}'" for day in asked], "DATE")
    check_like_a_join(local, spark, dataset, source, "t.k = src.k")


def test_a_session_stays_as_it_is_where_a_table_has_no_days(spark: SparkSession, calendar: str) -> None:
    inside = pa.struct([("id", pa.int64()), ("day", pa.date32())])
    for kinds, seen in (
        ([pa.int64(), pa.timestamp("us", "UTC")], calendar),
        ([pa.date32()], "true"),
        ([inside], "true"),
    ):
        with exact_days(spark, pa.schema([(f"c{number}", kind) for number, kind in enumerate(kinds)])):
            assert spark.conf.get(CALENDAR) == seen
        assert spark.conf.get(CALENDAR) == calendar


@pytest.mark.parametrize("vectors", ["true", "false"])
def test_days_that_an_older_calendar_lacks_are_changed_in_every_session(
    local: Lake, spark: SparkSession, vectors: str, calendar: str
) -> None:
    """Spark's own session, as it is by default, finds no row of these days in a file."""
    condition = "k = DATE'1582-10-10'"
    for name in ("t", "u"):
        days = spark.sql("SELECT 0 AS id, DATE'1582-10-10' AS k UNION ALL SELECT 1, DATE'1582-10-12'")
        write_dataset(local, name, days.coalesce(1), properties={"delta.enableDeletionVectors": vectors})
    assert local.dataset("u").count(condition, spark=spark) == 1
    local.dataset("t").delete(condition, spark=spark)
    local.dataset("u").update({"id": "7"}, condition, spark=spark)
    assert spark.conf.get(CALENDAR) == calendar
    assert sorted(row.id for row in read_dataset(local, "t").collect()) == [1]
    assert sorted(row.id for row in read_dataset(local, "u").collect()) == [1, 7]


@pytest.mark.parametrize(
    ("condition", "harmless"),
    [
        ("x > 1", True),
        ("x = 1 AND (s IS NOT NULL OR NOT b)", True),
        ("p.y <=> 2L", True),
        ("10 div x > 1", False),
        ("CAST(s AS INT) = 1", False),
        ("x + 1 > 1", False),
        ("1 div 0 > x", False),
    ],
)
def test_only_what_fails_for_no_row_may_be_asked_of_any(spark: SparkSession, condition: str, harmless: bool) -> None:
    frame = spark.sql("SELECT 1 AS x, 's' AS s, true AS b, named_struct('y', 1L) AS p")
    assert never_fails(frame.where(condition)) is harmless
