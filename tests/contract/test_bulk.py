"""Thousands of files: Arrow in, the same rows and the same rules as one by one."""

import json
import math
import time
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakelog.catalog.postgres.transaction
import lakelog.catalog.postgres.values
import lakelog.catalog.sqlite.catalog
import lakelog.log.commit.committer
import lakelog.log.pruning.bulk_bounds
from lakelog import AddFiles, Dataset, Lake, RemoveFiles, RowGroup, SqlTxnLogWriter, TransactionManager, ValidationError
from lakelog.actions import AddFile, RemoveFile, Txn
from tests.contract import statistics
from tests.contract.samples import OTHER_VECTOR, VECTOR, add, arrow, commit, paths, stats, table
from tests.fixtures.lakes import rows
from tests.invariants import check_invariants

Row = dict[str, Any]

PARTS = ("dl_add_files", "row_groups", "partitions", "column_stats")

# What a CSV, an array literal and a shell could stumble over.
AWKWARD = ['"', "'", ",", ";", "\\", "\\N", "\\.", "{}", "NULL", "", " ", "\t", "\n", "\r\n", "ä☃🦆", "%s $1 :x"]


def group_table(groups: list[RowGroup]) -> pa.Table:
    names = ("path", "row_group", "row_count", "byte_size", "stats")
    return pa.table({name: [getattr(group, name) for group in groups] for name in names})


def written(lake: Lake, dataset: Dataset, version: int) -> dict[str, list[Row]]:
    """The rows of one commit, without what tells the table."""
    key = {"table_id": dataset.id, "version": version}
    return {
        name: [{column: value for column, value in row.items() if column not in key} for row in rows(lake, name, **key)]
        for name in PARTS
    }


@pytest.fixture
def twins(lake: Lake) -> tuple[Dataset, Dataset]:
    """Two tables that get the same files, one by one and in bulk."""
    one, other = (
        table(lake, name, schema=statistics.SCHEMA, partition_by=statistics.PARTITIONS) for name in ("few", "many")
    )
    return one, other


def test_bounds_at_both_ends_of_the_doubles_are_as_wide_as_can_be(lake: Lake, twins: tuple[Dataset, Dataset]) -> None:
    few, many = twins
    partitions = dict.fromkeys(statistics.PARTITIONS)
    ends = add("a.parquet", stats=stats(2, d=(-1.7976931348623157e308, 1.7976931348623157e308)))
    ends = replace(ends, partition_values=partitions)
    commit(lake, few, ends, version=1)
    commit(lake, many, arrow([ends]), version=1)
    assert written(lake, many, 1) == written(lake, few, 1)


@given(files=statistics.files())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_files_in_bulk_become_the_same_rows_as_one_by_one(
    lake: Lake, twins: tuple[Dataset, Dataset], files: tuple[list[AddFile], list[RowGroup]]
) -> None:
    few, many = twins
    version = few.version + 1
    adds = [replace(each, path=f"{version}-{each.path}") for each in files[0]]
    groups = [replace(each, path=f"{version}-{each.path}") for each in files[1]]
    commit(lake, few, *adds, version=version, row_groups=groups)
    commit(lake, many, arrow(adds), version=version, row_groups=group_table(groups) if groups else ())

    one_by_one, in_bulk = written(lake, few, version), written(lake, many, version)
    narrow, wide = (by_column(each.pop("column_stats"), len(adds)) for each in (one_by_one, in_bulk))
    assert in_bulk == one_by_one
    for key, bounds in narrow.items():
        assert wide[key] == bounds or covers(wide[key], bounds, is_text=key[1] in statistics.TEXTS), key


EVERYTHING = {"span": math.inf, "min_num": -math.inf, "min_text": "", "max_num": math.inf, "max_text": None}


