"""Limits on text, and the names that a dataset may have."""

import unicodedata

from lakelog.errors import ValidationError, Violation
from lakelog.strict_json import describe, text_problem

MAX_NAME_CHARACTERS = 255
MAX_TEXT_BYTES = 16 * 1024 * 1024


def name_problem(name: str) -> str | None:
    """Why a dataset cannot have this name, or None if it can.

    Characters that mean something to SQL are fine, since values are always bound. Those that people cannot see, and
    those that make a path of a name, are not.
    """
    if not isinstance(name, str):
        return f"expected a string, got {type(name).__name__}"
    if not name:
        return "is empty"
    for character in name:
        category = unicodedata.category(character)
        if category == "Cs":
            return "contains a lone surrogate"
        if category in {"Cc", "Cf"}:
            return f"contains the invisible character U+{ord(character):04X}"
        if character in "/\\":
            return f"contains {character!r}"
    if name in {".", ".."}:
        return f"is {name!r}, which means a directory"
    if name != name.strip():
        return "begins or ends with white space"
    size = len(name.encode())
    return f"is {size} bytes long; at most {MAX_NAME_CHARACTERS} are allowed" if size > MAX_NAME_CHARACTERS else None


def content_problem(text: str) -> str | None:
    """Why a text inside an action cannot be stored, or None if it can."""
    problem = text_problem(text)
    return f"contains {problem}" if problem else size_problem(text)


def label_problem(text: str) -> str | None:
    """Why a text inside an action cannot serve as a name there, or None if it can."""
    if len(text) > MAX_NAME_CHARACTERS:
        return f"is {len(text)} characters long; at most {MAX_NAME_CHARACTERS} are allowed"
    problem = text_problem(text)
    return f"contains {problem}" if problem else None


def size_problem(text: str) -> str | None:
    """What is wrong with the size of a text, or None. Short texts are not encoded to find out."""
    if len(text) * 4 > MAX_TEXT_BYTES and len(text.encode(errors="surrogatepass")) > MAX_TEXT_BYTES:
        return f"is longer than {MAX_TEXT_BYTES} bytes"
    return None


def check_name(name: object) -> None:
    """Raises ``ValidationError`` for a name that no dataset can have."""
    problem = name_problem(name) if isinstance(name, str) else "expected a text"
    if problem:
        raise ValidationError("dataset name", [Violation(describe(name), problem)])
