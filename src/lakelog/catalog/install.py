"""Creates a catalog's tables, and tells an older or newer catalog from today's."""

from collections import Counter
from pathlib import Path
from typing import Protocol

from lakelog.catalog.base import FORMAT, Catalog, Parameters, Row, now_ms
from lakelog.catalog.name_key import name_key
from lakelog.catalog.queries import read_sql
from lakelog.errors import CatalogVersionError, ConfigurationError

_NAME_KEYS = 4
"""The format that brought the keys of names."""


class Script(Protocol):
    """A transaction, as far as it is needed here."""

    def execute(self, statement: str, parameters: Parameters) -> None: ...

    def fetch(self, statement: str, parameters: Parameters) -> list[Row]: ...


def migrations(dialect: str, start: int) -> list[tuple[int, str]]:
    """The steps from one format to today's: ``sql/migrations/<format>.<dialect>.sql``."""
    return [(step, read_sql(f"migrations/{step:04}.{dialect}.sql")) for step in range(start + 1, FORMAT + 1)]


def check_format(found: int, where: str) -> None:
    """Raises unless the catalog's format is today's."""
    if found > FORMAT:
        raise CatalogVersionError(
            f"the catalog at {where} has format {found}, newer than format {FORMAT} of this version of lakelog: "
            "upgrade the lakelog package"
        )
    if found < FORMAT:
        raise CatalogVersionError(
            f"the catalog at {where} has format {found}, older than format {FORMAT} of this version of lakelog: "
            "back it up, stop its writers, then call lakelog.connect(url, upgrade=True) once"
        )


def prepare(script: Script, catalog: Catalog, found: int | None, where: str, *, create: bool, upgrade: bool) -> None:
    """Brings the catalog to today's format inside a transaction that holds the lock for it."""
    if found is None:
        if not create:
            raise ConfigurationError(f"there is no Lakelog catalog at {where}: connect with create=True to make one")
        script.execute(read_sql(f"schema.{catalog.dialect}.sql"), {})
        _record(script, catalog, FORMAT)
    elif found < FORMAT and upgrade:
        for step, statements in migrations(catalog.dialect, found):
            script.execute(statements, {})
            if step == _NAME_KEYS:
                _fill_name_keys(script, catalog)
            _record(script, catalog, step)
    else:
        check_format(found, where)


def _fill_name_keys(script: Script, catalog: Catalog) -> None:
    """Gives every table its key. Live tables that have one together stay, each under its exact name."""
    tables = [
        (table_id, name_key(name), dropped)
        for table_id, name, dropped in script.fetch(catalog.queries["all_names"], {})
    ]
    live = Counter(key for _, key, dropped in tables if dropped is None)
    for table_id, key, dropped in tables:
        values = {"table_id": table_id, "name_key": key, "has_twin": dropped is None and live[key] > 1}
        script.execute(catalog.queries["set_name_key"], values)


def _record(script: Script, catalog: Catalog, version: int) -> None:
    script.execute(catalog.queries["record_migration"], {"version": version, "applied_at": now_ms()})


def make_directory(directory: Path) -> None:
    """Makes the directory of a catalog's file, for nobody else to read."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigurationError(
            f"cannot create the directory {directory} for the catalog: {error.strerror}"
        ) from error
