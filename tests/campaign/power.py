"""Loss of power: what was not synced is gone, or there in part, or in another order.

One process works on a catalog while the shim writes down all that it changes and syncs. Then the power is lost at many
points of that record: each time the files are made as a disk could have them, and the catalog is opened again.

What a disk may do: of the bytes that were written to a file since its last sync, any sectors may be there. Of the names
that were made, changed and taken away in a directory since its last sync, the first few are, in their order.

DuckDB promises less: where a later sector of its WAL is there and an earlier one is not, it may refuse to open. For its
catalogs, unsynced writes survive in their order.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog import Dataset, Lake, LakelogError, SqlTxnLogWriter, TransactionManager, connect
from lakelog.actions import AddFile, RemoveFile
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.outcomes import Conflict
from tests.campaign import shim
from tests.campaign.shim import Entry, Step, read_journal
from tests.fixtures.lakes import rows
from tests.invariants import check_invariants

SECTOR = 512
TABLES = ("a", "b")
SCHEMA = pa.schema([("id", pa.int64())])
LOST = "lost:"
"""Before what was acknowledged and is not there."""
_PASSING = "-shm"
"""The end of a name that no disk keeps: SQLite makes it anew."""


# The work


def work(root: Path, url: str, seed: int, commits: int, durability: str) -> None:
    """Commits of every kind. Each acknowledgement is noted in the record."""
    rng = random.Random(seed)
    with connect(url, root=root / "lake", pool_size=2, durability=durability) as lake:
        for name in TABLES:
            lake.create_dataset(name, SCHEMA, properties={"delta.checkpointInterval": "7"})
            shim.note(json.dumps({"created": name}))
        for number in range(commits):
            act = rng.choice((_append, _append, _replace, _pair, _manage, _restore, _copy))
            for result in act(lake, rng, number):
                shim.note(json.dumps({"table": result[0], "version": result[1], "commit_id": result[2]}))
            if rng.random() < 0.05:
                lake.dataset(rng.choice(TABLES)).vacuum(0, force=True)


Acknowledged = list[tuple[str, int, str]]


def _append(lake: Lake, rng: random.Random, number: int) -> Acknowledged:
    dataset = lake.dataset(rng.choice(TABLES))
    result = SqlTxnLogWriter(lake).append(dataset.id, _files(dataset, rng, number))
    return [(result.table, result.version, result.commit_id)]


def _replace(lake: Lake, rng: random.Random, number: int) -> Acknowledged:
    dataset = lake.dataset(rng.choice(TABLES))
    live = sorted(dataset.snapshot().files(columns=["path"]).column("path").to_pylist())
    removed = [RemoveFile(path=path) for path in rng.sample(live, min(len(live), 3))]
    actions = [*removed, *_files(dataset, rng, number)]
    result = SqlTxnLogWriter(lake).commit(dataset.id, dataset.version + 1, actions, operation="OPTIMIZE")
    return [(result.table, result.version, result.commit_id)]


def _pair(lake: Lake, rng: random.Random, number: int) -> Acknowledged:
    described = Description(operation="WRITE", operation_parameters={}, extra={})
    datasets = [lake.dataset(name) for name in TABLES]
    drafts = [Draft(each.id, each.version, _files(each, rng, number), described) for each in datasets]
    outcome = lake.committer.commit(drafts)
    assert not isinstance(outcome, Conflict)
    return [(result.table, result.version, result.commit_id) for result in outcome]


def _manage(lake: Lake, rng: random.Random, number: int) -> Acknowledged:
    dataset = lake.dataset(rng.choice(TABLES))
    manager = TransactionManager(lake)
    with manager.begin(dataset.id) as context:
        version = manager.commit(context, _files(dataset, rng, number))
    return [(dataset.name, version, context.commit_id)]


def _restore(lake: Lake, rng: random.Random, number: int) -> Acknowledged:
    """The version before, unless a vacuum has taken its files."""
    dataset = lake.dataset(rng.choice(TABLES))
    with suppress(LakelogError):
        dataset.restore(max(dataset.version - 1, 0))
        return [_last(dataset)]
    return []


def _copy(lake: Lake, rng: random.Random, number: int) -> Acknowledged:
    """A table whose files Lakelog itself writes, now and then."""
    if rng.random() < 0.5:
        return _append(lake, rng, number)
    copy = lake.clone(rng.choice(TABLES), f"copy{number}", shallow=False)
    shim.note(json.dumps({"created": copy.name}))
    return [_last(copy)]


def _last(dataset: Dataset) -> tuple[str, int, str]:
    commit = dataset.history(1)[0]
    return dataset.name, commit.version, commit.commit_id


def _files(dataset: Dataset, rng: random.Random, number: int) -> list[AddFile]:
    found = []
    for each in range(rng.choice((1, 1, 3))):
        path = f"{rng.choice(('', 'part=1/', 'part=2/deep/'))}{number}-{each}.parquet"
        place = Path(dataset.location, path)
        place.parent.mkdir(parents=True, exist_ok=True)
        data = _content(number)
        place.write_bytes(data)
        found.append(AddFile(path=path, size=len(data), modification_time=0, stats='{"numRecords":1}'))
    return found


def _content(number: int) -> bytes:
    text = BytesIO()
    pq.write_table(pa.table({"id": [number]}), text)
    return text.getvalue()


# The disk


@dataclass(slots=True)
class _File:
    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)
    """Writes at an offset, and truncations to one."""

    def sync(self) -> None:
        for offset, data in self.pending:
            _apply(self.durable, offset, data)
        self.pending.clear()

    def survivor(self, rng: random.Random, *, in_order: bool) -> bytes:
        """What may be there."""
        found = bytearray(self.durable)
        if in_order:
            for offset, data in self.pending[: rng.randrange(len(self.pending) + 1)]:
                _apply(found, offset, data)
            return bytes(found)
        likely = rng.choice((0.0, 0.5, 1.0))
        for offset, data in self.pending:
            if data is None:
                if rng.random() < likely:
                    _apply(found, offset, None)
                continue
            for start in range(0, len(data), SECTOR):
                if rng.random() < likely:
                    _apply(found, offset + start, data[start : start + SECTOR])
        return bytes(found)


def _apply(content: bytearray, offset: int, data: bytes | None) -> None:
    if data is None:
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    if len(content) < offset:
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


@dataclass(frozen=True, slots=True)
class _Change:
    """Of the names in a directory."""

    step: Step
    path: str
    other: str = ""
    file: "_File | None" = None

    @property
    def directory(self) -> str:
        return (self.other or self.path).rpartition("/")[0]


class Disk:
    """What a record leaves at each of its points."""

    def __init__(self, root: Path, *, in_order: bool) -> None:
        self._in_order = in_order
        self._root = str(root.resolve())
        self._inodes: dict[int, _File] = {}
        self._now: dict[str, _File | None] = {self._root: None}
        """By path, all that there is; None is a directory."""
        self._durable: dict[str, _File | None] = {self._root: None}
        self._pending: list[_Change] = []
        self.notes: list[dict[str, Any]] = []

    def take(self, entry: Entry) -> None:
        """One more step."""
        step = entry.step
        if step is Step.NOTE:
            self.notes.append(json.loads(entry.data))
        elif step is Step.WRITE:
            self._inodes.setdefault(entry.inode, _File()).pending.append((entry.offset, entry.data))
        elif step is Step.TRUNCATE:
            self._inodes.setdefault(entry.inode, _File()).pending.append((entry.offset, None))
        elif step is Step.SYNC:
            self._sync(entry)
        elif step is Step.SYNC_ALL:
            self.sync_all()
        else:
            self._change(entry)

    def _sync(self, entry: Entry) -> None:
        if self._now.get(entry.path, 0) is None:
            kept = []
            for change in self._pending:
                if change.directory == entry.path:
                    _put(self._durable, change)
                else:
                    kept.append(change)
            self._pending = kept
        elif entry.inode in self._inodes:
            self._inodes[entry.inode].sync()

    def sync_all(self) -> None:
        for change in self._pending:
            _put(self._durable, change)
        self._pending.clear()
        for file in self._inodes.values():
            file.sync()

    def differences(self) -> Iterator[str]:
        """Where the whole record, once all of it is synced, is not what there is: what it has missed."""
        self.sync_all()
        ours = {path: None if file is None else bytes(file.durable) for path, file in self._durable.items()}
        there = {str(path): None if path.is_dir() else path.read_bytes() for path in Path(self._root).rglob("*")}
        for path in sorted((ours.keys() | there.keys()) - {self._root}):
            # Of memory that is mapped, the shim sees nothing.
            if not path.endswith(_PASSING) and ours.get(path, 0) != there.get(path, 0):
                yield f"{path} is {_described(ours.get(path, 0))} by the record, and {_described(there.get(path, 0))}"

    def _change(self, entry: Entry) -> None:
        file = None
        if entry.step is Step.CREATE:
            file = self._inodes[entry.inode] = _File()
        elif entry.step in (Step.RENAME, Step.LINK):
            file = self._now[entry.path]
            assert file is not None, f"nobody names a directory anew: {entry.path}"
        change = _Change(
            entry.step, entry.path, entry.other if file is not None and entry.step is not Step.CREATE else "", file
        )
        _put(self._now, change)
        self._pending.append(change)

    def after_loss(self, rng: random.Random) -> dict[str, bytes | None]:
        """The files, and the directories, that a loss of power may leave now."""
        names = dict(self._durable)
        by_directory: dict[str, list[_Change]] = {}
        for change in self._pending:
            by_directory.setdefault(change.directory, []).append(change)
        left = {
            name: rng.choice((0, len(changes), rng.randrange(len(changes) + 1)))
            for name, changes in by_directory.items()
        }
        for change in self._pending:
            if left[change.directory] > 0:
                left[change.directory] -= 1
                _put(names, change)
        return {
            path: None if file is None else file.survivor(rng, in_order=self._in_order)
            for path, file in names.items()
            if self._is_reachable(path, names) and not path.endswith(_PASSING)
        }

    def _is_reachable(self, path: str, names: Mapping[str, object]) -> bool:
        """Whether all directories above it are there."""
        while path != self._root:
            path = path.rpartition("/")[0]
            if names.get(path, 0) is not None:
                return False
        return True


def _described(content: object) -> str:
    if isinstance(content, bytes):
        return f"of {len(content)} bytes"
    return "a directory" if content is None else "not there"


def _put(names: dict[str, "_File | None"], change: _Change) -> None:
    if change.step is Step.CREATE or change.step is Step.LINK:
        names[change.other or change.path] = change.file
    elif change.step is Step.RENAME:
        names.pop(change.path, None)
        names[change.other] = change.file
    elif change.step is Step.MKDIR:
        names[change.path] = None
    else:
        names.pop(change.path, None)


# The trial


@dataclass(slots=True, kw_only=True)
class PowerReport:
    losses: int = 0
    acknowledged: int = 0
    """Commits in the record."""
    findings: list[str] = field(default_factory=list)
    lost: int = 0
    """Of the findings, those of what was acknowledged and is not there."""
    steps: Counter[str] = field(default_factory=Counter)


def try_power(
    directory: Path,
    library: Path,
    backend: str,
    seed: int,
    *,
    commits: int,
    losses: int,
    durability: str = "full",
) -> PowerReport:
    """Records some work, and loses the power at so many points of it."""
    root, journal = directory / "root", directory / "journal"
    root.mkdir(parents=True)
    url = f"{backend}:///{root}/catalog/catalog.db"
    arguments = [root, journal, url, seed, commits, durability]
    command = [sys.executable, "-m", "tests.campaign.power", *map(str, arguments)]
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)
    report = PowerReport()
    if done.returncode:
        report.findings.append(f"the work under record failed: {done.stderr[-1000:]}")
        return report
    entries = list(read_journal(journal))
    report.acknowledged = sum(entry.step is Step.NOTE and b"version" in entry.data for entry in entries)
    report.steps.update(entry.step.name for entry in entries)
    whole = Disk(root, in_order=False)
    for entry in entries:
        whole.take(entry)
    report.findings += [f"the record lacks something (seed {seed}): {each}" for each in whole.differences()]
    rng = random.Random(seed)
    points = sorted(rng.choices(range(len(entries)), k=losses))
    disk = Disk(root, in_order=backend == "duckdb")
    for number, entry in enumerate(entries):
        disk.take(entry)
        for _ in range(points.count(number)):
            report.losses += 1
            report.findings += [
                f"power lost after step {number} of {len(entries)} (seed {seed}): {each}"
                for each in _verify(root, url, disk.after_loss(rng), disk.notes)
            ]
    report.lost = sum(f": {LOST}" in each for each in report.findings)
    return report


def _verify(
    root: Path, url: str, files: Mapping[str, bytes | None], notes: Sequence[Mapping[str, Any]]
) -> Iterator[str]:
    shutil.rmtree(root)
    root.mkdir()
    for path in sorted(files):
        data = files[path]
        if data is None:
            Path(path).mkdir(parents=True, exist_ok=True)
        else:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_bytes(data)
    try:
        with connect(url, root=root / "lake") as lake:
            yield from _verify_lake(lake, notes)
    except LakelogError as error:
        yield f"the catalog cannot be used: {type(error).__name__}: {error}"[:1000]
    except AssertionError as error:
        yield f"an invariant does not hold: {error}"[:1000]


def _verify_lake(lake: Lake, notes: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    names = {dataset.name for dataset in lake.datasets()}
    for note in notes:
        if "created" in note and note["created"] not in names:
            yield f"{LOST} dataset {note['created']} is gone"
    yield from _leading_mirrors(lake, names)
    check_invariants(lake)
    for name in sorted(names):
        dataset = lake.dataset(name)
        history = {commit.version: commit.commit_id for commit in dataset.history()}
        for note in notes:
            if note.get("table") == name and (there := history.get(note["version"])) != note["commit_id"]:
                yield f"{LOST} version {note['version']} of {name} was acknowledged, and is {there}"
        for path in dataset.snapshot().files(columns=["path"]).column("path").to_pylist():
            place = Path(dataset.location, path)
            number = int(place.name.partition("-")[0])
            if not place.exists() or place.read_bytes() != _content(number):
                yield f"{LOST} {path} of {name} is not what was written"
        status = dataset.mirror()
        if (status.state, status.published) != ("published", dataset.version):
            yield f"the mirror of {name} does not go on: {status}"
        found = _files(dataset, random.Random(0), 999_999)
        SqlTxnLogWriter(lake).append(dataset.id, found)
        problems = [each for each in lake.check(name).findings if each.invariant]
        yield from (f"check of {name}: {each}" for each in problems)


def _leading_mirrors(lake: Lake, names: Iterable[str]) -> Iterator[str]:
    """Of a mirror the catalog may say less than there is, and never more."""
    for name in sorted(names):
        dataset = lake.dataset(name)
        (status,) = rows(lake, "dl_mirror_status", table_id=dataset.id) or [{"published_version": -1}]
        there = {int(path.stem) for path in Path(dataset.location, "_delta_log").glob("*.json") if path.stem.isdigit()}
        missing = set(range(status["published_version"] + 1)) - there
        if missing:
            yield f"the mirror of {name} is said to have versions {sorted(missing)[:5]}"


def _main(root: str, journal: str, url: str, seed: str, commits: str, durability: str) -> None:
    Path(root).mkdir(parents=True, exist_ok=True)
    shim.record(Path(journal), Path(root))
    work(Path(root), url, int(seed), int(commits), durability)


if __name__ == "__main__":
    _main(*sys.argv[1:])
