"""The JSON commits of a Delta log, as Lakelog's actions.

What is broken is refused. Where writers are known to be careless and what they mean is clear, they are understood.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

import pyarrow as pa

from lakelog.actions import COUNT, INT32_COUNT, INT64, Action, from_json
from lakelog.delta_log.paths import TableRoot
from lakelog.delta_log.statistics import sound_stats
from lakelog.errors import DeltaLogError, ValidationError
from lakelog.log.validation.features import FEATURE_READER_VERSION, FEATURE_WRITER_VERSION
from lakelog.storage.log_store import LogStore
from lakelog.strict_json import describe, parse_json, text_problem

RESTORE = "Restore the file from a backup, or choose a version that does not need it."
SIDECAR = "sidecar"

_CLASSES: Mapping[str, type[Action]] = {cls.action: cls for cls in get_args(Action)}
_KNOWN = frozenset({*_CLASSES, SIDECAR})
_FILES = frozenset({"add", "remove", "cdc"})
_INTEGERS = frozenset({COUNT, INT32_COUNT, INT64})


class Line(NamedTuple):
    """An action of a JSON file, as it stands there."""

    number: int
    name: str
    body: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class LogCommit:
    """A commit's actions in their order, and how many added files had statistics that contradict themselves."""

    version: int
    actions: tuple[Action, ...]
    dropped_stats: int


def read_commit(store: LogStore, version: int) -> LogCommit:
    """A commit. Raises ``DeltaLogError`` if it is missing or broken."""
    name = f"{version:020}.json"
    found, dropped = actions_of(store, name, read_lines(store, name))
    return LogCommit(version=version, actions=tuple(found), dropped_stats=dropped)


def read_lines(store: LogStore, name: str) -> list[Line]:
    """The actions and sidecars of a JSON file of the log; what newer writers may have added is passed over."""
    file = f"{store.place}/{name}"
    lines = []
    empty = True
    for number, text in enumerate(_text(store, name).split("\n"), 1):
        if not text.strip():
            continue
        empty = False
        try:
            members = parse_json(text)
        except ValueError as error:
            raise DeltaLogError(f"expected one action as JSON, found: {error}. {RESTORE}", file, number) from None
        if not isinstance(members, dict):
            raise DeltaLogError(f"expected a JSON object, found {describe(members)}. {RESTORE}", file, number)
        found = [Line(number, key, body) for key, body in members.items() if key in _KNOWN and body is not None]
        if len(found) > 1:
            names = " and ".join(each.name for each in found)
            raise DeltaLogError(f"expected one action, found {names}. {RESTORE}", file, number)
        lines += found
    if empty:
        raise DeltaLogError(f"expected at least one action, found an empty file. {RESTORE}", file)
    return lines


def actions_of(store: LogStore, name: str, lines: Sequence[Line]) -> tuple[list[Action], int]:
    """The actions of lines of a file, and how many statistics of added files were dropped."""
    lines = [line._replace(body=understood(line.name, line.body)) for line in lines if line.name in _CLASSES]
    root = TableRoot.of(store)
    for line in lines:
        if line.name in _FILES and isinstance(line.body, dict) and isinstance(line.body.get("path"), str):
            line.body["path"] = root.relative(line.body["path"])
    dropped = _drop_unsound_stats(lines, "add")
    _drop_unsound_stats(lines, "remove")
    found = []
    for number, key, body in lines:
        try:
            found.append(from_json({key: body}))
        except ValidationError as error:
            raise broken(error, f"{store.place}/{name}", number) from None
    return found, dropped


def understood(name: str, body: Any) -> Any:
    """The body of an action, with what careless writers left out or wrote in another way."""
    if not isinstance(body, dict):
        return body
    body = dict(body)
    for field in _CLASSES[name].fields:
        value = body.get(field.name)
        if field.kind in _INTEGERS and isinstance(value, float) and value.is_integer():
            body[field.name] = int(value)
    if name in _FILES:
        _understand_file(name, body)
    if name == "metaData":
        body["configuration"] = _without_nulls(body.get("configuration"))
        if isinstance(body.get("format"), dict):
            body["format"] = {**body["format"], "options": _without_nulls(body["format"].get("options"))}
    if name == "protocol":
        for lists, version, first in (
            ("readerFeatures", "minReaderVersion", FEATURE_READER_VERSION),
            ("writerFeatures", "minWriterVersion", FEATURE_WRITER_VERSION),
        ):
            if body.get(lists) == [] and isinstance(body.get(version), int) and body[version] < first:
                del body[lists]
    return body


def _understand_file(name: str, body: dict[str, Any]) -> None:
    """Puts right what an action on a file leaves open."""
    if name != "remove" and body.get("partitionValues") is None:
        body["partitionValues"] = {}
    if isinstance(values := body.get("partitionValues"), dict):
        # To Delta, an empty text is null in every type.
        body["partitionValues"] = {key: None if value == "" else value for key, value in values.items()}
    if body.get("stats") == "":
        del body["stats"]


def broken(error: ValidationError, file: str, line: int | None = None) -> DeltaLogError:
    """What is wrong with an action, where it stands."""
    found = "; ".join(map(str, error.violations))
    return DeltaLogError(f"expected a sound {error.subject}, found: {found}. {RESTORE}", file, line)


def missing(file: str) -> DeltaLogError:
    return DeltaLogError(f"expected this file, found none. {RESTORE}", file)


def _text(store: LogStore, name: str) -> str:
    file = f"{store.place}/{name}"
    try:
        data = store.read(name)
    except FileNotFoundError:
        raise missing(file) from None
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DeltaLogError(f"expected UTF-8, found the byte {data[error.start]:#04x}. {RESTORE}", file, line) from None


def _drop_unsound_stats(lines: Sequence[Line], name: str) -> int:
    """Takes away the statistics that cannot be trusted; says how many."""
    bodies = [line.body for line in lines if line.name == name and isinstance(line.body, dict)]
    bodies = [body for body in bodies if body.get("stats") is not None]
    texts = [text if isinstance(text := body["stats"], str) and not text_problem(text) else "" for body in bodies]
    vectors = [body.get("deletionVector") is not None for body in bodies]
    sound, dropped = sound_stats(pa.array(texts, pa.string()), pa.array(vectors, pa.bool_()))
    if dropped:
        for body, text in zip(bodies, sound.to_pylist(), strict=True):
            body["stats"] = text
    return dropped


def _without_nulls(members: Any) -> Any:
    if members is None:
        return {}
    return {key: value for key, value in members.items() if value is not None} if isinstance(members, dict) else members
