"""The check of a dataset: its rows in the catalog, its files, its mirror and its writes, and what can be mended safely.

Nothing is locked: the head is read once, and rows that later commits bring are left out. What was lost is never
guessed: only what follows from the log is mended, which is indexes, files of the mirror, and leases that are over.
"""

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lakelog.catalog.base import OutcomeUnknown
from lakelog.changes.leases import end_expired_writes, registered_writes
from lakelog.errors import DatabaseError
from lakelog.log.commit.times import CLOCKS_APART, time_text
from lakelog.log.state import Head
from lakelog.upkeep.check.bounds import WrongBounds, mend_bounds, wrong_bounds
from lakelog.upkeep.check.catalog import catalog_findings
from lakelog.upkeep.check.files import FileCheck
from lakelog.upkeep.check.findings import CheckReport, Finding, limited
from lakelog.upkeep.check.mirror import MirrorCheck
from lakelog.upkeep.retention import read_retention

if TYPE_CHECKING:
    from lakelog.opening.engine import Engine

_TRIES = 3


def check(lake: "Engine", name: str, *, repair: bool = False, deep: bool = True) -> CheckReport:
    """See ``Lake.check``."""
    table_id = lake.dataset(name).id
    findings = _rows(lake, table_id, repair=repair)
    with lake.committer.catalog.session() as session:
        queries = lake.committer.catalog.queries
        head = lake.committer.head(session, table_id)
        first = int(session.fetch(queries["first_version"], {"table_id": table_id})[0][0])
        oldest = read_retention(session, queries, table_id).oldest_version
        files = None
        if "://" not in head.location:
            files = FileCheck(session, queries, head, max(first, oldest), deep=deep)
    if files is not None:
        findings += limited(files.findings())
    findings += limited(MirrorCheck(lake.committer, lake.mirror, head, first).findings(repair=repair, deep=deep))
    findings += _ahead_of_the_clock(lake, head, first)
    findings += _writes(lake, head, repair=repair)
    return CheckReport(
        dataset=head.name,
        version=head.version,
        first_version=first,
        files=0 if files is None else len(files),
        deep=deep,
        findings=tuple(findings),
    )


def _rows(lake: "Engine", table_id: int, *, repair: bool) -> list[Finding]:
    found, wrong, head = _looked(lake, table_id)
    if not repair or not any(finding.mend for finding in found):
        return found
    _mend(lake, head, wrong)
    left = set(_looked(lake, table_id)[0])
    return [replace(each, repaired=each.mend is not None and each not in left) for each in found]


def _looked(lake: "Engine", table_id: int) -> tuple[list[Finding], list[WrongBounds], Head]:
    """What is wrong with the rows. Looks again if versions expired meanwhile, of which it saw some and some not."""
    catalog = lake.committer.catalog
    first = {"table_id": table_id}
    for _ in range(_TRIES):
        with catalog.session() as session:
            before = session.fetch(catalog.queries["first_version"], first)
            head = lake.committer.head(session, table_id)
            found = catalog_findings(session, catalog.queries, head)
            wrong = list(wrong_bounds(lake.committer, session, head))
            if session.fetch(catalog.queries["first_version"], first) == before:
                break
    return [*found, *limited(each.finding() for each in wrong)], wrong, head


def _mend(lake: "Engine", head: Head, wrong: Sequence[WrongBounds]) -> None:
    """Makes the index of removed files, and what searches read, what the log says, under the table's lock."""
    committer, queries = lake.committer, lake.committer.catalog.queries
    transaction = committer.catalog.begin([head.table_id], str(uuid.uuid4()), committer.timeout)
    try:
        committer.lock(transaction, head.table_id, None)
        (row,) = transaction.fetch(queries["table_by_id"], {"table_id": head.table_id})
        key = {"table_id": head.table_id, "version": Head(*row).version}
        for version, ordinal, _, _, expected in transaction.fetch(queries["check_removed"], key):
            if expected is None or expected > version:
                file = {"table_id": head.table_id, "version": version, "ordinal": ordinal}
                transaction.execute(queries["mend_removed"], {**file, "removed_version": expected})
        mend_bounds(committer, transaction, head.table_id, wrong)
        transaction.commit()
    except OutcomeUnknown as lost:
        raise DatabaseError(
            f"the database was lost during the repair: check the dataset again. Cause: {lost}"
        ) from lost
    finally:
        transaction.rollback()


def _ahead_of_the_clock(lake: "Engine", head: Head, first: int) -> list[Finding]:
    """Versions that a wrong clock has put into the future, where it holds the table: commit times never go back."""
    catalog = lake.committer.catalog
    with catalog.session() as session:
        now = lake.committer.now(session)
        if head.committed_at <= now + CLOCKS_APART:
            return []
        key = {"table_id": head.table_id, "time": now + CLOCKS_APART}
        before = session.fetch(catalog.queries["version_at_time"], key)
    return [
        Finding(
            invariant=1,
            message=f"the head was committed at {time_text(head.committed_at)}, and it is {time_text(now)}: a clock "
            "was wrong, and timestamps do not find these versions until then",
            versions=(before[0][0] + 1 if before else first, head.version),
        )
    ]


def _writes(lake: "Engine", head: Head, *, repair: bool) -> list[Finding]:
    catalog = lake.committer.catalog
    with catalog.session() as session:
        now = lake.committer.now(session)
        expired = [each for each in registered_writes(session, catalog.queries, head.location) if each.has_expired(now)]
    ended = set(end_expired_writes(lake.committer, head.location, now)) if repair and expired else set()
    return [
        Finding(
            invariant=8,
            message=f"the write to {each.directory} of {each.started_at.isoformat()} never said that it ended",
            mend="take its registration back; a vacuum deletes what it left",
            repaired=each.directory in ended,
        )
        for each in expired
    ]
