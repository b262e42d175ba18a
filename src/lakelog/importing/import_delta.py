"""Taking over a Delta table: its log becomes rows of the catalog, its files stay where they are.

The table is filled version by version under a row that nobody sees, compared with its log, and only then shown. An
import that was killed goes on where it stopped; one that fails leaves nothing behind.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, cast

from lakelog.actions import Metadata, Protocol
from lakelog.catalog.base import Transaction, now_ms
from lakelog.catalog.name_key import match_name
from lakelog.delta_log.log import LogListing, list_log
from lakelog.errors import DatasetExistsError, DeltaLogError, LakelogError, ValidationError, VersionNotFoundError
from lakelog.importing.hidden_table import HiddenTable, ImportInterrupted, table_at
from lakelog.importing.loading import Loader, Progress, Step, commit_step, draft_of
from lakelog.importing.replay import IDENTITY, Replay, identities
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.state import Head, TableState
from lakelog.log.table import Table
from lakelog.log.validation.features import supported_features
from lakelog.log.validation.text import check_name
from lakelog.mirror.status import STOPPED, Ledger
from lakelog.schema.mapping import MODE
from lakelog.storage.log_store import LogStore, log_store
from lakelog.storage.uris import root_uri

if TYPE_CHECKING:
    from lakelog.dataset import Dataset
    from lakelog.opening.engine import Engine

_MANAGED = {"catalogManaged", "coordinatedCommits-preview"}


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


def import_delta(
    lake: "Engine",
    location: str,
    name: str | None,
    *,
    up_to_version: int | None,
    history: bool,
    dry_run: bool,
    progress: Progress | None,
) -> ImportReport:
    """Makes a dataset of the Delta table at a location, or takes over what was added to one that was imported."""
    with _readable(location):
        store = log_store(location)
        listing = list_log(store)
        last = listing.latest if up_to_version is None else up_to_version
        if not 0 <= last <= listing.latest:
            raise VersionNotFoundError(f"{store.place} has no version {last}: its latest is {listing.latest}")
        known = table_at(lake, location)
        if known is not None and known.dropped_at is None:
            return _continue(lake, known, name, last, dry_run=dry_run, progress=progress)
        source = _Source(store, listing, last, history)
        chosen = name or source.table_name or PurePosixPath(location).name
        check_name(chosen)
        if taken := match_name(lake.versions(), chosen):
            raise DatasetExistsError(f"there is already a dataset {taken!r}: give the import another name")
        if dry_run:
            return source.rehearse(location, chosen)
        hidden = HiddenTable(lake, chosen, location)
        base = hidden.begin(source.first, last, source.metadata_id)
        try:
            lake.committer.data.locations[hidden.table_id] = location
            loader = Loader(lake, hidden.table_id, base, location)
            steps = source.steps(after=None if base is None else base.version)
            dropped = loader.load(steps, source.commits, progress)
            whole = hidden.snapshot()
            source.compare(whole)
            files = whole.files(columns=["version"]).num_rows
            head = hidden.show(
                last, None if source.is_all else f"the import ended at version {last} of {listing.latest}"
            )
        except ImportInterrupted:
            raise
        except Exception:
            hidden.purge()
            raise
        return ImportReport(
            location=location,
            name=chosen,
            first_version=source.first,
            version=last,
            commits=source.commits,
            files=files,
            dropped_stats=dropped,
            dataset=cast("Dataset", lake.handle(head)),
        )


def adopt(lake: "Engine", dataset: "Table", last: int | None = None, progress: Progress | None = None) -> int:
    """Takes over the commits of a table's log that the catalog does not have. Returns the version after that."""
    status = lake.mirror.status(dataset.id)
    if status.head != status.published:
        raise LakelogError(
            f"the catalog has versions of {dataset.name!r} up to {status.head} of which only those up to "
            f"{status.published} are in the log, so that what stands there contradicts it. Move it away with "
            "dataset.mirror(set_aside=True), and write again what it did"
        )
    store = log_store(dataset.location)
    with _readable(store.place):
        listing = list_log(store)
        last = listing.latest if last is None else last
        if last <= status.head:
            return status.head
        # A name can claim any version: what is missing is looked for from the beginning, and not listed.
        missing = next((each for each in range(status.head + 1, last + 1) if each not in listing.commits), None)
        if missing is not None:
            raise DeltaLogError(f"lacks version {missing}, so that nothing after it can be taken over", store.place)
        _Adoption(lake, dataset, store, listing).run(last, progress)
    return last


