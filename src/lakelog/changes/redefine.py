"""What a table is, changed as a whole: its protocol raised, or another table put in its place."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lakelog.actions import Metadata, Protocol
from lakelog.changes.clustering import cluster_as
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.files import REMOVED, RemoveFiles
from lakelog.log.commit.outcomes import CommitResult, Conflict
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.log.validation.features import (
    FEATURE_READER_VERSION,
    FEATURE_WRITER_VERSION,
    FEATURES,
    raised_protocol,
    supported_features,
)


def change_protocol(committer: Committer, table_id: int, change: Callable[[Protocol], Protocol]) -> CommitResult | None:
    """Commits another protocol; None if it is the same. Raises ``ValidationError`` if it would be lower."""
    with committer.catalog.session() as session:
        state = committer.states.of_head(session, committer.head(session, table_id))
    protocol = change(state.protocol)
    if protocol == state.protocol:
        return None
    parameters = {"newProtocol": json.dumps(protocol.to_dict())}
    description = Description(operation="UPGRADE PROTOCOL", operation_parameters=parameters, extra={})
    outcome = committer.commit([Draft(table_id, state.version, [protocol], description)])
    if isinstance(outcome, Conflict):
        raise outcome.error()
    return outcome[0]


def upgraded(protocol: Protocol, reader: int, writer: int) -> Protocol:
    """A protocol of these versions, with all features that it had. What is higher already stays, as in Delta."""
    reader, writer = _raised(protocol.min_reader_version, reader), _raised(protocol.min_writer_version, writer)
    if (reader, writer) == (protocol.min_reader_version, protocol.min_writer_version):
        return protocol
    if writer < FEATURE_WRITER_VERSION:
        return Protocol(min_reader_version=reader, min_writer_version=writer)
    names = [name for name in FEATURES if name in supported_features(protocol)]
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=tuple(name for name in names if FEATURES[name].reader)
        if reader >= FEATURE_READER_VERSION
        else None,
        writer_features=tuple(names),
    )


def _raised(current: int, asked: int) -> int:
    # What is no version is refused with the protocol.
    return current if type(asked) is int and 0 < asked <= current else asked


def with_feature(protocol: Protocol, name: str) -> Protocol:
    """A protocol with one feature more. Raises ``ValidationError`` for one that nobody knows, or nobody would obey."""
    if name not in FEATURES:
        known = ", ".join(sorted(FEATURES))
        raise ValidationError("protocol", [Violation(repr(name), f"is not a feature; known are {known}")])
    return raised_protocol(protocol, frozenset({name}))


def replace_table(
    snapshot: Snapshot, committer: Committer, protocol: Protocol, metadata: Metadata, description: Description
) -> CommitResult:
    """Commits another table in the place of one: its rows go, and its columns, partitioning and properties."""
    state = snapshot.state
    raised = raised_protocol(state.protocol, supported_features(protocol))
    actions: list[Any] = [replace(metadata, id=state.metadata.action.id)]
    if raised != state.protocol:
        actions.append(raised)
    actions += cluster_as(snapshot, None)
    files = snapshot.files(columns=REMOVED)
    if files.num_rows:
        actions.append(RemoveFiles(files))
    outcome = committer.commit([Draft(state.table_id, state.version, actions, description)])
    if isinstance(outcome, Conflict):
        raise outcome.error()
    return outcome[0]
