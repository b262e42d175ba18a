"""Odd statistics and partition values: what is valid is committed and lost by no condition, the rest is refused."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest

from lakelog import AddFiles, Dataset, Lake, RowGroup, SqlTxnLogWriter, TransactionManager, ValidationError
from lakelog.actions import AddFile
from lakelog.schema.leaves import LONGEST_NAME
from tests.contract.samples import add, commit, paths, stats, table
from tests.invariants import check_invariants

Adding = Callable[[Sequence[AddFile]], Sequence[Any]]

one_by_one_and_in_bulk = pytest.mark.parametrize(
    "adding", [list, lambda adds: [AddFiles.of(adds)]], ids=["one by one", "in bulk"]
)

ODD = {
    "no-lower-bounds": '{"numRecords": 1, "minValues": null, "maxValues": {"id": 1}}',
    "no-upper-bounds": '{"numRecords": 1, "minValues": {"id": 1}, "maxValues": null}',
    "no-count-of-nulls": '{"numRecords": 1, "minValues": {"id": 1}, "maxValues": {"id": 1}, "nullCount": null}',
    "a-bound-that-is-null": '{"numRecords": 1, "minValues": {"id": null}, "maxValues": {"id": 1}}',
    "a-count-that-is-null": '{"numRecords": 1, "maxValues": {"id": 1}, "nullCount": {"id": null}}',
    "counts-of-a-struct": '{"numRecords": 1, "nullCount": {"id": {"inner": 1}}}',
    "bounds-of-a-struct": '{"numRecords": 1, "minValues": {"id": {"inner": 1}}, "maxValues": {"id": {"inner": 1}}}',
    "no-number-of-records": '{"numRecords": null, "minValues": {"id": 1}, "maxValues": {"id": 1}}',
    "nothing-but-nulls": '{"numRecords": null, "minValues": null, "maxValues": null, "nullCount": null}',
    "nothing": "{}",
}
"""Statistics of a file with the one id 1, by what is odd about them."""


@one_by_one_and_in_bulk
def test_files_with_odd_statistics_are_kept_where_they_match(lake: Lake, adding: Adding) -> None:
    events = table(lake)
    adds = [add(f"{name}.parquet", stats=text) for name, text in ODD.items()]
    adds.append(add("another.parquet", stats=stats(1, id=(7, 7))))
    commit(lake, events, *adding(adds))
    snapshot = events.snapshot()
    assert snapshot.files().num_rows == len(adds)
    odd = {f"{name}.parquet" for name in ODD}
    for condition in ("id = 1", "id < 2", "id IS NOT NULL", "id IN (1, 2)"):
        assert odd <= set(paths(snapshot.files(condition))), condition
    check_invariants(lake)


@one_by_one_and_in_bulk
def test_what_odd_statistics_do_say_is_used(lake: Lake, adding: Adding) -> None:
    events = table(lake)
    commit(lake, events, *adding([add(f"{name}.parquet", stats=text) for name, text in ODD.items()]))
    skipped = {
        "id > 1": {"no-lower-bounds", "no-count-of-nulls", "a-bound-that-is-null", "a-count-that-is-null"},
        "id < 1": {"no-upper-bounds", "no-count-of-nulls"},
    }
    for condition, names in skipped.items():
        kept = set(paths(events.snapshot().files(condition)))
        assert kept.isdisjoint(f"{name}.parquet" for name in names), condition


@one_by_one_and_in_bulk
def test_row_groups_with_odd_statistics_are_kept_where_they_match(lake: Lake, adding: Adding) -> None:
    events = table(lake)
    groups = [
        RowGroup(path="a.parquet", row_group=number, row_count=1, stats=text)
        for number, text in enumerate(ODD.values())
    ]
    commit(lake, events, *adding([add()]), row_groups=groups)
    for condition in ("id = 1", "id < 2", "id IS NOT NULL"):
        assert events.snapshot().row_groups(condition).num_rows == len(ODD), condition


def partitioned(lake: Lake, kind: pa.DataType) -> Dataset:
    return table(lake, schema=pa.schema([("part", kind), ("id", pa.int64())]), partition_by=["part"])


def in_partition(value: str) -> AddFile:
    return add(f"{value}.parquet", partition_values={"part": value})


@one_by_one_and_in_bulk
@pytest.mark.parametrize("kind", [pa.int64(), pa.int16(), pa.decimal128(10, 2), pa.decimal128(38, 2)], ids=str)
def test_what_is_no_number_is_refused_in_a_partition_of_numbers(lake: Lake, kind: pa.DataType, adding: Adding) -> None:
    events = partitioned(lake, kind)
    for value in ("Infinity", "-Infinity", "NaN", "sNaN", "1e400", "-1e400", "1e999999999"):
        with pytest.raises(ValidationError, match=f"'{value}' is not a value of column 'part'"):
            commit(lake, events, *adding([in_partition(value)]))
    assert events.version == 0
    commit(lake, events, *adding([in_partition("5")]))
    assert paths(events.snapshot().files("part = 5")) == ["5.parquet"]


@one_by_one_and_in_bulk
def test_what_no_double_holds_is_refused_in_a_partition_of_doubles(lake: Lake, adding: Adding) -> None:
    events = partitioned(lake, pa.float64())
    for value in ("sNaN", "1.8e308", "1e400", "-1e999999999", "infinite"):
        with pytest.raises(ValidationError, match=f"'{value}' is not a value of column 'part'"):
            commit(lake, events, *adding([in_partition(value)]))
    assert events.version == 0


@one_by_one_and_in_bulk
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
def test_infinities_and_nan_are_values_of_a_partition_of_floats(lake: Lake, kind: pa.DataType, adding: Adding) -> None:
    events = partitioned(lake, kind)
    commit(lake, events, *adding([in_partition(value) for value in ("-Infinity", "1.5", "Infinity", "NaN")]))
    # NaN is above every number, and equal to itself.
    kept = {
        "part > 7": ["Infinity.parquet", "NaN.parquet"],
        "part >= 1.5": ["1.5.parquet", "Infinity.parquet", "NaN.parquet"],
        "part < 1": ["-Infinity.parquet"],
        "part = CAST('Infinity' AS DOUBLE)": ["Infinity.parquet"],
        "part = CAST('NaN' AS DOUBLE)": ["NaN.parquet"],
        "part IS NOT NULL": ["-Infinity.parquet", "1.5.parquet", "Infinity.parquet", "NaN.parquet"],
    }
    for condition, expected in kept.items():
        assert set(paths(events.snapshot().files(condition))) >= set(expected), condition
    assert "Infinity.parquet" not in paths(events.snapshot().files("part < 1"))
    check_invariants(lake)


@one_by_one_and_in_bulk
def test_the_largest_doubles_are_values_of_a_partition(lake: Lake, adding: Adding) -> None:
    events = partitioned(lake, pa.float64())
    values = ("1.7976931348623157E308", "1e308", "-1e308", "5e-324")
    commit(lake, events, *adding([in_partition(value) for value in values]))
    assert paths(events.snapshot().files("part < -1e307")) == ["-1e308.parquet"]
    assert {"1.7976931348623157E308.parquet", "1e308.parquet"} <= set(paths(events.snapshot().files("part > 1e307")))


@pytest.mark.parametrize("number", [2**63, 2**70, -(2**63) - 1, -(2**70)])
def test_an_id_beyond_64_bits_is_refused(lake: Lake, number: int) -> None:
    with pytest.raises(ValidationError, match="table id: expected an integer of 64 bits"):
        SqlTxnLogWriter(lake).commit(number, 1, [add()])
    with pytest.raises(ValidationError, match="dataset id: expected an integer of 64 bits"):
        TransactionManager(lake).begin(number)


@pytest.mark.parametrize("version", [2**63, 2**63 + 1, 2**70, -(2**70)])
def test_a_version_beyond_64_bits_is_refused(lake: Lake, version: int) -> None:
    events = table(lake)
    with pytest.raises(ValidationError, match="version: expected"):
        SqlTxnLogWriter(lake).commit(events.id, version, [add()])
    assert events.version == 0


@one_by_one_and_in_bulk
@pytest.mark.parametrize("size", [3 << 20, 15 << 20])
def test_a_file_with_megabytes_of_statistics_is_listed(lake: Lake, adding: Adding, size: int) -> None:
    """Among others that make it longer than an equal part of the listing."""
    events = table(lake)
    few, much = stats(1, id=(1, 1)), stats(1, id=(7, 7), name=("a" * (size // 2), "b" * (size // 2)))
    adds = [add(f"{number}.parquet", stats=much if number == 5 else few) for number in range(10)]
    commit(lake, events, *adding(adds))
    files = events.snapshot().files()
    assert paths(files) == [f"{number}.parquet" for number in range(10)]
    assert sorted(map(len, files.column("stats").to_pylist())) == [len(few)] * 9 + [len(much)]
    assert paths(events.snapshot().files("id = 7")) == ["5.parquet"]


LONG = "".join(f"{number:x}é" for number in random.Random(17).sample(range(1 << 20), 520))[:3000]
"""A name that no compression makes short enough for an index."""


@one_by_one_and_in_bulk
@pytest.mark.parametrize("nested", [False, True])
def test_a_column_with_a_long_name_is_committed_and_keeps_every_file(lake: Lake, adding: Adding, nested: bool) -> None:
    inner = pa.field(LONG, pa.int64())
    events = table(lake, schema=pa.schema([("id", pa.int64()), pa.field("s", pa.struct([inner])) if nested else inner]))
    bounds = [{"s": {LONG: number}} if nested else {LONG: number} for number in range(3)]
    texts = [json.dumps({"numRecords": 1, "minValues": each, "maxValues": each}) for each in bounds]
    commit(lake, events, *adding([add(f"{number}.parquet", stats=text) for number, text in enumerate(texts)]))
    condition = f"s.`{LONG}` = 1" if nested else f"`{LONG}` = 1"
    assert "1.parquet" in paths(events.snapshot().files(condition))
    check_invariants(lake)


@pytest.mark.parametrize("more", [0, 1])
def test_the_longest_name_that_an_index_holds_fits_beside_the_longest_bounds(lake: Lake, more: int) -> None:
    letters = random.Random(18)
    name = "".join(letters.choices("abcdefghijklmnopqrstuvwxyz0123456789", k=LONGEST_NAME + more))
    low, high = ("".join(chr(letters.randrange(0x4E00, 0x9FA0)) for _ in range(3000)) for _ in range(2))
    events = table(lake, schema=pa.schema([("id", pa.int64()), (name, pa.string())]))
    low, high = sorted((low, high))
    text = json.dumps({"numRecords": 2, "minValues": {name: low}, "maxValues": {name: high}, "nullCount": {name: 0}})
    commit(lake, events, add("a.parquet", stats=text))
    assert paths(events.snapshot().files(f"{name} > '{low[:20]}'")) == ["a.parquet"]
    # Too long by one byte, it has no bounds.
    assert paths(events.snapshot().files(f"{name} < 'a'")) == ["a.parquet"] * more
    check_invariants(lake)
