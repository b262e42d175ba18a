"""Changes of rows in which something is other than it looks: names, casts, clocks, tables that were replaced."""

# ruff: noqa: PT012  # it is the end of a transaction's block that raises

import signal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog import (
    ConcurrencyError,
    Lake,
    SchemaMismatchError,
    ValidationError,
    read_changes,
    read_dataset,
    write_dataset,
)
from lakelog.changes.leases import registered_writes
from lakelog.delta_table.table_builder import LakeTableBuilder
from lakelog.spark import LakeTable
from lakelog.spark.frames import setting
from lakelog.spark.write import parquet_writer as stage_module
from lakelog.spark.write.parquet_writer import Stage
from tests.spark.changing import BY_VECTORS, NAME, make, numbered, rows_of

FED = {"delta.enableChangeDataFeed": "true"}


def written(lake: Lake, frame: Any, **options: Any) -> Any:
    write_dataset(lake, NAME, frame.coalesce(1), **options)
    return lake.dataset(NAME)


def leftovers(lake: Lake) -> tuple[int, int]:
    """Directories of writes, and writes that are registered."""
    dataset = lake.dataset(NAME)
    catalog = lake.committer.catalog
    with catalog.session() as session:
        writes = registered_writes(session, catalog.queries, dataset.location)
    return len(list(Path(dataset.location).glob("__w=*"))), len(writes)


