"""The names of a log's files."""

import re

LAST_CHECKPOINT = "_last_checkpoint"

_NUMBERS = re.compile(r"(?:[0-9]{20}\.)+")
_VERSIONED = re.compile(r"([0-9]{20})\.(?:json|checkpoint\..+)")


def commit_name(version: int) -> str:
    return f"{version:020}.json"


def checkpoint_name(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"


def newest_version_in(name: str) -> int | None:
    """The newest version that any file of a log is about; None if it is about none."""
    versions = _NUMBERS.match(name)
    return max(int(number) for number in versions[0].split(".") if number) if versions else None


def version_of(name: str) -> int | None:
    """The version of a commit or a checkpoint; None for any other file."""
    found = _VERSIONED.fullmatch(name)
    return int(found[1]) if found else None
