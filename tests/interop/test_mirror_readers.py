"""Tables that Lakelog wrote, as Delta's readers see them: right rows at every version, or a refusal, never wrong rows.

``docs/delta.md`` has the table of features and readers that these tests show.
"""

import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import lakelog
from lakelog import Dataset, Lake, read_dataset, write_dataset
from lakelog.storage.log_store import log_store
from tests.fixtures.vectors import delete
from tests.interop.readers import READERS, Row
from tests.invariants import check_invariants

NAME = "events"
Scenario = Callable[[Lake, SparkSession], None]

ALL_KINDS = """
    SELECT id, CAST(id AS TINYINT) AS b, CAST(id AS SMALLINT) AS h, CAST(id AS INT) AS i,
           CAST(id / 3 AS FLOAT) AS f, IF(id = 2, DOUBLE('NaN'), id / 7) AS d, id % 2 = 0 AS o,
           CAST(id / 9 AS DECIMAL(38, 18)) AS n, concat('é', repeat('long ', CAST(id AS INT) * 9)) AS s,
           CAST(concat('x', id) AS BINARY) AS y, date_add(DATE'2026-01-30', CAST(id AS INT)) AS day,
           timestamp_micros(1767225600123456 + id) AS at, IF(id = 3, NULL, id) AS maybe,
           struct(id AS x, struct(concat('t', id) AS y) AS deep) AS st, array(id, NULL) AS a, map('k', id) AS m
    FROM range({first}, {last})
"""
PARTITIONED = """
    SELECT id, IF(id = 0, NULL, concat('a b/c=d%', id, 'é:{{}}')) AS s,
           date_add(DATE'2026-01-30', CAST(id AS INT)) AS day,
           timestamp_micros(1767225600123456 + id) AS at, id % 2 = 0 AS o, CAST(id AS DECIMAL(20, 5)) AS n
    FROM range({first}, {last})
"""


def kinds(lake: Lake, spark: SparkSession) -> None:
    for first, mode in ((0, "append"), (4, "append"), (8, "overwrite"), (9, "append")):
        write_dataset(lake, NAME, spark.sql(ALL_KINDS.format(first=first, last=first + 4)), mode)


def partitions(lake: Lake, spark: SparkSession) -> None:
    columns = ["s", "day", "at", "o", "n"]
    write_dataset(lake, NAME, spark.sql(PARTITIONED.format(first=0, last=4)), partition_by=columns)
    write_dataset(lake, NAME, spark.sql(PARTITIONED.format(first=2, last=5)))
    only = spark.sql(PARTITIONED.format(first=3, last=4))
    write_dataset(lake, NAME, only, "overwrite", partition_overwrite_mode="dynamic")
    write_dataset(lake, NAME, only, "overwrite", replace_where="day = DATE'2026-02-02'")


def new_columns(lake: Lake, spark: SparkSession) -> None:
    write_dataset(lake, NAME, spark.sql("SELECT 1 AS id"))
    write_dataset(lake, NAME, spark.sql("SELECT 2 AS id, 'x' AS more, struct(1 AS a) AS s"), schema_merge=True)
    write_dataset(lake, NAME, spark.sql("SELECT 3 AS id, 'y' AS more, struct(2 AS a, 3 AS b) AS s"), schema_merge=True)


def widened(lake: Lake, spark: SparkSession) -> None:
    write_dataset(lake, NAME, spark.sql("SELECT CAST(1 AS SMALLINT) AS id, CAST(0.5 AS FLOAT) AS f"))
    write_dataset(lake, NAME, spark.sql("SELECT 2147483648L AS id, 1e300D AS f"), schema_merge=True)


def to_text(lake: Lake, spark: SparkSession) -> None:
    write_dataset(lake, NAME, spark.sql("SELECT 1 AS id"))
    more = spark.sql("SELECT 'two' AS id")
    write_dataset(lake, NAME, more, schema_merge=True, promote_to_string=True)


def renamed(lake: Lake, spark: SparkSession) -> None:
    write_dataset(lake, NAME, spark.sql("SELECT 1 AS id, 'a' AS old, 5 AS gone, struct(1 AS x) AS s"))
    lake.dataset(NAME).rename_column("old", "new name")
    lake.dataset(NAME).rename_column("s.x", "y")
    lake.dataset(NAME).drop_column("gone")
    write_dataset(lake, NAME, spark.sql("SELECT 2 AS id, 'b' AS `new name`, struct(2 AS y) AS s"))


def renamed_partition(lake: Lake, spark: SparkSession) -> None:
    write_dataset(lake, NAME, spark.sql("SELECT 1 AS id, 'a' AS p"), partition_by=["p"])
    lake.dataset(NAME).rename_column("p", "q")
    write_dataset(lake, NAME, spark.sql("SELECT 2 AS id, 'b' AS q"))


