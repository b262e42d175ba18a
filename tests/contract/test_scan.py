"""Which files a condition needs, told to people; and rows that are counted without opening a file."""

import pytest

from lakelog import Dataset, Lake, ValidationError
from lakelog.actions import RemoveFile
from tests.contract.samples import add, commit, stats, table


@pytest.fixture
def events(lake: Lake) -> Dataset:
    """Three days with two files each, ids 0 to 9 and 10 to 19."""
    dataset = table(lake, partition_by=["day"])
    files = [
        add(f"{day}-{low}.parquet", partition_values={"day": f"2026-01-0{day}"}, stats=stats(10, id=(low, low + 9)))
        for day in (1, 2, 3)
        for low in (0, 10)
    ]
    commit(lake, dataset, *files)
    return dataset


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        (None, 60),
        ("day = '2026-01-02'", 20),
        ("day > '2026-01-01' AND id < 10", 20),
        ("id >= 0", 60),
        ("id > 19", 0),
        ("day IS NULL", 0),
        ("NOT (day = '2026-01-01')", 40),
    ],
)
def test_rows_are_counted_from_the_catalog(events: Dataset, where: str | None, rows: int) -> None:
    assert events.count(where) == rows


def test_rows_are_counted_at_a_version_and_a_time(lake: Lake, events: Dataset) -> None:
    before = events.history()[0]
    commit(lake, events, RemoveFile(path="1-0.parquet"))
    assert (events.count(), events.count(version=before.version)) == (50, 60)
    assert events.count("day = '2026-01-01'", timestamp=before.timestamp) == 20


def test_a_scan_says_what_it_reads_and_why(events: Dataset) -> None:
    scan = events.scan("day = '2026-01-02' AND id BETWEEN 0 AND 5 AND name IS NOT NULL")
    assert scan.files(["path"]).column("path").to_pylist() == ["2-0.parquet"]
    found = scan.explain()
    assert (found.files.kept, found.files.total) == (1, 6)
    assert (found.rows.kept, found.rows.total) == (10, 60)
    assert [(str(each.files), each.by) for each in found.reasons] == [
        ("2 of 6", "partition values"),
        ("3 of 6", "statistics"),
        ("6 of 6", "statistics"),
    ]
    assert str(found).splitlines()[1:] == [
        "  files       1 of 6",
        "  row groups  0 of 0 (estimate)",
        "  rows        at most 10 of 60",
        "  bytes       100 of 600",
        "  where day = '2026-01-02': keeps 2 of 6 files, by partition values",
        "  where id BETWEEN 0 AND 5: keeps 3 of 6 files, by statistics",
        "  where NOT name IS NULL: keeps 6 of 6 files, by statistics",
    ]


def test_a_scan_of_everything_has_no_reasons(events: Dataset) -> None:
    assert str(events.scan().explain()).splitlines()[:2] == ["events at version 1", "  files       6 of 6"]
    assert events.scan().explain().reasons == ()


def test_a_condition_that_cannot_be_analysed_is_refused(events: Dataset) -> None:
    with pytest.raises(ValidationError, match="UPPER"):
        events.scan("upper(name) = 'A'")
