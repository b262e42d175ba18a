"""A commit that the database refuses leaves nothing behind, wherever it was refused."""

import uuid

import pytest

from lakelog import CommitResult, DatabaseError, Dataset, Lake, RowGroup, SqlTxnLogWriter, TransactionManager
from lakelog.actions import CdcFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from lakelog.schema import to_delta_json
from tests.contract.samples import SCHEMA, add, commit, stats, table
from tests.fixtures.lakes import catalog_rows, execute, qualified
from tests.invariants import check_invariants

WRITTEN = [
    "dl_table_versions",
    "dl_remove_files",
    "dl_metadata_updates",
    "schema_versions",
    "dl_protocol_updates",
    "dl_txn_actions",
    "dl_domain_metadata",
    "dl_cdc_files",
    "dl_add_files",
    "row_groups",
    "partitions",
    "column_stats",
]


def everything(lake: Lake, dataset: Dataset) -> CommitResult:
    """A commit of version 2 that writes to every table."""
    values = {"day": "2026-01-31"}
    actions = [
        RemoveFile(path="old.parquet"),
        Metadata(
            id="x",
            schema_string=to_delta_json(SCHEMA.append(SCHEMA.field("id").with_name("n"))),
            partition_columns=("day",),
        ),
        Protocol(min_reader_version=1, min_writer_version=3),
        Txn(app_id="app", version=1),
        DomainMetadata(domain="app.x", configuration=""),
        CdcFile(path="_change_data/c.parquet", size=1, partition_values=values),
        add("new.parquet", partition_values=values, stats=stats(1, id=(1, 1))),
        add("replaced.parquet", partition_values=values),
    ]
    group = RowGroup(path="new.parquet", row_group=0, row_count=1)
    return SqlTxnLogWriter(lake).commit(dataset.id, 2, actions, row_groups=[group])


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    dataset = table(lake, partition_by=["day"])
    values = {"day": None}
    commit(lake, dataset, add("old.parquet", partition_values=values), add("replaced.parquet", partition_values=values))
    return dataset


@pytest.mark.parametrize("refusing", WRITTEN)
def test_an_error_in_any_table_leaves_all_tables_unchanged(lake: Lake, dataset: Dataset, refusing: str) -> None:
    before = catalog_rows(lake)
    execute(lake, f"ALTER TABLE {qualified(lake, refusing)} RENAME TO out_of_the_way")
    with pytest.raises(DatabaseError):
        everything(lake, dataset)
    execute(lake, f"ALTER TABLE {qualified(lake, 'out_of_the_way')} RENAME TO {refusing}")
    assert catalog_rows(lake) == before
    assert dataset.version == 1

    assert everything(lake, dataset).version == 2, "the same commit goes through once nothing is in its way"
    check_invariants(lake)


@pytest.mark.parametrize("door", ["writer", "transaction"])
def test_a_broken_constraint_is_named_with_its_table_and_row(lake: Lake, dataset: Dataset, door: str) -> None:
    execute(
        lake,
        f"INSERT INTO {qualified(lake, 'dl_txn_actions')} (table_id, app_id, version, app_version) "
        f"VALUES ({dataset.id}, 'the app', 2, 5)",
    )
    before = catalog_rows(lake)
    actions = [add("new.parquet", partition_values={"day": None}), Txn(app_id="the app", version=9)]
    manager = TransactionManager(lake)
    attempts = {
        "writer": lambda: commit(lake, dataset, *actions),
        "transaction": lambda: manager.commit(manager.begin(dataset.id), actions),
    }
    with pytest.raises(DatabaseError) as caught:
        attempts[door]()
    assert caught.value.constraint
    assert "dl_txn_actions" in str(caught.value)
    assert "the app" in str(caught.value)
    assert catalog_rows(lake) == before


def test_a_version_that_is_already_in_the_log_is_refused_by_the_database_itself(lake: Lake, dataset: Dataset) -> None:
    """The key of the log is the last line of defence: here the head is wrong, as a damaged catalog's might be."""
    execute(
        lake,
        f"INSERT INTO {qualified(lake, 'dl_table_versions')} "
        "(table_id, version, committed_at, commit_id, operation, operation_parameters) "
        f"VALUES ({dataset.id}, 2, 1, '{uuid.uuid4()}', 'WRITE', '{{}}')",
    )
    before = catalog_rows(lake)
    with pytest.raises(DatabaseError, match="constraint") as caught:
        everything(lake, dataset)
    assert "dl_table_versions" in str(caught.value)
    assert catalog_rows(lake) == before


def test_a_failed_commit_does_not_keep_the_lock(lake: Lake, dataset: Dataset, other_lake: Lake) -> None:
    name = qualified(lake, "partitions")
    execute(lake, f"ALTER TABLE {name} RENAME TO out_of_the_way")
    for _ in range(3):
        with pytest.raises(DatabaseError):
            everything(lake, dataset)
    execute(other_lake, f"ALTER TABLE {qualified(lake, 'out_of_the_way')} RENAME TO partitions")
    assert everything(other_lake, dataset).version == 2
    assert lake.committer.catalog.usage() == (0, 0), "every connection came back"
