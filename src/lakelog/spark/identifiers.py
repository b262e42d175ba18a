"""How Delta's users name a table: by its name, by a path, or by ``delta.`/path` ``."""

import re

from lakelog.catalog.name_key import match_name, name_key
from lakelog.opening.engine import Engine
from lakelog.storage.locations import absolute

_PART = re.compile(r"`((?:[^`]|``)+)`|([^`.]+)")
_DEFAULT = (("default",), ("spark_catalog", "default"))
"""What Spark's users may write before a table's name, if they have chosen no other database."""

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


def name_for(lake: Engine, path: str) -> str:
    """A name for a table that somebody knows by its path only: the last part of it, or as many as nobody has yet."""
    parts = [part for part in absolute(path).rpartition("://")[2].split("/") if part]
    taken = set(map(name_key, lake.versions()))
    names = ("_".join(parts[start:]) for start in range(len(parts) - 1, -1, -1))
    return next((name for name in names if name_key(name) not in taken), "_".join(parts))


def parts_of(identifier: str) -> list[str]:
    """What stands between the dots of an identifier, without back-quotes."""
    return [quoted.replace("``", "`") or plain for quoted, plain in _PART.findall(identifier)]


class Called(str):
    """How expressions call the columns' table that was found by its name: also with that of the database before it."""

    __slots__ = ()

    database = ("spark_catalog", "default")


def called(identifier: str) -> Called:
    """The table's own name, without that of a database."""
    return Called(parts_of(identifier)[-1] if parts_of(identifier) else identifier)


def beginnings(alias: str) -> list[str]:
    """What may stand before a column's name, if expressions call its table so."""
    names = [f"{alias}.", "`" + alias.replace("`", "``") + "`."]
    if not isinstance(alias, Called):
        return names
    catalog, database = alias.database
    before = [f"{catalog}.{database}.", f"`{catalog}`.`{database}`.", f"{database}.", f"`{database}`."]
    return [*(start + name for start in before for name in names), *names]


def plain_name(identifier: str) -> str:
    """A table's name without back-quotes, and without the name of the database that everybody has."""
    parts = parts_of(identifier)
    if "`" not in identifier and not identifier.lower().startswith(("default.", "spark_catalog.default.")):
        return identifier
    before = tuple(part.lower() for part in parts[:-1])
    return parts[-1] if before in _DEFAULT else ".".join(parts)


def known_name(lake: Engine, identifier: str) -> str:
    """The name of the dataset that is meant; if there is none, the name that it would have."""
    known = lake.versions()
    names = (identifier, plain_name(identifier))
    return next((found for name in names if (found := match_name(known, name))), names[1])
