"""From a URL to a catalog. The only place that knows all three."""

import re
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from lakelog.catalog.base import Catalog
from lakelog.errors import ConfigurationError

_FORMS = "sqlite:///path/to/catalog.db, duckdb:///path/to/catalog.duckdb or postgresql://user@host/database"
_SECRET = re.compile(r"(?i)(password|passfile|sslpassword)=[^&\s]*")


def catalog_for(url: str, *, pool_size: int, timeout: float, schema: str, prepare_threshold: int | None) -> Catalog:
    """The catalog that a URL names, not yet open."""
    if not isinstance(url, str) or not url or any(character < " " for character in url):
        raise ConfigurationError(f"a catalog URL is a line of text such as {_FORMS}")
    scheme, separator, rest = url.partition("://")
    common: dict[str, Any] = {"pool_size": pool_size, "timeout": timeout}
    if separator and scheme == "sqlite":
        from lakelog.catalog.sqlite import SqliteCatalog

        return SqliteCatalog(_file(url, rest), **common)
    if separator and scheme == "duckdb":
        from lakelog.catalog.duckdb import DuckdbCatalog

        return DuckdbCatalog(_file(url, rest), **common)
    if separator and scheme in ("postgresql", "postgres"):
        from lakelog.catalog.postgres import PostgresCatalog

        return PostgresCatalog(url, schema=schema, prepare_threshold=prepare_threshold, **common)
    raise ConfigurationError(f"{scrubbed(url, url)!r} is not a catalog URL: expected {_FORMS}")


def _file(url: str, rest: str) -> Path:
    """``sqlite:///relative/path`` or ``sqlite:////absolute/path``."""
    if not rest.startswith("/") or rest in ("/", "//") or "?" in rest or "#" in rest:
        raise ConfigurationError(
            f"{url!r} does not name a file: write {url.partition(':')[0]}:///relative/path "
            f"or {url.partition(':')[0]}:////absolute/path, without ? or #"
        )
    path = Path(unquote(rest[1:]))
    if path.is_dir():
        raise ConfigurationError(
            f"{path} is a directory: the URL must name the catalog's file, such as {path}/catalog.db"
        )
    return path


def scrubbed(text: str, url: str) -> str:
    """The text without the URL's secrets, in whatever spelling they appear."""
    for secret in _secrets(url):
        text = text.replace(secret, "***")
    return _SECRET.sub(r"\1=***", text)


def _secrets(url: str) -> list[str]:
    found: set[str] = set()
    authority = url.partition("://")[2].partition("?")[0]
    if "@" in authority:
        password = authority.rpartition("@")[0].partition(":")[2]
        found |= {password, unquote(password)}
    try:
        query = urlsplit(url).query
    except ValueError:
        query = url.partition("?")[2]
    for match in re.finditer(r"(?i)(?:ssl)?password=([^&\s]*)", query):
        found |= {match[1], unquote(match[1])}
    return sorted((secret for secret in found if secret), key=len, reverse=True)
