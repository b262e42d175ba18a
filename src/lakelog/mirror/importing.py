"""Taking over a Delta table: its log becomes rows of the catalog, its files stay where they are.

The table is filled version by version under a row that nobody sees, compared with its log, and only then shown. An
import that was killed goes on where it stopped; one that fails leaves nothing behind.
"""

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import AddFile, CommitInfo, DeletionVector, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from lakelog.catalog.base import Transaction, now_ms
from lakelog.errors import DatasetExistsError, DeltaLogError, LakelogError, ValidationError, VersionNotFoundError
from lakelog.log.commit import Conflict
from lakelog.log.draft import Description, Draft, Input
from lakelog.log.files import AddFiles
from lakelog.log.removes import LiveFile
from lakelog.log.snapshot import Snapshot
from lakelog.log.state import Head, TableState
from lakelog.log.validation.features import supported_features
from lakelog.mirror.delta_log import LogCommit, LogListing, list_log, read_checkpoint, read_commit
from lakelog.mirror.hidden import HiddenTable, commit_import, table_at
from lakelog.mirror.storage import LogStore, log_store
from lakelog.schema.mapping import MODE
from lakelog.strict_json import json_problem, text_problem
from lakelog.telemetry import CommitRecord

if TYPE_CHECKING:
    from lakelog.dataset import Dataset
    from lakelog.lake import Lake

Progress = Callable[[int, int], None]
"""Told how many commits are done, of how many."""

_BATCH = 100
_BATCH_FILES = 20_000
"""Commits, and files in them, that become one transaction of the catalog."""
_LOOKED_UP = 8192
"""Paths that one statement looks up."""

_MANAGED = {"catalogManaged", "coordinatedCommits-preview"}
_NAMESPACE = uuid.UUID("b3d9c9c0-7c52-4c4e-9d53-6f1de6f0a7a1")
"""Of the ids of commits that have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportReport:
    """What an import did, or would do."""

    location: str
    name: str
    first_version: int
    """The oldest version that the catalog has. Older ones are gone from the log, or were not asked for."""
    version: int
    commits: int
    """Commits that were read."""
    files: int
    """Live files at ``version``."""
    dropped_stats: int
    """Files whose statistics made no sense and were left out."""
    dataset: "Dataset | None"
    """None if nothing was to be changed."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One version, as the catalog will have it."""

    version: int
    actions: Sequence[Input]
    committed_at: int
    dropped_stats: int
    files: int
    operation: str = "UNKNOWN"
    """What it did, if the log does not say."""


def import_delta(
    lake: "Lake",
    location: str,
    name: str | None,
    *,
    up_to_version: int | None,
    history: bool,
    dry_run: bool,
    progress: Progress | None,
) -> ImportReport:
    """Makes a dataset of the Delta table at a location, or takes over what was added to one that was imported."""
    try:
        return _import(lake, location, name, up_to_version, history=history, dry_run=dry_run, progress=progress)
    except OSError as error:
        raise DeltaLogError(f"cannot be read: {error}", location) from error


def _import(
    lake: "Lake",
    location: str,
    name: str | None,
    up_to_version: int | None,
    *,
    history: bool,
    dry_run: bool,
    progress: Progress | None,
) -> ImportReport:
    store = log_store(location)
    listing = list_log(store)
    last = listing.latest if up_to_version is None else up_to_version
    if not 0 <= last <= listing.latest:
        raise VersionNotFoundError(f"{store.place} has no version {last}: its latest is {listing.latest}")
    known = table_at(lake, location)
    if known is not None and known.dropped_at is None:
        return _continue(lake, known, name, store, listing, last, dry_run=dry_run, progress=progress)
    source = _Source(store, listing, last, history)
    chosen = name or source.table_name or PurePosixPath(location).name
    if any(dataset.name == chosen for dataset in lake.datasets()):
        raise DatasetExistsError(f"there is already a dataset {chosen!r}: give the import another name")
    if dry_run:
        return source.rehearse(location, chosen)
    hidden = HiddenTable(lake, chosen, location)
    base = hidden.begin(source.first, source.metadata_id)
    try:
        loader = _Loader(lake, hidden.table_id, base, location)
        steps = source.steps(after=None if base is None else base.version)
        dropped = loader.load(steps, source.commits, progress)
        source.compare(hidden.snapshot())
        hidden.show(last, None if source.is_all else f"the import ended at version {last} of {listing.latest}")
    except (LakelogError, OSError):
        hidden.purge()
        raise
    dataset = lake.dataset(chosen)
    return ImportReport(
        location=location,
        name=chosen,
        first_version=source.first,
        version=last,
        commits=source.commits,
        files=dataset.snapshot().files(columns=["version"]).num_rows,
        dropped_stats=dropped,
        dataset=dataset,
    )


