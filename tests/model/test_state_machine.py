"""The log against a small model: whatever is done in whatever order, both say the same after every step."""

import tempfile
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from lakelog import (
    AddFiles,
    Dataset,
    DatasetExistsError,
    DatasetNotFoundError,
    Lake,
    RemoveFiles,
    SqlTxnLogWriter,
    ValidationError,
    VersionConflict,
    VersionNotFoundError,
)
from lakelog.actions import Action, AddFile, Protocol, RemoveFile, Txn
from lakelog.log.commit import Conflict
from lakelog.log.draft import Description, Draft
from lakelog.schema import to_delta_json
from tests.contract.samples import SCHEMA, add
from tests.fixtures.lakes import Place, catalog_rows
from tests.invariants import check_invariants
from tests.model.model import Model, Table, Version

NAMES = ["events", "it's", "日本語"]
PATHS = [f"{letter}.parquet" for letter in "abcdefgh"]
APPS = ["stream", "batch's"]

names = st.sampled_from(NAMES)
paths = st.sampled_from(PATHS)
some_paths = st.sets(paths, max_size=4)
apps = st.sampled_from(APPS)

there_are_tables = precondition(lambda self: self.model.tables)


class LogMachine(RuleBasedStateMachine):
    """One catalog of its own for every example. Two handles commit, so that neither remembers everything."""

    def __init__(self, new_place: Callable[[], Place]) -> None:
        super().__init__()
        self.place = new_place()
        self.lakes = [self.place.connect(), self.place.connect()]
        self.model = Model()

    def teardown(self) -> None:
        for lake in self.lakes:
            lake.close()

    # Tables

    @rule(name=names)
    def create(self, name: str) -> None:
        if name in self.model.tables:
            self.refused(DatasetExistsError, lambda lake: lake.create_dataset(name, SCHEMA))
            return
        dataset = self.lakes[0].create_dataset(name, SCHEMA)
        first = Version(commit_id=None, live={}, columns=tuple(SCHEMA.names), progress={})
        assert dataset.id not in {table.table_id for table in (*self.model.tables.values(), *self.model.dropped)}
        self.model.tables[name] = Table(dataset.id, name, [first])

    @there_are_tables
    @rule(old=names, new=names)
    def rename(self, old: str, new: str) -> None:
        if old not in self.model.tables:
            self.refused(DatasetNotFoundError, lambda lake: lake.rename_dataset(old, new))
        elif new in self.model.tables:
            self.refused(DatasetExistsError, lambda lake: lake.rename_dataset(old, new))
        else:
            self.lakes[1].rename_dataset(old, new)
            table = self.model.tables.pop(old)
            table.name = new
            self.model.tables[new] = table

    @there_are_tables
    @rule(name=names, sure=st.integers(0, 2))
    def drop(self, name: str, sure: int) -> None:
        """Only now and then, or no table would ever get old."""
        if name not in self.model.tables:
            self.refused(DatasetNotFoundError, lambda lake: lake.drop_dataset(name))
        elif sure == 0:
            self.lakes[0].drop_dataset(name)
            table = self.model.tables.pop(name)
            self.model.dropped.append(table)
            self.refused(
                DatasetNotFoundError, lambda lake: SqlTxnLogWriter(lake).commit(table.table_id, table.head + 1, [add()])
            )

    @rule()
    def reopen(self) -> None:
        """Nothing is remembered but what the catalog holds."""
        for lake in self.lakes:
            lake.close()
        self.lakes = [self.place.connect(create=False), self.place.connect(create=False)]

    # Commits

    @there_are_tables
    @rule(data=st.data(), adds=some_paths, dropping=some_paths, app=st.none() | apps, bulk=st.booleans())
    def commit(self, data: st.DataObject, adds: set[str], dropping: set[str], app: str | None, bulk: bool) -> None:
        """New files, files that were removed before, and files that are live already, which replaces them."""
        table = self.a_table(data)
        removes = dropping & table.now.live.keys() - adds
        step = {app: table.now.progress.get(app, 0) + 1} if app else {}
        actions = self.actions(adds, removes, bulk=bulk)
        actions += [Txn(app_id=name, version=version) for name, version in step.items()]
        result = SqlTxnLogWriter(self.a_lake(data)).commit(table.table_id, table.head + 1, actions)
        assert (result.table_id, result.table, result.version) == (table.table_id, table.name, table.head + 1)
        table.commit(result.commit_id, adds=adds, removes=removes, progress=step)

    @there_are_tables
    @rule(data=st.data(), adds=some_paths)
    def add_column(self, data: st.DataObject, adds: set[str]) -> None:
        table, lake = self.a_table(data), self.a_lake(data)
        snapshot = lake.dataset(table.name).snapshot()
        schema = snapshot.schema.append(pa.field(f"column_{len(snapshot.schema)}", pa.string()))
        metadata = replace(snapshot.metadata, schema_string=to_delta_json(schema))
        actions: list[Any] = [metadata, *map(add, sorted(adds))]
        result = SqlTxnLogWriter(lake).commit(table.table_id, table.head + 1, actions)
        table.commit(result.commit_id, adds=adds, columns=tuple(schema.names))

    @precondition(lambda self: len(self.model.tables) > 1)
    @rule(data=st.data(), adds=st.lists(some_paths, min_size=2, max_size=3), lag=st.integers(-1, 3))
    def commit_to_several_tables(self, data: st.DataObject, adds: list[set[str]], lag: int) -> None:
        """All or nothing: one table with another head than expected stops the commit to the others."""
        tables = data.draw(st.permutations(sorted(self.model.tables.values(), key=lambda each: each.table_id)))
        parts = list(zip(tables, adds, strict=False))
        stale = lag != 0 and parts[-1][0].head - lag >= 0
        drafts = []
        for table, added in parts:
            expected = table.head - lag if stale and table is parts[-1][0] else table.head
            description = Description(operation="WRITE", operation_parameters={}, extra={})
            drafts.append(Draft(table.table_id, expected, self.actions(added, ()), description))
        lake = self.a_lake(data)
        before = self.rows() if stale else None
        outcome = lake.committer.commit(drafts)
        if isinstance(outcome, Conflict):
            loser = parts[-1][0]
            assert stale
            assert (outcome.table_id, outcome.expected, outcome.actual) == (
                loser.table_id,
                loser.head - lag,
                loser.head,
            )
            assert self.rows() == before
            return
        assert not stale
        assert len({result.commit_id for result in outcome}) == 1
        for (table, added), result in zip(parts, outcome, strict=True):
            assert (result.table_id, result.version) == (table.table_id, table.head + 1)
            table.commit(result.commit_id, adds=added)

    # Commits that must not happen

    @there_are_tables
    @rule(data=st.data(), distance=st.integers(-4, 4).filter(bool), adds=some_paths)
    def commit_another_version(self, data: st.DataObject, distance: int, adds: set[str]) -> None:
        """Stale ones and future ones. A conflict comes before any complaint about the table's state."""
        table = self.a_table(data)
        version = table.head + 1 + distance
        if version < 1:
            return
        actions: list[Any] = [*map(add, sorted(adds)), RemoveFile(path="never-there.parquet")]
        error = self.refused(
            VersionConflict, lambda lake: SqlTxnLogWriter(lake).commit(table.table_id, version, actions)
        )
        assert (error.table, error.table_id) == (table.name, table.table_id)
        assert (error.expected, error.actual) == (version - 1, table.head)

    @there_are_tables
    @rule(data=st.data(), adds=some_paths, wrong=st.integers(0, 6), bulk=st.booleans())
    def commit_nonsense(self, data: st.DataObject, adds: set[str], wrong: int, bulk: bool) -> None:
        table = self.a_table(data)
        app, reached = next(iter(table.now.progress.items()), ("nobody", 0))
        mistakes: list[Action] = [
            RemoveFile(path="never-there.parquet"),
            AddFile(path="../outside.parquet", size=1, modification_time=0),
            AddFile(path="negative.parquet", size=-1, modification_time=0),
            AddFile(path="partitioned.parquet", size=1, modification_time=0, partition_values={"day": "2026-01-01"}),
            Protocol(min_reader_version=99, min_writer_version=99),
            Txn(app_id=app, version=reached) if reached else Txn(app_id="", version=1),
            add("statistics.parquet", stats='{"numRecords": -1}'),
        ]
        mistake = mistakes[wrong]
        if bulk and isinstance(mistake, AddFile):
            actions = [AddFiles.of([*map(add, sorted(adds)), mistake])]
        else:
            actions = [*self.actions(adds, (), bulk=bulk), mistake]
        self.refused(
            ValidationError, lambda lake: SqlTxnLogWriter(lake).commit(table.table_id, table.head + 1, actions)
        )

    # Reading

    @there_are_tables
    @rule(data=st.data())
    def travel_in_time(self, data: st.DataObject) -> None:
        table = self.a_table(data)
        dataset = self.a_lake(data).dataset(table.name)
        version = data.draw(st.integers(0, table.head), label="version")
        same(dataset, table, version)
        moment = next(entry.timestamp for entry in dataset.history() if entry.version == version)
        assert dataset.snapshot(timestamp=moment).version == version
        changes = dataset.changes(version, data.draw(st.integers(version, table.head), label="to version"))
        span = range(version, changes.to_version + 1)
        for found, expected in (
            (changes.added, {(path, each) for each in span for path in table.versions[each].added}),
            (changes.removed, {(path, each) for each in span for path in table.versions[each].removed}),
        ):
            assert {(row["path"], row["version"]) for row in found.to_pylist()} == expected
            assert found.num_rows == len(expected)
        with pytest.raises(VersionNotFoundError):
            dataset.snapshot(version=table.head + 1)

    @rule(data=st.data())
    def ask_for_commits(self, data: st.DataObject) -> None:
        lake = self.a_lake(data)
        assert lake.commit_status(str(uuid.UUID(int=data.draw(st.integers(0, 2**20))))) == []
        commits = self.model.commits()
        if commits:
            commit_id = data.draw(st.sampled_from(sorted(commits, key=lambda each: commits[each])), label="commit")
            results = lake.commit_status(commit_id)
            found = [(result.table_id, result.table, result.version) for result in results]
            assert sorted(found) == sorted(commits[commit_id])
            assert {result.commit_id for result in results} == {commit_id}

    # After every step

    @invariant()
    def the_log_is_whole(self) -> None:
        check_invariants(self.lakes[0])

    @invariant()
    def the_log_is_the_model(self) -> None:
        for lake in self.lakes:
            assert {dataset.name: dataset.id for dataset in lake.datasets()} == {
                name: table.table_id for name, table in self.model.tables.items()
            }
            for table in self.model.tables.values():
                dataset = lake.dataset(table.name)
                assert dataset.version == table.head
                same(dataset, table, table.head)
                for app in APPS:
                    assert lake.txn_version(table.name, app) == table.now.progress.get(app)
        for table in self.model.tables.values():
            told = {entry.version: entry.commit_id for entry in self.lakes[0].dataset(table.name).history()}
            assert sorted(told) == list(range(table.head + 1))
            known = {n: version.commit_id for n, version in enumerate(table.versions) if version.commit_id}
            assert known == {version: told[version] for version in known}

    # Helpers

    def a_table(self, data: st.DataObject) -> Table:
        return self.model.tables[data.draw(st.sampled_from(sorted(self.model.tables)), label="table")]

    def a_lake(self, data: st.DataObject) -> Lake:
        return self.lakes[data.draw(st.integers(0, 1), label="handle")]

    def actions(self, adds: Any, removes: Any, *, bulk: bool = False) -> list[Any]:
        adds, removes = sorted(adds), sorted(removes)
        if not bulk:
            return [*(RemoveFile(path=path) for path in removes), *map(add, adds)]
        found: list[Any] = [AddFiles.of([add(path) for path in adds])] if adds else []
        return [*found, RemoveFiles(pa.table({"path": removes}))] if removes else found

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


def same(dataset: Dataset, table: Table, version: int) -> None:
    """Asserts that a table is at a version what the model says."""
    expected = table.versions[version]
    snapshot = dataset.snapshot(version=version)
    assert snapshot.version == version
    assert tuple(snapshot.schema.names) == expected.columns
    files = snapshot.files(columns=["path", "version"]).to_pylist()
    assert sorted((row["path"], row["version"]) for row in files) == sorted(expected.live.items())


def test_the_log_does_what_the_model_does(place: Place) -> None:
    def new_place() -> Place:
        if place.backend == "postgres":
            return replace(place, schema=f"model_{uuid.uuid4().hex[:12]}")
        directory = Path(tempfile.mkdtemp(dir=place.root.parent))
        return replace(place, url=f"{place.backend}:///{directory / 'catalog.db'}", root=directory / "lake")

    run_state_machine_as_test(
        lambda: LogMachine(new_place),
        settings=settings(
            max_examples=12, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
