"""What to make of a file that stands in ``_delta_log`` where a commit of ours belongs."""

import json
from enum import Enum
from typing import Any

from lakelog.mirror.lines import MARK


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
    line = content.partition(b"\n")[0]
    try:
        info = json.loads(line).get("commitInfo")
    except (ValueError, AttributeError):
        return None
    return info if isinstance(info, dict) else None


def _is_as_long(found: bytes, expected: bytes) -> bool:
    lines = found.splitlines()
    try:
        return len(lines) == len(expected.splitlines()) and isinstance(json.loads(lines[-1]), dict)
    except ValueError:
        return False


def described(content: bytes) -> str:
    """Who made a file, as far as it says so."""
    info = commit_info(content) or {}
    who = info.get("engineInfo") or info.get("clientVersion") or "an unknown writer"
    return f"{who} ({info.get('operation') or 'no operation given'})"
