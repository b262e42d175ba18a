"""Changes of a catalog that a fault may hit, each told by the number of its run, and what must be true afterwards.

A scenario first makes a commit that is not disturbed, then the change itself. After a fault the change is there whole
or not at all, and it is there if it was acknowledged.
"""

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from lakelog import AddFiles, CommitResult, Dataset, Lake, RemoveFiles, RowGroup, SqlTxnLogWriter, TransactionManager
from lakelog.actions import (
    Action,
    AddFile,
    CdcFile,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from lakelog.log.commit.draft import Description, Draft
from lakelog.schema import to_delta_json
from tests.fixtures.lakes import Place, rows
from tests.invariants import check_invariants

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])
MANY = 12

_VERSIONED = (
    "dl_add_files",
    "dl_remove_files",
    "dl_cdc_files",
    "dl_metadata_updates",
    "dl_txn_actions",
    "dl_domain_metadata",
    "row_groups",
    "partitions",
    "column_stats",
)

Change = Callable[[Lake, int], None]


def prepare(place: Place) -> None:
    """Two tables to commit to, and one to rename."""
    with place.connect() as lake:
        for name in ("events", "users"):
            dataset = lake.create_dataset(name, SCHEMA, ["day"])
            vectors = Protocol(
                min_reader_version=3,
                min_writer_version=7,
                reader_features=("deletionVectors",),
                writer_features=("appendOnly", "invariants", "deletionVectors", "domainMetadata", "changeDataFeed"),
            )
            SqlTxnLogWriter(lake).commit(dataset.id, 1, [vectors], operation="UPGRADE")
        lake.create_dataset("named", SCHEMA)


def append(lake: Lake, run: int) -> None:
    """The commit before the change: files for it to remove and replace."""
    added = [file(run, name) for name in ("removed", "replaced", "masked")]
    added += [file(run, f"old-{number}") for number in range(MANY)]
    _commit(lake, "events", run, added, "APPEND")


def write(lake: Lake, run: int) -> None:
    """A commit with every kind of action, through the writer."""
    groups = [RowGroup(path=path(run, "new"), row_group=number, row_count=rows) for number, rows in ((0, 3), (1, 4))]
    _commit(lake, "events", run, rich_actions(run), "CHANGE", row_groups=groups)


def add(lake: Lake, run: int) -> None:
    """A file that is added and nothing else, on top of whatever the head is."""
    writer, dataset = SqlTxnLogWriter(lake), lake.dataset("events")
    writer.append(dataset.id, [file(run, "new")], operation="CHANGE", committer=str(run))


def write_many(lake: Lake, run: int) -> None:
    """Files removed and added as Arrow tables."""
    removed = pa.table({"path": [path(run, f"old-{number}") for number in range(MANY)]})
    paths = [path(run, f"new-{number}") for number in range(MANY)]
    added = pa.table(
        {
            "path": paths,
            "size": [100] * MANY,
            "partition_values": ['{"day": "monday"}'] * MANY,
            "stats": [statistics()] * MANY,
        }
    )
    groups = pa.table({"path": paths, "row_group": [0] * MANY, "row_count": [7] * MANY})
    _commit(lake, "events", run, [RemoveFiles(removed), AddFiles(added)], "CHANGE", row_groups=groups)


def manage(lake: Lake, run: int) -> None:
    """The same through a transaction that holds its lock from the start."""
    manager = TransactionManager(lake)
    with manager.begin(lake.dataset("events").id) as context:
        manager.commit(context, rich_actions(run)[:-1], (), {"operation": "CHANGE", "committer": str(run)})


def write_two_tables(lake: Lake, run: int) -> None:
    description = Description(operation="CHANGE", committer=str(run), operation_parameters={}, extra={})
    datasets = [lake.dataset(name) for name in ("users", "events")]
    drafts = [Draft(each.id, each.version, [file(run, "both")], description) for each in datasets]
    lake.committer.commit(drafts)


def create(lake: Lake, run: int) -> None:
    lake.create_dataset(f"created-{run}", SCHEMA, ["day"])


