"""What a commit names is on the disk before the commit is: data files, deletion vectors, change files, directories."""

import errno
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog import (
    AddFiles,
    ConfigurationError,
    Dataset,
    Lake,
    LakelogError,
    SqlTxnLogWriter,
    TransactionManager,
    connect,
)
from lakelog.actions import Action, AddFile, CdcFile, RemoveFile
from tests.contract.samples import commit
from tests.delta_logs import METADATA, PROTOCOL, add, log_at, write_commit
from tests.fixtures.disk import Disk, files_of
from tests.fixtures.vectors import delete

SCHEMA = pa.schema([("id", pa.int64())])
# As Spark writes them, below a write's directory and one whose name is escaped in the log.
LONG = "__w=0123456789abcdef0123456789abcdef%3D/part-{:05d}-9b2c7f5e-8d4a-4c0e-a1c3-5f6b7d8e9f00.c000.zstd.parquet"


def written(dataset: Dataset, number: int) -> AddFile:
    """A file that was just written, and is in no log yet."""
    path = LONG.format(number)
    place = Path(dataset.location, path.replace("%3D", "="))
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": [number]}), place)
    return AddFile(path=path, size=place.stat().st_size, modification_time=0, stats='{"numRecords": 1}')


def changed(dataset: Dataset) -> CdcFile:
    place = Path(dataset.location, "_change_data", "cdc.parquet")
    place.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1], "_change_type": ["delete"]}), place)
    return CdcFile(path="_change_data/cdc.parquet", size=place.stat().st_size)


def appended(lake: Lake, dataset: Dataset) -> None:
    SqlTxnLogWriter(lake).append(dataset.id, [written(dataset, 1)])


def committed(lake: Lake, dataset: Dataset) -> None:
    commit(lake, dataset, written(dataset, 1), written(dataset, 2))


def in_bulk(lake: Lake, dataset: Dataset) -> None:
    commit(lake, dataset, AddFiles.of([written(dataset, number) for number in range(250)]))


def by_hand(lake: Lake, dataset: Dataset) -> None:
    manager = TransactionManager(lake)
    records: list[Action] = [written(dataset, 1)]
    manager.commit(manager.begin(dataset.id), records)


def told(lake: Lake, dataset: Dataset) -> None:
    """A change with a file of the change feed, and one that takes it back by a deletion vector."""
    commit(lake, dataset, written(dataset, 1))
    commit(lake, dataset, RemoveFile(path=LONG.format(1)), written(dataset, 2), changed(dataset))
    delete(lake, dataset, "id", {2})


WRITES: list[Callable[[Lake, Dataset], None]] = [appended, committed, in_bulk, by_hand, told]


@pytest.mark.parametrize("change", WRITES, ids=lambda each: each.__name__)
def test_what_a_commit_names_is_durable(change: Callable[[Lake, Dataset], None], lake: Lake, disk: Disk) -> None:
    dataset = lake.create_dataset("events", SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    change(lake, dataset)
    files = files_of(lake, dataset)
    assert files
    assert all(each.exists() for each in files)
    assert disk.lost(files) == []


@pytest.mark.parametrize("change", WRITES, ids=lambda each: each.__name__)
def test_a_file_that_cannot_be_synced_is_not_committed(
    change: Callable[[Lake, Dataset], None], lake: Lake, disk: Disk
) -> None:
    dataset = lake.create_dataset("events", SCHEMA)
    disk.fails = lambda path: path.suffix == ".parquet"
    with pytest.raises(LakelogError, match=r"part-00\d+-.*cannot be made durable \(Input/output error\)"):
        change(lake, dataset)
    assert dataset.version == 0
    # The table is as it was, and takes what is written next.
    disk.fails = lambda path: False
    SqlTxnLogWriter(lake).append(dataset.id, [written(dataset, 7)])
    assert dataset.version == 1


@pytest.mark.parametrize("change", [appended, committed], ids=lambda each: each.__name__)
def test_a_slow_disk_is_no_timeout(
    change: Callable[[Lake, Dataset], None], connect: Callable[..., Lake], disk: Disk
) -> None:
    lake = connect(timeout=1)
    dataset = lake.create_dataset("events", SCHEMA)
    disk.fails = lambda path: path.name == Path(LONG.format(1)).name and time.sleep(1.5) is not None
    change(lake, dataset)
    assert dataset.version == 1


def test_checksums_that_spark_keeps_beside_files_are_durable(lake: Lake, disk: Disk) -> None:
    """It reads no file whose checksum is torn."""
    dataset = lake.create_dataset("events", SCHEMA)
    file = written(dataset, 1)
    place = Path(dataset.location, file.path.replace("%3D", "="))
    checksum = place.with_name(f".{place.name}.crc")
    checksum.write_bytes(b"crc")
    SqlTxnLogWriter(lake).append(dataset.id, [file])
    assert disk.lost([place, checksum]) == []


def test_a_directory_that_cannot_be_synced_holds_the_commit_back(lake: Lake, disk: Disk) -> None:
    dataset = lake.create_dataset("events", SCHEMA)
    disk.fails = lambda path: path == Path(dataset.location).parent
    with pytest.raises(LakelogError, match="cannot be made durable"):
        appended(lake, dataset)
    assert dataset.version == 0


def test_a_table_of_files_that_exist_is_durable(lake: Lake, disk: Disk, tmp_path: Path) -> None:
    directory = tmp_path / "raw" / "below"
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), directory / "a.parquet")
    disk.fails = lambda path: path.suffix == ".parquet"
    with pytest.raises(LakelogError, match="cannot be made durable"):
        lake.register_parquet(tmp_path / "raw", "events")
    assert lake.datasets() == []
    disk.fails = lambda path: False
    dataset = lake.register_parquet(tmp_path / "raw", "events")
    assert disk.lost(files_of(lake, dataset)) == []
    copy = lake.clone(dataset, "copy", shallow=False)
    assert len(files_of(lake, copy)) == 1
    assert disk.lost(files_of(lake, copy)) == []


