"""A process of a campaign: threads that write and read until they are told to stop, and write down what they were told.

Whatever goes wrong around them, they ask again. What they add are small files of real Parquet.
"""

import itertools
import logging
import random
import signal
import sys
import threading
import time
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.acero

from lakelog import (
    CommitOutcomeUnknown,
    Lake,
    LakelogError,
    SqlTxnLogWriter,
    TransactionManager,
    ValidationError,
    VersionConflict,
    clone,
)
from lakelog.actions import Action, AddFile, RemoveFile, Txn
from lakelog.changes.conflicts import Reads
from lakelog.changes.leases import register_write
from lakelog.changes.retry import Prepared, commit_with_retries
from lakelog.dataset import Dataset
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.snapshot.snapshot import milliseconds_of
from lakelog.mirror import checkpoint
from lakelog.upkeep import vacuum
from tests.campaign import shim
from tests.campaign.history import Digest, Told
from tests.campaign.journal import Pen
from tests.fixtures.lakes import Place

# Imported late, they would fail where no descriptor is left, by an error of Python's own.
_IMPORTED = (checkpoint, clone, vacuum, pyarrow.acero)

ROWS = 3
"""Of each file."""

PATIENCE = 2.0
"""Seconds that a busy machine may need beside what is promised."""

STOP, PULSE, READY = "stop", "pulse", "ready"

_MOST_COPIED = 10
"""The last version of a table that is copied: a round is not about copying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What an actor is to do."""

    name: str
    place: Place
    directory: Path
    """Where it writes down what it does."""
    seed: int
    tables: tuple[str, ...]
    roles: tuple[str, ...]
    timeout: float
    parquet: bytes
    """The content of every file."""
    control: Path | None = None
    """What goes wrong with it, where the shim is."""
    mirror: str = "sync"
    leases: bool = False
    """Whether its files are registered before they are written, so that no vacuum takes them."""
    options: Mapping[str, Any] = field(default_factory=dict)
    patience: float = PATIENCE
    """Seconds by which a call may be late, beside what is promised."""


def act(pipe: Connection, part: Part) -> None:
    """The target of a child process."""
    # The actors write down what they are told; what is logged besides says the same.
    logging.disable()
    # What was started in the background ignores it, and so do its children.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Its own threads and files before anything can go wrong with them.
    actor = _Actor(part)
    actor.start()
    if part.control is not None:
        shim.attach(part.control)
    try:
        pipe.send(READY)
        while (message := pipe.recv()) != STOP:
            if message == PULSE:
                pipe.send(actor.pulse())
    except (EOFError, KeyboardInterrupt):
        # Its threads end with it, wherever they are.
        return
    actor.stop()
    pipe.send("stopped")


class _Actor:
    def __init__(self, part: Part) -> None:
        self.part = part
        self.stopping = threading.Event()
        self.heart = _Heart()
        self._guard = threading.Lock()
        self._lake: Lake | None = None
        self._roles = [
            ROLES[name](self, f"{part.name}-{number}-{name}", number) for number, name in enumerate(part.roles)
        ]
        self._threads = [threading.Thread(target=role.run, daemon=True) for role in self._roles]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self._threads:
            thread.join(4 * self.part.timeout + 30)
        if self._lake is not None:
            self._lake.close()

    def pulse(self) -> list[str]:
        """Which of the threads do not succeed with anything from now on, though they have the time."""
        before = [role.answers for role in self._roles]
        end = time.monotonic() + 2 * self.part.timeout + 30
        while time.monotonic() < end:
            stuck = [role for role, count in zip(self._roles, before, strict=True) if role.answers <= count + 1]
            if not stuck:
                return []
            time.sleep(0.02)
        threads = dict(zip(self._roles, self._threads, strict=True))
        return [
            f"{role.name}, whose last error is {role.last_error!r}, is {_place_of(threads[role])}" for role in stuck
        ]

    def lake(self) -> Lake:
        """The catalog. Raises ``LakelogError`` while it cannot be opened."""
        with self._guard:
            if self._lake is None:
                self._lake = self.part.place.connect(
                    timeout=self.part.timeout, mirror=self.part.mirror, create=False, **self.part.options
                )
            return self._lake


def _place_of(thread: threading.Thread) -> str:
    """What a thread does at the moment."""
    frame = sys._current_frames().get(thread.ident or 0)
    return "dead" if frame is None else "in " + "".join(traceback.format_stack(frame)[-8:])