class TestOnce:
    def test_a_source_whose_cache_is_lost_is_not_numbered_anew(
        self, local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from lakelog.spark.dml.merge_join import Join

        dataset = written(local, spark.range(50).selectExpr("id", "'old' AS s"))
        source = spark.range(100).selectExpr("id", "'new' AS s").orderBy(F.rand()).alias("n")
        found = Join.matches

        def forgetful(*arguments: Any, **named: Any) -> Any:
            answer = found(*arguments, **named)
            spark.catalog.clearCache()
            return answer

        monkeypatch.setattr(Join, "matches", forgetful)
        dataset.merge(source, "t.id = n.id", alias="t").whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        assert [row[0] for row in sorted(rows_of(local))] == list(range(100))
        assert dataset.count("s = 'new'") == 100

    def test_the_feed_says_what_the_files_have(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.sql("SELECT id, '' AS u FROM range(4)"), properties=FED)
        dataset.update({"u": "uuid()"}, "id < 2")
        source = spark.range(2, 5).alias("n")
        merge = dataset.merge(source, "t.id = n.id", alias="t")
        merge.whenMatchedUpdate(set={"u": "uuid()"}).whenNotMatchedInsert(
            values={"id": "n.id", "u": "uuid()"}
        ).execute()
        told = read_changes(local, NAME, 1).where("_change_type IN ('update_postimage', 'insert')")
        assert sorted(tuple(row) for row in told.select("id", "u").collect()) == sorted(rows_of(local))

    def test_the_feed_of_a_delete_by_the_clock_has_what_is_gone(self, local: Lake, spark: SparkSession) -> None:
        rows = "SELECT id, current_timestamp() + make_interval(0, 0, 0, 0, 0, 0, id / 50) AS ts FROM range(600)"
        dataset = written(local, spark.sql(rows), properties=FED)
        result = dataset.delete("ts < current_timestamp() AND id % 7 <> 3")
        assert read_changes(local, NAME, 1).count() == result.metrics["numDeletedRows"] == 600 - dataset.count()


class TestClauses:
    @pytest.mark.parametrize("properties", [{}, BY_VECTORS])
    def test_a_clause_is_asked_of_no_row_that_it_is_not_for(
        self, local: Lake, spark: SparkSession, properties: dict[str, str]
    ) -> None:
        """Neither its condition, which Spark would ask below the join, nor its values. Here it would fail for these."""
        rows = "SELECT * FROM VALUES (1, 0, 'a'), (2, 5, 'b'), (3, 1, 'c') AS r(id, x, s)"
        source = spark.sql("SELECT * FROM VALUES (1, 0), (9, 5) AS r(id, x)").alias("n")
        dataset = written(local, spark.sql(rows), properties=properties)

        def merge() -> Any:
            return dataset.merge(source, "t.id = n.id", alias="t")

        with setting(spark, "spark.sql.ansi.enabled", "true"):
            merge().whenNotMatchedBySourceDelete("10 div t.x > 100").execute()
            merge().whenNotMatchedBySourceUpdate("t.x = 5", {"s": "'u'"}).whenNotMatchedBySourceUpdate(
                "10 div (t.x - 5) < 0", {"s": "10 div (t.x - 5)"}
            ).execute()
            merge().whenMatchedUpdate("10 div (t.x - 5) < 0", {"s": "'m'"}).execute()
            merge().whenMatchedDelete("false").whenNotMatchedInsert(
                "10 div n.x > 1", {"id": "n.id", "x": "10 div n.x"}
            ).execute()
        assert sorted(rows_of(local)) == [(1, 0, "m"), (2, 5, "u"), (3, 1, "-2"), (9, 2, None)]


class TestEndedByHand:
    def test_a_merge_that_is_interrupted_leaves_nothing(
        self, local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset = written(local, spark.range(5))
        found = stage_module.written_files

        def interrupted(*arguments: Any) -> Any:
            assert found(*arguments)
            signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(stage_module, "written_files", interrupted)
        merge = dataset.merge(spark.range(3, 8).alias("n"), "t.id = n.id", alias="t")
        with pytest.raises(KeyboardInterrupt):
            merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        assert (dataset.version, leftovers(local)) == (0, (1, 0))


class TestSources:
    def test_columns_of_one_name_do_no_harm_unless_they_are_meant(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.sql("SELECT id, 'old' AS s FROM range(4)"))
        left = spark.sql("SELECT 1L AS id, 'a' AS s").alias("l")
        joined = left.join(spark.sql("SELECT 1L AS id, 'b' AS s").alias("r"), F.expr("l.id = r.id"))
        merge = dataset.merge(joined, "t.id = l.id", alias="t")
        for wrong in (
            merge.whenMatchedUpdateAll(),
            merge.withSchemaEvolution().whenMatchedUpdateAll(),
            merge.whenMatchedDelete("s = 'a'"),
        ):
            with pytest.raises(ValidationError, match=r"(?i)several columns|ambiguous"):
                wrong.execute()
        assert dataset.version == 0
        merge.whenMatchedUpdate(set={"s": "concat(l.s, r.s)"}).execute()
        assert [row[1] for row in sorted(rows_of(local))] == ["old", "ab", "old", "old"]

    def test_a_date_that_python_does_not_know_is_found(self, local: Lake, spark: SparkSession) -> None:
        days = "VALUES (DATE'2026-01-01', 1), (date_add(DATE'9999-12-31', 1), 2) AS d(day, v)"
        dataset = written(local, spark.sql(f"SELECT * FROM {days}"))
        source = spark.sql(f"SELECT day, v + 10 AS v FROM {days}").alias("n")
        merge = dataset.merge(source, "t.day = n.day", alias="t").whenMatchedUpdateAll().whenNotMatchedInsertAll()
        assert merge.execute().metrics["numTargetRowsUpdated"] == 2
        assert sorted(row["v"] for row in read_dataset(local, NAME, columns=["v"]).collect()) == [11, 12]

    def test_a_date_that_no_partition_can_have_matches_nothing(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.sql("SELECT DATE'2026-01-01' AS day, 1 AS v"), partition_by=["day"])
        source = spark.sql(
            "SELECT d AS day, 9 AS v FROM VALUES (DATE'2026-01-01'), (date_add('9999-12-31', 1)) AS s(d)"
        )
        merge = dataset.merge(source.alias("n"), "t.day = n.day", alias="t").whenMatchedUpdateAll()
        with pytest.raises(ValidationError, match="is not a value of column 'day'"):
            merge.whenNotMatchedInsertAll().execute()
        assert (dataset.version, leftovers(local)) == (0, (1, 0))
        assert merge.execute().metrics["numTargetRowsUpdated"] == 1

    def test_a_new_row_gets_a_whole_struct(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.sql("SELECT 1L AS id, named_struct('x', 1, 'y', 2) AS place"))
        source = spark.sql("SELECT 2L AS id, named_struct('x', 7) AS place").alias("n")
        merge = dataset.merge(source, "t.id = n.id", alias="t")
        with pytest.raises(SchemaMismatchError, match="a row that is new gets a whole one"):
            merge.whenNotMatchedInsert(values={"id": "n.id", "place.x": "7"}).execute()
        with pytest.raises(SchemaMismatchError, match="place"):
            merge.whenNotMatchedInsertAll().execute()
        assert dataset.version == 0
        merge.withSchemaEvolution().whenNotMatchedInsertAll().execute()
        assert rows_of(local, where="id = 2") == [(2, (7, None))]


class TestNames:
    def test_clauses_for_rows_without_a_match_see_the_table_alone(self, local: Lake, spark: SparkSession) -> None:
        frame = spark.sql("SELECT id, named_struct('x', id) AS s, id AS v FROM range(8)")
        dataset = written(local, frame)
        source = spark.sql("SELECT 1L AS id, 99L AS x, 0L AS v").alias("s")
        merge = dataset.merge(source, "t.id = s.id", alias="t").whenNotMatchedBySourceDelete("s.x > 5")
        merge.whenNotMatchedBySourceUpdate("v = 2", {"v": "v * 100"}).execute()
        assert [(row[0], row[2]) for row in sorted(rows_of(local))] == [
            (0, 0),
            (1, 1),
            (2, 200),
            (3, 3),
            (4, 4),
            (5, 5),
        ]

    def test_reserved_names_are_refused(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.sql("SELECT 1 AS id, 2 AS __lakelog_changed"))
        with pytest.raises(ValidationError, match="__lakelog_changed"):
            dataset.update({"id": "2"})

    def test_a_column_that_only_comes_cannot_be_compared(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.range(2))
        merge = dataset.merge(spark.sql("SELECT 1L AS id, 2 AS w").alias("n"), "t.w = n.w", alias="t")
        with pytest.raises(ValidationError, match="merge condition"):
            merge.withSchemaEvolution().whenMatchedUpdateAll().execute()


class TestValues:
    def test_fields_that_the_source_lacks_are_not_lost(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.sql("SELECT 1L AS id, named_struct('x', 5, 'y', 6) AS p"))
        source = spark.sql("SELECT 1L AS id, named_struct('x', 7, 'z', 8) AS p").alias("n")
        merge = dataset.merge(source, "t.id = n.id", alias="t").whenMatchedUpdateAll()
        with pytest.raises(SchemaMismatchError, match="z: is not a field"):
            merge.execute()
        with pytest.raises(SchemaMismatchError, match="the value lacks y"):
            dataset.update({"p": "named_struct('x', 1)"})
        merge.withSchemaEvolution().execute()
        assert rows_of(local) == [(1, (7, 6, 8))]

    def test_a_value_that_does_not_fit_fails_whatever_the_session_says(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.sql("SELECT 1L AS id, 1 AS v"))
        with setting(spark, "spark.sql.ansi.enabled", "false"):
            with pytest.raises(Exception, match="does not fit column v"):
                dataset.update({"v": "1099511627776L + 7"})
            source = spark.sql("SELECT 4294967301L AS id, 5 AS k, 2 AS v").alias("n")
            write_dataset(local, NAME, spark.sql("SELECT 4294967301L AS id, 3 AS v"))
            merge = dataset.merge(source, "CAST(t.id AS INT) = n.k", alias="t")
            assert merge.whenMatchedDelete().execute().metrics["numTargetRowsDeleted"] == 1

    def test_keys_that_are_no_values_need_no_range(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.sql("SELECT CAST(id AS INT) AS id FROM range(5)"))
        source = spark.sql("SELECT * FROM VALUES ('num', '3'), ('text', 'abc') AS v(kind, key)").alias("n")
        merge = dataset.merge(source, "n.kind = 'num' AND t.id = CAST(n.key AS INT)", alias="t")
        assert merge.whenMatchedDelete().execute().metrics["numTargetRowsDeleted"] == 1


class TestTransactions:
    def test_what_is_held_counts_for_a_table_that_is_changed_too(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.sql("SELECT * FROM VALUES (1L, 10), (2L, 20) AS v(id, v)"))
        with pytest.raises(ConcurrencyError), local.transaction() as tx:
            (row,) = tx.read(NAME, "id = 1", hold=True).collect()
            dataset.update({"v": "110"}, "id = 1")
            tx.write(NAME, spark.sql(f"SELECT 99L AS id, {row['v']} AS v"))
        assert dataset.count() == 2

    def test_a_name_that_was_given_to_another_table_is_not_that_table(self, local: Lake, spark: SparkSession) -> None:
        written(local, spark.range(3))
        with pytest.raises(Exception, match="was dropped"), local.transaction() as tx:
            local.drop_dataset(NAME)
            write_dataset(local, NAME, spark.range(777, 778))
            tx.delete(NAME)
        assert rows_of(local) == [(777,)]

    def test_a_batch_that_was_committed_before_is_skipped(self, local: Lake, spark: SparkSession) -> None:
        written(local, spark.range(3))
        for _ in range(2):
            with local.transaction() as tx:
                tx.write(NAME, spark.range(3, 4), txn_app_id="app", txn_version=1)
        assert [row[0] for row in rows_of(local)] == [0, 1, 2, 3]


class TestLeftovers:
    def test_a_merge_with_nothing_to_do_leaves_nothing(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 5))
        source = spark.range(3).alias("n")
        dataset.merge(source, "t.id = n.id", alias="t").whenNotMatchedInsert(values={"id": "n.id"}).execute()
        assert leftovers(local) == (1, 0)

    def test_a_feed_that_cannot_be_written_takes_the_files_along(
        self, local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset = make(local, spark, numbered(0, 5), properties=FED)

        def full(*arguments: Any) -> None:
            raise OSError("disk full")

        monkeypatch.setattr(Stage, "write_changes", full)
        with pytest.raises(OSError, match="disk full"):
            dataset.update({"s": "'x'"}, "id = 1")
        assert leftovers(local) == (1, 0)


class TestLakeTable:
    def test_lists_name_files_where_they_are(self, local: Lake, spark: SparkSession) -> None:
        written(local, spark.sql("SELECT id, id % 2 AS k FROM range(4)"), partition_by=["k"])
        local.clone(NAME, "cloned")
        table = LakeTable.forName(spark, "cloned", lake=local)
        table.generate("symlink_format_manifest")
        lists = sorted(Path(table.dataset.location, "_symlink_format_manifest").rglob("manifest"))
        assert [file.parent.name for file in lists] == ["k=0", "k=1"]
        lines = [line for file in lists for line in file.read_text().splitlines()]
        assert all(line.startswith("file:/") and Path(line[len("file:") :]).exists() for line in lines)

    def test_a_protocol_with_features_keeps_those_it_had(self, local: Lake, spark: SparkSession) -> None:
        written(local, spark.range(2))
        table = LakeTable.forName(spark, NAME, lake=local)
        table.upgradeTableProtocol(3, 7)
        assert set(table.detail().collect()[0]["tableFeatures"]) == {"appendOnly", "invariants"}

    def test_who_loses_the_race_for_a_table_has_it(
        self, local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        create = LakeTableBuilder._create

        def late(builder: LakeTableBuilder) -> Any:
            create(builder)
            return create(builder)

        monkeypatch.setattr(LakeTableBuilder, "_create", late)
        builder = LakeTable.createIfNotExists(spark, lake=local).tableName("raced").addColumn("id", "INT")
        assert builder.execute().dataset.name == "raced"


class TestConditions:
    @pytest.mark.parametrize("properties", [{}, BY_VECTORS], ids=["copies", "vectors"])
    def test_a_clause_with_the_clock_in_it_decides_once(
        self, local: Lake, spark: SparkSession, properties: dict[str, str]
    ) -> None:
        """Some rows are not yet of the past when they are looked for, and are when they are written."""
        soon = "current_timestamp() + make_dt_interval(0, 0, 0, id * 0.01) AS ts"
        dataset = written(local, spark.range(400).selectExpr("id", soon, "0 AS v"), properties=properties)
        merge = dataset.merge(spark.range(400).alias("n"), "t.id = n.id", alias="t")
        done = merge.whenMatchedUpdate("t.ts < current_timestamp()", {"v": "1"}).execute()
        updated = done.metrics["numTargetRowsUpdated"]
        assert read_dataset(local, NAME, where="v = 1").count() == updated
        assert read_dataset(local, NAME).count() == 400

    @pytest.mark.parametrize("where", ["rand() < 0.5", "t.id = n.id AND rand() < 0.5"])
    def test_chance_decides_nothing(self, local: Lake, spark: SparkSession, where: str) -> None:
        dataset = written(local, spark.range(4))
        merge = dataset.merge(spark.range(4).alias("n"), where, alias="t").whenMatchedDelete()
        with pytest.raises(ValidationError, match="another answer each time"):
            merge.execute()
        merge = dataset.merge(spark.range(4).alias("n"), "t.id = n.id", alias="t").whenMatchedDelete("rand() < 0.5")
        with pytest.raises(ValidationError, match="another answer each time"):
            merge.execute()
        assert dataset.version == 0

    def test_a_clause_says_nothing_of_rows_that_it_is_not_for(self, local: Lake, spark: SparkSession) -> None:
        dataset = written(local, spark.sql("SELECT * FROM VALUES (1, 7), (2, 5), (3, 0) AS t (id, y)"))
        source = spark.sql("SELECT 1 AS id").alias("n")
        merge = dataset.merge(source, "t.id = n.id", alias="t")
        merge.whenNotMatchedBySourceUpdate("t.y <> 0", {"y": "CAST(10 / t.y AS INT)"}).execute()
        assert rows_of(local) == [(1, 7), (2, 2), (3, 0)]


class TestInsideAndGenerated:
    @pytest.mark.parametrize("ansi", ["true", "false"])
    def test_a_value_is_cast_to_its_column_or_fails(self, local: Lake, spark: SparkSession, ansi: str) -> None:
        """As Delta's users write it: lit("1") for a number, a text for a date."""
        columns = "1 AS n, DATE'2024-01-01' AS d, TIMESTAMP'2024-01-01 00:00:00' AS t, true AS b, 1.5D AS x"
        dataset = written(local, spark.sql(f"SELECT 1 AS id, {columns}"))
        with setting(spark, "spark.sql.ansi.enabled", ansi):
            dataset.update(
                {
                    "n": F.lit("7"),
                    "d": "'2025-02-03'",
                    "t": "'2025-02-03 04:05:06'",
                    "b": "'false'",
                    "x": "'2.5'",
                }
            )
            dataset.update({"n": "b", "d": "t", "b": "id"})
            source = spark.sql("SELECT '2' AS id, 'x' AS s").alias("s")
            merge = dataset.merge(source, "t.id = s.id", alias="t")
            merge.whenNotMatchedInsert(values={"id": "s.id", "n": F.lit("1")}).execute()
            found = {row.id: row for row in read_dataset(local, NAME).collect()}
            assert (found[1].n, str(found[1].d), found[1].b, found[1].x) == (0, "2025-02-03", True, 2.5)
            assert (found[2].n, found[2].d) == (1, None)
            for name, value in (("n", "'seven'"), ("n", "'1.5'"), ("d", "'2025-02-30'"), ("b", "'perhaps'")):
                with pytest.raises(PySparkException, match="does not fit"):
                    dataset.update({name: value})

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("a", "array(3000000000L)"),
            ("m", "map('k', 3000000000L)"),
            ("m2", "map(3000000000L, 'v')"),
            ("l", "array(named_struct('x', 3000000000L))"),
            ("d", "named_struct('a', array(array(3000000000L)))"),
        ],
    )
    def test_a_number_that_does_not_fit_fails_wherever_it_is(
        self, local: Lake, spark: SparkSession, column: str, value: str
    ) -> None:
        columns = (
            "array(1) AS a, map('k', 1) AS m, map(1, 'v') AS m2, array(named_struct('x', 1)) AS l, "
            "named_struct('a', array(array(1))) AS d"
        )
        dataset = written(local, spark.sql(f"SELECT 1 AS id, {columns}"))
        with setting(spark, "spark.sql.ansi.enabled", "false"):
            fitting = value.replace("3000000000L", "7L")
            dataset.update({column: fitting})
            (row,) = read_dataset(local, NAME).select(column).collect()
            assert "7" in str(row[0])
            with pytest.raises(PySparkException, match="does not fit"):
                dataset.update({column: value})
            dataset.update({column: "NULL"})
            assert read_dataset(local, NAME).where(f"{column} IS NULL").count() == 1

    def test_a_generated_column_follows_where_a_clause_does_not_say_what_it_is(
        self, local: Lake, spark: SparkSession
    ) -> None:
        builder = LakeTable.create(spark, lake=local).tableName(NAME).addColumn("id", "LONG").addColumn("v", "INT")
        builder.addColumn("w", "INT", generatedAlwaysAs="v * 2").execute()
        dataset = local.dataset(NAME)
        write_dataset(local, NAME, spark.sql("SELECT id, 1 AS v FROM range(4)").coalesce(1))

        def merge(said: str) -> None:
            source = spark.sql("SELECT id, 5 AS v FROM range(4)").alias("n")
            started = dataset.merge(source, "t.id = n.id", alias="t").whenMatchedUpdate("n.id = 1", {"v": "n.v"})
            started.whenMatchedUpdate("n.id = 2", {"v": "n.v", "w": said}).execute()

        with pytest.raises(SchemaMismatchError, match="generated"):
            merge("999")
        merge("10")
        assert rows_of(local) == [(0, 1, 2), (1, 5, 10), (2, 5, 10), (3, 1, 2)]
