"""A PostgreSQL server whose sessions end, that crashes, stops, freezes, or has no room, no standby and no time."""

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.campaign.arena import Arena
from tests.campaign.kinds.kind import Kind, pause, wait_for

_WRITERS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'lakelog' AND pid <> pg_backend_pid() "
    "AND datname = current_database()"
)


@contextmanager
def _administrator(arena: Arena) -> Iterator[Any]:
    with _connected(arena, autocommit=True) as connection:
        yield connection


def _connected(arena: Arena, **options: Any) -> Any:
    """Waits until the server takes somebody: it may recover from the fault before, or be full."""
    end = time.monotonic() + 30
    while True:
        try:
            return psycopg.connect(arena.place.url, connect_timeout=5, application_name="administrator", **options)
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def _backends(connection: Any, rng: random.Random) -> list[int]:
    """Some that work, if any do."""
    busy = [pid for (pid,) in connection.execute(f"{_WRITERS} AND state <> 'idle'").fetchall()]
    pids = busy or [pid for (pid,) in connection.execute(_WRITERS).fetchall()]
    return rng.sample(pids, min(len(pids), rng.choice((1, 1, 2, 5))))


def _told(function: str) -> Kind:
    def strike(arena: Arena, rng: random.Random) -> int:
        with _administrator(arena) as connection:
            pids = _backends(connection, rng)
            for pid in pids:
                connection.execute(f"SELECT {function}(%s)", (pid,))
        return len(pids)

    return Kind(name=f"{function} of a session", strike=strike, backends=("postgres",))


def _kill_backend(arena: Arena, rng: random.Random) -> int:
    """The server ends all sessions then, and recovers."""
    with _administrator(arena) as connection:
        pids = _backends(connection, rng)[:1]
    killed = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            # Before the postmaster knows of it, it takes connections as ever.
            wait_for(lambda pid=pid: not Path(f"/proc/{pid}").exists(), 10.0)  # type: ignore[misc]
            killed.append(pid)
    _connected(arena).close()
    return len(killed)


def _freeze_backend(arena: Arena, rng: random.Random) -> int:
    with _administrator(arena) as connection:
        pids = _backends(connection, rng)
    stopped = []
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)
    pause(rng, 0.05, 1.0)
    for pid in stopped:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return len(stopped)


def _restart(*, crash: bool) -> Kind:
    def strike(arena: Arena, rng: random.Random) -> int:
        assert arena.server is not None
        arena.server.halt(crash=crash)
        pause(rng, 0.0, 0.3)
        arena.server.start()
        return 1

    how = "immediate" if crash else "fast"
    return Kind(
        name=f"an {how} restart of the server" if crash else f"a {how} restart of the server",
        strike=strike,
        backends=("postgres",),
        needs=("server",),
    )


def _kill_postmaster(arena: Arena, rng: random.Random) -> int:
    assert arena.server is not None
    os.kill(arena.server.pid, signal.SIGKILL)
    arena.server.halt()
    pause(rng, 0.0, 0.3)
    end = time.monotonic() + 30
    while True:
        try:
            arena.server.start()
            return 1
        except RuntimeError:
            # Its children end by themselves, and take a moment.
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def _freeze_postmaster(arena: Arena, rng: random.Random) -> int:
    """Sessions go on, and nobody new is let in. Counted when somebody who came was kept waiting."""
    assert arena.server is not None
    os.kill(arena.server.pid, signal.SIGSTOP)
    try:
        pause(rng, 0.1, 1.0)
        with contextlib.suppress(psycopg.Error):
            psycopg.connect(arena.place.url, connect_timeout=2).close()
            return 0
    finally:
        os.kill(arena.server.pid, signal.SIGCONT)
    return 1


def _lose_standby(arena: Arena, rng: random.Random) -> int:
    """Commits wait for one that is not there; then nobody is to be waited for."""
    _set(arena, "synchronous_standby_names", "'nobody'")
    pause(rng, 0.1, 1.0)
    waiting: list[Any] = []
    with _administrator(arena) as connection:

        def somebody_waits() -> bool:
            waiting[:] = connection.execute("SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchall()
            return bool(waiting)

        wait_for(somebody_waits, 1.0)
        # An administrator who does what PostgreSQL warns of.
        if rng.random() < 0.5:
            for (pid,) in waiting:
                function = rng.choice(("pg_cancel_backend", "pg_terminate_backend"))
                connection.execute(f"SELECT {function}(%s)", (pid,))
    _set(arena, "synchronous_standby_names", "''")
    return len(waiting)


def _set(arena: Arena, name: str, value: str) -> None:
    with _administrator(arena) as connection:
        connection.execute(f"ALTER SYSTEM SET {name} = {value}")
        connection.execute("SELECT pg_reload_conf()")


def _lock_tables(arena: Arena, rng: random.Random) -> int:
    with _connected(arena) as connection:
        name = rng.choice(("dl_tables", "dl_add_files", "dl_table_versions", "dl_mirror_status", "dl_writes"))
        connection.execute("SET lock_timeout = 5000")
        with contextlib.suppress(psycopg.errors.LockNotAvailable):
            connection.execute(f'LOCK TABLE "{arena.place.schema}".{name} IN ACCESS EXCLUSIVE MODE')
            pause(rng, 0.1, 1.0)
            return 1
    return 0


def _take_all_connections(arena: Arena, rng: random.Random) -> int:
    with contextlib.ExitStack() as stack:
        count = 0
        with contextlib.suppress(psycopg.OperationalError):
            while count < 500:
                stack.enter_context(psycopg.connect(arena.place.url, application_name="administrator"))
                count += 1
        with contextlib.suppress(psycopg.Error), psycopg.connect(arena.place.url, autocommit=True) as connection:
            connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({_WRITERS}) AS writers")
        pause(rng, 0.2, 0.6)
    return 1


KINDS = [
    _told("pg_terminate_backend"),
    _told("pg_cancel_backend"),
    Kind(name="SIGKILL of a session, and recovery", strike=_kill_backend, backends=("postgres",), needs=("server",)),
    Kind(name="SIGSTOP of a session", strike=_freeze_backend, backends=("postgres",), needs=("server",)),
    _restart(crash=True),
    _restart(crash=False),
    Kind(name="SIGKILL of the postmaster", strike=_kill_postmaster, backends=("postgres",), needs=("server",)),
    Kind(name="SIGSTOP of the postmaster", strike=_freeze_postmaster, backends=("postgres",), needs=("server",)),
    Kind(name="a synchronous standby that is gone", strike=_lose_standby, backends=("postgres",), needs=("server",)),
    Kind(name="a table that an administrator locks", strike=_lock_tables, backends=("postgres",)),
    Kind(name="connections that run out", strike=_take_all_connections, backends=("postgres",), needs=("server",)),
]
