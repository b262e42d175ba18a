"""Random histories against a model that fits on a page, on every database, with the invariants after every step."""

import itertools
import json
import uuid
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
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
    LakelogError,
    RemoveFiles,
    RowGroup,
    SqlTxnLogWriter,
    TransactionManager,
    ValidationError,
    VersionConflict,
)
from lakelog.actions import Action, AddFile, DeletionVector, Metadata, Protocol, RemoveFile, Txn
from lakelog.log.commit import Conflict
from lakelog.log.draft import Description, Draft
from lakelog.schema import to_delta_json
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants

NAMES = ("apples", "pears", 'Ünïcode \'n "quotes"')
PATHS = tuple(f"day=1/{letter}.parquet" for letter in "abcdef")
APPS = ("stream", "batch")
MANY = 25
FEATURES = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("appendOnly", "invariants", "deletionVectors"),
)


@dataclass(frozen=True)
class File:
    """A live file: what tells one version of it from another."""

    size: int
    vector: str | None
    low: int


@dataclass
class Table:
    """What a table should be."""

    id: int
    columns: int = 1
    live: list[dict[str, File]] = field(default_factory=lambda: [{}])
    progress: dict[str, int] = field(default_factory=dict)

    @property
    def version(self) -> int:
        return len(self.live) - 1

    @property
    def head(self) -> dict[str, File]:
        return self.live[-1]


@dataclass
class Change:
    """Actions, and what they make of a table."""

    actions: list[Action]
    live: dict[str, File]
    progress: dict[str, int]


