"""``TransactionManager``: lock first, then commit. For callers that must know early that nobody is ahead of them."""

import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakelog.actions import Action
from lakelog.catalog.base import Transaction
from lakelog.catalog.deadlines import Deadline, sharing
from lakelog.errors import LakelogError, LakelogTimeoutError, ValidationError
from lakelog.log.commit.draft import Description, Draft, Input, integer_problems
from lakelog.log.commit.files import AddFiles, RowGroup
from lakelog.log.commit.outcomes import Conflict
from lakelog.telemetry import CommitRecord
from lakelog.threads import start_thread

if TYPE_CHECKING:
    from lakelog.lake import Lake

_DESCRIBED = ("operation", "operation_parameters", "committer")


class TxContext:
    """A transaction that holds its table's commit lock, with a deadline after which it is rolled back.

    As a context manager it rolls back what was not committed.
    """

    def __init__(self, transaction: Transaction, dataset_id: int, base_version: int, timeout: float) -> None:
        self.dataset_id = dataset_id
        self.base_version = base_version
        self.commit_id = ""
        self._transaction = transaction
        self._deadline = Deadline(timeout)
        self._guard = threading.Lock()
        self._process = os.getpid()
        self._state = "open"
        self._ended = threading.Event()
        try:
            start_thread(self._watch)
        except RuntimeError as error:
            raise LakelogError(
                f"no transaction can begin: its deadline needs a thread, and none can start ({error}). Nothing is "
                "locked: free memory or processes, and begin again"
            ) from error

    def __enter__(self) -> "TxContext":
        return self

    def __exit__(self, *exception: object) -> None:
        self.rollback()

    def __repr__(self) -> str:
        return f"TxContext(dataset_id={self.dataset_id}, base_version={self.base_version}, {self._state})"

    @property
    def is_open(self) -> bool:
        return self._state == "open"

    def take(self) -> Transaction:
        """The transaction, for its one commit. Raises if it has ended."""
        if os.getpid() != self._process:
            raise LakelogError("this transaction belongs to the process that this one was forked from: begin a new one")
        if self._deadline.passed:
            self._expire()
        with self._guard:
            if self._state == "expired":
                raise LakelogTimeoutError(
                    "the transaction's own commit (it was held open too long)", self._deadline.seconds
                )
            if self._state != "open":
                raise LakelogError(f"this transaction is {self._state}: begin a new one")
            self._state = "committing"
        self._ended.set()
        return self._transaction

    def end(self, state: str) -> None:
        self._state = state
        self._transaction.rollback()

    def rollback(self) -> None:
        # In a forked child it is the parent's: ending it here would reach into the parent's connection and locks.
        if os.getpid() != self._process:
            return
        with self._guard:
            if self._state != "open":
                return
            self._state = "rolled back"
        self._ended.set()
        self._transaction.rollback()

    def _watch(self) -> None:
        if not self._ended.wait(self._deadline.left):
            self._expire()

    def _expire(self) -> None:
        with self._guard:
            if self._state != "open":
                return
            self._state = "expired"
        self._transaction.rollback()


class TransactionManager:
    """Versioned, atomic commits of file records. Never retries."""

    def __init__(self, lake: "Lake") -> None:
        self._committer = lake.committer

    def begin(self, dataset_id: int, base_version: int | None = None) -> TxContext:
        """Takes the dataset's commit lock and compares its head with ``base_version`` at once.

        Raises ``VersionConflict`` if the head is another, ``LakelogTimeoutError`` if the lock cannot be had in time.
        """
        misused = integer_problems("dataset id", dataset_id)
        if base_version is not None:
            misused += integer_problems("base version", base_version)
        if misused:
            raise ValidationError("begin", misused)
        catalog, timeout = self._committer.catalog, self._committer.timeout
        commit_id = str(uuid.uuid4())
        with sharing(timeout):
            self._committer.check(dataset_id, base_version)
            transaction = catalog.begin([dataset_id], commit_id, timeout)
        try:
            head = self._committer.lock(transaction, dataset_id, base_version)
            if isinstance(head, Conflict):
                raise head.error()
            self._committer.states.of_head(transaction, head)
            context = TxContext(transaction, dataset_id, head.version, timeout)
            self._committer.data.locations[dataset_id] = head.location
        except BaseException:
            transaction.rollback()
            raise
        context.commit_id = commit_id
        return context

    def commit(
        self,
        context: TxContext,
        file_records: Sequence[Action] | pa.Table,
        row_group_records: Sequence[RowGroup] | pa.Table = (),
        metadata: Mapping[str, Any] | None = None,
        *,
        leases: Sequence[str] = (),
    ) -> int:
        """Commits the records as the next version and returns it.

        ``file_records`` is an Arrow table of added files, or a sequence of actions (``AddFile``, ``RemoveFile``, …);
        ``metadata`` says operation, operation_parameters and committer, and may hold more. ``leases`` are directories
        that were registered before the files in them were written, as for ``SqlTxnLogWriter.commit``.
        """
        actions: Sequence[Input] = [AddFiles(file_records)] if isinstance(file_records, pa.Table) else file_records
        said = dict(metadata or {})
        described = {name: said.pop(name) for name in _DESCRIBED if name in said}
        description = Description(**{"operation_parameters": {}, "extra": said, **described})
        draft = Draft(context.dataset_id, context.base_version, actions, description, row_group_records, leases=leases)
        transaction = context.take()
        with CommitRecord(str(context.dataset_id), description.operation) as record:
            try:
                version = self._commit(context, transaction, draft, record)
            finally:
                context.end("committed" if record.outcome == "committed" else "rolled back")
        self._committer.tell([draft])
        return version

    def _commit(self, context: TxContext, transaction: Transaction, draft: Draft, record: CommitRecord) -> int:
        base = self._committer.states.load(transaction, context.dataset_id, context.base_version)
        problems = draft.settle(base)
        if problems:
            raise ValidationError("commit", problems)
        self._committer.data.before_commit([draft])
        outcome = self._committer.write(transaction, [draft], [base], context.commit_id, record)
        if isinstance(outcome, Conflict):
            record.outcome = "conflict"
            raise outcome.error()
        return self._committer.finish(transaction, [draft], outcome, context.commit_id, record)[0].version

    def rollback(self, context: TxContext) -> None:
        """Undoes the transaction and lets go of its lock. Harmless after its end."""
        context.rollback()
