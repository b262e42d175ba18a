"""What a commit writes: every action in its table, the version, the head, the views."""

import json
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from lakelog import Dataset, Lake, RowGroup, SqlTxnLogWriter
from lakelog.actions import (
    AddFile,
    CdcFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
    from_json,
)
from lakelog.schema import to_delta_json
from tests.contract.samples import OTHER_VECTOR, SCHEMA, VECTOR, add, commit, paths, set_clock, stats, table
from tests.fixtures.lakes import rows
from tests.invariants import check_invariants

FEATURES = ("deletionVectors", "appendOnly", "invariants")


@pytest.fixture
def events(lake: Lake) -> Dataset:
    return table(lake, partition_by=["day"])


def one(lake: Lake, name: str, **equals: Any) -> dict[str, Any]:
    [row] = rows(lake, name, **equals)
    return row


def contains(row: dict[str, Any], **expected: Any) -> bool:
    """Whether the row says this, with the difference in the assertion if it does not."""
    assert {name: row[name] for name in expected} == expected
    return True


def test_a_commit_advances_version_and_head_by_one(lake: Lake, events: Dataset) -> None:
    for version in (1, 2, 3):
        result = commit(lake, events, add(f"{version}.parquet", partition_values={"day": None}))
        assert (result.table_id, result.table, result.version) == (events.id, "events", version)
        assert events.version == version
        assert contains(one(lake, "dl_tables"), current_version=version, committed_at=result.committed_at)
        assert one(lake, "dl_table_versions", version=version)["commit_id"] == result.commit_id
    assert [row["version"] for row in rows(lake, "dl_table_versions")] == [0, 1, 2, 3]
    check_invariants(lake)


def test_a_commit_records_who_did_what(lake: Lake, events: Dataset) -> None:
    result = commit(
        lake,
        events,
        operation="MERGE",
        operation_parameters={"predicate": "id = 'ä\"\\'", "matched": [1, {"deep": None}]},
        committer="etl ' -- ☃",
        extra={"engine": "test", "metrics": {"rows": 2**53}},
    )
    row = one(lake, "dl_table_versions", version=1)
    assert contains(row, table_id=events.id, committed_at=result.committed_at, committer="etl ' -- ☃")
    assert row["operation"] == "MERGE"
    assert json.loads(row["operation_parameters"]) == {"predicate": "id = 'ä\"\\'", "matched": [1, {"deep": None}]}
    assert json.loads(row["extra"]) == {"engine": "test", "metrics": {"rows": 2**53}}
    assert str(uuid.UUID(row["commit_id"])) == result.commit_id


def test_commit_info_says_what_the_arguments_leave_open(lake: Lake, events: Dataset) -> None:
    info = CommitInfo(operation="OPTIMIZE", operation_parameters={"a": 1, "b": 2}, engine_info="x", timestamp=5)
    commit(lake, events, info, operation_parameters={"b": 3})
    row = one(lake, "dl_table_versions", version=1)
    assert row["operation"] == "OPTIMIZE"
    assert json.loads(row["operation_parameters"]) == {"a": 1, "b": 3}
    assert json.loads(row["extra"]) == {"engineInfo": "x"}, "times are the log's to say"


