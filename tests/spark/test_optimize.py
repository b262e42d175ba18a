"""Compaction and z-order: the same rows in other files, whatever else is committed in the meantime."""

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakelog
import lakelog.spark.optimize.auto_compact
import lakelog.spark.optimize.compaction
from lakelog import ConcurrencyError, Dataset, Lake, LakelogError, ValidationError, read_dataset, write_dataset
from lakelog.actions import AddFile, RemoveFile
from lakelog.parquet.footers import WrittenFile, harvest
from lakelog.spark import LakeTable
from lakelog.spark.optimize.compaction import OptimizeResult
from tests.contract.samples import commit, paths
from tests.fixtures.vectors import delete
from tests.interop.readers import rows_by_delta_rs, rows_by_duckdb
from tests.invariants import check_invariants

SCHEMA = pa.schema([("id", pa.int64()), ("a", pa.float64()), ("b", pa.int32()), ("s", pa.string())])
DELETABLE = {"delta.enableDeletionVectors": "true"}


@pytest.fixture(autouse=True)
def _session(spark: SparkSession) -> None:
    """What is optimized without a session uses the one that there is."""


def numbers(start: int, count: int = 20) -> pa.Table:
    """Rows whose columns have nothing to do with each other."""
    ids = range(start, start + count)
    values = {
        "id": list(ids),
        "a": [None if n % 17 == 0 else n * 7919 % 1000 / 10 for n in ids],
        "b": [n * 104729 % 1000 for n in ids],
        "s": [f"{n * 15485863 % 1000:03}" for n in ids],
    }
    return pa.table(values, SCHEMA)


def append(lake: Lake, dataset: Dataset, *tables: pa.Table, folder: str = "raw") -> None:
    """A file for each table, in one commit, written without Spark."""
    metadata = dataset.snapshot().state.metadata
    written = []
    for data in tables:
        name = f"{folder}/{len(list(_folder(dataset, folder).iterdir()))}.parquet"
        place = Path(dataset.location, name)
        pq.write_table(data, place)
        written.append(WrittenFile(name, str(place), place.stat().st_size, 0, {}))
    adds = harvest(written, metadata.physical, metadata.indexed).adds.to_pylist()
    actions = [AddFile(path=each["path"], size=each["size"], modification_time=0, stats=each["stats"]) for each in adds]
    commit(lake, dataset, *actions)


def _folder(dataset: Dataset, name: str) -> Path:
    place = Path(dataset.location, name)
    place.mkdir(parents=True, exist_ok=True)
    return place


def table(lake: Lake, files: int = 4, rows: int = 20, **options: Any) -> Dataset:
    dataset = lake.create_dataset("events", SCHEMA, **options)
    append(lake, dataset, *(numbers(rows * number, rows) for number in range(files)))
    return dataset


def rows(lake: Lake, **options: Any) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in read_dataset(lake, "events", **options).collect()), key=repr)


def files(dataset: Dataset, version: int | None = None) -> Any:
    return dataset.snapshot(version).files().sort_by("path")


def data_files(dataset: Dataset) -> set[Path]:
    return set(Path(dataset.location).rglob("*.parquet"))


def test_small_files_become_one_and_rows_stay(local: Lake) -> None:
    dataset = table(local)
    before = rows(local)
    result = dataset.optimize()
    assert (result.version, result.files_removed, result.files_added) == (2, 4, 1)
    assert rows(local) == rows(local, version=1) == before
    (file,) = files(dataset).to_pylist()
    assert (file["row_count"], file["data_change"]) == (80, False)
    assert not any(dataset.changes(2).removed.column("data_change").to_pylist())
    assert dataset.snapshot().row_groups().num_rows == 1
    assert dataset.optimize() == OptimizeResult(version=None, metrics={}, files_considered=1)
    assert dataset.version == 2
    for reader in (rows_by_delta_rs, rows_by_duckdb):
        assert sorted((tuple(row.values()) for row in reader(dataset.location)), key=repr) == before
    check_invariants(local)