def by_column(bounds: list[Row], files: int) -> dict[tuple[int, str], Row]:
    """The bounds of each file's columns. A file without statistics has none, which is to say any."""
    found = {(row["ordinal"], row["column_name"]): row for row in bounds}
    return {
        (ordinal, column): found.get((ordinal, column), {**EVERYTHING, "null_count": None})
        for ordinal in range(files)
        for column in (*statistics.PARTITIONS, *statistics.BOUNDS)
    }


def covers(wide: Row, narrow: Row, *, is_text: bool) -> bool:
    """Whether no search that finds the narrow bounds could miss the wide ones."""
    if wide["null_count"] not in (None, narrow["null_count"]):
        return False
    if wide["span"] == -1:
        return bool(narrow["span"] == -1)
    if is_text:
        unlimited = wide["max_text"] is None
        reaches = unlimited or (narrow["max_text"] is not None and wide["max_text"] >= narrow["max_text"])
        return reaches and bool(wide["min_text"] <= narrow["min_text"])
    return bool(wide["min_num"] <= narrow["min_num"] and wide["max_num"] >= narrow["max_num"])


def many_files(count: int) -> tuple[list[AddFile], list[RowGroup]]:
    """Files of the schema of ``samples`` with awkward texts, each with two row groups."""
    adds = [
        add(
            f"day=2026-01-{n % 28 + 1:02}/{n:05}.parquet",
            size=n,
            partition_values={"day": f"2026-01-{n % 28 + 1:02}"},
            stats=stats(10, id=(n, n + 5), name=(f"a{n}", f"b{n}")),
            tags={"awkward": AWKWARD[n % len(AWKWARD)]},
            extra={AWKWARD[n % len(AWKWARD)] + "x": n},
        )
        for n in range(count)
    ]
    groups = [
        RowGroup(path=each.path, row_group=number, row_count=5, byte_size=50, stats=stats(5, id=(number, number)))
        for each in adds
        for number in range(2)
    ]
    return adds, groups


def expected_rows(adds: list[AddFile]) -> list[Row]:
    return [
        {
            "ordinal": ordinal,
            "path": each.path,
            "size": each.size,
            "partition_values": json.dumps(each.partition_values, separators=(",", ":")),
            "stats": each.stats,
            "row_count": 10,
            "modification_time": each.modification_time,
            "data_change": True,
            "tags": json.dumps(each.tags, separators=(",", ":"), ensure_ascii=False),
            "deletion_vector": None,
            "base_row_id": None,
            "default_row_commit_version": None,
            "schema_version": 0,
            "extra": json.dumps(each.extra, separators=(",", ":"), ensure_ascii=False),
            "removed_version": None,
        }
        for ordinal, each in enumerate(adds)
    ]


@pytest.mark.parametrize("count", [200, 201, 999, 1000, 1001])
def test_every_row_arrives_on_both_sides_of_each_threshold(lake: Lake, count: int) -> None:
    """From 201 files on Arrow takes over, and from 1,000 rows on PostgreSQL loads by COPY."""
    dataset = table(lake, partition_by=["day"])
    adds, groups = many_files(count)
    commit(lake, dataset, *adds, row_groups=groups)
    found = written(lake, dataset, 1)
    assert found["dl_add_files"] == expected_rows(adds)
    assert [row["value"] for row in found["partitions"]] == [each.partition_values["day"] for each in adds]
    assert len(found["row_groups"]) == 2 * count
    assert {row["stats"] for row in found["row_groups"]} == {groups[0].stats, groups[1].stats}
    ids = [row for row in found["column_stats"] if row["column_name"] == "id"]
    assert sorted((row["min_num"], row["max_num"], row["ordinal"]) for row in ids) == [
        (n, n + 5, n) for n in range(count)
    ]


