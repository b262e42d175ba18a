"""``SqlTxnLogWriter``: Delta actions into the log, one version at a time."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakelog.changes.retry import append
from lakelog.log.commit.draft import Description, Draft, Input
from lakelog.log.commit.files import RowGroup
from lakelog.log.commit.outcomes import CommitResult, Conflict

if TYPE_CHECKING:
    from lakelog.lake import Lake


class SqlTxnLogWriter:
    """Commits actions as exactly the version that the caller names, or added files as the next one."""

    def __init__(self, lake: "Lake") -> None:
        self._committer = lake.committer

    def commit(
        self,
        table_id: int,
        version: int,
        actions: Sequence[Input],
        *,
        operation: str = "WRITE",
        operation_parameters: Mapping[str, Any] | None = None,
        committer: str | None = None,
        row_groups: Sequence[RowGroup] | Any = (),
        extra: Mapping[str, Any] | None = None,
        leases: Sequence[str] = (),
    ) -> CommitResult:
        """Makes ``version`` of the table, whose head must be ``version - 1``.

        Actions are values of ``lakelog.actions``, or ``AddFiles`` and ``RemoveFiles`` for thousands of files.
        ``leases`` are directories that were registered before the files in them were written: the commit fails with
        ``LakelogError`` if a vacuum has taken one of them back.

        Raises ``ValidationError`` for wrong input, ``VersionConflict`` if another commit came first,
        ``LakelogTimeoutError``, ``DatabaseError``, and ``CommitOutcomeUnknown`` if the database was lost in COMMIT.
        """
        description = _described(operation, operation_parameters, committer, extra)
        expected = version if isinstance(version, bool) or not isinstance(version, int) else version - 1
        outcome = self._committer.commit([Draft(table_id, expected, actions, description, row_groups, leases=leases)])
        if isinstance(outcome, Conflict):
            raise outcome.error()
        return outcome[0]

    def append(
        self,
        table_id: int,
        actions: Sequence[Input],
        *,
        operation: str = "WRITE",
        operation_parameters: Mapping[str, Any] | None = None,
        committer: str | None = None,
        row_groups: Sequence[RowGroup] | Any = (),
        extra: Mapping[str, Any] | None = None,
        leases: Sequence[str] = (),
    ) -> CommitResult:
        """Adds files as the table's next version, whichever that is then.

        For many writers on one table: each waits for its lock, in order, and none loses a race. ``actions`` add files,
        and may say how far an application has come (``Txn``), which is compared with what is there, under the lock.
        Raises as ``commit`` does, but for ``VersionConflict``.
        """
        description = _described(operation, operation_parameters, committer, extra)
        return append(
            self._committer,
            table_id,
            lambda head: Draft(table_id, head, actions, description, row_groups, leases=leases),
        )


def _described(
    operation: str, parameters: Mapping[str, Any] | None, committer: str | None, extra: Mapping[str, Any] | None
) -> Description:
    return Description(
        operation=operation,
        operation_parameters={} if parameters is None else parameters,
        committer=committer,
        extra={} if extra is None else extra,
    )
