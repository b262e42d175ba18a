"""How Delta's users name a table: by its name, by a path, or by ``delta.`/path` ``."""

import re

from lakelog.lake import Lake
from lakelog.locations import absolute

_IDENTIFIER = re.compile(r"(parquet|delta|lakelog)\.`([^`]+)`", re.IGNORECASE)


def format_and_path(identifier: str) -> tuple[str, str] | None:
    """Of ``format.`/path` `` the format and the path; None of anything else."""
    found = _IDENTIFIER.fullmatch(identifier.strip())
    return None if found is None else (found[1].lower(), found[2].rstrip("/"))


def path_in(identifier: str) -> str | None:
    """The path that an identifier of a table is, or holds; None if it is a name, in which there is no slash."""
    found = format_and_path(identifier)
    if found is not None:
        return None if found[0] == "parquet" else found[1]
    return identifier.rstrip("/") if "/" in identifier else None


def name_for(lake: Lake, path: str) -> str:
    """A name for a table that somebody knows by its path only: the last part of it, or as many as nobody has yet."""
    parts = [part for part in absolute(path).rpartition("://")[2].split("/") if part]
    taken = lake.versions()
    names = ("_".join(parts[start:]) for start in range(len(parts) - 1, -1, -1))
    return next((name for name in names if name not in taken), "_".join(parts))