def test_the_history_says_it_in_deltas_words(local: Lake) -> None:
    dataset = table(local)
    sizes = files(dataset).column("size").to_pylist()
    result = dataset.optimize()
    entry = dataset.history(1)[0]
    assert entry.operation == "OPTIMIZE"
    assert entry.operation_parameters == {"predicate": "[]", "zOrderBy": "[]", "clusterBy": "[]", "auto": False}
    size = files(dataset).column("size").to_pylist()[0]
    expected = {
        "numRemovedFiles": 4,
        "numRemovedBytes": sum(sizes),
        "numAddedFiles": 1,
        "numAddedBytes": size,
        **dict.fromkeys(("minFileSize", "p25FileSize", "p50FileSize", "p75FileSize", "maxFileSize"), size),
        "numDeletionVectorsRemoved": 0,
        "numDeletionVectorRowsRemoved": 0,
        "numDeletionVectorBytesRemoved": 0,
    }
    assert result.metrics == expected
    assert entry.extra["operationMetrics"] == {name: str(value) for name, value in expected.items()}


def test_files_come_out_near_the_target(local: Lake) -> None:
    dataset = table(local, files=12, rows=4000)
    size = sum(files(dataset).column("size").to_pylist())
    target = size // 3
    dataset.optimize(target_file_size=target)
    found = files(dataset).column("size").to_pylist()
    assert len(found) in (3, 4)
    assert max(found) < 1.5 * target


def test_partitions_stay_apart_and_keep_their_values(local: Lake, spark: SparkSession) -> None:
    """Instants, null, the empty string, floats and directories' own characters, read in another zone."""
    query = """
        SELECT id, timestamp_micros(1767225600123456 + id % 2) AS at, IF(id % 3 = 0, NULL, 'a b/c=d%é') AS s,
               CAST(id % 2 AS DOUBLE) / 3 AS f, DATE'2026-01-30' AS day
        FROM range({}, {})
    """
    for first in (0, 6):
        write_dataset(local, "events", spark.sql(query.format(first, first + 6)), partition_by=["at", "s", "f", "day"])
    dataset = local.dataset("events")
    before = rows(local)
    values = set(files(dataset).column("partition_values").to_pylist())
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        result = dataset.optimize()
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    after = files(dataset)
    assert set(after.column("partition_values").to_pylist()) == values
    assert after.num_rows == len(values) == result.files_added == 4
    assert rows(local) == before
    check_invariants(local)


def test_a_condition_chooses_partitions_and_nothing_else(local: Lake, spark: SparkSession) -> None:
    for first in (0, 4, 8):
        frame = spark.sql(f"SELECT id, id % 2 AS p FROM range({first}, {first + 4})").coalesce(1)
        write_dataset(local, "events", frame, partition_by=["p"])
    dataset = local.dataset("events")
    with pytest.raises(ValidationError, match="partition columns only"):
        dataset.optimize("id > 3")
    before = rows(local)
    dataset.optimize("p = 1")
    found = [json.loads(text)["p"] for text in files(dataset).column("partition_values").to_pylist()]
    assert sorted(found) == ["0", "0", "0", "1"]
    assert dataset.history(1)[0].operation_parameters["predicate"] == '["p = 1"]'
    assert dataset.optimize("p = 7").version is None
    assert rows(local) == before


def test_deleted_rows_are_purged(local: Lake) -> None:
    dataset = table(local, files=1, properties=DELETABLE)
    delete(local, dataset, "id", set(range(5)))
    before = rows(local)
    result = dataset.optimize()
    (file,) = files(dataset).to_pylist()
    assert (file["deletion_vector"], file["row_count"]) == (None, 15)
    assert result.metrics["numDeletionVectorsRemoved"] == 1
    assert result.metrics["numDeletionVectorRowsRemoved"] == 5
    assert rows(local) == before
    delete(local, dataset, "id", set(range(20)))
    result = dataset.optimize()
    assert (result.files_added, result.files_removed, rows(local)) == (0, 1, [])
    check_invariants(local)


def test_files_of_older_schemas_are_written_under_the_newest(local: Lake) -> None:
    dataset = table(local, files=2)
    dataset.widen_column("b", pa.int64())
    dataset.rename_column("s", "text")
    dataset.drop_column("a")
    dataset.add_column("more", pa.string())
    before = rows(local)
    dataset.optimize()
    (file,) = files(dataset).to_pylist()
    assert file["schema_version"] == dataset.snapshot().state.metadata.schema_version
    assert rows(local) == before
    assert len(paths(dataset.snapshot().files("text = '000'"))) == 1
    check_invariants(local)