def rename(lake: Lake, run: int) -> None:
    (dataset,) = [each for each in lake.datasets() if each.name.startswith("named")]
    lake.rename_dataset(dataset.name, f"named-{run}")


def commit_file(lake: Lake, dataset: Dataset, **fields: Any) -> CommitResult:
    """One more file, as the version after the head."""
    version = dataset.version + 1
    return SqlTxnLogWriter(lake).commit(dataset.id, version, [file(version, "one", **fields)])


CHANGES: dict[str, Change] = {
    change.__name__: change for change in (write, add, write_many, manage, write_two_tables, create, rename)
}


def verify(place: Place, run: int, acknowledged: list[str]) -> set[str]:
    """Opens the catalog as it was left, asserts that nothing is lost or half done, and says what the run did."""
    with place.connect() as lake:
        check_invariants(lake)
        found = done(lake, run)
        assert found >= {*acknowledged} - {"closed"}, f"acknowledged {acknowledged}, found {found}"
        shapes = _shapes(lake, "CHANGE")
        assert len(shapes) <= 1, f"commits of the same change differ: {shapes}"
        both = _committers(lake, "users", "CHANGE")
        assert both <= _committers(lake, "events", "CHANGE"), "half of a commit to two tables"
    return found


def done(lake: Lake, run: int) -> set[str]:
    """Which parts of a run are in the catalog."""
    names = {dataset.name for dataset in lake.datasets()}
    found = {
        operation.lower() for operation in ("APPEND", "CHANGE") if str(run) in _committers(lake, "events", operation)
    }
    return found | ({"change"} if names & {f"created-{run}", f"named-{run}"} else set())


def path(run: int, name: str) -> str:
    return f"run-{run}/{name}.parquet"


def statistics() -> str:
    return json.dumps({"numRecords": 7, "minValues": {"id": 1}, "maxValues": {"id": 9}, "nullCount": {"id": 0}})


def file(run: int, name: str, **fields: Any) -> AddFile:
    known = {"path": path(run, name), "size": 100, "partition_values": {"day": "monday"}, "stats": statistics()}
    return AddFile(**(known | fields))


def rich_actions(run: int) -> list[Action]:
    """Every kind of action that a commit can have."""
    vector = DeletionVector(storage_type="i", path_or_inline_dv="00000", size_in_bytes=4, cardinality=2)
    schema = SCHEMA.append(pa.field(f"run_{run}", pa.string()))
    return [
        Metadata(
            id="3d5f8a0e-0000-4000-8000-000000000000", schema_string=to_delta_json(schema), partition_columns=("day",)
        ),
        RemoveFile(path=path(run, "removed")),
        file(run, "replaced", size=200),
        RemoveFile(path=path(run, "masked")),
        file(run, "masked", deletion_vector=vector),
        Txn(app_id="application", version=run),
        DomainMetadata(domain="application", configuration=str(run)),
        CdcFile(path=path(run, "_change_data/changed"), size=10, partition_values={"day": "monday"}),
        file(run, "new"),
    ]


def _commit(lake: Lake, name: str, run: int, actions: list[Any], operation: str, **options: Any) -> None:
    dataset = lake.dataset(name)
    SqlTxnLogWriter(lake).commit(
        dataset.id, dataset.version + 1, actions, operation=operation, committer=str(run), **options
    )


def _committers(lake: Lake, name: str, operation: str) -> set[str | None]:
    return {commit.committer for commit in lake.dataset(name).history() if commit.operation == operation}


def _shapes(lake: Lake, operation: str) -> set[tuple[tuple[str, int], ...]]:
    """How many rows each catalog table has of every commit to events."""
    events = lake.dataset("events")
    versions = {commit.version for commit in events.history() if commit.operation == operation}
    counts: dict[int, Counter[str]] = {version: Counter() for version in versions}
    for table in _VERSIONED:
        for row in rows(lake, table, table_id=events.id):
            if row["version"] in counts:
                counts[row["version"]][table] += 1
    return {tuple(sorted(count.items())) for count in counts.values()}
