"""The mirror: every commit, once it stands in the catalog, becomes the next file of the table's ``_delta_log``.

In order, create-if-absent, never ahead of the catalog. A mirror that fails does not fail the commit: what lies above
the published version is pending, and whoever comes next publishes it.
"""

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakelog.catalog.base import Session
from lakelog.errors import DatasetExistsError, ReadOnlyError
from lakelog.log.commit import Committed, Committer
from lakelog.log.state import Head, TableMetadata
from lakelog.log.validation.features import MIRROR
from lakelog.mirror.checkpoints import Checkpoints
from lakelog.mirror.judge import Verdict, described, judge
from lakelog.mirror.lines import CommitRows, commit_id_of, committed_at_of, delta_json, metadata_in, read_rows
from lakelog.mirror.names import commit_name, version_of
from lakelog.mirror.reconciler import Reconciler
from lakelog.mirror.status import BEHIND, FAILING, OFF, PUBLISHED, STOPPED, Entry, Ledger, MirrorStatus
from lakelog.mirror.storage import LocalStore, LogStore, log_store

MODES = ("sync", "background", "manual")

_BATCH = 100
"""Commits that are read and published before the catalog is told."""

_LOOK_EVERY = 10
"""Versions after which somebody looks whether a checkpoint is due."""

_log = logging.getLogger("lakelog.mirror")


@dataclass
class _Place:
    """What this process knows of a table's mirror."""

    table_id: int
    store: LogStore
    entry: Entry | None = None
    """The row of ``dl_mirror_status`` as it was last seen."""
    mirrored: bool = True
    guard: Any = field(default_factory=threading.Lock)


