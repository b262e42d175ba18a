"""Overwrites that replace more than rows, or find out without reading; files of a size; and a table that appears."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog import (
    DatasetExistsError,
    Lake,
    LakelogError,
    SchemaMismatchError,
    ValidationError,
    read_dataset,
    write_dataset,
)
from lakelog.spark.frames import setting
from tests.invariants import check_invariants
from tests.model.values import KINDS, same

NAME = "events"


def rows(lake: Lake, **options: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in read_dataset(lake, NAME, **options).collect()), key=str)


class TestSchema:
    @pytest.mark.parametrize("mapped", [False, True])
    def test_columns_and_partitioning_are_replaced_with_the_rows(
        self, local: Lake, spark: SparkSession, mapped: bool
    ) -> None:
        write_dataset(local, NAME, spark.sql("SELECT 'a' AS id, 1 AS k, 2 AS x"), partition_by=["k"])
        if mapped:
            local.dataset(NAME).rename_column("x", "y")
        new = spark.sql("SELECT 7L AS id, 'p' AS part")
        result = write_dataset(local, NAME, new, "overwrite", overwrite_schema=True, partition_by=["part"])
        dataset = local.dataset(NAME)
        assert rows(local) == [(7, "p")]
        assert rows(local, version=0) == [("a", 1, 2)]
        assert dataset.schema().names == ["id", "part"]
        assert dataset.schema().field("id").type == pa.int64()
        assert dataset.snapshot().metadata.partition_columns == ("part",)
        assert (rows(local, where="id = 7"), rows(local, where="id = 8")) == ([(7, "p")], [])
        assert rows(local, version=result.version - 1, where="id = 'a'") == [("a", 1, 2)]
        write_dataset(local, NAME, spark.sql("SELECT 8L AS id, 'q' AS part"))
        assert rows(local) == [(7, "p"), (8, "q")]
        check_invariants(local)

    def test_the_partitioning_stays_unless_it_is_named(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.sql("SELECT 1 AS id, 1 AS k"), partition_by=["k"])
        write_dataset(local, NAME, spark.sql("SELECT 'x' AS id, 1 AS K"), "overwrite", overwrite_schema=True)
        assert local.dataset(NAME).snapshot().metadata.partition_columns == ("K",)
        with pytest.raises(SchemaMismatchError, match="K: is a partition column that the data does not have"):
            write_dataset(local, NAME, spark.sql("SELECT 1 AS id"), "overwrite", overwrite_schema=True)
        write_dataset(local, NAME, spark.sql("SELECT 1 AS id"), "overwrite", overwrite_schema=True, partition_by=[])
        assert (rows(local), local.dataset(NAME).snapshot().metadata.partition_columns) == ([(1,)], ())

    def test_the_same_schema_changes_nothing(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.range(3))
        write_dataset(local, NAME, spark.range(2), "overwrite", overwrite_schema=True)
        assert (rows(local), len(local.dataset(NAME).schema_history())) == ([(0,), (1,)], 1)

    @pytest.mark.parametrize(
        "options",
        [{"mode": "append"}, {"mode": "overwrite", "replace_where": "id = 1"}],
    )
    def test_it_goes_with_a_whole_overwrite_only(
        self, local: Lake, spark: SparkSession, options: dict[str, Any]
    ) -> None:
        with pytest.raises(ValidationError, match="overwrite_schema: goes with"):
            write_dataset(local, NAME, spark.range(1), overwrite_schema=True, **options)


class TestReplaceByPartition:
    def test_a_condition_on_partition_columns_reads_and_rewrites_nothing(self, lake: Lake, spark: SparkSession) -> None:
        frame = spark.range(6).withColumn("day", F.expr("date_add(DATE '2026-01-01', CAST(id % 3 AS INT))"))
        write_dataset(lake, NAME, frame.coalesce(1), partition_by=["day"])
        # Whoever opened one of these files would fail.
        for path in Path(lake.dataset(NAME).location).rglob("*.parquet"):
            path.write_bytes(b"x" * path.stat().st_size)
        new = spark.sql("SELECT 100L AS id, DATE '2026-01-03' AS day")
        result = write_dataset(lake, NAME, new, "overwrite", replace_where="day >= '2026-01-02' AND day < now()")
        assert (result.removed, result.files) == (2, 1)
        assert lake.dataset(NAME).count("day <= '2026-01-01'") == 2
        assert rows(lake, where="day > '2026-01-02'") == [(100, new.collect()[0].day)]

    def test_a_partition_that_matches_as_null_stays(self, lake: Lake, spark: SparkSession) -> None:
        frame = spark.createDataFrame([(1, "a"), (2, None), (3, "b")], "id int, k string")
        write_dataset(lake, NAME, frame, partition_by=["k"])
        write_dataset(lake, NAME, frame.where("k = 'b'"), "overwrite", replace_where="k <> 'a'")
        assert rows(lake) == [(1, "a"), (2, None), (3, "b")]
        write_dataset(lake, NAME, frame.where("false"), "overwrite", replace_where="true")
        assert rows(lake) == []

    @pytest.mark.parametrize("condition", ["rand() < 0.5", "id < 2 AND uuid() IS NOT NULL"])
    def test_a_condition_that_chooses_other_rows_each_time_is_refused(
        self, local: Lake, spark: SparkSession, condition: str
    ) -> None:
        with pytest.raises(ValidationError, match="gives another answer each time it is asked"):
            write_dataset(local, NAME, spark.range(3), "overwrite", replace_where=condition)
        assert local.datasets() == []
        write_dataset(local, NAME, spark.range(3))
        with pytest.raises(ValidationError, match="gives another answer each time it is asked"):
            write_dataset(local, NAME, spark.range(3), "overwrite", replace_where=condition)
        with pytest.raises(ValidationError, match="gives another answer each time it is asked"):
            local.dataset(NAME).delete(condition)
        assert (local.dataset(NAME).version, rows(local)) == (0, [(0,), (1,), (2,)])

    def test_a_condition_may_depend_on_rows_of_another_table(self, local: Lake, spark: SparkSession) -> None:
        write_dataset(local, NAME, spark.range(6))
        condition = "id < (SELECT max(most) FROM VALUES (0, 3), (1, 0) AS v(kind, most) WHERE kind = id % 2)"
        write_dataset(local, NAME, spark.range(1), "overwrite", replace_where=condition)
        assert rows(local) == [(0,), (1,), (3,), (4,), (5,)]
        with pytest.raises(SchemaMismatchError, match="replace_where: 1 rows do not match"):
            write_dataset(local, NAME, spark.range(2), "overwrite", replace_where=condition)


class TestFileSize:
    @pytest.mark.parametrize("partition_by", [None, ["k"]])
    def test_files_are_about_as_large_as_asked_for(
        self, local: Lake, spark: SparkSession, partition_by: list[str] | None
    ) -> None:
        target = 500_000
        frame = spark.range(0, 600_000, 1, 24).selectExpr("id", "rand(1) AS x", "id % 2 AS k")
        write_dataset(local, NAME, frame, target_file_size=target, partition_by=partition_by)
        sizes = local.dataset(NAME).snapshot().files(columns=["size"]).column("size").to_pylist()
        assert sum(sizes) > 4 * target
        assert max(sizes) < 2 * target
        assert len(sizes) <= 2 * sum(sizes) / target
        assert spark.conf.get("spark.sql.adaptive.advisoryPartitionSizeInBytes") == "67108864b"

    @pytest.mark.parametrize("partition_by", [[], ["k"]])
    def test_no_rows_are_no_files(self, local: Lake, spark: SparkSession, partition_by: list[str]) -> None:
        frame = spark.range(10).selectExpr("id", "id % 2 AS k").where("id > 20")
        result = write_dataset(local, NAME, frame, target_file_size=1 << 20, sort_by=["id"], partition_by=partition_by)
        assert (result.version, result.files, result.rows) == (0, 0, 0)

    def test_a_size_is_a_number_of_bytes(self, local: Lake, spark: SparkSession) -> None:
        with pytest.raises(ValidationError, match="target_file_size: expected a positive integer, got '1MB'"):
            write_dataset(local, NAME, spark.range(1), target_file_size="1MB")  # type: ignore[arg-type]


class TestCreationRace:
    @pytest.fixture
    def overtaken(self, lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        """Somebody else creates the table after a write has found that there is none."""
        find = lake.new_location

        def overtake(name: str) -> str:
            monkeypatch.undo()
            found = find(name)
            write_dataset(lake, name, spark.range(1))
            return found

        monkeypatch.setattr(lake, "new_location", overtake)

    @pytest.mark.usefixtures("overtaken")
    def test_an_append_appends(self, lake: Lake, spark: SparkSession) -> None:
        assert write_dataset(lake, NAME, spark.range(1, 3)).version == 1
        assert rows(lake) == [(0,), (1,), (2,)]
        check_invariants(lake)

    @pytest.mark.usefixtures("overtaken")
    def test_ignore_is_content(self, lake: Lake, spark: SparkSession) -> None:
        assert write_dataset(lake, NAME, spark.range(1, 3), "ignore").skipped
        assert rows(lake) == [(0,)]

    @pytest.mark.usefixtures("overtaken")
    @pytest.mark.parametrize(("mode", "retries"), [("append", 0), ("overwrite", 5), ("error", 5)])
    def test_what_would_replace_or_not_retry_is_refused(
        self, lake: Lake, spark: SparkSession, mode: str, retries: int
    ) -> None:
        with pytest.raises(DatasetExistsError):
            write_dataset(lake, NAME, spark.range(1, 3), mode, retries=retries)
        assert rows(lake) == [(0,)]


def test_files_that_only_spark_can_see_are_not_committed(
    local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a server of Spark Connect that has a disk of its own."""
    monkeypatch.setattr("pyspark.sql.DataFrameWriter.parquet", lambda *_: spark.range(1).count())
    monkeypatch.setattr("pyspark.sql.Observation.get", {"rows": 1})
    with pytest.raises(LakelogError, match="which this process does not find"):
        write_dataset(local, NAME, spark.range(1))
    assert local.datasets() == []


