"""Committing again after a lost race, where nothing that the winners did stands in the way."""

import logging
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from lakelog.errors import ConcurrencyError
from lakelog.log.commit import CommitResult, Committer, Conflict
from lakelog.log.conflicts import Reads, find_conflict
from lakelog.log.draft import Draft

_SHORTEST = 0.02
_LONGEST = 2.0
"""Seconds: no pause is longer than the first of these at the first retry, and than the second at any."""

_log = logging.getLogger("lakelog.retry")


def back_off(retry: int) -> None:
    """Sleeps before a retry, counted from 1: at random, so that losers part, and longer each time."""
    time.sleep(random.uniform(0, min(_LONGEST, _SHORTEST * 2.0 ** min(retry - 1, 30))))


def commit_with_retries(
    committer: Committer,
    table_id: int,
    base_version: int,
    draft_for: Callable[[int], Draft],
    reads: Reads,
    *,
    retries: int = 0,
    apps: Iterable[str] = (),
    changes_metadata: bool = False,
    pause: Callable[[int], None] = back_off,
) -> CommitResult:
    """Commits what was prepared on ``base_version``, on a later head if need be.

    ``draft_for`` gives the same draft for another expected head: the same files, and the removes of the base version.
    What the draft itself shows need not be said again: the files that it removes count as read, its applications'
    progress too.

    Raises ``ConcurrencyError`` if a winner stands in the way, and its subclass ``VersionConflict`` if no retry is
    left. Everything else that a commit raises passes through: an unknown outcome is never tried again.
    """
    draft = draft_for(base_version)
    reads = replace(reads, files=reads.files.union(draft.removes.paths))
    progress = frozenset(apps).union(txn.app_id for txn in draft.txns)
    changes_metadata = changes_metadata or draft.new_metadata is not None or draft.new_protocol is not None
    retry = 0
    while True:
        outcome = committer.commit([draft])
        if not isinstance(outcome, Conflict):
            return outcome[0]
        if retry >= retries or outcome.actual < outcome.expected:
            raise outcome.error()
        retry += 1
        pause(retry)
        with committer.catalog.session() as session:
            head = committer.head(session, table_id)
            committer.states.of_head(session, head)
        # Those before the draft's own base were looked at when it was made.
        found = find_conflict(
            committer,
            table_id,
            draft.expected,
            head.version,
            reads,
            apps=progress,
            changes_metadata=changes_metadata,
        )
        if found is not None:
            raise ConcurrencyError(
                f"conflict on table {head.name!r} (id {table_id}): {found}. The commit was prepared on version "
                f"{base_version} and nothing of it was committed: read the table again, at version {head.version}, "
                "and repeat the write if it still applies."
            )
        _log.info(
            "%s: version %d was taken by another commit, trying version %d (retry %d of %d)",
            head.name,
            draft.version,
            head.version + 1,
            retry,
            retries,
        )
        draft = draft_for(head.version)
