"""What a write may change of a table's schema, and what it may not."""

import json
import logging
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from lakelog import Lake, SchemaMismatchError, ValidationError, VersionConflict
from lakelog.schema.evolution.changes import SchemaChange
from tests.contract.evolution import SCHEMA, data, everything, ids
from tests.contract.samples import add, commit, table
from tests.fixtures.lakes import rows
from tests.invariants import check_invariants
from tests.parquet import read, write


class TestMerge:
    def test_a_new_column_is_added_as_nullable_with_a_schema_version_of_its_own(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        write(lake, dataset, data(id=ids(1), name=["a"]))
        made = write(lake, dataset, data(id=ids(2), name=["b"], score=[1.5]), schema_merge=True)

        assert dataset.schema().field("score") == pa.field("score", pa.float64(), nullable=True)
        files = dataset.snapshot().files(columns=["version", "schema_version"]).to_pylist()
        assert {file["version"]: file["schema_version"] for file in files} == {1: 0, 2: 1}
        (newest, _) = dataset.schema_history()
        assert (newest.version, newest.introduced_by, newest.commit_id) == (1, made.version, made.commit_id)
        assert newest.schema.equals(dataset.schema(), check_metadata=True)
        assert newest.changes == (SchemaChange("score", "added", None, "double"),)
        assert read(dataset.snapshot(), dataset.location).to_pylist() == [
            {"id": 1, "name": "a", "score": None},
            {"id": 2, "name": "b", "score": 1.5},
        ]
        check_invariants(lake)

    def test_a_column_is_widened_and_the_type_persists(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        write(lake, dataset, data(id=ids(1)))
        write(lake, dataset, data(id=ids(2**40, type=pa.int64())), schema_merge=True)

        assert dataset.schema().field("id").type == pa.int64()
        assert dataset.schema_history()[0].schema.field("id").type == pa.int64()
        snapshot = dataset.snapshot()
        assert "typeWidening" in snapshot.protocol.reader_features
        assert snapshot.metadata.configuration["delta.enableTypeWidening"] == "true"
        (field, _) = json.loads(snapshot.metadata.schema_string)["fields"]
        assert field["metadata"] == {"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}
        (group,) = snapshot.file_groups()
        assert group.native
        assert read(snapshot, dataset.location).column("id").to_pylist() == [1, 2**40]
        check_invariants(lake)

    def test_a_write_that_widens_again_says_so_again(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        write(lake, dataset, data(id=ids(1, type=pa.int64())), schema_merge=True)
        write(lake, dataset, data(id=pa.array([1], pa.decimal128(22, 2))), schema_merge=True)
        (field, _) = json.loads(dataset.snapshot().metadata.schema_string)["fields"]
        assert [change["toType"] for change in field["metadata"]["delta.typeChanges"]] == ["long", "decimal(22,2)"]

    def test_an_upcast_into_the_tables_type_changes_nothing(self, lake: Lake) -> None:
        dataset = table(lake, schema=pa.schema([("id", pa.int64())]))
        write(lake, dataset, data(id=ids(7)))
        assert [version.version for version in dataset.schema_history()] == [0]
        assert read(dataset.snapshot(), dataset.location).column("id").to_pylist() == [7]

    def test_irreconcilable_types_become_strings_when_that_is_allowed_and_it_is_recorded(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA, mirror=False)
        write(lake, dataset, data(id=ids(1, 2)))
        with pytest.raises(SchemaMismatchError, match="schema_merge=True and promote_to_string=True would allow it"):
            dataset.plan_write(data(id=["x"]).schema)
        write(lake, dataset, data(id=["x"]), schema_merge=True, promote_to_string=True)

        assert dataset.schema().field("id").type == pa.string()
        (field, _) = json.loads(dataset.snapshot().metadata.schema_string)["fields"]
        assert field["metadata"] == {"lakelog.promotedFrom": [{"fromType": "integer", "incomingType": "string"}]}
        assert dataset.schema_history()[0].changes == (SchemaChange("id", "promoted", "int32", "string"),)
        recorded = [row["merge"] for row in rows(lake, "schema_versions") if row["version"] == 1]
        assert json.loads(recorded[0])["changes"][0]["what"] == "promoted"
        groups = dataset.snapshot().file_groups()
        assert [(group.native, group.files.num_rows) for group in groups] == [(True, 1), (False, 1)]
        assert sorted(read(dataset.snapshot(), dataset.location).column("id").to_pylist()) == ["1", "2", "x"]
        assert read(dataset.snapshot(version=1), dataset.location).column("id").to_pylist() == [1, 2]
        check_invariants(lake)

    def test_a_mirrored_table_has_the_older_files_rewritten_in_the_same_commit(
        self, lake: Lake, caplog: pytest.LogCaptureFixture
    ) -> None:
        dataset = table(lake, schema=pa.schema([("id", pa.int32()), ("name", pa.string())]))
        write(lake, dataset, data(id=ids(1), name=["a"]))
        write(lake, dataset, data(id=ids(2**40, type=pa.int64())), schema_merge=True)
        dataset.rename_column("name", "title")
        size = sum(dataset.snapshot().files(columns=["size"]).column("size").to_pylist())
        with caplog.at_level(logging.INFO, "lakelog.schema"):
            made = write(lake, dataset, data(id=["x"]), schema_merge=True, promote_to_string=True)
        assert f"id will be strings, so 2 files with {size} bytes are rewritten in the same commit" in caplog.text

        files = dataset.snapshot().files(columns=["version"])
        assert set(files.column("version").to_pylist()) == {made.version}
        assert [group.native for group in dataset.snapshot().file_groups()] == [True]
        found = read(dataset.snapshot(), dataset.location).to_pylist()
        assert {(row["id"], row["title"]) for row in found} == {("1", "a"), ("1099511627776", None), ("x", None)}
        before = read(dataset.snapshot(version=made.version - 1), dataset.location)
        assert before.column("id").to_pylist() == [1, 2**40]
        check_invariants(lake)

    def test_a_struct_becomes_json_text_only_when_that_is_allowed(self, lake: Lake) -> None:
        dataset = table(lake, schema=pa.schema([("payload", pa.struct([("a", pa.int64()), ("b", pa.string())]))]))
        write(lake, dataset, pa.table({"payload": [{"a": 1, "b": None}, {"a": 2, "b": "x"}]}))
        with pytest.raises(SchemaMismatchError, match="promote_to_string=True"):
            dataset.plan_write(data(payload=["text"]).schema, schema_merge=True)
        write(lake, dataset, data(payload=["text"]), schema_merge=True, promote_to_string=True)
        found = read(dataset.snapshot(), dataset.location).column("payload").to_pylist()
        assert sorted(found) == ["text", '{"a":1}', '{"a":2,"b":"x"}']

    def test_identical_schemas_never_make_a_new_version(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        for option in (False, True):
            write(lake, dataset, data(name=["a"], id=ids(1)), schema_merge=option)
        assert len(dataset.schema_history()) == 1
        assert {row["version"] for row in rows(lake, "dl_metadata_updates")} == {0}

    def test_a_new_column_in_a_mapped_table_has_a_name_of_its_own_in_the_files(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        write(lake, dataset, data(id=ids(1), name=["old"]))
        dataset.drop_column("name")
        write(lake, dataset, data(id=ids(2), name=["new"]), schema_merge=True)
        assert read(dataset.snapshot(), dataset.location).to_pylist() == [
            {"id": 1, "name": None},
            {"id": 2, "name": "new"},
        ]

    def test_a_schema_change_and_its_data_lose_a_race_together(self, lake: Lake, other_lake: Lake) -> None:
        dataset, same = table(lake, schema=SCHEMA), None
        plan = dataset.plan_write(data(id=ids(1), x=[1.0]).schema, schema_merge=True)
        same = other_lake.dataset(dataset.name)
        write(other_lake, same, data(id=ids(1), y=["first"]), schema_merge=True)
        before = everything(lake, dataset)
        with pytest.raises(VersionConflict):
            commit(lake, dataset, *plan.actions, add("x.parquet"), version=plan.base_version + 1)
        assert everything(lake, dataset) == before
        assert dataset.schema().names == ["id", "name", "y"]


class TestStrict:
    def test_every_difference_is_listed_before_anything_is_created(self, lake: Lake) -> None:
        schema = pa.schema(
            [
                pa.field("id", pa.int32(), nullable=False),
                pa.field("must", pa.string(), nullable=False),
                ("place", pa.struct([("x", pa.float64())])),
                ("tags", pa.list_(pa.struct([("k", pa.string())]))),
            ]
        )
        dataset = table(lake, schema=schema)
        incoming = pa.table(
            {
                "id": pa.array([1], pa.int64()),
                "place": pa.array(["here"]),
                "tags": pa.array([[{"k": "a", "v": 1}]]),
                "extra": pa.array([True]),
            }
        )
        before = everything(lake, dataset)
        with pytest.raises(SchemaMismatchError) as caught:
            write(lake, dataset, incoming)
        assert [violation.where for violation in caught.value.violations] == [
            "id",
            "must",
            "place",
            "tags.element.v",
            "extra",
        ]
        text = str(caught.value)
        assert "id: the table has int32, the data has int64; schema_merge=True would allow it" in text
        assert "place: the table has struct<x: double>, the data has string" in text
        assert everything(lake, dataset) == before
        assert [file.name for file in Path(dataset.location).rglob("*.*")] == [f"{0:020}.json"]

    def test_string_and_struct_do_not_go_together_even_with_merge(self, lake: Lake) -> None:
        dataset = table(lake, schema=pa.schema([("payload", pa.string())]))
        incoming = pa.table({"payload": [{"a": 1}]})
        before = everything(lake, dataset)
        for options in ({}, {"schema_merge": True}):
            with pytest.raises(SchemaMismatchError, match="promote_to_string=True would allow it"):
                write(lake, dataset, incoming, **options)
        assert everything(lake, dataset) == before

    def test_what_leaves_the_schema_as_it_is_passes(self, lake: Lake) -> None:
        dataset = table(lake, schema=pa.schema([("id", pa.int64()), ("name", pa.string()), ("day", pa.date32())]))
        field = pa.field("NAME", pa.large_string(), nullable=False, metadata={"comment": "another"})
        incoming = pa.table(
            [pa.array(["a"], pa.large_string()), pa.array([3], pa.uint8())],
            pa.schema([field, pa.field("id", pa.uint8())]),
        )
        write(lake, dataset, incoming)
        assert len(dataset.schema_history()) == 1
        assert read(dataset.snapshot(), dataset.location).to_pylist() == [{"id": 3, "name": "a", "day": None}]

    def test_nulls_for_a_column_that_is_not_null_are_found_and_refused(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        before = everything(lake, dataset)
        with pytest.raises(SchemaMismatchError, match=r"id: .*1 null"):
            write(lake, dataset, pa.table({"id": pa.array([1, None], pa.int32())}))
        assert everything(lake, dataset) == before

    def test_names_that_differ_only_in_case_are_refused(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        with pytest.raises(ValidationError, match="differs only in case"):
            dataset.plan_write(pa.schema([("id", pa.int32()), ("ID", pa.int32())]), schema_merge=True)

    def test_the_type_of_a_partition_column_stays(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA, partition_by=["id"])
        everything_on = {"schema_merge": True, "promote_to_string": True}
        with pytest.raises(SchemaMismatchError, match="partition column"):
            dataset.plan_write(pa.schema([("id", pa.int64())]), **everything_on)


class TestPlan:
    def test_data_of_other_kinds_of_arrow_arrives_whole(self, lake: Lake) -> None:
        kinds = {
            "views": pa.list_view(pa.int64()),
            "large": pa.large_list_view(pa.int64()),
            "fixed": pa.list_(pa.int64(), 1),
            "times": pa.timestamp("ns"),
            "words": pa.dictionary(pa.int8(), pa.large_string()),
        }
        values = {"views": [[1], [2, 3]], "large": [[4], [5]], "fixed": [[6], [7]], "times": [0, 1000], "words": "ab"}
        incoming = pa.table({name: pa.array(list(values[name]), kind) for name, kind in kinds.items()})
        incoming = incoming.append_column("runs", pa.RunEndEncodedArray.from_arrays([1, 2], [8, 9]))
        dataset = table(lake, schema=pa.schema([("first", pa.int8())]))
        write(lake, dataset, incoming, schema_merge=True)
        found = read(dataset.snapshot(), dataset.location).drop_columns(["first"])
        assert found.to_pydict() == incoming.to_pydict() | {"words": ["a", "b"]}

    def test_values_that_do_not_fit_are_named_by_their_column(self, lake: Lake) -> None:
        dataset = table(lake, schema=pa.schema([("at", pa.timestamp("us"))]))
        dataset.rename_column("at", "moment")
        with pytest.raises(SchemaMismatchError, match="moment: "):
            write(lake, dataset, pa.table({"moment": pa.array([1], pa.timestamp("ns"))}))

    def test_columns_are_taken_by_name_and_other_data_is_refused(self, lake: Lake) -> None:
        dataset = table(lake, schema=pa.schema([("a", pa.int8()), ("b", pa.int8())]))
        plan = dataset.plan_write(pa.schema([("a", pa.int8()), ("b", pa.int8())]))
        turned = pa.table({"b": pa.array([2], pa.int8()), "a": pa.array([1], pa.int8())})
        assert plan.conform(turned).to_pylist() == [{"a": 1, "b": 2}]
        with pytest.raises(ValidationError, match="differs from the schema that the plan was made for in b"):
            plan.conform(turned.drop_columns(["b"]))

    def test_files_of_a_mapped_table_carry_the_ids_of_their_columns(self, lake: Lake) -> None:
        dataset = table(lake, schema=pa.schema([("a", pa.struct([("x", pa.int8())]))]))
        dataset.rename_column("a", "b")
        incoming = pa.table({"b": pa.array([{"x": 1}], pa.struct([("x", pa.int8())]))})
        file = dataset.plan_write(incoming.schema).conform(incoming).schema.field("a")
        assert (file.metadata[b"PARQUET:field_id"], file.type[0].metadata[b"PARQUET:field_id"]) == (b"1", b"2")

    def test_a_write_changes_no_type_that_an_explicit_change_would_not(self, lake: Lake, spark: SparkSession) -> None:
        dataset = table(lake, schema=SCHEMA, properties={"delta.constraints.positive": "id > 0"}, spark=spark)
        for kind in (pa.int64(), pa.string()):
            with pytest.raises(SchemaMismatchError, match="the constraint 'positive'"):
                dataset.plan_write(pa.schema([("id", kind)]), schema_merge=True, promote_to_string=True)

    def test_arguments_of_another_type_are_refused(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        for change in (
            lambda: dataset.widen_column("id", "int64"),
            lambda: dataset.add_column(5, pa.int8()),
            lambda: dataset.add_column("n", int),
            lambda: dataset.drop_column(None),
            lambda: dataset.rename_column("id", 5),
        ):
            with pytest.raises(ValidationError, match="expected"):
                change()

    def test_an_unknown_mapping_mode_is_refused(self, lake: Lake) -> None:
        with pytest.raises(ValidationError, match="one of none, name, id"):
            table(lake, properties={"delta.columnMapping.mode": "foo"})


def test_bad_schemas_are_refused_with_what_was_expected(lake: Lake) -> None:
    dataset = table(lake, schema=SCHEMA)
    with pytest.raises(ValidationError, match=r"expected a pyarrow.Schema or a Spark StructType, got list"):
        dataset.plan_write(["id"])


def test_a_spark_schema_is_as_good(lake: Lake) -> None:
    from pyspark.sql.types import DoubleType, IntegerType, StringType, StructField, StructType

    dataset = table(lake, schema=SCHEMA)
    struct = StructType([StructField("name", StringType()), StructField("id", IntegerType(), False)])
    assert dataset.plan_write(struct).changes == ()
    plan = dataset.plan_write(struct.add("score", DoubleType()), schema_merge=True)
    assert plan.changes == (SchemaChange("score", "added", None, "double"),)
