"""Reads the statements of ``sql/*.sql``; a database's own file overrides the common ones by name."""

import re
from collections.abc import Callable
from functools import cache
from importlib import resources

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n?", re.MULTILINE)


def read_sql(name: str) -> str:
    """The text of a file below ``sql/``."""
    return resources.files("lakelog.catalog").joinpath("sql", name).read_text(encoding="utf-8")


@cache
def _statements(dialect: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for file in ("queries.sql", "upkeep.sql", f"queries.{dialect}.sql"):
        parts = _NAME.split(read_sql(file))
        found |= {name: _COMMENT.sub("", body).strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}
    return found


_KEPT = 256
"""Filled templates that are remembered."""


class Queries:
    """A database's statements by name, each rewritten once to what its driver wants.

    A statement is a template where it holds ``{columns}``, ``{kept}`` or ``{n}``: ``fill`` puts SQL of ours there.
    """

    def __init__(self, dialect: str, rewrite: Callable[[str], str]) -> None:
        self._source = _statements(dialect)
        self._rewrite = rewrite
        self._ready: dict[str, str] = {}
        self._filled: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        ready = self._ready.get(name)
        if ready is None:
            ready = self._ready[name] = self._rewrite(self._source[name])
        return ready

    def fill(self, name: str, **parts: str) -> str:
        template = self.template(name, **parts)
        filled = self._filled.get(template)
        if filled is None:
            if len(self._filled) >= _KEPT:
                self._filled.clear()
            filled = self._filled[template] = self._rewrite(template)
        return filled

    def template(self, name: str, **parts: str) -> str:
        """The statement with its parts, still in the notation of the SQL files."""
        return self._source[name].format(**parts)
