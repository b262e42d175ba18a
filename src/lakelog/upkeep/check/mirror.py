"""Whether a table's ``_delta_log`` is what the mirror would write: a prefix of the log, in order, byte by byte."""

import uuid
from collections.abc import Iterator
from dataclasses import replace

from lakelog.delta_log.names import commit_name, version_of
from lakelog.errors import LakelogError
from lakelog.log.commit.committer import Committer
from lakelog.log.state import Head
from lakelog.mirror.commit_json import (
    MARK,
    commit_id_of,
    committed_at_of,
    delta_json,
    earlier_delta_json,
    is_import,
    metadata_in,
    older_schemas,
    read_rows,
)
from lakelog.mirror.ownership import Verdict, commit_info, judge
from lakelog.mirror.publisher import Mirror, is_mirrored
from lakelog.mirror.status import FAILING, PUBLISHED, Entry
from lakelog.storage.log_store import log_store
from lakelog.upkeep.check.checkpoints import CheckpointCheck
from lakelog.upkeep.check.findings import Finding

_BATCH = 100
_WRITE_AGAIN = "write the file again"


class MirrorCheck:
    """A table's mirror as it is now."""

    def __init__(self, committer: Committer, mirror: Mirror, head: Head, first: int) -> None:
        self._committer = committer
        self._mirror = mirror
        self._head = head
        self._first = first
        self._store = log_store(head.location)

    def findings(self, *, repair: bool, deep: bool) -> Iterator[Finding]:
        """Of all checkpoints if ``deep``, otherwise of the newest."""
        with self._committer.catalog.session() as session:
            metadata = self._committer.states.load(session, self._head.table_id, self._head.version).metadata
        if not is_mirrored(metadata):
            return
        entry = self._mirror.entry(self._head.table_id)
        if entry.state not in (PUBLISHED, FAILING):
            message = f"the mirror is {entry.state} at version {entry.published}: {entry.error}"
            yield Finding(invariant=7, message=f"{message}. See dataset.mirror, and its set_aside, or dataset.adopt")
            return
        published = min(entry.published, self._head.version)
        checkpoints = CheckpointCheck(self._committer, self._store, self._head, self._first, published)
        try:
            yield from self._file_findings(entry, repair=repair)
            yield from checkpoints.findings(repair=repair, deep=deep)
        except OSError as error:
            yield Finding(invariant=7, message=f"{self._store.place} cannot be read: {error}")

    def _file_findings(self, entry: Entry, *, repair: bool) -> Iterator[Finding]:
        names = {each.name for each in self._store.files() if version_of(each.name) is not None}
        there = {version_of(name) for name in names if name.endswith(".json")}
        checkpoints = {version_of(name) for name in names} - there
        with self._committer.catalog.session() as session:
            head = self._committer.head(session, self._head.table_id)
        for ahead in sorted(version for version in there if version is not None and version > head.version):
            message = (
                f"{commit_name(ahead)} is ahead of the catalog: see dataset.adopt, or dataset.mirror(set_aside=True)"
            )
            yield Finding(invariant=7, message=message, versions=(ahead, ahead))
        published = min(entry.published, self._head.version)
        # Others may have cleaned up what lies before a checkpoint.
        begin = max((each for each in checkpoints if each is not None and each <= published), default=-1)
        missing = [version for version in range(max(begin, self._first), published + 1) if version not in there]
        repaired = bool(missing) and repair and self._publish_again()
        for version in missing:
            message = f"{commit_name(version)} was published and is gone"
            yield Finding(
                invariant=7, message=message, versions=(version, version), mend=_WRITE_AGAIN, repaired=repaired
            )
        for start in range(self._first, published + 1, _BATCH):
            last = min(start + _BATCH - 1, published)
            yield from self._contents(start, last, there - set(missing), repair=repair)

    def _publish_again(self) -> bool:
        """Lets the mirror write what is gone. Whether it did."""
        try:
            return self._mirror.publish(self._head.table_id).state == PUBLISHED
        except LakelogError:
            return False

    def _contents(self, first: int, last: int, there: set[int | None], *, repair: bool) -> Iterator[Finding]:
        queries = self._committer.catalog.queries
        with self._committer.catalog.session() as session:
            metadata = self._committer.states.load(session, self._head.table_id, first).metadata
            commits = read_rows(session, queries, self._head.table_id, first, last)
        for version, rows in commits.items():
            metadata = metadata_in(rows) or metadata
            if version not in there or is_import(rows, self._first):
                continue
            expected = delta_json(rows, metadata, older_schemas(self._committer.catalog, rows, metadata))
            try:
                found = self._store.read(commit_name(version))
            except FileNotFoundError:
                continue
            is_right = found == expected or found == earlier_delta_json(rows, metadata)
            finding = None if is_right else _finding(version, found, expected, commit_id_of(rows))
            if finding is not None and finding.mend is not None and repair:
                self._store.replace(commit_name(version), expected, committed_at_of(rows))
                finding = replace(finding, repaired=True)
            if finding is not None:
                yield finding


def _finding(version: int, found: bytes, expected: bytes, commit_id: str) -> Finding | None:
    """What is to be said of a file that has other bytes than the mirror would write."""
    info = commit_info(found) or {}
    if MARK not in info and (info.get("txnId") == commit_id or uuid.UUID(commit_id).version == 5):
        # It came in by an import, which leaves the file as its writer made it.
        return None
    name = commit_name(version)
    if judge(found, expected, commit_id) is Verdict.TORN:
        message = f"{name} is only the beginning of what was published"
        return Finding(invariant=7, message=message, versions=(version, version), mend=_WRITE_AGAIN)
    who = info.get("engineInfo") or "an unknown writer"
    message = f"{name} is not what was published; {who} has written it"
    message += ". If the catalog is right, move the file away, and check with repair: it is written again"
    return Finding(invariant=7, message=message, versions=(version, version))
