"""Random histories against a small model, on every database, with the invariants after every step."""

import itertools
import json
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lakelog import (
    AddFiles,
    DatasetExistsError,
    DatasetNotFoundError,
    Lake,
    LakelogError,
    RemoveFiles,
    RowGroup,
    SqlTxnLogWriter,
    TransactionManager,
    ValidationError,
    VersionConflict,
    VersionNotFoundError,
)
from lakelog.actions import Action, AddFile, DeletionVector, Protocol, RemoveFile, Txn
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.outcomes import Conflict
from lakelog.schema import to_delta_json
from tests.fixtures.lakes import Place, catalog_rows
from tests.invariants import check_invariants
from tests.model.model import Change, File, Table, Version

NAMES = ("events", 'it\'s "quoted"', "日本語")
PATHS = tuple(f"{letter}.parquet" for letter in "abcdef")
APPS = ("stream", "batch's")
MANY = 25
VECTORS = {"one": "00000", "two": "00001"}
FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("appendOnly", "invariants", "deletionVectors"),
)

names = st.sampled_from(NAMES)


class LogMachine(RuleBasedStateMachine):
    """Does the same to a catalog and to the model. Two handles commit, so that neither remembers everything."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self.place = place
        self.lakes = [place.connect(), place.connect()]
        self.tables: dict[str, Table] = {}
        self.sizes = itertools.count(1)
        self.steps = 0

    def teardown(self) -> None:
        for lake in self.lakes:
            lake.close()

    # Tables

    @initialize()
    def begin(self) -> None:
        self.create(NAMES[0])

    @rule(name=names)
    def create(self, name: str) -> None:
        if name in self.tables:
            self.refused(DatasetExistsError, lambda lake: lake.create_dataset(name, _schema(1), ["day"]))
            return
        dataset = self.lakes[0].create_dataset(name, _schema(1), ["day"])
        self.tables[name] = Table(dataset.id, [Version(commit_id=None, columns=1)])
        result = SqlTxnLogWriter(self.lakes[1]).commit(dataset.id, 1, [FEATURES])
        self.tables[name].commit(result.commit_id, Change())

    @rule(old=names, new=names)
    def rename(self, old: str, new: str) -> None:
        if old not in self.tables:
            self.refused(DatasetNotFoundError, lambda lake: lake.rename_dataset(old, new))
        elif new != old and new in self.tables:
            self.refused(DatasetExistsError, lambda lake: lake.rename_dataset(old, new))
        else:
            self.lakes[1].rename_dataset(old, new)
            self.tables[new] = self.tables.pop(old)

    @precondition(lambda self: len(self.tables) > 1)
    @rule(name=names)
    def drop(self, name: str) -> None:
        if name not in self.tables:
            self.refused(DatasetNotFoundError, lambda lake: lake.drop_dataset(name))
            return
        self.lakes[0].drop_dataset(name)
        table = self.tables.pop(name)
        late = [_add("late.parquet", File(1, None, 0))]
        self.refused(DatasetNotFoundError, lambda lake: SqlTxnLogWriter(lake).commit(table.id, table.head + 1, late))

    @rule()
    def reopen(self) -> None:
        """Nothing is remembered but what the catalog holds."""
        for lake in self.lakes:
            lake.close()
        self.lakes = [self.place.connect(create=False), self.place.connect(create=False)]

    # Commits

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        name = self.a_table(data)
        table, change = self.tables[name], self.a_change(data, name)
        actions = _actions(table, change)
        groups = [RowGroup(path=path, row_group=0, row_count=9) for path in sorted(change.added)]
        writer = SqlTxnLogWriter(self.a_lake(data))
        result = writer.commit(table.id, table.head + 1, actions, row_groups=groups[:1])
        assert (result.table_id, result.table, result.version) == (table.id, name, table.head + 1)
        table.commit(result.commit_id, change)

    @rule(data=st.data(), keep=st.booleans())
    def commit_through_manager(self, data: st.DataObject, keep: bool) -> None:
        name = self.a_table(data)
        table, change = self.tables[name], self.a_change(data, name)
        manager = TransactionManager(self.a_lake(data))
        with manager.begin(table.id, table.head) as context:
            with pytest.raises(LakelogError, match="would wait for itself"):
                manager.begin(table.id)
            if keep:
                assert manager.commit(context, _actions(table, change)) == table.head + 1
                table.commit(context.commit_id, change)

    @rule(data=st.data(), replacing=st.booleans())
    def commit_many(self, data: st.DataObject, replacing: bool) -> None:
        table = self.tables[self.a_table(data)]
        added = {f"{(size := next(self.sizes))}.parquet": File(size, None, low) for low in range(MANY)}
        removed = sorted(table.now.live) if replacing else []
        actions: list[Any] = [AddFiles.of([_add(path, file) for path, file in added.items()])]
        if removed:
            vectors = pa.array([_vector_json(table.now.live[path].vector) for path in removed], pa.string())
            actions.append(RemoveFiles(pa.table({"path": removed, "deletion_vector": vectors})))
        result = SqlTxnLogWriter(self.a_lake(data)).commit(table.id, table.head + 1, actions)
        table.commit(result.commit_id, Change(added=added, removed=frozenset(removed)))

    @rule(data=st.data(), lag=st.sampled_from([0, 0, -1, 1]))
    def commit_to_several_tables(self, data: st.DataObject, lag: int) -> None:
        """All or nothing: one table with another head than expected stops the commit to the others."""
        order = data.draw(st.permutations(sorted(self.tables)), label="tables")[:2]
        parts = [(name, self.tables[name], self.a_change(data, name)) for name in order]
        drafts = []
        for number, (_, table, change) in enumerate(parts):
            expected = table.head - (lag if number == len(parts) - 1 else 0)
            description = Description(operation="WRITE", operation_parameters={}, extra={})
            drafts.append(Draft(table.id, expected, _actions(table, change), description))
        before = self.rows() if lag else None
        outcome = self.a_lake(data).committer.commit(drafts)
        if lag:
            name, table, _ = parts[-1]
            assert outcome == Conflict(name, table.id, table.head - lag, table.head)
            assert self.rows() == before
            return
        assert not isinstance(outcome, Conflict)
        assert len({result.commit_id for result in outcome}) == 1
        for (name, table, change), result in zip(parts, outcome, strict=True):
            assert (result.table_id, result.table, result.version) == (table.id, name, table.head + 1)
            table.commit(result.commit_id, change)

    @rule(data=st.data())
    def add_column(self, data: st.DataObject) -> None:
        name = self.a_table(data)
        table, lake = self.tables[name], self.a_lake(data)
        schema = to_delta_json(_schema(table.now.columns + 1))
        metadata = replace(lake.dataset(name).snapshot().metadata, schema_string=schema)
        change = replace(self.a_change(data, name), columns=1)
        actions = [*_actions(table, change), metadata]
        result = SqlTxnLogWriter(lake).commit(table.id, table.head + 1, actions)
        table.commit(result.commit_id, change)

    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """The oldest versions are forgotten, and the others stay as they are."""
        name = self.a_table(data)
        table, dataset = self.tables[name], self.a_lake(data).dataset(name)
        before = table.first
        table.first = data.draw(st.integers(before, table.head), label="first")
        report = dataset.expire_versions(keep_last=table.head - table.first + 1)
        assert (report.versions, report.first_version) == (table.first - before, table.first)
        for lake in self.lakes if table.first else ():
            with pytest.raises(VersionNotFoundError):
                lake.dataset(name).snapshot(table.first - 1)

    # Commits that must not happen

    @rule(data=st.data(), distance=st.sampled_from([-2, -1, 1, 5]))
    def commit_another_version(self, data: st.DataObject, distance: int) -> None:
        """Stale ones and future ones. A conflict comes before any complaint about the table's state."""
        name = self.a_table(data)
        table = self.tables[name]
        expected = table.head + distance
        if expected < 0:
            return
        actions: list[Action] = [_add(PATHS[0], File(1, None, 0)), RemoveFile(path="never-there.parquet")]
        error = self.refused(
            VersionConflict, lambda lake: SqlTxnLogWriter(lake).commit(table.id, expected + 1, actions)
        )
        assert (error.table, error.table_id) == (name, table.id)
        assert (error.expected, error.actual) == (expected, table.head)
        self.refused(VersionConflict, lambda lake: TransactionManager(lake).begin(table.id, expected))

    @rule(data=st.data(), wrong=st.integers(0, 7))
    def commit_nonsense(self, data: st.DataObject, wrong: int) -> None:
        table = self.tables[self.a_table(data)]
        good = _add("good.parquet", File(1, None, 0))
        live = next(iter(table.now.live), "never-there.parquet")
        app, reached = next(iter(table.now.progress.items()), ("", 1))
        stranger = DeletionVector(storage_type="i", path_or_inline_dv="00002", size_in_bytes=4, cardinality=1)
        mistakes: list[Action] = [
            RemoveFile(path="never-there.parquet"),
            RemoveFile(path=live, deletion_vector=stranger),
            good,
            replace(good, path="../outside.parquet"),
            replace(good, path="negative.parquet", size=-1),
            replace(good, path="partitioned.parquet", partition_values={"month": "1"}),
            Txn(app_id=app, version=reached),
            Protocol(min_reader_version=99, min_writer_version=99),
        ]
        actions = [good, mistakes[wrong]]
        self.refused(ValidationError, lambda lake: SqlTxnLogWriter(lake).commit(table.id, table.head + 1, actions))

    # Reads

    @rule(data=st.data(), value=st.integers(0, 30))
    def travel_in_time(self, data: st.DataObject, value: int) -> None:
        """Any version by its number and by its time, what happened since, and a predicate that must not lose a file."""
        name = self.a_table(data)
        table, dataset = self.tables[name], self.a_lake(data).dataset(name)
        version = data.draw(st.integers(table.first, table.head), label="version")
        live = table.versions[version].live
        moment = dataset.history()[table.head - version].timestamp
        for snapshot in (dataset.snapshot(version), dataset.snapshot(timestamp=moment)):
            assert snapshot.version == version
            assert len(snapshot.schema) == table.versions[version].columns + 1
            assert _read(snapshot.files()) == live
            kept = {path: file for path, file in live.items() if file.holds(value)}
            found = _read(snapshot.files(where=f"id = {value}"))
            # Files that are added again under another schema are always kept.
            assert kept.items() <= found.items() <= live.items()
        changes = dataset.changes(version)
        for found, kind in ((changes.added, "added"), (changes.removed, "removed")):
            expected = {
                (path, number)
                for number in range(version, table.head + 1)
                for path in getattr(table.versions[number], kind)
            }
            assert {(row["path"], row["version"]) for row in found.to_pylist()} == expected
            assert found.num_rows == len(expected)
        with pytest.raises(VersionNotFoundError):
            dataset.snapshot(table.head + 1)

    @rule(data=st.data())
    def ask_for_a_commit(self, data: st.DataObject) -> None:
        made: dict[str, list[tuple[int, str, int]]] = {str(uuid.UUID(int=1)): []}
        for name, table in self.tables.items():
            for number, version in enumerate(table.versions):
                if version.commit_id is not None and number >= table.first:
                    made.setdefault(version.commit_id, []).append((table.id, name, number))
        commit_id = data.draw(st.sampled_from(sorted(made, key=lambda each: made[each])), label="commit")
        found = self.a_lake(data).commit_status(commit_id)
        tables = {table.id for table in self.tables.values()}
        told = [(each.table_id, each.table, each.version) for each in found if each.table_id in tables]
        assert told == sorted(made[commit_id])

    # After every step

    @invariant()
    def the_log_is_whole(self) -> None:
        check_invariants(self.lakes[0])

    @invariant()
    def the_log_is_the_model(self) -> None:
        self.steps += 1
        ids = {name: table.id for name, table in self.tables.items()}
        for lake in self.lakes:
            assert {dataset.name: dataset.id for dataset in lake.datasets()} == ids
        lake = self.lakes[self.steps % 2]
        for name, table in self.tables.items():
            dataset = lake.dataset(name)
            assert dataset.version == table.head
            for version in {table.head, table.first + self.steps * 7 % (table.head - table.first + 1)}:
                assert _read(dataset.snapshot(version).files()) == table.versions[version].live
            assert {app: lake.txn_version(name, app) for app in APPS} == {
                app: table.now.progress.get(app) for app in APPS
            }
            told = [commit.commit_id for commit in reversed(dataset.history())]
            made = [version.commit_id for version in table.versions[table.first :]]
            assert told[1:] == made[1:]
            assert len(told) == len(made)

    # Helpers

    def a_table(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.tables)), label="table")

    def a_lake(self, data: st.DataObject) -> Lake:
        return self.lakes[data.draw(st.integers(0, 1), label="handle")]

    def a_change(self, data: st.DataObject, name: str) -> Change:
        """Files that are new, come back, are replaced, masked or removed, and perhaps an application's progress."""
        live = self.tables[name].now.live
        added: dict[str, File] = {}
        removed: set[str] = set()
        for path in data.draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=4, unique=True), label="paths"):
            vector = data.draw(st.sampled_from([None, *VECTORS]), label="vector")
            remove = path in live and data.draw(st.booleans(), label="remove")
            if remove or (path in live and live[path].vector != vector):
                removed.add(path)
            if not remove:
                added[path] = File(next(self.sizes), vector, data.draw(st.integers(0, 30), label="low"))
        progress: dict[str, int] = {}
        if app := data.draw(st.none() | st.sampled_from(APPS), label="application"):
            progress[app] = self.tables[name].now.progress.get(app, 0) + 1
        return Change(added=added, removed=frozenset(removed), progress=progress)

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return catalog_rows(self.lakes[0])

    def refused(self, error: type[Exception], attempt: Callable[[Lake], object]) -> Any:
        """The error of an attempt that must fail on both handles and leave every row as it was."""
        before = self.rows()
        for lake in self.lakes:
            with pytest.raises(error) as caught:
                attempt(lake)
        assert self.rows() == before
        return caught.value


