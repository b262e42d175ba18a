"""Committing again after a lost race, where nothing that the winners did stands in the way."""

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lakelog.catalog.deadlines import sharing
from lakelog.changes.conflicts import Found, Reads, find_conflict
from lakelog.errors import ConcurrencyError, LakelogTimeoutError, ValidationError, Violation
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.draft import Draft, Inherited, integer_problems
from lakelog.log.commit.outcomes import CommitResult, Conflict
from lakelog.log.state import Head

_SHORTEST = 0.02
_LONGEST = 2.0
"""Seconds: no pause is longer than the first of these at the first retry, and than the second at any."""

_log = logging.getLogger("lakelog.retry")


def back_off(retry: int) -> None:
    """Sleeps before a retry, counted from 1: at random, so that losers part, and longer each time."""
    time.sleep(random.uniform(0, min(_LONGEST, _SHORTEST * 2.0 ** min(retry - 1, 30))))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A commit on one table that was prepared on ``base_version``, and may stand on a later one.

    ``draft_for`` gives the same draft for another expected head: the same files, and the removes of the base version.
    What the draft itself shows need not be said again: the files that it removes count as read, its applications'
    progress too.
    """

    table_id: int
    base_version: int
    draft_for: Callable[[int], Draft]
    reads: Reads
    apps: frozenset[str] = frozenset()
    """Applications whose progress was read."""
    changes_metadata: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a commit has read of a table that it does not change, and that must not change before it stands."""

    table_id: int
    base_version: int
    reads: Reads


def commit_with_retries(
    committer: Committer,
    prepared: Sequence[Prepared],
    held: Sequence[Held] = (),
    *,
    retries: int = 0,
    pause: Callable[[int], None] = back_off,
) -> list[CommitResult]:
    """Commits what was prepared, all of it or nothing, each on a later head of its table if need be.

    Raises ``ConcurrencyError`` if a winner stands in the way, and its subclass ``VersionConflict`` if no retry is
    left. Everything else that a commit raises passes through: an unknown outcome is never tried again.
    """
    drafts = [each.draft_for(each.base_version) for each in prepared]
    prepared = [_with_own_reads(each, draft) for each, draft in zip(prepared, drafts, strict=True)]
    unchanged = {each.table_id: each.base_version for each in held}
    blind = [_is_blind(each, draft) for each, draft in zip(prepared, drafts, strict=True)]
    retry = 0
    while True:
        for draft, anywhere in zip(drafts, blind, strict=True):
            draft.anywhere = anywhere and retries > 0
        outcome = committer.commit(drafts, unchanged)
        if not isinstance(outcome, Conflict):
            return outcome
        if retry >= retries or outcome.actual < outcome.expected:
            raise outcome.error()
        retry += 1
        if held or not all(blind):
            pause(retry)
        count = f"retry {retry} of {retries}"
        drafts = [_moved(committer, each, draft, count) for each, draft in zip(prepared, drafts, strict=True)]
        unchanged = {each.table_id: _still(committer, each, unchanged[each.table_id]) for each in held}


def append(committer: Committer, table_id: int, draft_for: Callable[[int], Draft]) -> CommitResult:
    """Commits files that are added, and nothing else, on top of whatever the table's head is.

    What is checked before the lock is checked against the table's rules as they were last seen. If they are others by
    then, nothing is committed, and it begins again with those, until the timeout is over.
    """
    if misused := integer_problems("table id", table_id):
        raise ValidationError("append", misused)
    state = committer.states.latest(table_id)
    with sharing(committer.timeout) as deadline:
        while True:
            draft = draft_for(_head(committer, table_id).version if state is None else state.version)
            if not draft.only_adds:
                message = "expected added files and nothing that depends on the table's state: name the version for it"
                raise ValidationError("append", [Violation("actions", message)])
            draft.anywhere = True
            outcome = committer.commit([draft])
            if not isinstance(outcome, Conflict):
                return outcome[0]
            if deadline.passed:
                what = f"an append to {outcome.table!r}, whose columns keep changing"
                raise LakelogTimeoutError(what, deadline.seconds)
            state = None


def _with_own_reads(prepared: Prepared, draft: Draft) -> Prepared:
    return replace(
        prepared,
        reads=replace(prepared.reads, files=prepared.reads.files.union(draft.removes.paths)),
        apps=prepared.apps.union(txn.app_id for txn in draft.txns),
        changes_metadata=prepared.changes_metadata or draft.new_metadata is not None or draft.new_protocol is not None,
    )


def _is_blind(prepared: Prepared, draft: Draft) -> bool:
    """Whether nothing that the winners wrote can stand in the way: an append, while the table's rules stay the same.

    If it may be tried again, it waits for the lock and stands on whatever the head is then, so that no race is lost.
    """
    return (
        prepared.reads == Reads()
        and not prepared.apps
        and not prepared.changes_metadata
        and draft.only_adds
        and draft.inherited == Inherited()
        and not draft.imported
    )


def _moved(committer: Committer, prepared: Prepared, draft: Draft, count: str) -> Draft:
    """The draft on top of the table's head now. Raises ``ConcurrencyError`` if it cannot stand there."""
    head = _head(committer, prepared.table_id)
    if head.version == draft.expected:
        return draft
    # Those before the draft's own base were looked at when it was made.
    found = find_conflict(
        committer,
        prepared.table_id,
        draft.expected,
        head.version,
        prepared.reads,
        apps=prepared.apps,
        changes_metadata=prepared.changes_metadata,
    )
    if found is not None:
        raise _conflict(head, prepared.base_version, found)
    message = "%s: version %d was taken by another commit, trying version %d (%s)"
    _log.info(message, head.name, draft.version, head.version + 1, count)
    return prepared.draft_for(head.version)


def _still(committer: Committer, held: Held, version: int) -> int:
    """The table's head now, which still has what was read. Raises ``ConcurrencyError`` if it has not."""
    head = _head(committer, held.table_id)
    found = None
    if head.version != version:
        found = find_conflict(committer, held.table_id, version, head.version, held.reads)
    if found is not None:
        raise _conflict(head, held.base_version, found)
    return head.version


def _head(committer: Committer, table_id: int) -> Head:
    with committer.catalog.session() as session:
        head = committer.head(session, table_id)
        committer.states.of_head(session, head)
    return head


def _conflict(head: Head, base_version: int, found: Found) -> ConcurrencyError:
    return ConcurrencyError(
        f"conflict on table {head.name!r} (id {head.table_id}): {found}. The commit was prepared on version "
        f"{base_version} and nothing of it was committed: read the table again, at version "
        f"{head.version}, and repeat the write if it still applies."
    )
