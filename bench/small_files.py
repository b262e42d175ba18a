"""Tables of thousands of small Parquet files. What the log says of them is what their footers say."""

import os
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pf
import pyarrow.parquet as pq

from bench.lab import Place
from lakelog import AddFiles, Dataset, Lake, SqlTxnLogWriter

DATASET = "small files"
DIRECTORY = "__w=bench"
"""Where the files lie below the table's location, as if one write had made them."""

_DATA = pa.schema([("id", pa.int64()), ("event_time", pa.timestamp("us", "UTC")), ("amount", pa.float64())])
_BY_DAY = _DATA.append(pa.field("day", pa.date32()))
_FIRST_DAY = date(2000, 1, 1)
_FIRST_TIME = 1_767_225_600_000_000
_SOURCES = 100
"""Files that are written where the others are links to them: no file can have a hundred thousand names."""


def clustered_files(place: Place, count: int, rows: int) -> None:
    """A table of files with this many rows each, the first with the ids from 0 on, the next with those that follow."""
    with place.connect() as lake:
        dataset = lake.create_dataset(DATASET, _DATA)
        directory = Path(dataset.location, DIRECTORY)
        directory.mkdir(parents=True)
        for number in range(count):
            pq.write_table(_rows(number * rows, rows), _file(directory, number), compression="zstd")
        _commit(lake, dataset, DIRECTORY)


def linked_files(place: Place, count: int, days: int = 0) -> None:
    """A table of files with a few rows each: all in one directory, or partitioned by day and in one for each day."""
    with place.connect() as lake:
        dataset = lake.create_dataset(DATASET, _BY_DAY if days else _DATA, ("day",) if days else ())
        root = Path(dataset.location)
        root.mkdir(parents=True, exist_ok=True)
        for number in range(_SOURCES):
            pq.write_table(_rows(number, 10), _source(root, number), compression="zstd")
        directories = [root / DIRECTORY / _day(number) for number in range(days)] or [root / DIRECTORY]
        for directory in directories:
            directory.mkdir(parents=True)
        for number in range(count):
            os.link(_source(root, number % _SOURCES), _file(directories[number % len(directories)], number))
        _commit(lake, dataset, DIRECTORY)


def loose_files(root: Path, count: int, days: int) -> None:
    """Files of ten rows each that no table knows, in a directory for each day."""
    directories = [root / _day(number) for number in range(days)]
    for directory in directories:
        directory.mkdir(parents=True)
    for number in range(count):
        pq.write_table(_rows(number * 10, 10), _file(directories[number % days], number), compression="zstd")


def read_footers(paths: Sequence[str]) -> None:
    """What pyarrow has to do to register such files, and nothing with what it finds."""
    local, rows = pf.LocalFileSystem(), 0
    for path in paths:
        with local.open_input_file(path) as opened:
            rows += pq.ParquetFile(opened).metadata.num_rows
    assert rows == len(paths) * 10


def add_one(lake: Lake) -> None:
    """Makes the next version of linked files: it has one file more."""
    dataset = lake.dataset(DATASET)
    root, write = Path(dataset.location), f"__w=bench-{dataset.version + 1}"
    directory = root / write / _day(0) if dataset.snapshot().metadata.partition_columns else root / write
    directory.mkdir(parents=True)
    os.link(_source(root, 0), _file(directory, 0))
    _commit(lake, dataset, write)


def _rows(first: int, count: int) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    times = pc.add(pc.multiply(ids, 1_000_000), _FIRST_TIME).cast(_DATA.field("event_time").type)
    return pa.table([ids, times, pc.divide(pc.cast(ids, pa.float64()), 8.0)], _DATA)


def _source(root: Path, number: int) -> str:
    return f"{root}/_source-{number}"


def _file(directory: Path, number: int) -> str:
    return f"{directory}/part-{number:08d}.parquet"


def _day(number: int) -> str:
    return f"day={_FIRST_DAY + timedelta(days=number)}"


def _commit(lake: Lake, dataset: Dataset, write: str) -> None:
    # Here, since the processes of other subjects do without Spark.
    from lakelog.parquet.footers import harvest
    from lakelog.spark.write.directories import written_files

    metadata = dataset.snapshot().state.metadata
    files = written_files(dataset.location, write, metadata.partitions)
    found = harvest(files, _DATA, metadata.indexed, by="pyarrow")
    SqlTxnLogWriter(lake).commit(dataset.id, dataset.version + 1, [AddFiles(found.adds)], row_groups=found.row_groups)