def test_a_compaction_that_fails_leaves_no_files(local: Lake) -> None:
    dataset = table(local)
    lost = Path(dataset.location, paths(files(dataset))[0])
    lost.rename(lost.with_suffix(".lost"))
    before = data_files(dataset)
    with pytest.raises(PySparkException):
        dataset.optimize()
    assert (data_files(dataset), dataset.version) == (before, 1)
    commit(local, dataset, RemoveFile(path=paths(files(dataset))[0]))
    assert dataset.optimize().files_removed == 3


def test_a_file_that_has_other_rows_than_the_catalog_says_stops_it(local: Lake) -> None:
    dataset = table(local, files=2)
    place = Path(dataset.location, paths(files(dataset))[0])
    commit(local, dataset, RemoveFile(path=paths(files(dataset))[0]))
    wrong = json.dumps({"numRecords": 19})
    commit(local, dataset, AddFile(path="raw/0.parquet", size=place.stat().st_size, modification_time=0, stats=wrong))
    before = data_files(dataset)
    with pytest.raises(LakelogError, match="expected 39 rows, by the catalog, and Spark read 40"):
        dataset.optimize()
    assert data_files(dataset) == before


def test_an_append_only_table_is_compacted(local: Lake) -> None:
    dataset = table(local, files=2, properties={"delta.appendOnly": "true"})
    assert dataset.optimize().files_added == 1


def test_a_table_whose_files_say_more_than_rows_is_left_alone(local: Lake) -> None:
    dataset = table(local, files=2, properties={"delta.enableRowTracking": "true"})
    with pytest.raises(ValidationError, match="rowTracking"):
        dataset.optimize()


# Races


def meanwhile(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], Any]) -> None:
    """Something that happens once, when the new files are written and not committed yet."""
    commits = lakelog.spark.optimize.compaction._commit
    pending = [happens]

    def commit_later(*arguments: Any) -> OptimizeResult:
        while pending:
            pending.pop()()
        return commits(*arguments)

    monkeypatch.setattr(lakelog.spark.optimize.compaction, "_commit", commit_later)


