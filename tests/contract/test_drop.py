"""Drop, rename and undrop, while somebody else gives the same names to other datasets."""

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from lakelog import ConcurrencyError, Dataset, DatasetExistsError, DatasetNotFoundError, Lake, ValidationError
from lakelog.actions import RemoveFile
from lakelog.upkeep import vacuum
from tests.contract.samples import add, commit, paths, table
from tests.invariants import check_invariants


def _before_the_lock(lake: Lake, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Somebody acts once when the name is resolved and no lock is held yet."""
    catalog = lake.committer.catalog
    begin = catalog.begin

    def begin_late(*arguments: Any, **options: Any) -> Any:
        monkeypatch.undo()
        act()
        return begin(*arguments, **options)

    monkeypatch.setattr(catalog, "begin", begin_late)


def _swap(other: Lake) -> None:
    other.rename_dataset("a", "a_backup")
    table(other, "a", mirror=False)


CHANGES: dict[str, Callable[[Lake], object]] = {
    "drop": lambda lake: lake.drop_dataset("a"),
    "rename": lambda lake: lake.rename_dataset("a", "b"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_dataset_that_is_renamed_meanwhile_is_left_alone(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    original = table(lake, "a", mirror=False)
    commit(lake, original, add())
    _before_the_lock(lake, monkeypatch, lambda: _swap(other_lake))
    with pytest.raises(ConcurrencyError, match=r"'a' .*'a_backup'.*[Nn]othing was changed"):
        CHANGES[change](lake)
    assert set(lake.versions()) == {"a", "a_backup"}
    assert lake.dataset("a_backup").id == original.id
    assert paths(lake.dataset("a_backup").snapshot().files()) == ["a.parquet"]
    check_invariants(lake)


@pytest.mark.parametrize("change", CHANGES)
def test_a_dataset_that_is_dropped_meanwhile_is_not_found(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    table(lake, "a", mirror=False)

    def replace() -> None:
        other_lake.drop_dataset("a")
        table(other_lake, "a", mirror=False)

    _before_the_lock(lake, monkeypatch, replace)
    with pytest.raises(DatasetNotFoundError, match="was dropped"):
        CHANGES[change](lake)
    assert list(lake.versions()) == ["a"]


def _filled(lake: Lake, name: str, file: str = "a.parquet", **options: Any) -> Dataset:
    """A dataset with a file that is really there."""
    dataset = table(lake, name, **options)
    place = Path(dataset.location, file)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(bytes(100))
    commit(lake, dataset, add(file))
    return dataset


def test_a_dropped_dataset_comes_back_with_its_history(lake: Lake, other_lake: Lake) -> None:
    original = _filled(lake, "Orders")
    lake.drop_dataset("Orders")
    with pytest.raises(DatasetNotFoundError):
        other_lake.dataset("orders")
    back = other_lake.undrop_dataset("orders")
    assert (back.id, back.name) == (original.id, "Orders")
    assert paths(lake.dataset("orders").snapshot().files()) == ["a.parquet"]
    assert [entry.version for entry in lake.dataset("Orders").history()] == [1, 0]
    assert commit(lake, back, add("b.parquet")).version == 2
    assert back.mirror_status().published == 2
    check_invariants(lake)
    with pytest.raises(DatasetNotFoundError, match="was dropped"):
        lake.undrop_dataset("Orders")


def test_the_last_one_that_was_dropped_comes_back_first(lake: Lake) -> None:
    ids = []
    for file in ("a.parquet", "b.parquet"):
        ids.append(_filled(lake, "a", file, mirror=False).id)
        lake.drop_dataset("a")
    assert lake.undrop_dataset("a").id == ids[1]
    with pytest.raises(DatasetExistsError, match="'a'"):
        lake.undrop_dataset("a")
    with pytest.raises(DatasetExistsError, match="'a'"):
        lake.undrop_dataset("a", "A")
    assert lake.undrop_dataset("a", "older").id == ids[0]
    assert list(lake.versions()) == ["a", "older"]
    check_invariants(lake)


def test_a_dataset_whose_files_are_gone_stays_dropped(lake: Lake) -> None:
    dataset = _filled(lake, "a", mirror=False)
    lake.drop_dataset("a")
    Path(dataset.location, "a.parquet").unlink()
    with pytest.raises(ValidationError, match=r"(?s)a\.parquet.*does not exist.*stays dropped"):
        lake.undrop_dataset("a")
    assert lake.versions() == {}


@pytest.fixture
def clone_of_removed(lake: Lake) -> Path:
    """A file that its dataset has removed for long, and that only a dropped clone ``copy`` of it still names."""
    source = _filled(lake, "source", mirror=False)
    lake.clone(source, "copy", properties={"lakelog.mirror": "false"})
    commit(lake, source, RemoveFile(path="a.parquet"))
    lake.drop_dataset("copy")
    return Path(source.location, "a.parquet")


def test_a_clone_does_not_come_back_while_a_vacuum_deletes_its_files(
    lake: Lake, other_lake: Lake, clone_of_removed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete = vacuum._delete

    def delete_late(doomed: Mapping[str, Any]) -> dict[str, str]:
        with pytest.raises(ConcurrencyError, match=r"a vacuum of .* stays dropped"):
            other_lake.undrop_dataset("copy")
        return delete(doomed)

    monkeypatch.setattr(vacuum, "_delete", delete_late)
    assert lake.dataset("source").vacuum(0, force=True).files == 1
    assert not clone_of_removed.exists()
    with pytest.raises(ValidationError, match=r"(?s)does not exist.*stays dropped"):
        lake.undrop_dataset("copy")
    assert list(lake.versions()) == ["source"]


def test_a_vacuum_leaves_the_files_of_a_clone_that_came_back_meanwhile(
    lake: Lake, other_lake: Lake, clone_of_removed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce = vacuum._Vacuum._announce

    def announce_late(self: Any, oldest: int) -> str:
        other_lake.undrop_dataset("copy")
        return announce(self, oldest)

    monkeypatch.setattr(vacuum._Vacuum, "_announce", announce_late)
    assert lake.dataset("source").vacuum(0, force=True).files == 0
    assert clone_of_removed.exists()
    assert paths(lake.dataset("copy").snapshot().files()) == [clone_of_removed.as_uri()]
    check_invariants(lake)


def test_a_vacuum_that_has_ended_or_died_keeps_no_clone_from_coming_back(
    lake: Lake, clone_of_removed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(doomed: Mapping[str, Any]) -> dict[str, str]:
        raise OSError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(vacuum, "_delete", fail)
        with pytest.raises(OSError, match="the disk is gone"):
            lake.dataset("source").vacuum(0, force=True)
    assert lake.undrop_dataset("copy").version == 0
    assert clone_of_removed.exists()


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_dataset_that_somebody_else_brought_back_is_left_alone(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    dataset = _filled(lake, "a", mirror=False)
    lake.drop_dataset("a")
    _before_the_lock(lake, monkeypatch, lambda: other_lake.undrop_dataset("a", name))
    with pytest.raises(ConcurrencyError, match="Nothing was changed"):
        lake.undrop_dataset("a")
    assert list(lake.versions()) == [name]
    assert lake.dataset(name).id == dataset.id


@pytest.mark.parametrize("backend", ["postgres"])
def test_a_clone_and_a_new_name_of_its_source_do_not_wait_for_each_other(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clone has the name and wants the source's lock; who renames the source to that name has it the other way."""
    source = table(lake, "source", mirror=False)
    write = lake.committer.write
    with ThreadPoolExecutor(1) as thread:
        renamed: list[Any] = []

        def write_late(*arguments: Any) -> Any:
            renamed.append(thread.submit(other_lake.rename_dataset, "source", "copy"))
            # It cannot end before the clone does.
            with pytest.raises(TimeoutError):
                renamed[0].result(1)
            return write(*arguments)

        monkeypatch.setattr(lake.committer, "write", write_late)
        lake.clone(source, "copy")
        with pytest.raises(DatasetExistsError):
            renamed[0].result(30)
    assert set(lake.versions()) == {"source", "copy"}
