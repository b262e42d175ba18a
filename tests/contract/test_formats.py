"""Catalogs of every format that there was: the steps from each lead to today's schema, and keep what is there."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakelog
from lakelog import CatalogVersionError, Lake
from lakelog.catalog import install
from tests.contract.samples import SCHEMA, add, commit, paths, table
from tests.fixtures.lakes import Place, catalog_rows, execute, qualified, rows
from tests.invariants import check_invariants

Connect = Callable[..., Lake]
FORMATS = Path(__file__).parent / "formats"
OLD = range(1, install.FORMAT)

STRUCTURE = {
    "sqlite": "SELECT type, name, sql FROM sqlite_schema ORDER BY type, name",
    "duckdb": "SELECT table_name, column_name, data_type, is_nullable, column_default "
    "FROM information_schema.columns ORDER BY 1, 2",
    "postgres": "SELECT c.table_name, c.column_name, c.data_type, c.is_nullable, c.column_default, "
    "(SELECT string_agg(pg_get_constraintdef(k.oid), ';' ORDER BY k.conname) FROM pg_constraint k "
    "WHERE k.conrelid = (quote_ident(c.table_schema) || '.' || quote_ident(c.table_name))::regclass) "
    "FROM information_schema.columns c WHERE c.table_schema = $schema ORDER BY 1, 2",
}


def _make_old(connect: Connect, version: int) -> None:
    """A catalog as an old version of Lakelog made it."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(install, "FORMAT", version)
        patched.setattr(
            install, "read_sql", lambda name: (FORMATS / name.replace("schema", f"{version:04}")).read_text()
        )
        connect().close()


@pytest.mark.parametrize("version", OLD)
def test_an_upgraded_catalog_is_built_like_a_new_one(
    connect: Connect, backend: str, version: int, place: Place, tmp_path: Path
) -> None:
    _make_old(connect, version)
    upgraded = connect(upgrade=True)
    check_invariants(upgraded)
    with _elsewhere(place, tmp_path) as new:
        assert _structure(upgraded, backend) == _structure(new, backend)


def test_the_schema_says_which_format_it_is(backend: str) -> None:
    assert f"format {install.FORMAT}," in install.read_sql(f"schema.{backend}.sql").partition("\n")[0]


def test_what_an_old_catalog_holds_is_there_after_the_upgrade(connect: Connect) -> None:
    filled = connect()
    events = table(filled, schema=SCHEMA)
    commit(filled, events, add())
    before = catalog_rows(filled)
    _take_back(filled)
    filled.close()
    with pytest.raises(CatalogVersionError, match=r"format 1, older than .*upgrade=True"):
        connect()
    upgraded = connect(upgrade=True)
    after = catalog_rows(upgraded)
    assert [row["version"] for row in after.pop("lakelog_migrations")] == list(range(1, install.FORMAT + 1))
    before.pop("lakelog_migrations")
    assert after == before
    assert paths(upgraded.dataset("events").snapshot().files()) == ["a.parquet"]
    commit(upgraded, upgraded.dataset("events"), add("b.parquet"))
    assert rows(upgraded, "dl_writes") == []


def _elsewhere(place: Place, tmp_path: Path) -> Lake:
    if place.backend == "postgres":
        return lakelog.connect(place.url, tmp_path / "other", schema=f"{place.schema}_new")
    return lakelog.connect(f"{place.backend}:///{tmp_path / 'other.db'}", tmp_path / "other")


def _structure(lake: Lake, backend: str) -> list[Any]:
    schema = lake.committer.catalog.schema
    statement = STRUCTURE[backend].replace("$schema", f"'{schema}'")
    with lake.committer.catalog.session() as session:
        found = session.fetch(statement, {})
    return [tuple(str(value).replace(schema, "schema") if schema else value for value in row) for row in found]


def _take_back(lake: Lake) -> None:
    """To format 1, which has the same rows in fewer tables."""
    later = ("dl_writes", "dl_retention", "dl_void_commits")
    execute(
        lake,
        *(f"DROP TABLE {qualified(lake, name)}" for name in later),
        f"UPDATE {qualified(lake, 'lakelog_migrations')} SET version = 1",
    )
