"""What every field of every action must keep to: its presence, its type, its range, its text.

The tables of fields are those that ``lakelog.actions`` reads and writes JSON by.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lakelog.actions import (
    BOOLEAN,
    COUNT,
    INT32_COUNT,
    INT64,
    NAME,
    NAMES,
    NULLABLE_MAP,
    OBJECT,
    PATH,
    STATS,
    TEXT,
    TEXT_MAP,
    VECTOR,
    Action,
    DeletionVector,
    Field,
    Kind,
)
from lakelog.errors import Violation
from lakelog.log.validation.paths import path_problem
from lakelog.log.validation.text import content_problem, label_problem, size_problem
from lakelog.strict_json import describe, encode_json, json_problem, shown, text_problem

MAX_INT32 = 2**31 - 1
MAX_INT64 = 2**63 - 1

_SURELY_SMALL = 1024


def field_violations(
    record: Action | DeletionVector,
    where: str,
    *,
    fields: Sequence[Field] | None = None,
    allow_absolute: bool = False,
) -> list[Violation]:
    """Every field that is absent, of another type, or out of bounds, and whatever ``extra`` cannot hold.

    ``fields`` replaces the record's own table. What several fields must keep to together is not judged here.
    """
    violations: list[Violation] = []
    fields = record.fields if fields is None else fields
    for attribute, _, kind, required in fields:
        value = getattr(record, attribute)
        if value is None:
            if required:
                violations.append(Violation(f"{where}.{attribute}", f"is missing; expected {kind.expected}"))
        elif not kind.accepts(value):
            violations.append(Violation(f"{where}.{attribute}", f"expected {kind.expected}, got {describe(value)}"))
        elif kind is PATH:
            if problem := path_problem(value, allow_absolute=allow_absolute):
                violations.append(Violation(f"{where}.{attribute}", f"{shown(value)} {problem}"))
        elif problems := _CONTENTS[kind](value):
            violations += [Violation(f"{where}.{attribute}", problem) for problem in problems]
    if record.extra or type(record.extra) is not dict:
        known = frozenset() if record.free_form else frozenset(field.name for field in fields)
        violations += [Violation(f"{where}.extra", problem) for problem in _extra_problems(record.extra, known)]
    return violations


def object_problems(value: Mapping[str, Any]) -> Sequence[str]:
    """Why a mapping cannot be stored as a JSON object; empty if it can."""
    if problem := json_problem(value):
        return [f"is not JSON: {problem}"]
    return _one(size_problem(encode_json(value)))


def _extra_problems(extra: Any, known: frozenset[str]) -> Sequence[str]:
    if not isinstance(extra, Mapping):
        return [f"expected an object, got {describe(extra)}"]
    return [
        *object_problems(extra),
        *(f"{name!r} is a known field; set it by its own name" for name in extra if name in known),
    ]


def _one(problem: str | None) -> Sequence[str]:
    return (problem,) if problem else ()


def _between(low: int, high: int) -> Callable[[int], Sequence[str]]:
    def problems(value: int) -> Sequence[str]:
        return () if low <= value <= high else (f"expected {low} to {high}, got {describe(value)}",)

    return problems


def _map_problems(value: Mapping[str, str | None]) -> Sequence[str]:
    if not value:
        return ()
    problems = []
    size = 0
    for key, text in value.items():
        size += len(key) + len(text or "")
        if problem := label_problem(key):
            problems.append(f"the key {shown(key)} {problem}")
        if text is not None and (problem := text_problem(text)):
            problems.append(f"the value of {shown(key)} contains {problem}")
    if size > _SURELY_SMALL and (problem := size_problem(encode_json(value))):
        problems.append(problem)
    return problems


def _list_problems(value: Sequence[str]) -> Sequence[str]:
    named = ((name, label_problem(name) if name else "is empty") for name in value)
    return [f"the name {shown(name)} {problem}" for name, problem in named if problem]


_CONTENTS: Mapping[Kind, Callable[[Any], Sequence[str]]] = {
    NAME: lambda value: _one(label_problem(value)),
    TEXT: lambda value: _one(content_problem(value)),
    COUNT: _between(0, MAX_INT64),
    INT32_COUNT: _between(0, MAX_INT32),
    INT64: _between(-MAX_INT64 - 1, MAX_INT64),
    NAMES: _list_problems,
    TEXT_MAP: _map_problems,
    NULLABLE_MAP: _map_problems,
    OBJECT: object_problems,
    # Nothing is left to say of a boolean. Statistics and deletion vectors have rules of their own, with the files.
    BOOLEAN: lambda _: (),
    STATS: lambda _: (),
    VECTOR: lambda _: (),
}
