"""Whatever PostgreSQL does, nothing waits for longer than twice the timeout and 2 s."""

import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psycopg
import pyarrow as pa
import pytest

from lakelog import CommitOutcomeUnknown, Lake, LakelogError, LakelogTimeoutError, SqlTxnLogWriter
from lakelog.actions import RemoveFile
from lakelog.catalog.deadlines import sharing
from lakelog.changes.leases import register_write
from lakelog.log.commit.draft import Description, Draft
from tests.faults.proxy import Proxy
from tests.faults.scenarios import add, append, file, prepare, rename, write
from tests.fixtures.lakes import Place

pytestmark = pytest.mark.parametrize("backend", ["postgres"])

TIMEOUT = 1.0
NOBODY = "6ed9b4a5-8a1c-4d0e-9d2a-0d2f7f3a6c11"

DOINGS: dict[str, Callable[[Lake], object]] = {
    "names": lambda lake: lake.datasets(),
    "a listing": lambda lake: lake.dataset("events").snapshot().files(),
    "a commit": lambda lake: write(lake, 1),
    "a small commit": lambda lake: add(lake, 1),
    "a new name": lambda lake: rename(lake, 1),
    "a status": lambda lake: lake.commit_status(NOBODY),
}


@pytest.fixture
def lake(place: Place) -> Iterator[Lake]:
    prepare(place)
    with place.connect(mirror="manual", timeout=TIMEOUT) as lake:
        append(lake, 1)
        yield lake


@contextmanager
def within_the_limit() -> Iterator[None]:
    began = time.monotonic()
    yield
    assert time.monotonic() - began < 2 * TIMEOUT + 2


@contextmanager
def locked(place: Place) -> Iterator[None]:
    """As an ALTER TABLE or a VACUUM FULL of somebody else does it."""
    with psycopg.connect(place.url) as other:
        names = other.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (place.schema,)).fetchall()
        listed = ", ".join(f'"{place.schema}"."{name}"' for (name,) in names)
        other.execute(f"LOCK TABLE {listed} IN ACCESS EXCLUSIVE MODE")  # type: ignore[arg-type]
        yield


@pytest.mark.parametrize("doing", DOINGS.values(), ids=DOINGS)
def test_nothing_waits_for_ever_for_a_table_that_somebody_locked(
    place: Place, lake: Lake, doing: Callable[[Lake], object]
) -> None:
    with locked(place), within_the_limit(), pytest.raises((LakelogTimeoutError, CommitOutcomeUnknown)):
        doing(lake)
    doing(lake)


def test_connecting_ends_where_the_catalog_is_locked(place: Place, lake: Lake) -> None:
    with locked(place), within_the_limit(), pytest.raises(LakelogTimeoutError):
        place.connect(timeout=TIMEOUT)
    place.connect(timeout=TIMEOUT).close()


def test_a_read_waits_for_a_lock_as_long_as_the_timeout_and_no_session_keeps_that(lake: Lake) -> None:
    catalog = lake.committer.catalog
    with catalog.session() as session:
        assert session.fetch("SHOW lock_timeout", {}) == [(f"{TIMEOUT:.0f}s",)]
    with catalog._pool.connection() as connection:  # type: ignore[attr-defined]
        assert connection.execute("SHOW lock_timeout").fetchone() == ("0",)


def test_a_note_of_the_mirror_has_no_more_time_than_is_left(place: Place, lake: Lake) -> None:
    """A commit that stands waits for its mirror's state, and not for as long as for anything else."""
    events = lake.dataset("events")
    entry = lake.mirror.entry(events.id)
    with place.connect(mirror="manual", timeout=30) as patient, locked(place), sharing(0.5):
        began = time.monotonic()
        with pytest.raises(LakelogTimeoutError):
            patient.mirror._ledger.advance(events.id, entry, entry.next(0))
        assert time.monotonic() - began < 5


def test_a_lake_closes_though_the_network_is_frozen(place: Place) -> None:
    prepare(place)
    with Proxy(place.url) as proxy:
        there = Place(place.backend, proxy.url, place.root, place.schema)
        lake = there.connect(mirror="background", timeout=TIMEOUT)
        append(lake, 1)
        events = lake.dataset("events")
        proxy.freeze()
        lake.mirror._reconciler.wake(events.id)
        with within_the_limit():
            lake.close()


def test_a_read_without_a_byte_ends_and_its_statement_too(place: Place, lake: Lake) -> None:
    with (
        within_the_limit(),
        pytest.raises(LakelogTimeoutError, match="an answer of PostgreSQL"),
        lake.committer.catalog.session() as session,
    ):
        session.fetch("SELECT pg_sleep(60)", {})
    with psycopg.connect(place.url, autocommit=True) as administrator:
        asleep = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()"
        end = time.monotonic() + 10
        while administrator.execute(asleep).fetchone():
            assert time.monotonic() < end, "the server still works for nobody"


