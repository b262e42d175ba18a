"""A table's commit before it happens: what the caller wants, checked against the version that it builds on."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakelog.actions import (
    Action,
    AddFile,
    CdcFile,
    CommitInfo,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from lakelog.catalog.base import Row, Rows
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.few_files import FewFiles
from lakelog.log.commit.files import AddFiles, RemoveFiles, RowGroup
from lakelog.log.commit.many_files import ManyFiles
from lakelog.log.commit.removes import LiveFile, Removes
from lakelog.log.state import TableMetadata, TableState
from lakelog.log.validation.actions import check_actions
from lakelog.log.validation.features import upgrade_problems
from lakelog.log.validation.row_groups import validate_row_groups
from lakelog.schema import to_bytes
from lakelog.schema.evolution.changes import changes_between
from lakelog.schema.evolution.projection import is_native, project
from lakelog.schema.mapping import physical_name
from lakelog.storage.uris import is_absolute
from lakelog.strict_json import describe, encode_json, json_problem, text_problem

if TYPE_CHECKING:
    from lakelog.log.commit.outcomes import Committed

FEW = 200
"""Up to this many files, plain Python is faster than Arrow."""

IN_COMMIT_TIMESTAMPS = "delta.enableInCommitTimestamps"

_LARGEST = 2**63 - 1

Input = Action | AddFiles | RemoveFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """What ``dl_table_versions`` says about a commit."""

    operation: str = "WRITE"
    operation_parameters: Mapping[str, Any]
    committer: str | None = None
    extra: Mapping[str, Any]
    committed_at: int | None = None
    """When, for a commit that was made elsewhere before. Later than that if the commit before it was later."""

    def problems(self) -> list[Violation]:
        found = []
        for name in ("operation", "committer"):
            value = getattr(self, name)
            if value is None and name == "committer":
                continue
            if not isinstance(value, str) or not value or len(value) > 255:
                found.append(Violation(name, "expected a text of 1 to 255 characters"))
            elif problem := text_problem(value):
                found.append(Violation(name, problem))
        for name in ("operation_parameters", "extra"):
            value = getattr(self, name)
            if not isinstance(value, Mapping):
                found.append(Violation(name, "expected a mapping"))
            elif problem := json_problem(value):
                found.append(Violation(name, problem))
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Inherited:
    """What a commit takes over that was written before, for an older version of the table or for another table."""

    version: int | None = None
    """The version that added files come from, whose files must still be kept when the commit is made."""
    table_id: int | None = None
    """The table of that version, if it is another one in the same catalog."""
    restores: int | None = None
    """The schema version that the table goes back to."""
    reads_all: bool = False
    """Whether the schema that comes with it reads every file as it is, whatever schema that was recorded under."""
    schema_versions: Mapping[str, int] = field(default_factory=dict)
    """Of added files by their paths: under which they were written."""
    unsure: frozenset[str] = frozenset()
    """The paths of added files whose statistics were made for other types than the table has."""
    outside: bool = False
    """Whether added files may lie outside of the table's root, by absolute paths."""


