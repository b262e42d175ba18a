"""Commits that were made elsewhere, into the catalog: each a version of its own, many in one transaction."""

import uuid
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakelog.actions import AddFile, CommitInfo, DeletionVector, Metadata, Protocol, RemoveFile
from lakelog.catalog.base import Transaction
from lakelog.delta_log.log import LogCommit, LogListing, read_commit
from lakelog.errors import DeltaLogError, ValidationError, Violation
from lakelog.importing.hidden_table import ImportInterrupted, commit_import
from lakelog.log.commit.committer import LOOKED_UP
from lakelog.log.commit.draft import Description, Draft, Input
from lakelog.log.commit.files import AddFiles
from lakelog.log.commit.outcomes import Conflict
from lakelog.log.commit.removes import LiveFile
from lakelog.log.deletion_vectors import FileVector
from lakelog.log.state import TableState
from lakelog.storage.log_store import LogStore
from lakelog.storage.uris import LOG_DIRECTORY, root_uri
from lakelog.strict_json import json_problem, text_problem
from lakelog.telemetry import CommitRecord

if TYPE_CHECKING:
    from lakelog.opening.engine import Engine

Progress = Callable[[int, int], None]
"""Told how many commits are done, of how many."""

_BATCH = 100
_BATCH_FILES = 20_000
"""Commits, and files in them, that become one transaction of the catalog."""
_LATEST = 253_402_300_799_000
"""The end of the year 9999."""

_NAMESPACE = uuid.UUID("b3d9c9c0-7c52-4c4e-9d53-6f1de6f0a7a1")
"""Of the ids of commits that have none."""


@dataclass(frozen=True, slots=True)
class Step:
    """One version, as the catalog will have it."""

    version: int
    actions: Sequence[Input]
    committed_at: int
    dropped_stats: int
    files: int
    operation: str = "UNKNOWN"
    """What it did, if the log does not say."""


def refuse_headless(store: LogStore, first: LogCommit) -> None:
    """Raises ``DeltaLogError`` if a log's first commit does not say what the table is, and who may read it."""
    for kind in (Metadata, Protocol):
        if not any(isinstance(action, kind) for action in first.actions):
            raise DeltaLogError(
                f"has no {kind.action} action, which version 0 needs", f"{store.place}/{first.version:020}.json"
            )


def commit_step(store: LogStore, listing: LogListing, version: int) -> Step:
    commit = read_commit(store, version)
    if version == 0:
        refuse_headless(store, commit)
    info = next((action for action in commit.actions if isinstance(action, CommitInfo)), None)
    told = info.in_commit_timestamp if info is not None else None
    moment = listing.commits[version].modified if told is None else told
    if not 0 <= moment <= _LATEST:
        name = f"{store.place}/{listing.commits[version].name}"
        raise DeltaLogError(f"expected a time in milliseconds since 1970, found {moment}", name)
    return Step(
        version,
        commit.actions,
        moment,
        commit.dropped_stats,
        sum(isinstance(action, AddFile | RemoveFile) for action in commit.actions),
    )


def draft_of(table_id: int, step: Step, root: str, *, absent: frozenset[str] = frozenset()) -> Draft:
    """The commit of a step. ``absent`` are files that it removes though they are not there, which Delta allows.

    Raises ``ValidationError`` if a deletion vector lies in a file that is not below ``root``, the table's URI.
    """
    if problems := _vectors_outside(step, root):
        raise ValidationError(f"version {step.version}", problems)
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


def _vectors_outside(step: Step, root: str) -> list[Violation]:
    vectors: list[tuple[str, DeletionVector]] = []
    for action in step.actions:
        if isinstance(action, AddFiles) and "deletion_vector" in action.table.column_names:
            found = action.table.filter(action.table.column("deletion_vector").is_valid())
            pairs = zip(*(found.column(name).to_pylist() for name in ("path", "deletion_vector")), strict=True)
            vectors += [(path, DeletionVector.from_json(text)) for path, text in pairs]
        elif isinstance(action, AddFile | RemoveFile) and action.deletion_vector is not None:
            vectors.append((action.path, action.deletion_vector))
    problems = []
    for path, vector in vectors:
        with suppress(ValueError):
            # What is no place is refused with the other fields.
            if FileVector(file=path, rows=None, root=root, vector=vector).is_outside:
                message = f"expected a file below the table, found {vector.path_or_inline_dv}: rewrite {path} first"
                problems.append(Violation("deletionVector.pathOrInlineDv", message))
    return problems


