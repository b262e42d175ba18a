"""A DataFrame of exactly one version's rows, with the catalog's partition values, under the snapshot's schema."""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakelog import Dataset, Lake, ValidationError, VersionNotFoundError, write_dataset
from lakelog.actions import AddFile, RemoveFile
from lakelog.spark.read import read
from lakelog.spark.read.read import read_dataset, version_of
from tests import parquet
from tests.contract import predicates
from tests.contract.predicates import File
from tests.contract.samples import commit, stats, table

ZONE = "spark.sql.session.timeZone"
NEW_YORK = "America/New_York"
on_sqlite = pytest.mark.parametrize("backend", ["sqlite"])


@pytest.fixture
def zone(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Sets the session's zone until the test ends."""
    before = spark.conf.get(ZONE)
    yield lambda name: spark.conf.set(ZONE, name)
    spark.conf.set(ZONE, before)


def escaped(text: str | None) -> str:
    """A partition value in a directory's name, as Spark writes it."""
    if text is None:
        return "__HIVE_DEFAULT_PARTITION__"
    special = "\"#%'*/:=?\\\x7f{[]^" + "".join(map(chr, range(1, 32)))
    return "".join(f"%{ord(each):02X}" if each in special else each for each in text)


def add(
    dataset: Dataset,
    rows: pa.Table,
    values: dict[str, str | None] | None = None,
    directory: str | None = None,
    statistics: str | None = None,
) -> AddFile:
    """A file where the writer puts it, or in a directory of its own."""
    values = values or {}
    if directory is None:
        parts = [f"{escaped(name)}={escaped(value or None)}" for name, value in values.items()]
        directory = "/".join(["__w=1", *parts])
    path = f"{directory}/{uuid.uuid4()}.parquet"
    file = Path(dataset.location) / path
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    size = file.stat().st_size
    return AddFile(
        path=quote(path, safe="/=:@!$&'()*+,;~-._"),
        size=size,
        partition_values=values,
        stats=statistics,
        modification_time=0,
    )


def numbered(*numbers: int) -> pa.Table:
    return pa.table({"n": pa.array(numbers, pa.int64())})


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def plan(frame: DataFrame) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.fixture
def numbers(lake: Lake) -> Dataset:
    """Version 0 is empty, each later one adds a file with its number, and 4 takes the first away."""
    dataset = table(lake, "numbers", schema=pa.schema([("n", pa.int64())]))
    files = [add(dataset, numbered(n), statistics=stats(1, n=(n, n))) for n in range(1, 4)]
    for file in files:
        commit(lake, dataset, file)
    commit(lake, dataset, RemoveFile(path=files[0].path))
    return dataset


def test_each_version_gives_its_rows(spark: SparkSession, lake: Lake, numbers: Dataset) -> None:
    expected = [[], [1], [1, 2], [1, 2, 3], [2, 3]]
    for version, found in enumerate(expected):
        frame = read_dataset(lake, "numbers", version=version, spark=spark)
        assert rows(frame) == [(n,) for n in found]
        assert frame.schema.simpleString() == "struct<n:bigint>"
        assert version_of(frame) == version
    assert rows(read_dataset(lake, "numbers")) == [(2,), (3,)]
    second = next(commit.timestamp for commit in numbers.history() if commit.version == 2)
    assert rows(read_dataset(lake, "numbers", timestamp=second)) == [(1,), (2,)]
    with pytest.raises(VersionNotFoundError):
        read_dataset(lake, "numbers", version=9)


def test_a_condition_and_columns_are_applied(spark: SparkSession, lake: Lake, numbers: Dataset) -> None:
    frame = read_dataset(lake, "numbers", version=3, where="n >= 2", columns=["N"])
    assert rows(frame) == [(2,), (3,)]
    assert len(frame.inputFiles()) == 2
    assert rows(read_dataset(lake, "numbers", where=F.col("n") % 2 == 0)) == [(2,)]
    assert rows(read_dataset(lake, "numbers", where="n > 100")) == []
    assert version_of(read_dataset(lake, "numbers", where="n > 100")) == 4
    for bad in ("nothing = 1", "n >"):
        with pytest.raises(ValidationError, match="SQLSTATE"):
            read_dataset(lake, "numbers", where=bad)
    for names in (["m"], "n", [1]):
        with pytest.raises(ValidationError):
            read_dataset(lake, "numbers", columns=names)  # type: ignore[arg-type]


@pytest.mark.parametrize("day", ["'today'", "'now'", "'epoch'", "'yesterday'"])
def test_a_text_that_spark_takes_for_a_day_is_one(spark: SparkSession, local: Lake, day: str) -> None:
    write_dataset(local, "days", spark.sql("SELECT DATE'1970-01-01' AS d UNION ALL SELECT current_date() - 1"))
    for condition in (f"d <= try_cast({day} AS DATE)", f"d IN (try_cast({day} AS DATE), DATE'1970-01-01')"):
        expected = read_dataset(local, "days").where(condition).count()
        assert expected
        assert read_dataset(local, "days", where=condition).count() == expected
        assert local.dataset("days").count(condition) == expected


@pytest.mark.parametrize(
    "value", ["DATE'1582-10-05'", "DATE'1582-10-14'", "TIMESTAMP'1582-10-10 12:00:00'", "X'00ff'", "X''"]
)
def test_values_that_filters_of_parquet_take_for_others_are_found(spark: SparkSession, local: Lake, value: str) -> None:
    """Days that the calendar before 1582 lacks, and bytes, of which the catalog keeps no bounds."""
    write_dataset(local, "odd", spark.sql(f"SELECT {value} AS v"))
    assert read_dataset(local, "odd", where=f"v = {value}").count() == 1
    assert local.dataset("odd").count(f"v = {value}") == 1
    assert local.dataset("odd").count(f"v <> {value}") == 0


@on_sqlite
def test_the_version_is_found_through_whatever_was_done(spark: SparkSession, lake: Lake, numbers: Dataset) -> None:
    other = table(lake, "other", schema=pa.schema([("n", pa.int64())]))
    commit(lake, other, add(other, numbered(1)))
    one, two = read_dataset(lake, "numbers", version=2), read_dataset(lake, "numbers", version=3)
    foreign = read_dataset(lake, "other")
    one.createOrReplaceTempView("one")
    for frame in (
        one.where("n > 0").select((F.col("n") + 1).alias("m")),
        one.groupBy("n").count(),
        one.alias("x").join(spark.range(3).alias("y"), F.col("x.n") == F.col("y.id")),
        spark.sql("WITH c AS (SELECT * FROM one) SELECT count(*) FROM c"),
        spark.sql("SELECT * FROM range(3) WHERE id IN (SELECT n FROM one)"),
    ):
        assert version_of(frame) == 2
    cached = one.cache()
    assert version_of(cached.where("n = 1")) == 2
    cached.unpersist()
    assert version_of(one.union(two)) == 2
    assert version_of(two.join(foreign, "n"), numbers) == 3
    assert version_of(two.join(foreign, "n"), other) == 1
    assert version_of(spark.range(3)) is None
    assert version_of(foreign, numbers) is None


@on_sqlite
def test_two_reads_of_a_version_can_be_joined(spark: SparkSession, lake: Lake) -> None:
    dataset = table(lake, schema=pa.schema([("n", pa.int64())]))
    commit(lake, dataset, *[add(dataset, numbered(n)) for n in range(40)])
    one, other = read_dataset(lake, "events"), read_dataset(lake, "events")
    assert one.join(other, one.n == other.n).count() == 40
    assert one.join(other, one.n == other.n + 1).count() == 39


@on_sqlite
def test_many_files_are_read_through_the_manifest(spark: SparkSession, lake: Lake) -> None:
    dataset = table(lake, schema=pa.schema([("n", pa.int64())]))
    commit(lake, dataset, *[add(dataset, numbered(n), statistics=stats(1, n=(n, n))) for n in range(60)])
    frame = read_dataset(lake, "events")
    assert "MetadataLogFileIndex" in plan(frame)
    assert rows(frame) == rows(spark.read.parquet(*[file.removeprefix("file://") for file in frame.inputFiles()]))
    assert len(frame.inputFiles()) == 60
    few = read_dataset(lake, "events", where="n < 40 AND n % 2 = 0")
    assert rows(few) == [(n,) for n in sorted(range(0, 40, 2), key=lambda n: repr((n,)))]
    assert len(few.inputFiles()) == 40
    assert "Batched: true" in few._jdf.queryExecution().explainString(_formatted(spark))
    assert "LessThan(n,40)" in plan(few)


def _formatted(spark: SparkSession) -> Any:
    mode: Any = spark._jvm
    return mode.org.apache.spark.sql.execution.ExplainMode.fromString("extended")


VALUES: dict[str, tuple[pa.DataType, list[tuple[str | None, Any]]]] = {
    "int": (pa.int32(), [("1", 1), ("-5", -5), (None, None)]),
    "long": (pa.int64(), [(str(2**62), 2**62)]),
    "double": (pa.float64(), [("1.5", 1.5), ("-Infinity", float("-inf")), ("1.0E10", 1e10)]),
    "string": (
        pa.string(),
        [
            *[(text, text) for text in ("a", "a b", "ä 日本", "a=b", "a/b", "100%", "%2F", "q'\"?*#", "{x}[y]^", "\\")],
            ("__w=2", "__w=2"),
            (" ", " "),
            ("1.0", "1.0"),
            ("tab\there", "tab\there"),
            ("", None),
            (None, None),
        ],
    ),
    "odd integer": (pa.int32(), [("007", 7), ("7", 7), ("-0", 0), (None, None)]),
    "hive null": (pa.string(), [("__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__"), (None, None)]),
    "date": (pa.date32(), [("2024-02-29", date(2024, 2, 29)), ("0001-01-01", date(1, 1, 1)), (None, None)]),
    "timestamp": (
        pa.timestamp("us", "UTC"),
        [
            ("2024-03-10 02:30:00.123456", datetime(2024, 3, 10, 2, 30, 0, 123_456, tzinfo=UTC)),
            ("2024-11-03 05:30:00", datetime(2024, 11, 3, 5, 30, tzinfo=UTC)),
            ("1969-12-31 23:59:59.9", datetime(1969, 12, 31, 23, 59, 59, 900_000, tzinfo=UTC)),
            (None, None),
        ],
    ),
    "iso timestamp": (
        pa.timestamp("us", "UTC"),
        [
            ("2024-03-10T02:30:00.123456Z", datetime(2024, 3, 10, 2, 30, 0, 123_456, tzinfo=UTC)),
            ("2024-03-10 02:30:00.5", datetime(2024, 3, 10, 2, 30, 0, 500_000, tzinfo=UTC)),
            ("2024-03-10T02:30:00+02:00", datetime(2024, 3, 10, 0, 30, tzinfo=UTC)),
            ("2024-03-10", datetime(2024, 3, 10, tzinfo=UTC)),
        ],
    ),
    "local timestamp": (
        pa.timestamp("us"),
        [("2024-03-10 02:30:00.5", datetime.fromisoformat("2024-03-10T02:30:00.5"))],
    ),
    "decimal": (pa.decimal128(10, 2), [("1.50", Decimal("1.50")), ("-0.01", Decimal("-0.01")), (None, None)]),
    "boolean": (pa.bool_(), [("true", True), ("false", False), (None, None)]),
}


LAYOUTS = {
    kind: ("writer", "many files", "imported", "imported, joined", "mixed")
    if kind in ("string", "odd integer", "timestamp")
    else ("writer", "imported")
    for kind in VALUES
}
"""Whether directories tell a value differs by its kind; how many files there are, and how others are read, does not."""


@on_sqlite
@pytest.mark.parametrize(("kind", "layout"), [(kind, each) for kind, layouts in LAYOUTS.items() for each in layouts])
def test_partition_values_are_the_catalogs(
    spark: SparkSession,
    lake: Lake,
    zone: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    layout: str,
) -> None:
    """Whether or not directories tell them, and whatever the session's zone is."""
    arrow_type, values = VALUES[kind]
    dataset = table(lake, schema=pa.schema([("p", arrow_type), ("n", pa.int64())]), partition_by=["p"])
    if layout == "imported, joined":
        monkeypatch.setattr(read, "_FEW_TUPLES", 0)
    adds, expected = [], []
    for n in range(40 if layout == "many files" else len(values)):
        text, value = values[n % len(values)]
        imported = layout.startswith("imported") or (layout == "mixed" and n % 2 == 0)
        adds.append(add(dataset, numbered(n), {"p": text}, directory="p=wrong/x y é" if imported else None))
        expected.append((value, n))
    commit(lake, dataset, *adds)
    zone(NEW_YORK)
    frame = read_dataset(lake, "events")
    assert frame.columns == ["p", "n"]
    found = frame.toArrow().to_pylist()
    assert sorted((row["n"], row["p"]) for row in found) == sorted((n, value) for value, n in expected)
    if layout in ("writer", "many files") and kind not in ("hive null", "iso timestamp"):
        assert "Union" not in plan(frame)
        assert "BroadcastHashJoin" not in plan(frame)
    if layout == "imported, joined":
        assert "BroadcastHashJoin" in plan(frame)
    for value, n in expected[:2]:
        # Python's own dates and times go through the zone of the machine.
        literal = F.lit(str(value) if isinstance(value, date) else value).cast(frame.schema["p"].dataType)
        condition = F.col("p").isNull() if value is None else F.col("p") == literal
        matching = sorted(number for other, number in expected if other == value)
        assert n in matching
        selected = read_dataset(lake, "events", where=condition)
        assert sorted(row.n for row in selected.collect()) == matching


@on_sqlite
def test_partition_filters_prune_in_spark_as_well(spark: SparkSession, lake: Lake) -> None:
    dataset = table(lake, schema=pa.schema([("n", pa.int64()), ("day", pa.date32())]), partition_by=["day"])
    days = [str(date(2024, 1, 1) + timedelta(days=n % 10)) for n in range(40)]
    commit(lake, dataset, *[add(dataset, numbered(n), {"day": day}) for n, day in enumerate(days)])
    frame = read_dataset(lake, "events").where("day = '2024-01-03' AND n > 5")
    assert "Batched: true" in plan(frame)
    assert "PartitionFilters: [isnotnull(day" in plan(frame)
    assert "GreaterThan(n,5)" in plan(frame)
    assert [row.n for row in frame.orderBy("n").collect()] == [12, 22, 32]
    assert len(read_dataset(lake, "events", where="day = '2024-01-03'").inputFiles()) == 4


@on_sqlite
@pytest.mark.parametrize("count", [4, 40])
def test_several_partition_columns_and_a_renamed_one(spark: SparkSession, lake: Lake, count: int) -> None:
    schema = pa.schema([("a", pa.string()), ("n", pa.int64()), ("b c.d`", pa.int32())])
    dataset = table(lake, schema=schema, partition_by=["b c.d`", "a"], properties={"delta.columnMapping.mode": "name"})
    first, *_ = dataset.snapshot().state.metadata.partition_columns
    dataset.rename_column("a", "x.`y` z")
    physical = dataset.snapshot().state.metadata
    assert physical.partition_columns[0] == first
    names = dict(zip(dataset.schema().names, physical.physical.names, strict=True))
    files = []
    for n in range(count):
        data = numbered(n).rename_columns([names["n"]])
        files.append(add(dataset, data, {names["b c.d`"]: str(n % 3), names["x.`y` z"]: f"é{n % 2}"}))
    commit(lake, dataset, *files)
    frame = read_dataset(lake, "events", columns=["x.`y` z", "n", "b c.d`"])
    assert frame.columns == ["x.`y` z", "n", "b c.d`"]
    assert rows(frame) == sorted([(f"é{n % 2}", n, n % 3) for n in range(count)], key=repr)
    where = "`b c.d``` = 1 AND `x.``y`` z` = 'é1'"
    assert [row.n for row in read_dataset(lake, "events", where=where).orderBy("n").collect()] == [
        n for n in range(count) if n % 3 == 1 and n % 2 == 1
    ]


def evolved(lake: Lake) -> Dataset:
    """Files of many schemas: columns added, widened, renamed, dropped, added again, and turned into text."""
    schema = pa.schema(
        [
            ("id", pa.int32()),
            ("gone", pa.string()),
            ("text", pa.int32()),
            ("place", pa.struct([("x", pa.int32()), ("y", pa.float32())])),
            ("when", pa.date32()),
        ]
    )
    dataset = table(lake, schema=schema, mirror=False)

    def write(**columns: Any) -> None:
        data = pa.table(columns)
        parquet.write(lake, dataset, data, schema_merge=True, promote_to_string=True)

    place = pa.array([{"x": 1, "y": 0.5}, None], schema.field("place").type)
    days = pa.array([date(2024, 1, 1), None], pa.date32())
    write(
        id=pa.array([1, 2], pa.int32()), gone=["a", "b"], text=pa.array([7, None], pa.int32()), place=place, when=days
    )
    write(id=pa.array([3, 2**40]), added=[0.5, None])
    wide = pa.array(
        [{"x": 2**40, "y": 1.5, "z": "new"}], pa.struct([("x", pa.int64()), ("y", pa.float64()), ("z", pa.string())])
    )
    write(id=pa.array([4]), place=wide, when=pa.array([datetime.fromisoformat("2024-01-01T12:00")], pa.timestamp("us")))
    write(id=pa.array([5]), text=["words"])
    dataset.rename_column("id", "key")
    dataset.rename_column("place.x", "east")
    dataset.drop_column("gone")
    write(key=pa.array([6]), text=["more"])
    dataset.add_column("gone", pa.int64(), comment="another one")
    write(key=pa.array([7]), gone=pa.array([77]))
    return dataset


@on_sqlite
def test_all_schema_versions_read_together(spark: SparkSession, lake: Lake) -> None:
    dataset = evolved(lake)
    for version in range(1, dataset.version + 1):
        snapshot = dataset.snapshot(version)
        expected = parquet.read(snapshot, dataset.location)
        frame = read_dataset(lake, "events", version=version)
        assert frame.columns == snapshot.schema.names
        found = frame.toArrow().to_pylist()
        assert sorted(found, key=repr) == sorted(expected.to_pylist(), key=repr), version
    assert frame.schema["gone"].metadata == {"comment": "another one"}
    assert "Batched: true" in plan(frame)


@on_sqlite
def test_a_condition_prunes_files_of_older_schemas(spark: SparkSession, lake: Lake) -> None:
    evolved(lake)
    for condition in ("key > 3", "text = '7'", "text IS NULL", "place.east = 1", "place.z = 'new'", "gone = 77"):
        everything = read_dataset(lake, "events").where(condition)
        assert sorted(map(str, rows(read_dataset(lake, "events", where=condition)))) == sorted(
            map(str, rows(everything))
        )


@on_sqlite
@pytest.mark.parametrize("count", [2, 40])
def test_a_lost_file_is_an_error_that_names_it(spark: SparkSession, lake: Lake, count: int) -> None:
    dataset = table(lake, schema=pa.schema([("n", pa.int64())]))
    files = [add(dataset, numbered(n)) for n in range(count)]
    commit(lake, dataset, *files)
    (Path(dataset.location) / files[1].path).unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises(Exception, match=Path(files[1].path).name):
            read_dataset(lake, "events").collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


@given(
    files=predicates.files(),
    conditions=st.lists(predicates.conditions(), min_size=2, max_size=2),
    name=st.sampled_from(["UTC", NEW_YORK]),
)
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@on_sqlite
def test_a_pruned_read_gives_what_an_unpruned_one_does(
    spark: SparkSession,
    lake: Lake,
    zone: Callable[[str], None],
    name: str,
    files: list[File],
    conditions: Sequence[str],
) -> None:
    zone(name)
    dataset = table(lake, f"t{uuid.uuid4().hex}", schema=predicates.SCHEMA, partition_by=list(predicates.PARTITIONS))
    adds = []
    for file in files:
        data = {
            column: pa.array([row[column] for group in file.groups for row in group], each.type)
            for column, each in predicates.COLUMNS.items()
        }
        adds.append(add(dataset, pa.table(data), file.partition_values, statistics=file.stats))
    commit(lake, dataset, *adds)
    everything = read_dataset(lake, dataset.name)
    for condition in conditions:
        pruned = read_dataset(lake, dataset.name, where=condition)
        # NaN is not equal to itself, but looks like itself.
        assert repr(rows(pruned)) == repr(rows(everything.where(condition))), condition
    written = sum(len(group) for file in files for group in file.groups)
    assert everything.count() == written
    values = {json.dumps(file.partition_values) for file in files}
    assert everything.select(*predicates.PARTITIONS).distinct().count() <= len(values)
