"""Datasets by name: create, look up, list, rename, drop."""

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lakelog import (
    ConfigurationError,
    DatasetExistsError,
    DatasetNotFoundError,
    Lake,
    LakelogError,
    SqlTxnLogWriter,
    TransactionManager,
    ValidationError,
)
from lakelog.actions import Protocol
from lakelog.schema import from_delta_json
from tests.contract.samples import SCHEMA, add, commit, paths, table
from tests.fixtures.lakes import catalog_rows, execute, qualified, rows

STRANGE_NAMES = [
    "it's",
    'double "quotes"',
    "semi;colon -- comment",
    "%_*?",
    "Robert'); DROP TABLE dl_tables",
    "$name {columns} %s %(name)s",
    "日本語 🦆",
    "ÄÖÜ",
    "a.b.c",
    "`tick`",
    "x" * 255,
    "語" * 85,
]
BAD_NAMES = ["", ".", "..", "a/b", "a\\b", "nul\0", "line\nbreak", "zero\u200bwidth", " left", "right ", "\ud800"]


def test_a_new_dataset_has_version_0_with_protocol_and_metadata(lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"], properties={"owner": "ana"}, description="what happened")

    [head] = rows(lake, "dl_tables")
    assert (head["name"], head["current_version"], head["dropped_at"]) == ("events", 0, None)
    assert (head["metadata_since"], head["protocol_since"]) == (0, 0)
    [version] = rows(lake, "dl_table_versions")
    assert (version["table_id"], version["version"], version["operation"]) == (dataset.id, 0, "CREATE TABLE")
    [metadata] = rows(lake, "dl_metadata_updates")
    assert (metadata["version"], metadata["partition_columns"]) == (0, '["day"]')
    assert (metadata["configuration"], metadata["description"]) == ('{"owner":"ana"}', "what happened")
    assert from_delta_json(metadata["schema_string"]).names == SCHEMA.names
    [protocol] = rows(lake, "dl_protocol_updates")
    assert (protocol["version"], protocol["min_reader_version"], protocol["min_writer_version"]) == (0, 1, 2)
    [schema] = rows(lake, "schema_versions")
    assert (schema["version"], schema["introduced_by"]) == (0, 0)
    assert pa.ipc.read_schema(pa.BufferReader(schema["arrow_schema"])).names == SCHEMA.names


def test_a_new_dataset_reads_back_as_it_was_made(lake: Lake, reopen: Callable[[Lake], Lake]) -> None:
    table(lake, partition_by=["day"], properties={"owner": "ana"})
    snapshot = reopen(lake).dataset("events").snapshot()

    assert snapshot.version == 0
    assert snapshot.schema.equals(SCHEMA)
    assert snapshot.metadata.partition_columns == ("day",)
    assert snapshot.metadata.configuration == {"owner": "ana"}
    assert snapshot.protocol == Protocol(min_reader_version=1, min_writer_version=2)
    assert snapshot.files().num_rows == 0


@pytest.mark.parametrize("unwritable", ["dl_metadata_updates", "dl_protocol_updates", "schema_versions"])
def test_a_dataset_that_could_not_be_created_whole_leaves_nothing(lake: Lake, unwritable: str) -> None:
    name = qualified(lake, unwritable)
    before = catalog_rows(lake)
    execute(lake, f"ALTER TABLE {name} RENAME TO out_of_the_way")
    with pytest.raises(LakelogError, match=unwritable):
        table(lake)
    execute(lake, f"ALTER TABLE {qualified(lake, 'out_of_the_way')} RENAME TO {unwritable}")
    assert catalog_rows(lake) == before
    assert table(lake).version == 0


@pytest.mark.parametrize(("mirror", "configuration"), [(True, {}), (False, "false"), ("fenced", "fenced")])
def test_the_choice_of_a_mirror_is_a_property(lake: Lake, mirror: bool | str, configuration: object) -> None:
    expected = configuration if isinstance(configuration, dict) else {"lakelog.mirror": configuration}
    assert table(lake, mirror=mirror).snapshot().metadata.configuration == expected


def test_datasets_are_listed_by_name_without_the_dropped(lake: Lake) -> None:
    for name in ("b", "c", "a"):
        table(lake, name)
    lake.drop_dataset("b")
    assert [dataset.name for dataset in lake.datasets()] == ["a", "c"]


def test_looking_up_what_is_not_there_names_it(lake: Lake) -> None:
    with pytest.raises(DatasetNotFoundError, match="'nothing'"):
        lake.dataset("nothing")
    for unfit in (None, 7, b"events"):
        with pytest.raises(DatasetNotFoundError):
            lake.dataset(unfit)  # type: ignore[arg-type]


def test_a_renamed_dataset_keeps_its_identity_history_and_location(lake: Lake, other_lake: Lake) -> None:
    handle = table(lake)
    commit(lake, handle, add())
    renamed = other_lake.rename_dataset("events", "visits")

    assert (renamed.id, renamed.location, renamed.version) == (handle.id, handle.location, 1)
    assert paths(handle.snapshot().files()) == ["a.parquet"], "the old handle stays valid"
    with pytest.raises(DatasetNotFoundError):
        lake.dataset("events")
    assert table(lake, "events").location != handle.location


def test_renaming_refuses_a_taken_name_and_a_missing_dataset(lake: Lake) -> None:
    table(lake, "a")
    table(lake, "b")
    before = catalog_rows(lake)
    with pytest.raises(DatasetExistsError, match="'b'"):
        lake.rename_dataset("a", "b")
    with pytest.raises(DatasetNotFoundError, match="'c'"):
        lake.rename_dataset("c", "d")
    with pytest.raises(ValidationError):
        lake.rename_dataset("a", "x/y")
    assert catalog_rows(lake) == before


def test_a_dropped_dataset_leaves_its_rows_as_a_tombstone(lake: Lake, tmp_path: Path) -> None:
    dataset = table(lake)
    commit(lake, dataset, add())
    before = catalog_rows(lake)
    lake.drop_dataset("events")

    after = catalog_rows(lake)
    assert after.pop("dl_tables")[0]["dropped_at"] is not None
    before.pop("dl_tables")
    assert after == before
    assert rows(lake, "datasets") == []


def test_a_name_can_be_used_again_but_its_location_never(lake: Lake) -> None:
    locations = set()
    for _ in range(3):
        dataset = table(lake)
        commit(lake, dataset, add())
        assert paths(dataset.snapshot().files()) == ["a.parquet"], "files of an earlier incarnation do not show"
        locations.add(dataset.location)
        lake.drop_dataset("events")
    assert len(locations) == 3


def test_a_dropped_dataset_refuses_everything_clearly(lake: Lake, other_lake: Lake) -> None:
    dataset = table(lake)
    snapshot = dataset.snapshot()
    commit(lake, dataset, add())
    other_lake.drop_dataset("events")
    before = catalog_rows(lake)

    attempts: list[Callable[[], object]] = [
        lambda: SqlTxnLogWriter(lake).commit(dataset.id, 2, [add("b.parquet")]),
        lambda: SqlTxnLogWriter(lake).commit(dataset.id, 1, [add("b.parquet")]),
        lambda: TransactionManager(lake).begin(dataset.id),
        lambda: lake.drop_dataset("events"),
        lambda: lake.rename_dataset("events", "visits"),
        dataset.snapshot,
        dataset.history,
        lambda: dataset.version,
    ]
    for attempt in attempts:
        with pytest.raises(DatasetNotFoundError, match="events"):
            attempt()
    assert catalog_rows(lake) == before
    assert snapshot.files().num_rows == 0, "a snapshot that was taken before stays valid"


def test_committing_to_an_id_that_never_was_is_an_error(lake: Lake) -> None:
    with pytest.raises(DatasetNotFoundError, match="4711"):
        SqlTxnLogWriter(lake).commit(4711, 1, [add()])
    with pytest.raises(DatasetNotFoundError, match="4711"):
        TransactionManager(lake).begin(4711)


def test_a_taken_name_is_refused(lake: Lake, other_lake: Lake) -> None:
    table(lake)
    before = catalog_rows(lake)
    with pytest.raises(DatasetExistsError, match="'events'"):
        table(other_lake)
    assert catalog_rows(lake) == before


def test_of_two_creators_of_one_name_exactly_one_wins(connect: Callable[..., Lake]) -> None:
    lakes = [connect() for _ in range(4)]
    start = threading.Barrier(len(lakes))
    outcomes: list[object] = []

    def create(lake: Lake) -> None:
        start.wait()
        try:
            outcomes.append(table(lake).version)
        except Exception as error:
            outcomes.append(type(error))

    threads = [threading.Thread(target=create, args=(lake,)) for lake in lakes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes, key=str) == [0, *[DatasetExistsError] * 3]
    assert len(rows(lakes[0], "dl_tables")) == len(rows(lakes[0], "dl_table_versions")) == 1


@pytest.mark.parametrize(
    ("taken", "asked"),
    [
        ("{root}/a", "{root}/a"),
        ("{root}/a", "{root}/a/"),
        ("{root}/a", "{root}/a/b"),
        ("{root}/a/b", "{root}/a"),
        ("{root}/a", "{root}/x/../a"),
        ("s3://bucket/a", "s3://bucket/a/b"),
        ("s3://bucket/a", "s3://bucket/a/"),
    ],
)
def test_a_location_that_overlaps_another_is_refused(lake: Lake, tmp_path: Path, taken: str, asked: str) -> None:
    table(lake, "first", location=taken.format(root=tmp_path), mirror=False)
    lake.drop_dataset("first")
    with pytest.raises(DatasetExistsError, match="overlaps"):
        table(lake, "second", location=asked.format(root=tmp_path), mirror=False)
    table(lake, "third", location=f"{tmp_path}/abc")
    table(lake, "fourth", location="s3://bucket/ab", mirror=False)


@pytest.mark.parametrize("inside", ["events", "events/deeper"])
def test_a_default_location_avoids_what_others_took(lake: Lake, inside: str) -> None:
    other = table(lake, "other", location=f"{lake.root}/{inside}")
    default = table(lake, "events")
    assert not f"{other.location}/".startswith(f"{default.location}/")


def test_a_default_location_inside_of_another_dataset_is_refused(lake: Lake) -> None:
    table(lake, "whole", location=str(lake.root))
    with pytest.raises(DatasetExistsError, match=r"lies below .*, which is a table already"):
        table(lake, "events")


def test_a_place_with_files_of_others_is_not_taken(lake: Lake, tmp_path: Path) -> None:
    """A vacuum would take them for what failed writes have left."""
    theirs = [tmp_path / "theirs" / "a.parquet", Path(str(lake.root)) / "events" / "b.parquet"]
    for file in theirs:
        file.parent.mkdir(parents=True)
        file.touch()
    with pytest.raises(DatasetExistsError, match="register_parquet"):
        table(lake, location=str(tmp_path / "theirs"))
    with pytest.raises(DatasetExistsError, match="register_parquet"):
        lake.clone(table(lake, "source"), "copy", location=str(tmp_path / "theirs"))
    dataset = table(lake, "events")
    assert dataset.location.startswith(f"{lake.root}/events-")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden").touch()
    assert table(lake, "other", location=str(tmp_path / "empty")).location == str(tmp_path / "empty")
    assert all(file.exists() for file in theirs)


@pytest.mark.parametrize("spelling", ["file:{}", "file://{}", "file:///{}", "{}/", "{}/x/.."])
def test_a_location_is_the_same_in_every_spelling(lake: Lake, tmp_path: Path, spelling: str) -> None:
    dataset = table(lake, location=spelling.format(tmp_path / "t"))
    assert dataset.location == str(tmp_path / "t")
    assert lake.dataset_at(spelling.format(tmp_path / "t")) is not None


@pytest.mark.parametrize("location", ["s3:/bucket/a", "hdfs:/a"])
def test_a_uri_that_lacks_a_slash_is_not_a_path(lake: Lake, location: str) -> None:
    with pytest.raises(ConfigurationError, match="neither a path nor a URI"):
        table(lake, location=location, mirror=False)


def test_an_empty_location_is_refused(lake: Lake) -> None:
    with pytest.raises(ConfigurationError, match="empty"):
        table(lake, location="")


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_a_name_may_hold_what_means_something_to_sql(lake: Lake, name: str) -> None:
    dataset = table(lake, name)
    commit(lake, dataset, add())
    assert lake.dataset(name).name == name
    assert lake.rename_dataset(name, name[:-1] + "~").name == name[:-1] + "~"
    lake.rename_dataset(name[:-1] + "~", name)
    assert [each.name for each in lake.datasets()] == [name]
    last = Path(dataset.location).name
    assert len(last.encode()) <= 255, "a directory of that name can be made"
    assert Path(dataset.location).parent == Path(str(lake.root))
    lake.drop_dataset(name)
    assert lake.datasets() == []


def test_a_name_that_people_cannot_see_or_that_is_a_path_is_refused(lake: Lake) -> None:
    for name in (*BAD_NAMES, "é" * 128, 7, None):
        with pytest.raises(ValidationError, match="dataset name"):
            table(lake, name)  # type: ignore[arg-type]
    assert rows(lake, "dl_tables") == []


def test_names_differ_by_unicode_form(lake: Lake) -> None:
    names = ["caf\u00e9", "cafe\u0301"]
    locations = {table(lake, name).location for name in names}
    assert sorted(dataset.name for dataset in lake.datasets()) == sorted(names)
    assert len(locations) == 2


@pytest.mark.parametrize(
    "options",
    [
        {"schema": {"id": "int"}},
        {"partition_by": ["nothing"]},
        {"partition_by": "day"},
        {"partition_by": ["day", "day"]},
        {"partition_by": ["id", "day", "name"]},
        {"mirror": "maybe"},
        {"properties": {"owner": 7}},
        {"properties": {"owner": "\0"}},
        {"schema": pa.schema([("a", pa.int64()), ("A", pa.int64())])},
        {"schema": pa.schema([("time", pa.duration("us"))])},
    ],
    ids=str,
)
def test_a_dataset_that_makes_no_sense_is_refused_before_anything_is_written(
    lake: Lake, options: dict[str, object]
) -> None:
    before = catalog_rows(lake)
    with pytest.raises(ValidationError):
        table(lake, **options)
    assert catalog_rows(lake) == before