def test_a_listing_that_makes_progress_is_not_cut(lake: Lake) -> None:
    # Rows as long as a buffer, each half a second late: longer in all than any limit.
    late = "SELECT repeat('x', 9000) || pg_sleep(0.5)::text AS path FROM generate_series(1, 7)"
    began = time.monotonic()
    with lake.committer.catalog.session() as session:
        table = session.fetch_arrow(late, {}, pa.schema([("path", pa.string())]))
    assert table.num_rows == 7
    assert time.monotonic() - began > 3 * TIMEOUT


def replace_in_two_tables(lake: Lake) -> None:
    """A commit with all that the server may work on for long, and leases."""
    drafts = []
    for name in ("events", "users"):
        dataset = lake.dataset(name)
        leases = [f"_write={uuid.uuid4().hex}" for _ in range(2)]
        for lease in leases:
            register_write(lake.committer, dataset.location, lease)
        actions = [RemoveFile(path=file(1, "removed").path), file(2, "new")]
        description = Description(operation="CHANGE", committer="1", operation_parameters={}, extra={})
        drafts.append(Draft(dataset.id, dataset.version, actions, description, leases=leases))
    lake.committer.commit(drafts)


FREEZES: dict[str, tuple[bytes, Callable[[Lake], object]]] = {
    "in the work of a commit": (b"INSERT INTO", replace_in_two_tables),
    "at its COMMIT": (b"COMMIT\0", replace_in_two_tables),
    "in a small commit": (b"INSERT INTO", lambda lake: add(lake, 1)),
    "at the COMMIT of a new name": (b"COMMIT\0", lambda lake: rename(lake, 1)),
    "before a status is told": (b"pg_is_in_recovery", lambda lake: lake.commit_status(NOBODY)),
    "after a status is settled": (b"dl_void_commits", lambda lake: lake.commit_status(NOBODY)),
}


def test_a_network_that_freezes_anywhere_holds_nobody_for_longer(place: Place) -> None:
    """With a timeout that is long enough for the two seconds to hide nothing."""
    timeout = 4.0
    prepare(place)
    with place.connect(mirror="manual") as lake:
        append(lake, 1)
        users = lake.dataset("users")
        SqlTxnLogWriter(lake).commit(users.id, users.version + 1, [file(1, "removed")])

    def frozen(when: bytes, doing: Callable[[Lake], object]) -> float:
        with Proxy(place.url) as proxy:
            there = Place(place.backend, proxy.url, place.root, place.schema)
            with there.connect(mirror="manual", timeout=timeout) as lake:
                lake.datasets()
                proxy.freezes_at = when
                began = time.monotonic()
                with pytest.raises(LakelogError):
                    doing(lake)
                return time.monotonic() - began

    with ThreadPoolExecutor(len(FREEZES)) as threads:
        spent = dict(zip(FREEZES, threads.map(lambda each: frozen(*each), FREEZES.values()), strict=True))
    assert {name: seconds for name, seconds in spent.items() if seconds > 2 * timeout + 2} == {}


MIRROR_FREEZES = {
    "when the mirror's state is read": b"SELECT published_version",
    "when the mirror's state is noted": b"SET published_version",
}


def test_a_commit_that_stands_waits_for_its_mirror_no_longer(place: Place) -> None:
    """The first commit of a process, which has all of the mirror's work before and after it."""
    timeout = 4.0

    def frozen(name: str) -> float:
        its_own = Place(place.backend, place.url, place.root / name, f"{place.schema}_{len(name)}")
        prepare(its_own)
        with Proxy(place.url) as proxy:
            there = Place(place.backend, proxy.url, its_own.root, its_own.schema)
            with there.connect(timeout=timeout) as lake:
                version = lake.dataset("events").version
                proxy.freezes_at = MIRROR_FREEZES[name]
                began = time.monotonic()
                # It stands, or an error says what became of it.
                with suppress(LakelogError):
                    add(lake, 1)
                spent = time.monotonic() - began
        with its_own.connect() as lake:
            assert lake.dataset("events").version in (version, version + 1)
        return spent

    with ThreadPoolExecutor(len(MIRROR_FREEZES)) as threads:
        spent = dict(zip(MIRROR_FREEZES, threads.map(frozen, MIRROR_FREEZES), strict=True))
    assert {name: seconds for name, seconds in spent.items() if seconds < 1} == {}, "nothing was frozen"
    assert {name: seconds for name, seconds in spent.items() if seconds > 2 * timeout + 2} == {}


def test_an_old_libpq_that_cannot_limit_a_cancel_does_not_wait_for_one(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(psycopg.capabilities, "has_cancel_safe", lambda check=False: False)
    monkeypatch.setattr(psycopg.Connection, "cancel_safe", lambda *_, **__: time.sleep(60))
    with within_the_limit(), pytest.raises(LakelogTimeoutError), lake.committer.catalog.session() as session:
        session.fetch("SELECT pg_sleep(5)", {})