def test_three_thousand_files_in_arrow_can_be_added_replaced_and_removed(lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"])
    adds, groups = many_files(3000)
    assert commit(lake, dataset, arrow(adds), row_groups=group_table(groups), version=1).version == 1
    snapshot = dataset.snapshot()
    assert paths(snapshot.files()) == sorted(each.path for each in adds)
    assert snapshot.row_groups().num_rows == 6000
    assert snapshot.files("id BETWEEN 100 AND 101").num_rows == 7
    assert snapshot.files("day = '2026-01-07'").num_rows == 107

    names = [each.path for each in adds]
    removed = RemoveFiles(pa.table({"path": names[:1500], "data_change": [False] * 1500}))
    replaced = AddFiles(
        pa.table({"path": names[1500:2500], "size": [7] * 1000, "partition_values": ['{"day":null}'] * 1000})
    )
    commit(lake, dataset, removed, replaced, Txn(app_id="app", version=1), version=2)
    files = dataset.snapshot().files(columns=["path", "size"]).sort_by("path").to_pylist()
    assert len(files) == 1500
    sizes = {row["path"]: row["size"] for row in files}
    assert sizes == {name: 7 if 1500 <= n < 2500 else n for n, name in enumerate(names) if n >= 1500}
    assert [row["data_change"] for row in rows(lake, "dl_remove_files")] == [False] * 1500
    assert dataset.snapshot(version=1).files().num_rows == 3000
    check_invariants(lake)


def test_ten_thousand_files_are_committed_within_five_seconds(lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"])
    adds, groups = many_files(10_000)
    files, row_groups = arrow(adds), group_table(groups)
    start = time.perf_counter()
    commit(lake, dataset, files, row_groups=row_groups, version=1)
    assert time.perf_counter() - start < 5
    assert dataset.snapshot().files(columns=["path"]).num_rows == 10_000


def test_the_transaction_manager_takes_thousands_of_files_too(lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"])
    adds, groups = many_files(3000)
    manager = TransactionManager(lake)
    assert manager.commit(manager.begin(dataset.id), arrow(adds).table, group_table(groups)) == 1
    assert written(lake, dataset, 1)["dl_add_files"] == expected_rows(adds)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is done piece by piece, so that memory stays bounded, is done in pieces of seven."""
    monkeypatch.setattr(lakelog.catalog.sqlite.catalog, "_CHUNK", 7)
    monkeypatch.setattr(lakelog.catalog.postgres.values, "_CHUNK", 7)
    monkeypatch.setattr(lakelog.catalog.postgres.transaction, "_COPY_FROM", 20)
    monkeypatch.setattr(lakelog.log.commit.committer, "LOOKED_UP", 7)
    monkeypatch.setattr(lakelog.log.pruning.bulk_bounds, "_BATCH", 7)


@pytest.mark.usefixtures("small_pieces")
def test_work_in_pieces_gives_the_same_rows(lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"])
    adds, groups = many_files(50)
    commit(lake, dataset, arrow(adds), row_groups=group_table(groups), version=1)
    found = written(lake, dataset, 1)
    assert found["dl_add_files"] == expected_rows(adds)
    assert len(found["row_groups"]) == 100
    assert len(found["column_stats"]) == 150
    assert dataset.snapshot().files().num_rows == 50
    names = [each.path for each in adds]
    removes = RemoveFiles(pa.table({"path": names[:20]}))
    again = AddFiles(pa.table({"path": names[20:], "size": [1] * 30, "partition_values": ['{"day":null}'] * 30}))
    commit(lake, dataset, removes, again, version=2)
    assert paths(dataset.snapshot().files()) == sorted(names[20:])
    assert paths(dataset.snapshot(version=1).files()) == sorted(names)
    check_invariants(lake)


def test_arrow_input_may_have_any_type_that_can_be_read_as_the_column(lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"])
    files = pa.table(
        {
            "path": pa.array(["a.parquet", "b.parquet"]).dictionary_encode(),
            "size": pa.array([1, 2], pa.uint8()),
            "partition_values": pa.array([[("day", "2026-01-31")], [("day", None)]], pa.map_(pa.string(), pa.string())),
            "stats": pa.array(['{"numRecords":3}', None], pa.large_string()),
        }
    )
    chunked = pa.concat_tables([files.slice(0, 1), files.slice(1, 1)])
    commit(lake, dataset, AddFiles(chunked), version=1)
    assert [(row["path"], row["partition_values"], row["row_count"]) for row in rows(lake, "dl_add_files")] == [
        ("a.parquet", '{"day":"2026-01-31"}', 3),
        ("b.parquet", '{"day":null}', None),
    ]


def test_arrow_input_without_rows_is_a_commit_without_files(lake: Lake) -> None:
    dataset = table(lake)
    empty = pa.table({"path": pa.array([], pa.string()), "size": pa.array([], pa.int64())})
    groups = pa.table({"path": pa.array([], pa.string()), "row_group": [], "row_count": []})
    commit(lake, dataset, AddFiles(empty), RemoveFiles(empty.select(["path"])), version=1)
    commit(lake, dataset, AddFiles(empty), row_groups=groups, version=2)
    assert (dataset.version, dataset.snapshot().files().num_rows) == (2, 0)


def test_removes_in_arrow_become_the_same_rows_as_one_by_one(lake: Lake) -> None:
    removes = [
        RemoveFile(
            path="a.parquet",
            deletion_timestamp=5,
            data_change=False,
            extended_file_metadata=True,
            partition_values={},
            size=9,
            stats=stats(3),
            tags={"k": None},
            deletion_vector=VECTOR,
            base_row_id=1,
            default_row_commit_version=2,
            extra={"e": "☃"},
        ),
        RemoveFile(path="b.parquet"),
    ]
    columns = {name: [getattr(each, name) for each in removes] for name in RemoveFile.__slots__ if name != "__dict__"}
    for name in ("partition_values", "tags", "extra"):
        columns[name] = [
            json.dumps(value, separators=(",", ":"), ensure_ascii=False) if value else None for value in columns[name]
        ]
    columns["partition_values"] = ["{}", None]
    columns["deletion_vector"] = [VECTOR.to_json(), None]
    found = []
    for name, actions in (("few", removes), ("many", [RemoveFiles(pa.table(columns))])):
        dataset = table(lake, name)
        commit(lake, dataset, add("a.parquet", stats=stats(3), deletion_vector=VECTOR), add("b.parquet"))
        result = commit(lake, dataset, *actions)
        found.append(
            [
                row | {"table_id": 0, "deletion_timestamp": row["deletion_timestamp"] % result.committed_at}
                for row in rows(lake, "dl_remove_files", table_id=dataset.id)
            ]
        )
    assert found[0] == found[1]


def test_a_deletion_vector_can_be_replaced_in_bulk(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, arrow([add(stats=stats(3), deletion_vector=VECTOR)]), version=1)
    replaced = arrow([add(stats=stats(3), deletion_vector=OTHER_VECTOR)])
    with pytest.raises(ValidationError, match="live with another deletion vector"):
        commit(lake, dataset, replaced, version=2)
    removed = RemoveFiles(pa.table({"path": ["a.parquet"], "deletion_vector": [VECTOR.to_json()]}))
    commit(lake, dataset, removed, replaced, version=2)
    [row] = dataset.snapshot().files(columns=["deletion_vector"]).to_pylist()
    assert json.loads(row["deletion_vector"]) == OTHER_VECTOR.to_dict()


@given(batch=st.integers(1, 9))
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_chunks_of_arrow_input_do_not_matter(lake: Lake, batch: int) -> None:
    adds, _ = many_files(20)
    whole = arrow(adds).table
    pieces = pa.concat_tables([whole.slice(start, batch) for start in range(0, 20, batch)])
    dataset = table(lake, f"chunks of {batch} {time.monotonic_ns()}", partition_by=["day"])
    SqlTxnLogWriter(lake).commit(dataset.id, 1, [AddFiles(pieces)])
    assert written(lake, dataset, 1)["dl_add_files"] == expected_rows(adds)