def local_times(lake: Lake, spark: SparkSession) -> None:
    times = "TIMESTAMP_NTZ'2026-01-31 23:59:59.123456' AS l, TIMESTAMP_NTZ'2026-01-31 01:02:03' AS p"
    write_dataset(lake, NAME, spark.sql(f"SELECT id, {times} FROM range(3)"), partition_by=["p"])


def vectors(lake: Lake, spark: SparkSession) -> None:
    write_dataset(lake, NAME, spark.range(0, 100, 1, 2), properties={"delta.enableDeletionVectors": "true"})
    delete(lake, lake.dataset(NAME), "id", {3, 50, 99})
    delete(lake, lake.dataset(NAME), "id", {4}, in_log=True)


def in_commit_times(lake: Lake, spark: SparkSession) -> None:
    for _ in range(3):
        write_dataset(lake, NAME, spark.range(3), properties={"delta.enableInCommitTimestamps": "true"})


def fenced(lake: Lake, spark: SparkSession) -> None:
    for _ in range(2):
        write_dataset(lake, NAME, spark.range(3), mirror="fenced")


def constrained(lake: Lake, spark: SparkSession) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    lake.create_dataset(NAME, schema, properties={"delta.appendOnly": "true"})
    write_dataset(lake, NAME, spark.sql("SELECT 1L AS id, 'a' AS name"))


def ruled(lake: Lake, spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int64()), ("twice", pa.int64()), ("kind", pa.string())])
    dataset = lake.create_dataset(NAME, schema, generated={"twice": "id * 2"}, defaults={"kind": "'new'"}, spark=spark)
    write_dataset(lake, NAME, spark.sql("SELECT 1L AS id"))
    dataset.add_constraint("positive", "id > 0", spark=spark)
    write_dataset(lake, NAME, spark.sql("SELECT 2L AS id, 4L AS twice, NULL AS kind"))


SCENARIOS: dict[str, Scenario] = {
    "every type": kinds,
    "partitions": partitions,
    "new columns": new_columns,
    "type widening": widened,
    "a column that became text": to_text,
    "column mapping": renamed,
    "column mapping of a partition column": renamed_partition,
    "timestampNtz": local_times,
    "deletion vectors": vectors,
    "in-commit timestamps": in_commit_times,
    "fenced": fenced,
    "append-only and NOT NULL": constrained,
    "constraints, generated columns and defaults": ruled,
}

REFUSES: dict[tuple[str, str], str] = {
    ("type widening", "delta-rs"): "TypeWidening",
    ("type widening", "polars"): "typeWidening",
    ("column mapping", "polars"): "column mapping",
    ("column mapping of a partition column", "polars"): "column mapping",
}
"""What a reader does not read, and the word by which it says so."""

WRONG = {("column mapping of a partition column", "duckdb")}
"""A bug of the reader's: the column is null there. It is the same with a table that delta-spark wrote."""


@dataclass(frozen=True)
class Built:
    """A scenario's table, which nobody changes, and the rows of each of its versions."""

    lake: Lake
    rows: list[list[Any]]

    @property
    def dataset(self) -> Dataset:
        return self.lake.dataset(NAME)


@pytest.fixture(scope="module")
def built(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Built]]:
    """The table of a scenario, made once for all readers."""
    made: dict[str, Built] = {}

    def build(scenario: str) -> Built:
        if scenario not in made:
            place = tmp_path_factory.mktemp("scenario")
            lake = lakelog.connect(f"sqlite:///{place}/catalog.db", root=place / "lake")
            SCENARIOS[scenario](lake, spark)
            rows = [ours(lake, spark, version) for version in range(lake.dataset(NAME).version + 1)]
            made[scenario] = Built(lake, rows)
        return made[scenario]

    yield build
    for each in made.values():
        each.lake.close()


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with lakelog.connect(f"sqlite:///{tmp_path}/catalog.db", root=tmp_path / "lake") as lake:
        yield lake


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_readers_see_every_version_as_we_do(built: Callable[[str], Built], scenario: str, reader: str) -> None:
    table = built(scenario)
    assert table.dataset.mirror_status().pending == 0
    refusals = []
    for version, expected in enumerate(table.rows):
        try:
            found = READERS[reader](table.dataset.location, version)
        except Exception as refusal:
            refusals.append(str(refusal))
            continue
        if (scenario, reader) in WRONG and normal(found) != expected:
            pytest.xfail(f"{reader} does not read {scenario}")
        assert normal(found) == expected, f"version {version}"
    word = REFUSES.get((scenario, reader))
    assert [text for text in refusals if word is None or word not in text] == []
    assert bool(refusals) == (word is not None)


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("scenario", ["every type", "partitions", "new columns", "deletion vectors", "timestampNtz"])
def test_readers_see_the_last_version_by_its_checkpoint(
    built: Callable[[str], Built], tmp_path: Path, scenario: str, reader: str
) -> None:
    table = built(scenario)
    copied = tmp_path / "copied"
    shutil.copytree(table.dataset.location, copied)
    with_checkpoint(table.dataset, copied)
    assert normal(READERS[reader](copied)) == table.rows[-1]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_what_goes_out_by_the_mirror_comes_in_by_an_import(
    built: Callable[[str], Built], spark: SparkSession, tmp_path: Path, scenario: str
) -> None:
    table = built(scenario)
    copied = tmp_path / "copied"
    shutil.copytree(table.dataset.location, copied)
    with lakelog.connect(f"sqlite:///{tmp_path}/other.db", root=tmp_path / "other") as other:
        other.import_delta(copied, NAME)
        assert [ours(other, spark, version) for version in range(len(table.rows))] == table.rows
        assert [each.commit_id for each in other.dataset(NAME).history()] == [
            each.commit_id for each in table.dataset.history()
        ]
        check_invariants(other)