def test_an_added_file_lands_with_all_its_fields(lake: Lake, events: Dataset) -> None:
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("deletionVectors",),
        writer_features=FEATURES,
    )
    text = '{ "numRecords": 3, "minValues":{"id": 1},"maxValues":{"id":9},"nullCount":{"id":0}, "odd": "kept ☃" }'
    file = AddFile(
        path="day=2026-01-31/%C3%A4%20b.parquet",
        size=2**63 - 1,
        partition_values={"day": "2026-01-31"},
        modification_time=1_700_000_000_123,
        data_change=False,
        stats=text,
        tags={"ZCUBE": "x", "none": None},
        deletion_vector=VECTOR,
        base_row_id=7,
        default_row_commit_version=1,
        clustering_provider="liquid",
        extra={"fromTheFuture": {"a": [1, None]}},
    )
    group = RowGroup(path=file.path, row_group=0, row_count=3, byte_size=99, stats='{"numRecords":3}')
    commit(lake, events, protocol, file, row_groups=[group])

    row = one(lake, "dl_add_files")
    assert contains(
        row,
        table_id=events.id,
        version=1,
        ordinal=0,
        path=file.path,
        size=2**63 - 1,
        partition_values='{"day":"2026-01-31"}',
        stats=text,
        row_count=3,
        modification_time=1_700_000_000_123,
        data_change=False,
        base_row_id=7,
        default_row_commit_version=1,
        schema_version=0,
        removed_version=None,
    )
    assert json.loads(row["tags"]) == {"ZCUBE": "x", "none": None}
    assert json.loads(row["deletion_vector"]) == VECTOR.to_dict()
    assert json.loads(row["extra"]) == {"fromTheFuture": {"a": [1, None]}, "clusteringProvider": "liquid"}
    key = {"table_id": events.id, "version": 1, "ordinal": 0}
    assert rows(lake, "row_groups") == [
        {**key, "row_group": 0, "row_count": 3, "byte_size": 99, "stats": '{"numRecords":3}'}
    ]
    assert rows(lake, "partitions") == [{**key, "key": "day", "value": "2026-01-31"}]
    assert {row["column_name"] for row in rows(lake, "column_stats")} == {"id", "day", "name"}
    check_invariants(lake)


def test_a_removed_file_lands_with_all_its_fields_and_closes_the_added_one(lake: Lake, events: Dataset) -> None:
    values = {"day": "2026-01-31"}
    commit(lake, events, add("a.parquet", partition_values=values), add("b.parquet", partition_values=values))
    commit(
        lake,
        events,
        RemoveFile(
            path="b.parquet",
            deletion_timestamp=1_700_000_000_777,
            data_change=False,
            extended_file_metadata=True,
            partition_values=values,
            size=100,
            stats=stats(3, id=(1, 2)),
            tags={"k": "v"},
            base_row_id=1,
            default_row_commit_version=2,
            extra={"later": True},
        ),
    )
    assert rows(lake, "dl_remove_files") == [
        {
            "table_id": events.id,
            "version": 2,
            "ordinal": 0,
            "path": "b.parquet",
            "deletion_timestamp": 1_700_000_000_777,
            "data_change": False,
            "extended_file_metadata": True,
            "partition_values": '{"day":"2026-01-31"}',
            "size": 100,
            "stats": stats(3, id=(1, 2)),
            "tags": '{"k":"v"}',
            "deletion_vector": None,
            "base_row_id": 1,
            "default_row_commit_version": 2,
            "added_version": 1,
            "added_ordinal": 1,
            "extra": '{"later":true}',
        }
    ]
    assert one(lake, "dl_add_files", path="a.parquet")["removed_version"] is None
    assert one(lake, "dl_add_files", path="b.parquet")["removed_version"] == 2
    check_invariants(lake)


def test_a_remove_without_a_time_has_the_commits_own(lake: Lake, events: Dataset) -> None:
    commit(lake, events, add(partition_values={"day": None}))
    result = commit(lake, events, RemoveFile(path="a.parquet"))
    assert contains(one(lake, "dl_remove_files"), deletion_timestamp=result.committed_at, data_change=True)