def _schema(columns: int) -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("day", pa.int32()), *((f"c{n}", pa.string()) for n in range(1, columns))])


def _actions(table: Table, change: Change) -> list[Action]:
    return [
        *(
            RemoveFile(path=path, deletion_vector=_vector(table.now.live[path].vector))
            for path in sorted(change.removed)
        ),
        *(_add(path, file) for path, file in change.added.items()),
        *(Txn(app_id=app, version=version) for app, version in change.progress.items()),
    ]


def _add(path: str, file: File) -> AddFile:
    bounds = {"minValues": {"id": file.low}, "maxValues": {"id": file.low + 3}, "nullCount": {"id": 0}}
    return AddFile(
        path=path,
        size=file.size,
        partition_values={"day": "1"},
        stats=json.dumps({"numRecords": 9, **bounds}),
        deletion_vector=_vector(file.vector),
    )


def _vector(name: str | None) -> DeletionVector | None:
    if name is None:
        return None
    return DeletionVector(storage_type="i", path_or_inline_dv=VECTORS[name], size_in_bytes=4, cardinality=1)


def _vector_json(name: str | None) -> str | None:
    vector = _vector(name)
    return None if vector is None else vector.to_json()


def _read(files: Any) -> dict[str, File]:
    found: dict[str, File] = {}
    by_code = {code: name for name, code in VECTORS.items()}
    for row in files.select(["path", "size", "deletion_vector", "stats"]).to_pylist():
        vector = row["deletion_vector"] and by_code[json.loads(row["deletion_vector"])["pathOrInlineDv"]]
        assert row["path"] not in found, "a path is live twice"
        found[row["path"]] = File(row["size"], vector, json.loads(row["stats"])["minValues"]["id"])
    return found


def test_the_log_does_what_the_model_does(place: Place) -> None:
    numbers = itertools.count()

    def machine() -> LogMachine:
        """A catalog of its own for every history."""
        return LogMachine(place.beside(next(numbers)))

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples={"sqlite": 30, "duckdb": 8, "postgres": 15}[place.backend],
            stateful_step_count=25,
            derandomize=True,
            database=None,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