class _Heart:
    """Beats as long as the process runs, and so tells for how long it did not."""

    _BEAT = 0.05

    def __init__(self) -> None:
        self.stopped = 0.0
        """Seconds in which nothing ran."""
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(self._BEAT)
            now = time.monotonic()
            if now - last > 4 * self._BEAT:
                self.stopped += now - last
            last = now


class _Role:
    """One thread, and what it does again and again."""

    def __init__(self, actor: _Actor, name: str, number: int) -> None:
        self.name = name
        self.answers = 0
        self.last_error: Exception | None = None
        self._actor = actor
        self._part = actor.part
        self._pen = Pen(self._part.directory / f"{name}.jsonl")
        self._rng = random.Random(self._part.seed * 100 + number)
        self._count = itertools.count()
        self._open: dict[str, int] = {}
        """Commits of which nobody knows what became of them, by their ids."""

    def run(self) -> None:
        while not self._actor.stopping.is_set():
            # Memory may be gone for what is done about an error, too.
            with suppress(Exception):
                self._try()

    def _try(self) -> None:
        try:
            self._ask_again(self._actor.lake())
            self._act(self._actor.lake())
        except LakelogError as error:
            self.last_error = error
            # A race that is lost is an answer, too.
            self.answers += isinstance(error, VersionConflict)
            time.sleep(self._rng.random() * 0.05)
        except Exception as error:
            self.last_error = error
            time.sleep(0.05)
            self._pen.error("anything", error, traceback.format_exc())

    def _act(self, lake: Lake) -> None:
        raise NotImplementedError

    def _ask_again(self, lake: Lake) -> None:
        for commit_id, number in list(self._open.items()):
            with self._timed("commit_status"):
                results = lake.commit_status(commit_id)
            del self._open[commit_id]
            self._pen.end(number, Told.COMMITTED if results else Told.FAILED, **_told(results))

    @contextmanager
    def _timed(self, doing: str) -> Iterator[None]:
        began, stopped = time.monotonic(), self._actor.heart.stopped
        try:
            yield
        finally:
            seconds = time.monotonic() - began - (self._actor.heart.stopped - stopped)
            if seconds > 2 * self._part.timeout + 2 + self._part.patience:
                self._pen.late(doing, seconds)

    def _write(
        self,
        lake: Lake,
        tables: Sequence[str],
        commit: Callable[[Mapping[str, list[Action]], Sequence[str]], Sequence[Any]],
        removes: Mapping[str, Sequence[str]] | None = None,
        batch: tuple[str, int] | None = None,
        expected: Mapping[str, int] | None = None,
    ) -> Told:
        """Writes files, commits them with what else there is, and writes down the answer."""
        removes = removes or {}
        leases = {table: f"__w={uuid.uuid4().hex}=" for table in tables} if self._part.leases else {}
        adds = {
            table: [
                f"{leases[table] + '/' if leases else ''}{self.name}-{next(self._count)}.parquet"
                for _ in range(self._rng.choice((1, 1, 2)))
            ]
            for table in tables
        }
        number = self._pen.begin(adds, removes, batch, expected or {})
        try:
            self._make_files(lake, adds, leases)
        except OSError:
            # The disk is ours as much as the lake's, and does not work either.
            self._pen.end(number, Told.FAILED)
            time.sleep(0.02)
            return Told.FAILED
        except LakelogError:
            self._pen.end(number, Told.FAILED)
            raise
        actions: dict[str, list[Action]] = {
            table: [RemoveFile(path=path) for path in removes.get(table, ())]
            + [_added(path, len(self._part.parquet)) for path in adds[table]]
            for table in tables
        }
        try:
            with self._timed("commit"):
                results = commit(actions, [leases[table] for table in tables] if leases else ())
        except CommitOutcomeUnknown as error:
            self._pen.end(number, Told.UNKNOWN, commit_id=error.commit_id)
            self._open[error.commit_id] = number
            return Told.UNKNOWN
        except LakelogError:
            self._pen.end(number, Told.FAILED)
            raise
        except BaseException as error:
            self._pen.end(number, Told.UNKNOWN)
            if isinstance(error, Exception):
                self._pen.error("commit", error, traceback.format_exc())
            raise
        self._pen.end(number, Told.COMMITTED, **_told(results))
        self.answers += 1
        return Told.COMMITTED

    def _make_files(self, lake: Lake, adds: Mapping[str, list[str]], leases: Mapping[str, str]) -> None:
        for table, paths in adds.items():
            location = Path(lake.dataset(table).location)
            if table in leases:
                register_write(lake.committer, str(location), leases[table])
                (location / leases[table]).mkdir(exist_ok=True)
            for path in paths:
                (location / path).write_bytes(self._part.parquet)

    def _table(self) -> str:
        return self._rng.choice(self._part.tables)