class Machine(RuleBasedStateMachine):
    """Does the same to a lake and to the model."""

    place: Place

    def __init__(self) -> None:
        super().__init__()
        self.lake = self.place.connect()
        self.tables: dict[str, Table] = {}
        self.sizes = itertools.count(1)
        self.bulk = itertools.count()
        self.steps = 0

    def teardown(self) -> None:
        self.lake.close()

    # Tables

    @initialize()
    def begin(self) -> None:
        self._create(NAMES[0])

    @rule(name=st.sampled_from(NAMES))
    def create(self, name: str) -> None:
        if name in self.tables:
            with pytest.raises(DatasetExistsError):
                self.lake.create_dataset(name, _schema(1), ["day"])
        else:
            self._create(name)

    def _create(self, name: str) -> None:
        dataset = self.lake.create_dataset(name, _schema(1), ["day"])
        SqlTxnLogWriter(self.lake).commit(dataset.id, 1, [FEATURES])
        self.tables[name] = Table(dataset.id, live=[{}, {}])

    @rule(data=st.data(), new_name=st.sampled_from(NAMES))
    def rename(self, data: st.DataObject, new_name: str) -> None:
        name = self._draw(data)
        if new_name in self.tables and new_name != name:
            with pytest.raises(DatasetExistsError):
                self.lake.rename_dataset(name, new_name)
        elif new_name != name:
            self.lake.rename_dataset(name, new_name)
            self.tables[new_name] = self.tables.pop(name)

    @precondition(lambda self: len(self.tables) > 1)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        table = self.tables.pop(name := self._draw(data))
        self.lake.drop_dataset(name)
        with pytest.raises(DatasetNotFoundError):
            SqlTxnLogWriter(self.lake).commit(table.id, table.version + 1, [_add("late.parquet", File(1, None, 0))])

    @rule()
    def reopen(self) -> None:
        self.lake.close()
        self.lake = self.place.connect()

    # Commits

    @rule(data=st.data())
    def commit(self, data: st.DataObject) -> None:
        table = self.tables[self._draw(data)]
        change = self._draw_change(data, table)
        groups = [RowGroup(path=a.path, row_group=0, row_count=9) for a in change.actions if isinstance(a, AddFile)]
        result = SqlTxnLogWriter(self.lake).commit(table.id, table.version + 1, change.actions, row_groups=groups[:1])
        self._apply(table, change)
        assert result.version == table.version
        assert [each.version for each in self.lake.commit_status(result.commit_id)] == [result.version]

    @rule(data=st.data(), keep=st.booleans())
    def commit_through_manager(self, data: st.DataObject, keep: bool) -> None:
        table = self.tables[self._draw(data)]
        change = self._draw_change(data, table)
        manager = TransactionManager(self.lake)
        with manager.begin(table.id, table.version) as context:
            with pytest.raises(LakelogError):
                manager.begin(table.id)
            if keep:
                assert manager.commit(context, change.actions) == table.version + 1
                self._apply(table, change)

    @rule(data=st.data(), replace=st.booleans())
    def commit_many(self, data: st.DataObject, replace: bool) -> None:
        table = self.tables[self._draw(data)]
        number = next(self.bulk)
        added = {f"day=1/{number}-{each}.parquet": File(next(self.sizes), None, each) for each in range(MANY)}
        removed = sorted(table.head) if replace else []
        actions: list[Any] = [AddFiles(_files(added))]
        if removed:
            vectors = pa.array([_vector_json(table.head[path].vector) for path in removed], pa.string())
            actions.append(RemoveFiles(pa.table({"path": removed, "deletion_vector": vectors})))
        SqlTxnLogWriter(self.lake).commit(table.id, table.version + 1, actions)
        kept = {path: file for path, file in table.head.items() if path not in removed}
        table.live.append(kept | added)

    @rule(data=st.data())
    def commit_to_two_tables(self, data: st.DataObject) -> None:
        names = data.draw(st.permutations(sorted(self.tables)))[:2]
        tables = [self.tables[name] for name in names]
        changes = [self._draw_change(data, table) for table in tables]
        stale = data.draw(st.sampled_from([None, *range(len(tables))]))
        drafts = [
            Draft(table.id, table.version - (number == stale), change.actions, _description())
            for number, (table, change) in enumerate(zip(tables, changes, strict=True))
        ]
        outcome = self.lake.committer.commit(drafts)
        if stale is not None:
            assert isinstance(outcome, Conflict)
            assert outcome == Conflict(names[stale], tables[stale].id, tables[stale].version - 1, tables[stale].version)
            return
        assert not isinstance(outcome, Conflict)
        for table, change, result in zip(tables, changes, outcome, strict=True):
            self._apply(table, change)
            assert (result.table_id, result.version) == (table.id, table.version)
        status = self.lake.commit_status(outcome[0].commit_id)
        assert sorted(status, key=str) == sorted(outcome, key=str)

    @rule(data=st.data())
    def add_column(self, data: st.DataObject) -> None:
        table = self.tables[self._draw(data)]
        metadata = Metadata(
            id=str(uuid.uuid4()), schema_string=to_delta_json(_schema(table.columns + 1)), partition_columns=("day",)
        )
        SqlTxnLogWriter(self.lake).commit(table.id, table.version + 1, [metadata])
        table.columns += 1
        table.live.append(dict(table.head))

    # Commits that must not happen

    @rule(data=st.data(), distance=st.sampled_from([-2, -1, 1, 5]))
    def commit_to_another_version(self, data: st.DataObject, distance: int) -> None:
        name = self._draw(data)
        table = self.tables[name]
        expected = table.version + distance
        if expected < 0:
            return
        with pytest.raises(VersionConflict) as caught:
            SqlTxnLogWriter(self.lake).commit(table.id, expected + 1, self._draw_change(data, table).actions)
        assert (caught.value.expected, caught.value.actual) == (expected, table.version)
        assert (caught.value.table, caught.value.table_id) == (name, table.id)
        with pytest.raises(VersionConflict):
            TransactionManager(self.lake).begin(table.id, expected)

    @rule(data=st.data(), number=st.integers(0, 5))
    def commit_nonsense(self, data: st.DataObject, number: int) -> None:
        table = self.tables[self._draw(data)]
        good = _add("good.parquet", File(1, None, 0))
        live = next(iter(table.head.items()), None)
        nonsense: list[list[Action]] = [
            [good, RemoveFile(path="nowhere.parquet")],
            [good, good],
            [good, AddFile(path="../outside.parquet", size=1, partition_values={"day": "1"})],
            [good, AddFile(path="bad.parquet", size=1, partition_values={"month": "1"})],
            [good, RemoveFile(path=live[0], deletion_vector=_vector("other"))] if live else [good, good],
        ]
        if table.progress:
            app, version = next(iter(table.progress.items()))
            nonsense.append([good, Txn(app_id=app, version=version)])
        with pytest.raises(ValidationError):
            SqlTxnLogWriter(self.lake).commit(table.id, table.version + 1, nonsense[number % len(nonsense)])

    # Reads

    @rule(data=st.data(), value=st.integers(0, 30))
    def read(self, data: st.DataObject, value: int) -> None:
        """Any version, by its number and by its time, and with a predicate that must not lose a file."""
        name = self._draw(data)
        table = self.tables[name]
        dataset = self.lake.dataset(name)
        version = data.draw(st.integers(0, table.version))
        committed = dataset.history()[table.version - version]
        assert committed.version == version
        for snapshot in (dataset.snapshot(version), dataset.snapshot(timestamp=committed.timestamp)):
            assert snapshot.version == version
            assert _read(snapshot.files()) == table.live[version]
            kept = _read(snapshot.files(where=f"id = {value}"))
            assert kept == {path: file for path, file in table.live[version].items() if _holds(file, value)}
        assert self.lake.txn_version(name, APPS[0]) == table.progress.get(APPS[0])

    # After every step

    @invariant()
    def agrees(self) -> None:
        self.steps += 1
        assert {each.name: each.id for each in self.lake.datasets()} == {
            name: table.id for name, table in self.tables.items()
        }
        for name, table in self.tables.items():
            dataset = self.lake.dataset(name)
            assert dataset.version == table.version
            for version in {table.version, self.steps * 7 % (table.version + 1)}:
                assert _read(dataset.snapshot(version).files()) == table.live[version]
        check_invariants(self.lake)

    def _draw(self, data: st.DataObject) -> str:
        return data.draw(st.sampled_from(sorted(self.tables)))

    def _draw_change(self, data: st.DataObject, table: Table) -> Change:
        """A valid commit: for some paths what can be done to them, and perhaps an application's progress."""
        live, progress = dict(table.head), dict(table.progress)
        actions: list[Action] = []
        for path in data.draw(st.lists(st.sampled_from(PATHS), min_size=1, max_size=4, unique=True)):
            old = live.get(path)
            vector = data.draw(st.sampled_from([None, "one", "two"]))
            if old is not None and data.draw(st.booleans()):
                actions.append(RemoveFile(path=path, deletion_vector=_vector(old.vector)))
                del live[path]
                continue
            if old is not None and old.vector != vector:
                actions.append(RemoveFile(path=path, deletion_vector=_vector(old.vector)))
            live[path] = File(next(self.sizes), vector, data.draw(st.integers(0, 30)))
            actions.append(_add(path, live[path]))
        if data.draw(st.booleans()):
            app = data.draw(st.sampled_from(APPS))
            progress[app] = progress.get(app, 0) + data.draw(st.integers(1, 3))
            actions.append(Txn(app_id=app, version=progress[app]))
        return Change(actions, live, progress)

    @staticmethod
    def _apply(table: Table, change: Change) -> None:
        table.live.append(change.live)
        table.progress = change.progress


