"""The commit of a few added files, which databases that are far away take in one round trip."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakelog.catalog.base import OutcomeUnknown, Row, SmallCommit, Stands
from lakelog.catalog.deadlines import Deadline
from lakelog.log.commit.draft import Draft
from lakelog.log.commit.outcomes import CommitResult, Committed
from lakelog.log.state import TableState
from lakelog.strict_json import encode_json
from lakelog.telemetry import CommitRecord

if TYPE_CHECKING:
    from lakelog.log.commit.committer import Committer


def commit_small(
    committer: "Committer",
    draft: Draft,
    base: TableState | None,
    commit_id: str,
    record: CommitRecord,
    deadline: Deadline,
) -> CommitResult | None:
    """The whole commit in one statement of the database, if it is of the kind for which that is enough.

    None if it is not, or something is in the way; nothing is committed then, and the long way tells what it is.
    """
    takes = committer.catalog.takes_at_once(draft.table_id, anywhere=draft.anywhere)
    if not takes or base is None or not draft.is_plain:
        return None
    rows = {"dl_table_versions": [version_row(draft, commit_id, 0)], **_rows(draft, base)}
    small = SmallCommit(
        table_id=draft.table_id,
        created_at=committer.states.created.get(draft.table_id),
        commit_id=commit_id,
        expected=draft.expected,
        anywhere=draft.anywhere,
        metadata_version=base.metadata.version,
        protocol_version=base.protocol_version,
        paths=draft.adds.paths,
        leases=sorted(set(draft.leases)),
        rows=rows,
    )
    try:
        stands = committer.catalog.commit_at_once(small, deadline.left)
    except OutcomeUnknown as lost:
        names = [committer.states.names.get(draft.table_id, f"id {draft.table_id}")]
        ((_, name, version, committed_at, location),) = committer.found_after(lost, commit_id, names, record)
        stands = Stands(version, committed_at, name, location, 0.0)
    if stands is None:
        return None
    committer.states.names[draft.table_id] = stands.name
    record.outcome, record.waited = "committed", stands.waited
    record.rows |= {table: len(found) for table, found in rows.items() if table != "dl_table_versions"}
    if stands.version != draft.version:
        draft.move_to(stands.version - 1)
        rows |= _rows(draft, base)
    rows["dl_table_versions"] = [version_row(draft, commit_id, stands.committed_at)]
    result = CommitResult(
        table_id=draft.table_id,
        table=stands.name,
        version=stands.version,
        committed_at=stands.committed_at,
        commit_id=commit_id,
    )
    draft.committed = Committed(result=result, location=stands.location, state=draft.state, rows=rows)
    committer.states.put(draft.state)
    return result


def version_row(draft: Draft, commit_id: str, committed_at: int) -> Row:
    description = draft.description
    return (
        draft.table_id,
        draft.version,
        committed_at,
        commit_id,
        description.committer,
        description.operation,
        encode_json(description.operation_parameters),
        encode_json(description.extra) if description.extra else None,
    )


def _rows(draft: Draft, base: TableState) -> dict[str, Sequence[Row]]:
    return {table: rows for table, rows in draft.rows(base, {}) if len(rows)}
