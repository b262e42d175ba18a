"""The names of a log's files."""

import re

_VERSIONED = re.compile(r"([0-9]{20})\.(?:json|checkpoint\..+)")


def commit_name(version: int) -> str:
    return f"{version:020}.json"


def checkpoint_name(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"


def version_of(name: str) -> int | None:
    """The version of a commit or a checkpoint; None for any other file."""
    found = _VERSIONED.fullmatch(name)
    return int(found[1]) if found else None
