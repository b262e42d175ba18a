"""The mirror: every commit, once it stands in the catalog, becomes the next file of the table's ``_delta_log``.

In order, create-if-absent, never ahead of the catalog. A mirror that fails does not fail the commit: what lies above
the published version is pending, and whoever comes next publishes it.
"""

import itertools
import logging
import os
import threading
import time
import uuid
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakelog.catalog.base import Session
from lakelog.delta_log.hint import last_checkpoint
from lakelog.delta_log.names import LAST_CHECKPOINT, commit_name, newest_version_in, version_of
from lakelog.errors import DatasetNotFoundError, LakelogError, LakelogTimeoutError, ReadOnlyError
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.outcomes import Committed
from lakelog.log.state import Head, TableMetadata
from lakelog.log.validation.features import MIRROR
from lakelog.mirror.checkpoints import Checkpoints
from lakelog.mirror.commit_json import (
    CommitRows,
    commit_id_of,
    committed_at_of,
    delta_json,
    metadata_in,
    older_schemas,
    read_rows,
)
from lakelog.mirror.foreign import objection, read_only
from lakelog.mirror.ownership import Verdict, judge
from lakelog.mirror.reconciler import Reconciler
from lakelog.mirror.status import BEHIND, FAILING, OFF, PUBLISHED, STOPPED, Entry, Ledger, MirrorStatus
from lakelog.storage.log_store import MAX_FILE_BYTES, LocalStore, LogStore, UnfitFileError, log_store
from lakelog.telemetry import count_failed_watch

MODES = ("sync", "background", "manual")

_BATCH = 100
_BATCH_FILES = 20_000
"""Commits, and files in them, that are read and published before the catalog is told."""

_LOOK_EVERY = 10
"""Versions after which somebody looks whether a checkpoint is due."""

_LONGEST_CLOSE = 10.0
"""Seconds for which a lake that is closed waits for what its mirror has begun."""

_PATIENCE = 1.0
"""Seconds that a commit waits for others' work on the mirror, which can do without it."""

_log = logging.getLogger("lakelog.mirror")


@dataclass
class _Place:
    """What this process knows of a table's mirror."""

    table_id: int
    location: str
    store: LogStore
    entry: Entry | None = None
    """The row of ``dl_mirror_status`` as it was last seen."""
    mirrored: bool = True
    is_whole: bool = False
    """Whether the published files were seen to be there."""
    guard: Any = field(default_factory=threading.Lock)


