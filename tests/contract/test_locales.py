"""PostgreSQL databases of another encoding or locale: texts compare by their UTF-8 bytes, or it is refused."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import psycopg
import pytest

from bench.postgres import start_server
from lakelog import ConfigurationError
from lakelog.actions import Txn
from lakelog.catalog.postgres.statements import rewrite
from lakelog.catalog.queries import Queries
from tests.contract.samples import add, commit, paths, stats, table
from tests.fixtures.lakes import Place, new_place
from tests.fixtures.postgres import FAST

TEMPLATE = "TEMPLATE template0 ENCODING"
LOCALES = ("LOCALE_PROVIDER libc LOCALE 'en_US.UTF-8'", "LOCALE_PROVIDER icu ICU_LOCALE 'en-US' LOCALE 'C'")

NAMES = ["Zebra", "apple", "Äpfel", "b-a", "ba", "B", "_b", "été", "zoo", "Šibenik", "e\u0301te\u0301"]
"""Names that a dictionary orders otherwise than bytes do."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that knows another locale than C, if this machine can make one."""
    locales = Path(tempfile.mkdtemp(prefix="lakelog-locales-"))
    with pytest.MonkeyPatch.context() as patch:
        if shutil.which("localedef"):
            made = ["localedef", "-i", "en_US", "-f", "UTF-8", str(locales / "en_US.UTF-8")]
            subprocess.run(made, check=False, capture_output=True)
            locales.chmod(0o755)
            patch.setenv("LOCPATH", str(locales))
        with start_server(tmp_path_factory.mktemp("locales"), **FAST) as running:
            yield running.url
    shutil.rmtree(locales)


def _place(server: str, root: Path, *options: str) -> Place:
    """A catalog in a new database with the first of these options that the server takes."""
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS other")
        for option in options:
            try:
                connection.execute(f"CREATE DATABASE other {TEMPLATE} {option}")  # type: ignore[arg-type]
            except psycopg.Error as error:
                refused = error
            else:
                return Place("postgres", server.replace("/postgres?", "/other?"), root, "lakelog")
    raise refused


@pytest.mark.parametrize("encoding", ["LATIN9", "SQL_ASCII"])
def test_a_database_that_is_not_utf8_is_refused_before_anything_is_made(
    server: str, tmp_path: Path, encoding: str
) -> None:
    place = _place(server, tmp_path / "lake", f"'{encoding}' LOCALE 'C'")
    with pytest.raises(ConfigurationError, match=rf"'other'.*{encoding}.*CREATE DATABASE"):
        place.connect()
    with psycopg.connect(place.url) as connection:
        assert connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'lakelog'").fetchall() == []


def test_a_sqlite_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """It would compare texts by the bytes of UTF-16."""
    with closing(apsw.Connection(str(tmp_path / "catalog.db"))) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16le'; CREATE TABLE t (a)")
    place = Place("sqlite", f"sqlite:///{tmp_path}/catalog.db", tmp_path / "lake", "lakelog")
    with pytest.raises(ConfigurationError, match=r"catalog\.db has the encoding UTF-16le.*needs UTF-8"):
        place.connect()


def test_names_and_bounds_are_ordered_by_bytes_in_every_locale(server: str, tmp_path: Path) -> None:
    try:
        place = _place(server, tmp_path / "lake", *(f"'UTF8' {locale}" for locale in LOCALES))
    except psycopg.Error as error:
        pytest.skip(f"this machine has no locale but C: {error}")
    with psycopg.connect(place.url) as connection:
        ordered = connection.execute("SELECT name FROM unnest(%s::text[]) AS name ORDER BY name", (NAMES,)).fetchall()
    assert [name for (name,) in ordered] != sorted(NAMES), "the database's own order would show nothing"
    with place.connect(mirror="manual") as lake:
        for name in NAMES:
            table(lake, name)
        assert [dataset.name for dataset in lake.datasets()] == sorted(NAMES)
        dataset = lake.dataset("ba")
        files = [add(f"{number}.parquet", stats=stats(name=(value, value))) for number, value in enumerate(NAMES)]
        commit(lake, dataset, *files, *(Txn(app_id=name, version=1) for name in NAMES))
        for low in NAMES:
            for high in NAMES:
                kept = paths(dataset.scan(f"name >= '{low}' AND name <= '{high}'").files())
                assert kept == sorted(f"{n}.parquet" for n, value in enumerate(NAMES) if low <= value <= high)
        catalog = lake.committer.catalog
        with catalog.session() as session:
            told = session.fetch(catalog.queries["latest_txns"], {"table_id": dataset.id, "version": 1})
        assert [app_id for app_id, *_ in told] == sorted(NAMES)


def test_bounds_compare_by_bytes_whatever_the_columns_say(server: str, tmp_path: Path) -> None:
    """The statement says it, too: the columns of a catalog that was moved may have another collation."""
    try:
        place = _place(server, tmp_path / "lake", *(f"'UTF8' {locale}" for locale in LOCALES))
    except psycopg.Error as error:
        pytest.skip(f"this machine has no locale but C: {error}")
    with place.connect(mirror="manual") as lake:
        columns = ", ".join(f'ALTER {name} TYPE text COLLATE "default"' for name in ("min_text", "max_text"))
        with psycopg.connect(place.url) as connection:
            connection.execute(f"ALTER TABLE lakelog.column_stats {columns}")  # type: ignore[arg-type]
        dataset = table(lake, "a")
        files = [add(f"{number}.parquet", stats=stats(name=(value, value))) for number, value in enumerate(NAMES)]
        commit(lake, dataset, *files)
        for low in NAMES:
            for high in NAMES:
                kept = paths(dataset.scan(f"name >= '{low}' AND name <= '{high}'").files())
                assert kept == sorted(f"{n}.parquet" for n, value in enumerate(NAMES) if low <= value <= high)


def test_every_text_in_an_index_is_ordered_by_bytes(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """An index in the order of the operating system's locale is damaged when that changes."""
    place = new_place("postgres", tmp_path, request)
    with place.connect() as lake, psycopg.connect(place.url) as connection:
        found = connection.execute(
            "SELECT i.relname, a.attname, c.collname FROM pg_class i JOIN pg_namespace n ON n.oid = i.relnamespace "
            "JOIN pg_attribute a ON a.attrelid = i.oid JOIN pg_collation c ON c.oid = a.attcollation "
            "WHERE i.relkind = 'i' AND n.nspname = %s",
            (place.schema,),
        ).fetchall()
        assert lake.datasets() == []
    assert len(found) >= 7
    assert [each for each in found if each[2] != "C"] == []


def test_every_order_of_texts_says_its_collation() -> None:
    queries = Queries("postgres", lambda statement: rewrite(statement, "lakelog"))
    orders = [
        (name, term.strip())
        for name in queries._source
        for order in re.findall(r"ORDER BY ([^)]*?)(?:LIMIT|\)|$)", queries[name])
        for term in order.split(",")
    ]
    texts = [(name, term) for name, term in orders if re.match(r"(\w\.)?(name|path|app_id|domain|key)\b", term)]
    assert len(texts) >= 9
    assert [found for found in texts if not found[1].endswith('COLLATE "C"')] == []