def adopt(lake: "Lake", dataset: "Dataset", progress: Progress | None = None) -> int:
    """Takes over the commits of a table's log that the catalog does not have. Returns the version after that."""
    status = lake.mirror.status(dataset.id)
    if status.head != status.published:
        raise LakelogError(
            f"the catalog has versions of {dataset.name!r} up to {status.head} of which only those up to "
            f"{status.published} are in the log, so that what stands there contradicts it. Move it away with "
            "dataset.mirror(set_aside=True), and write again what it did"
        )
    store = log_store(dataset.location)
    listing = list_log(store)
    if listing.latest <= status.head:
        return status.head
    with lake.committer.catalog.session() as session:
        head = lake.committer.head(session, dataset.id)
        base = lake.committer.states.of_head(session, head)
    _adopt(lake, base, store, listing, listing.latest, progress)
    return listing.latest


def _continue(
    lake: "Lake",
    known: Head,
    name: str | None,
    store: LogStore,
    listing: LogListing,
    last: int,
    *,
    dry_run: bool,
    progress: Progress | None,
) -> ImportReport:
    """An import of a table that the catalog has: what was written to its log since then is taken over."""
    if name not in (None, known.name):
        raise DatasetExistsError(f"{known.location!r} is the dataset {known.name!r} already, not {name!r}")
    dataset = lake.dataset(known.name)
    before = dataset.version
    if not dry_run and last > before:
        adopt(lake, dataset, progress)
    return ImportReport(
        location=known.location,
        name=known.name,
        first_version=dataset.first_version,
        version=max(before, last),
        commits=max(last - before, 0),
        files=dataset.snapshot().files(columns=["version"]).num_rows,
        dropped_stats=0,
        dataset=None if dry_run else dataset,
    )


def _adopt(
    lake: "Lake", base: TableState, store: LogStore, listing: LogListing, last: int, progress: Progress | None
) -> None:
    missing = [version for version in range(base.version + 1, last + 1) if version not in listing.commits]
    if missing:
        raise DeltaLogError(f"lacks version {missing[0]}, so that nothing after it can be taken over", store.place)
    loader = _Loader(lake, base.table_id, base, store.place)
    steps = (_commit_step(store, listing, version) for version in range(base.version + 1, last + 1))
    loader.load(steps, last - base.version, progress)
    lake.mirror.adopted(base.table_id, last)


