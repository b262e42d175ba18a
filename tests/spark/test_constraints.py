"""A table's rules hold for every row that is written to it, whatever the mode and the door."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog import (
    ConcurrencyError,
    Dataset,
    Lake,
    SchemaMismatchError,
    SqlTxnLogWriter,
    ValidationError,
    VersionConflict,
    read_dataset,
    write_dataset,
)
from lakelog.actions import AddFile, Metadata
from lakelog.schema import to_delta_json
from lakelog.schema.rules import with_text
from lakelog.spark import write_stream
from lakelog.spark.rules.enforce import broken_rules
from lakelog.spark.write.parquet_writer import Stage
from tests.fixtures.door import Door
from tests.invariants import check_invariants

NAME = "events"
SCHEMA = pa.schema(
    [("id", pa.int64()), ("amount", pa.float64()), ("place", pa.struct([("x", pa.int32())])), ("kind", pa.string())]
)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
BY_DAY = pa.schema([("at", pa.timestamp("us", "UTC")), ("day", pa.date32()), ("n", pa.int32())])
DAY = "CAST(at AS DATE)"


@pytest.fixture
def backend() -> str:
    return "sqlite"


def table(lake: Lake, spark: SparkSession, **options: Any) -> Dataset:
    return lake.create_dataset(NAME, **{"schema": SCHEMA, "spark": spark, **options})


def data(**columns: Any) -> pa.Table:
    return pa.table({name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()})


def moments(*times: datetime | None, **columns: Any) -> pa.Table:
    rows = {"at": pa.array(times, BY_DAY.field("at").type)}
    return pa.table(rows | {name: pa.array(values, BY_DAY.field(name).type) for name, values in columns.items()})


def rows(lake: Lake, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in read_dataset(lake, NAME, columns=columns or None).collect()), key=str)


def directories(dataset: Dataset) -> list[Path]:
    """Those of writes; a write that was refused leaves none."""
    return [path for path in Path(dataset.location).glob("*") if path.name != "_delta_log"]


class TestChecks:
    @pytest.mark.parametrize(
        ("sql", "good", "bad", "sample"),
        [
            ("id > 0", {"id": [1, 2]}, {"id": [1, -1]}, "id = -1"),
            ("ID > 0", {"id": [1]}, {"id": [None]}, "id = NULL"),
            ("amount IS NULL OR amount >= 0", {"amount": [None, float("nan")]}, {"amount": [-0.5]}, "amount = -0.5"),
            ("place.x < 5", {"place": [{"x": 1}]}, {"place": [{"x": 7}]}, "place = {7}"),
            ("place.X < 5", {"place": [{"x": 1}]}, {"place": [None]}, "place = NULL"),
            ("length(kind) = id", {"kind": ["ab"], "id": [2]}, {"kind": ["ab"], "id": [3]}, "id = 3, kind = ab"),
        ],
    )
    def test_a_row_passes_only_if_it_is_true(
        self, local: Lake, spark: SparkSession, sql: str, good: Any, bad: Any, sample: str
    ) -> None:
        dataset = table(local, spark)
        dataset.add_constraint("rule", sql, spark=spark)
        write_dataset(local, NAME, data(**good), spark=spark)
        files = directories(dataset)
        with pytest.raises(SchemaMismatchError) as refused:
            write_dataset(local, NAME, data(**bad), spark=spark)
        (problem,) = refused.value.violations
        assert problem.where == "the constraint 'rule'"
        assert problem.message == f"1 rows for which {sql} is not true, one of them with {sample}"
        assert directories(dataset) == files
        assert dataset.version == 2

    def test_a_condition_without_columns_is_one_too(self, local: Lake, spark: SparkSession) -> None:
        dataset = table(local, spark)
        dataset.add_constraint("never", "1 = 0", spark=spark)
        with pytest.raises(SchemaMismatchError, match=r"2 rows for which 1 = 0 is not true$"):
            write_dataset(local, NAME, data(id=[1, 2]), spark=spark)
        dataset.drop_constraint("never")
        write_dataset(local, NAME, data(id=[1, 2]), spark=spark)
        with pytest.raises(SchemaMismatchError, match="2 of 2 rows for which 1 = 0 is not true: change them first"):
            dataset.add_constraint("never", "1 = 0", spark=spark)

    def test_every_broken_rule_is_named_with_its_number_of_rows(self, local: Lake, spark: SparkSession) -> None:
        strict = SCHEMA.set(3, pa.field("kind", pa.string(), nullable=False))
        rules = {"delta.constraints.positive": "id > 0", "delta.constraints.small": "id < 10"}
        dataset = table(local, spark, schema=strict, properties=rules)
        assert dataset.constraints() == {"positive": "id > 0", "small": "id < 10"}
        with pytest.raises(SchemaMismatchError) as refused:
            write_dataset(local, NAME, data(id=[-1, 0, 11, 5], kind=["a", "b", None, "c"]), spark=spark)
        found = {problem.where: int(problem.message.split()[0]) for problem in refused.value.violations}
        assert found == {"kind": 1, "the constraint 'positive'": 2, "the constraint 'small'": 1}

    @pytest.mark.parametrize(
        "options",
        [
            {"mode": "overwrite"},
            {"mode": "overwrite", "replace_where": "kind = 'a'"},
            {"mode": "overwrite", "partition_overwrite_mode": "dynamic"},
            {"schema_merge": True},
        ],
        ids=str,
    )
    def test_every_mode_enforces_them(self, local: Lake, spark: SparkSession, options: dict[str, Any]) -> None:
        dataset = table(local, spark, partition_by=["kind"], properties={"delta.constraints.positive": "id > 0"})
        write_dataset(local, NAME, data(id=[1, 2], kind=["a", "b"]), spark=spark)
        with pytest.raises(SchemaMismatchError, match="1 rows for which id > 0 is not true"):
            write_dataset(local, NAME, data(id=[-1], kind=["a"]), spark=spark, **options)
        assert rows(local, "id") == [(1,), (2,)]
        write_dataset(local, NAME, data(id=[3], kind=["a"]), spark=spark, **options)
        assert (3,) in rows(local, "id")
        assert dataset.version == 2

    def test_a_first_write_checks_the_rules_that_it_creates(self, local: Lake, spark: SparkSession) -> None:
        for sql, error in (("id >= 0 AND nope", ValidationError), ("id > 0", SchemaMismatchError)):
            with pytest.raises(error):
                write_dataset(local, NAME, spark.range(3), properties={"delta.constraints.positive": sql})
            assert not local.datasets()
        write_dataset(local, NAME, spark.range(3), properties={"delta.constraints.positive": "id >= 0"})
        with pytest.raises(SchemaMismatchError, match="the constraint 'positive'"):
            write_dataset(local, NAME, spark.range(-3, 0))

    def test_a_stream_stops_at_a_row_that_breaks_one(self, local: Lake, spark: SparkSession, tmp_path: Path) -> None:
        table(local, spark, properties={"delta.constraints.positive": "id > 0"})
        source = tmp_path / "source"
        source.mkdir()
        (source / "a.json").write_text('{"id": 1}\n{"id": -1}\n')
        query = write_stream(
            spark.readStream.schema("id bigint").json(str(source)),
            local,
            NAME,
            checkpoint=str(tmp_path / "checkpoint"),
            trigger={"availableNow": True},
        )
        with pytest.raises(PySparkException, match="the constraint 'positive'"):
            query.awaitTermination()
        assert rows(local) == []

    def test_an_invariant_of_an_imported_column_is_enforced_too(self, local: Lake, spark: SparkSession) -> None:
        dataset = table(local, spark)
        rule = json.dumps({"expression": {"expression": "id > 3"}}).encode()
        schema = SCHEMA.set(0, SCHEMA.field(0).with_metadata({b"delta.invariants": rule}))
        metadata = Metadata(id="m", schema_string=to_delta_json(schema), partition_columns=(), configuration={})
        SqlTxnLogWriter(local).commit(dataset.id, 1, [metadata])
        with pytest.raises(SchemaMismatchError, match="the invariant of 'id': 2 rows for which id > 3 is not true"):
            write_dataset(local, NAME, data(id=[3, None, 4]), spark=spark)
        write_dataset(local, NAME, data(id=[4]), spark=spark)

    def test_a_rule_that_spark_does_not_understand_lets_no_row_in(self, local: Lake, spark: SparkSession) -> None:
        dataset = table(local, spark)
        metadata = Metadata(
            id="m",
            schema_string=to_delta_json(SCHEMA),
            partition_columns=(),
            configuration={"delta.constraints.odd": "their_own(id) > 1", "delta.constraints.no": "id"},
        )
        SqlTxnLogWriter(local).commit(dataset.id, 1, [metadata])
        with pytest.raises(ValidationError) as refused:
            write_dataset(local, NAME, data(id=[1]), spark=spark)
        assert "does not understand their_own(id) > 1, so no row can be written" in str(refused.value)
        assert "id is bigint, not a condition" in str(refused.value).replace("id, so no row can be written: ", "id ")
        assert not directories(dataset)

    def test_a_rule_inside_of_another_column_lets_no_row_in(self, local: Lake, spark: SparkSession) -> None:
        dataset = table(local, spark)
        inner = pa.struct([pa.field("x", pa.int32(), metadata={"CURRENT_DEFAULT": "1"})])
        schema = SCHEMA.set(2, pa.field("place", inner))
        metadata = Metadata(id="m", schema_string=to_delta_json(schema), partition_columns=(), configuration={})
        SqlTxnLogWriter(local).commit(dataset.id, 1, [metadata])
        with pytest.raises(ValidationError, match="x: is generated or has a default inside of another column"):
            write_dataset(local, NAME, data(id=[1]), spark=spark)
        assert not directories(dataset)


class TestAddConstraint:
    @pytest.mark.parametrize(
        ("sql", "why"),
        [
            ("id", "expected a condition, and id is bigint"),
            ("sum(id) > 0", "needs more than one row"),
            ("row_number() OVER (ORDER BY id) > 0", "needs more than one row"),
            ("id IN (SELECT 1)", "has a subquery"),
            ("rand() > 0.5", "is not deterministic"),
            ("nope > 0", "cannot be resolved"),
            ("id >", "does not understand"),
            ("id > 0 AS named", "is not an expression by itself"),
            ("mine(id)", "a function of this session"),
            (" ", "expected an expression"),
        ],
    )
    def test_what_is_not_a_condition_on_one_row_is_refused(
        self, local: Lake, spark: SparkSession, sql: str, why: str
    ) -> None:
        spark.udf.register("mine", lambda value: value > 0, "boolean")
        dataset = table(local, spark)
        with pytest.raises(ValidationError, match=why):
            dataset.add_constraint("rule", sql, spark=spark)
        assert dataset.version == 0

    def test_rows_that_break_it_are_counted_and_one_is_shown(self, local: Lake, spark: SparkSession) -> None:
        dataset = table(local, spark)
        write_dataset(local, NAME, data(id=[1, 2, 3, None], amount=[1.0, -1.0, 5.0, 6.0]), spark=spark)
        with pytest.raises(SchemaMismatchError, match=r"2 of 4 rows for which id > 0 AND amount > 0 .* with id = "):
            dataset.add_constraint("rule", "id > 0 AND amount > 0", spark=spark)
        assert dataset.version == 1
        assert dataset.add_constraint("rule", "id IS NULL OR id < 4", spark=spark).version == 2

    def test_files_are_read_only_where_statistics_do_not_decide(self, local: Lake, spark: SparkSession) -> None:
        dataset = table(local, spark)
        write_dataset(local, NAME, data(id=[1, 2]), spark=spark)
        for file in directories(dataset)[0].glob("*.parquet"):
            file.unlink()
        dataset.add_constraint("rule", "id BETWEEN 1 AND 2", spark=spark)
        with pytest.raises(PySparkException):
            dataset.add_constraint("other", "id <> 2", spark=spark)

    def test_rows_that_came_while_they_were_checked_are_a_conflict(
        self, local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from lakelog.spark.rules import validate as new_rules

        dataset = table(local, spark)
        checked = new_rules._check_rows

        def meanwhile(action: Callable[[], Any]) -> None:
            def check(*arguments: Any) -> None:
                checked(*arguments)
                action()

            monkeypatch.setattr(new_rules, "_check_rows", check)

        meanwhile(lambda: write_dataset(local, NAME, data(id=[-1]), spark=spark))
        with pytest.raises(VersionConflict):
            dataset.add_constraint("rule", "id > 0", spark=spark)
        with pytest.raises(ConcurrencyError, match="this commit read the whole table"):
            dataset.add_constraint("rule", "id > -5", retries=3, spark=spark)
        rewritten = AddFile(path="x", size=1, data_change=False)
        meanwhile(lambda: SqlTxnLogWriter(local).commit(dataset.id, dataset.version + 1, [rewritten]))
        assert dataset.add_constraint("rule", "id > -5", retries=3, spark=spark).version == dataset.version

    def test_an_append_whose_files_were_written_before_is_a_conflict(
        self, local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        dataset = table(local, spark)
        write = Stage.write

        def late(stage: Stage) -> Any:
            written = write(stage)
            dataset.add_constraint("rule", "id > 0", spark=spark)
            return written

        monkeypatch.setattr(Stage, "write", late)
        with pytest.raises(ConcurrencyError, match="changed the table's metadata"):
            write_dataset(local, NAME, data(id=[-1]), retries=5, spark=spark)
        assert rows(local) == []


class TestGeneratedColumns:
    def make(self, lake: Lake, spark: SparkSession) -> Dataset:
        schema = BY_DAY.set(1, pa.field("day", pa.date32(), nullable=False))
        return table(lake, spark, schema=schema, partition_by=["day"], generated={"Day": DAY}, defaults={"n": "1"})

    def test_a_write_without_the_column_computes_it_and_partitions_by_it(
        self, local: Lake, spark: SparkSession
    ) -> None:
        dataset = self.make(local, spark)
        write_dataset(local, NAME, moments(NOON), spark=spark)
        assert rows(local, "day", "n") == [(date(2026, 3, 1), 1)]
        assert dataset.snapshot().files("day = DATE'2026-03-01'").num_rows == 1
        with pytest.raises(SchemaMismatchError, match="day: 1 rows with nulls"):
            write_dataset(local, NAME, moments(None), spark=spark)
        check_invariants(local)

    def test_one_with_the_column_is_checked(self, local: Lake, spark: SparkSession) -> None:
        self.make(local, spark)
        write_dataset(local, NAME, moments(NOON, day=[date(2026, 3, 1)]), spark=spark)
        with pytest.raises(SchemaMismatchError) as refused:
            write_dataset(local, NAME, moments(NOON, NOON, day=[date(2026, 3, 1), date(2026, 3, 2)]), spark=spark)
        (problem,) = refused.value.violations
        assert problem.where == "day"
        assert problem.message.startswith(f"1 rows in which it is not {DAY}, as which it is generated, one of them")
        assert "day = 2026-03-02" in problem.message

    def test_an_overwrite_of_its_partitions_goes_by_what_it_computes(self, local: Lake, spark: SparkSession) -> None:
        self.make(local, spark)
        later = NOON.replace(day=2)
        write_dataset(local, NAME, moments(NOON, later, n=[1, 2]), spark=spark)
        dynamic = {"mode": "overwrite", "partition_overwrite_mode": "dynamic", "spark": spark}
        write_dataset(local, NAME, moments(later, n=[3]), **dynamic)
        assert rows(local, "n") == [(1,), (3,)]
        where = {"mode": "overwrite", "replace_where": "day = DATE'2026-03-01'", "spark": spark}
        write_dataset(local, NAME, moments(NOON, n=[4]), **where)
        assert rows(local, "n") == [(3,), (4,)]
        with pytest.raises(SchemaMismatchError, match="replace_where"):
            write_dataset(local, NAME, moments(later), **where)

    def test_a_value_that_the_column_cannot_hold_is_found(self, local: Lake, spark: SparkSession) -> None:
        schema = pa.schema([("amount", pa.float64()), ("whole", pa.int32())])
        table(local, spark, schema=schema, generated={"whole": "amount"})
        write_dataset(local, NAME, data(amount=[2.0, None]), spark=spark)
        with pytest.raises(SchemaMismatchError, match="whole: 1 rows in which it is not amount"):
            write_dataset(local, NAME, data(amount=[2.5]), spark=spark)

    @pytest.mark.parametrize(
        ("generated", "why"),
        [
            ({"day": "nope"}, "over the columns at, n"),
            ({"day": "day"}, "over the columns at, n"),
            ({"day": DAY, "n": "year(day)"}, "over the columns at"),
            ({"day": "current_date()"}, "depends on the time"),
            ({"day": "n"}, "cannot hold int32"),
            ({"n": "CAST(rand() AS INT)"}, "not deterministic"),
            ({"other": "n"}, "not a column of the schema"),
            ({"n": 5}, "expected an expression"),
        ],
    )
    def test_an_expression_that_does_not_follow_from_the_row_is_refused(
        self, local: Lake, spark: SparkSession, generated: dict[str, Any], why: str
    ) -> None:
        with pytest.raises(ValidationError, match=why):
            table(local, spark, schema=BY_DAY, generated=generated)
        assert local.datasets() == []

    def test_schema_changes_that_would_break_it_are_refused(self, local: Lake, spark: SparkSession) -> None:
        schema = pa.schema([("a", pa.int32()), ("b", pa.int32()), ("c", pa.int32())])
        dataset = table(local, spark, schema=schema, generated={"b": "a + 1"})
        for change in (
            lambda: dataset.rename_column("a", "z"),
            lambda: dataset.drop_column("a"),
            lambda: dataset.widen_column("a", pa.int64()),
            lambda: dataset.widen_column("b", pa.int64()),
            lambda: dataset.set_default("b", "1", spark=spark),
        ):
            with pytest.raises(ValidationError):
                change()
        with pytest.raises(SchemaMismatchError, match="b: is generated"):
            write_dataset(local, NAME, data(id=[1]), "overwrite", overwrite_schema=True, spark=spark)
        dataset.rename_column("b", "d")
        write_dataset(local, NAME, pa.table({"a": pa.array([1], pa.int32())}), spark=spark)
        assert rows(local) == [(1, 2, None)]


class TestDefaults:
    def test_they_stand_where_the_data_lacks_the_column_and_nowhere_else(
        self, local: Lake, spark: SparkSession
    ) -> None:
        schema = SCHEMA.set(3, pa.field("kind", pa.string(), nullable=False))
        dataset = table(local, spark, schema=schema, defaults={"KIND": "concat('n', 'ew')", "amount": "1"})
        write_dataset(local, NAME, data(id=[1]), spark=spark)
        write_dataset(local, NAME, data(id=[2], amount=[None]), spark=spark)
        dataset.set_default("amount", "2.5", spark=spark)
        dataset.drop_default("kind")
        write_dataset(local, NAME, data(id=[3], kind=["x"]), spark=spark)
        assert rows(local, "id", "amount", "kind") == [(1, 1.0, "new"), (2, None, "new"), (3, 2.5, "x")]
        with pytest.raises(SchemaMismatchError, match="kind"):
            write_dataset(local, NAME, data(id=[4]), spark=spark)

    @pytest.mark.parametrize(
        ("column", "sql", "why"),
        [
            ("amount", "id", "which reads no column"),
            ("amount", "rand()", "not deterministic"),
            ("id", "1.5", "not what the column would hold: 1"),
            ("id", "99999999999999999999", "no value that the column holds"),
            ("id", "'x'", "cannot hold string"),
            ("place.x", "1", "inside of another column"),
            ("nope", "1", "no such column"),
            ("id", None, "expected an expression"),
        ],
    )
    def test_what_a_column_cannot_have_is_refused(
        self, local: Lake, spark: SparkSession, column: str, sql: Any, why: str
    ) -> None:
        dataset = table(local, spark)
        with pytest.raises(ValidationError, match=why):
            dataset.set_default(column, sql, spark=spark)
        assert dataset.version == 0

    def test_a_constraint_sees_them(self, local: Lake, spark: SparkSession) -> None:
        rule = {"delta.constraints.known": "kind IN ('a', 'b')"}
        table(local, spark, properties=rule, defaults={"kind": "'c'"})
        with pytest.raises(SchemaMismatchError, match="kind = c"):
            write_dataset(local, NAME, data(id=[1]), spark=spark)


class TestSparksOwnDoor:
    def test_what_python_can_follow_is_enforced(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        rules = {"delta.constraints.positive": "id > 0 OR id IS NULL"}
        table(
            lake, spark, properties=rules, defaults={"kind": "'new'", "amount": "current_date() IS NULL"}, schema=PLAIN
        )
        door.write(spark.sql("SELECT 1L AS id, true AS amount"))
        assert rows(lake, "id", "kind") == [(1, "new")]
        with pytest.raises(PySparkException, match="the constraint 'positive': 1 rows for which id > 0"):
            door.write(spark.sql("SELECT -1L AS id, true AS amount"))
        with pytest.raises(PySparkException, match=r"amount: its default .* write with lakelog\.write_dataset"):
            door.write(spark.sql("SELECT 1L AS id"))
        assert rows(lake, "id") == [(1,)]

    @pytest.mark.parametrize(
        "options", [{"properties": {"delta.constraints.odd": "id % 2 = 1"}}, {"generated": {"kind": "string(id)"}}]
    )
    def test_what_only_spark_can_follow_is_refused_before_a_file_is_written(
        self, lake: Lake, door: Door, spark: SparkSession, options: dict[str, Any]
    ) -> None:
        dataset = table(lake, spark, **options)
        with pytest.raises(PySparkException, match=r"write with lakelog\.write_dataset"):
            door.write(spark.sql("SELECT 1L AS id"))
        assert not directories(dataset)


PLAIN = pa.schema([("id", pa.int64()), ("amount", pa.bool_()), ("kind", pa.string())])


class TestAppendOnly:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"replace_where": "id = 1"},
            {"overwrite_schema": True},
            {"partition_overwrite_mode": "dynamic"},
        ],
        ids=str,
    )
    def test_an_overwrite_is_refused_before_a_file_is_written(
        self, local: Lake, spark: SparkSession, options: dict[str, Any]
    ) -> None:
        dataset = table(local, spark, properties={"delta.appendOnly": "true"})
        write_dataset(local, NAME, data(id=[1]), spark=spark)
        files = directories(dataset)
        with pytest.raises(ValidationError, match="append-only, and an overwrite removes rows"):
            write_dataset(local, NAME, data(id=[1]), "overwrite", spark=spark, **options)
        assert directories(dataset) == files

    def test_it_can_be_switched_off(self, lake: Lake, door: Door, spark: SparkSession) -> None:
        dataset = table(lake, spark, properties={"delta.appendOnly": "true"})
        with pytest.raises(PySparkException, match="append-only"):
            door.write(spark.sql("SELECT 1L AS id"), "overwrite")
        dataset.set_properties({"delta.appendOnly": "false"})
        door.write(spark.sql("SELECT 1L AS id"), "overwrite")
        assert rows(lake, "id") == [(1,)]


def test_what_another_tables_columns_promise_is_not_carried_into_a_new_one(local: Lake, spark: SparkSession) -> None:
    told = {"delta.generationExpression": "1", "CURRENT_DEFAULT": "2", "comment": "kept"}
    frame = spark.range(2).select(F.col("id").alias("id", metadata=told))
    write_dataset(local, NAME, frame)
    assert local.dataset(NAME).schema().field("id").metadata == {b"comment": b"kept"}


def test_a_table_without_rules_costs_nothing_more(local: Lake, spark: SparkSession) -> None:
    assert broken_rules(spark, table(local, spark).snapshot().state.metadata) == []


def test_the_length_of_a_text_that_came_from_delta_is_kept(local: Lake, spark: SparkSession) -> None:
    dataset = local.create_dataset("texts", pa.schema([("id", pa.int64()), ("s", pa.string())]))
    declared = with_text(pa.field("s", pa.string()), "__CHAR_VARCHAR_TYPE_STRING", "varchar(3)")
    schema = to_delta_json(pa.schema([pa.field("id", pa.int64()), declared]))
    metadata = dataset.snapshot().metadata
    SqlTxnLogWriter(local).commit(dataset.id, 1, [replace(metadata, schema_string=schema)])
    write_dataset(local, "texts", spark.sql("SELECT 1L AS id, 'äöü' AS s UNION ALL SELECT 2L, NULL"))
    with pytest.raises(SchemaMismatchError, match="length of 's'"):
        write_dataset(local, "texts", spark.sql("SELECT 3L AS id, 'abcd' AS s"))
    with pytest.raises(SchemaMismatchError, match="length of 's'"):
        dataset.update({"s": "'abcd'"})
    dataset.rename_column("s", "t")
    dataset.drop_column("t")
    check_invariants(local)
