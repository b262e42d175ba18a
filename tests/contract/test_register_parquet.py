"""Parquet files that exist become a dataset: their rows, as they are, or an error and nothing at all."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelog
from lakelog import ConfigurationError, DatasetExistsError, Lake, LakelogError, ValidationError
from tests.contract.registering import UTC_MICROS, on_sqlite, put, refused, rows_of, stats_of
from tests.fixtures.lakes import catalog_rows
from tests.invariants import check_invariants


@pytest.fixture
def data(tmp_path: Path) -> Path:
    directory = tmp_path / "data"
    directory.mkdir()
    return directory


class TestRows:
    def test_files_become_the_first_version_of_a_dataset_and_stay_where_they_are(self, lake: Lake, data: Path) -> None:
        one = put(data / "a.parquet", {"id": [1, 2], "name": ["x", None]})
        two = put(data / "deep" / "er" / "b.parquet", {"id": [3], "name": ["z"]})
        before = {path: path.read_bytes() for path in (one, two)}
        dataset = lake.register_parquet(data, "events", description="as found")
        assert dataset.location == str(data)
        assert dataset.version == 0
        assert dataset.snapshot().files().column("path").to_pylist() == ["a.parquet", "deep/er/b.parquet"]
        assert rows_of(dataset) == [{"id": 1, "name": "x"}, {"id": 2, "name": None}, {"id": 3, "name": "z"}]
        assert {path: path.read_bytes() for path in before} == before
        assert sorted(path.name for path in data.rglob("*")) == [
            "00000000000000000000.json",
            "_delta_log",
            "a.parquet",
            "b.parquet",
            "deep",
            "er",
        ]
        assert dataset.snapshot().metadata.description == "as found"
        check_invariants(lake)

    def test_the_log_says_that_files_were_converted(self, lake: Lake, data: Path) -> None:
        put(data / "day=2026-01-31" / "a.parquet", {"id": [1]})
        (commit,) = lake.register_parquet(data, "events", ["day"]).history()
        assert commit.operation == "CONVERT"
        assert commit.operation_parameters == {
            "numFiles": 1,
            "partitionedBy": '["day"]',
            "collectStats": True,
            "sourceFormat": "parquet",
        }

    def test_statistics_and_row_groups_come_from_the_footers(self, lake: Lake, data: Path) -> None:
        put(data / "a.parquet", {"id": [5, 1, 9], "share": [0.5, 2.5, None]}, row_group_size=2)
        dataset = lake.register_parquet(data, "events")
        assert stats_of(dataset)["a.parquet"] == {
            "numRecords": 3,
            # Writers other than Spark may leave NaN out of a maximum.
            "minValues": {"id": 1, "share": 0.5},
            "maxValues": {"id": 9},
            "nullCount": {"id": 0, "share": 1},
        }
        groups = dataset.snapshot().row_groups()
        assert groups.column("row_count").to_pylist() == [2, 1]
        assert [json.loads(text)["minValues"]["id"] for text in groups.column("stats").to_pylist()] == [1, 9]
        assert dataset.count() == 3
        assert dataset.snapshot().files("id > 100").num_rows == 0

    def test_many_files_are_read_in_threads_with_progress(self, lake: Lake, data: Path) -> None:
        for number in range(300):
            put(data / f"{number:03}.parquet", {"id": [number]})
        told: list[tuple[int, int]] = []
        dataset = lake.register_parquet(data, "events", progress=lambda done, total: told.append((done, total)))
        assert told == [(64, 300), (128, 300), (192, 300), (256, 300), (300, 300)]
        assert [row["id"] for row in rows_of(dataset)] == list(range(300))
        assert dataset.snapshot().files("id = 17").column("path").to_pylist() == ["017.parquet"]

    @on_sqlite
    def test_a_registered_dataset_is_written_to_as_any_other(self, lake: Lake, data: Path) -> None:
        put(data / "a.parquet", {"id": [1]})
        dataset = lake.register_parquet(data, "events")
        plan = dataset.plan_write(pa.schema([("id", pa.int64()), ("new", pa.string())]), schema_merge=True)
        added = put(data / "b.parquet", plan.conform(pa.table({"id": [2], "new": ["x"]})))
        file = lakelog.actions.AddFile(path=added.name, size=added.stat().st_size, modification_time=0)
        lakelog.SqlTxnLogWriter(lake).commit(dataset.id, 1, [*plan.actions, file])
        assert rows_of(dataset) == [{"id": 1, "new": None}, {"id": 2, "new": "x"}]

    @on_sqlite
    def test_files_without_rows_are_part_of_it(self, lake: Lake, data: Path) -> None:
        put(data / "a.parquet", pa.table({"id": pa.array([], pa.int64())}))
        put(data / "b.parquet", {"id": [1]})
        dataset = lake.register_parquet(data, "events")
        assert dataset.snapshot().files().column("row_count").to_pylist() == [0, 1]


PARTITIONED: list[tuple[list[str], Any, pa.DataType, list[Any]]] = [
    (["1", "-20", "0"], None, pa.int64(), [1, -20, 0]),
    (["01", "2"], None, pa.string(), ["01", "2"]),
    (["-0", "2"], None, pa.string(), ["-0", "2"]),
    (["9223372036854775808"], None, pa.string(), ["9223372036854775808"]),
    (["2026-01-31", "0001-01-01"], None, pa.date32(), [date(2026, 1, 31), date(1, 1, 1)]),
    (["2026-02-30"], None, pa.string(), ["2026-02-30"]),
    (["1", "2026-01-31"], None, pa.string(), ["1", "2026-01-31"]),
    (["1", "__HIVE_DEFAULT_PARTITION__"], None, pa.int64(), [1, None]),
    (["__HIVE_DEFAULT_PARTITION__"], None, pa.string(), [None]),
    ([""], None, pa.string(), [None]),
    (["007"], pa.int32(), pa.int32(), [7]),
    (["true", "False"], pa.bool_(), pa.bool_(), [True, False]),
    (["1.5"], pa.decimal128(5, 2), pa.decimal128(5, 2), [Decimal("1.50")]),
    (["1.5", "1e3"], pa.float64(), pa.float64(), [1.5, 1000.0]),
    (["2026-01-31 12%3A30%3A00"], pa.timestamp("us"), pa.timestamp("us"), [datetime(2026, 1, 31, 12, 30)]),  # noqa: DTZ001
    (["2026-01-31T12%3A00%3A00+01%3A00"], UTC_MICROS, UTC_MICROS, [datetime(2026, 1, 31, 11, tzinfo=UTC)]),
    (
        ["a%2Fb%3D%25", "a b", "é", "%C3%A9t%C3%A9", "100%", "%2525"],
        None,
        pa.string(),
        ["a/b=%", "a b", "é", "été", "100%", "%25"],
    ),
]


class TestPartitions:
    @on_sqlite
    @pytest.mark.parametrize(("texts", "said", "kind", "values"), PARTITIONED)
    def test_values_are_what_directories_say(
        self, lake: Lake, data: Path, texts: list[str], said: Any, kind: pa.DataType, values: list[Any]
    ) -> None:
        for number, text in enumerate(texts):
            put(data / f"p={text}" / f"{number}.parquet", {"id": [number]})
        dataset = lake.register_parquet(data, "events", ["p"] if said is None else {"p": said})
        assert dataset.schema() == pa.schema([("id", pa.int64()), ("p", kind)])
        assert sorted(rows_of(dataset), key=lambda row: row["id"]) == [
            {"id": number, "p": value} for number, value in enumerate(values)
        ]

    def test_partitions_of_several_columns_are_last_and_searched(self, lake: Lake, data: Path) -> None:
        put(data / "year=2026" / "kind=a b" / "x.parquet", {"id": [1]})
        put(data / "kind=__HIVE_DEFAULT_PARTITION__" / "sub" / "year=2025" / "x.parquet", {"id": [2]})
        dataset = lake.register_parquet(data / "**" / "*.parquet", "events", ["kind", "year"])
        assert dataset.schema().names == ["id", "kind", "year"]
        assert dataset.snapshot().metadata.partition_columns == ("kind", "year")
        assert sorted(map(str, rows_of(dataset))) == [
            "{'id': 1, 'kind': 'a b', 'year': 2026}",
            "{'id': 2, 'kind': None, 'year': 2025}",
        ]
        assert dataset.snapshot().files("year > 2025").column("path").to_pylist() == ["year=2026/kind=a%20b/x.parquet"]
        assert dataset.snapshot().files("kind IS NULL").num_rows == 1
        check_invariants(lake)

    @on_sqlite
    def test_a_location_above_makes_partitions_of_the_directories_below_it(self, lake: Lake, data: Path) -> None:
        put(data / "year=2026" / "x.parquet", {"id": [1]})
        dataset = lake.register_parquet(data / "year=2026" / "*.parquet", "events", ["year"], location=data)
        assert dataset.location == str(data)
        assert rows_of(dataset) == [{"id": 1, "year": 2026}]

    @on_sqlite
    @pytest.mark.parametrize(
        ("directories", "partition_by", "message"),
        [
            (["day=1", "nothing"], ["day"], "nothing/0.parquet: has no directory day=…"),
            (["day=1/kind=x"], ["day"], "day=1/kind=x/0.parquet: the column 'kind' would be lost"),
            (["day=1"], None, "day=1/0.parquet: the column 'day' would be lost"),
            (["day=1", "day=x"], {"day": pa.int64()}, "day=x/0.parquet: 'x' is no value of 'day', which is int64"),
            (["day=300"], {"day": pa.int8()}, "'300' is no value of 'day'"),
            (["day=2026-1-1"], {"day": pa.date32()}, "'2026-1-1' is no value of 'day'"),
            (["day=1.555"], {"day": pa.decimal128(5, 2)}, "'1.555' is no value of 'day'"),
            (["day=2026-01-01T00%3A00%3A00Z"], {"day": pa.timestamp("us")}, "is no value of 'day'"),
            (["day=1/day=2"], ["day"], "day=1/day=2/0.parquet: has two directories for 'day'"),
            (["day=%FF"], ["day"], "day=%FF/0.parquet: has an escape that is not UTF-8"),
            (["day=a%00b"], ["day"], "day=a%00b/0.parquet: 'a\\x00b' is no value of 'day'"),
            (["id=1"], ["id"], "id: is in the file, and the directories say it, too"),
            (["ID=1"], ["ID"], "id: is in the file, and the directories say it, too"),
            (["day=1"], "day", "expected a list of column names"),
            (["day=1"], {"day": "int64"}, "expected an Arrow type"),
            (["day=1"], {"day": pa.binary()}, "expected an Arrow type"),
        ],
    )
    def test_directories_that_say_something_else_are_refused(
        self, lake: Lake, data: Path, directories: list[str], partition_by: Any, message: str
    ) -> None:
        for directory in directories:
            put(data / directory / "0.parquet", {"id": [1]})
        refused(lake, ValidationError, message, data, partition_by=partition_by)


class TestFailures:
    def test_broken_files_are_named_and_nothing_is_left(self, lake: Lake, data: Path) -> None:
        for number in range(80):
            put(data / f"{number:02}.parquet", {"id": [number]})
        (data / "41.parquet").write_bytes(b"PAR1 but not really")
        (data / "77.parquet").write_bytes(b"")
        text = refused(lake, LakelogError, f"{data}/41.parquet: ", data)
        assert f"{data}/77.parquet: " in text

    def test_a_name_that_is_taken_is_refused(self, lake: Lake, data: Path) -> None:
        put(data / "a.parquet", {"id": [1]})
        lake.create_dataset("refused", pa.schema([("id", pa.int64())]))
        before = catalog_rows(lake)
        with pytest.raises(DatasetExistsError, match="already a dataset 'refused'"):
            lake.register_parquet(data, "refused")
        assert catalog_rows(lake) == before

    @on_sqlite
    @pytest.mark.parametrize("directory", ["", "below", "below/it"])
    def test_a_location_that_overlaps_another_datasets_is_refused(self, lake: Lake, data: Path, directory: str) -> None:
        put(data / "below" / "it" / "a.parquet", {"id": [1]})
        lake.register_parquet(data / "below", "first", mirror=False)
        refused(lake, DatasetExistsError, "overlaps", data / directory)

    @on_sqlite
    @pytest.mark.parametrize("name", ["", "a/b"])
    def test_a_name_that_no_dataset_has_is_refused(self, lake: Lake, data: Path, name: str) -> None:
        put(data / "a.parquet", {"id": [1]})
        with pytest.raises(ValidationError, match="dataset name"):
            lake.register_parquet(data, name)

    @on_sqlite
    def test_an_interrupt_leaves_nothing(self, lake: Lake, data: Path) -> None:
        put(data / "a.parquet", {"id": [1]})
        before = catalog_rows(lake)

        def interrupt(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            lake.register_parquet(data, "events", progress=interrupt)
        assert catalog_rows(lake) == before

    @on_sqlite
    def test_files_of_a_delta_table_are_refused(self, lake: Lake, data: Path) -> None:
        put(data / "table" / "part" / "a.parquet", {"id": [1]})
        (data / "table" / "_delta_log").mkdir()
        for glob in (data, data / "table", data / "table" / "part" / "*"):
            refused(lake, ConfigurationError, f"{data}/table is a Delta table", glob)

    @on_sqlite
    @pytest.mark.parametrize("glob", ["s3://bucket/*.parquet", "file:///tmp/*.parquet", ""])
    def test_places_elsewhere_are_refused(self, lake: Lake, glob: str) -> None:
        refused(lake, ConfigurationError, "expected a path", glob)

    @on_sqlite
    @pytest.mark.parametrize("pattern", ["x" * 300, "x" * 300 + "/*.parquet", "y/" * 3000])
    def test_a_place_that_no_file_system_has_is_empty(self, lake: Lake, data: Path, pattern: str) -> None:
        refused(lake, ConfigurationError, "", data / pattern)

    @on_sqlite
    def test_a_link_to_itself_is_a_clear_error(self, lake: Lake, data: Path) -> None:
        (data / "loop").symlink_to(data / "loop")
        refused(lake, ConfigurationError, "cannot look at", f"{data}/**/*.parquet")

    @on_sqlite
    def test_names_that_the_log_cannot_have_are_refused(self, lake: Lake, data: Path) -> None:
        put(data / "a\\b.parquet", {"id": [1]})
        refused(lake, ValidationError, "contains a backslash", data)