class Mirror:
    """Watches commits and publishes them: at once (``sync``), by a thread (``background``) or when asked."""

    def __init__(self, committer: Committer, mode: str = "sync") -> None:
        self._committer = committer
        self._ledger = Ledger(committer.catalog)
        self._checkpoints = Checkpoints(committer)
        self._mode = mode
        self._places: dict[int, _Place] = {}
        self._process = os.getpid()
        self._reconciler = Reconciler(self._work, sweep=self._pending if mode == "background" else None)

    def start(self) -> None:
        if self._mode == "background":
            self._reconciler.start()

    def close(self) -> None:
        """Finishes what was begun."""
        self._reconciler.close()

    def check(self, table_id: int, expected: int | None) -> None:
        """Raises ``ReadOnlyError`` if the table's log has commits that the catalog has lost."""
        place = self._places.get(table_id)
        if place is None or os.getpid() != self._process:
            place = self._first_look(table_id)
        # A question to a disk is asked before every commit, one to an object store only before the first.
        elif (
            place.mirrored
            and expected is not None
            and isinstance(place.store, LocalStore)
            and place.store.exists(commit_name(expected + 1))
        ):
            with self._committer.catalog.session() as session:
                head = self._committer.head(session, table_id)
            if head.version == expected:
                self._look_ahead(place, head)
        if place.entry is not None and place.entry.state == BEHIND:
            raise ReadOnlyError(_read_only(place.store.place, place.entry.error))

    def told(self, committed: Sequence[Committed]) -> None:
        """Publishes what was just committed, or leaves it to the thread."""
        for each in committed:
            table_id = each.result.table_id
            try:
                place = self._known(table_id, each.location)
                place.mirrored = is_mirrored(each.state.metadata)
                if not place.mirrored or self._mode == "manual":
                    continue
                if self._mode == "background":
                    self._reconciler.wake(table_id)
                    continue
                with place.guard:
                    self._publish(place, each)
                self._after(place, each.result.version)
            except Exception:
                # The commit stands, whatever became of its mirror.
                _log.warning(
                    "version %s of %s is committed and not mirrored yet", each.result.version, each.result.table,
                    exc_info=True,
                )  # fmt: skip
                self._reconciler.retry(table_id)

    def publish(self, table_id: int) -> MirrorStatus:
        """Publishes what is pending, also after a stop whose cause is gone, and a checkpoint if one is due."""
        place, head = self._look(table_id)
        if not place.mirrored:
            return self._entry(place).status(head.version)
        with place.guard:
            entry = self._entry(place)
            if entry.state in (STOPPED, OFF):
                self._set(place, entry, entry.published, PUBLISHED)
        return self._settle(place)

    def status(self, table_id: int) -> MirrorStatus:
        """How far the mirror is. Looks for files that stand where the next one belongs."""
        place, head = self._look(table_id)
        entry = self._entry(place)
        if place.mirrored and entry.state == PUBLISHED and entry.published == head.version:
            self._try_look_ahead(place, head)
        return self._entry(place).status(head.version)

    def set_aside(self, table_id: int) -> MirrorStatus:
        """Moves what stands in the way into a directory of its own, and publishes what the catalog has."""
        place, _ = self._look(table_id)
        with place.guard:
            entry = self._entry(place)
            kept = entry.published
            where = f"_set_aside/{time.time_ns()}"
            for each in place.store.files():
                if (version := version_of(each.name)) is not None and version > kept:
                    place.store.move(each.name, f"{where}/{each.name}")
            self._checkpoints.forget_above(place.store, kept)
            self._set(place, entry, kept, PUBLISHED)
        _log.warning("files above version %s of %s were moved to %s in it", kept, place.store.place, where)
        return self.publish(table_id)

    def adopted(self, table_id: int, published: int) -> None:
        """The catalog has taken over the log's commits up to a version."""
        place, _ = self._look(table_id)
        with place.guard:
            self._set(place, self._entry(place), published, PUBLISHED)

    def refuse_foreign(self, location: str) -> None:
        """Raises ``DatasetExistsError`` if a Delta log is at a place where a table is to be created."""
        store = log_store(location)
        try:
            found = next((each.name for each in store.files() if version_of(each.name) is not None), None)
        except OSError as error:
            # Then nothing will be written there either, and the mirror says so.
            _log.warning("cannot look whether there is a Delta table at %s: %s", location, error)
            return
        if found is not None:
            raise DatasetExistsError(
                f"there is a Delta table at {location!r} ({found}): take it over with lake.import_delta, "
                "or choose another location"
            )

    def _work(self, table_id: int) -> bool:
        """What the thread does with a table, which stays stopped if it is. Whether it has to be tried again."""
        place, _ = self._look(table_id)
        return place.mirrored and self._settle(place).state == FAILING

    def _settle(self, place: _Place) -> MirrorStatus:
        """Publishes what is pending, and a checkpoint if one is due."""
        with place.guard:
            self._catch_up(place, {})
        with self._committer.catalog.session() as session:
            head = self._committer.head(session, place.table_id)
        entry = self._entry(place)
        if entry.state == PUBLISHED and entry.published == head.version:
            self._try_look_ahead(place, head)
        if self._entry(place).state == PUBLISHED:
            self._checkpoints.make_if_due(place.table_id, place.store, entry.published)
        return self._entry(place).status(head.version)

    def _pending(self) -> list[int]:
        catalog = self._committer.catalog
        with catalog.session() as session:
            return [row[0] for row in session.fetch(catalog.queries["mirror_pending"], {})]

    def _after(self, place: _Place, version: int) -> None:
        entry = place.entry
        if entry is not None and entry.state == FAILING:
            self._reconciler.retry(place.table_id)
        elif (
            entry is not None
            and entry.state == PUBLISHED
            and ((version + 1) % _LOOK_EVERY == 0 or self._checkpoints.may_be_due(place.table_id))
        ):
            self._reconciler.wake(place.table_id)

    def _known(self, table_id: int, location: str) -> _Place:
        if os.getpid() != self._process:
            # A forked child must not wait for what its parent's threads hold.
            self._places, self._process = {}, os.getpid()
        place = self._places.get(table_id)
        if place is None:
            place = self._places[table_id] = _Place(table_id, log_store(location))
        return place

    def _look(self, table_id: int) -> tuple[_Place, Head]:
        """A table and its mirror as they are now."""
        with self._committer.catalog.session() as session:
            head = self._committer.head(session, table_id)
            place = self._known(table_id, head.location)
            place.mirrored = is_mirrored(self._committer.states.of_head(session, head).metadata)
            place.entry = self._ledger.read(session, table_id)
        if place.entry is None:
            place.entry = self._ledger.begin(table_id, state=PUBLISHED if place.mirrored else OFF)
        return place, head

    def _first_look(self, table_id: int) -> _Place:
        place, head = self._look(table_id)
        if place.mirrored:
            self._try_look_ahead(place, head)
        return place

    def _try_look_ahead(self, place: _Place, head: Head) -> None:
        try:
            self._look_ahead(place, head)
        except OSError as error:
            _log.warning("cannot look into %s: %s", place.store.place, error)

    def _entry(self, place: _Place) -> Entry:
        assert place.entry is not None, "it was looked at"
        return place.entry

    def _look_ahead(self, place: _Place, head: Head) -> None:
        """Notices a file above the catalog's head: somebody else's, or one of ours that the catalog has lost."""
        entry = self._entry(place)
        name = commit_name(head.version + 1)
        if entry.state not in (PUBLISHED, FAILING) or not place.store.exists(name):
            return
        with self._committer.catalog.session() as session:
            if self._committer.head(session, place.table_id).version != head.version:
                return
        state, error = _objection(place.store, name, place.store.read(name), None, None)
        self._set(place, entry, entry.published, state, error)

    def _publish(self, place: _Place, committed: Committed) -> None:
        """Publishes one commit and whatever is pending before it."""
        version, rows = committed.result.version, committed.rows
        entry = place.entry
        if rows is None or entry is None or entry.state != PUBLISHED or entry.published != version - 1:
            self._catch_up(place, {} if rows is None else {version: rows})
            return
        problem = self._put(place, version, rows, committed.state.metadata)
        if problem is not None:
            self._set(place, entry, entry.published, *problem)
        elif self._set(place, entry, version) is None:
            self._catch_up(place, {})

    def _catch_up(self, place: _Place, known: Mapping[int, CommitRows]) -> Entry:
        """Publishes everything above the published version. ``known`` are commits that need not be read."""
        catalog = self._committer.catalog
        while True:
            with catalog.session() as session:
                entry = place.entry = self._ledger.read(session, place.table_id)
                head = self._committer.head(session, place.table_id)
                if entry is None:
                    commits: Mapping[int, CommitRows] = {}
                elif entry.state not in (PUBLISHED, FAILING) or entry.published >= head.version:
                    return entry
                else:
                    first, last = entry.published + 1, min(entry.published + _BATCH, head.version)
                    metadata, commits = self._commits(session, place.table_id, first, last, known)
            if entry is None:
                self._ledger.begin(place.table_id)
                continue
            published, problem = entry.published, None
            for version, rows in commits.items():
                metadata = metadata_in(rows) or metadata
                problem = self._put(place, version, rows, metadata)
                if problem is not None:
                    break
                published = version
            if problem is not None:
                self._set(place, entry, published, *problem)
                return self._entry(place)
            self._set(place, entry, published)

    def _commits(
        self, session: Session, table_id: int, first: int, last: int, known: Mapping[int, CommitRows]
    ) -> tuple[TableMetadata, Mapping[int, CommitRows]]:
        """The commits of a range, and the metadata in force with the first of them."""
        state = self._committer.states.load(session, table_id, first)
        if all(version in known for version in range(first, last + 1)):
            return state.metadata, known
        return state.metadata, read_rows(session, self._committer.catalog.queries, table_id, first, last)

    def _put(self, place: _Place, version: int, rows: CommitRows, metadata: TableMetadata) -> tuple[str, str] | None:
        """Makes a commit's file. If that cannot be, the state that the mirror is in then, and why."""
        store, name = place.store, commit_name(version)
        data = delta_json(rows, metadata)
        try:
            if not store.create(name, data, committed_at_of(rows)):
                found = store.read(name)
                verdict = judge(found, data, commit_id_of(rows))
                if verdict is Verdict.TORN:
                    store.replace(name, data, committed_at_of(rows))
                elif verdict is not Verdict.OURS:
                    return _objection(store, name, found, data, commit_id_of(rows))
        except OSError as error:
            return FAILING, f"cannot write {name} to {store.place}: {error}"
        self._checkpoints.grew(place.table_id, len(data))
        return None

    def _set(
        self, place: _Place, entry: Entry, published: int, state: str = PUBLISHED, error: str | None = None
    ) -> Entry | None:
        """Tells the catalog. None if another mirror was faster, whose word then stands."""
        if state != PUBLISHED and (entry.state, entry.error) != (state, error):
            level = logging.WARNING if state == FAILING else logging.ERROR
            _log.log(level, "the mirror of table %s is %s: %s", place.table_id, state, error)
        changed = self._ledger.advance(place.table_id, entry, published, state, error)
        if changed is not None:
            place.entry = changed
        else:
            with self._committer.catalog.session() as session:
                place.entry = self._ledger.read(session, place.table_id)
        return changed


def is_mirrored(metadata: TableMetadata) -> bool:
    """Whether a table of this metadata is mirrored."""
    return metadata.action.configuration.get(MIRROR, "true") != "false"


def _objection(
    store: LogStore, name: str, found: bytes, expected: bytes | None, commit_id: str | None
) -> tuple[str, str]:
    """The state that a file puts the mirror in, and why."""
    if judge(found, expected, commit_id) is Verdict.LOST:
        return BEHIND, f"{name} in {store.place} is a commit of Lakelog that this catalog does not have"
    return STOPPED, f"{name} in {store.place} was written by {described(found)}"


def _read_only(place: str, error: str | None) -> str:
    return (
        f"the table takes no commits: its log {place} has more than this catalog, as after a restored backup "
        f"({error}). Take the log's commits over with dataset.adopt(), or keep the catalog's and move the others "
        "away with dataset.mirror(set_aside=True)"
    )