class Appender(_Role):
    """Adds files on top of whatever the head is."""

    def _act(self, lake: Lake) -> None:
        table = self._table()
        dataset = lake.dataset(table)
        writer = SqlTxnLogWriter(lake)
        self._write(lake, [table], lambda actions, leases: [writer.append(dataset.id, actions[table], leases=leases)])


class Racer(_Role):
    """Names the head that it expects, and loses some races."""

    def _act(self, lake: Lake) -> None:
        table = self._table()
        dataset = lake.dataset(table)
        version = dataset.version + 1
        writer = SqlTxnLogWriter(lake)
        self._write(
            lake,
            [table],
            lambda actions, leases: [writer.commit(dataset.id, version, actions[table], leases=leases)],
            expected={table: version},
        )


class Replacer(_Role):
    """Puts a file into the place of some that are there, as a compaction does."""

    def _act(self, lake: Lake) -> None:
        table = self._table()
        dataset = lake.dataset(table)
        snapshot = dataset.snapshot()
        files = sorted(snapshot.files(columns=["path"]).column("path").to_pylist())
        old = self._rng.sample(files, min(len(files), self._rng.choice((1, 3, 8))))
        writer = SqlTxnLogWriter(lake)
        self._write(
            lake,
            [table],
            lambda actions, leases: [
                writer.commit(dataset.id, snapshot.version + 1, actions[table], operation="OPTIMIZE", leases=leases)
            ],
            {table: old},
            expected={table: snapshot.version + 1},
        )


class Pair(_Role):
    """Commits to several tables at once: on the heads that it has seen, or on whatever they are by then."""

    def _act(self, lake: Lake) -> None:
        tables = self._rng.sample(self._part.tables, 2)
        datasets = {table: lake.dataset(table) for table in tables}
        heads = lake.versions()

        retries = self._rng.choice((0, 10))

        def commit(actions: Mapping[str, list[Action]], leases: Sequence[str]) -> Sequence[Any]:
            described = Description(operation="WRITE", operation_parameters={}, extra={})
            owned = dict(zip(tables, ([lease] for lease in leases), strict=False))

            def draft(table: str, head: int) -> Draft:
                return Draft(datasets[table].id, head, actions[table], described, leases=owned.get(table, ()))

            prepared = [
                Prepared(
                    table_id=datasets[table].id,
                    base_version=heads[table],
                    draft_for=partial(draft, table),
                    reads=Reads(),
                )
                for table in tables
            ]
            return commit_with_retries(lake.committer, prepared, retries=retries)

        self._write(lake, tables, commit)


class Manager(_Role):
    """Takes the lock first."""

    def _act(self, lake: Lake) -> None:
        table = self._table()
        dataset = lake.dataset(table)
        manager = TransactionManager(lake)

        def commit(actions: Mapping[str, list[Action]], leases: Sequence[str]) -> Sequence[Any]:
            with manager.begin(dataset.id) as context:
                version = manager.commit(context, actions[table], (), {"operation": "WRITE"}, leases=leases)
                return [_Told(table, version, context.commit_id)]

        self._write(lake, [table], commit)


class Stream(_Role):
    """Commits batch after batch, each until it is there, by the progress that the table keeps.

    The application outlives its process: the next one goes on where the table says that this one was.
    """

    def __init__(self, actor: _Actor, name: str, number: int) -> None:
        super().__init__(actor, name, number)
        self._table_name = self._part.tables[0]
        self._application = f"stream {number} of {self._table_name}"
        self._batch: int | None = None

    def _act(self, lake: Lake) -> None:
        table = self._table_name
        dataset = lake.dataset(table)
        if self._batch is None:
            self._batch = (dataset.txn_version(self._application) or 0) + 1
        writer = SqlTxnLogWriter(lake)
        progress = Txn(app_id=self._application, version=self._batch)
        try:
            told = self._write(
                lake,
                [table],
                lambda actions, leases: [writer.append(dataset.id, [*actions[table], progress], leases=leases)],
                batch=(self._application, self._batch),
            )
        except ValidationError as error:
            if "already committed" not in str(error):
                raise
            self._batch += 1
            return
        if told is Told.COMMITTED:
            self._batch += 1