def _schema(columns: int) -> pa.Schema:
    return pa.schema([("id", pa.int64()), ("day", pa.int32()), *((f"c{n}", pa.string()) for n in range(1, columns))])


def _statistics(file: File) -> str:
    """The file holds two values: its lowest, and the one three above."""
    bounds = {"minValues": {"id": file.low}, "maxValues": {"id": file.low + 3}, "nullCount": {"id": 0}}
    return json.dumps({"numRecords": 9, **bounds})


def _holds(file: File, value: int) -> bool:
    return file.low <= value <= file.low + 3


def _add(path: str, file: File) -> AddFile:
    return AddFile(
        path=path,
        size=file.size,
        partition_values={"day": "1"},
        stats=_statistics(file),
        deletion_vector=_vector(file.vector),
    )


def _files(files: dict[str, File]) -> pa.Table:
    return pa.table(
        {
            "path": list(files),
            "size": [file.size for file in files.values()],
            "partition_values": ['{"day": "1"}'] * len(files),
            "stats": [_statistics(file) for file in files.values()],
        }
    )


def _vector(name: str | None) -> DeletionVector | None:
    codes = {"one": "00000", "two": "00001", "other": "00002"}
    if name is None:
        return None
    return DeletionVector(storage_type="i", path_or_inline_dv=codes[name], size_in_bytes=4, cardinality=1)


def _vector_json(name: str | None) -> str | None:
    vector = _vector(name)
    return None if vector is None else vector.to_json()


def _read(files: Any) -> dict[str, File]:
    found: dict[str, File] = {}
    names = {"00000": "one", "00001": "two"}
    for row in files.select(["path", "size", "deletion_vector", "stats"]).to_pylist():
        vector = row["deletion_vector"] and names[json.loads(row["deletion_vector"])["pathOrInlineDv"]]
        assert row["path"] not in found, "a path is live twice"
        found[row["path"]] = File(row["size"], vector, json.loads(row["stats"])["minValues"]["id"])
    return found


def _description() -> Description:
    return Description(operation="WRITE", operation_parameters={}, extra={})


def test_every_history_agrees_with_the_model(place: Place) -> None:
    number = itertools.count()

    def machine() -> Machine:
        here = next(number)
        machine = type("Machine", (Machine,), {"place": _fresh(place, here)})
        return machine()

    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=30,
            stateful_step_count=25,
            derandomize=True,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )


def _fresh(place: Place, number: int) -> Place:
    """A catalog of its own for every history."""
    if place.backend == "postgres":
        return Place(place.backend, place.url, place.root, f"{place.schema}_{number}")
    return Place(place.backend, f"{place.url}-{number}", place.root / str(number), place.schema)