def test_metadata_lands_with_all_its_fields_and_a_schema_version(lake: Lake, events: Dataset) -> None:
    wider = SCHEMA.append(pa.field("more", pa.float64()))
    metadata = Metadata(
        id="11111111-2222-3333-4444-555555555555",
        schema_string=to_delta_json(wider),
        partition_columns=("day",),
        configuration={"delta.appendOnly": "false", "ä": "ö"},
        name="events",
        description="more of it",
        format_options={"x": "y"},
        created_time=5,
        extra={"kept": 1, "format": {"odd": 2}},
    )
    commit(lake, events, metadata, add(partition_values={"day": None}))
    row = one(lake, "dl_metadata_updates", version=1)
    assert contains(
        row,
        metadata_id=metadata.id,
        name="events",
        description="more of it",
        schema_string=metadata.schema_string,
        partition_columns='["day"]',
        created_time=5,
        schema_version=1,
    )
    assert json.loads(row["configuration"]) == metadata.configuration
    assert json.loads(row["format"]) == {"provider": "parquet", "options": {"x": "y"}}
    assert json.loads(row["extra"]) == {"kept": 1, "format": {"odd": 2}}
    schema = one(lake, "schema_versions", version=1)
    assert schema["introduced_by"] == 1
    assert pa.ipc.read_schema(pa.BufferReader(schema["arrow_schema"])).equals(wider)
    assert one(lake, "dl_add_files")["schema_version"] == 1, "a file belongs to the schema of its own commit"
    assert contains(one(lake, "dl_tables"), metadata_since=1, protocol_since=0)
    assert events.snapshot().metadata == metadata
    assert events.snapshot(version=0).schema.equals(SCHEMA)


def test_metadata_with_the_same_schema_makes_no_new_schema_version(lake: Lake, events: Dataset) -> None:
    snapshot = events.snapshot()
    changed = Metadata(
        id=snapshot.metadata.id,
        schema_string=snapshot.metadata.schema_string,
        partition_columns=("day",),
        configuration={"owner": "ana"},
    )
    commit(lake, events, changed)
    assert [row["schema_version"] for row in rows(lake, "dl_metadata_updates")] == [0, 0]
    assert len(rows(lake, "schema_versions")) == 1


def test_a_protocol_lands_with_its_features(lake: Lake, events: Dataset) -> None:
    protocol = Protocol(
        min_reader_version=3,
        min_writer_version=7,
        reader_features=("deletionVectors",),
        writer_features=FEATURES,
        extra={"odd": [1]},
    )
    commit(lake, events, protocol)
    row = one(lake, "dl_protocol_updates", version=1)
    assert contains(row, table_id=events.id, min_reader_version=3, min_writer_version=7, extra='{"odd":[1]}')
    assert json.loads(row["reader_features"]) == ["deletionVectors"]
    assert json.loads(row["writer_features"]) == list(FEATURES)
    assert contains(one(lake, "dl_tables"), metadata_since=0, protocol_since=1)
    assert events.snapshot().protocol == protocol
    assert events.snapshot(version=0).protocol == Protocol(min_reader_version=1, min_writer_version=2)


def test_an_applications_progress_lands_with_its_commit(lake: Lake, events: Dataset) -> None:
    apps = [
        Txn(app_id="stream ' 1", version=-5, last_updated=77, extra={"k": 1}),
        Txn(app_id="other", version=2**63 - 1),
    ]
    commit(lake, events, *apps)
    key = {"table_id": events.id, "version": 1}
    assert rows(lake, "dl_txn_actions") == [
        {**key, "app_id": "other", "app_version": 2**63 - 1, "last_update": None, "extra": None},
        {**key, "app_id": "stream ' 1", "app_version": -5, "last_update": 77, "extra": '{"k":1}'},
    ]


def test_domains_and_change_data_files_land_with_all_their_fields(lake: Lake, events: Dataset) -> None:
    commit(
        lake,
        events,
        DomainMetadata(domain="app.x", configuration='{"a": 1}', extra={"k": None}),
        DomainMetadata(domain="app.y", configuration="", removed=True),
        CdcFile(path="_change_data/c.parquet", size=5, partition_values={"day": None}, tags={"t": "u"}, extra={"k": 1}),
    )
    key = {"table_id": events.id, "version": 1}
    assert rows(lake, "dl_domain_metadata") == [
        {**key, "domain": "app.x", "configuration": '{"a": 1}', "removed": False, "extra": '{"k":null}'},
        {**key, "domain": "app.y", "configuration": "", "removed": True, "extra": None},
    ]
    assert rows(lake, "dl_cdc_files") == [
        {
            **key,
            "ordinal": 0,
            "path": "_change_data/c.parquet",
            "size": 5,
            "partition_values": '{"day":null}',
            "tags": '{"t":"u"}',
            "extra": '{"k":1}',
        }
    ]