@pytest.mark.parametrize("options", [{"replace_where": "k = 1"}, {"partition_overwrite_mode": "dynamic"}])
def test_a_column_cannot_become_text_in_a_part_of_the_table(
    local: Lake, spark: SparkSession, options: dict[str, Any]
) -> None:
    write_dataset(local, NAME, spark.sql("SELECT id, id AS k FROM range(2)"), partition_by=["k"])
    new = spark.sql("SELECT 'x' AS id, 1L AS k")
    with pytest.raises(SchemaMismatchError, match="id: would become a string, for which all files are written again"):
        write_dataset(local, NAME, new, "overwrite", schema_merge=True, promote_to_string=True, **options)
    assert rows(local) == [(0, 0), (1, 1)]


def test_settings_are_restored_when_threads_have_changed_them_at_once(spark: SparkSession) -> None:
    name = "spark.sql.adaptive.advisoryPartitionSizeInBytes"
    before = spark.conf.get(name)
    first, second = setting(spark, name, "1"), setting(spark, name, "2")
    with first:
        second.__enter__()
    assert spark.conf.get(name) == "2"
    second.__exit__(None, None, None)
    assert spark.conf.get(name) == before


def test_a_dynamic_overwrite_tells_every_value_of_every_type_from_its_neighbours(
    spark: SparkSession, local: Lake
) -> None:
    """A table is partitioned by a column of each type, and each row differs from the first one in one of them."""
    kinds = [kind for kind in KINDS if kind.partitions]
    # An empty text is no other partition than NULL, for Delta as for Spark.
    edges = {kind: [edge for edge in kind.edges if kind.names_a_directory(edge) and edge != ""] for kind in kinds}
    first = [found[0] for found in edges.values()]
    several = [first]
    for number, found in enumerate(edges.values()):
        seen = {same(first[number])}
        for edge in (*found[1:], None):
            if same(edge) not in seen:
                seen.add(same(edge))
                several.append([*first[:number], edge, *first[number + 1 :]])
    columns = {kind.name: kind.array([row[number] for row in several]) for number, kind in enumerate(kinds)}
    table = pa.table({"id": pa.array(range(len(several))), **columns})
    with setting(spark, "spark.sql.timestampType", "TIMESTAMP_NTZ"):
        frame = spark.createDataFrame(table).coalesce(1).cache()
    write_dataset(local, NAME, frame, partition_by=[kind.name for kind in kinds])

    def ids() -> list[int]:
        return sorted(row.id for row in read_dataset(local, NAME).select("id").collect())

    again = frame.where("id = 0").withColumn("id", F.lit(1000).cast("bigint"))
    result = write_dataset(local, NAME, again, "overwrite", partition_overwrite_mode="dynamic")
    assert (result.removed, ids()) == (1, [*range(1, len(several)), 1000])
    others = frame.where("id > 0").withColumn("id", F.col("id") + 1000)
    result = write_dataset(local, NAME, others, "overwrite", partition_overwrite_mode="dynamic")
    assert (result.removed, ids()) == (len(several) - 1, [*range(1000, 1000 + len(several))])
