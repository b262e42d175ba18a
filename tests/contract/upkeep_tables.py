"""Tables with real files for the tests of upkeep, and a clock that can be moved on."""

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog import Dataset, Lake
from lakelog.actions import AddFile, RemoveFile
from lakelog.catalog import base
from lakelog.upkeep import vacuum as vacuum_module
from tests.contract.samples import commit
from tests.parquet import read, write

SCHEMA = pa.schema([("id", pa.int64())])
WEEKS = timedelta(days=15)


def move_clock(patched: pytest.MonkeyPatch, ahead: timedelta) -> None:
    """Lets upkeep believe that it is later. Files and commits are then as much older."""
    patched.setattr(vacuum_module, "agreed_time", lambda *_: base.now_ms() + ahead // timedelta(milliseconds=1))


def settle() -> None:
    """Lets a moment pass, so that what was just written is older than what begins now."""
    time.sleep(0.005)


def numbers(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def ids(dataset: Dataset, version: int | None = None) -> list[int]:
    """The rows of a version."""
    return sorted(read(dataset.snapshot(version), dataset.location).column("id").to_pylist())


def rewritten(lake: Lake, name: str = "events", **options: Any) -> Dataset:
    """A table with rows 1 and 2, whose first file was replaced by one with row 10: versions 0 to 3."""
    dataset = lake.create_dataset(name, SCHEMA, **options)
    write(lake, dataset, numbers(1))
    first = only_path(dataset, 1)
    write(lake, dataset, numbers(2))
    commit(lake, dataset, RemoveFile(path=first), new_file(dataset, "new.parquet", 10))
    settle()
    return dataset


def only_path(dataset: Dataset, version: int) -> str:
    (path,) = dataset.changes(version, version).added.column("path").to_pylist()
    return str(path)


def new_file(dataset: Dataset, path: str, *values: int) -> AddFile:
    """A file that exists, as an action that is not committed."""
    place = Path(dataset.location) / path
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(numbers(*values), place)
    return AddFile(path=path, size=place.stat().st_size, modification_time=0)


def put(dataset: Dataset, path: str, content: str = "x") -> Path:
    """A file that the log knows nothing of."""
    place = Path(dataset.location) / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(content)
    return place


def there(dataset: Dataset) -> set[str]:
    """The files below a table's location that are not its log's."""
    root = Path(dataset.location)
    found = (each.relative_to(root).as_posix() for each in root.rglob("*") if each.is_file())
    return {each for each in found if not each.startswith("_delta_log/")}