@pytest.mark.parametrize("count", [1, 250], ids=["few", "many"])
def test_unknown_fields_of_json_come_back_from_the_files(lake: Lake, count: int) -> None:
    dataset = table(lake)
    lines = [
        f'{{"add":{{"path":"{n}.parquet","partitionValues":{{}},"size":1,"modificationTime":1,"dataChange":true,'
        f'"futureField":{{"n":{n}}}}}}}'
        for n in range(count)
    ]
    commit(lake, dataset, *map(from_json, lines))
    found = dataset.snapshot().files(columns=["path", "extra"]).to_pylist()
    assert {row["path"]: json.loads(row["extra"]) for row in found} == {
        f"{n}.parquet": {"futureField": {"n": n}} for n in range(count)
    }


def test_a_path_that_is_added_again_closes_the_row_before_it(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add("a.parquet", size=1), add("b.parquet", size=1))
    commit(lake, dataset, add("a.parquet", size=2))
    commit(lake, dataset, add("a.parquet", size=3))

    history = [
        (row["version"], row["size"], row["removed_version"]) for row in rows(lake, "dl_add_files", path="a.parquet")
    ]
    assert history == [(1, 1, 2), (2, 2, 3), (3, 3, None)]
    assert rows(lake, "dl_remove_files") == [], "nobody removed anything"
    for version, size in ((1, 1), (2, 2), (3, 3)):
        files = dataset.snapshot(version=version).files(columns=["path", "size"]).to_pylist()
        assert {row["path"]: row["size"] for row in files} == {"a.parquet": size, "b.parquet": 1}
    check_invariants(lake)


def test_a_removed_path_can_be_added_again(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add())
    commit(lake, dataset, RemoveFile(path="a.parquet"))
    commit(lake, dataset, add())
    live = [paths(dataset.snapshot(version=version).files()) for version in range(4)]
    assert live == [[], ["a.parquet"], [], ["a.parquet"]]
    check_invariants(lake)


def test_a_new_deletion_vector_replaces_the_one_before(lake: Lake) -> None:
    dataset = table(lake)
    commit(lake, dataset, add(stats=stats(3)))
    commit(lake, dataset, RemoveFile(path="a.parquet"), add(stats=stats(3), deletion_vector=VECTOR))
    commit(
        lake,
        dataset,
        RemoveFile(path="a.parquet", deletion_vector=VECTOR),
        add(stats=stats(3), deletion_vector=OTHER_VECTOR),
    )
    vectors = [
        dataset.snapshot(version=version).files(columns=["deletion_vector"]).to_pylist() for version in (1, 2, 3)
    ]
    found = [json.loads(row["deletion_vector"]) if row["deletion_vector"] else None for [row] in vectors]
    assert found == [None, VECTOR.to_dict(), OTHER_VECTOR.to_dict()]
    check_invariants(lake)


def test_a_commit_without_actions_is_a_version(lake: Lake) -> None:
    dataset = table(lake)
    assert commit(lake, dataset, operation="OPTIMIZE").version == 1
    assert dataset.history()[0].operation == "OPTIMIZE"


