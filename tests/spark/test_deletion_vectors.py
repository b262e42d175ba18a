"""Rows that deletion vectors delete are in no answer: of reads, counts, streams and rewrites."""

import json
import random
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from lakelog import Dataset, Lake, LakelogError, read_dataset, write_dataset
from lakelog.actions import AddFile, RemoveFile
from lakelog.spark import attach, read_stream, version_of, write_stream
from lakelog.spark.frames import setting
from lakelog.spark.read import deleted_rows
from tests.contract.samples import commit, stats
from tests.fixtures.door import NAME, Door
from tests.fixtures.lakes import rows as catalog_rows
from tests.fixtures.vectors import delete, stored
from tests.invariants import check_invariants

DELETABLE = {"delta.enableDeletionVectors": "true"}
NUMBERS = pa.schema([("n", pa.int64()), ("half", pa.int64()), ("s", pa.string())])

Rows = list[tuple[Any, ...]]


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def rows(frame: DataFrame) -> Rows:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def numbers(frame: DataFrame, column: str = "n") -> list[int]:
    return sorted(row[0] for row in frame.select(column).collect())


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


class Table:
    """Files of numbers in many row groups and pages, with deleted rows in some of them, and what should be read."""

    def __init__(self, lake: Lake, files: int, rows: int, seed: int = 1) -> None:
        self.dataset = lake.create_dataset(NAME, NUMBERS, properties=DELETABLE)
        self.files, self.rows = files, rows
        self.left: Rows = []
        self.chance = random.Random(seed)
        location = Path(self.dataset.location)
        location.mkdir(parents=True, exist_ok=True)
        deleted = [self._deleted(rows) for _ in range(files)]
        vectors = iter(stored(location, *filter(None, deleted)))
        actions = []
        for number, gone in enumerate(deleted):
            first = number * rows
            n = np.arange(first, first + rows)
            data = pa.table([n, n // 2, [f"text {each % 7}" for each in n.tolist()]], schema=NUMBERS)
            place = location / f"part é %20 {number}.parquet"
            pq.write_table(
                data,
                place,
                row_group_size=max(rows // 5, 1),
                data_page_size=64,
                write_batch_size=10,
                write_page_index=True,
            )
            left = np.setdiff1d(np.arange(rows), gone)
            self.left += zip(*data.take(left).to_pydict().values(), strict=True)
            actions.append(
                AddFile(
                    path=f"part%20%C3%A9%20%2520%20{number}.parquet",
                    size=place.stat().st_size,
                    stats=stats(rows, n=(first, first + rows - 1)),
                    modification_time=0,
                    deletion_vector=next(vectors) if gone else None,
                )
            )
        commit(lake, self.dataset, *actions)

    def _deleted(self, rows: int) -> list[int]:
        """None, some, those at the ends, nearly all, or all."""
        some = sorted(self.chance.sample(range(rows), rows // 3))
        kinds: list[Sequence[int]] = [[], some, sorted({0, rows - 1}), range(rows - 1), range(rows)]
        return list(self.chance.choice(kinds))

    def where(self, matches: Callable[[Any], bool]) -> Rows:
        return sorted((row for row in self.left if matches(row)), key=repr)


class TestReads:
    @pytest.mark.parametrize(
        "settings",
        [
            {},
            {"spark.sql.files.maxPartitionBytes": "3000", "spark.sql.files.openCostInBytes": "0"},
            {"spark.sql.parquet.enableVectorizedReader": "false", "spark.sql.files.maxPartitionBytes": "3000"},
            {"spark.sql.codegen.wholeStage": "false", "spark.sql.ansi.enabled": "false"},
            {"spark.sql.optimizer.disableHints": "true", "spark.sql.autoBroadcastJoinThreshold": "-1"},
        ],
        ids=["plain", "split files", "rows one by one", "interpreted", "without hints"],
    )
    def test_every_row_that_is_left_and_no_other(
        self, lake: Lake, spark: SparkSession, settings: dict[str, str]
    ) -> None:
        self.check(lake, spark, Table(lake, files=5, rows=2000), settings)

    def test_many_files(self, lake: Lake, spark: SparkSession) -> None:
        self.check(lake, spark, Table(lake, files=80, rows=60), {})
        assert "MetadataLogFileIndex" in plan(read_dataset(lake, NAME))

    def check(self, lake: Lake, spark: SparkSession, table: Table, settings: dict[str, str]) -> None:
        files, size = table.files, table.rows
        total = files * size
        conditions: list[tuple[str, Callable[[Any], bool]]] = [
            ("true", lambda row: True),
            (f"n >= {total // 2}", lambda row: row[0] >= total // 2),
            (f"half BETWEEN {size // 3} AND {size}", lambda row: size // 3 <= row[1] <= size),
            (f"n IN (0, {size - 1}, {size}, {total - 1})", lambda row: row[0] in (0, size - 1, size, total - 1)),
            ("s = 'text 3' AND n % 2 = 0", lambda row: row[2] == "text 3" and row[0] % 2 == 0),
        ]
        with ExitStack() as stack:
            for name, value in settings.items():
                stack.enter_context(setting(spark, name, value))
            for condition, matches in conditions:
                assert rows(read_dataset(lake, NAME, where=condition)) == table.where(matches)
            assert read_dataset(lake, NAME).count() == len(table.left)

    def test_splits_row_groups_and_pages_are_really_left_out(self, lake: Lake, spark: SparkSession) -> None:
        """What the test above relies on: the files have them, and Spark uses them."""
        table = Table(lake, 5, 2000)
        place = next(Path(table.dataset.location).glob("*.parquet"))
        footer = pq.read_metadata(place)
        assert footer.num_row_groups == 5
        assert footer.row_group(0).column(0).has_offset_index
        frame = read_dataset(lake, NAME, where="half = 900")
        assert "PushedFilters: [IsNotNull(half), EqualTo(half,900)]" in plan(frame)
        with setting(spark, "spark.sql.files.maxPartitionBytes", "3000"):
            assert read_dataset(lake, NAME).rdd.getNumPartitions() > 10

    def test_files_without_vectors_are_read_as_ever(self, lake: Lake, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(0, 10, numPartitions=1), properties=DELETABLE)
        write_dataset(lake, NAME, spark.range(10, 20, numPartitions=1))
        dataset = lake.dataset(NAME)
        version = delete(lake, dataset, "id", {3, 4})
        assert "Join" not in plan(read_dataset(lake, NAME, version=version - 1))
        assert "Join" not in plan(read_dataset(lake, NAME, where="id > 12"))
        both = read_dataset(lake, NAME)
        assert plan(both).count("FileScan") == 2
        assert plan(both).count("Batched: true") == 2
        assert numbers(both, "id") == [*range(3), *range(5, 20)]
        assert numbers(read_dataset(lake, NAME, version=version - 1), "id") == list(range(20))

    def test_a_vector_takes_the_place_of_the_one_before(self, lake: Lake, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(0, 100, numPartitions=2), properties=DELETABLE)
        dataset = lake.dataset(NAME)
        delete(lake, dataset, "id", range(10, 60))
        delete(lake, dataset, "id", range(40, 80), in_log=True)
        assert [numbers(read_dataset(lake, NAME, version=version), "id") for version in (0, 1, 2)] == [
            list(range(100)),
            [*range(10), *range(60, 100)],
            [*range(10), *range(80, 100)],
        ]
        check_invariants(lake)

    def test_sql_and_views_and_versions(self, lake: Lake, spark: SparkSession) -> None:
        write_dataset(lake, NAME, spark.range(0, 20, numPartitions=2), properties=DELETABLE)
        version = delete(lake, lake.dataset(NAME), "id", {3, 4, 15})
        [row] = lake.sql(f"SELECT count(*), sum(id) FROM {NAME} WHERE id < 10").collect()
        assert tuple(row) == (8, sum(range(10)) - 7)
        with attach(spark, lake):
            assert spark.sql(f"SELECT sum(a.id) FROM {NAME} a JOIN {NAME} b USING (id)").collect()[0][0] == 190 - 22
        frame = read_dataset(lake, NAME)
        assert version_of(frame) == version
        assert frame.cache().count() == 17
        frame.unpersist()

    def test_a_column_that_is_called_as_what_spark_says_of_files(self, lake: Lake, spark: SparkSession) -> None:
        told = "named_struct('row_index', 99 - id, 'file_path', 'x') AS _metadata"
        write_dataset(lake, NAME, spark.range(0, 100, 1, 1).selectExpr("id", told), properties=DELETABLE)
        delete(lake, lake.dataset(NAME), "id", range(10, 40))
        assert numbers(read_dataset(lake, NAME), "id") == [*range(10), *range(40, 100)]

    @pytest.mark.parametrize("kind", ["directories", "few partitions", "many partitions"])
    def test_partitions(self, lake: Lake, spark: SparkSession, kind: str) -> None:
        count = 20 if kind == "many partitions" else 3
        frame = spark.range(0, 200).selectExpr("id", f"concat('p ', id % {count}) AS part", "id % 2 = 0 AS even")
        write_dataset(lake, NAME, frame, partition_by=["part"], properties=DELETABLE)
        dataset = lake.dataset(NAME)
        if kind != "directories":
            self._scatter(lake, dataset)
        delete(lake, dataset, "id", range(50, 120))
        left = [*range(50), *range(120, 200)]
        expected = sorted([(n, f"p {n % count}", n % 2 == 0) for n in left], key=repr)
        assert rows(read_dataset(lake, NAME).select("id", "part", "even")) == expected
        assert numbers(read_dataset(lake, NAME, where="part = 'p 1' AND even"), "id") == [
            n for n in left if n % count == 1 and n % 2 == 0
        ]

    def _scatter(self, lake: Lake, dataset: Dataset) -> None:
        """Puts the files where their directories do not tell their partitions."""
        files = dataset.snapshot().files().to_pylist()
        moved = []
        for number, file in enumerate(files):
            place = Path(dataset.location, unquote(file["path"])).rename(Path(dataset.location, f"{number}.parquet"))
            moved.append(
                AddFile(
                    path=place.name,
                    size=file["size"],
                    partition_values=json.loads(file["partition_values"]),
                    stats=file["stats"],
                    modification_time=0,
                )
            )
        commit(lake, dataset, *[RemoveFile(path=file["path"]) for file in files], *moved)

    @pytest.mark.parametrize("door_is_sparks", [False, True])
    def test_schemas_that_changed_and_mapped_columns(
        self, lake: Lake, door: Door, spark: SparkSession, door_is_sparks: bool
    ) -> None:
        first = spark.sql("SELECT CAST(id AS INT) AS id, 'a' AS gone, CAST(id AS INT) AS text FROM range(0, 20)")
        write_dataset(lake, NAME, first, properties=DELETABLE)
        dataset = lake.dataset(NAME)
        delete(lake, dataset, "id", {3, 19}, in_log=True)
        write_dataset(lake, NAME, spark.sql("SELECT 1L << 40 AS id, 0.5D AS added"), schema_merge=True)
        dataset.rename_column("id", "key")
        dataset.drop_column("gone")
        second = spark.sql("SELECT id AS key, 7 AS text, 1.5D AS added FROM range(20, 30)")
        write_dataset(lake, NAME, second, schema_merge=True)
        delete(lake, dataset, "id", {5, 1 << 40, 22})
        dataset.add_column("gone", pa.string())
        expected = [(n, n, None, None) for n in range(20) if n not in (3, 5, 19)]
        expected += [(n, 7, 1.5, None) for n in range(20, 30) if n != 22]
        read = door.read if door_is_sparks else lambda: read_dataset(lake, NAME)
        assert rows(read().select("key", "text", "added", "gone")) == sorted(expected, key=repr)
        words = spark.sql("SELECT 99L AS key, 'words' AS text")
        write_dataset(lake, NAME, words, schema_merge=True, promote_to_string=True)
        said = [(key, str(text), added, gone) for key, text, added, gone in expected] + [(99, "words", None, None)]
        assert rows(read().select("key", "text", "added", "gone")) == sorted(said, key=repr)
        check_invariants(lake)


class TestDamage:
    @pytest.fixture
    def dataset(self, lake: Lake, spark: SparkSession) -> Dataset:
        write_dataset(lake, NAME, spark.range(0, 20, numPartitions=1), properties=DELETABLE)
        dataset = lake.dataset(NAME)
        delete(lake, dataset, "id", {3, 4})
        return dataset

    @pytest.mark.parametrize("gone", [False, True])
    def test_a_vector_that_cannot_be_read_is_an_error_that_names_it(
        self, lake: Lake, door: Door, dataset: Dataset, gone: bool
    ) -> None:
        [place] = Path(dataset.location).rglob("*.bin")
        if gone:
            place.unlink()
        else:
            place.write_bytes(place.read_bytes()[:-1] + b"!")
        with pytest.raises(LakelogError, match=place.name):
            read_dataset(lake, NAME)
        with pytest.raises(PySparkException, match=place.name):
            door.read().collect()
        with pytest.raises(LakelogError, match=place.name):
            write_dataset(lake, NAME, read_dataset(lake, NAME, version=0), "overwrite", replace_where="id < 100")
        assert dataset.count() == 18, "which the log knows by itself"

    def test_a_file_that_spark_names_otherwise_is_an_error(
        self, lake: Lake, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(deleted_rows, "names_of", lambda place: [f"elsewhere:{place}"])
        with pytest.raises(PySparkException, match=r"no deletion vector for file:/.*\.parquet"):
            read_dataset(lake, NAME).collect()


class TestCounts:
    @pytest.fixture
    def dataset(self, lake: Lake, spark: SparkSession) -> Dataset:
        """Ten files of ten ids; of 20 to 29 all are deleted, of 30 to 39 the ends."""
        write_dataset(lake, NAME, spark.range(0, 100, numPartitions=10), properties=DELETABLE)
        dataset = lake.dataset(NAME)
        delete(lake, dataset, "id", {*range(20, 31), 39, 77})
        return dataset

    @pytest.mark.parametrize(
        ("where", "left"),
        [
            (None, 87),
            ("id >= 0", 87),
            ("id < 30", 20),
            ("id BETWEEN 20 AND 29", 0),
            ("id >= 30 AND id < 40", 8),
            ("id IS NOT NULL", 87),
            ("id IS NULL", 0),
        ],
    )
    def test_bounds_decide_for_the_rows_that_are_left(
        self, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, where: str | None, left: int
    ) -> None:
        monkeypatch.setattr("lakelog.spark.read.read.read_these", None)
        assert dataset.count(where) == left

    @pytest.mark.parametrize(("where", "left"), [("id < 35", 24), ("id = 77", 0), ("id % 10 = 9", 8), ("id > 30", 67)])
    def test_files_that_bounds_leave_open_are_read(self, dataset: Dataset, where: str, left: int) -> None:
        assert dataset.count(where) == left

    def test_an_explanation_counts_the_rows_that_are_left(self, dataset: Dataset) -> None:
        found = dataset.scan("id BETWEEN 20 AND 35").explain()
        assert str(found.rows) == "8 of 87"


class TestDoor:
    @pytest.mark.parametrize("in_log", [False, True])
    def test_rows_of_partitions(self, lake: Lake, door: Door, spark: SparkSession, in_log: bool) -> None:
        frame = spark.range(0, 200).selectExpr("id", "id % 3 AS part")
        write_dataset(lake, NAME, frame, partition_by=["part"], properties=DELETABLE)
        delete(lake, lake.dataset(NAME), "id", range(50, 120), in_log=in_log)
        left = [*range(50), *range(120, 200)]
        assert rows(door.read()) == sorted([(n, n % 3) for n in left], key=repr)
        only = spark.read.schema("part bigint").format("lakelog").options(**door.options).load(NAME)
        assert numbers(only, "part") == sorted(n % 3 for n in left), "though no column of the files is read"

    def test_rows_of_many_batches_and_row_groups(
        self, lake: Lake, door: Door, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        table = Table(lake, 3, 150_000, seed=5)
        found = door.read().selectExpr("count(*)", "sum(n)", "sum(half)").collect()[0]
        assert tuple(found) == (len(table.left), *(sum(row[place] for row in table.left) for place in (0, 1)))


class TestStreams:
    @pytest.fixture
    def dataset(self, lake: Lake, spark: SparkSession) -> Dataset:
        write_dataset(lake, NAME, spark.range(0, 20, numPartitions=2), properties=DELETABLE)
        return lake.dataset(NAME)

    def copy(self, door: Door, checkpoint: Path, **options: Any) -> None:
        door.write_stream(door.read_stream(**options), str(checkpoint), "copy").awaitTermination()

    def test_a_stream_starts_with_the_rows_that_are_left(
        self, lake: Lake, door: Door, spark: SparkSession, dataset: Dataset, tmp_path: Path
    ) -> None:
        delete(lake, dataset, "id", {3, 15})
        self.copy(door, tmp_path / "checkpoint", maxFilesPerTrigger=1)
        write_dataset(lake, NAME, spark.range(20, 22))
        self.copy(door, tmp_path / "checkpoint")
        assert numbers(read_dataset(lake, "copy"), "id") == [n for n in range(22) if n not in (3, 15)]

    def test_a_commit_that_deletes_rows_is_refused_or_skipped(
        self, lake: Lake, door: Door, spark: SparkSession, dataset: Dataset, tmp_path: Path
    ) -> None:
        delete(lake, dataset, "id", {3, 15})
        write_dataset(lake, NAME, spark.range(20, 22))
        for options in ({}, {"ignoreDeletes": "true"}):
            with pytest.raises(PySparkException, match=r"version 1 of 'events' \(DELETE\) changed or replaced rows"):
                self.copy(door, tmp_path / "refused", startingVersion=0, **options)
        self.copy(door, tmp_path / "checkpoint", startingVersion=0, skipChangeCommits=True)
        assert numbers(read_dataset(lake, "copy"), "id") == list(range(22)), "as they were added"

    def test_a_native_stream_says_where_to_go(
        self, lake: Lake, spark: SparkSession, dataset: Dataset, tmp_path: Path
    ) -> None:
        delete(lake, dataset, "id", {3, 15})
        with pytest.raises(LakelogError, match=r"have deletion vectors.*use format\('lakelog'\)"):
            read_stream(lake, NAME, checkpoint=str(tmp_path / "refused"))
        with pytest.raises(LakelogError, match=r"version 1 of 'events' \(DELETE\) changed or replaced rows"):
            read_stream(lake, NAME, checkpoint=str(tmp_path / "refused too"), starting_version=0)
        checkpoint = str(tmp_path / "checkpoint")
        frame = read_stream(lake, NAME, checkpoint=checkpoint, starting_version=0, skip_change_commits=True)
        write_stream(frame, lake, "copy", checkpoint=checkpoint, trigger={"availableNow": True}).awaitTermination()
        assert numbers(read_dataset(lake, "copy"), "id") == list(range(20)), "as they were added"


class TestWrites:
    @pytest.fixture
    def dataset(self, lake: Lake, spark: SparkSession) -> Dataset:
        """Ids 0 to 19 in two parts, of each of which some are deleted, and two more in a part without deleted ones."""
        frame = spark.range(0, 20).selectExpr("id", "id div 10 AS part")
        write_dataset(lake, NAME, frame.coalesce(1), partition_by=["part"], properties=DELETABLE)
        write_dataset(lake, NAME, spark.sql("SELECT 20L AS id, 2L AS part").union(spark.sql("SELECT 21L, 2L")))
        dataset = lake.dataset(NAME)
        delete(lake, dataset, "id", {3, 15})
        return dataset

    @pytest.fixture
    def vectors(self, dataset: Dataset) -> dict[str, str | None]:
        """Those of the live files before the test's write."""
        files = dataset.snapshot().files(columns=["path", "deletion_vector"]).to_pylist()
        assert sum(file["deletion_vector"] is not None for file in files) == 2
        return {file["path"]: file["deletion_vector"] for file in files}

    def check(self, lake: Lake, dataset: Dataset, vectors: dict[str, str | None], expected: list[int]) -> None:
        removed = catalog_rows(lake, "dl_remove_files", version=dataset.version)
        assert removed
        for row in removed:
            assert row["deletion_vector"] == vectors[row["path"]]
        live = dataset.snapshot().files(columns=["path"]).column(0).to_pylist()
        assert set(vectors) - set(live) == {row["path"] for row in removed}
        assert numbers(read_dataset(lake, NAME), "id") == expected
        assert dataset.count() == len(expected)
        check_invariants(lake)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, [5]),
            ({"partition_overwrite_mode": "dynamic"}, [5, *(n for n in range(10, 22) if n != 15)]),
            ({"replace_where": "part = 0"}, [5, *(n for n in range(10, 22) if n != 15)]),
            ({"replace_where": "id BETWEEN 5 AND 17"}, [0, 1, 2, 4, 5, 18, 19, 20, 21]),
        ],
        ids=["overwrite", "dynamic", "partitions", "rows"],
    )
    def test_an_overwrite_removes_files_with_their_vectors(
        self,
        lake: Lake,
        spark: SparkSession,
        dataset: Dataset,
        vectors: dict[str, str | None],
        options: dict[str, Any],
        expected: list[int],
    ) -> None:
        write_dataset(lake, NAME, spark.sql("SELECT 5L AS id, 0L AS part"), "overwrite", **options)
        self.check(lake, dataset, vectors, expected)

    @pytest.mark.parametrize(
        ("options", "expected"),
        [({}, [5]), ({"replaceWhere": "part = 0"}, [5, *(n for n in range(10, 22) if n != 15)])],
    )
    def test_so_does_sparks_own_door(
        self,
        lake: Lake,
        spark: SparkSession,
        door: Door,
        dataset: Dataset,
        vectors: dict[str, str | None],
        options: dict[str, Any],
        expected: list[int],
    ) -> None:
        door.write(spark.sql("SELECT 5L AS id, 0L AS part"), "overwrite", **options)
        self.check(lake, dataset, vectors, expected)

    def test_files_that_are_written_again_lose_their_vectors(
        self, lake: Lake, spark: SparkSession, dataset: Dataset, vectors: dict[str, str | None]
    ) -> None:
        words = spark.sql("SELECT 'words' AS id, 0L AS part")
        write_dataset(lake, NAME, words, schema_merge=True, promote_to_string=True)
        removed = catalog_rows(lake, "dl_remove_files", version=dataset.version)
        assert {row["path"]: row["deletion_vector"] for row in removed} == vectors
        assert (
            dataset.snapshot().files(columns=["deletion_vector"]).column(0).null_count
            == dataset.snapshot().files().num_rows
        )
        left = [str(n) for n in range(22) if n not in (3, 15)]
        assert sorted(row.id for row in read_dataset(lake, NAME).collect()) == sorted([*left, "words"])
