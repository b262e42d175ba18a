"""Expiry: forgets old versions for good, and everything in the catalog that only they need.

No file is deleted: data files go with a later vacuum, and the files of ``_delta_log`` stay, since a reader may be in
the middle of them. Before anything is forgotten, the log has a checkpoint that needs nothing of what came before.
"""

import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from lakelog.catalog.base import OutcomeUnknown, Session, Transaction
from lakelog.errors import CommitOutcomeUnknown, DatabaseError, LakelogError, ValidationError, Violation
from lakelog.log.snapshot.snapshot import milliseconds_of, moment
from lakelog.log.state import Head
from lakelog.mirror.status import OFF, PUBLISHED
from lakelog.strict_json import describe
from lakelog.upkeep.retention import read_retention, set_retention

if TYPE_CHECKING:
    from lakelog.log.table import Table
    from lakelog.opening.engine import Engine

_PARTS = ("column_stats", "row_groups", "partitions")
_COMMITS = ("dl_remove_files", "dl_cdc_files", "dl_table_versions")
_PROGRESS = {"dl_txn_actions": "app_id", "dl_domain_metadata": "domain"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiryReport:
    """Which versions were forgotten, or would be."""

    dataset: str
    dry_run: bool
    versions: int
    """How many were forgotten."""
    before: int
    """The oldest version before."""
    first_version: int
    """The oldest version that is left."""
    since: datetime
    """When that was committed: nothing older can be travelled to."""
    files: int
    """Removed files of which the catalog knows nothing any more. They are deleted by the next vacuum that may."""

    def __str__(self) -> str:
        if not self.versions:
            return f"{self.dataset}: no version is old enough, the oldest is {self.first_version}"
        forgotten = "would be forgotten" if self.dry_run else "are forgotten"
        return (
            f"{self.dataset}: versions {self.before} to {self.first_version - 1} {forgotten}; time travel goes back to "
            f"version {self.first_version} of {self.since.isoformat()}. No file is deleted: {self.files} that only "
            "they needed are left to a vacuum, and a mirror's log stays as it is"
        )


def expire_versions(
    lake: "Engine",
    dataset: "Table",
    older_than: datetime | str | int | None = None,
    keep_last: int | None = None,
    *,
    dry_run: bool = False,
) -> ExpiryReport:
    """See ``Dataset.expire_versions``."""
    time = _checked(older_than, keep_last)
    committer = lake.committer
    with committer.catalog.session() as session:
        report = None
        # Another expiry may forget the version in between, and then there is less to do.
        while report is None:
            plan = _Plan.of(lake, session, committer.head(session, dataset.id), time, keep_last)
            report = plan.report(session, dataset.name, dry_run=dry_run)
    if not dry_run and plan.first > plan.before:
        _see_to_the_log(lake, dataset, plan.first)
        _forget(lake, plan)
    return report


def _checked(older_than: datetime | str | int | None, keep_last: int | None) -> int | None:
    if older_than is None and keep_last is None:
        raise ValidationError("expiry", [Violation("older_than", "say it, or keep_last, or both")])
    if keep_last is not None and (not isinstance(keep_last, int) or isinstance(keep_last, bool) or keep_last < 1):
        raise ValidationError(
            "expiry", [Violation("keep_last", f"expected a positive integer, got {describe(keep_last)}")]
        )
    return None if older_than is None else milliseconds_of(older_than)


@dataclass(frozen=True, slots=True)
class _Plan:
    table_id: int
    before: int
    """The first version now."""
    first: int
    """The first version then."""
    lake: "Engine"

    @classmethod
    def of(cls, lake: "Engine", session: Session, head: Head, time: int | None, keep_last: int | None) -> "_Plan":
        queries = lake.committer.catalog.queries
        before = int(session.fetch(queries["first_version"], {"table_id": head.table_id})[0][0])
        limits = [head.version]
        if keep_last is not None:
            limits.append(head.version - keep_last + 1)
        if time is not None:
            rows = session.fetch(queries["version_at_time"], {"table_id": head.table_id, "time": time})
            limits.append(int(rows[0][0]) if rows else before)
        return cls(head.table_id, before, max(before, min(limits)), lake)

    def report(self, session: Session, name: str, *, dry_run: bool) -> ExpiryReport | None:
        """What the plan comes to; None if its first version is gone."""
        queries = self.lake.committer.catalog.queries
        key = {"table_id": self.table_id, "version": self.first}
        commits = {"table_id": self.table_id, "first": self.first, "last": self.first, "limit": 1}
        oldest = session.fetch(queries["history"], commits)
        if not oldest:
            return None
        return ExpiryReport(
            dataset=name,
            dry_run=dry_run,
            versions=self.first - self.before,
            before=self.before,
            first_version=self.first,
            since=moment(oldest[0][1]),
            files=int(session.fetch(queries["closed_before"], key)[0][0]),
        )


def _see_to_the_log(lake: "Engine", dataset: "Table", first: int) -> None:
    """What is not published yet could never be, and what is lost could never be written again."""
    status = lake.mirror.checkpoint(dataset.id, first)
    if status.state != OFF and (status.state != PUBLISHED or status.published < first):
        raise LakelogError(
            f"nothing was forgotten: the mirror of {dataset.name!r} is {status.state} at version {status.published}, "
            f"and version {first} has to be published first ({status.error or 'look at dataset.mirror_status()'})"
        )


def _forget(lake: "Engine", plan: _Plan) -> None:
    committer = lake.committer
    catalog = committer.catalog
    commit_id = str(uuid.uuid4())
    transaction = catalog.begin([plan.table_id], commit_id, committer.timeout)
    try:
        committer.lock(transaction, plan.table_id, None)
        _delete_rows(transaction, lake, plan)
        transaction.commit()
    except OutcomeUnknown as lost:
        try:
            rows = committer.settled(commit_id, catalog.queries["first_version"], {"table_id": plan.table_id}, lost)
        except CommitOutcomeUnknown as unknown:
            raise LakelogError(
                "the database was lost while it was forgetting versions, and could not be asked again: look at "
                f"dataset.first_version when it is back. Cause: {lost}; {unknown.detail}"
            ) from lost
        if rows[0][0] < plan.first:
            raise DatabaseError(f"the database was lost, and nothing was forgotten: {lost}") from lost
    finally:
        transaction.rollback()
    committer.states.forget(plan.table_id)


def _delete_rows(transaction: Transaction, lake: "Engine", plan: _Plan) -> None:
    """Under the table's lock. The order is from what depends to what it depends on."""
    queries = lake.committer.catalog.queries
    table = {"table_id": plan.table_id}
    key = {**table, "version": plan.first}
    found = read_retention(transaction, queries, plan.table_id)
    shared = found.shared or bool(transaction.fetch(queries["converted"], table))
    for name in _PARTS:
        transaction.execute(queries.fill("forget_parts", table=name), key)
    transaction.execute(queries["forget_files"], key)
    for name in _COMMITS:
        transaction.execute(queries.fill("forget_commits", table=name), key)
    for name, subject in _PROGRESS.items():
        transaction.execute(queries.fill("forget_progress", table=name, key=subject), key)
    transaction.execute(queries.fill("forget_rules", table="dl_protocol_updates"), key)
    # Files that are still live were written under older metadata, by which it is known what their statistics cover.
    oldest = transaction.fetch(queries["oldest_file"], table)[0][0]
    since = {**table, "version": plan.first if oldest is None else min(oldest, plan.first)}
    transaction.execute(queries.fill("forget_rules", table="dl_metadata_updates"), since)
    transaction.execute(queries["forget_schemas"], table)
    set_retention(transaction, queries, plan.table_id, expired_at=lake.committer.now(transaction), shared=shared)
