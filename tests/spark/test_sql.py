"""Datasets in Spark's SQL: as attached views of a pinned version, and in queries that prune by themselves."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import lakelog
from lakelog import Lake, ValidationError, write_dataset
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.spark import attach


@pytest.fixture
def lake(local: Lake, spark: SparkSession) -> Lake:
    """Events of ten days, a file each, and two users."""
    days = "date_add(DATE '2026-01-01', CAST(id div 10 AS INT)) AS day"
    events = spark.range(100).selectExpr("id", days, "id % 2 AS user", "concat('n', id) AS name")
    write_dataset(local, "events", events.repartition(2, "day"), partition_by=["day"])
    users = spark.sql("SELECT * FROM VALUES (0L, 'even'), (1L, 'odd') AS t(user, name)")
    write_dataset(local, "users", users.coalesce(1))
    write_dataset(local, "we.ird `name`", spark.range(3).coalesce(1))
    return local


@pytest.fixture(autouse=True)
def no_views(spark: SparkSession) -> None:
    """Other tests may have left some in the session."""
    for table in spark.catalog.listTables():
        spark.catalog.dropTempView(table.name)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The files that were asked for, by table."""
    found: list[tuple[str, int]] = []
    original = Snapshot.files

    def count(self: Snapshot, *arguments: Any, **options: Any) -> Any:
        result = original(self, *arguments, **options)
        found.append((self._head.name, result.num_rows))
        return result

    monkeypatch.setattr(Snapshot, "files", count)
    return found


QUERIES = {
    "SELECT count(*) FROM events": [("events", 10)],
    "SELECT count(*) FROM events WHERE day = '2026-01-03'": [("events", 1)],
    "SELECT sum(id) FROM Events WHERE id BETWEEN 25 AND 44 AND name LIKE 'n%'": [("events", 3)],
    "WITH e AS (SELECT id, day AS d FROM events WHERE id > 55) SELECT count(*) FROM e WHERE d < '2026-01-08'": [
        ("events", 2)
    ],
    "SELECT u.name, count(*) FROM events e JOIN users u ON e.user = u.user WHERE e.id < 10 GROUP BY 1 ORDER BY 1": [
        ("events", 1),
        ("users", 1),
    ],
    "SELECT count(*) FROM events e LEFT JOIN users u ON e.user = u.user WHERE u.name = 'odd' AND e.id >= 90": [
        ("events", 1),
        ("users", 1),
    ],
    "SELECT id FROM events WHERE id = 5 UNION ALL SELECT id FROM events WHERE id = 95 ORDER BY 1": [("events", 2)],
    "SELECT count(*) FROM events WHERE id < 10 AND user IN (SELECT user FROM events WHERE id = 99)": [("events", 2)],
    "SELECT * FROM (SELECT day, count(*) AS n FROM events GROUP BY day) WHERE day = '2026-01-02' AND n > 3": [
        ("events", 1)
    ],
    "SELECT count(*) FROM events WHERE day < current_date() AND id < 20": [("events", 2)],
    "SELECT count(*) FROM events WHERE id > 1000": [("events", 0)],
    "SELECT count(*) FROM `we.ird ``name```": [("we.ird `name`", 1)],
}


@pytest.mark.parametrize("query", QUERIES)
def test_a_query_reads_only_the_files_that_its_conditions_need(
    lake: Lake, spark: SparkSession, files: list[tuple[str, int]], query: str
) -> None:
    found = lake.sql(query).collect()
    assert sorted(files) == QUERIES[query]
    with attach(spark, lake):
        assert found == spark.sql(query).collect()


def test_views_of_the_session_can_be_joined_and_are_left_as_they_were(lake: Lake, spark: SparkSession) -> None:
    spark.range(5).createOrReplaceTempView("mine")
    spark.range(1).createOrReplaceTempView("users")
    try:
        assert lake.sql("SELECT count(*) AS n FROM mine JOIN events USING (id)").collect()[0].n == 5
        assert lake.sql("SELECT count(*) AS n FROM users").collect()[0].n == 2
        assert spark.table("users").count() == 1
        assert {table.name for table in spark.catalog.listTables()} == {"mine", "users"}
    finally:
        spark.catalog.dropTempView("mine")
        spark.catalog.dropTempView("users")


