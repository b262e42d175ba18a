"""Counting and explaining with Spark's understanding of a condition."""

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog import Dataset, Lake, ValidationError, write_dataset
from lakelog.spark.predicates import analysis as predicates
from lakelog.spark.read import read


@pytest.fixture
def events(local: Lake, spark: SparkSession) -> Dataset:
    """Ten days with a file each: ids 0 to 9, 10 to 19, and so on."""
    days = "date_add(DATE '2026-01-01', CAST(id div 10 AS INT)) AS day"
    frame = spark.range(100).selectExpr("id", days, "concat('n', id) AS name", "timestamp_seconds(id * 3600) AS at")
    write_dataset(local, "events", frame.repartition(2, "day"), partition_by=["day"])
    return local.dataset("events")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """No file is to be read."""

    def refuse(*_: object) -> None:
        raise AssertionError("files were read")

    monkeypatch.setattr(read, "read_these", refuse)


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("true", 100),
        ("day = '2026-01-03'", 10),
        ("day IN ('2026-01-03', '2026-01-04') AND id >= 20", 20),
        ("id < 50", 50),
        ("id BETWEEN 20 AND 39", 20),
        ("id IS NOT NULL AND at < TIMESTAMP '2100-01-01'", 100),
        ("id < 0 OR day > current_date() + INTERVAL 10000 DAYS", 0),
    ],
)
def test_bounds_that_decide_for_whole_files_are_enough(
    events: Dataset, spark: SparkSession, where: str, rows: int
) -> None:
    assert events.count(where, spark=spark) == rows == events.count(F.expr(where))


@pytest.mark.parametrize(("where", "rows"), [("id < 55", 55), ("name LIKE '%7'", 10), ("id % 2 = 0 AND id < 20", 10)])
def test_the_other_files_are_read(events: Dataset, spark: SparkSession, where: str, rows: int) -> None:
    assert events.count(where) == rows


def test_only_undecided_files_are_read(events: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    read_these = read.read_these
    monkeypatch.setattr(read, "read_these", lambda *given: [counts.append(given[3].num_rows), read_these(*given)][1])
    assert (events.count("id < 55"), counts) == (55, [1])


def test_a_condition_means_what_it_means_in_the_session(events: Dataset, spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert events.count("at < '1969-12-31 21:00:00'") == 2
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))


def test_what_spark_refuses_is_refused(events: Dataset) -> None:
    with pytest.raises(ValidationError, match="nope"):
        events.count("nope = 1")


def test_a_scan_by_spark_says_what_could_not_be_used(events: Dataset, spark: SparkSession) -> None:
    found = events.scan("day >= '2026-01-09' AND upper(name) = 'N85'", spark=spark).explain()
    assert (str(found.files), str(found.row_groups)) == ("2 of 10", "2 of 10")
    assert [(str(each.files), each.by) for each in found.reasons] == [
        ("2 of 10", "partition values"),
        ("10 of 10", "nothing that is known of files"),
    ]
    assert "upper" in found.reasons[1].condition


def test_a_column_that_only_the_stand_in_could_have_is_refused(local: Lake, spark: SparkSession) -> None:
    write_dataset(local, "users", spark.range(3).withColumnRenamed("id", "user"))
    for ask in (local.dataset("users").count, local.dataset("users").scan):
        with pytest.raises(ValidationError, match="id"):
            ask("id > 5", spark=spark)


def test_a_condition_too_deep_to_analyse_is_left_to_spark(
    events: Dataset, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_deep(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(predicates._Walker, "_rows", too_deep)
    assert events.count("id < 50", spark=spark) == 50
