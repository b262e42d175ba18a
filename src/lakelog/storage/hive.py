"""Directories that say partition values, ``day=2026-01-31``, as Hive began it and Spark reads and writes them."""

import re
from collections.abc import Mapping
from urllib.parse import quote, unquote

NULL_DIRECTORY = "__HIVE_DEFAULT_PARTITION__"
"""What stands for null."""

_IN_PATHS = "/=:@!$&'()*+,;~-._"
"""Characters that a path of Delta's log has as they are."""

_SPECIAL = re.compile(r'[\x01-\x1f"#%\'*/:=?\\\x7f{[\]^]')
"""What Hive and Spark escape in a directory's name."""


def directory_of(values: Mapping[str, str | None]) -> str:
    """The directories that Spark makes for partition values."""
    return "/".join(
        f"{_escaped(name)}={NULL_DIRECTORY if value is None else _escaped(value)}" for name, value in values.items()
    )


def values_of(directory: str) -> dict[str, str | None]:
    """The partition values that a path of directories says; other directories say nothing.

    Raises ``ValueError`` for a key that occurs twice, and for escapes that are not UTF-8.
    """
    values: dict[str, str | None] = {}
    for part in directory.split("/"):
        key, equals, text = part.partition("=")
        if not equals:
            continue
        name = unescaped(key)
        if name in values:
            raise ValueError(f"has two directories for {name!r}")
        values[name] = None if text in ("", NULL_DIRECTORY) else unescaped(text)
    return values


def is_hidden(name: str) -> bool:
    """Whether readers pass a directory over. One that begins with an underscore may be a partition all the same."""
    return name.startswith((".", "_")) and "=" not in name


def log_path(relative: str) -> str:
    """A path below the table's location as the log names it."""
    path = quote(relative, safe=_IN_PATHS)
    first, slash, rest = path.partition("/")
    # A colon there would make a scheme of what comes before it.
    return first.replace(":", "%3A") + slash + rest


def unescaped(text: str) -> str:
    """A name or value out of a directory's name. Raises ``UnicodeDecodeError``, a ``ValueError``.

    Hive and Spark escape single characters of ASCII; what others escape beyond that is UTF-8.
    """
    return unquote(text, errors="strict")


def _escaped(text: str) -> str:
    return _SPECIAL.sub(lambda match: f"%{ord(match[0]):02X}", text)
