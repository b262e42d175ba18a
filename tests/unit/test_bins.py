"""Which files a compaction puts together."""

import json
from typing import Any

import pyarrow as pa
import pytest

from lakelog import ValidationError
from lakelog.changes.bins import DEFAULT_TARGET, Sizes, packed, whole_partitions

SIZES = Sizes(target=100, minimum=75)


def files(*found: tuple[Any, ...]) -> pa.Table:
    """Files of a size, with a partition, a number of rows, and how many of them are deleted."""
    rows = [(*each, *("", 10, None)[len(each) - 1 :]) for each in found]
    return pa.table(
        {
            "path": [f"{number:03}" for number in range(len(rows))],
            "size": pa.array([size for size, *_ in rows], pa.int64()),
            "partition_values": [json.dumps({"p": partition}) for _, partition, *_ in rows],
            "row_count": pa.array([count for _, _, count, _ in rows], pa.int64()),
            "deletion_vector": pa.array(
                [None if deleted is None else json.dumps({"cardinality": deleted}) for *_, deleted in rows], pa.string()
            ),
        }
    )


def bins(*found: tuple[Any, ...]) -> list[tuple[int, ...]]:
    return [each.files for each in packed(files(*found), SIZES)]


def test_small_files_share_a_bin_up_to_the_target() -> None:
    assert bins((40,), (30,), (50,), (20,), (10,)) == [(4, 3, 1, 0)]
    assert bins((60,), (60,), (30,), (30,)) == [(2, 3)]
    assert bins((50,), (50,), (50,), (50,)) == [(0, 1), (2, 3)]


def test_large_files_and_files_alone_are_left_as_they_are() -> None:
    assert bins((75,), (80,), (200,)) == []
    assert bins((10,), (95,)) == []
    assert bins() == []


def test_partitions_are_never_mixed() -> None:
    assert bins((10, "a"), (10, "b"), (10, "a"), (10, "c"), (10, "b")) == [(0, 2), (1, 4)]


def test_a_file_with_many_deleted_rows_is_written_again_though_it_is_alone_or_large() -> None:
    assert bins((90, "a", 100, 6), (90, "b", 100, 5)) == [(0,)]
    assert bins((10, "a", 10, 1)) == [(0,)]


def test_rows_that_are_deleted_take_no_room() -> None:
    (found,) = packed(files((200, "a", 100, 75), (50, "a", 10)), SIZES)
    assert (found.files, found.size, found.rows) == ((0, 1), 100, 35)


def test_a_file_whose_rows_nobody_counted_is_purged_of_its_deleted_rows() -> None:
    (found,) = packed(files((90, "a", None, 1)), SIZES)
    assert found.rows is None
    (found,) = packed(files((10, "a", None), (10, "a", 5)), SIZES)
    assert found.rows is None


def test_to_sort_rows_takes_whole_partitions() -> None:
    found = whole_partitions(files((200, "a"), (150, "a"), (10, "b")), SIZES)
    assert [(each.files, each.outputs) for each in found] == [((1, 0), 3), ((2,), 1)]


def test_sizes_are_what_was_asked_for_or_what_the_table_says() -> None:
    assert Sizes.of({}) == Sizes(target=DEFAULT_TARGET, minimum=DEFAULT_TARGET * 3 // 4)
    assert Sizes.of({"delta.targetFileSize": "128mb"}).target == 128 << 20
    assert Sizes.of({"delta.targetFileSize": "4096"}).target == 4096
    assert Sizes.of({"delta.targetFileSize": "1g"}, 50, 20) == Sizes(target=50, minimum=20)


@pytest.mark.parametrize(
    ("configuration", "arguments"),
    [
        ({"delta.targetFileSize": "large"}, ()),
        ({"delta.targetFileSize": "0"}, ()),
        ({}, (0,)),
        ({}, (True,)),
        ({}, ("1mb",)),
        ({}, (10, 11)),
        ({}, (10, -1)),
    ],
)
def test_sizes_that_make_no_sense_are_refused(configuration: dict[str, str], arguments: tuple[Any, ...]) -> None:
    with pytest.raises(ValidationError):
        Sizes.of(configuration, *arguments)
