"""The names of a log's files."""

import re

LAST_CHECKPOINT = "_last_checkpoint"

LARGEST_VERSION = 2**63 - 2
"""A name can claim a larger one, and is then no name of a log's file."""

_NUMBERS = re.compile(r"(?:[0-9]{20}\.)+")
_VERSIONED = re.compile(r"([0-9]{20})\.(?:json|checkpoint\..+)")


def commit_name(version: int) -> str:
    return f"{version:020}.json"


def checkpoint_name(version: int) -> str:
    return f"{version:020}.checkpoint.parquet"


def newest_version_in(name: str) -> int | None:
    """The newest version that any file of a log is about; None if it is about none."""
    match = _NUMBERS.match(name)
    versions = [int(number) for number in match[0].split(".") if number] if match else []
    return max((version for version in versions if version <= LARGEST_VERSION), default=None)


def version_of(name: str) -> int | None:
    """The version of a commit or a checkpoint; None for any other file."""
    found = _VERSIONED.fullmatch(name)
    return int(found[1]) if found and int(found[1]) <= LARGEST_VERSION else None
