"""Input that is wrong is refused whole, with everything that is wrong with it, and nothing is locked for it."""

from typing import Any

import pytest

from lakelog import Dataset, Lake, RowGroup, SqlTxnLogWriter, TransactionManager, ValidationError
from lakelog.actions import (
    Action,
    AddFile,
    CdcFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from lakelog.schema import to_delta_json
from tests.contract.samples import OTHER_VECTOR, SCHEMA, VECTOR, add, commit, messages, stats, table
from tests.fixtures.lakes import catalog_rows, rows

METADATA = Metadata(id="x", schema_string=to_delta_json(SCHEMA))

STATELESS: dict[str, list[Action]] = {
    "no path": [add(None)],
    "empty path": [add("")],
    "path out of the table": [add("../a.parquet")],
    "escaped path out of the table": [add("%2e%2e/a.parquet")],
    "twice escaped path": [add("%252e%252e/a.parquet")],
    "absolute path": [add("/etc/passwd")],
    "foreign path": [add("s3://bucket/a.parquet")],
    "the log's own directory": [add("_delta_log/00000000000000000001.json")],
    "backslash": [add("a\\b.parquet")],
    "NUL": [add("a\0.parquet")],
    "lone surrogate": [add("\ud800.parquet")],
    "oversize path": [add("x" * 5000)],
    "negative size": [add(size=-1)],
    "boolean size": [add(size=True)],
    "float size": [add(size=1.5)],
    "too large size": [add(size=2**63)],
    "no partition values": [add(partition_values=None)],
    "number as a partition value": [add(partition_values={"day": 1})],
    "statistics that are not JSON": [add(stats="{")],
    "statistics with NaN": [add(stats='{"numRecords": NaN}')],
    "statistics with a key twice": [add(stats='{"numRecords": 1, "numRecords": 2}')],
    "statistics that contradict themselves": [add(stats=stats(1, id=(9, 1)))],
    "more nulls than rows": [add(stats='{"numRecords": 1, "nullCount": {"id": 2}}')],
    "negative row count": [add(stats='{"numRecords": -1}')],
    "a surrogate in a tag": [add(tags={"k": "\udfff"})],
    "infinity beyond the known fields": [add(extra={"k": float("inf")})],
    "a known field beyond the known fields": [add(extra={"path": "b.parquet"})],
    "a file added twice": [add(), add()],
    "a file added twice in two spellings": [add("a.parquet"), add("%61.parquet")],
    "a file removed twice": [RemoveFile(path="a.parquet"), RemoveFile(path="a.parquet")],
    "a file added and removed": [add(), RemoveFile(path="a.parquet")],
    "a deletion vector without a row count": [add(deletion_vector=VECTOR)],
    "a deletion vector of more rows than there are": [add(stats=stats(1), deletion_vector=VECTOR)],
    "metadata twice": [METADATA, METADATA],
    "metadata with a schema that is none": [Metadata(id="x", schema_string="{}")],
    "metadata partitioned by what is not there": [
        Metadata(id="x", schema_string=METADATA.schema_string, partition_columns=("nothing",))
    ],
    "protocol twice": [Protocol(min_reader_version=1, min_writer_version=2)] * 2,
    "an unknown protocol version": [Protocol(min_reader_version=9, min_writer_version=9)],
    "an unknown feature": [
        Protocol(min_reader_version=1, min_writer_version=7, writer_features=("appendOnly", "flyingCars"))
    ],
    "an application twice": [Txn(app_id="a", version=1), Txn(app_id="a", version=2)],
    "an application without a name": [Txn(app_id="", version=1)],
    "a domain of Delta's own": [DomainMetadata(domain="delta.nothing", configuration="")],
    "change data that is data": [CdcFile(path="_change_data/a", size=1, data_change=True)],
    "commit info twice": [CommitInfo(), CommitInfo()],
    "no action": [{"add": {"path": "a"}}],
}
MISUSE: dict[str, dict[str, Any]] = {
    "version as text": {"version": "1"},
    "version none": {"version": None},
    "version true": {"version": True},
    "version in parts": {"version": 1.0},
    "version below zero": {"version": -1},
    "version too large": {"version": 2**63},
    "table by name": {"table_id": "events"},
    "no actions": {"actions": None},
    "actions as text": {"actions": "add"},
    "actions as a mapping": {"actions": {"add": {}}},
    "operation empty": {"operation": ""},
    "operation missing": {"operation": None},
    "operation too long": {"operation": "x" * 256},
    "parameters as text": {"operation_parameters": "x"},
    "parameters with NaN": {"operation_parameters": {"x": float("nan")}},
    "parameters with other keys": {"operation_parameters": {1: 2}},
    "committer with NUL": {"committer": "a\0b"},
    "extra with an object": {"extra": {"x": object()}},
    "row groups none": {"row_groups": None},
    "row group of another kind": {"row_groups": [{"path": "a.parquet"}]},
}
ROW_GROUPS: dict[str, list[RowGroup]] = {
    "without a number": [RowGroup(path="a.parquet", row_group=None, row_count=1)],
    "number too large": [RowGroup(path="a.parquet", row_group=2**31, row_count=1)],
    "rows as text": [RowGroup(path="a.parquet", row_group=0, row_count="1")],
    "rows too many": [RowGroup(path="a.parquet", row_group=0, row_count=2**63)],
    "size below zero": [RowGroup(path="a.parquet", row_group=0, row_count=1, byte_size=-1)],
    "statistics that are not JSON": [RowGroup(path="a.parquet", row_group=0, row_count=1, stats="\x02")],
    "of another file": [RowGroup(path="b.parquet", row_group=0, row_count=1)],
    "twice": [RowGroup(path="a.parquet", row_group=0, row_count=1)] * 2,
    "with another sum than the file": [RowGroup(path="a.parquet", row_group=0, row_count=2)],
}


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    return table(lake)


def test_every_invalid_action_is_refused_and_changes_nothing(lake: Lake, dataset: Dataset) -> None:
    before = catalog_rows(lake)
    for case, actions in STATELESS.items():
        with pytest.raises(ValidationError) as caught:
            commit(lake, dataset, *actions, version=1)
        assert caught.value.violations, case
    assert catalog_rows(lake) == before


def test_every_misuse_of_the_arguments_is_refused_and_changes_nothing(lake: Lake, dataset: Dataset) -> None:
    before = catalog_rows(lake)
    fit = {"table_id": dataset.id, "version": 1, "actions": [add(stats=stats(1))]}
    for case, unfit in MISUSE.items():
        with pytest.raises(ValidationError) as caught:
            SqlTxnLogWriter(lake).commit(**fit | unfit)
        assert caught.value.violations, case
    assert catalog_rows(lake) == before


def test_every_invalid_row_group_is_refused_and_changes_nothing(lake: Lake, dataset: Dataset) -> None:
    before = catalog_rows(lake)
    for case, groups in ROW_GROUPS.items():
        with pytest.raises(ValidationError) as caught:
            commit(lake, dataset, add(stats=stats(1)), version=1, row_groups=groups)
        assert caught.value.violations, case
    assert catalog_rows(lake) == before


def test_what_needs_no_lock_is_checked_while_another_holds_it(lake: Lake, dataset: Dataset, other_lake: Lake) -> None:
    """Were anything locked for wrong input, these commits could only time out."""
    contradictions = [
        add(partition_values={"nothing": "1"}),
        Protocol(min_reader_version=1, min_writer_version=1),
    ]
    commit(other_lake, dataset)
    with TransactionManager(lake).begin(dataset.id):
        for actions in ([add("")], [METADATA, METADATA], *([action] for action in contradictions)):
            with pytest.raises(ValidationError):
                SqlTxnLogWriter(other_lake).commit(dataset.id, 2, actions)


def test_all_violations_of_a_commit_are_reported_at_once(lake: Lake, dataset: Dataset) -> None:
    actions = [
        add("../a", size=-1),
        add("b.parquet", stats="{"),
        add("b.parquet"),
        Txn(app_id="", version=2**63),
        Protocol(min_reader_version=9, min_writer_version=2),
    ]
    groups = [RowGroup(path="b.parquet", row_group=-1, row_count=1)]
    with pytest.raises(ValidationError) as caught:
        commit(lake, dataset, *actions, version=1, operation="", row_groups=groups)
    found = messages(caught.value.violations)
    for part in (
        "actions[0].add.path",
        "actions[0].add.size",
        "actions[1].add.stats",
        "actions[2].add: a second add",
        "actions[3].txn.app_id",
        "actions[3].txn.version",
        "actions[4].protocol",
        "operation",
        "row_groups[0].row_group",
    ):
        assert part in found
    assert f"{len(caught.value.violations)} problems" in str(caught.value)


def test_all_contradictions_to_the_tables_state_are_reported_at_once(lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"])
    with pytest.raises(ValidationError) as caught:
        commit(
            lake,
            dataset,
            add("a.parquet"),
            add("b.parquet", partition_values={"day": "yesterday"}),
            Protocol(min_reader_version=1, min_writer_version=1),
        )
    found = messages(caught.value.violations)
    for part in ("add a.parquet", "add b.parquet", "'yesterday'", "writer version 2 cannot go back to 1"):
        assert part in found


def test_removes_of_files_that_are_not_live_are_refused_by_name(lake: Lake, dataset: Dataset) -> None:
    commit(lake, dataset, add("gone.parquet"), add("live.parquet"))
    commit(lake, dataset, RemoveFile(path="gone.parquet"))
    before = catalog_rows(lake)
    with pytest.raises(ValidationError) as caught:
        commit(lake, dataset, *(RemoveFile(path=f"{name}.parquet") for name in ("gone", "live", "never")))
    assert [violation.where for violation in caught.value.violations] == ["remove gone.parquet", "remove never.parquet"]
    assert "not a live file at version 2" in str(caught.value)
    assert catalog_rows(lake) == before


@pytest.mark.parametrize(
    ("removed", "added", "message"),
    [
        (None, VECTOR, "live with another deletion vector"),
        (OTHER_VECTOR, VECTOR, "deletion vector"),
    ],
    ids=["not removed first", "another one removed"],
)
def test_a_deletion_vector_is_replaced_only_together_with_the_one_that_is_live(
    lake: Lake, dataset: Dataset, removed: Any, added: Any, message: str
) -> None:
    commit(lake, dataset, add(stats=stats(3)))
    before = catalog_rows(lake)
    actions: list[Action] = [add(stats=stats(3), deletion_vector=added)]
    actions += [RemoveFile(path="a.parquet", deletion_vector=removed)] if removed else []
    with pytest.raises(ValidationError, match=message):
        commit(lake, dataset, *actions)
    assert catalog_rows(lake) == before


def test_a_remove_must_name_the_deletion_vector_of_the_live_file(lake: Lake, dataset: Dataset) -> None:
    commit(lake, dataset, add(stats=stats(3), deletion_vector=VECTOR))
    for wrong in (None, OTHER_VECTOR):
        with pytest.raises(ValidationError, match="deletion vector"):
            commit(lake, dataset, RemoveFile(path="a.parquet", deletion_vector=wrong))
    commit(lake, dataset, RemoveFile(path="a.parquet", deletion_vector=VECTOR))
    assert dataset.snapshot().files().num_rows == 0


def test_an_append_only_table_gives_up_no_rows(lake: Lake) -> None:
    dataset = table(lake, properties={"delta.appendOnly": "true"})
    commit(lake, dataset, add("a.parquet"), add("b.parquet"))
    with pytest.raises(ValidationError, match="append-only") as caught:
        commit(lake, dataset, RemoveFile(path="a.parquet"), RemoveFile(path="b.parquet"))
    assert len(caught.value.violations) == 2
    commit(lake, dataset, RemoveFile(path="a.parquet", data_change=False), add("c.parquet", data_change=False))
    assert dataset.version == 2, "compaction changes no data"


@pytest.mark.parametrize(
    ("protocol", "message"),
    [
        (Protocol(min_reader_version=1, min_writer_version=1), "cannot go back"),
        (Protocol(min_reader_version=1, min_writer_version=7, writer_features=()), "features would be lost"),
    ],
    ids=["lower version", "lost features"],
)
def test_an_incompatible_protocol_is_refused(lake: Lake, dataset: Dataset, protocol: Protocol, message: str) -> None:
    before = catalog_rows(lake)
    with pytest.raises(ValidationError, match=message):
        commit(lake, dataset, protocol)
    assert catalog_rows(lake) == before


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, "partitioned by"),
        ({"day": "2026-01-31"}, "partitioned by"),
        ({"day": "2026-01-31", "id": "1", "name": "x"}, "partitioned by"),
        ({"DAY": "2026-01-31", "id": "1"}, "partitioned by"),
        ({"day": "31.1.2026", "id": "1"}, "is not a value of column 'day'"),
        ({"day": "2026-01-31", "id": "1.5"}, "is not a value of column 'id'"),
    ],
)
def test_partition_values_must_be_those_of_the_tables_columns(lake: Lake, values: dict[str, str], message: str) -> None:
    dataset = table(lake, partition_by=["day", "id"])
    with pytest.raises(ValidationError, match=message):
        commit(lake, dataset, add(partition_values=values))
    commit(lake, dataset, add(partition_values={"id": "-7", "day": None}))
    assert {row["key"]: row["value"] for row in rows(lake, "partitions")} == {"day": None, "id": "-7"}


def test_an_applications_progress_never_goes_back(lake: Lake, dataset: Dataset) -> None:
    commit(lake, dataset, Txn(app_id="a", version=5), Txn(app_id="b", version=1))
    commit(lake, dataset, add())
    for version in (5, 4, -1):
        with pytest.raises(ValidationError, match="not after 5"):
            commit(lake, dataset, add(f"{version}.parquet"), Txn(app_id="a", version=version))
    commit(lake, dataset, Txn(app_id="a", version=6))
    assert (lake.txn_version("events", "a"), lake.txn_version("events", "b")) == (6, 1)


def test_a_commit_id_that_is_none_is_refused(lake: Lake) -> None:
    for unfit in ("", "x", None, 7):
        with pytest.raises(ValidationError, match="commit"):
            lake.commit_status(unfit)  # type: ignore[arg-type]


def test_the_actions_that_were_refused_are_good_once_they_are_right(lake: Lake, dataset: Dataset) -> None:
    writer = SqlTxnLogWriter(lake)
    with pytest.raises(ValidationError):
        writer.commit(dataset.id, 1, [add(size=-1)])
    assert writer.commit(dataset.id, 1, [AddFile(path="a.parquet", size=1)]).version == 1