@contextmanager
def _readable(place: str) -> Iterator[None]:
    """A log that the storage does not give is an error of the log."""
    try:
        yield
    except OSError as error:
        raise DeltaLogError(f"cannot be read: {error}", place) from error


class _Adoption:
    """Commits of a log that become versions of a dataset, and with them the mirror's own."""

    def __init__(self, lake: "Engine", dataset: "Table", store: LogStore, listing: LogListing) -> None:
        self._lake = lake
        self._table_id = dataset.id
        self._store = store
        self._listing = listing
        self._ledger = Ledger(lake.committer.catalog, lake.committer.timeout)
        self._entry = lake.mirror.entry(dataset.id)

    def run(self, last: int, progress: Progress | None) -> None:
        committer = self._lake.committer
        with committer.catalog.session() as session:
            head = committer.head(session, self._table_id)
            base = committer.states.of_head(session, head)
        committer.data.locations[head.table_id] = head.location
        versions = range(base.version + 1, last + 1)
        loader = Loader(self._lake, self._table_id, base, self._store.place, self._advance)
        steps = (commit_step(self._store, self._listing, version) for version in versions)
        loader.load(steps, len(versions), progress)
        rest = None if last == self._listing.latest else f"version {last + 1} of the log was not taken over"
        done = self._entry.next(last) if rest is None else self._entry.next(last, STOPPED, rest)
        self._ledger.advance(self._table_id, self._entry, done)

    def _advance(self, transaction: Transaction, version: int) -> None:
        """Tells with each transaction how far the log and the catalog agree, so that it can be continued."""
        entry = self._entry.next(version, self._entry.state, self._entry.error)
        if not transaction.fetch(*self._ledger.advance_statement(self._table_id, self._entry, entry)):
            raise ImportInterrupted(f"another process works on {self._store.place}: look at its status, and try again")
        self._entry = entry


def _continue(
    lake: "Engine", known: Head, name: str | None, last: int, *, dry_run: bool, progress: Progress | None
) -> ImportReport:
    """An import of a table that the catalog has: what was written to its log since then is taken over."""
    if name not in (None, known.name):
        raise DatasetExistsError(f"{known.location!r} is the dataset {known.name!r} already, not {name!r}")
    dataset = lake.dataset(known.name)
    before = dataset.version
    if not dry_run and last > before:
        adopt(lake, dataset, last, progress)
    return ImportReport(
        location=known.location,
        name=known.name,
        first_version=dataset.first_version,
        version=max(before, last),
        commits=max(last - before, 0),
        files=dataset.snapshot().files(columns=["version"]).num_rows,
        dropped_stats=0,
        dataset=None if dry_run else cast("Dataset", dataset),
    )


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
        self._state = Replay.at(store, listing, last)
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

    def steps(self, after: int | None) -> Iterator[Step]:
        """The versions after one that the catalog has, or all."""
        if not self._history:
            if after is None:
                yield self._state.step(self.last, self._time(self.last))
            return
        if after is None and self._checkpoint is not None:
            begun = Replay.at(self._store, self._listing, self._checkpoint.version)
            yield begun.step(self._checkpoint.version, self._checkpoint.modified)
        for version in self._range:
            if after is None or version > after:
                yield commit_step(self._store, self._listing, version)

    def rehearse(self, location: str, name: str) -> ImportReport:
        """Reads and checks everything that an import would, and changes nothing."""
        dropped = 0
        state: TableState | None = None
        for step in self.steps(None):
            where = f"version {step.version} of {location}"
            try:
                draft = draft_of(0, step, root_uri(location))
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
        expected, found = identities(self._state.files), identities(snapshot.files(columns=list(IDENTITY)))
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