class Cloner(_Role):
    """Copies all files of a table as it was early on, and drops the copy."""

    def _act(self, lake: Lake) -> None:
        source = lake.dataset(self._table())
        snapshot = source.snapshot(self._rng.randrange(min(source.version, _MOST_COPIED) + 1))
        copy = lake.clone(source, f"copy-{uuid.uuid4().hex}", snapshot.version, shallow=False)
        paths = copy.snapshot().files(columns=["path"]).column("path").to_pylist()
        expected = snapshot.files(columns=["path"]).num_rows
        damaged = [path for path in paths if Path(copy.location, path).read_bytes() != self._part.parquet]
        lake.drop_dataset(copy.name)
        if damaged or len(paths) != expected:
            raise AssertionError(
                f"a copy of version {snapshot.version} of {source.name} has {len(paths)} files instead of {expected}, "
                f"of which these are not what was copied: {damaged}"
            )
        self.answers += 1
        time.sleep(0.1)


class Reader(_Role):
    """Looks at all tables at one moment, and lists the files of some."""

    def _act(self, lake: Lake) -> None:
        began = time.monotonic()
        with self._timed("versions"):
            heads = {head.name: head for head in lake.heads()}
        ended = time.monotonic()
        if not heads.keys() >= set(self._part.tables):
            return
        versions = {table: heads[table].version for table in self._part.tables}
        times = {table: heads[table].committed_at for table in self._part.tables}
        files = {}
        for table in self._rng.sample(self._part.tables, self._rng.choice((0, 1))):
            with self._timed("files"):
                listed = Dataset(lake, heads[table]).snapshot(versions[table]).files(columns=["path"])
            files[table] = Digest.of(listed.column("path").to_pylist())
        self._pen.read(began, ended, versions, files, times=times)
        self.answers += 1
        time.sleep(0.005)


class Historian(_Role):
    """Reads the tables of a commit as they were at its time, which is one for all of them."""

    def _act(self, lake: Lake) -> None:
        began = time.monotonic()
        with self._timed("history"):
            histories = {table: lake.dataset(table).history(20) for table in self._part.tables}
        chosen = self._rng.choice(histories[self._table()])
        tables = [
            table
            for table, commits in histories.items()
            if any(commit.commit_id == chosen.commit_id for commit in commits)
        ]
        at = milliseconds_of(chosen.timestamp)
        versions, files = {}, {}
        for table in tables:
            with self._timed("snapshot"):
                snapshot = lake.dataset(table).snapshot(timestamp=at)
                listed = snapshot.files(columns=["path"])
            versions[table] = snapshot.version
            files[table] = Digest.of(listed.column("path").to_pylist())
        self._pen.read(began, time.monotonic(), versions, files, at)
        self.answers += 1
        time.sleep(0.02)


class Vacuumer(_Role):
    """Deletes what no version needs, as soon as it may."""

    def _act(self, lake: Lake) -> None:
        dataset = lake.dataset(self._table())
        if lake.mirror.status(dataset.id).state == "stopped":
            # As a person would once the stranger's commit is gone: until then no file goes.
            dataset.mirror()
        dataset.vacuum(0, force=True)
        self.answers += 1
        time.sleep(0.2)


ROLES: dict[str, type[_Role]] = {
    "appender": Appender,
    "racer": Racer,
    "replacer": Replacer,
    "pair": Pair,
    "manager": Manager,
    "stream": Stream,
    "cloner": Cloner,
    "reader": Reader,
    "historian": Historian,
    "vacuumer": Vacuumer,
}


def _added(path: str, size: int) -> AddFile:
    return AddFile(path=path, size=size, modification_time=0, stats=f'{{"numRecords":{ROWS}}}')


class _Told(NamedTuple):
    """What a ``TransactionManager`` tells of a commit."""

    table: str
    version: int
    commit_id: str


def _told(results: Sequence[Any]) -> dict[str, Any]:
    if not results:
        return {}
    return {
        "versions": {result.table: result.version for result in results},
        "times": {result.table: result.committed_at for result in results if hasattr(result, "committed_at")},
        "commit_id": results[0].commit_id,
    }
