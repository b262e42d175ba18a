"""Values that only a damaged SQLite file gives: the error is ours, and a check finds them."""

import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import apsw
import pytest

import lakelog
from lakelog import DatabaseError, Dataset, Lake, LakelogError
from tests.contract.samples import SCHEMA, add, commit, stats


@pytest.fixture(params=["sqlite"])
def backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    found = lake.create_dataset("events", SCHEMA, partition_by=["name"], mirror=False)
    for number in range(4):
        values = {"name": f"é{number}"}
        bounds = stats(3, id=(number, 2**53 + 1))
        commit(
            lake, found, add(f"name=%C3%A9{number}/part-{number:05d}.parquet", partition_values=values, stats=bounds)
        )
    return found


NOT_UTF8 = "CAST(x'70ff' AS TEXT)"


@pytest.mark.parametrize(
    ("table", "change", "read"),
    [
        ("dl_add_files", f"path = {NOT_UTF8}", lambda dataset: dataset.snapshot().files()),
        ("dl_add_files", "size = 'many'", lambda dataset: dataset.snapshot().files()),
        ("dl_table_versions", f"operation = {NOT_UTF8}", lambda dataset: dataset.history()),
        ("dl_table_versions", "operation_parameters = '{'", lambda dataset: dataset.history()),
    ],
)
def test_a_damaged_value_is_our_error(
    table: str, change: str, read: Callable[[Dataset], object], lake: Lake, dataset: Dataset
) -> None:
    _damage(lake, f"UPDATE {table} SET {change} WHERE version = 2")
    with pytest.raises(DatabaseError, match=r"is damaged.*keep a copy"):
        read(dataset)


@pytest.mark.parametrize(
    ("table", "change", "found"),
    [
        ("dl_add_files", "stats = '{\"numRecords\": 3'", "part-00001.parquet is damaged: statistics: not JSON"),
        ("dl_add_files", "stats = '[1]'", "part-00001.parquet is damaged: statistics: expected a JSON object"),
        ("dl_add_files", "partition_values = '{\"name'", "part-00001.parquet is damaged: partition values"),
        ("column_stats", "max_num = 'low'", "part-00001.parquet"),
    ],
)
def test_a_check_finds_a_damaged_value(table: str, change: str, found: str, lake: Lake, dataset: Dataset) -> None:
    assert lake.check("events", deep=False).findings[4:] == ()  # The four files do not exist.
    _damage(lake, f"UPDATE {table} SET {change} WHERE version = 2")
    findings = [str(each) for each in lake.check("events", deep=False).findings]
    assert any(found in each and "is not there" not in each for each in findings), findings


def test_a_check_finds_a_flipped_byte(lake: Lake, dataset: Dataset, tmp_path: Path) -> None:
    copy = _copy(lake, tmp_path)
    data = copy.read_bytes()
    # In the table, while its index keeps the path as it was.
    assert data.count(b"part-00002.parquet") > 1
    copy.write_bytes(data.replace(b"part-00002.parquet", b"part-00003.parquet", 1))
    with lakelog.connect(f"sqlite:///{copy}", create=False) as damaged:
        findings = damaged.check("events", deep=False).findings
    assert any("the SQLite file is damaged" in each.message for each in findings)


@pytest.mark.parametrize("seed", range(12))
def test_a_damaged_file_raises_nothing_but_our_errors(seed: int, lake: Lake, dataset: Dataset, tmp_path: Path) -> None:
    copy = _copy(lake, tmp_path)
    data, chance = bytearray(copy.read_bytes()), random.Random(seed)
    filled = [place for place, byte in enumerate(data) if byte and place >= 100]
    for place in chance.sample(filled, 40):
        data[place] = chance.choice((0xFF, 0x80, 0x22, 0x7B, data[place] ^ 0x20))
    copy.write_bytes(data)
    for step in _uses(copy):
        with suppress(LakelogError):
            step()


def _uses(copy: Path) -> Iterator[Callable[[], object]]:
    try:
        lake = lakelog.connect(f"sqlite:///{copy}", create=False)
    except LakelogError:
        return
    with lake:
        yield lake.datasets
        try:
            dataset = lake.dataset("events")
        except LakelogError:
            return
        yield dataset.history
        yield dataset.schema
        yield dataset.schema_history
        yield dataset.detail
        yield dataset.mirror_status
        yield lambda: dataset.snapshot().files("id > 2 AND name = 'é2'")
        yield lambda: dataset.snapshot(1).file_groups()
        yield lambda: dataset.changes(0)
        yield lambda: lake.check("events")
        yield lambda: commit(lake, dataset, add("name=z/z.parquet", partition_values={"name": "z"}))


def _copy(lake: Lake, directory: Path) -> Path:
    """The catalog's file as it is after a clean end."""
    lake.close()
    return Path(shutil.copy(_file(lake), directory / "copy.db"))


def _file(lake: Lake) -> str:
    return lake.committer.catalog.url.removeprefix("sqlite://")


def _damage(lake: Lake, statement: str) -> None:
    """Changes rows to what SQLite refuses to store, and damage does not ask."""
    for each in ("UPDATE sqlite_schema SET sql = replace(sql, 'STRICT', '')", statement):
        connection = apsw.Connection(_file(lake))
        connection.execute("PRAGMA writable_schema = ON; PRAGMA ignore_check_constraints = ON")
        connection.execute(each)
        connection.close()