def _is_name(text: Any) -> bool:
    return isinstance(text, str) and 0 < len(text) < 256 and text_problem(text) is None


def _commit_id(step: Step, table: str, used: Container[str]) -> str:
    """The commit's own id, or one that is the same whenever the commit is imported."""
    for action in step.actions:
        if isinstance(action, CommitInfo) and action.txn_id:
            with suppress(ValueError):
                own = str(uuid.UUID(action.txn_id))
                if own not in used:
                    return own
    return str(uuid.uuid5(_NAMESPACE, f"{table}/{step.version}"))


def vector_of(action: AddFile | RemoveFile) -> str | None:
    return action.deletion_vector.unique_id if action.deletion_vector else None


class Loader:
    """Commits steps to a table, many in one transaction."""

    def __init__(
        self,
        lake: "Engine",
        table_id: int,
        base: TableState | None,
        place: str,
        also: Callable[[Transaction, int], None] | None = None,
    ) -> None:
        """``also`` is done with the last version of each transaction, in it."""
        self._committer = lake.committer
        self._table_id = table_id
        self._base = base
        self._place = place
        self._root = root_uri(place.removesuffix(f"/{LOG_DIRECTORY}"))
        self._also = also
        self._ids: set[str] = set()

    def load(self, steps: Iterator[Step], total: int, progress: Progress | None) -> int:
        """Commits all of them. Returns how many statistics were dropped."""
        dropped = done = 0
        batch: list[Step] = []
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

    def _commit(self, steps: Sequence[Step]) -> None:
        committer = self._committer
        batch_id = str(uuid.uuid4())
        committer.data.before_import(self._table_id, (action for step in steps for action in step.actions))
        with CommitRecord(self._place, "IMPORT") as record:
            transaction = committer.catalog.begin([self._table_id], batch_id, committer.timeout)
            try:
                state = self._base
                for step in steps:
                    state = self._write(transaction, step, state, record)
                if self._also is not None:
                    self._also(transaction, steps[-1].version)
                commit_import(transaction, self._place)
            finally:
                transaction.rollback()
            record.outcome = "committed"
        self._base = state

    def _write(
        self, transaction: Transaction, step: Step, state: TableState | None, record: CommitRecord
    ) -> TableState:
        where = f"version {step.version} of {self._place}"
        try:
            draft = draft_of(self._table_id, step, self._root, absent=self._absent(transaction, step))
        except ValidationError as error:
            raise ValidationError(where, error.violations) from error
        problems = draft.settle(state)
        if problems:
            raise ValidationError(where, problems)
        commit_id = _commit_id(step, draft.metadata.action.id, self._ids)
        self._ids.add(commit_id)
        outcome = self._committer.write(transaction, [draft], [state], commit_id, record)
        if isinstance(outcome, Conflict):
            raise ImportInterrupted(f"somebody else imports or writes {self._place} at the same time: try again later")
        return draft.state

    def _absent(self, transaction: Transaction, step: Step) -> frozenset[str]:
        """Files that the step removes and that are not there."""
        removed = {action.path: action for action in step.actions if isinstance(action, RemoveFile)}
        paths = list(removed)
        live: dict[str, str | None] = {}
        for start in range(0, len(paths), LOOKED_UP):
            key = {"table_id": self._table_id, "paths": paths[start : start + LOOKED_UP]}
            rows = transaction.fetch(self._committer.catalog.queries["live_paths"], key)
            live |= {path: LiveFile(*rest).vector for path, *rest in rows}
        return frozenset(
            path for path, action in removed.items() if path not in live or live[path] != vector_of(action)
        )