class _Source:
    """A Delta log, as the versions that the catalog will have."""

    def __init__(self, store: LogStore, listing: LogListing, last: int, history: bool) -> None:
        self._store = store
        self._listing = listing
        self._checkpoint, self._range = listing.start(last, history=history)
        self._history = history
        self.last = last
        if not history:
            self.first = last
        else:
            self.first = 0 if self._checkpoint is None else self._checkpoint.version
        self._state = _State.at(store, listing, last)
        _refuse(self._state.metadata, self._state.protocol)

    @property
    def table_name(self) -> str | None:
        return self._state.metadata.name

    @property
    def metadata_id(self) -> str:
        return self._state.metadata.id

    @property
    def is_all(self) -> bool:
        """Whether the log ends where the import does."""
        return self.last == self._listing.latest

    @property
    def commits(self) -> int:
        return self.last - self.first + 1

    def steps(self, after: int | None) -> Iterator[_Step]:
        """The versions after one that the catalog has, or all."""
        if not self._history:
            if after is None:
                yield self._state.step(self.last, self._time(self.last))
            return
        if after is None and self._checkpoint is not None:
            begun = _State.at(self._store, self._listing, self._checkpoint.version)
            yield begun.step(self._checkpoint.version, self._checkpoint.modified)
        for version in self._range:
            if after is None or version > after:
                yield _commit_step(self._store, self._listing, version)

    def rehearse(self, location: str, name: str) -> ImportReport:
        """Reads and checks everything that an import would, and changes nothing."""
        dropped = 0
        state: TableState | None = None
        for step in self.steps(None):
            where = f"version {step.version} of {location}"
            try:
                draft = _draft(0, step)
            except ValidationError as error:
                raise ValidationError(where, error.violations) from error
            problems = draft.settle(state)
            if problems:
                raise ValidationError(where, problems)
            state = draft.state
            dropped += step.dropped_stats
        return ImportReport(
            location=location,
            name=name,
            first_version=self.first,
            version=self.last,
            commits=self.commits,
            files=self._state.files.num_rows,
            dropped_stats=dropped,
            dataset=None,
        )

    def compare(self, snapshot: Snapshot) -> None:
        """Raises ``DeltaLogError`` if the catalog's table is not what the log says by another way of reading it."""
        expected, found = _identities(self._state.files), _identities(snapshot.files(columns=list(_IDENTITY)))
        problems = [f"{path} is missing" for path in sorted(expected.keys() - found.keys())]
        problems += [f"{path} should not be there" for path in sorted(found.keys() - expected.keys())]
        problems += [
            f"{path} is {found[path]} instead of {known}"
            for path, known in sorted(expected.items())
            if path in found and found[path] != known
        ]
        if snapshot.metadata != self._state.metadata:
            problems.append("the metadata is another")
        if snapshot.protocol != self._state.protocol:
            problems.append("the protocol is another")
        if problems:
            raise DeltaLogError(
                f"its commits and its checkpoint contradict each other at version {self.last}: {len(problems)} "
                f"differences, the first: {problems[0]}. Import with history=False to go by the checkpoint",
                self._store.place,
            )

    def _time(self, version: int) -> int:
        found = self._listing.commits.get(version)
        return found.modified if found else now_ms()


_IDENTITY = ("path", "size", "deletion_vector", "partition_values")


def _identities(files: Any) -> dict[str, tuple[Any, ...]]:
    """What tells a file from another, by path."""
    rows = zip(*(files.column(name).to_pylist() for name in _IDENTITY), strict=True)
    return {
        path: (
            size,
            DeletionVector.from_json(vector).unique_id if vector else None,
            {name: value or None for name, value in json.loads(values).items()},
        )
        for path, size, vector, values in rows
    }


def _refuse(metadata: Metadata, protocol: Protocol) -> None:
    """Raises ``DeltaLogError`` for what would be read wrong, or belongs to somebody else."""
    if managed := _MANAGED & supported_features(protocol):
        raise DeltaLogError(
            f"its commits belong to another catalog ({', '.join(sorted(managed))}): copy the table out of it first"
        )
    if metadata.configuration.get(MODE) == "id":
        raise DeltaLogError(
            "its columns are found in files by their ids (delta.columnMapping.mode is id), which is not supported; "
            "rewrite the table with the mode name"
        )