class Mirror:
    """Watches commits and publishes them: at once (``sync``), by a thread (``background``) or when asked."""

    def __init__(self, committer: Committer, mode: str = "sync") -> None:
        self._committer = committer
        self._ledger = Ledger(committer.catalog, committer.timeout)
        self.checkpoints = Checkpoints(committer)
        self._mode = mode
        self._places: dict[int, _Place] = {}
        self._process = os.getpid()
        self._reconciler = Reconciler(
            self._work,
            sweep=self._pending if mode == "background" else None,
            patience=min(_LONGEST_CLOSE, 2 * committer.timeout),
        )
        # Also where nobody closes the lake.
        weakref.finalize(self, self._reconciler.close)

    def start(self) -> None:
        if self._mode == "background":
            self._reconciler.start()

    def close(self) -> None:
        """Finishes what was begun."""
        self._reconciler.close()

    # A commit, before and after

    def check(self, table_id: int, expected: int | None) -> None:
        """Raises ``ReadOnlyError`` if the table's log has commits that the catalog has lost."""
        place = self._places.get(table_id)
        if place is None or place.entry is None or os.getpid() != self._process:
            place, head = self._look(table_id)
            if place.mirrored:
                self._try_look_ahead(place, head)
        # A disk is asked before every commit, an object store only before the first.
        elif self._may_be_ahead(place, expected):
            self._try_look_ahead(place, self._head(table_id))
        if self._entry(place).state == BEHIND:
            # Perhaps somebody has decided.
            place, _ = self._look(table_id)
            if self._entry(place).state == BEHIND:
                raise ReadOnlyError(read_only(place.store.place, self._entry(place).error))

    def told(self, committed: Sequence[Committed]) -> None:
        """Publishes what was just committed, or leaves it to the thread."""
        waited = False
        for each in committed:
            table_id = each.result.table_id
            if waited:
                # One wait is enough for a commit to any number of tables.
                self._reconciler.wake(table_id)
                continue
            try:
                place = self._known(table_id, each.location)
                place.mirrored = is_mirrored(each.state.metadata)
                if place.mirrored and self._mode != "manual":
                    self._publish_or_leave(place, each)
            except LakelogTimeoutError:
                # Somebody else is at it, or has the catalog's lock. The file is perhaps there, its note is not.
                self._reconciler.wake(table_id)
                waited = True
            except Exception:
                # The commit stands, whatever became of its mirror.
                count_failed_watch()
                _log.warning(
                    "version %s of %s is committed and not mirrored yet",
                    each.result.version,
                    each.result.table,
                    exc_info=True,
                )
                self._reconciler.retry(table_id)

    def _publish_or_leave(self, place: _Place, committed: Committed) -> None:
        """A commit waits neither for another's work on the mirror nor for a store that did not answer before."""
        slow = not isinstance(place.store, LocalStore) and place.entry is not None and place.entry.state == FAILING
        if self._mode == "background" or slow or not place.guard.acquire(timeout=_PATIENCE):
            self._reconciler.wake(place.table_id)
            return
        try:
            self._publish(place, committed)
        finally:
            place.guard.release()
        entry = self._entry(place)
        due = (committed.result.version + 1) % _LOOK_EVERY == 0 or self.checkpoints.may_be_due(place.table_id)
        if entry.state == FAILING:
            self._reconciler.retry(place.table_id)
        elif entry.state == PUBLISHED and due:
            self._reconciler.wake(place.table_id)

    # For people

    def publish(self, table_id: int) -> MirrorStatus:
        """Publishes what is pending, also after a stop whose cause is gone, and a checkpoint if one is due.

        Also writes again what was published and is gone.
        """
        place, head = self._look(table_id)
        if not place.mirrored:
            return self._status(place, head)
        with place.guard:
            place.is_whole = False
            entry = self._entry(place)
            if entry.state == STOPPED:
                self._set(place, entry, entry.next(entry.published))
        return self._settle(place)

    def status(self, table_id: int) -> MirrorStatus:
        """How far the mirror is. Looks for files that stand where the next one belongs."""
        place, head = self._look(table_id)
        entry = self._entry(place)
        if place.mirrored and entry.state == PUBLISHED and entry.published == head.version:
            self._try_look_ahead(place, head)
        return self._status(place, head)

    def set_aside(self, table_id: int) -> MirrorStatus:
        """Moves what stands in the way into a directory of its own, and publishes what the catalog has."""
        place, head = self._look(table_id)
        if not place.mirrored:
            return self._status(place, head)
        with place.guard:
            found = self._entry(place)
            kept = found.published
            # Nobody else publishes or sets aside while this stands.
            claim = self._set(place, found, found.next(kept, STOPPED, f"files are set aside ({uuid.uuid4()})"))
            where = f"_set_aside/{time.time_ns()}"
            try:
                for name in place.store.names() if claim else ():
                    version = newest_version_in(name)
                    if version is not None and version > kept:
                        place.store.move(name, f"{where}/{name}")
                hint = last_checkpoint(place.store)
                if claim and hint is not None and hint > kept:
                    place.store.move(LAST_CHECKPOINT, f"{where}/{LAST_CHECKPOINT}")
            except OSError as error:
                raise LakelogError(f"files of {place.store.place} could not be set aside: {error}") from error
            if claim is None or self._set(place, claim, claim.next(kept)) is None:
                raise LakelogError(f"another process works on {place.store.place}: look at its status, and try again")
        _log.warning("files above version %s of %s were moved to %s in it", kept, place.store.place, where)
        return self.publish(table_id)

    def checkpoint(self, table_id: int, since: int) -> MirrorStatus:
        """Publishes what is pending, and sees to it that the log has a checkpoint of ``since`` or of a later version.

        Raises ``LakelogError`` if it cannot be written.
        """
        status = self.publish(table_id)
        if status.state == PUBLISHED and status.published >= since:
            store = self._look(table_id)[0].store
            try:
                self.checkpoints.make_if_due(table_id, store, status.published, since)
            except OSError as error:
                raise LakelogError(f"no checkpoint could be made in {store.place}: {error}") from error
        return status

    def entry(self, table_id: int) -> Entry:
        """The row of ``dl_mirror_status``."""
        return self._entry(self._look(table_id)[0])

    # The work

    def _work(self, table_id: int) -> bool:
        """What the thread does with a table, which stays stopped if it is. Whether it has to be tried again."""
        try:
            place, _ = self._look(table_id)
            return place.mirrored and self._settle(place).state == FAILING
        except DatasetNotFoundError:
            return False

    def _settle(self, place: _Place) -> MirrorStatus:
        """Publishes what is pending, and a checkpoint if one is due."""
        with place.guard:
            self._catch_up(place, {})
        head = self._head(place.table_id)
        entry = self._entry(place)
        if entry.state == PUBLISHED and entry.published == head.version:
            self._try_look_ahead(place, head)
        if self._entry(place).state == PUBLISHED:
            try:
                self.checkpoints.make_if_due(place.table_id, place.store, entry.published)
            except OSError as error:
                _log.warning("no checkpoint could be made in %s: %s", place.store.place, error)
        return self._status(place, head)

    def _publish(self, place: _Place, committed: Committed) -> None:
        """Publishes one commit and whatever is pending before it."""
        version, rows = committed.result.version, committed.rows
        entry = place.entry
        is_next = entry is not None and entry.state == PUBLISHED and entry.published == version - 1
        if rows is None or entry is None or not is_next or not place.is_whole:
            self._catch_up(place, {} if rows is None else {version: rows})
            return
        problem = self._put(place, version, rows, committed.state.metadata)
        changed = entry.next(version) if problem is None else entry.next(entry.published, *problem)
        if self._set(place, entry, changed, _PATIENCE) is None:
            self._catch_up(place, {})

    def _catch_up(self, place: _Place, known: Mapping[int, CommitRows]) -> None:
        """Publishes everything above the published version. ``known`` are commits that need not be read."""
        while True:
            with self._committer.catalog.session() as session:
                entry = place.entry = self._ledger.read(session, place.table_id)
                head = self._committer.head(session, place.table_id)
            if entry is None:
                self._ledger.begin(place.table_id)
                continue
            if entry.state not in (PUBLISHED, FAILING):
                return
            if not place.is_whole and not self._make_whole(place, entry):
                continue
            if entry.published >= head.version:
                return
            problem = self._publish_batch(place, entry, head, known)
            if problem:
                return

    def _make_whole(self, place: _Place, entry: Entry) -> bool:
        """Looks whether the published files are there, once, and goes back to before the first that is not."""
        place.is_whole = True
        try:
            there = {version_of(file.name): file.name for file in place.store.files()}
        except OSError:
            return True  # The next write says so, too.
        commits = {version for version, name in there.items() if version is not None and name.endswith(".json")}
        checkpoints = {version for version in there if version is not None} - commits
        begin = max((version for version in checkpoints if version <= entry.published), default=-1)
        with self._committer.catalog.session() as session:
            queries = self._committer.catalog.queries
            oldest = int(session.fetch(queries["first_version"], {"table_id": place.table_id})[0][0])
        needed = range(max(begin, oldest), entry.published + 1)
        missing = next((version for version in needed if version not in commits), None)
        if missing is None:
            return True
        _log.warning("version %s is gone from %s, and written again", missing, place.store.place)
        self._set(place, entry, entry.next(missing - 1))
        return False

    def _publish_batch(self, place: _Place, entry: Entry, head: Head, known: Mapping[int, CommitRows]) -> bool:
        """Publishes some commits. Whether there is a reason not to go on."""
        first, last = entry.published + 1, min(entry.published + _BATCH, head.version)
        with self._committer.catalog.session() as session:
            metadata, commits = self._commits(session, place.table_id, first, last, known)
        published, problem = entry.published, None
        for version, rows in commits.items():
            metadata = metadata_in(rows) or metadata
            problem = self._put(place, version, rows, metadata)
            if problem is not None:
                break
            published = version
        self._set(place, entry, entry.next(published) if problem is None else entry.next(published, *problem))
        return problem is not None

    def _commits(
        self, session: Session, table_id: int, first: int, last: int, known: Mapping[int, CommitRows]
    ) -> tuple[TableMetadata, Mapping[int, CommitRows]]:
        """The first commits of a range, as many as fit, and the metadata in force with the first of them."""
        queries = self._committer.catalog.queries
        state = self._committer.states.load(session, table_id, first)
        if all(version in known for version in range(first, last + 1)):
            return state.metadata, known
        key = {"table_id": table_id, "first": first, "last": last}
        rows = session.fetch(queries["added_counts"], key) if last > first else []
        files: dict[int, int] = {row[0]: row[1] for row in rows}
        counts = itertools.accumulate(files.get(version, 0) for version in range(first, last + 1))
        fitting = sum(count <= _BATCH_FILES for count in counts)
        return state.metadata, read_rows(session, queries, table_id, first, first + max(fitting, 1) - 1)

    def _put(self, place: _Place, version: int, rows: CommitRows, metadata: TableMetadata) -> tuple[str, str] | None:
        """Makes a commit's file. If that cannot be, the state that the mirror is in then, and why."""
        store, name = place.store, commit_name(version)
        try:
            data = delta_json(rows, metadata, older_schemas(self._committer.catalog, rows, metadata))
            if not store.create(name, data, committed_at_of(rows)):
                found = store.read(name, max(MAX_FILE_BYTES, len(data)))
                verdict = judge(found, data, commit_id_of(rows))
                if verdict is Verdict.TORN:
                    store.replace(name, data, committed_at_of(rows))
                elif verdict is Verdict.OURS:
                    # Whoever made it may have died before it was durable.
                    store.sync()
                else:
                    return objection(store, name, found, data, commit_id_of(rows))
        except UnfitFileError as error:
            return STOPPED, f"{name} in {store.place} is not a commit: {error}"
        except OSError as error:
            return FAILING, f"cannot write {name} to {store.place}: {error}"
        except Exception as error:
            # The status says so, or it would go on calling a mirror published that is not.
            _log.warning("%s cannot be written to %s", name, store.place, exc_info=True)
            return FAILING, f"cannot write {name} to {store.place}: {type(error).__name__}: {error}"
        self.checkpoints.grew(place.table_id, len(data))
        return None

    # What is known of a table

    def _pending(self) -> list[int]:
        catalog = self._committer.catalog
        with catalog.session() as session:
            return [row[0] for row in session.fetch(catalog.queries["mirror_pending"], {})]

    def _known(self, table_id: int, location: str) -> _Place:
        if os.getpid() != self._process:
            # A forked child must not wait for what its parent's threads hold.
            self._places, self._process = {}, os.getpid()
        place = self._places.get(table_id)
        if place is None or place.location != location:
            place = self._places[table_id] = _Place(table_id, location, log_store(location))
        return place

    def _head(self, table_id: int) -> Head:
        with self._committer.catalog.session() as session:
            return self._committer.head(session, table_id)

    def _look(self, table_id: int) -> tuple[_Place, Head]:
        """A table and its mirror as they are now."""
        with self._committer.catalog.session() as session:
            head = self._committer.head(session, table_id)
            place = self._known(table_id, head.location)
            place.mirrored = is_mirrored(self._committer.states.of_head(session, head).metadata)
            place.entry = self._ledger.read(session, table_id)
        if place.entry is None:
            place.entry = self._ledger.begin(table_id)
        return place, head

    def _entry(self, place: _Place) -> Entry:
        assert place.entry is not None, "it was looked at"
        return place.entry

    def _status(self, place: _Place, head: Head) -> MirrorStatus:
        entry = self._entry(place)
        if not place.mirrored:
            return MirrorStatus(state=OFF, published=entry.published, head=head.version)
        return entry.status(max(head.version, entry.published))

    def _may_be_ahead(self, place: _Place, expected: int | None) -> bool:
        if not place.mirrored or not isinstance(place.store, LocalStore):
            return False
        return expected is None or place.store.exists(commit_name(expected + 1))

    def _try_look_ahead(self, place: _Place, head: Head) -> None:
        """Notices a file above the catalog's head: somebody else's, or one of ours that the catalog has lost."""
        entry = self._entry(place)
        name = commit_name(head.version + 1)
        try:
            if entry.state not in (PUBLISHED, FAILING) or not place.store.exists(name):
                return
            if self._head(place.table_id).version != head.version:
                return
            state, error = objection(place.store, name, place.store.read(name), None, None)
        except UnfitFileError as problem:
            state, error = STOPPED, f"{name} in {place.store.place} is not a commit: {problem}"
        except OSError as problem:
            _log.warning("cannot look into %s: %s", place.store.place, problem)
            return
        self._set(place, entry, entry.next(entry.published, state, error))

    def _set(self, place: _Place, found: Entry, entry: Entry, timeout: float | None = None) -> Entry | None:
        """Tells the catalog. None if another mirror was faster, whose word then stands."""
        if entry.state != PUBLISHED and (found.state, found.error) != (entry.state, entry.error):
            level = logging.WARNING if entry.state == FAILING else logging.ERROR
            _log.log(level, "the mirror of table %s is %s: %s", place.table_id, entry.state, entry.error)
        if self._ledger.advance(place.table_id, found, entry, timeout):
            place.entry = entry
            return entry
        with self._committer.catalog.session() as session:
            place.entry = self._ledger.read(session, place.table_id)
        return None


def is_mirrored(metadata: TableMetadata) -> bool:
    """Whether a table of this metadata is mirrored."""
    return metadata.action.configuration.get(MIRROR, "true") != "false"
