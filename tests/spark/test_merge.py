"""Merging: what the rows are then, which files are written again, and what is refused."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import lakelog
from lakelog import (
    ConcurrencyError,
    Lake,
    LakelogError,
    SchemaMismatchError,
    ValidationError,
    read_changes,
    write_dataset,
)
from lakelog.spark.dml.clauses import Act, Clause, When
from lakelog.spark.dml.merge import Merge, prepare_merge
from lakelog.spark.dml.verbs import options
from lakelog.spark.frames import setting
from tests.invariants import check_invariants
from tests.spark.changing import (
    BY_VECTORS,
    NAME,
    comparisons,
    make,
    numbered,
    rows,
    rows_of,
    table_of,
    tables,
    told_by_duckdb,
)

MODEST = settings(
    max_examples=7, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

ALL = ("id", "k", "s", "place")
Clauses = list[tuple[str, str | None, str | None]]
"""Of each the kind, the condition, and the SET or VALUES as DuckDB writes them."""


@st.composite
def clauses(draw: st.DrawFn) -> Clauses:
    """Up to two of each kind, of which the last may be without a condition."""
    found: Clauses = []
    for when, prefixes, acts in (
        ("MATCHED", ("t.", "src."), ("UPDATE SET s = src.s, k = t.k + 1", "UPDATE", "DELETE")),
        ("NOT MATCHED", ("src.",), ("INSERT", "INSERT (id, s) VALUES (src.id, 'new')")),
        ("NOT MATCHED BY SOURCE", ("t.",), ("UPDATE SET s = 'gone'", "DELETE")),
    ):
        count = draw(st.integers(0, 2))
        for number in range(count):
            condition = st.sampled_from(prefixes).flatmap(comparisons)
            last = st.none() | condition if number == count - 1 else condition
            found.append((when, draw(last), draw(st.sampled_from(acts))))
    return found or [("MATCHED", None, "DELETE")]


def as_sql(given: Clauses) -> str:
    parts = ["MERGE INTO t USING src ON t.id = src.id"]
    for when, condition, act in given:
        said = {
            "UPDATE": "UPDATE SET " + ", ".join(f"{name} = src.{name}" for name in ALL),
            "INSERT": f"INSERT ({', '.join(ALL)}) VALUES ({', '.join(f'src.{name}' for name in ALL)})",
        }.get(str(act), act)
        parts.append(f"WHEN {when}{'' if condition is None else f' AND ({condition})'} THEN {said}")
    return "\n".join(parts)


def as_clauses(given: Clauses) -> list[Clause]:
    found = []
    for when, condition, act in given:
        values: dict[str, str] | None = None
        if act and act.startswith("UPDATE SET "):
            values = dict(part.split(" = ") for part in act.removeprefix("UPDATE SET ").split(", "))
        elif act and act.startswith("INSERT ("):
            values = {"id": "src.id", "s": "'new'"}
        kind = Act(str(act).split(" ")[0].lower())
        found.append(Clause(when=When(when.lower()), act=kind, condition=condition, values=values))
    return found


@MODEST
@given(
    files=tables,
    source=st.lists(rows, max_size=8, unique_by=lambda row: object() if row[0] is None else row[0]),
    given=clauses(),
    partitioned=st.booleans(),
    by_vectors=st.booleans(),
)
def test_a_merge_gives_the_rows_that_duckdb_gives(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    files: list[list[tuple[Any, ...]]],
    source: list[tuple[Any, ...]],
    given: Clauses,
    partitioned: bool,
    by_vectors: bool,
) -> None:
    with lakelog.connect(f"sqlite:///{tmp_path_factory.mktemp('lake')}/{uuid.uuid4().hex}.db") as lake:
        dataset = make(
            lake,
            spark,
            *files,
            partition_by=["k"] if partitioned else None,
            properties=BY_VECTORS if by_vectors else None,
        )
        every = table_of([row for each in files for row in each])
        told = told_by_duckdb(as_sql(given), every, table_of(source))
        frame = spark.createDataFrame(table_of(source)).alias("src")
        merge = Merge(source=frame, condition="t.id = src.id", clauses=as_clauses(given), alias="t")
        result = prepare_merge(dataset, dataset.snapshot(), merge, options(0, None, None), spark).commit(lake, 0)
        assert rows_of(lake) == told
        metrics = result.metrics
        assert every.num_rows + metrics["numTargetRowsInserted"] - metrics["numTargetRowsDeleted"] == len(told)
        check_invariants(lake)


def source_of(spark: SparkSession, *found: tuple[Any, ...], schema: str = "id long, s string") -> Any:
    return spark.createDataFrame(list(found), schema).alias("src")


class TestFiles:
    def test_only_files_with_a_row_that_changes_are_written_again(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10), numbered(10, 20), numbered(20, 30))
        source = source_of(spark, (3, "x"), (25, "no"), (99, "new"))
        merge = dataset.merge(source, "t.id = src.id", alias="t")
        result = (
            merge.whenMatchedUpdate("src.s = 'x'", {"s": "src.s"})
            .whenNotMatchedInsert(values={"id": "src.id"})
            .execute()
        )
        wanted = {
            "numSourceRows": 3,
            "numTargetFilesRemoved": 1,
            "numTargetRowsUpdated": 1,
            "numTargetRowsCopied": 9,
            "numTargetRowsInserted": 1,
        }
        assert result.metrics | wanted == result.metrics
        assert rows_of(local, where="id IN (3, 99)") == [(3, 0, "x", (3,)), (99, None, None, None)]

    def test_a_merge_that_only_inserts_writes_no_file_again(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 10))
        before = set(dataset.snapshot().files().column("path").to_pylist())
        merge = dataset.merge(source_of(spark, (3, "x"), (99, "new")), "t.id = src.id", alias="t")
        result = merge.whenNotMatchedInsert(values={"id": "src.id", "s": "src.s"}).execute()
        assert before < set(dataset.snapshot().files().column("path").to_pylist())
        assert (result.metrics["numTargetFilesRemoved"], result.metrics["numTargetRowsInserted"]) == (0, 1)
        assert merge.whenNotMatchedInsert("src.id = 3", {"id": "src.id"}).execute().commit_id is None

    def test_the_source_is_read_once(self, local: Lake, spark: SparkSession, tmp_path: Path) -> None:
        dataset = make(local, spark, numbered(0, 10))
        reads = spark.sparkContext.accumulator(0)

        def note(batches: Any) -> Any:
            for batch in batches:
                reads.add(batch.num_rows)
                yield batch

        noted = spark.createDataFrame([(3, "x"), (99, "y")], "id long, s string")
        source = noted.coalesce(1).mapInArrow(note, "id long, s string").alias("src")
        merge = dataset.merge(source, "t.id = src.id", alias="t")
        merge.whenMatchedUpdate(set={"s": "src.s"}).whenNotMatchedInsert(values={"id": "src.id"}).execute()
        assert reads.value == 2

    def test_a_source_that_is_another_one_each_time_is_noticed_or_the_same(
        self, local: Lake, spark: SparkSession
    ) -> None:
        dataset = make(local, spark, numbered(0, 200))
        source = spark.range(200).where("rand() < 0.5").selectExpr("id", "'r' AS s").alias("src")
        merge = dataset.merge(source, "t.id = src.id", alias="t")
        result = merge.whenMatchedUpdate(set={"s": "src.s"}).execute()
        assert result.metrics["numTargetRowsUpdated"] == result.metrics["numSourceRows"] == dataset.count("s = 'r'")


class TestSeveralMatches:
    @pytest.fixture
    def merge(self, local: Lake, spark: SparkSession) -> Any:
        dataset = make(local, spark, numbered(0, 10))
        return dataset.merge(source_of(spark, (3, "x"), (3, "y"), (4, "z")), "t.id = src.id", alias="t")

    def test_two_that_would_change_one_row_are_an_error(self, local: Lake, merge: Any) -> None:
        with pytest.raises(ValidationError, match="1 rows of the table are matched by more than one row of the source"):
            merge.whenMatchedUpdate(set={"s": "src.s"}).execute()
        with pytest.raises(ValidationError, match="matched by more than one"):
            merge.whenMatchedDelete("src.s <> 'z'").execute()
        assert local.dataset(NAME).version == 0

    def test_two_of_which_one_changes_a_row_are_none(self, local: Lake, merge: Any) -> None:
        result = (
            merge.whenMatchedUpdate("src.s = 'y'", {"s": "src.s"}).whenNotMatchedInsert(values={"id": "-1"}).execute()
        )
        assert (result.metrics["numTargetRowsUpdated"], result.metrics["numTargetRowsCopied"]) == (1, 9)
        assert result.metrics["numTargetRowsInserted"] == 0
        assert [row[2] for row in rows_of(local, where="id IN (3, 4)")] == ["y", "s4"]

    def test_two_that_delete_one_row_are_none(self, local: Lake, merge: Any) -> None:
        result = merge.whenMatchedDelete().execute()
        assert result.metrics["numTargetRowsDeleted"] == 2
        assert len(rows_of(local)) == 8


class TestSchema:
    def test_without_evolution_a_star_needs_every_column(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 3))
        merge = dataset.merge(source_of(spark, (3, "x")), "t.id = src.id", alias="t")
        with pytest.raises(ValidationError, match="k: is not a column of the source"):
            merge.whenNotMatchedInsertAll().execute()

    def test_a_star_takes_columns_by_name_without_case(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 3))
        source = spark.sql("SELECT 'n' AS S, named_struct('X', 9) AS PLACE, 1 AS K, 2L AS ID, 'more' AS extra")
        dataset.merge(source.alias("u"), "t.id = u.ID", alias="t").whenMatchedUpdateAll().execute()
        assert rows_of(local, where="id = 2") == [(2, 1, "n", (9,))]

    def test_evolution_adds_and_widens_columns(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 3), partition_by=["k"])
        source = spark.sql(
            "SELECT 1L AS id, named_struct('x', 1L, 'y', 'in') AS place, 5.5D AS score UNION ALL SELECT 7L, NULL, 1D"
        ).alias("src")
        merge = dataset.merge(source, "t.id = src.id", alias="t").withSchemaEvolution()
        merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
        assert dataset.schema().names == ["id", "k", "s", "place", "score"]
        assert rows_of(local, where="id IN (1, 2, 7)") == [
            (1, 0, "s1", (1, "in"), 5.5),
            (2, 0, "s2", (2, None), None),
            (7, None, None, None, 1.0),
        ]
        named = dataset.merge(source_of(spark, (1, "a"), schema="id long, t2 string"), "t.id = src.id", alias="t")
        named.withSchemaEvolution().whenMatchedUpdate(set={"t.t2": "src.t2"}).execute()
        assert dataset.count("t2 = 'a'") == 1
        check_invariants(local)

    @pytest.mark.parametrize("value", ["src.place", "CASE WHEN src.id > 0 THEN src.place END"])
    def test_a_clause_that_takes_a_struct_of_the_source_takes_its_new_fields(
        self, local: Lake, spark: SparkSession, value: str
    ) -> None:
        dataset = make(local, spark, numbered(0, 3))
        place = "named_struct('x', 9, 'y', 'in') AS place"
        source = spark.sql(f"SELECT 1L AS id, {place}, 5.5D AS score UNION ALL SELECT 7L, {place[:-9]}, 1D").alias(
            "src"
        )
        merge = dataset.merge(source, "t.id = src.id", alias="t").withSchemaEvolution()
        merge.whenMatchedUpdate(set={"t.place": value}).whenNotMatchedInsert(
            values={"id": "src.id", "place": "src.place"}
        ).execute()
        assert dataset.schema().names == ["id", "k", "s", "place"]
        assert rows_of(local, where="id IN (1, 2, 7)") == [
            (1, 0, "s1", (9, "in")),
            (2, 0, "s2", (2, None)),
            (7, None, None, (9, "in")),
        ]
        check_invariants(local)

    def test_what_a_clause_does_not_take_from_the_source_as_it_is_adds_no_fields(
        self, local: Lake, spark: SparkSession
    ) -> None:
        dataset = make(local, spark, numbered(0, 3))
        source = spark.sql("SELECT 1L AS id, named_struct('x', 9, 'y', 'in') AS place").alias("src")
        merge = dataset.merge(source, "t.id = src.id", alias="t").withSchemaEvolution()
        merge.whenMatchedUpdate(set={"place": "named_struct('x', src.place.x)"}).execute()
        assert rows_of(local, where="id = 1") == [(1, 0, "s1", (9,))]


class TestRefused:
    @pytest.mark.parametrize(
        ("build", "error", "said"),
        [
            (lambda merge: merge, ValidationError, "at least one when"),
            (lambda merge: merge.whenMatchedUpdate(set={}), ValidationError, "expected columns and their values"),
            (lambda merge: merge.whenMatchedDelete().whenMatchedUpdateAll(), ValidationError, "never reached"),
            (lambda merge: merge.whenMatchedDelete("nope = 1"), ValidationError, "nope"),
            (lambda merge: merge.whenMatchedUpdate(set={"nope": "1"}), ValidationError, "is not a column of the table"),
            (lambda merge: merge.whenNotMatchedInsert(values={"id": "t.id"}), ValidationError, "t"),
            (lambda merge: merge.whenMatchedUpdate(set={"id": "X'01'"}), SchemaMismatchError, "cannot hold binary"),
            (lambda merge: merge.whenNotMatchedInsert(values={"id": 5}), ValidationError, "a text or a Column, got 5"),
            (lambda merge: merge.whenNotMatchedBySourceDelete("src.id = 1"), ValidationError, "src"),
        ],
    )
    def test_what_cannot_be_is_said_before_anything_is_written(
        self, local: Lake, spark: SparkSession, build: Callable[[Any], Any], error: type[LakelogError], said: str
    ) -> None:
        dataset = make(local, spark, numbered(0, 3))
        with pytest.raises(error, match=said):
            build(dataset.merge(source_of(spark, (3, "x")), "t.id = src.id", alias="t")).execute()
        assert dataset.version == 0

    def test_a_condition_on_unknown_columns_is_refused(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 3))
        with pytest.raises(ValidationError, match="merge condition"):
            dataset.merge(source_of(spark, (3, "x")), "t.nope = src.id", alias="t").whenMatchedDelete().execute()

    def test_a_condition_that_a_join_refuses_is_refused(self, local: Lake, spark: SparkSession) -> None:
        dataset = make(local, spark, numbered(0, 3))
        asked = "t.id = src.id AND t.id < (SELECT max(id) FROM VALUES (1) AS v(id) WHERE v.id = t.id)"
        merge = dataset.merge(source_of(spark, (1, "x")), asked, alias="t").whenMatchedDelete()
        with pytest.raises(ValidationError, match="merge condition"):
            merge.execute()


class TestTogether:
    @pytest.mark.parametrize(
        ("winner", "loser", "passes"),
        [
            ({"k": 1, "id": 10}, {"k": 2, "id": 20}, True),
            ({"k": 1, "id": 10}, {"k": 1, "id": 12}, False),
            ({"k": 1, "id": 99}, {"k": 1, "id": 99}, False),
            ({"k": 5, "id": 99}, {"k": 1, "id": 12}, True),
        ],
        ids=["other partitions", "one partition", "the same insert", "an insert elsewhere"],
    )
    def test_merges_into_other_partitions_both_pass(
        self, local: Lake, spark: SparkSession, winner: dict[str, int], loser: dict[str, int], passes: bool
    ) -> None:
        dataset = make(local, spark, numbered(0, 30), partition_by=["k"])

        def prepared(row: dict[str, int]) -> Any:
            source = spark.createDataFrame([(row["id"], row["k"], "m")], "id long, k int, s string").alias("src")
            clauses = [
                Clause(when=When.MATCHED, act=Act.UPDATE, values={"s": "src.s"}),
                Clause(
                    when=When.NOT_MATCHED, act=Act.INSERT, values={name: f"src.{name}" for name in ("id", "k", "s")}
                ),
            ]
            merge = Merge(source=source, condition="t.k = src.k AND t.id = src.id", clauses=clauses, alias="t")
            return prepare_merge(dataset, dataset.snapshot(), merge, options(1, None, None), spark)

        first, second = prepared(winner), prepared(loser)
        first.commit(local, 1)
        if passes:
            assert second.commit(local, 1).version == 2
            assert dataset.count("s = 'm'") == 2
        else:
            with pytest.raises(ConcurrencyError):
                second.commit(local, 1)
            assert dataset.version == 1
        check_invariants(local)


def test_the_change_feed_has_what_happened_to_each_row(local: Lake, spark: SparkSession) -> None:
    write_dataset(
        local,
        NAME,
        spark.createDataFrame(table_of(numbered(0, 6))).coalesce(1),
        properties={"delta.enableChangeDataFeed": "true"},
    )
    dataset = local.dataset(NAME)
    source = source_of(spark, (1, "u"), (2, "d"), (9, "i"))
    merge = dataset.merge(source, "t.id = src.id", alias="t").whenMatchedDelete("src.s = 'd'")
    merge.whenMatchedUpdate(set={"s": "src.s"}).whenNotMatchedInsert(values={"id": "src.id", "s": "src.s"}).execute()
    dataset.update({"s": "'v'"}, "id = 4")
    dataset.delete("id = 5")
    dataset.merge(source_of(spark, (10, "n")), "t.id = src.id", alias="t").whenNotMatchedInsert(
        values={"id": "src.id"}
    ).execute()
    found = read_changes(local, NAME, 1).select("_commit_version", "id", "s", "_change_type")
    assert sorted((tuple(row) for row in found.collect()), key=repr) == [
        (1, 1, "s1", "update_preimage"),
        (1, 1, "u", "update_postimage"),
        (1, 2, "s2", "delete"),
        (1, 9, "i", "insert"),
        (2, 4, "s4", "update_preimage"),
        (2, 4, "v", "update_postimage"),
        (3, 5, "s5", "delete"),
        (4, 10, None, "insert"),
    ]
    check_invariants(local)


def test_rules_hold_for_what_is_changed(local: Lake, spark: SparkSession) -> None:
    """Generated columns follow, defaults fill in, and a constraint refuses."""
    schema = pa.schema([("id", pa.int64()), ("double", pa.int64()), ("s", pa.string()), ("kind", pa.string())])
    local.create_dataset(NAME, schema, generated={"double": "id * 2"}, defaults={"kind": "'plain'"})
    write_dataset(local, NAME, spark.sql("SELECT id, 's' AS s FROM range(4)").coalesce(1))
    dataset = local.dataset(NAME)
    dataset.add_constraint("small", "id < 1000")
    dataset.update({"id": "id + 10"}, "id = 3")
    source = source_of(spark, (0, "u"), (50, "i"))
    merge = dataset.merge(source, "t.id = src.id", alias="t")
    merge.whenMatchedUpdate(set={"id": "100", "s": "src.s"}).whenNotMatchedInsertAll().execute()
    wanted = [(1, 2, "s"), (13, 26, "s"), (2, 4, "s"), (50, 100, "i"), (100, 200, "u")]
    assert sorted(rows_of(local)) == sorted((*row, "plain") for row in wanted)
    with pytest.raises(SchemaMismatchError, match="small"):
        dataset.update({"id": "id + 1000"}, "id = 1")
    with pytest.raises(SchemaMismatchError, match="double"):
        dataset.update({"double": "5"}, "id = 1")
    assert dataset.count("id = 1") == 1
    check_invariants(local)


def test_rows_that_are_only_moved_are_not_asked_again(local: Lake, spark: SparkSession) -> None:
    """A day is another one in another zone: those of rows that nobody changes stay, and are no reason to refuse."""
    schema = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("day", pa.date32())])
    local.create_dataset(NAME, schema, generated={"day": "CAST(ts AS DATE)"})
    rows = spark.sql("SELECT id, TIMESTAMP '2026-01-02 01:00:00' AS ts FROM range(6)").coalesce(1)
    write_dataset(local, NAME, rows)
    dataset = local.dataset(NAME)
    with setting(spark, "spark.sql.session.timeZone", "America/New_York"):
        dataset.delete("id = 0")
        dataset.update({"id": "id + 10"}, "id = 1")
        source = source_of(spark, (2, "x"), schema="id long, s string")
        dataset.merge(source, "t.id = src.id", alias="t").whenMatchedUpdate(set={"id": "20"}).execute()
        dataset.optimize(target_file_size=1 << 20)
    days = {row[0]: str(row[2]) for row in rows_of(local)}
    assert days == {3: "2026-01-02", 4: "2026-01-02", 5: "2026-01-02", 11: "2026-01-01", 20: "2026-01-01"}