@pytest.mark.parametrize("reader", READERS)
def test_conditions_prune_by_our_statistics_and_lose_nothing(lake: Lake, spark: SparkSession, reader: str) -> None:
    for first in (0, 4, 8):
        write_dataset(lake, NAME, spark.sql(ALL_KINDS.format(first=first, last=first + 4)))
    conditions = [
        "id >= 8",
        "i = 5",
        "d > 0.9",
        "s > 'é'",
        "day = DATE '2026-02-02'",
        "\"at\" >= TIMESTAMPTZ '2026-01-01 00:00:00.123463+00:00'" if reader == "duckdb" else "id = 7",
        "maybe IS NULL",
    ]
    dataset = lake.dataset(NAME)
    for checkpointed in (False, True):
        if checkpointed:
            with_checkpoint(dataset, Path(dataset.location))
        for condition in conditions:
            found = READERS[reader](dataset.location, None, condition)
            expected = [row["id"] for row in everything(lake, spark) if holds(row, condition)]
            assert sorted(row["id"] for row in found) == sorted(expected), condition


def holds(row: Row, condition: str) -> bool:
    day, moment = datetime(2026, 2, 2, tzinfo=UTC).date(), datetime(2026, 1, 1, 0, 0, 0, 123463, UTC)
    return bool(
        {
            "id >= 8": row["id"] >= 8,
            "i = 5": row["i"] == 5,
            # NaN is above all numbers, for every reader.
            "d > 0.9": math.isnan(row["d"]) or row["d"] > 0.9,
            "s > 'é'": row["s"] > "é",
            "day = DATE '2026-02-02'": row["day"] == day,
            "\"at\" >= TIMESTAMPTZ '2026-01-01 00:00:00.123463+00:00'": row["at"] >= moment,
            "id = 7": row["id"] == 7,
            "maybe IS NULL": row["maybe"] is None,
        }[condition]
    )


def test_a_fenced_table_is_not_written_by_others(built: Callable[[str], Built]) -> None:
    from deltalake import write_deltalake

    location = built("fenced").dataset.location
    before = sorted(Path(location).rglob("*.json"))
    with pytest.raises(Exception, match=r"(?i)unsupported|lakelog"):
        write_deltalake(location, pa.table({"id": [1]}), mode="append")
    assert sorted(Path(location).rglob("*.json")) == before


def test_times_mean_the_same_to_delta_readers(lake: Lake, spark: SparkSession) -> None:
    from deltalake import DeltaTable

    for _ in range(4):
        write_dataset(lake, NAME, spark.range(2))
    dataset = lake.dataset(NAME)
    table = DeltaTable(dataset.location)
    for commit in dataset.history():
        table.load_as_version(commit.timestamp)
        assert table.version() == commit.version == dataset.snapshot(timestamp=commit.timestamp).version


def with_checkpoint(dataset: Dataset, place: Path) -> None:
    """Leaves nothing of a log but a checkpoint, and the last commit, which some readers ask for."""
    from lakelog.mirror.checkpoint import write_checkpoint

    content = dataset._lake.mirror.checkpoints.content(dataset.id, dataset.version)
    write_checkpoint(log_store(str(place)), content)
    for version in range(dataset.version):
        (place / "_delta_log" / f"{version:020}.json").unlink()


def everything(lake: Lake, spark: SparkSession, version: int | None = None) -> list[Row]:
    return read_dataset(lake, NAME, version, spark=spark).toArrow().to_pylist()  # type: ignore[no-any-return]


def ours(lake: Lake, spark: SparkSession, version: int) -> list[Any]:
    return normal(everything(lake, spark, version))


def normal(rows: list[Row]) -> list[Any]:
    """Rows in an order and in words that do not depend on the reader."""
    return sorted((sorted((name, _normal(value)) for name, value in row.items()) for row in rows), key=repr)


def _normal(value: Any) -> Any:
    match value:
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC).isoformat()
        case float() if math.isnan(value):
            return "NaN"
        case dict():
            return sorted((name, _normal(inner)) for name, inner in value.items())
        case list() | tuple():
            return [_normal(inner) for inner in value]
        case bytearray() | memoryview():
            return bytes(value)
    return value
