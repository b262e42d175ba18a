"""What is committed: files of one 10-column table, partitioned by day, as a writer of Parquet would describe them.

File i holds the rows with ids from 1,000 i on, so that ids, names and times are clustered; ten files share a day. The
other columns overlap in all files, as they do in most tables.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa

from lakelog.actions import AddFile

ROWS = 1_000
"""Rows of a file."""

FILES_PER_DAY = 10

SCHEMA = pa.schema(
    [
        ("day", pa.date32()),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("event_time", pa.timestamp("us", "UTC")),
        ("amount", pa.float64()),
        ("price", pa.decimal128(10, 2)),
        ("code", pa.int32()),
        ("active", pa.bool_()),
        ("city", pa.string()),
        ("note", pa.string()),
    ]
)
PARTITION_BY = ("day",)

_FIRST_DAY = date(2000, 1, 1)
_FIRST_TIME = datetime(2026, 1, 1, tzinfo=UTC)
_MODIFIED = 1_767_225_600_000
_CITIES = ("Aachen", "Bergen", "Cork", "Dijon", "Évora", "Faro", "Gent", "Huelva")


def path_of(file: int, prefix: str = "") -> str:
    return f"{prefix}day={day_of(file)}/part-{file:08d}.c000.zstd.parquet"


def day_of(file: int) -> str:
    return (_FIRST_DAY + timedelta(days=file // FILES_PER_DAY)).isoformat()


def name_of(row: int) -> str:
    return f"user-{row:012d}"


def stats_of(first_row: int, rows: int) -> str:
    """Statistics as Delta writers spell them."""
    mixed = first_row * 2654435761 % 2**32
    last_row = first_row + rows - 1
    times = [(_FIRST_TIME + timedelta(seconds=row)).strftime("%Y-%m-%dT%H:%M:%S.000Z") for row in (first_row, last_row)]
    cents, code, nulls = mixed % 5_000, mixed % 4_000, mixed % rows
    return (
        f'{{"numRecords":{rows},"minValues":{{"id":{first_row},"name":"{name_of(first_row)}","event_time":"{times[0]}",'
        f'"amount":{cents / 8},"price":{cents / 100:.2f},"code":{code},"active":false,"city":"{_CITIES[mixed % 4]}",'
        f'"note":"{mixed:08x} is the first note"}},'
        f'"maxValues":{{"id":{last_row},"name":"{name_of(last_row)}","event_time":"{times[1]}",'
        f'"amount":{cents / 8 + 500.25},"price":{cents / 100 + 50:.2f},"code":{code + 900},"active":true,'
        f'"city":"{_CITIES[4 + mixed % 4]}","note":"{mixed:08x} is the last note"}},'
        f'"nullCount":{{"id":0,"name":0,"event_time":0,"amount":0,"price":3,"code":0,"active":0,"city":0,'
        f'"note":{nulls}}}}}'
    )


def add_file(file: int, prefix: str = "") -> AddFile:
    return AddFile(
        path=path_of(file, prefix),
        size=1_000_000 + file,
        partition_values={"day": day_of(file)},
        modification_time=_MODIFIED,
        stats=stats_of(file * ROWS, ROWS),
    )


def files(count: int, *, first: int = 0, prefix: str = "") -> pa.Table:
    """Files as ``AddFiles`` takes them."""
    numbers = range(first, first + count)
    return pa.table(
        {
            "path": [path_of(file, prefix) for file in numbers],
            "size": pa.array([1_000_000 + file for file in numbers], pa.int64()),
            "partition_values": [f'{{"day":"{day_of(file)}"}}' for file in numbers],
            "stats": [stats_of(file * ROWS, ROWS) for file in numbers],
            "modification_time": pa.array([_MODIFIED] * count, pa.int64()),
        }
    )


def row_groups(count: int, *, first: int = 0, prefix: str = "") -> pa.Table:
    """Two row groups for each file."""

    def halves() -> Iterator[tuple[str, int, int, int, str]]:
        for file in range(first, first + count):
            path = path_of(file, prefix)
            for half in (0, 1):
                yield path, half, ROWS // 2, 500_000, stats_of(file * ROWS + half * ROWS // 2, ROWS // 2)

    paths, groups, rows, sizes, stats = zip(*halves(), strict=True)
    return pa.table(
        {
            "path": pa.array(paths),
            "row_group": pa.array(groups, pa.int32()),
            "row_count": pa.array(rows, pa.int64()),
            "byte_size": pa.array(sizes, pa.int64()),
            "stats": pa.array(stats),
        }
    )
