"""A Delta table at one version, by its latest checkpoint and the commits after it."""

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import AddFile, DeletionVector, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from lakelog.catalog.stored import stored_json
from lakelog.delta_log.log import LogCommit, LogListing, read_checkpoint, read_commit
from lakelog.importing.loading import Step, refuse_headless, vector_of
from lakelog.log.commit.draft import Input
from lakelog.log.commit.files import AddFiles
from lakelog.mirror.commit_json import IMPORT
from lakelog.storage.log_store import LogStore

IDENTITY = ("path", "size", "deletion_vector", "partition_values")


def identities(files: Any) -> dict[str, tuple[Any, ...]]:
    """What tells a file from another, by path."""
    rows = zip(*(files.column(name).to_pylist() for name in IDENTITY), strict=True)
    return {
        path: (
            size,
            DeletionVector.from_json(vector).unique_id if vector else None,
            {name: value or None for name, value in stored_json(values).items()},
        )
        for path, size, vector, values in rows
    }


@dataclass
class Replay:
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
    def at(cls, store: LogStore, listing: LogListing, version: int) -> "Replay":
        checkpoint, commits = listing.start(version, history=False)
        state: Replay | None = None
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
    def _begun(cls, store: LogStore, commit: LogCommit) -> "Replay":
        refuse_headless(store, commit)
        metadata = next(action for action in commit.actions if isinstance(action, Metadata))
        protocol = next(action for action in commit.actions if isinstance(action, Protocol))
        empty = AddFiles.of([]).table
        return cls(protocol, metadata, {}, {}, empty, set(), {}, 0)

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
                case RemoveFile() if vector_of(self.added[action.path]) == vector_of(action):
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

    def step(self, version: int, committed_at: int) -> Step:
        """The state as one commit."""
        files = self.files
        domains = [domain for domain in self.domains.values() if not domain.removed]
        actions: list[Input] = [self.protocol, self.metadata, *self.txns.values(), *domains]
        if files.num_rows:
            actions.append(AddFiles(files))
        return Step(
            version,
            actions,
            committed_at,
            self.dropped_stats,
            files.num_rows,
            IMPORT,
        )
