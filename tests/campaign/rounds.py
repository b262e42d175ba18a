"""Rounds: what goes wrong in each is drawn by a seed, so that a seed repeats it as far as time itself is repeated."""

import contextlib
import itertools
import random
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.campaign.arena import Arena, Outcome, Settings
from tests.campaign.kinds import files, machine, mirror, network, processes, server
from tests.campaign.kinds.kind import Kind
from tests.campaign.pgbouncer import Pgbouncer
from tests.faults.proxy import Proxy
from tests.fixtures.lakes import Place
from tests.fixtures.postgres import FAST, Server, start_server

KINDS: tuple[Kind, ...] = (
    *processes.KINDS,
    *server.KINDS,
    *network.KINDS,
    *files.KINDS,
    *machine.KINDS,
    *mirror.KINDS,
)

DISK = 256 << 20
"""Bytes of a disk that can become full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this machine can do for a campaign."""

    directory: Path
    """For files, in memory if there is room: nothing that is shown here needs a disk, and syncs would take the time."""
    shim: Path | None
    pgbouncer: Path | None
    disks: bool
    """Whether disks of a certain size can be mounted."""

    @property
    def lacks(self) -> list[str]:
        """What cannot be tried here, and why."""
        found = []
        if self.shim is None:
            found.append("no faults of files, clocks and threads: there is no C compiler, or no Linux")
        if self.pgbouncer is None:
            found.append("no pgbouncer: apt install pgbouncer")
        if not self.disks:
            found.append("no full disks: only root can mount them")
        return found


def run_round(machine: Machine, settings: Settings, seconds: float, postgres: Server | None) -> Outcome:
    """One round. Its findings say what is wrong, and what it cannot find out is a finding, too."""
    outcome = Outcome(settings=settings)
    began = time.monotonic()
    directory = machine.directory / f"{settings.backend}-{settings.seed}"
    rng = random.Random(settings.seed)
    with ExitStack() as stack:
        arena = Arena(directory, settings, None if postgres is None else postgres.url, machine.shim is not None)
        stack.enter_context(arena)
        _furnish(arena, machine, postgres, rng, stack)
        arena.prepare()
        arena.start()
        kinds = [kind for kind in KINDS if settings.backend in kind.backends and _has(arena, kind)]
        # Some of them in each round, so that some come together often.
        chosen = rng.sample(kinds, min(len(kinds), rng.randrange(6, 14)))
        # Drawn before anything goes wrong: how much a strike draws depends on what it meets.
        schedule = itertools.chain(chosen, rng.choices(chosen, k=1000))
        end = time.monotonic() + seconds
        for number, kind in enumerate(schedule):
            if time.monotonic() > end:
                break
            strike_rng = random.Random(f"{settings.seed} {number}")
            outcome.faults[kind.name] += kind.strike(arena, strike_rng)
            arena.revive()
            time.sleep(strike_rng.uniform(0.0, 0.15))
        outcome.findings += [f"does not get on after all is well again: {name}" for name in arena.pulse()]
        arena.stop()
        outcome.findings += arena.findings
        outcome.faults["DuckDB aborts its own process"] += arena.aborts
        arena.verify(outcome)
    outcome.seconds = time.monotonic() - began
    return outcome


def _furnish(arena: Arena, machine: Machine, postgres: Server | None, rng: random.Random, stack: ExitStack) -> None:
    if machine.disks:
        for place in (arena.catalog_directory, arena.root):
            stack.enter_context(small_disk(place))
        arena.has_disks = True
    if postgres is None:
        return
    revive_server(postgres)
    arena.server = postgres
    arena.proxy = stack.enter_context(Proxy(postgres.url))
    doors = [(arena.place.url, {}), (arena.proxy.url, {})]
    if machine.pgbouncer is not None:
        arena.pooler = stack.enter_context(Pgbouncer(machine.pgbouncer, postgres.url))
        doors.append((arena.pooler.url, {"prepare_threshold": None}))
    rng.shuffle(doors)
    arena.doors = [Place("postgres", url, arena.root, arena.place.schema) for url, _ in doors]
    arena.options = [options for _, options in doors]


def revive_server(server: Server) -> None:
    """A round that failed itself may have left a server that does not run, or has a standby to wait for."""
    try:
        psycopg.connect(server.url, connect_timeout=5).close()
    except psycopg.Error:
        with contextlib.suppress(Exception):
            server.halt(crash=True)
        server.start()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM RESET ALL")
        connection.execute("SELECT pg_reload_conf()")


def _has(arena: Arena, kind: Kind) -> bool:
    there = {
        "shim": arena.control is not None,
        "proxy": arena.proxy is not None,
        "pooler": arena.pooler is not None,
        "server": arena.server is not None,
        "disks": arena.has_disks,
        "mirror": arena.settings.mirror != "manual",
    }
    return all(there[each] for each in kind.needs)


@contextmanager
def small_disk(place: Path) -> Iterator[None]:
    """A file system of its own, with little room."""
    place.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "lakelog-tests", str(place)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False, capture_output=True)


def can_mount(directory: Path) -> bool:
    place = directory / "probe"
    try:
        with small_disk(place):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def postgres_for(directory: Path, backends: Sequence[str]) -> Iterator[Server | None]:
    """A server that crashes and restarts, and so belongs to nobody else."""
    if "postgres" not in backends:
        yield None
        return
    with contextlib.ExitStack() as stack:
        yield stack.enter_context(start_server(directory, **FAST, max_connections=60, restart_after_crash="on"))