def test_an_append_meanwhile_is_no_conflict(local: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = table(local)
    meanwhile(monkeypatch, lambda: append(local, dataset, numbers(500)))
    result = dataset.optimize()
    assert (result.version, result.files_removed) == (3, 4)
    assert files(dataset).num_rows == 2
    assert rows(local) == sorted((tuple(row.values()) for row in _all(0, 80, 500, 520)), key=repr)
    check_invariants(local)


def _all(*limits: int) -> list[dict[str, Any]]:
    parts = [numbers(first, last - first) for first, last in zip(limits[::2], limits[1::2], strict=True)]
    return pa.concat_tables(parts).to_pylist()


@pytest.mark.parametrize("what", ["removed", "compacted", "deleted from", "schema"])
def test_a_change_of_its_inputs_stops_it_and_nothing_of_it_stays(
    local: Lake, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    dataset = table(local, properties=DELETABLE)
    changes: dict[str, Callable[[], Any]] = {
        "removed": lambda: commit(local, dataset, RemoveFile(path=paths(files(dataset))[0])),
        "compacted": dataset.optimize,
        "deleted from": lambda: delete(local, dataset, "id", {3}),
        "schema": lambda: dataset.add_column("more", pa.string()),
    }
    found: dict[str, Any] = {}

    def change() -> None:
        started = data_files(dataset)
        changes[what]()
        found.update(rows=rows(local), more=data_files(dataset) - started)

    raw = data_files(dataset)
    meanwhile(monkeypatch, change)
    with pytest.raises(ConcurrencyError):
        dataset.optimize()
    assert rows(local) == found["rows"]
    assert data_files(dataset) == raw | found["more"]
    check_invariants(local)


def test_a_compaction_that_is_not_tried_again_loses_to_an_append(local: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = table(local, files=2)
    meanwhile(monkeypatch, lambda: append(local, dataset, numbers(500)))
    with pytest.raises(lakelog.VersionConflict):
        dataset.optimize(retries=0)


KILLED = """
import os, signal, sys
import lakelog, lakelog.spark, lakelog.spark.optimize.compaction
spark = lakelog.spark.session("killed", master="local[1]", config={"spark.ui.enabled": "false"})
lake = lakelog.connect(sys.argv[1], root=sys.argv[2])
lakelog.spark.optimize.compaction._commit = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
lake.dataset("events").optimize()
"""


def test_a_process_killed_in_the_middle_leaves_the_table_as_it_was(local: Lake, tmp_path: Path) -> None:
    dataset = table(local)
    before, raw = rows(local), data_files(dataset)
    url, root = f"sqlite:///{tmp_path}/catalog.db", str(tmp_path / "lake")
    done = subprocess.run([sys.executable, "-c", KILLED, url, root], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(data_files(dataset) - raw) == 1, "it was killed when its file was written"
    assert (dataset.version, rows(local)) == (1, before)
    check_invariants(local)
    assert dataset.optimize().files_removed == 4
    assert rows(local) == before


# By a table's property


def test_a_write_that_leaves_many_small_files_compacts_them(
    local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakelog.spark.optimize.auto_compact, "_SMALL_FILES", 3)
    rows_of = [[(0, 1), (1, 1), (2, 1)], [(10, 2)]]
    for batch in rows_of:
        query = " UNION ALL ".join(f"SELECT {n} AS id, {p} AS p" for n, p in batch)
        result = write_dataset(
            local,
            "events",
            spark.sql(query),
            partition_by=["p"],
            max_records_per_file=1,
            properties={"delta.autoOptimize.autoCompact": "true"},
        )
    dataset = local.dataset("events")
    assert [entry.operation for entry in dataset.history()] == ["WRITE", "OPTIMIZE", "CREATE TABLE AS SELECT"]
    assert dataset.history()[1].operation_parameters["auto"] is True
    assert (result.version, files(dataset).num_rows) == (2, 2)
    assert rows(local) == [(0, 1), (1, 1), (10, 2), (2, 1)]
    write_dataset(
        local, "events", spark.sql("SELECT CAST(id AS INT) AS id, 2 AS p FROM range(20, 22)"), max_records_per_file=1
    )
    assert (dataset.version, files(dataset).num_rows) == (4, 2)
    check_invariants(local)


@pytest.mark.parametrize("change", ["update", "merge", "delete", "transaction"])
def test_any_change_that_leaves_many_small_files_compacts_them(
    local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    dataset = table(local, files=4)
    dataset.set_properties({"delta.autoOptimize.autoCompact": "true"})
    monkeypatch.setattr(lakelog.spark.optimize.auto_compact, "_SMALL_FILES", 3)
    before = dataset.count()
    source = spark.sql("SELECT 1L AS id, 1D AS a, 1 AS b, 'n' AS s").alias("n")
    match change:
        case "update":
            dataset.update({"s": "'new'"}, "id = 1")
        case "merge":
            named = LakeTable.forName(spark, "events", lake=local).alias("t")
            named.merge(source, "t.id = n.id").whenMatchedUpdateAll().execute()
        case "delete":
            dataset.delete("id = 1")
        case "transaction":
            with local.transaction() as tx:
                tx.update("events", {"id": "id"}, "id = 1")
    assert dataset.history(1)[0].operation == "OPTIMIZE"
    assert (files(dataset).num_rows, dataset.count()) == (1, before - (change == "delete"))
    check_invariants(local)


def test_a_compaction_that_fails_never_fails_the_write(
    local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*arguments: Any) -> None:
        raise RuntimeError("no room left")

    monkeypatch.setattr(lakelog.spark.optimize.auto_compact, "_SMALL_FILES", 1)
    monkeypatch.setattr(lakelog.spark.optimize.auto_compact, "rewritten", broken)
    on = {"delta.autoOptimize.autoCompact": "auto"}
    result = write_dataset(local, "events", spark.range(2), max_records_per_file=1, properties=on)
    assert (result.version, local.dataset("events").version) == (0, 0)
    assert "version 0 is committed, but could not be compacted: no room left" in caplog.text


def test_a_compaction_that_cannot_be_logged_never_fails_the_write(
    local: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Breaking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise OSError(f"no room for {record.getMessage()}")

    monkeypatch.setattr(lakelog.spark.optimize.auto_compact, "_SMALL_FILES", 1)
    on = {"delta.autoOptimize.autoCompact": "auto"}
    logger, handler = logging.getLogger("lakelog"), Breaking(logging.WARNING)
    logger.addHandler(handler)
    try:
        with monkeypatch.context() as patched:
            patched.setattr(lakelog.spark.optimize.auto_compact, "rewritten", None)
            result = write_dataset(local, "events", spark.range(2), max_records_per_file=1, properties=on)
    finally:
        logger.removeHandler(handler)
    assert (result.version, local.dataset("events").version) == (0, 0)


# Z-order


def test_rows_that_are_near_each_other_share_a_file(local: Lake) -> None:
    dataset = table(local, files=8, rows=500)
    before = rows(local)
    size = sum(files(dataset).column("size").to_pylist())
    condition = "a BETWEEN 20 AND 25 AND b BETWEEN 300 AND 350"
    assert dataset.snapshot().files(condition).num_rows == 8
    result = dataset.optimize(zorder_by=["a", "b"], target_file_size=size // 16)
    assert result.files_removed == 8
    assert 12 <= result.files_added <= 18
    assert dataset.snapshot().files(condition).num_rows <= 3
    for column in ("a", "b"):
        kept = dataset.snapshot().files(f"{column} < 10").num_rows
        assert kept <= result.files_added / 2, f"{kept} of {result.files_added} files by {column}"
    counts = files(dataset).column("row_count").to_pylist()
    assert max(counts) < 2 * min(counts)
    assert rows(local) == before
    assert dataset.history(1)[0].operation_parameters["zOrderBy"] == '["a", "b"]'
    for reader in (rows_by_delta_rs, rows_by_duckdb):
        assert sorted((tuple(row.values()) for row in reader(dataset.location)), key=repr) == before
    check_invariants(local)


def test_one_column_is_cut_into_ranges_whatever_its_type(local: Lake, spark: SparkSession) -> None:
    """Each partition by itself: what is a range in one of them is none in the other."""
    frame = spark.sql("""
        SELECT id % 2 AS p, concat('k', lpad((id * 7919) % 2000, 4, '0')) AS s,
               timestamp_micros((id * 104729) % 2000 + (id % 2) * 1000000000) AS at, struct(id % 100 AS x) AS st
        FROM range(0, 2000, 1, 2)
    """)
    write_dataset(local, "events", frame, partition_by=["p"], max_records_per_file=250)
    dataset = local.dataset("events")
    before = rows(local)
    size = sum(files(dataset).column("size").to_pylist())
    for column, condition in (
        ("s", "s = 'k0042'"),
        ("at", "at = TIMESTAMP'1970-01-01 00:00:00.00042Z'"),
        ("ST.x", "st.x = 7"),
    ):
        result = dataset.optimize(zorder_by=[column], target_file_size=size // 8)
        kept = dataset.scan(condition, spark=spark).files().num_rows
        assert kept <= (2 if column == "s" else 1 + (column == "ST.x")), f"{kept} of {result.files_added} by {column}"
    assert rows(local) == before
    check_invariants(local)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["nowhere"], "is not a column"),
        (["p"], "is a partition column"),
        (["late"], "has no statistics"),
        (["y"], "has no bounds"),
        (["id", "ID"], "is there twice"),
        ("id", "expected a list"),
        ([f"c{number}" for number in range(16)], "up to 15 columns"),
    ],
)
def test_columns_that_would_skip_nothing_are_refused(local: Lake, columns: Any, message: str) -> None:
    many = [(f"c{number}", pa.int32()) for number in range(16)]
    schema = pa.schema([("p", pa.int32()), ("id", pa.int64()), ("y", pa.binary()), *many, ("late", pa.int64())])
    properties = {"delta.dataSkippingNumIndexedCols": "18"}
    dataset = local.create_dataset("events", schema, partition_by=["p"], properties=properties)
    with pytest.raises(ValidationError, match=message):
        dataset.optimize(zorder_by=columns)
    assert dataset.version == 0


def test_a_compacted_version_is_restored(local: Lake) -> None:
    dataset = table(local)
    before = rows(local)
    dataset.optimize()
    dataset.add_column("more", pa.string())
    append(local, dataset, numbers(900))
    dataset.rename_column("s", "text")
    dataset.drop_column("a")
    dataset.optimize()
    dataset.restore(2)
    assert rows(local) == before
    dataset.restore(1)
    assert rows(local) == before
    assert files(dataset).num_rows == 4
    for reader in (rows_by_delta_rs, rows_by_duckdb):
        assert sorted((tuple(row.values()) for row in reader(dataset.location)), key=repr) == before
    check_invariants(local)
