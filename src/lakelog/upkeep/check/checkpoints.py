"""Whether the checkpoints of a table's ``_delta_log`` can be read, and say what the catalog says of their versions."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from lakelog.actions import DomainMetadata, Metadata, Protocol, Txn
from lakelog.delta_log.hint import last_checkpoint
from lakelog.delta_log.listing import Checkpoint, checkpoints_in
from lakelog.delta_log.names import LAST_CHECKPOINT, checkpoint_name, version_of
from lakelog.errors import DeltaLogError, ValidationError
from lakelog.importing.replay import identities
from lakelog.log.commit.committer import Committer
from lakelog.log.state import Head
from lakelog.mirror.checkpoints import Checkpoints
from lakelog.storage.log_store import LogFile, LogStore
from lakelog.upkeep.check.findings import Finding

_WRITE_AGAIN = "write the checkpoint again"


class CheckpointCheck:
    """The checkpoints of a table's mirror, of versions up to the published one."""

    def __init__(self, committer: Committer, store: LogStore, head: Head, first: int, published: int) -> None:
        self._checkpoints = Checkpoints(committer)
        self._store = store
        self._table_id = head.table_id
        self._first = first
        self._published = published

    def findings(self, *, repair: bool, deep: bool) -> Iterator[Finding]:
        """Of the newest checkpoint, which readers begin with; of all if ``deep``."""
        # Before the files: what it names was there before it, and another one may be made meanwhile.
        hinted = last_checkpoint(self._store)
        files = [file for file in self._store.files() if (version_of(file.name) or 0) <= self._published]
        known = list(chain(*checkpoints_in(files)))
        for checkpoint in known if deep else known[-1:]:
            problem = self._problem(checkpoint)
            if problem is not None:
                yield self._finding(checkpoint.version, checkpoint.files, problem, repair=repair)
        for file in files:
            version = version_of(file.name)
            if version is not None and file.name == checkpoint_name(version) and not file.size:
                yield self._finding(version, (file,), "is empty", repair=repair)
        hint = self._hint_problem(hinted, {checkpoint.version for checkpoint in known})
        if hint is not None:
            if repair:
                self._write(max((each.version for each in known), default=self._published))
            yield Finding(invariant=7, message=f"{LAST_CHECKPOINT} {hint}", mend="write it again", repaired=repair)

    def _finding(self, version: int, files: Sequence[LogFile], problem: str, *, repair: bool) -> Finding:
        found = Finding(invariant=7, message=f"{files[0].name} {problem}", versions=(version, version))
        # What the catalog has forgotten, or others have written in parts, is not ours to write.
        if version < self._first or files[0].name != checkpoint_name(version):
            return found
        if repair:
            self._write(version)
        return replace(found, mend=_WRITE_AGAIN, repaired=repair)

    def _write(self, version: int) -> None:
        from lakelog.mirror.checkpoint import checkpoint_parquet, last_checkpoint_json

        content = self._checkpoints.content(self._table_id, version)
        data = checkpoint_parquet(content)
        self._store.replace(checkpoint_name(version), data)
        if (last_checkpoint(self._store) or -1) <= version:
            self._store.replace(LAST_CHECKPOINT, last_checkpoint_json(content, len(data)))

    def _problem(self, checkpoint: Checkpoint) -> str | None:
        from lakelog.delta_log.log import read_checkpoint

        try:
            found = read_checkpoint(self._store, checkpoint)
        except (DeltaLogError, ValidationError, OSError, pa.ArrowException) as error:
            return f"cannot be read: {error}"
        if checkpoint.version < self._first:
            return None
        expected = self._checkpoints.content(self._table_id, checkpoint.version)
        differing = [
            name
            for name, is_same in (
                ("files", identities(found.adds) == identities(expected.files)),
                ("metadata", _said(found.metadata) == _said(expected.metadata.action)),
                ("protocol", _asked(found.protocol) == _asked(expected.protocol)),
                ("progress of applications", _progress(found.txns) == _progress(expected.txns)),
                ("domains", _domains(found.domains) == _domains(expected.domains)),
            )
            if not is_same
        ]
        return f"has other {', '.join(differing)} than its version" if differing else None

    def _hint_problem(self, version: int | None, known: set[int]) -> str | None:
        if version is None:
            is_there = self._store.exists(LAST_CHECKPOINT) and last_checkpoint(self._store) is None
            return "names no version" if is_there else None
        if version in known or version > self._published:
            return None
        return f"names the checkpoint of version {version}, which is not there"


def _said(metadata: Metadata) -> tuple[object, ...]:
    return (metadata.id, metadata.schema_string, metadata.partition_columns, dict(metadata.configuration))


def _asked(protocol: Protocol) -> tuple[object, ...]:
    features = (protocol.reader_features, protocol.writer_features)
    return (protocol.min_reader_version, protocol.min_writer_version, *(frozenset(each or ()) for each in features))


def _progress(txns: Sequence[Txn]) -> dict[str, int]:
    return {txn.app_id: txn.version for txn in txns}


def _domains(domains: Sequence[DomainMetadata]) -> dict[str, str]:
    return {domain.domain: domain.configuration for domain in domains}
