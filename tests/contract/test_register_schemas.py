"""The schema of a dataset that is made of files: what holds all of them, or an error that says which file does not."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakelog import Lake, SchemaMismatchError, ValidationError
from tests.contract.registering import UTC_MICROS, field, on_sqlite, put, refused, rows_of, stats_of
from tests.invariants import check_invariants


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


WIDENED = [
    (pa.int32(), pa.int64(), pa.int64()),
    (pa.int64(), pa.int32(), pa.int64()),
    (pa.int8(), pa.int16(), pa.int16()),
    (pa.float32(), pa.float64(), pa.float64()),
    (pa.int32(), pa.float64(), pa.float64()),
    (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
    (pa.decimal128(5, 2), pa.decimal128(8, 4), pa.decimal128(8, 4)),
    (pa.int64(), pa.decimal128(38, 2), pa.decimal128(38, 2)),
    (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
    (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int32())]), pa.struct([("a", pa.int64())])),
    (pa.uint8(), pa.int64(), pa.int64()),
    (pa.uint16(), pa.float64(), pa.float64()),
]
TAKEN = [
    (pa.uint8(), pa.int16()),
    (pa.uint32(), pa.int64()),
    (pa.uint64(), pa.decimal128(20, 0)),
    (pa.large_string(), pa.string()),
    (pa.dictionary(pa.int32(), pa.string()), pa.string()),
    (pa.json_(), pa.string()),
    (pa.binary(4), pa.binary()),
    (pa.timestamp("ms"), pa.timestamp("us")),
    (pa.timestamp("us", "Europe/Zurich"), UTC_MICROS),
    (pa.decimal256(38, 2), pa.decimal128(38, 2)),
    (pa.large_list(pa.uint16()), pa.list_(pa.int32())),
    (pa.map_(pa.string(), pa.large_string()), pa.map_(pa.string(), pa.string())),
]


class TestSchemas:
    @on_sqlite
    @pytest.mark.parametrize(("found", "kind"), TAKEN, ids=str)
    def test_types_are_those_that_a_table_keeps_such_values_in(
        self, lake: Lake, data: Path, found: pa.DataType, kind: pa.DataType
    ) -> None:
        put(data / "a.parquet", field(found))
        assert lake.register_parquet(data, "events").schema() == pa.schema([("x", kind)])

    @on_sqlite
    def test_int96_is_an_instant_without_bounds(self, lake: Lake, data: Path) -> None:
        moment = datetime(2026, 1, 31, 12)  # noqa: DTZ001
        put(data / "a.parquet", field(pa.timestamp("ns"), [moment]), use_deprecated_int96_timestamps=True)
        dataset = lake.register_parquet(data, "events")
        assert rows_of(dataset) == [{"x": moment.replace(tzinfo=UTC)}]
        assert stats_of(dataset)["a.parquet"]["minValues"] == {}

    @on_sqlite
    @pytest.mark.parametrize(
        ("kind", "message"),
        [
            (pa.float16(), "16-bit float"),
            (pa.null(), "nulls only and no type"),
            (pa.list_(pa.null()), "x.element: has nulls only"),
            (pa.timestamp("ns"), "timestamp in nanoseconds"),
            (pa.struct([("at", pa.timestamp("ns", "UTC"))]), "x.at: is a timestamp in nanoseconds"),
            (pa.time64("us"), "Delta has no type for Arrow's time64[us]"),
            (pa.duration("us"), "Delta has no type for Arrow's duration[us]"),
            (pa.uuid(), "Delta has no type for Arrow's extension<arrow.uuid>"),
            (pa.decimal256(50, 2), "Delta has no type for Arrow's decimal256(50, 2)"),
        ],
        ids=str,
    )
    def test_types_that_a_table_or_spark_lacks_are_refused_by_file_and_column(
        self, lake: Lake, data: Path, kind: pa.DataType, message: str
    ) -> None:
        put(data / "good.parquet", field(pa.int64()))
        bad = put(data / "deep" / "bad.parquet", field(kind))
        assert f"{bad}: x" in refused(lake, SchemaMismatchError, message, data)

    @on_sqlite
    @pytest.mark.parametrize(("first", "second", "kind"), WIDENED, ids=str)
    def test_narrower_files_are_read_as_the_wider_type(
        self, lake: Lake, data: Path, first: pa.DataType, second: pa.DataType, kind: pa.DataType
    ) -> None:
        put(data / "a.parquet", field(first))
        put(data / "b.parquet", field(second))
        snapshot = lake.register_parquet(data, "events").snapshot()
        assert snapshot.schema == pa.schema([("x", kind)])
        # So that readers of Delta know what they find in the files.
        assert snapshot.metadata.configuration == {"delta.enableTypeWidening": "true"}
        assert "typeWidening" in (snapshot.protocol.reader_features or ())
        assert "delta.typeChanges" in snapshot.metadata.schema_string

    @on_sqlite
    @pytest.mark.parametrize(
        ("first", "second", "message"),
        [
            (pa.string(), pa.int64(), "the table has string, the data has int64"),
            (pa.int64(), pa.float64(), "the table has int64, the data has double"),
            (pa.binary(), pa.string(), "the table has binary, the data has string"),
            (pa.timestamp("us"), UTC_MICROS, "the table has timestamp[us], the data has timestamp[us, tz=UTC]"),
            (pa.decimal128(19, 0), pa.int64(), "the file has int64, which Spark does not read as decimal128(19, 0)"),
            (pa.decimal128(20, 0), pa.uint32(), "the file has uint32, which Spark does not read as decimal128(20, 0)"),
            (pa.decimal128(22, 0), pa.uint64(), "the file has uint64, which Spark does not read as decimal128(22, 0)"),
            (pa.list_(pa.int64()), pa.int64(), "the table has list<"),
        ],
        ids=str,
    )
    def test_files_that_no_type_holds_are_refused_by_file_and_column(
        self, lake: Lake, data: Path, first: pa.DataType, second: pa.DataType, message: str
    ) -> None:
        put(data / "a.parquet", field(first))
        bad = put(data / "b.parquet", field(second))
        text = refused(lake, SchemaMismatchError, message, data)
        assert f"{bad}: x: " in text
        assert "promote_to_string" not in text

    def test_a_column_that_some_files_lack_is_null_there(self, lake: Lake, data: Path) -> None:
        required = pa.schema([pa.field("id", pa.int32(), nullable=False)])
        put(data / "a.parquet", pa.table({"id": [1]}, required))
        put(data / "b.parquet", {"name": ["x"], "id": pa.array([2**40])})
        put(data / "c.parquet", {"place": [{"x": 1}], "id": [3]})
        put(data / "d.parquet", {"place": [{"y": 2}], "id": [4]})
        dataset = lake.register_parquet(data, "events")
        assert dataset.schema() == pa.schema(
            [("id", pa.int64()), ("name", pa.string()), ("place", pa.struct([("x", pa.int64()), ("y", pa.int64())]))]
        )
        assert rows_of(dataset) == [
            {"id": 1, "name": None, "place": None},
            {"id": 2**40, "name": "x", "place": None},
            {"id": 3, "name": None, "place": {"x": 1, "y": None}},
            {"id": 4, "name": None, "place": {"x": None, "y": 2}},
        ]
        assert stats_of(dataset)["a.parquet"]["nullCount"] == {"id": 0, "name": 1, "place": {"x": 1, "y": 1}}
        assert dataset.snapshot().files("place.y = 2").column("path").to_pylist() == ["d.parquet"]
        check_invariants(lake)

    @on_sqlite
    def test_a_late_file_may_bring_a_column(self, lake: Lake, data: Path) -> None:
        for number in range(100):
            put(data / f"{number:03}.parquet", {"id": [number]} | ({"late": ["x"]} if number == 98 else {}))
        dataset = lake.register_parquet(data, "events")
        assert dataset.schema().names == ["id", "late"]
        assert dataset.snapshot().files("late IS NOT NULL").column("path").to_pylist() == ["098.parquet"]
        assert rows_of(dataset)[98] == {"id": 98, "late": "x"}

    @on_sqlite
    def test_structs_that_differ_only_in_their_name_are_two_columns(self, lake: Lake, data: Path) -> None:
        put(data / "a.parquet", {"s": [{"x": 1}]})
        put(data / "b.parquet", {"t": [{"x": 2}]})
        dataset = lake.register_parquet(data, "events")
        assert rows_of(dataset) == [{"s": {"x": 1}, "t": None}, {"s": None, "t": {"x": 2}}]
        assert stats_of(dataset)["b.parquet"]["minValues"] == {"t": {"x": 2}}

    @on_sqlite
    @pytest.mark.parametrize(
        ("first", "second", "message"),
        [
            ({"Id": [1]}, {"id": [2]}, "b.parquet: id: is spelled 'Id'"),
            ({"s": [{"A": 1}]}, {"s": [{"a": 1}]}, "b.parquet: s.a: is spelled 'A'"),
            ({"x": [1]}, {"a": [1], "A": [2]}, "differs only in case"),
            ({"x y": [1]}, {"x y": [1]}, "which Delta allows only with column mapping"),
        ],
    )
    def test_names_that_readers_would_confuse_are_refused(
        self, lake: Lake, data: Path, first: Any, second: Any, message: str
    ) -> None:
        put(data / "a.parquet", first)
        put(data / "b.parquet", second)
        refused(lake, ValidationError, message, data)

    @on_sqlite
    def test_two_columns_of_one_name_are_refused(self, lake: Lake, data: Path) -> None:
        put(data / "a.parquet", pa.table([pa.array([1]), pa.array([2])], ["x", "x"]))
        refused(lake, SchemaMismatchError, "occurs twice", data)

    @on_sqlite
    def test_field_ids_of_files_are_left_alone(self, lake: Lake, data: Path) -> None:
        schema = pa.schema([pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "7", "comment": "mine"})])
        put(data / "a.parquet", pa.table({"x": [1]}, schema))
        put(data / "b.parquet", {"x": [2]})
        dataset = lake.register_parquet(data, "events")
        assert dataset.schema().field("x").metadata is None
        assert rows_of(dataset) == [{"x": 1}, {"x": 2}]

    def test_column_mapping_by_name_takes_any_name(self, lake: Lake, data: Path) -> None:
        put(data / "a b=1" / "a.parquet", {"x y": [1]})
        dataset = lake.register_parquet(data, "events", ["a b"], properties={"delta.columnMapping.mode": "name"})
        assert dataset.schema().names == ["x y", "a b"]
        assert dataset.snapshot().state.metadata.physical.names == ["x y", "a b"]
        assert stats_of(dataset)["a%20b=1/a.parquet"]["minValues"] == {"x y": 1}
        assert rows_of(dataset) == [{"x y": 1, "a b": 1}]

    @on_sqlite
    def test_column_mapping_by_id_is_refused(self, lake: Lake, data: Path) -> None:
        put(data / "a.parquet", {"x": [1]})
        by_id = {"delta.columnMapping.mode": "id"}
        refused(lake, ValidationError, "know their columns by name", data, properties=by_id)


class TestStatedSchema:
    @on_sqlite
    def test_it_decides_types_and_order(self, lake: Lake, data: Path) -> None:
        put(data / "day=1" / "a.parquet", {"id": pa.array([1], pa.int32())})
        stated = pa.schema(
            [
                pa.field("day", pa.int32(), metadata={"comment": "of the week"}),
                ("more", pa.string()),
                ("id", pa.int64()),
            ]
        )
        dataset = lake.register_parquet(data, "events", ["day"], schema=stated)
        assert dataset.schema().names == ["day", "more", "id"]
        assert dataset.schema() == stated
        assert dataset.schema().field("day").metadata == {b"comment": b"of the week"}
        assert rows_of(dataset) == [{"id": 1, "more": None, "day": 1}]

    @on_sqlite
    def test_not_null_is_taken_from_files_that_promise_it(self, lake: Lake, data: Path) -> None:
        stated = pa.schema([pa.field("id", pa.int64(), nullable=False)])
        put(data / "a.parquet", pa.table({"id": [1]}, stated))
        assert lake.register_parquet(data, "events", schema=stated).schema() == stated

    @on_sqlite
    @pytest.mark.parametrize(
        ("stated", "message"),
        [
            ([("id", pa.int32())], "id: the file has int64, which Spark does not read as int32"),
            ([("id", pa.string())], "id: the file has int64, which Spark does not read as string"),
            ([("id", pa.list_(pa.int64()))], "which Spark does not read as list<"),
            ([("other", pa.int64())], "id: is not in the schema, so that it would be lost"),
            ([("ID", pa.int64())], "id: is spelled 'ID'"),
            ([pa.field("id", pa.int64(), nullable=False)], "the file may have nulls"),
            ([("id", pa.int64()), pa.field("more", pa.string(), nullable=False)], "the file has no such column"),
            ([("id", pa.int64()), ("big", pa.uint8())], "Delta has no type for Arrow's uint8"),
        ],
        ids=str,
    )
    def test_files_that_do_not_fit_it_are_refused(self, lake: Lake, data: Path, stated: Any, message: str) -> None:
        put(data / "a.parquet", {"id": [1]})
        refused(lake, ValidationError, message, data, schema=pa.schema(stated))

    @on_sqlite
    def test_a_null_partition_does_not_fit_not_null(self, lake: Lake, data: Path) -> None:
        put(data / "day=__HIVE_DEFAULT_PARTITION__" / "a.parquet", {"id": [1]})
        stated = pa.schema([("id", pa.int64()), pa.field("day", pa.int64(), nullable=False)])
        refused(lake, ValidationError, "'day' is null, and NOT NULL", data, partition_by=["day"], schema=stated)

    @on_sqlite
    def test_a_partition_has_one_type(self, lake: Lake, data: Path) -> None:
        put(data / "day=1" / "a.parquet", {"id": [1]})
        stated = pa.schema([("id", pa.int64()), ("day", pa.int64())])
        kinds = {"day": pa.string()}
        refused(lake, ValidationError, "is string here, and int64", data, partition_by=kinds, schema=stated)

    @on_sqlite
    def test_it_is_an_arrow_schema(self, lake: Lake, data: Path) -> None:
        refused(lake, ValidationError, "expected a pyarrow.Schema, got str", data, schema="id BIGINT")