@dataclass
class _State:
    """A table at one version, replayed from its log."""

    protocol: Protocol
    metadata: Metadata
    txns: dict[str, Txn]
    domains: dict[str, DomainMetadata]
    kept: Any
    """Files of the checkpoint that the replay began with, as ``AddFiles`` takes them."""
    gone: set[str]
    """Those of them that later commits removed or replaced."""
    added: dict[str, AddFile]
    dropped_stats: int

    @classmethod
    def at(cls, store: LogStore, listing: LogListing, version: int) -> "_State":
        checkpoint, commits = listing.start(version, history=False)
        state: _State | None = None
        if checkpoint is not None:
            begun = read_checkpoint(store, checkpoint)
            state = cls(
                begun.protocol,
                begun.metadata,
                {txn.app_id: txn for txn in begun.txns},
                {domain.domain: domain for domain in begun.domains},
                begun.adds,
                set(),
                {},
                begun.dropped_stats,
            )
        for number in commits:
            commit = read_commit(store, number)
            state = cls._begun(store, commit) if state is None else state
            state._apply(commit)
        assert state is not None, "a listing starts somewhere"
        return state

    @classmethod
    def _begun(cls, store: LogStore, commit: LogCommit) -> "_State":
        metadata = next((action for action in commit.actions if isinstance(action, Metadata)), None)
        protocol = next((action for action in commit.actions if isinstance(action, Protocol)), None)
        if metadata is None:
            raise DeltaLogError(
                "has no metaData action, which version 0 needs", f"{store.place}/{commit.version:020}.json"
            )
        empty = AddFiles.of([]).table
        first = protocol or Protocol(min_reader_version=1, min_writer_version=2)
        return cls(first, metadata, {}, {}, empty, set(), {}, 0)

    def _apply(self, commit: LogCommit) -> None:
        for action in commit.actions:
            match action:
                case Protocol():
                    self.protocol = action
                case Metadata():
                    self.metadata = action
                case Txn():
                    self.txns[action.app_id] = action
                case DomainMetadata():
                    self.domains[action.domain] = action
                case RemoveFile() if action.path not in self.added:
                    self.gone.add(action.path)
                case RemoveFile() if _vector(self.added[action.path]) == _vector(action):
                    del self.added[action.path]
        # A commit that gives a file another deletion vector says so in any order.
        for action in commit.actions:
            if isinstance(action, AddFile):
                self.gone.add(action.path)
                self.added[action.path] = action
        self.dropped_stats += commit.dropped_stats

    @property
    def files(self) -> Any:
        kept = self.kept
        if self.gone:
            kept = kept.filter(pc.invert(pc.is_in(kept.column("path"), value_set=pa.array(self.gone, pa.string()))))
        return pa.concat_tables([kept, AddFiles.of(list(self.added.values())).table])

    def step(self, version: int, committed_at: int) -> _Step:
        """The state as one commit."""
        files = self.files
        domains = [domain for domain in self.domains.values() if not domain.removed]
        actions: list[Input] = [self.protocol, self.metadata, *self.txns.values(), *domains]
        if files.num_rows:
            actions.append(AddFiles(files))
        return _Step(
            version,
            actions,
            committed_at,
            self.dropped_stats,
            files.num_rows,
            "IMPORT",
        )


def _vector(action: AddFile | RemoveFile) -> str | None:
    return action.deletion_vector.unique_id if action.deletion_vector else None


def _commit_step(store: LogStore, listing: LogListing, version: int) -> _Step:
    commit = read_commit(store, version)
    info = next((action for action in commit.actions if isinstance(action, CommitInfo)), None)
    told = info.in_commit_timestamp if info is not None else None
    return _Step(
        version,
        commit.actions,
        listing.commits[version].modified if told is None else told,
        commit.dropped_stats,
        sum(isinstance(action, AddFile | RemoveFile) for action in commit.actions),
    )