def test_the_views_say_the_same_in_the_catalogs_words(lake: Lake, events: Dataset) -> None:
    dropped = table(lake, "dropped")
    lake.drop_dataset("dropped")
    values = {"day": None}
    commit(lake, events, add("a.parquet", partition_values=values, stats=stats(3)), committer="ana")
    commit(lake, events, RemoveFile(path="a.parquet"), add("b.parquet", partition_values=values))

    [dataset] = rows(lake, "datasets")
    assert contains(dataset, dataset_id=events.id, name="events", base_uri=events.location, current_version=2)
    transactions = rows(lake, "transactions", dataset_id=events.id)
    assert [row["version"] for row in transactions] == [0, 1, 2]
    assert max(row["version"] for row in transactions) == dataset["current_version"]
    assert contains(transactions[1], operation="WRITE", metadata="{}", committer="ana")
    logged = rows(lake, "dl_table_versions", table_id=events.id)
    assert [datetime.fromisoformat(row["timestamp"]) for row in transactions] == [
        datetime.fromtimestamp(row["committed_at"] / 1000, UTC) for row in logged
    ]
    assert [row["commit_id"] for row in transactions] == [row["commit_id"] for row in logged]
    assert rows(lake, "files") == [
        {
            "file_id": f"{version}-0",
            "dataset_id": events.id,
            "path": path,
            "size": 100,
            "row_count": count,
            "schema_version": 0,
            "added_version": version,
            "removed_version": removed,
        }
        for version, path, count, removed in ((1, "a.parquet", 3, 2), (2, "b.parquet", None, None))
    ]
    assert dropped.id not in {row["dataset_id"] for row in rows(lake, "datasets")}


def test_history_has_every_commit_newest_first(lake: Lake, events: Dataset, reopen: Callable[[Lake], Lake]) -> None:
    results = [
        commit(lake, events, operation=f"OP{n}", operation_parameters={"n": n}, committer="ana", extra={"e": n})
        for n in (1, 2)
    ]
    history = reopen(lake).dataset("events").history()
    assert [entry.version for entry in history] == [2, 1, 0]
    for entry, result in zip(history, reversed(results), strict=False):
        n = result.version
        assert (entry.operation, entry.operation_parameters, entry.extra) == (f"OP{n}", {"n": n}, {"e": n})
        assert (entry.committer, entry.commit_id) == ("ana", result.commit_id)
        assert entry.timestamp == datetime.fromtimestamp(result.committed_at / 1000, UTC)
    assert history[-1].operation == "CREATE TABLE"


def test_a_commit_can_be_found_by_its_id(lake: Lake, events: Dataset, other_lake: Lake) -> None:
    result = commit(lake, events)
    assert other_lake.commit_status(result.commit_id) == [result]
    assert other_lake.commit_status(result.commit_id.upper()) == [result]
    assert other_lake.commit_status(str(uuid.uuid4())) == []


def test_commit_times_strictly_increase_even_if_the_clock_goes_back(
    lake: Lake, events: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = commit(lake, events).committed_at
    for clock in (start + 1000, start + 1000, start - 5_000_000, 0):
        set_clock(monkeypatch, lake, clock)
        commit(lake, events)
    times = [row["committed_at"] for row in rows(lake, "dl_table_versions", table_id=events.id)]
    assert times[1:] == [start, start + 1000, start + 1001, start + 1002, start + 1003]


def test_tables_have_versions_of_their_own(lake: Lake) -> None:
    datasets = [table(lake, name) for name in ("a", "b")]
    for version in (1, 2):
        for dataset in datasets:
            commit(lake, dataset, add(), version=version)
    assert [dataset.version for dataset in datasets] == [2, 2]
    assert [paths(dataset.snapshot().files()) for dataset in datasets] == [["a.parquet"], ["a.parquet"]]
    check_invariants(lake)


def test_a_writer_sees_what_another_handle_committed(lake: Lake, events: Dataset, other_lake: Lake) -> None:
    mine, theirs = SqlTxnLogWriter(lake), SqlTxnLogWriter(other_lake)
    for version in range(1, 5):
        writer = (mine, theirs)[version % 2]
        writer.commit(events.id, version, [add(f"{version}.parquet", partition_values={"day": None})])
    assert events.version == other_lake.dataset("events").version == 4
    assert len(events.snapshot().files()) == 4
