"""When a checkpoint is due, and what it holds.

A checkpoint is made when the commits since the last one outweigh a fraction of it, so that the cost of checkpoints
stays in proportion to what changes, and the cost of opening the table to what it holds. Never on a commit's way.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakelog.actions import DomainMetadata, Txn
from lakelog.catalog.base import Row
from lakelog.catalog.stored import stored_json
from lakelog.delta_log.hint import last_checkpoint
from lakelog.delta_log.names import checkpoint_name, commit_name, version_of
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.files import identities
from lakelog.log.intervals import milliseconds_in
from lakelog.log.snapshot.snapshot import REMOVED_SCHEMA, Snapshot
from lakelog.storage.log_store import LogStore
from lakelog.strict_json import whole_number

if TYPE_CHECKING:
    from lakelog.mirror.checkpoint import CheckpointContent

INTERVAL = "delta.checkpointInterval"
RETENTION = "delta.deletedFileRetentionDuration"

_FRACTION = 0.5
_FLOOR = 64 * 1024
"""Bytes of commits that need no checkpoint, however small the last one is."""

_WEEK = 7 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Weight:
    """The last checkpoint, and the commits since."""

    version: int
    size: int
    since: int

    @property
    def is_due(self) -> bool:
        return self.since > max(_FLOOR, _FRACTION * self.size)


class Checkpoints:
    """The checkpoints of a catalog's tables."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._guard = threading.Lock()
        self._weights: dict[int, Weight] = {}

    def grew(self, table_id: int, size: int) -> None:
        """A commit of this many bytes was published."""
        with self._guard:
            if (weight := self._weights.get(table_id)) is not None:
                self._weights[table_id] = replace(weight, since=weight.since + size)

    def may_be_due(self, table_id: int) -> bool:
        """By what this process knows, which others may have overtaken."""
        weight = self._weights.get(table_id)
        return weight is not None and weight.is_due

    def make_if_due(self, table_id: int, store: LogStore, published: int, since: int = -1) -> bool:
        """Makes a checkpoint of the published version if one is due; of ``since`` if there is none of that or later."""
        weight = _weigh(store, published)
        with self._committer.catalog.session() as session:
            state = self._committer.states.load(session, table_id, published)
            queries = self._committer.catalog.queries
            # What came before the first version could not be written again, if it was lost.
            first = int(session.fetch(queries["first_version"], {"table_id": table_id})[0][0])
        interval = whole_number(state.metadata.action.configuration.get(INTERVAL, ""))
        overdue = interval is not None and published - weight.version >= max(interval, 1)
        beginning = max(first, since)
        begins_later = 0 < beginning <= published and weight.version < beginning
        due = published > weight.version and (weight.is_due or overdue or begins_later)
        if due:
            from lakelog.mirror.checkpoint import write_checkpoint

            version = beginning if begins_later else published
            size = write_checkpoint(store, self.content(table_id, version))
            weight = Weight(version, size, 0)
        with self._guard:
            self._weights[table_id] = weight
        return due

    def content(self, table_id: int, version: int) -> "CheckpointContent":
        """What a checkpoint of a version holds."""
        from lakelog.mirror.checkpoint import CheckpointContent

        catalog = self._committer.catalog
        key = {"table_id": table_id, "version": version}
        with catalog.session() as session:
            head = self._committer.head(session, table_id)
            snapshot = Snapshot(self._committer, head, self._committer.states.load(session, table_id, version))
            oldest = self._committer.now(session) - retention(snapshot.metadata.configuration)
            columns = ", ".join(f"f.{name}" for name in REMOVED_SCHEMA.names)
            removed = session.fetch_arrow(
                catalog.queries.fill("tombstones", columns=columns), {**key, "oldest": oldest}, REMOVED_SCHEMA
            )
            txns = session.fetch(catalog.queries["latest_txns"], key)
            domains = session.fetch(catalog.queries["latest_domains"], key)
        files = snapshot.files(whole=False)
        return CheckpointContent(
            version=version,
            protocol=snapshot.protocol,
            metadata=snapshot.state.metadata,
            files=files,
            schemas=snapshot.schemas(files),
            removed=_gone(removed, files),
            txns=[_txn(row) for row in txns],
            domains=[_domain(row) for row in domains],
        )


def _gone(removed: Any, files: Any) -> Any:
    """The removed files that are not there again, each once. One with another deletion vector is another one."""
    last = {identity: place for place, identity in enumerate(identities(removed).to_pylist())}
    live = set(identities(files).to_pylist())
    return removed.take(pa.array(sorted(last[each] for each in last.keys() - live), pa.int64()))


def retention(configuration: Mapping[str, str]) -> int:
    """Milliseconds for which a removed file is remembered."""
    found = milliseconds_in(configuration.get(RETENTION, ""))
    return _WEEK if found is None else found


def _weigh(store: LogStore, published: int) -> Weight:
    """By the sizes of files, of which the hint only says where to begin. What lies above the log's end is not of it."""
    hint = last_checkpoint(store)
    is_of_use = hint is not None and hint <= published and store.exists(checkpoint_name(hint))
    files = store.files(checkpoint_name(hint) if hint is not None and is_of_use else "")
    found = [(version, each) for each in files if (version := version_of(each.name)) is not None]
    newest = max(
        ((version, each.size) for version, each in found if ".checkpoint." in each.name and version <= published),
        default=(-1, 0),
    )
    since = sum(each.size for version, each in found if each.name == commit_name(version) and version > newest[0])
    return Weight(*newest, since)


def _txn(row: Row) -> Txn:
    app_id, version, last_updated, extra = row
    return Txn(app_id=app_id, version=version, last_updated=last_updated, extra=stored_json(extra) if extra else {})


def _domain(row: Row) -> DomainMetadata:
    domain, configuration, extra = row
    return DomainMetadata(domain=domain, configuration=configuration, extra=stored_json(extra) if extra else {})