class Draft:
    """One table's part of a commit.

    The constructor checks what needs no state and raises ``ValidationError`` with everything it found. ``settle``
    checks the rest against the state that the draft builds on; it needs no lock.
    """

    def __init__(
        self,
        table_id: int,
        expected: int,
        actions: Sequence[Input],
        description: Description,
        row_groups: Sequence[RowGroup] | pa.Table = (),
        *,
        imported: bool = False,
        inherited: Inherited | None = None,
        leases: Sequence[str] = (),
    ) -> None:
        if misused := _misused(table_id, expected, actions, leases):
            raise ValidationError("commit", misused)
        self.table_id = table_id
        self.expected = expected
        self.version = expected + 1
        self.imported = imported
        """Whether the commit was made elsewhere before: it is taken as it is, also by a table that is not shown yet."""
        self.inherited = inherited or Inherited()
        self.leases = tuple(leases)
        """Directories of writes in flight. The commit needs their registrations, and ends them, or does not happen."""
        self.anywhere = False
        """Whether it may stand on any later head, too, whose metadata and protocol are those it was checked against."""
        self.committed: Committed | None = None
        self.metadata: TableMetadata
        single: list[Any] = []
        many_adds: list[AddFiles] = []
        many_removes: list[RemoveFiles] = []
        for action in actions:
            if isinstance(action, AddFiles):
                many_adds.append(action)
            elif isinstance(action, RemoveFiles):
                many_removes.append(action)
            else:
                single.append(action)
        problems = description.problems()
        if not -1 <= expected < _LARGEST:
            problems.append(Violation("version", f"expected 0 to {_LARGEST}, got {expected + 1}"))
        if not isinstance(row_groups, pa.Table):
            problems += validate_row_groups(row_groups)
        outside = self.inherited.outside or _replaces_only(single)
        checked = check_actions(single, creating=self.version == 0, allow_absolute=outside)
        problems += checked.violations
        if len(many_adds) > 1 or len(many_removes) > 1:
            problems.append(Violation("actions", "at most one AddFiles and one RemoveFiles in a commit"))
        adds = [action for action in single if isinstance(action, AddFile)]
        removes = [action for action in single if isinstance(action, RemoveFile)]
        if many_adds and adds:
            problems.append(Violation("actions", "AddFiles and AddFile do not go together in one commit"))
        if many_removes and removes:
            problems.append(Violation("actions", "RemoveFiles and RemoveFile do not go together in one commit"))
        if problems:
            raise ValidationError("commit", problems)
        self.adds: FewFiles | ManyFiles
        if many_adds or len(adds) > FEW or isinstance(row_groups, pa.Table):
            files = many_adds[0] if many_adds else AddFiles.of(adds)
            self.adds = ManyFiles(files, _group_table(row_groups), allow_absolute=outside)
        else:
            stats = [
                parsed or {}
                for action, parsed in zip(single, checked.stats, strict=True)
                if isinstance(action, AddFile)
            ]
            self.adds = FewFiles(adds, stats, row_groups)
        self.removes = Removes(many_removes[0] if many_removes else removes)
        if many_adds or many_removes:
            self._refuse_replaced()
        self.new_metadata = next((action for action in single if isinstance(action, Metadata)), None)
        self.new_protocol = next((action for action in single if isinstance(action, Protocol)), None)
        self.txns = [action for action in single if isinstance(action, Txn)]
        self._domains = [action for action in single if isinstance(action, DomainMetadata)]
        self._cdc = [action for action in single if isinstance(action, CdcFile)]
        info = next((action for action in single if isinstance(action, CommitInfo)), None)
        self.description = description if info is None else _described(description, info)
        if self.version == 0 and self.new_protocol is None:
            self.new_protocol = Protocol(min_reader_version=1, min_writer_version=2)

    def _refuse_replaced(self) -> None:
        """As the check of actions does: no file is both added and removed but for another deletion vector."""
        removed = self.removes.vectors if self.adds.count and len(self.removes) else {}
        if not removed:
            return
        added = self.adds.paths if isinstance(self.adds.paths, list) else self.adds.paths.to_pylist()
        vectors = self.adds.vectors
        message = "is removed by the same commit, too; only a new deletion vector can replace another"
        found = [Violation(f"add {path}", message) for path in added if removed.get(path, "") == vectors.get(path)]
        if found:
            raise ValidationError("commit", found)

    @property
    def only_adds(self) -> bool:
        """Whether it says nothing of what was there before, but for the progress of applications."""
        others = (self.new_metadata, self.new_protocol, *self._domains, *self._cdc)
        return not len(self.removes) and all(each is None for each in others)

    @property
    def is_plain(self) -> bool:
        """Whether it is a few added files, and nothing else."""
        return (
            self.only_adds
            and isinstance(self.adds, FewFiles)
            and self.adds.count > 0
            and not self.txns
            and not self.imported
            and self.inherited == Inherited()
        )

    @property
    def change_paths(self) -> list[str]:
        """The files of the change feed."""
        return [each.path for each in self._cdc]

    def move_to(self, head: int) -> None:
        """Puts a draft that may stand anywhere on top of another head."""
        self.expected = head
        self.version = head + 1

    def settle(self, state: TableState | None) -> list[Violation]:
        """Takes the state that the draft builds on (None before version 0) and says what contradicts it."""
        found: list[Violation] = []
        if self.new_metadata is None:
            assert state is not None, "version 0 has metadata"
            self.metadata = state.metadata
        else:
            self.metadata = self._next_metadata(self.new_metadata, state)
        if self.new_protocol is not None and state is not None and not self.imported:
            found += [Violation("protocol", text) for text in upgrade_problems(state.protocol, self.new_protocol)]
        if self.new_metadata is not None and state is not None and not self.imported:
            found += _in_commit_timestamp_problems(state.metadata.action, self.new_metadata)
        self.protocol = self.new_protocol or (state.protocol if state else None)
        self._protocol_version = self.version if self.new_protocol or state is None else state.protocol_version
        if state is not None and state.metadata.action.is_on("delta.appendOnly") and not self.imported:
            found += self.removes.append_only_problems()
        return found + self.adds.problems(self.metadata)

    def _next_metadata(self, action: Metadata, state: TableState | None) -> TableMetadata:
        if state is None:
            return TableMetadata(self.version, action, 0)
        schema_version = state.metadata.schema_version
        if self.inherited.restores is not None:
            unchanged = self.inherited.restores == schema_version
        else:
            unchanged = TableMetadata(self.version, action, schema_version).schema.equals(
                state.metadata.schema, check_metadata=True
            )
        return TableMetadata(self.version, action, schema_version + (not unchanged))

    @property
    def state(self) -> TableState:
        """What the table is once the draft is committed."""
        assert self.protocol is not None
        return TableState(self.table_id, self.version, self.metadata, self._protocol_version, self.protocol)

    def rows(self, state: TableState | None, live: Mapping[str, LiveFile]) -> Iterator[tuple[str, Rows]]:
        """The rows of every catalog table but ``dl_table_versions`` and ``dl_remove_files``.

        ``live`` are the rows that the touched paths have now: a file that is added again, with another deletion vector,
        say, is still what it was written as.
        """
        table_id, version = self.table_id, self.version
        if self.new_metadata is not None:
            yield "dl_metadata_updates", [_metadata_row(table_id, version, self.metadata)]
            if state is None or state.metadata.schema_version != self.metadata.schema_version:
                schema, changes = self.metadata.schema, None
                if state is not None:
                    found = changes_between(state.metadata.schema, schema)
                    said: dict[str, Any] = {"changes": [change.to_dict() for change in found]}
                    if self.inherited.restores is not None:
                        said["restores"] = self.inherited.restores
                    elif self.inherited.reads_all or (self.imported and _is_return(state.metadata, self.metadata)):
                        said["reads_all"] = True
                    changes = encode_json(said)
                yield "schema_versions", [(table_id, self.metadata.schema_version, to_bytes(schema), version, changes)]
        if self.new_protocol is not None:
            yield "dl_protocol_updates", [_protocol_row(table_id, version, self.new_protocol)]
        if self.txns:
            yield (
                "dl_txn_actions",
                [(table_id, txn.app_id, version, txn.version, txn.last_updated, _text(txn.extra)) for txn in self.txns],
            )
        if self._domains:
            yield (
                "dl_domain_metadata",
                [
                    (table_id, each.domain, version, each.configuration, each.removed, _text(each.extra))
                    for each in self._domains
                ],
            )
        if self._cdc:
            yield (
                "dl_cdc_files",
                [
                    (
                        table_id,
                        version,
                        ordinal,
                        each.path,
                        each.size,
                        encode_json(each.partition_values),
                        None if each.tags is None else encode_json(each.tags),
                        _text(each.extra),
                    )
                    for ordinal, each in enumerate(self._cdc)
                ],
            )
        current = self.metadata.schema_version
        known = {path: file.schema_version for path, file in live.items()} | dict(self.inherited.schema_versions)
        older = {path: written for path, written in known.items() if written != current}
        # What statistics mean depends on the types that they were made for.
        unsure = (older.keys() - self.inherited.schema_versions.keys()) | self.inherited.unsure
        yield from self.adds.rows(table_id, version, self.metadata, older, unsure)