def test_a_result_knows_its_version_and_is_read_later(lake: Lake, spark: SparkSession) -> None:
    frame = lake.sql("SELECT * FROM users")
    write_dataset(lake, "users", spark.sql("SELECT 2L AS user, 'new' AS name"))
    assert (lake.dataset("users").version_of(frame), frame.count()) == (0, 2)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT nope FROM events", "nope"),
        ("SELECT * FROM missing", "missing"),
        ("SELEC 1", "SELEC"),
        ("CREATE TEMPORARY VIEW v AS SELECT * FROM events", "is not a query"),
        ("DROP VIEW events", "is not a query"),
    ],
)
def test_what_is_not_a_query_is_refused_and_nothing_happens(
    lake: Lake, spark: SparkSession, query: str, message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        lake.sql(query)
    assert spark.catalog.listTables() == []


class TestAttach:
    def test_views_are_made_when_they_are_first_mentioned(
        self, lake: Lake, spark: SparkSession, files: list[tuple[str, int]]
    ) -> None:
        with attach(spark, lake) as attached:
            assert attached.versions == {"events": 0, "users": 0, "we.ird `name`": 0}
            assert (files, spark.catalog.listTables()) == ([], [])
            assert spark.table("users").count() == 2
            assert [name for name, _ in files] == ["users"]
            assert spark.sql("SELECT count(*) AS n FROM events JOIN users USING (user)").collect()[0].n == 100
            assert [name for name, _ in files] == ["users", "events"]
        assert spark.catalog.listTables() == []
        assert "sql" not in vars(spark)

    def test_versions_are_pinned_until_refresh(self, lake: Lake, spark: SparkSession) -> None:
        count = "SELECT (SELECT count(*) FROM users) AS users, (SELECT count(*) FROM events) AS events"
        with attach(spark, lake) as attached:
            assert tuple(spark.sql(count).collect()[0]) == (2, 100)
            write_dataset(lake, "users", spark.sql("SELECT 2L AS user, 'new' AS name"))
            write_dataset(lake, "later", spark.range(1))
            assert tuple(spark.sql(count).collect()[0]) == (2, 100)
            attached.refresh()
            assert tuple(spark.sql(count).collect()[0]) == (3, 100)
            assert spark.table("later").count() == 1
            lake.drop_dataset("users")
            attached.refresh()
            assert {table.name for table in spark.catalog.listTables()} == {"events", "later"}

    def test_names_that_are_taken_are_refused(self, lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
        spark.range(1).createOrReplaceTempView("USERS")
        try:
            with pytest.raises(ValidationError, match="users: is a temporary view of the session"):
                attach(spark, lake)
        finally:
            spark.catalog.dropTempView("users")
        with lakelog.connect(f"sqlite:///{tmp_path}/other.db", root=tmp_path / "other") as other, attach(spark, lake):
            write_dataset(other, "Users", spark.range(1))
            with pytest.raises(ValidationError, match="Users: is a dataset of"):
                attach(spark, other)

    def test_two_lakes_can_be_queried_together(self, lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
        with lakelog.connect(f"sqlite:///{tmp_path}/other.db", root=tmp_path / "other") as other:
            write_dataset(other, "extra", spark.range(3))
            with attach(spark, lake), attach(spark, other):
                assert spark.sql("SELECT count(*) AS n FROM extra JOIN events USING (id)").collect()[0].n == 3
            assert spark.catalog.listTables() == []


def test_each_session_has_its_own_frames(lake: Lake, spark: SparkSession) -> None:
    write_dataset(lake, "many", spark.range(40).repartition(40))
    other = spark.newSession()
    assert lakelog.read_dataset(lake, "many", spark=spark).count() == 40
    assert lakelog.read_dataset(lake, "many", spark=other).sparkSession is other
    assert lake.sql("SELECT count(*) AS n FROM many", spark=other).collect()[0].n == 40
    with attach(other, lake):
        assert other.sql("SELECT count(*) AS n FROM many").collect()[0].n == 40
    assert spark.catalog.listTables() == other.catalog.listTables() == []


def test_a_result_can_be_a_view_of_the_session(lake: Lake, spark: SparkSession) -> None:
    lake.sql("SELECT * FROM events WHERE id < 7").createOrReplaceTempView("few")
    assert spark.sql("SELECT count(*) AS n FROM few").collect()[0].n == 7


def test_a_view_that_is_made_later_is_the_users(lake: Lake, spark: SparkSession) -> None:
    with attach(spark, lake) as attached:
        assert spark.table(tableName="events").count() == 100
        spark.range(1).createOrReplaceTempView("users")
        spark.range(2).createOrReplaceTempView("events")
        assert spark.sql(sqlQuery="SELECT * FROM users").count() == 1
        write_dataset(lake, "users", spark.sql("SELECT 2L AS user, 'new' AS name"))
        write_dataset(lake, "events", lakelog.read_dataset(lake, "events").limit(1))
        attached.refresh()
        assert (spark.table("users").count(), spark.table("events").count()) == (1, 2)
    assert {table.name for table in spark.catalog.listTables()} == {"users", "events"}


def test_a_name_is_a_whole_word(lake: Lake, spark: SparkSession, files: list[tuple[str, int]]) -> None:
    with attach(spark, lake):
        spark.sql("SELECT 'eventsandusers' AS events_of_users").collect()
        assert files == []
