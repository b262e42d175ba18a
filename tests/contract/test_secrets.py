"""What errors, logs and reprs never tell: passwords."""

import logging
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

import lakelog
from lakelog import ConfigurationError, Dataset, Lake, LakelogError
from lakelog.catalog.url import catalog_for, scrubbed, shown
from tests.contract.samples import commit, table
from tests.fixtures.postgres import start_server

UNREACHABLE = "postgresql://app@127.0.0.1:1/lake"


CANARY = "Canary-7"

MALFORMED = [
    f"postgresql://app:{CANARY}@127.0.0.1:1/lake",
    f"postgres://app:{CANARY}@127.0.0.1:1,127.0.0.1:2/lake",
    f"postgresql://app:{quote(CANARY + '@/:?#%&', safe='')}@127.0.0.1:1/lake",
    f"postgresql://app:%43{CANARY[1:]}@127.0.0.1:1/lake",
    f"postgresql://app:pre:{CANARY}@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}/rest@127.0.0.1:1/lake",
    f"postgresql://app:pre/{CANARY}@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}?rest@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}/a?b@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}#rest@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}@rest@127.0.0.1:1/lake",
    f"postgresql://app:pre@{CANARY}@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY} rest@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}%zz@127.0.0.1:1/lake",
    f"postgresql://app:{CANARY}@[::1/lake",
    f"postgresql://app:{CANARY}@127.0.0.1:{CANARY}/lake",
    f"postgresql://app:{CANARY}@127.0.0.1:1/lake?oops=1",
    f"postgresql://app:{CANARY}:1/lake",
    f"postgresql://app@127.0.0.1:1/lake?password={CANARY}",
    f"postgresql://app@127.0.0.1:1/lake?sslmode=disable&password={CANARY}&connect_timeout=2",
    f"postgresql://app@127.0.0.1:1/lake?pass%77ord={CANARY}",
    f"postgresql://app@127.0.0.1:1/lake?PASSWORD={CANARY}",
    f"postgresql://app@127.0.0.1:1/lake?passwrd={CANARY}",
    f"postgresql://app@127.0.0.1:1/lake?password={CANARY}%zz",
    f"postgresql://app@127.0.0.1:1/lake?password={CANARY}&password={CANARY}2",
    f"postgresql://app@127.0.0.1:1/lake?sslpassword={CANARY}&port=1x",
    f"postgresql:app:{CANARY}@127.0.0.1/lake",
    f"host=127.0.0.1 port=1 password={CANARY}",
    f"host=127.0.0.1 port=1 password='a {CANARY}'",
    f"mysql://app:{CANARY}@127.0.0.1/lake",
    f"sqlite://app:{CANARY}@127.0.0.1/lake",
    f"sqlite:///catalog.db?password={CANARY}",
    f"app:{CANARY}@127.0.0.1",
    f"postgresql://app:{CANARY}\n@127.0.0.1/lake",
]


def _everything_told(error: BaseException, caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join([str(error), repr(error), repr(error.args), *traceback.format_exception(error), caplog.text])


@pytest.mark.parametrize("url", MALFORMED)
def test_a_password_is_in_no_error_traceback_or_log_line(
    url: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(ConfigurationError) as caught:
        lakelog.connect(url, root=tmp_path, timeout=2)
    told = _everything_told(caught.value, caplog)
    assert CANARY not in told
    assert CANARY[1:] not in told


@pytest.mark.parametrize("url", [each for each in MALFORMED if "://" in each and "\n" not in each])
def test_a_password_is_in_no_repr_and_is_taken_out_of_a_drivers_text(url: str) -> None:
    assert CANARY not in shown(url)
    if url.startswith("postgres"):
        options: dict[str, Any] = {"pool_size": 1, "timeout": 1.0, "schema": "lakelog", "prepare_threshold": None}
        assert CANARY not in repr(catalog_for(url, **options))
        assert CANARY not in scrubbed(f"cannot read {url}", url)
        if "%" not in url:
            assert CANARY not in scrubbed(f'invalid integer value "{CANARY}" for connection option "port"', url)


def test_what_is_no_secret_is_shown() -> None:
    for url in (
        UNREACHABLE,
        "postgresql://[::1]:5432/lake",
        "postgresql://a,b:5433/lake",
        "sqlite:///a/b.db",
        "a/b.db",
    ):
        assert shown(url) == url
    assert shown("postgresql://app:x@h:5432/lake?sslmode=require") == "postgresql://app:***@h:5432/lake"
    assert shown("postgresql://app@/lake?host=/run/pg&port=5433") == "postgresql://app@/lake?host=/run/pg&port=5433"


PASSWORDS = ["plain-Canary-7", "sp @ce/:?#[]&=+%25'\"\\Canary-7", "Canary-7 пароль"]


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("in_query", [False, True])
def test_a_server_that_refuses_a_password_does_not_make_it_known(
    guarded_server: tuple[str, Path], password: str, in_query: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    superuser, home = guarded_server
    secret = quote(password, safe="")
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute(f"ALTER ROLE app PASSWORD {psycopg.sql.Literal(password).as_string()}")
    place = f"postgres?host={quote(str(home))}"
    url = f"postgresql://app@/{place}&password={secret}" if in_query else f"postgresql://app:{secret}@/{place}"

    with pytest.raises(ConfigurationError, match="cannot connect") as caught:
        lakelog.connect(url.replace("Canary", "WrongCanary"), root=tmp_path, timeout=5)
    told = _everything_told(caught.value, caplog)

    schema = f"s{uuid.uuid4().hex[:8]}"
    with lakelog.connect(url, root=tmp_path, schema=schema, timeout=2) as lake:
        dataset = table(lake)
        told += repr(lake) + str(lake) + repr(dataset) + repr(lake.committer.catalog)
        with pytest.raises(LakelogError) as lost:
            _commit_without_sessions(superuser, lake, dataset)
        told += _everything_told(lost.value, caplog)
    assert "psycopg.pool" in {record.name for record in caplog.records}, "the pool's own log was not watched"
    assert "Canary-7" not in told
    assert secret not in told


def _commit_without_sessions(superuser: str, lake: Lake, dataset: Dataset) -> None:
    """Ends all sessions of the role, which can make no new one, and commits."""
    end = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'app'"
    with psycopg.connect(superuser, autocommit=True) as connection:
        connection.execute("ALTER ROLE app PASSWORD 'another'")
        # A session that the pool was just starting is not listed yet, and would live on.
        for _ in range(100):
            connection.execute(end)
            commit(lake, dataset)


@pytest.fixture(scope="module")
def guarded_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server with a role ``app`` that needs a password."""
    with start_server(tmp_path_factory.mktemp("guarded"), fsync="off") as server:
        access = server.home / "data" / "pg_hba.conf"
        access.write_text("local all app scram-sha-256\n" + access.read_text())
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute("CREATE ROLE app LOGIN")
            connection.execute("GRANT CREATE ON DATABASE postgres TO app")
            connection.execute("SELECT pg_reload_conf()")
        yield server.url, server.home
