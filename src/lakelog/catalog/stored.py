"""Texts as the catalog stores them, which nothing but damage can have changed."""

import json
from typing import Any

from lakelog.errors import DatabaseError


def stored_json(text: str) -> Any:
    """The value of a JSON text that Lakelog wrote. Raises ``DatabaseError`` if it is no longer one."""
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        message = "the catalog is damaged, a text in it is not JSON: stop, keep a copy of it, and restore a backup"
        raise DatabaseError(message, None, f"{str(text)[:100]!r}: {error}") from error
