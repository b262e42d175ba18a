"""What is wrong with thousands of files is found, named and changes nothing."""

from typing import Any

import pyarrow as pa
import pytest

from lakelog import AddFiles, Dataset, Lake, RemoveFiles, ValidationError
from lakelog.actions import RemoveFile
from tests.contract.samples import VECTOR, add, arrow, commit, messages, stats, table
from tests.fixtures.lakes import catalog_rows

Row = dict[str, Any]

BAD_TABLES: dict[str, Any] = {
    "no table": [1],
    "a record batch": pa.record_batch({"path": ["a"], "size": [1]}),
    "an unknown column": pa.table({"path": ["a"], "size": [1], "colour": ["red"]}),
    "no sizes": pa.table({"path": ["a"]}),
    "a null path": pa.table({"path": pa.array([None], pa.string()), "size": [1]}),
    "a null size": pa.table({"path": ["a"], "size": pa.array([None], pa.int64())}),
    "sizes in parts": pa.table({"path": ["a"], "size": [1.5]}),
    "sizes too large": pa.table({"path": ["a"], "size": pa.array([2**64 - 1], pa.uint64())}),
    "a column twice": pa.table([["a"], ["b"], [1]], names=["path", "path", "size"]),
}
BAD_VALUES: dict[str, tuple[str, Any]] = {
    "empty path": ("path", ""),
    "path out of the table": ("path", "../a"),
    "escaped path out of the table": ("path", "%2e%2e/a"),
    "absolute path": ("path", "/a"),
    "the log's own directory": ("path", "_delta_log/a"),
    "NUL in a path": ("path", "a\0"),
    "oversize path": ("path", "x" * 5000),
    "a path twice": ("path", "good.parquet"),
    "a path twice in two spellings": ("path", "%67ood.parquet"),
    "negative size": ("size", -1),
    "negative time": ("modification_time", -1),
    "negative row id": ("base_row_id", -1),
    "negative row count": ("row_count", -1),
    "partition values that are not JSON": ("partition_values", "{"),
    "partition values that are no object": ("partition_values", "[]"),
    "a number as a partition value": ("partition_values", '{"day":1}'),
    "partition values of another table": ("partition_values", '{"month":"1"}'),
    "a partition value of another type": ("partition_values", '{"day":"yesterday"}'),
    "tags that are not JSON": ("tags", "{"),
    "tags that are no object": ("tags", "[]"),
    "a number as a tag": ("tags", '{"k":1}'),
    "extra that is not JSON": ("extra", ""),
    "extra that is no object": ("extra", "5"),
    "a known field in extra": ("extra", '{"path":"b"}'),
    "a deletion vector that is none": ("deletion_vector", "{}"),
    "a deletion vector that is not JSON": ("deletion_vector", "["),
    "a deletion vector without a row count": ("deletion_vector", VECTOR.to_json()),
    **{
        f"statistics {text}": ("stats", text)
        for text in (
            "",
            "  ",
            "{",
            "null",
            "5",
            "[]",
            "{}{}",
            '{"numRecords":-1}',
            '{"numRecords":1.5}',
            '{"numRecords":"1"}',
            '{"numRecords":9223372036854775808}',
            '{"numRecords":NaN}',
            '{"numRecords":1,"numRecords":2}',
            '{"minValues":5}',
            '{"minValues":{"id":1e999}}',
            '{"minValues":{"id":2},"maxValues":{"id":1}}',
            '{"minValues":{"name":"b"},"maxValues":{"name":"a"}}',
            '{"minValues":{"name":"\\u0000"}}',
            '{"minValues":{"name":"\\ud800"}}',
            '{"numRecords":1,"nullCount":{"id":2}}',
            '{"nullCount":{"id":-1}}',
        )
    },
}


@pytest.fixture
def partitioned(lake: Lake) -> Dataset:
    dataset = table(lake, partition_by=["day"])
    commit(lake, dataset, add("live.parquet", partition_values={"day": None}), version=1)
    return dataset


def test_every_invalid_arrow_table_is_refused_and_changes_nothing(lake: Lake, partitioned: Dataset) -> None:
    before = catalog_rows(lake)
    for case, unfit in BAD_TABLES.items():
        with pytest.raises(ValidationError) as caught:
            commit(lake, partitioned, AddFiles(unfit), version=2)
        assert caught.value.violations, case
    assert catalog_rows(lake) == before


def test_every_invalid_value_among_many_files_is_refused_and_changes_nothing(lake: Lake, partitioned: Dataset) -> None:
    before = catalog_rows(lake)
    day = '{"day":"2026-01-31"}'
    good = {"path": ["good.parquet", "bad.parquet"], "size": [1, 1], "partition_values": [day, day]}
    for case, (column, value) in BAD_VALUES.items():
        first = good[column][0] if column in good else None
        with pytest.raises(ValidationError) as caught:
            commit(lake, partitioned, AddFiles(pa.table(good | {column: [first, value]})), version=2)
        assert caught.value.violations, case
    assert catalog_rows(lake) == before


