"""Clones: a dataset that begins as another one was, and goes its own way."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog import (
    ConcurrencyError,
    Dataset,
    DatasetExistsError,
    Lake,
    LakelogError,
    TransactionManager,
    ValidationError,
)
from lakelog.actions import Action, AddFile, DeletionVector, RemoveFile
from lakelog.log.deletion_vectors import vectors_of
from lakelog.storage.uris import Storage, root_uri, uri_of
from tests.contract.evolution import SCHEMA, data, ids
from tests.contract.samples import add, commit, paths, stats, table
from tests.contract.upkeep_tables import only_path
from tests.fixtures.vectors import delete
from tests.invariants import check_invariants
from tests.parquet import write

FORMS = pytest.mark.parametrize("shallow", [True, False], ids=["shallow", "deep"])


def numbers(dataset: Dataset, version: int | None = None) -> list[int]:
    """The ids of all files, wherever they lie, without those that deletion vectors delete."""
    storage = Storage()
    files = dataset.snapshot(version).files()
    found = []
    for path, vector in zip(
        files.column("path").to_pylist(), vectors_of(files, root_uri(dataset.location)), strict=True
    ):
        system, place = storage.at(uri_of(dataset.location, path))
        values = pq.read_table(place, filesystem=system).column("id").to_pylist()
        gone = (
            set()
            if vector is None
            else set(vector.read(lambda uri: storage.at(uri)[0].open_input_file(storage.at(uri)[1])).tolist())
        )
        found += [value for index, value in enumerate(values) if index not in gone]
    return sorted(found)


def filled(lake: Lake, **options: Any) -> Dataset:
    dataset = lake.create_dataset("a b", SCHEMA, **options)
    write(lake, dataset, data(id=ids(1, 2), name=["a", "b"]))
    write(lake, dataset, data(id=ids(3), name=["c"]))
    return dataset


def marked(lake: Lake, *, in_log: bool = False) -> Dataset:
    """A file with rows 1, 2 and 3, of which a vector deletes the second."""
    dataset = lake.create_dataset("a b", SCHEMA, properties={"delta.enableDeletionVectors": "true"})
    place = Path(dataset.location, "a.parquet")
    place.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(data(id=ids(1, 2, 3), name=["a", "b", "c"]), place)
    commit(lake, dataset, add(place.name, size=place.stat().st_size, stats=stats(3, id=(1, 3))))
    delete(lake, dataset, "id", {2}, in_log=in_log)
    return dataset


@FORMS
def test_a_clone_begins_as_its_source_was(lake: Lake, shallow: bool) -> None:
    source = filled(lake, properties={"user.key": "x"})
    source.set_comment("name", "who")
    clone = lake.clone("a b", "copy", 1, shallow=shallow, properties={"more": "y"})
    assert (clone.version, numbers(clone)) == (0, [1, 2])
    snapshot = clone.snapshot()
    assert snapshot.schema.equals(source.schema(1), check_metadata=True)
    assert snapshot.metadata.configuration == {"user.key": "x", "more": "y"}
    assert snapshot.metadata.id != source.snapshot().metadata.id
    assert clone.location != source.location
    assert numbers(lake.clone(source, "newest", shallow=shallow)) == [1, 2, 3]
    check_invariants(lake)


@FORMS
def test_the_history_says_it_in_deltas_words(lake: Lake, shallow: bool) -> None:
    source = filled(lake)
    size = sum(source.snapshot().files().column("size").to_pylist())
    (entry,) = lake.clone(source, "copy", shallow=shallow).history()
    assert entry.operation == "CLONE"
    assert entry.operation_parameters == {"source": "a b", "sourceVersion": 2, "isShallow": shallow}
    assert entry.extra["operationMetrics"] == {
        "sourceTableSize": str(size),
        "sourceNumOfFiles": "2",
        "numRemovedFiles": "0",
        "removedFilesSize": "0",
        "numCopiedFiles": "0" if shallow else "2",
        "copiedFilesSize": "0" if shallow else str(size),
    }


def test_a_shallow_clone_names_its_sources_files_by_where_they_are(lake: Lake) -> None:
    source = filled(lake)
    clone = lake.clone(source, "copy")
    expected = {str(file) for file in Path(source.location).glob("*.parquet")}
    assert {unquote(urlsplit(path).path) for path in paths(clone.snapshot().files())} == expected
    assert not list(Path(clone.location).rglob("*.parquet"))
    again = lake.clone(clone, "copy of a copy")
    assert paths(again.snapshot().files()) == paths(clone.snapshot().files())


@FORMS
def test_each_goes_its_own_way(lake: Lake, shallow: bool) -> None:
    source = filled(lake)
    clone = lake.clone(source, "copy", shallow=shallow)
    write(lake, clone, data(id=ids(10), name=["own"]))
    write(lake, source, data(id=ids(20), name=["other"]))
    first = paths(clone.snapshot(0).files())
    commit(lake, clone, RemoveFile(path=first[0]))
    clone.rename_column("name", "title")
    assert (len(numbers(clone)), numbers(source)) == (4 - len(_ids(clone, first[0])), [1, 2, 3, 20])
    clone.restore(1)
    assert numbers(clone) == [1, 2, 3, 10]
    assert clone.schema().names == ["id", "name"]
    check_invariants(lake)


def _ids(dataset: Dataset, path: str) -> list[int]:
    system, place = Storage().at(uri_of(dataset.location, path))
    return pq.read_table(place, filesystem=system).column("id").to_pylist()  # type: ignore[no-any-return]


@FORMS
@pytest.mark.parametrize("in_log", [False, True])
def test_deletion_vectors_come_along(lake: Lake, shallow: bool, in_log: bool) -> None:
    source = marked(lake, in_log=in_log)
    clone = lake.clone(source, "copy", shallow=shallow)
    assert numbers(clone) == [1, 3]
    if not shallow:
        for file in Path(source.location).rglob("*.*"):
            file.unlink()
        assert numbers(clone) == [1, 3]
    (file,) = clone.snapshot().files().to_pylist()
    old = DeletionVector.from_json(file["deletion_vector"])
    actions: list[Action] = [
        RemoveFile(path=file["path"], deletion_vector=old),
        AddFile(path=file["path"], size=file["size"], modification_time=0, stats=file["stats"]),
    ]
    commit(lake, clone, *actions)
    if not shallow:
        assert numbers(clone) == [1, 2, 3]
    check_invariants(lake)


@FORMS
def test_partitions_and_statistics_come_along(lake: Lake, shallow: bool) -> None:
    source = table(lake, "source", partition_by=["day"])
    for number, day in enumerate(("2026-01-01", "2026-01-02")):
        path = f"day={day}/{number}.parquet"
        place = Path(source.location, path)
        place.parent.mkdir(parents=True)
        place.write_bytes(b"rows")
        bounds = stats(3, id=(number * 10, number * 10 + 9))
        commit(lake, source, add(path, size=4, partition_values={"day": day}, stats=bounds))
    clone = lake.clone(source, "copy", shallow=shallow)
    assert clone.snapshot().metadata.partition_columns == ("day",)
    for condition in ("day = DATE'2026-01-02'", "id > 15"):
        (kept,) = paths(clone.snapshot().files(condition))
        assert kept.endswith("day=2026-01-02/1.parquet")
    check_invariants(lake)


def test_files_of_older_schemas_are_read_as_the_newest(lake: Lake) -> None:
    source = filled(lake)
    source.widen_column("id", pa.int64())
    source.rename_column("name", "title")
    write(lake, source, data(id=pa.array([1 << 40]), title=["wide"]))
    clone = lake.clone(source, "copy")
    assert numbers(clone) == [1, 2, 3, 1 << 40]
    assert clone.schema().equals(source.schema(), check_metadata=True)
    assert [group.native for group in clone.snapshot().file_groups()] == [True]
    check_invariants(lake)


def test_files_that_need_their_history_are_refused(lake: Lake) -> None:
    source = filled(lake, mirror=False)
    write(lake, source, data(id=["text"], name=["x"]), schema_merge=True, promote_to_string=True)
    with pytest.raises(LakelogError, match=r"became text.*optimize"):
        lake.clone(source, "copy")
    assert [each.name for each in lake.datasets()] == ["a b"]


def test_a_name_that_is_taken_is_replaced_only_if_asked(lake: Lake) -> None:
    source, other = filled(lake), table(lake, "taken")
    commit(lake, other, add("old"))
    with pytest.raises(DatasetExistsError, match="replace=True"):
        lake.clone(source, "taken")
    clone = lake.clone(source, "taken", replace=True)
    assert (clone.id, clone.version, numbers(clone)) == (other.id, 2, [1, 2, 3])
    assert clone.schema().equals(source.schema(), check_metadata=True)
    assert paths(clone.snapshot(1).files()) == ["old"]
    assert clone.history(1)[0].extra["operationMetrics"]["numRemovedFiles"] == "1"
    assert clone.snapshot().metadata.id == other.snapshot(1).metadata.id
    again = lake.clone(source, "new", replace=True)
    assert (again.version, numbers(again)) == (0, [1, 2, 3])
    with pytest.raises(ValidationError, match="restore"):
        lake.clone(source, "a b", replace=True)
    check_invariants(lake)


@FORMS
def test_a_clone_is_made_anew_as_its_source_changes(lake: Lake, shallow: bool) -> None:
    source = filled(lake)
    clone = lake.clone(source, "copy", shallow=shallow)
    write(lake, source, data(id=ids(4), name=["d"]))
    first = only_path(source, 1)
    commit(lake, source, RemoveFile(path=first))
    lake.clone(source, "copy", replace=True, shallow=shallow)
    assert (clone.version, numbers(clone), numbers(clone, 0)) == (1, [3, 4], [1, 2, 3])
    metrics = clone.history(1)[0].extra["operationMetrics"]
    # Of a shallow clone, what both have stays as it is.
    assert metrics["numRemovedFiles"] == ("1" if shallow else "2")
    lake.clone(source, "copy", replace=True, shallow=shallow)
    assert numbers(clone) == [3, 4]
    check_invariants(lake)


def test_a_file_that_has_another_deletion_vector_by_now_is_another_one(lake: Lake) -> None:
    source = marked(lake)
    clone = lake.clone(source, "copy")
    delete(lake, source, "id", {3})
    lake.clone(source, "copy", replace=True)
    assert (numbers(clone), numbers(clone, 0)) == ([1], [1, 3])
    check_invariants(lake)


@pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "plain"])
def test_what_a_table_is_published_by_stays_when_it_becomes_a_clone(lake: Lake, mapped: bool) -> None:
    properties = {"delta.columnMapping.mode": "name"} if mapped else {}
    source = filled(lake, mirror=False, properties=properties)
    target = table(lake, "target", properties=properties)
    for number in range(3) if mapped else ():
        target.add_column(f"c{number}", pa.int64())
    largest = target.snapshot().metadata.configuration.get("delta.columnMapping.maxColumnId")
    lake.clone(source, "target", replace=True)
    configuration = target.snapshot().metadata.configuration
    assert "lakelog.mirror" not in configuration
    assert configuration.get("delta.columnMapping.maxColumnId") == largest
    assert target.mirror_status().state == "published"
    assert target.mirror_status().published == target.version
    check_invariants(lake)


@pytest.mark.parametrize("replaces", [False, True])
@pytest.mark.parametrize(
    "properties",
    [{"delta.columnMapping.mode": "none"}, {"delta.constraints.big": "id > 100"}, {"delta.minReaderVersion": "3"}],
    ids=str,
)
def test_a_clone_does_not_get_what_its_files_do_not_keep(lake: Lake, properties: Any, replaces: bool) -> None:
    source = filled(lake, properties={"delta.columnMapping.mode": "name"})
    if replaces:
        table(lake, "copy")
    before = lake.versions()
    with pytest.raises(ValidationError, match=next(iter(properties))):
        lake.clone(source, "copy", replace=replaces, properties=properties)
    assert lake.versions() == before


@FORMS
def test_a_vacuum_of_the_source_keeps_what_its_clones_need(lake: Lake, shallow: bool) -> None:
    source = filled(lake)
    clone = lake.clone(source, "copy", shallow=shallow)
    commit(lake, source, *(RemoveFile(path=path) for path in paths(source.snapshot().files())))
    source.vacuum(0, force=True)
    clone.vacuum(0, force=True)
    assert numbers(clone) == [1, 2, 3]


@pytest.mark.parametrize("replaces", [False, True], ids=["new", "replaced"])
def test_a_clone_that_a_vacuum_of_its_source_overtakes_is_refused(
    lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch, replaces: bool
) -> None:
    """It has seen the files of an old version, which go before it is committed."""
    source = filled(lake)
    commit(lake, source, *(RemoveFile(path=path) for path in paths(source.snapshot().files())))
    if replaces:
        table(lake, "copy")
    with monkeypatch.context() as patched:
        begin = lake.committer.catalog.begin

        def begun(*arguments: Any, **options: Any) -> Any:
            patched.undo()
            assert other_lake.dataset(source.name).vacuum(0, force=True).removed == 2
            return begin(*arguments, **options)

        patched.setattr(lake.committer.catalog, "begin", begun)
        with pytest.raises(ValidationError, match="of version 2: may be vacuumed"):
            lake.clone(source, "copy", version=2, replace=replaces)
    assert ("copy" in lake.versions()) == replaces
    assert numbers(lake.clone(source, "now")) == []
    check_invariants(lake)


def test_a_thread_that_would_wait_for_its_own_lock_is_told(lake: Lake) -> None:
    source = filled(lake)
    with TransactionManager(lake).begin(source.id), pytest.raises(LakelogError, match="would wait for itself"):
        lake.clone(source, "copy")
    assert numbers(lake.clone(source, "copy")) == [1, 2, 3]


def test_files_of_the_same_name_are_both_copied(lake: Lake) -> None:
    source = lake.create_dataset("source", SCHEMA)
    for number in (1, 2):
        path = f"__w={number}=/part.parquet"
        place = Path(source.location, path)
        place.parent.mkdir(parents=True)
        pq.write_table(data(id=ids(number), name=["a"]), place)
        commit(lake, source, add(path, size=place.stat().st_size))
    clone = lake.clone(lake.clone(source, "shallow"), "deep", shallow=False)
    assert numbers(clone) == numbers(lake.clone(source, "direct", shallow=False)) == [1, 2]
    assert len(list(Path(clone.location).rglob("*.parquet"))) == 2


def test_a_deep_clone_that_fails_leaves_nothing(lake: Lake) -> None:
    source = filled(lake)
    (Path(source.location) / paths(source.snapshot().files())[0]).unlink()
    with pytest.raises(LakelogError, match="is gone"):
        lake.clone(source, "copy", shallow=False)
    assert [each.name for each in lake.datasets()] == ["a b"]
    assert not list(Path(lake.new_location("copy")).rglob("*.parquet"))


def test_a_file_that_cannot_be_copied_leaves_nothing(lake: Lake) -> None:
    source = table(lake, "source", schema=SCHEMA)
    commit(lake, source, add(f"{'x' * 300}.parquet"))
    with pytest.raises(LakelogError, match=r"cannot be copied.*nothing was changed.*too long"):
        lake.clone(source, "copy", shallow=False)
    assert list(lake.versions()) == ["source"]


def test_a_clone_of_another_catalog_is_a_clone_too(lake: Lake, tmp_path: Path) -> None:
    import lakelog

    source = filled(lake)
    with lakelog.connect(f"sqlite:///{tmp_path}/other.db", root=tmp_path / "elsewhere") as other:
        clone = other.clone(source, "copy")
        assert numbers(clone) == [1, 2, 3]
        check_invariants(other)


def test_a_replacement_is_no_lost_update(lake: Lake, other_lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = filled(lake), table(lake, "taken")
    read = Dataset.snapshot

    def overtaken(self: Dataset, *arguments: Any) -> Any:
        found = read(self, *arguments)
        if self.id == target.id:
            monkeypatch.undo()
            commit(other_lake, target, add("new"))
        return found

    monkeypatch.setattr(Dataset, "snapshot", overtaken)
    with pytest.raises(ConcurrencyError):
        lake.clone(source, "taken", replace=True)
    assert paths(target.snapshot().files()) == ["new"]


def test_absolute_paths_are_still_nobodys_else(lake: Lake) -> None:
    source = filled(lake)
    clone = lake.clone(source, "copy")
    with pytest.raises(ValidationError, match="absolute"):
        commit(lake, clone, add(json.loads(json.dumps(paths(clone.snapshot().files())[0] + "x"))))