def _is_return(before: TableMetadata, after: TableMetadata) -> bool:
    """Whether no reader gets from one schema to the next, as after a RESTORE. Delta reads all files by the newest."""
    return not is_native(project(list(before.schema), list(after.schema), physical_name))


def _in_commit_timestamp_problems(before: Metadata, after: Metadata) -> list[Violation]:
    """Readers have to be told when a table began to have them, by the time of a commit that nobody knows before it."""
    if after.is_on(IN_COMMIT_TIMESTAMPS) and not before.is_on(IN_COMMIT_TIMESTAMPS):
        message = "can be switched on only when a table is created"
        return [Violation(f"configuration.{IN_COMMIT_TIMESTAMPS}", message)]
    return []


def integer_problems(name: str, value: Any) -> list[Violation]:
    if isinstance(value, int) and not isinstance(value, bool) and -_LARGEST - 1 <= value <= _LARGEST:
        return []
    return [Violation(name, f"expected an integer of 64 bits, got {describe(value)}")]


def _misused(table_id: Any, expected: Any, actions: Any, leases: Any) -> list[Violation]:
    """Arguments of another type, about which nothing else can be said."""
    found = [*integer_problems("table id", table_id), *integer_problems("version", expected)]
    if not isinstance(actions, Sequence) or isinstance(actions, str | bytes):
        found.append(Violation("actions", f"expected a list of actions, got {describe(actions)}"))
    if not isinstance(leases, Sequence) or isinstance(leases, str | bytes):
        found.append(Violation("leases", f"expected a list of directories, got {describe(leases)}"))
    else:
        bad = [each for each in leases if not isinstance(each, str) or text_problem(each)]
        found += [Violation("leases", f"expected the name of a directory, got {describe(each)}") for each in bad]
    return found


