"""What to make of a file that stands in ``_delta_log`` where a commit of ours belongs."""

from enum import Enum
from typing import Any

from lakelog.mirror.commit_json import MARK
from lakelog.strict_json import loads_strict, printable

_SHOWN = 200
"""Characters of what a file says of itself, in messages that the catalog keeps."""


class Verdict(Enum):
    OURS = "this commit's own file"
    TORN = "the beginning of this commit's file"
    LOST = "a commit of Lakelog that this catalog does not have"
    FOREIGN = "somebody else's commit"


def judge(found: bytes, expected: bytes | None, commit_id: str | None) -> Verdict:
    """Judges a file's content against what the catalog would write there, None if it has no such commit."""
    if expected is not None:
        if found == expected:
            return Verdict.OURS
        if expected.startswith(found):
            return Verdict.TORN
    info = commit_info(found)
    if info is None:
        return Verdict.FOREIGN
    # Another version of Lakelog may have put the same into other words, with as many lines.
    if expected is not None and info.get("txnId") == commit_id:
        return Verdict.OURS if _is_as_long(found, expected) else Verdict.TORN
    return Verdict.LOST if MARK in info else Verdict.FOREIGN


def commit_info(content: bytes) -> dict[str, Any] | None:
    """What the first line says of the commit, if it says so."""
    found = _object(content.partition(b"\n")[0])
    info = None if found is None else found.get("commitInfo")
    return info if isinstance(info, dict) else None


def _is_as_long(found: bytes, expected: bytes) -> bool:
    lines = found.splitlines()
    return len(lines) == len(expected.splitlines()) and _object(lines[-1]) is not None


def _object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line is, None if it is none that a writer of commits makes."""
    try:
        found = loads_strict(line.decode())
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def described(content: bytes) -> str:
    """Who made a file, as far as it says so."""
    info = commit_info(content) or {}
    said = (info.get("engineInfo"), info.get("clientVersion"))
    who = next((each for each in said if isinstance(each, str) and each), "an unknown writer")
    operation = info.get("operation")
    done = operation if isinstance(operation, str) and operation else "no operation given"
    return f"{printable(who[:_SHOWN])} ({printable(done[:_SHOWN])})"