def test_files_of_a_log_that_is_taken_over_are_durable(lake: Lake, disk: Disk, tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    log = log_at(place)
    write_commit(log, 0, PROTOCOL, METADATA, _theirs(place, 1))
    write_commit(log, 1, _theirs(place, 2))
    disk.fails = lambda path: path.suffix == ".parquet"
    with pytest.raises(LakelogError, match="cannot be made durable"):
        lake.import_delta(place, name="events")
    assert lake.datasets() == []
    disk.fails = lambda path: False
    lake.import_delta(place, name="events", history=True)
    write_commit(log, 2, _theirs(place, 3))
    dataset = lake.dataset("events")
    dataset.adopt()
    assert len(files_of(lake, dataset)) == 3
    assert disk.lost(files_of(lake, dataset)) == []


def test_nobody_waits_for_files_of_a_log_that_is_taken_over(lake: Lake, disk: Disk, tmp_path: Path) -> None:
    place = tmp_path / "theirs"
    log = log_at(place)
    write_commit(log, 0, PROTOCOL, METADATA, _theirs(place, 1))
    lake.import_delta(place, name="events")
    write_commit(log, 1, _theirs(place, 2))
    waited = []

    def write_elsewhere(path: Path) -> bool:
        if path.suffix == ".parquet":
            writer = Thread(target=lake.create_dataset, args=(path.stem, SCHEMA))
            writer.start()
            writer.join(10)
            waited.append(writer.is_alive())
        return False

    disk.fails = write_elsewhere
    lake.dataset("events").adopt()
    assert waited == [False]


def _theirs(place: Path, number: int) -> dict[str, Any]:
    name = f"part-{number:05d}.parquet"
    pq.write_table(pa.table({"id": [number]}), place / name)
    return add(name, size=(place / name).stat().st_size)


def test_relaxed_durability_is_said(connect: Callable[..., Lake], disk: Disk) -> None:
    with pytest.raises(ConfigurationError, match="durability must be one of full, relaxed, not str 'none'"):
        connect(durability="none")
    lake = connect(durability="relaxed")
    dataset = lake.create_dataset("events", SCHEMA)
    for change in (appended, in_bulk):
        disk.synced.clear()
        change(lake, lake.create_dataset(change.__name__, SCHEMA))
        assert not [path for path in disk.synced if path.endswith(".parquet")]
    assert dataset.version == 0


def test_files_that_are_not_there_or_are_no_files_hold_nothing_up(lake: Lake) -> None:
    dataset = lake.create_dataset("events", SCHEMA)
    location = Path(dataset.location)
    location.mkdir(exist_ok=True)
    os.mkfifo(location / "pipe.parquet")
    (location / "loop.parquet").symlink_to("loop.parquet")
    names = ["gone.parquet", "pipe.parquet", "loop.parquet", "pipe.parquet/below.parquet", f"{'n' * 300}.parquet"]
    SqlTxnLogWriter(lake).append(dataset.id, [AddFile(path=name, size=1, modification_time=0) for name in names])
    assert dataset.version == 1


def test_files_that_only_their_writer_can_sync_are_committed_with_a_warning(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = lake.create_dataset("events", SCHEMA)
    files = [written(dataset, number) for number in range(3)]
    opened = os.open

    def refuse(path: Any, *arguments: Any, **options: Any) -> int:
        if str(path).endswith((".parquet", "=")):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return opened(path, *arguments, **options)

    monkeypatch.setattr(os, "open", refuse)
    SqlTxnLogWriter(lake).append(dataset.id, files)
    assert dataset.version == 1
    (message,) = [each.getMessage() for each in caplog.records if "to be synced" in each.getMessage()]
    assert "part-0000" in message
    assert "nor 2 others" in message


@pytest.mark.parametrize("backend", ["sqlite", "duckdb"])
def test_a_new_catalog_and_a_new_mirror_are_named_by_their_directories(
    disk: Disk, tmp_path: Path, backend: str
) -> None:
    """Databases sync the names of their files, and nobody but us those of the directories that we made."""
    file = tmp_path / "new" / "deeper" / "catalog.db"
    with connect(f"{backend}:///{file}", root=tmp_path / "lake") as lake:
        assert [lost for lost in disk.lost([file]) if lost != str(file)] == []
        events = lake.create_dataset("events", SCHEMA)
        first = Path(events.location, "_delta_log", "00000000000000000000.json")
        assert first.exists()
        # It was synced under another name.
        assert [lost for lost in disk.lost([first]) if lost != str(first)] == []