def test_all_invalid_values_among_many_files_are_reported_at_once(lake: Lake) -> None:
    files = {"path": ["../a", "b", "b", "c"], "size": [1, -1, 1, 1], "tags": [None, "{", None, "5"]}
    with pytest.raises(ValidationError) as caught:
        commit(lake, table(lake), AddFiles(pa.table(files)))
    found = messages(caught.value.violations)
    for part in ("add ../a", "add b: is added twice", "size is negative", "add b: not JSON", "add c"):
        assert part in found


BAD_GROUPS: dict[str, Row] = {
    "of another file": {"path": ["other.parquet"]},
    "twice": {"path": ["a.parquet"] * 2, "row_group": [0, 0], "row_count": [5, 5]},
    "with another sum than the statistics": {"row_count": [9]},
    "with a negative number": {"row_group": [-1]},
    "with negative rows": {"row_count": [-1]},
    "with a negative size": {"byte_size": [-1]},
    "without a path": {"path": pa.array([None], pa.string())},
    "with an unknown column": {"colour": ["red"]},
    "with control characters": {"stats": ["\x02"]},
}


def test_every_invalid_row_group_in_arrow_is_refused_and_changes_nothing(lake: Lake) -> None:
    dataset = table(lake)
    before = catalog_rows(lake)
    files = AddFiles(pa.table({"path": ["a.parquet"], "size": [1], "stats": [stats(10)]}))
    good = {"path": ["a.parquet"], "row_group": [0], "row_count": [10]}
    for case, unfit in BAD_GROUPS.items():
        with pytest.raises(ValidationError) as caught:
            commit(lake, dataset, files, version=1, row_groups=pa.table(good | unfit))
        assert caught.value.violations, case
    assert catalog_rows(lake) == before


def test_row_counts_that_differ_are_refused(lake: Lake) -> None:
    files = pa.table({"path": ["a.parquet"], "size": [1], "stats": [stats(10)], "row_count": [9]})
    with pytest.raises(ValidationError, match="another number of rows"):
        commit(lake, table(lake), AddFiles(files))


BAD_REMOVES: dict[str, Row] = {
    "not live": {"path": ["never.parquet"]},
    "twice": {"path": ["live.parquet"] * 2},
    "negative size": {"size": [-1]},
    "negative time": {"deletion_timestamp": [-1]},
    "tags that are not JSON": {"tags": ["{"]},
    "extra that is no object": {"extra": ["5"]},
    "partition values that are not JSON": {"partition_values": ["{"]},
    "statistics that are not JSON": {"stats": ["null"]},
    "a deletion vector that is none": {"deletion_vector": ["{}"]},
    "another deletion vector": {"deletion_vector": [VECTOR.to_json()]},
    "a promise without size": {"extended_file_metadata": [True]},
    "an unknown column": {"colour": ["red"]},
}


def test_every_invalid_remove_in_arrow_is_refused_and_changes_nothing(lake: Lake, partitioned: Dataset) -> None:
    before = catalog_rows(lake)
    for case, unfit in BAD_REMOVES.items():
        with pytest.raises(ValidationError) as caught:
            commit(lake, partitioned, RemoveFiles(pa.table({"path": ["live.parquet"]} | unfit)), version=2)
        assert caught.value.violations, case
    assert catalog_rows(lake) == before


@pytest.mark.parametrize("kinds", ["AddFiles and RemoveFile", "AddFile and RemoveFiles", "AddFiles and RemoveFiles"])
def test_a_file_cannot_be_added_and_removed_in_one_commit(lake: Lake, partitioned: Dataset, kinds: str) -> None:
    one = add("live.parquet", partition_values={"day": None})
    actions = {
        "AddFiles": arrow([one]),
        "AddFile": one,
        "RemoveFiles": RemoveFiles(pa.table({"path": ["live.parquet"]})),
        "RemoveFile": RemoveFile(path="live.parquet"),
    }
    with pytest.raises(ValidationError, match="removed by the same commit"):
        commit(lake, partitioned, *(actions[kind] for kind in kinds.split(" and ")))


@pytest.mark.parametrize("mixed", ["two AddFiles", "two RemoveFiles", "AddFiles and AddFile", "both removes"])
def test_one_commit_takes_its_files_in_one_form(lake: Lake, partitioned: Dataset, mixed: str) -> None:
    adds, removes = AddFiles(pa.table({"path": ["a"], "size": [1]})), RemoveFiles(pa.table({"path": ["live.parquet"]}))
    actions: dict[str, list[Any]] = {
        "two AddFiles": [adds, adds],
        "two RemoveFiles": [removes, removes],
        "AddFiles and AddFile": [adds, add("b.parquet")],
        "both removes": [removes, RemoveFile(path="b.parquet")],
    }
    with pytest.raises(ValidationError, match=r"in a commit|in one commit"):
        commit(lake, partitioned, *actions[mixed])


def test_an_append_only_table_gives_up_no_rows_in_bulk(lake: Lake) -> None:
    dataset = table(lake, properties={"delta.appendOnly": "true"})
    commit(lake, dataset, add("a.parquet"), add("b.parquet"))
    removes = pa.table({"path": ["a.parquet", "b.parquet"], "data_change": [None, False]})
    with pytest.raises(ValidationError, match="append-only") as caught:
        commit(lake, dataset, RemoveFiles(removes))
    assert [violation.where for violation in caught.value.violations] == ["remove a.parquet"]
