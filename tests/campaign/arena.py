"""One round of a campaign: a catalog, actors, what goes wrong meanwhile, and what is true at the end."""

import contextlib
import itertools
import random
import shutil
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog import Lake, LakelogError
from tests.campaign.actor import PULSE, READY, ROWS, STOP, Part, act
from tests.campaign.checker import check
from tests.campaign.history import Commit, History, Told
from tests.campaign.journal import Story, read_story
from tests.campaign.pgbouncer import Pgbouncer
from tests.campaign.shim import Control
from tests.faults.children import Child
from tests.faults.proxy import Proxy
from tests.fixtures.lakes import Place, qualified
from tests.fixtures.postgres import Server
from tests.invariants import check_invariants

TABLES = ("a", "b", "c")
SCHEMA = pa.schema([("id", pa.int64())])

CRASHES = {-signal.SIGSEGV, -signal.SIGBUS, -signal.SIGABRT, -signal.SIGILL, -signal.SIGFPE}
"""Exit codes of processes that no signal of ours has ended."""

_OF_CLOCKS = ("a clock was wrong", "never said that it ended")
"""What a check rightly finds where clocks were wrong: also leases of writes that seem to have begun long ago."""

TEAMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "sqlite": (
        ("appender", "racer", "reader"),
        ("replacer", "pair", "historian"),
        ("manager", "stream", "pair", "cloner"),
    ),
    "postgres": (
        ("appender", "racer", "reader"),
        ("replacer", "pair", "historian"),
        ("manager", "stream", "pair", "cloner"),
    ),
    "duckdb": (("appender", "racer", "replacer", "pair", "manager", "stream", "reader", "historian", "cloner"),),
}
"""The threads of each process, by database."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What a round is like, besides what goes wrong in it."""

    backend: str
    seed: int
    timeout: float = 3.0
    mirror: str = "sync"
    upkeep: bool = False
    """Whether a vacuum runs all the time."""

    @classmethod
    def drawn(cls, backend: str, seed: int) -> "Settings":
        rng = random.Random(seed)
        return cls(
            backend=backend,
            seed=seed,
            timeout=rng.choice((1.0, 3.0)),
            mirror=rng.choice(("sync", "sync", "background", "manual")),
            upkeep=rng.random() < 0.3,
        )


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a round has shown."""

    settings: Settings
    faults: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    failed: int = 0
    unknown: int = 0
    resolved: int = 0
    """Commits whose outcome was unknown at first and told later."""
    reads: int = 0
    lost: int = 0
    told_wrongly: int = 0
    """Findings of the checker, by kind."""
    findings: list[str] = field(default_factory=list)
    """What is wrong: nothing of this may ever be."""
    errors: list[dict[str, Any]] = field(default_factory=list)
    """Errors that are not ours."""
    late: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


class Arena:
    """A catalog, and processes that work on it. As a context manager it takes everything away again."""

    def __init__(self, directory: Path, settings: Settings, url: str | None, shim: bool) -> None:
        self.directory = directory
        self.settings = settings
        self.tables = TABLES
        self.catalog_directory = directory / "catalog"
        self.root = directory / "lake"
        self.place = self._place(url)
        self.doors = [self.place]
        """By which actors come in: through the network, a pooler, or directly."""
        self.options: list[dict[str, Any]] = [{}]
        """Of ``connect``, for each door."""
        directory.mkdir(parents=True)
        self.control = Control(directory / "control") if shim else None
        self.server: Server | None = None
        self.proxy: Proxy | None = None
        self.pooler: Pgbouncer | None = None
        self.has_disks = False
        self.locations: dict[str, Path] = {}
        """Of the tables."""
        self.mirror_fails = False
        self.starved: set[int] = set()
        """Processes that were given too little memory, of which C++ makes a crash."""
        self.findings: list[str] = []
        """Crashes, and processes that do not end."""
        self.aborts = 0
        """Processes that DuckDB has ended, which it does where an error of a file surprises it."""
        self._actors: dict[int, Child] = {}
        self._teams: dict[int, tuple[str, ...]] = {}
        self._numbers = itertools.count()
        self._stories = directory / "stories"
        self._parquet = _parquet()

    def __enter__(self) -> "Arena":
        return self

    def __exit__(self, *exception: object) -> None:
        for actor in self._actors.values():
            with contextlib.suppress(OSError):
                actor.signal(signal.SIGCONT)
            actor.__exit__()
        if self.control is not None:
            self.control.__exit__()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _place(self, url: str | None) -> Place:
        schema = f"round_{uuid.uuid4().hex[:12]}"
        if url is None:
            url = f"{self.settings.backend}:///{self.catalog_directory / 'catalog.db'}"
        return Place(self.settings.backend, url, self.root, schema)

    def prepare(self) -> None:
        for directory in (self.catalog_directory, self.root, self._stories):
            directory.mkdir(parents=True, exist_ok=True)
        with self.place.connect() as lake:
            for name in self.tables:
                self.locations[name] = Path(lake.create_dataset(name, SCHEMA).location)

    # Actors

    def start(self) -> None:
        for team in TEAMS[self.settings.backend]:
            self._spawn(team)
        if self.settings.upkeep and self.settings.backend != "duckdb":
            self._spawn(("vacuumer",))

    def _spawn(self, team: tuple[str, ...]) -> int:
        number = next(self._numbers)
        door = number % len(self.doors)
        extra = ("vacuumer",) if self.settings.upkeep and self.settings.backend == "duckdb" else ()
        part = Part(
            name=f"actor-{number}",
            place=self.doors[door],
            directory=self._stories,
            seed=self.settings.seed * 1000 + number,
            tables=self.tables,
            roles=(*team, *extra),
            timeout=self.settings.timeout,
            parquet=self._parquet,
            control=None if self.control is None else self.control.path,
            mirror=self.settings.mirror,
            leases=self.settings.upkeep,
            options=self.options[door],
        )
        actor = Child(act, part)
        with contextlib.suppress(EOFError, OSError):
            assert actor.receive() == READY
        self._actors[number] = actor
        self._teams[number] = team
        return number

    @property
    def pids(self) -> list[int]:
        """Of the actors that live."""
        return [actor.pid for actor in self._actors.values() if actor.is_alive]

    def ends(self, pid: int) -> bool:
        """Whether an actor dies within some seconds."""
        end = time.monotonic() + 5
        while pid in self.pids:
            if time.monotonic() > end:
                return False
            time.sleep(0.005)
        return True

    def revive(self) -> None:
        """Others take the places of actors that are dead."""
        for number, actor in list(self._actors.items()):
            if not actor.is_alive:
                self._replace(number)

    def _replace(self, number: int) -> int:
        self._end(number)
        return self._spawn(self._teams[number])

    def _end(self, number: int) -> None:
        actor = self._actors.pop(number)
        code = actor.exit_code
        if code == -signal.SIGABRT and self.settings.backend == "duckdb":
            self.aborts += 1
        elif code in CRASHES and actor.pid not in self.starved:
            self.findings.append(f"actor-{number} has crashed: {signal.Signals(-code).name}")
        actor.__exit__()

    def pulse(self) -> list[str]:
        """Who does not get on any more, though nothing is wrong any longer."""
        if self.control is not None:
            self.control.calm()
        self.revive()
        stuck, dead = self._ask_all(list(self._actors))
        # They may have died of what went wrong before. Others in their places have no reason to.
        new = [self._replace(number) for number in dead]
        still_stuck, dead = self._ask_all(new)
        return stuck + still_stuck + [f"actor-{number} has died" for number in dead]

    def _ask_all(self, numbers: list[int]) -> tuple[list[str], list[int]]:
        """Which threads do not get on, and which actors are dead."""
        for number in numbers:
            with contextlib.suppress(OSError):
                self._actors[number].send(PULSE)
        stuck: list[str] = []
        dead: list[int] = []
        for number in numbers:
            try:
                stuck += self._actors[number].receive()
            except (EOFError, OSError):
                dead.append(number)
            except AssertionError as error:
                stuck.append(f"actor-{number}: {error!r}")
        return stuck, dead

    def stop(self) -> None:
        for actor in self._actors.values():
            with contextlib.suppress(OSError):
                actor.send(STOP)
        for number, actor in list(self._actors.items()):
            try:
                actor.receive()
            except (EOFError, OSError):
                self._end(number)
            except AssertionError:
                # It would keep the catalog from whoever looks at it next.
                self.findings.append(f"actor-{number} does not end")
                self._end(number)

    # What is true in the end

    def verify(self, outcome: Outcome) -> None:
        story = read_story(self._stories)
        with self._reopened() as lake:
            for name in self.tables:
                status = lake.dataset(name).mirror()
                if (status.state, status.published) != ("published", status.head):
                    outcome.findings.append(f"the mirror of {name} does not recover: {status}")
            try:
                check_invariants(lake)
            except AssertionError as error:
                outcome.findings.append(f"an invariant does not hold: {error}"[:2000])
            for name in self.tables:
                report = lake.check(name, deep=False)
                # A leftover of an actor that was killed is what a vacuum is for, and clocks are wrong here on purpose.
                found = [
                    each
                    for each in report.findings
                    if each.invariant and not any(words in each.message for words in _OF_CLOCKS)
                ]
                outcome.findings += [f"check of {name}: {each}" for each in found]
            story = _resolved(lake, story, outcome)
            history = History(writes=story.writes, reads=story.reads, log=read_log(lake, self.tables))
        found = check(history)
        outcome.findings += [str(finding) for finding in found]
        outcome.lost = sum(finding.is_loss for finding in found)
        outcome.told_wrongly = len(found) - outcome.lost
        told = Counter(write.told for write in story.writes)
        outcome.acknowledged = told[Told.COMMITTED]
        if not outcome.acknowledged:
            outcome.findings.append("no commit was acknowledged")
        outcome.failed, outcome.unknown = told[Told.FAILED], told[Told.UNKNOWN]
        outcome.reads = len(story.reads)
        outcome.errors += story.errors
        outcome.late += story.late

    @contextmanager
    def _reopened(self) -> Iterator[Lake]:
        end = time.monotonic() + 60
        while True:
            try:
                lake = self.place.connect(create=False, timeout=20)
                break
            except LakelogError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)
        with lake:
            yield lake


def _resolved(lake: Lake, story: Story, outcome: Outcome) -> Story:
    """Asks what became of commits whose writers died before they could ask."""
    writes = []
    for write in story.writes:
        if write.told is Told.UNKNOWN and write.commit_id is not None:
            results = lake.commit_status(write.commit_id)
            outcome.resolved += 1
            told = Told.COMMITTED if results else Told.FAILED
            versions = {result.table: result.version for result in results}
            write = replace(write, told=told, versions=versions, ended=time.monotonic())
        writes.append(write)
    return Story(writes=tuple(writes), reads=story.reads, errors=story.errors, late=story.late)


def read_log(lake: Lake, tables: tuple[str, ...]) -> tuple[Commit, ...]:
    """Every commit but the first of each table, as the catalog has it."""
    catalog = lake.committer.catalog
    found = []
    with catalog.session() as session:
        for name in tables:
            key = {"table_id": lake.dataset(name).id}
            rows = {
                table: session.fetch(
                    f"SELECT {columns} FROM {qualified(lake, table)} WHERE table_id = {key['table_id']}", {}
                )
                for table, columns in (
                    ("dl_table_versions", "version, commit_id, committed_at"),
                    ("dl_add_files", "version, path"),
                    ("dl_remove_files", "version, path"),
                )
            }
            adds = _by_version(rows["dl_add_files"])
            removes = _by_version(rows["dl_remove_files"])
            found += [
                Commit(
                    table=name,
                    version=version,
                    commit_id=str(commit_id),
                    committed_at=committed_at,
                    adds=adds.get(version, ()),
                    removes=removes.get(version, ()),
                )
                for version, commit_id, committed_at in rows["dl_table_versions"]
                if version > 0
            ]
    return tuple(found)


def _by_version(rows: list[tuple[Any, ...]]) -> dict[int, tuple[str, ...]]:
    found: dict[int, list[str]] = {}
    for version, path in rows:
        found.setdefault(version, []).append(path)
    return {version: tuple(paths) for version, paths in found.items()}


def _parquet() -> bytes:
    text = BytesIO()
    pq.write_table(pa.table({"id": pa.array(range(ROWS), pa.int64())}), text)
    return text.getvalue()
