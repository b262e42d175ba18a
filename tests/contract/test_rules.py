"""Constraints, defaults and properties are commits of metadata, in Delta's words, and nothing else."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakelog import Lake, SchemaMismatchError, ValidationError, VersionConflict
from lakelog.actions import RemoveFile
from tests.contract.samples import add, commit, stats, table
from tests.invariants import check_invariants

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("place", pa.struct([("x", pa.int32())]))])


class TestConstraints:
    def test_adding_and_dropping_one_are_commits_that_delta_knows(self, lake: Lake, spark: SparkSession) -> None:
        dataset = table(lake, schema=SCHEMA)
        commit(lake, dataset, add(stats=stats(3, id=(1, 9))))
        assert dataset.add_constraint("Positive", "id > 0", spark=spark).version == 2
        assert dataset.snapshot().metadata.configuration == {"delta.constraints.positive": "id > 0"}
        assert dataset.snapshot().protocol.min_writer_version == 3
        assert dataset.constraints() == {"positive": "id > 0"}
        assert dataset.drop_constraint("POSITIVE").version == 3
        assert dataset.constraints() == {}
        assert dataset.constraints(version=2) == {"positive": "id > 0"}
        dropped, added = dataset.history(2)
        assert (added.operation, added.operation_parameters) == (
            "ADD CONSTRAINT",
            {"name": "Positive", "expr": "id > 0"},
        )
        assert dropped.operation == "DROP CONSTRAINT"
        assert dropped.operation_parameters == {"name": "POSITIVE", "expr": "id > 0", "existed": "true"}
        assert len(dataset.schema_history()) == 1
        check_invariants(lake)

    def test_one_that_is_not_there_is_refused_unless_that_is_fine(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        with pytest.raises(ValidationError, match="no such constraint; there are none"):
            dataset.drop_constraint("positive")
        assert dataset.drop_constraint("positive", if_exists=True) is None
        assert dataset.version == 0

    @pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 256, 5, "__CHAR_VARCHAR_STRING_LENGTH_CHECK__"])
    def test_a_name_that_nobody_could_use_is_refused(self, lake: Lake, spark: SparkSession, name: Any) -> None:
        dataset = table(lake, schema=SCHEMA)
        with pytest.raises(ValidationError, match="constraint"):
            dataset.add_constraint(name, "id > 0", spark=spark)
        assert dataset.version == 0

    def test_a_name_is_taken_whatever_its_case(self, lake: Lake, spark: SparkSession) -> None:
        dataset = table(lake, schema=SCHEMA, properties={"delta.constraints.Mine": "id > 0"}, spark=spark)
        with pytest.raises(ValidationError, match=r"already \(id > 0\)"):
            dataset.add_constraint("mINE", "id > 1", spark=spark)

    def test_statistics_that_decide_it_are_enough(self, lake: Lake, spark: SparkSession) -> None:
        dataset = table(lake, schema=SCHEMA)
        commit(lake, dataset, add("gone.parquet", stats=stats(3, id=(1, 9))))
        assert dataset.add_constraint("small", "id BETWEEN 1 AND 9", spark=spark).version == 2


class TestProperties:
    def test_they_are_set_and_unset_in_deltas_words(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        dataset.set_properties({"owner": "me", "delta.appendOnly": "true"})
        assert dataset.snapshot().metadata.configuration == {"owner": "me", "delta.appendOnly": "true"}
        dataset.unset_properties(["owner"])
        dataset.unset_properties(["delta.appendOnly", "owner"], if_exists=True)
        assert dataset.snapshot().metadata.configuration == {}
        last, first, setting = dataset.history(3)
        assert setting.operation == "SET TBLPROPERTIES"
        assert json.loads(setting.operation_parameters["properties"]) == {"owner": "me", "delta.appendOnly": "true"}
        assert first.operation_parameters == {"properties": '["owner"]', "ifExists": False}
        assert (last.operation, last.operation_parameters["ifExists"]) == ("UNSET TBLPROPERTIES", True)
        check_invariants(lake)

    def test_what_is_so_already_makes_no_commit(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA, properties={"owner": "me"})
        assert dataset.set_properties({"owner": "me"}) is None
        assert dataset.unset_properties(["other"], if_exists=True) is None
        assert dataset.version == 0

    @pytest.mark.parametrize(
        ("properties", "why"),
        [
            ({"delta.constraints.a": "id > 0"}, "add_constraint"),
            ({"delta.feature.checkConstraints": "supported"}, "add_feature adds one by hand"),
            ({"delta.minWriterVersion": "7"}, "follows from what a table uses"),
            ({"delta.columnMapping.maxColumnId": "9"}, "kept by the log"),
            ({"delta.columnMapping.mode": "id"}, "cannot go from none to id"),
            ({"delta.columnMapping.mode": "both"}, "one of none, name, id"),
            ({"delta.enableRowTracking": "true"}, "rowTracking: is a feature that Lakelog does not enforce"),
            ({"delta.enableInCommitTimestamps": "true"}, "only when a table is created"),
            ({"lakelog.mirror": "false"}, "only a mirrored table can be fenced"),
            ({"delta.appendonly": "true"}, "did you mean delta.appendOnly"),
            ({"delta.enableDeletionVector": "true"}, "no property of Delta: did you mean delta.enableDeletionVectors"),
            ({"delta.isolationlevel": "Serializable"}, "did you mean delta.isolationLevel"),
            ({"delta.enableChangeDataCapture": "true"}, "did you mean delta.enableChangeDataFeed"),
            ({"delta.owner": "me"}, "no property of Delta: give properties of your own another prefix"),
            (
                {"delta.deletedFileRetentionDuration": "interval 99999999999999999999 days"},
                "expected less than 1,000 years",
            ),
            ({"delta.logRetentionDuration": f"interval {'9' * 5000} days"}, "expected less than 1,000 years"),
            ({"delta.checkpointInterval": "9" * 5000}, "expected a whole number from 1 on"),
            ({"delta.checkpointInterval": "\u00b2"}, "expected a whole number from 1 on"),
            ({"delta.appendOnly": "yes"}, "expected 'true' or 'false'"),
            ({"owner": 5}, "expected a text as its value"),
            ({5: "x", b"y": "z"}, "expected a text as the property's name"),
            ("owner", "expected a mapping"),
        ],
        ids=str,
    )
    def test_what_cannot_be_set_is_refused(self, lake: Lake, properties: Any, why: str) -> None:
        dataset = table(lake, schema=SCHEMA)
        with pytest.raises(ValidationError, match=why):
            dataset.set_properties(properties)
        assert dataset.version == 0

    @pytest.mark.parametrize("door", ["create", "set", "replace", "clone", "register"])
    @pytest.mark.parametrize(
        ("name", "value", "why"),
        [
            ("delta.AppendOnly", "true", "did you mean delta.appendOnly"),
            ("delta.checkpointIntervall", "7", "no property of Delta: did you mean delta.checkpointInterval"),
            ("delta.appendOnly", "maybe", "expected 'true' or 'false'"),
            ("delta.deletedFileRetentionDuration", "7 parsecs", "expected an interval"),
            ("delta.logRetentionDuration", "interval 1 month", "expected an interval"),
            ("delta.dataSkippingNumIndexedCols", "many", "expected a whole number from -1 on"),
            ("delta.checkpointInterval", "0", "expected a whole number from 1 on"),
            ("delta.columnMapping.maxColumnId", "9", "kept by the log"),
            ("delta.feature.nothing", "supported", "is not a feature"),
            ("lakelog.mirror", "sometimes", "expected 'true', 'false' or 'fenced'"),
        ],
    )
    def test_no_door_takes_what_cannot_be(
        self, lake: Lake, tmp_path: Path, door: str, name: str, value: str, why: str
    ) -> None:
        dataset = table(lake, schema=SCHEMA)
        pq.write_table(SCHEMA.empty_table(), tmp_path / "a.parquet")
        properties = {name: value}
        doors: dict[str, Callable[[], Any]] = {
            "create": lambda: table(lake, "other", schema=SCHEMA, properties=properties),
            "set": lambda: dataset.set_properties(properties),
            "replace": lambda: dataset.replace(SCHEMA, properties=properties),
            "clone": lambda: lake.clone(dataset, "other", properties=properties),
            "register": lambda: lake.register_parquet(tmp_path / "*.parquet", "other", properties=properties),
        }
        with pytest.raises(ValidationError, match=why):
            doors[door]()
        assert [(each.name, each.version) for each in lake.datasets()] == [("events", 0)]

    def test_a_new_table_has_the_protocol_that_its_properties_ask_for(self, lake: Lake) -> None:
        features = {"delta.feature.deletionVectors": "supported", "owner": "me"}
        dataset = table(lake, schema=SCHEMA, properties=features)
        assert dataset.snapshot().metadata.configuration == {"owner": "me"}
        assert "deletionVectors" in (dataset.snapshot().protocol.reader_features or ())
        dataset.replace(SCHEMA, properties={"delta.feature.v2Checkpoint": "supported"})
        assert {"deletionVectors", "v2Checkpoint"} <= set(dataset.snapshot().protocol.writer_features or ())
        old = table(lake, "old", properties={"delta.minReaderVersion": "2", "delta.minWriterVersion": "5"})
        protocol = old.snapshot().protocol
        assert (protocol.min_reader_version, protocol.min_writer_version) == (2, 5)
        check_invariants(lake)

    def test_a_table_that_is_replaced_keeps_how_its_files_know_their_columns(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA, properties={"delta.columnMapping.mode": "name"})
        largest = int(dataset.snapshot().metadata.configuration["delta.columnMapping.maxColumnId"])
        with pytest.raises(ValidationError, match="cannot go from name to none"):
            dataset.replace(SCHEMA, properties={"delta.columnMapping.mode": "none"})
        dataset.replace(SCHEMA)
        configuration = dataset.snapshot().metadata.configuration
        assert configuration["delta.columnMapping.mode"] == "name"
        assert int(configuration["delta.columnMapping.maxColumnId"]) >= largest
        check_invariants(lake)

    @pytest.mark.parametrize(
        ("names", "why"),
        [
            (["delta.columnMapping.mode"], "cannot be taken back"),
            (["lakelog.mirror"], "cannot be taken back"),
            (["delta.constraints.a"], "drop_constraint"),
            (["nothing"], "is not set; there are"),
            ("owner", "expected a list"),
        ],
        ids=str,
    )
    def test_what_cannot_be_unset_is_refused(self, lake: Lake, spark: SparkSession, names: Any, why: str) -> None:
        properties = {"delta.columnMapping.mode": "name", "delta.constraints.a": "id > 0"}
        dataset = table(lake, schema=SCHEMA, properties=properties, mirror="fenced", spark=spark)
        with pytest.raises(ValidationError, match=why):
            dataset.unset_properties(names)
        assert dataset.version == 0

    def test_column_mapping_can_be_switched_on_and_a_mirror_fenced(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        dataset.set_properties({"delta.columnMapping.mode": "name", "lakelog.mirror": "fenced"})
        snapshot = dataset.snapshot()
        assert snapshot.metadata.configuration["delta.columnMapping.maxColumnId"] == "4"
        assert {"columnMapping", "lakelog.managed"} <= {*(snapshot.protocol.writer_features or ())}
        with pytest.raises(ValidationError, match="cannot go from name to none"):
            dataset.set_properties({"delta.columnMapping.mode": "none"})
        check_invariants(lake)

    def test_an_append_only_table_loses_no_file_until_it_is_none_any_more(self, lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        commit(lake, dataset, add())
        dataset.set_properties({"delta.appendOnly": "true"})
        with pytest.raises(ValidationError, match="append-only"):
            commit(lake, dataset, RemoveFile(path="a.parquet"))
        dataset.unset_properties(["delta.appendOnly"])
        commit(lake, dataset, RemoveFile(path="a.parquet"))

    def test_of_two_changes_on_the_same_version_one_is_a_conflict(self, lake: Lake, other_lake: Lake) -> None:
        dataset = table(lake, schema=SCHEMA)
        plan = dataset.plan_write(pa.schema([("new", pa.int8())]), schema_merge=True)
        other_lake.dataset(dataset.name).set_properties({"owner": "me"})
        with pytest.raises(VersionConflict):
            commit(lake, dataset, *plan.actions, version=1)


class TestDefaults:
    def test_they_are_metadata_of_the_column(self, lake: Lake, spark: SparkSession) -> None:
        dataset = table(lake, schema=SCHEMA, defaults={"ID": "1"}, spark=spark)
        assert dataset.schema().field("id").metadata == {b"CURRENT_DEFAULT": b"1"}
        assert "allowColumnDefaults" in (dataset.snapshot().protocol.writer_features or ())
        assert dataset.set_default("id", "1", spark=spark) is None
        assert dataset.set_default("day", "DATE'2026-01-01'", spark=spark).version == 1
        assert dataset.drop_default("Id").version == 2
        assert dataset.drop_default("id") is None
        assert [field.metadata for field in dataset.schema()][:2] == [None, {b"CURRENT_DEFAULT": b"DATE'2026-01-01'"}]
        assert dataset.history(1)[0].operation == "CHANGE COLUMN"
        assert [str(change) for each in dataset.schema_history() for change in each.changes] == [
            "id default: 1",
            "day default: DATE'2026-01-01'",
        ]
        check_invariants(lake)

    def test_a_renamed_column_keeps_its_default(self, lake: Lake, spark: SparkSession) -> None:
        dataset = table(lake, schema=SCHEMA, defaults={"id": "1"}, spark=spark)
        dataset.rename_column("id", "number")
        assert dataset.schema().field("number").metadata[b"CURRENT_DEFAULT"] == b"1"


def test_a_write_adds_nothing_to_a_generated_column(lake: Lake, spark: SparkSession) -> None:
    dataset = table(lake, schema=SCHEMA, generated={"place": "struct(CAST(id AS INT) AS x)"}, spark=spark)
    wider = pa.schema([("place", pa.struct([("x", pa.int32()), ("y", pa.int32())]))])
    with pytest.raises(SchemaMismatchError, match="place: is generated as struct"):
        dataset.plan_write(wider, schema_merge=True)


class TestRowsThatArePythons:
    """``plan.conform`` follows what it can, and refuses the rest."""

    def test_constants_fill_in_and_simple_constraints_hold(self, lake: Lake, spark: SparkSession) -> None:
        rule = {"delta.constraints.positive": "id > 0"}
        dataset = table(lake, schema=SCHEMA, properties=rule, defaults={"day": "DATE'2026-01-01'"}, spark=spark)
        rows = pa.table({"id": [1, 2]})
        plan = dataset.plan_write(rows.schema)
        assert [str(row["day"]) for row in plan.conform(rows).to_pylist()] == ["2026-01-01"] * 2
        with pytest.raises(SchemaMismatchError, match="the constraint 'positive': 2 rows"):
            plan.conform(pa.table({"id": [1, -2, None]}))

    def test_what_only_spark_can_follow_is_refused(self, lake: Lake, spark: SparkSession) -> None:
        dataset = table(lake, schema=SCHEMA, generated={"day": "date_from_unix_date(CAST(id AS INT))"}, spark=spark)
        rows = pa.table({"id": [1]})
        with pytest.raises(ValidationError, match=r"write with lakelog\.write_dataset"):
            dataset.plan_write(rows.schema).conform(rows)
