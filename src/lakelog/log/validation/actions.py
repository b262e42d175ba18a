"""What is wrong with a commit's actions, as far as it can be told without looking at the table.

Everything is found at once and before anything is locked. ``files``, ``table`` and ``stats``
judge one action each; here they are judged together.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from lakelog.actions import (
    Action,
    AddFile,
    CdcFile,
    CommitInfo,
    DeletionVector,
    DomainMetadata,
    Metadata,
    Protocol,
    RemoveFile,
    Txn,
)
from lakelog.errors import Violation
from lakelog.log.validation.files import checked_add, validate_add, validate_cdc, validate_remove
from lakelog.log.validation.stats import checked_stats
from lakelog.log.validation.table import (
    validate_commit_info,
    validate_domain,
    validate_metadata,
    validate_protocol,
    validate_txn,
)
from lakelog.log.validation.text import name_problem
from lakelog.strict_json import describe, shown

__all__ = [
    "CheckedActions",
    "check_actions",
    "checked_add",
    "checked_stats",
    "name_problem",
    "validate_actions",
    "validate_add",
    "validate_cdc",
    "validate_commit_info",
    "validate_domain",
    "validate_metadata",
    "validate_protocol",
    "validate_remove",
    "validate_txn",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedActions:
    """What was found: the violations, and each added file's statistics so that nobody has to parse them again.

    ``stats`` has one entry for each action, None where the action is not an add or has no statistics.
    """

    violations: list[Violation]
    stats: list[dict[str, Any] | None]


def validate_actions(actions: Sequence[Action], *, creating: bool, allow_absolute: bool = False) -> list[Violation]:
    """Everything that is wrong with a commit's actions; empty if nothing is.

    ``creating`` says that this is version 0, which needs metadata. A missing protocol is for the caller to supply.
    ``allow_absolute`` lets files lie outside the table's root.
    """
    return check_actions(actions, creating=creating, allow_absolute=allow_absolute).violations


def check_actions(actions: Sequence[Action], *, creating: bool, allow_absolute: bool = False) -> CheckedActions:
    """As ``validate_actions``, with the parsed statistics of the added files."""
    if not _is_list(actions):
        return CheckedActions(
            violations=[Violation("actions", f"expected a list of actions, got {describe(actions)}")], stats=[]
        )
    violations: list[Violation] = []
    stats: list[dict[str, Any] | None] = []
    first: dict[tuple[str, str], int] = {}
    for index, action in enumerate(actions):
        if not isinstance(action, Action):
            message = f"expected an action, got {describe(action)}; lakelog.actions.from_json makes one of JSON"
            violations.append(Violation(f"actions[{index}]", message))
            stats.append(None)
            continue
        where = f"actions[{index}].{action.action}"
        parsed, found = _check(action, where, allow_absolute)
        stats.append(parsed)
        violations += found
        subject = _subject(action)
        if subject is not None and first.setdefault((action.action, subject), index) != index:
            earlier = first[action.action, subject]
            violations.append(Violation(where, f"a second {_described(action)}; the first is actions[{earlier}]"))
    violations += _replaced_files(actions, first)
    if creating and ("metaData", "") not in first:
        violations.append(Violation("actions", "version 0 needs a metadata action"))
    return CheckedActions(violations=violations, stats=stats)


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _check(action: Action, where: str, allow_absolute: bool) -> tuple[dict[str, Any] | None, list[Violation]]:
    match action:
        case AddFile():
            return checked_add(action, where, allow_absolute=allow_absolute)
        case RemoveFile():
            return None, validate_remove(action, where, allow_absolute=allow_absolute)
        case CdcFile():
            return None, validate_cdc(action, where, allow_absolute=allow_absolute)
        case Metadata():
            return None, validate_metadata(action, where)
        case Protocol():
            return None, validate_protocol(action, where)
        case Txn():
            return None, validate_txn(action, where)
        case DomainMetadata():
            return None, validate_domain(action, where)
        case CommitInfo():
            return None, validate_commit_info(action, where)


def _subject(action: Action) -> str | None:
    """What a commit can have only one action of this type about, or None where it can have many."""
    match action:
        case AddFile(path=str(path)) | RemoveFile(path=str(path)):
            # One file can be spelled in several ways, since any character may be escaped.
            return unquote(path) if "%" in path else path
        case Txn(app_id=str(name)) | DomainMetadata(domain=str(name)):
            return name
        case Metadata() | Protocol() | CommitInfo():
            return ""
    return None


def _described(action: Action) -> str:
    match action:
        case AddFile() | RemoveFile():
            return f"{action.action} of {shown(action.path)}"
        case Txn():
            return f"txn of the application {shown(action.app_id)}"
        case DomainMetadata():
            return f"action on the domain {shown(action.domain)}"
    return f"{action.action} action"


def _replaced_files(actions: Sequence[Action], first: Mapping[tuple[str, str], int]) -> list[Violation]:
    """The files that are both added and removed without a change of their deletion vector."""
    violations = []
    for (kind, path), index in first.items():
        removed = first.get(("remove", path)) if kind == "add" else None
        if removed is not None and _vector_id(actions[index]) == _vector_id(actions[removed]):
            message = f"the file is removed by actions[{removed}], too; only a new deletion vector can replace another"
            violations.append(Violation(f"actions[{index}].add", message))
    return violations


def _vector_id(action: Action) -> str | None:
    if isinstance(action, AddFile | RemoveFile) and isinstance(action.deletion_vector, DeletionVector):
        return action.deletion_vector.unique_id
    return None