def _replaces_only(actions: Sequence[Any]) -> bool:
    """Whether files outside of the table's root are there already: each that is added is removed, too."""
    removed = {action.path for action in actions if isinstance(action, RemoveFile) and isinstance(action.path, str)}
    added = [action.path for action in actions if isinstance(action, AddFile) and isinstance(action.path, str)]
    return bool(removed) and all(path in removed for path in added if is_absolute(path))


def _group_table(row_groups: Sequence[RowGroup] | pa.Table) -> Any | None:
    if isinstance(row_groups, pa.Table):
        return row_groups
    if not row_groups:
        return None
    names = ("path", "row_group", "row_count", "byte_size", "stats")
    return pa.table({name: [getattr(group, name) for group in row_groups] for name in names})


def _described(description: Description, info: CommitInfo) -> Description:
    """A CommitInfo among the actions says what the arguments leave open."""
    said = info.to_dict()
    operation = said.pop("operation", None)
    parameters = said.pop("operationParameters", None)
    for settled_by_the_log in ("timestamp", "txnId", "inCommitTimestamp"):
        said.pop(settled_by_the_log, None)
    return replace(
        description,
        operation=operation or description.operation,
        operation_parameters={**(parameters or {}), **description.operation_parameters},
        extra={**said, **description.extra},
    )


def _metadata_row(table_id: int, version: int, metadata: TableMetadata) -> Row:
    action = metadata.action
    return (
        table_id,
        version,
        action.id,
        action.name,
        action.description,
        encode_json({"provider": action.format_provider, "options": action.format_options}),
        action.schema_string,
        encode_json(list(action.partition_columns)),
        encode_json(action.configuration),
        action.created_time,
        metadata.schema_version,
        _text(action.extra),
    )


def _protocol_row(table_id: int, version: int, protocol: Protocol) -> Row:
    return (
        table_id,
        version,
        protocol.min_reader_version,
        protocol.min_writer_version,
        None if protocol.reader_features is None else encode_json(list(protocol.reader_features)),
        None if protocol.writer_features is None else encode_json(list(protocol.writer_features)),
        _text(protocol.extra),
    )


def _text(extra: Mapping[str, Any]) -> str | None:
    return encode_json(extra) if extra else None