def _draft(table_id: int, step: _Step, *, absent: frozenset[str] = frozenset()) -> Draft:
    """The commit of a step. ``absent`` are files that it removes though they are not there, which Delta allows."""
    actions: list[Input] = []
    info: CommitInfo | None = None
    for action in step.actions:
        if isinstance(action, CommitInfo):
            info = action
        elif not (isinstance(action, RemoveFile) and action.path in absent):
            actions.append(action)
    said = {} if info is None else info.to_dict()
    operation = said.pop("operation", None)
    parameters = said.pop("operationParameters", None)
    committer = said.pop("userName", None)
    for settled_here in ("timestamp", "txnId", "inCommitTimestamp"):
        said.pop(settled_here, None)
    description = Description(
        operation=operation if operation is not None and _is_name(operation) else step.operation,
        operation_parameters=parameters if isinstance(parameters, dict) and not json_problem(parameters) else {},
        committer=committer if _is_name(committer) else None,
        extra=said if not json_problem(said) else {},
        committed_at=step.committed_at,
    )
    return Draft(table_id, step.version - 1, actions, description, imported=True)


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) < 256 and text_problem(text) is None


def _commit_id(step: _Step, table: str) -> str:
    """The commit's own id, or one that is the same whenever the commit is imported."""
    for action in step.actions:
        if isinstance(action, CommitInfo) and action.txn_id:
            with suppress(ValueError):
                return str(uuid.UUID(action.txn_id))
    return str(uuid.uuid5(_NAMESPACE, f"{table}/{step.version}"))


class _Loader:
    """Commits steps to a table, many in one transaction."""

    def __init__(self, lake: "Lake", table_id: int, base: TableState | None, place: str) -> None:
        self._committer = lake.committer
        self._table_id = table_id
        self._base = base
        self._place = place

    def load(self, steps: Iterator[_Step], total: int, progress: Progress | None) -> int:
        """Commits all of them. Returns how many statistics were dropped."""
        dropped = done = 0
        batch: list[_Step] = []
        for step in steps:
            batch.append(step)
            dropped += step.dropped_stats
            if len(batch) == _BATCH or sum(each.files for each in batch) > _BATCH_FILES:
                self._commit(batch)
                done += len(batch)
                batch = []
                if progress is not None:
                    progress(done, total)
        if batch:
            self._commit(batch)
        if progress is not None:
            progress(total, total)
        return dropped

    def _commit(self, steps: Sequence[_Step]) -> None:
        committer = self._committer
        batch_id = str(uuid.uuid4())
        with CommitRecord(self._place, "IMPORT") as record:
            transaction = committer.catalog.begin([self._table_id], batch_id, committer.timeout)
            try:
                state = self._base
                for step in steps:
                    state = self._write(transaction, step, state, record)
                commit_import(transaction, self._place)
            finally:
                transaction.rollback()
            record.outcome = "committed"
        self._base = state

    def _write(
        self, transaction: Transaction, step: _Step, state: TableState | None, record: CommitRecord
    ) -> TableState:
        where = f"version {step.version} of {self._place}"
        try:
            draft = _draft(self._table_id, step, absent=self._absent(transaction, step))
        except ValidationError as error:
            raise ValidationError(where, error.violations) from error
        problems = draft.settle(state)
        if problems:
            raise ValidationError(where, problems)
        commit_id = _commit_id(step, draft.metadata.action.id)
        outcome = self._committer.write(transaction, [draft], [state], commit_id, record)
        if isinstance(outcome, Conflict):
            raise LakelogError(f"somebody else imports or writes {self._place} at the same time: try again later")
        return draft.state

    def _absent(self, transaction: Transaction, step: _Step) -> frozenset[str]:
        """Files that the step removes and that are not there."""
        removed = {action.path: action for action in step.actions if isinstance(action, RemoveFile)}
        paths = list(removed)
        live: dict[str, str | None] = {}
        for start in range(0, len(paths), _LOOKED_UP):
            key = {"table_id": self._table_id, "paths": paths[start : start + _LOOKED_UP]}
            rows = transaction.fetch(self._committer.catalog.queries["live_paths"], key)
            live |= {path: LiveFile(*rest).vector for path, *rest in rows}
        return frozenset(path for path, action in removed.items() if path not in live or live[path] != _vector(action))
