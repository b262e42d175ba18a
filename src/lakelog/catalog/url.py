"""From a URL to a catalog. The only place that knows all three."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lakelog.catalog.base import Catalog
from lakelog.errors import ConfigurationError

_FORMS = "sqlite:///path/to/catalog.db, duckdb:///path/to/catalog.duckdb or postgresql://user@host/database"
_SECRET = re.compile(r"(?i)(\w*pass\w*)=(?:'[^']*'?|[^&\s]*)")
_SECRET_NAME = re.compile(r"(?i)pass|pwd|secret|token")
_HOST = r"(?:\[[\da-fA-F:.%]*\]|[^:@=/?#,\[\]]*)(?::\d*)?"
_PLACE = re.compile(rf"{_HOST}(?:,{_HOST})*(?:/[^:@=?#]*)?")


def catalog_for(url: str, *, pool_size: int, timeout: float, schema: str, prepare_threshold: int | None) -> Catalog:
    """The catalog that a URL names, not yet open."""
    if not isinstance(url, str) or not url or any(character < " " for character in url):
        raise ConfigurationError(f"a catalog URL is a line of text such as {_FORMS}")
    scheme, separator, rest = url.partition("://")
    common: dict[str, Any] = {"pool_size": pool_size, "timeout": timeout}
    if separator and scheme == "sqlite":
        from lakelog.catalog.sqlite.catalog import SqliteCatalog

        return SqliteCatalog(_file(url, rest), **common)
    if separator and scheme == "duckdb":
        from lakelog.catalog.duckdb.catalog import DuckdbCatalog

        return DuckdbCatalog(_file(url, rest), **common)
    if separator and scheme in ("postgresql", "postgres"):
        from lakelog.catalog.postgres.catalog import PostgresCatalog

        return PostgresCatalog(url, schema=schema, prepare_threshold=prepare_threshold, **common)
    raise ConfigurationError(f"{shown(url)!r} is not a catalog URL: expected {_FORMS}")


def _file(url: str, rest: str) -> Path:
    """``sqlite:///relative/path`` or ``sqlite:////absolute/path``."""
    if not rest.startswith("/") or rest in ("/", "//") or "?" in rest or "#" in rest:
        raise ConfigurationError(
            f"{shown(url)!r} does not name a file: write {url.partition(':')[0]}:///relative/path "
            f"or {url.partition(':')[0]}:////absolute/path, without ? or #"
        )
    path = Path(unquote(rest[1:]))
    if str(path).startswith(":memory:"):
        raise ConfigurationError(
            f"{shown(url)!r} names no file, and a catalog in memory would end with its process: name one, such as "
            f"{url.partition(':')[0]}:///catalog.db"
        )
    # Not by pathlib, here and where a catalog is opened: it raises for a name that is too long for any file.
    if os.path.isdir(path):  # noqa: PTH112
        raise ConfigurationError(
            f"{path} is a directory: the URL must name the catalog's file, such as {path}/catalog.db"
        )
    return path


def shown(url: str) -> str:
    """The URL as people may see it: only what is certain to be no secret, even if the URL is malformed."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return "…" if re.search(r"[:@=]", url) else url
    path, _, query = rest.partition("?")
    userinfo, at, place = path.rpartition("@")
    if "@" in query or not _PLACE.fullmatch(place):
        return f"{scheme}://…"
    user, colon, _ = userinfo.partition(":")
    kept = "&".join(each for each in query.split("&") if re.fullmatch(r"(?:host|hostaddr|port|dbname)=[^=]*", each))
    return f"{scheme}://{user}{':***' if colon else ''}{at}{place}" + (f"?{kept}" if kept else "")


def scrubbed(text: str, url: str) -> str:
    """A driver's text without the URL's secrets, in whatever spelling they appear."""
    for secret in _secrets(url):
        text = text.replace(secret, "***")
    return _SECRET.sub(r"\1=***", text)


def _secrets(url: str) -> list[str]:
    """The passwords of a URL, and what a driver may take for something else where they should have been encoded."""
    rest = url.partition("://")[2]
    path, _, query = rest.partition("?")
    found: set[str] = set()
    for text in (re.split("[@/]", rest)[0], path.rpartition("@")[0], rest.rpartition("@")[0]):
        password = text.partition(":")[2]
        if not re.fullmatch(r"[\d,:]*|.*\]:?\d*", password) or "@" in rest:
            found |= {password, *(each for each in re.split("[@/?#: ]", password) if len(each) > 2)}
    for each in query.split("&"):
        name, _, value = each.partition("=")
        if _SECRET_NAME.search(unquote(name)):
            found.add(value)
    found |= {unquote(secret) for secret in found}
    return sorted((secret for secret in found if secret), key=len, reverse=True)
