"""A campaign of faults, hostile inputs and losses of power, as ``./dev faults`` runs it."""

import argparse
import contextlib
import faulthandler
import json
import logging
import multiprocessing.forkserver
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The processes that the campaign kills are forked from one that has imported what they need.
import tests.faults.children
from tests.campaign.arena import Settings
from tests.campaign.inputs.kinds import INPUTS, try_inputs
from tests.campaign.outage import try_outage
from tests.campaign.pgbouncer import find_pgbouncer
from tests.campaign.power import try_power
from tests.campaign.report import Report
from tests.campaign.rounds import Machine, can_mount, postgres_for, revive_server, run_round
from tests.campaign.shim import compile_shim
from tests.fixtures.postgres import Server, new_database

BACKENDS = ("sqlite", "duckdb", "postgres")
_ROOM = 4 << 30
"""Bytes in memory from which on files lie there."""
_HANGS = 900.0
"""Seconds after which hostile inputs hang, which ends the campaign with the stacks of all threads."""
_NEVER = 3600.0
"""Seconds after which a process of a part hangs."""

assert tests.faults.children


def main(arguments: Sequence[str]) -> int:
    options = _options(arguments)
    logging.disable()
    report = Report(seed=options.seed, minutes=options.minutes, command=_described(arguments))
    began = time.monotonic()
    with _directory() as directory:
        machine = _machine(directory, Path(options.cache))
        report.lacks = machine.lacks
        for each in machine.lacks:
            print(f"not tried: {each}", flush=True)
        end = began + options.minutes * 60

        def step(name: str, run: Callable[..., None], *arguments: Any) -> None:
            """One part of the campaign. If it fails itself, that is a finding, and the others go on."""
            try:
                run(report, *arguments)
            except Exception:
                tail = traceback.format_exc()[-3000:]
                report.findings.append(f"{name}: the campaign itself fails:\n{tail}")
                print(f"{name}: the campaign itself fails\n{tail}", flush=True)
            report.seconds = time.monotonic() - began
            if options.output:
                report.save(Path(options.output))

        with postgres_for(directory, options.backend) as postgres:
            number = 0
            if options.round is not None:
                backend = options.backend[options.round % 100_000 % len(options.backend)]
                step(
                    f"{backend}, seed {options.round}",
                    _round,
                    machine,
                    backend,
                    options.round,
                    options.seconds,
                    postgres,
                )
            while options.round is None and (time.monotonic() < end or number < len(options.backend)):
                backend = options.backend[number % len(options.backend)]
                seed = options.seed * 100_000 + number
                step(f"{backend}, seed {seed}", _round, machine, backend, seed, options.seconds, postgres)
                if number % 3 == 2:
                    step(f"losses of power, seed {seed}", _loss_of_power, machine, options, number)
                    for place, each in enumerate(options.backend):
                        # Of what does not divide, the first ones have one more.
                        count = (options.inputs + len(options.backend) - 1 - place) // len(options.backend)
                        server = postgres if each == "postgres" else None
                        step(f"hostile inputs, {each}, seed {seed}", _inputs, directory, each, seed, count, server)
                number += 1
            for backend in options.backend if options.outage else ():
                server = postgres if backend == "postgres" else None
                step(f"outage of a mirror, {backend}", _outage, machine, backend, options.outage, server)
            for number in range(options.verbs):
                step(f"verbs of Spark, seed {options.seed + number}", _verbs, options.backend, options.seed + number)
            for backend in options.backend if options.soak else ():
                server = postgres if backend == "postgres" else None
                step(f"soak, {backend}", _soak, directory, backend, options.soak, server)
    print(report.text())
    print("nothing was lost, told wrongly or unclear" if report.is_clean else "SOMETHING IS WRONG, see above")
    return 0 if report.is_clean else 1


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev faults", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="for how long; at least one round of each database")
    parser.add_argument("--seed", type=int, default=1, help="what goes wrong is drawn by it")
    parser.add_argument("--round", type=int, metavar="SEED", help="only the round of this seed, as it was printed")
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="of all three by default")
    parser.add_argument("--seconds", type=float, default=12.0, help="of each round")
    parser.add_argument("--inputs", type=int, default=700, help="hostile inputs for each three rounds")
    parser.add_argument("--losses", type=int, default=60, help="losses of power for each three rounds")
    parser.add_argument(
        "--outage", type=int, help="commits while a mirror fails, on each database; 3000 in five minutes or more"
    )
    parser.add_argument(
        "--verbs", type=int, help="histories of Spark's verbs on each database; 1 in five minutes or more"
    )
    parser.add_argument(
        "--soak",
        type=int,
        default=0,
        help="commits in one process at the end, and a fifth of snapshots; a tenth on DuckDB",
    )
    parser.add_argument("--output", help="a directory for faults.md and faults.json")
    parser.add_argument("--cache", default="build/campaign", help="for what is compiled and unpacked")
    found = parser.parse_args(arguments)
    is_long = found.minutes >= 5 and found.round is None
    if found.outage is None:
        found.outage = 3000 if is_long else 0
    if found.verbs is None:
        found.verbs = int(is_long)
    found.backend = found.backend or list(BACKENDS)
    return found


def _described(arguments: Sequence[str]) -> str:
    """What makes a campaign what it is, which does not depend on where it puts its files."""
    kept = list(arguments)
    for option in ("--output", "--cache"):
        while option in kept:
            at = kept.index(option)
            del kept[at : at + 2]
    return shlex.join(kept)


def _round(report: Report, machine: Machine, backend: str, seed: int, seconds: float, postgres: Server | None) -> None:
    outcome = run_round(machine, Settings.drawn(backend, seed), seconds, postgres if backend == "postgres" else None)
    totals = report.totals(backend)
    totals.rounds += 1
    totals.acknowledged += outcome.acknowledged
    totals.failed += outcome.failed
    totals.unknown += outcome.unknown
    totals.resolved += outcome.resolved
    totals.reads += outcome.reads
    totals.lost += outcome.lost
    totals.told_wrongly += outcome.told_wrongly
    totals.otherwise += len(outcome.findings) - outcome.lost - outcome.told_wrongly
    totals.faults.update(outcome.faults)
    told = f"{backend}, seed {seed}"
    report.findings += [f"{told}: {each}" for each in outcome.findings]
    report.unclear += [f"{told}: {each['type']} in {each['doing']}: {each['text']}" for each in outcome.errors]
    report.late += len(outcome.late)
    print(
        f"{told}: {sum(outcome.faults.values())} faults, {outcome.acknowledged} commits acknowledged, "
        f"{outcome.failed} failed, {outcome.unknown} unknown, {outcome.reads} reads, "
        f"{len(outcome.findings)} findings, {len(outcome.errors)} unclear errors, {len(outcome.late)} late, "
        f"{outcome.seconds:.0f} s",
        flush=True,
    )
    for each in (*outcome.findings[:5], *outcome.errors[:3], *outcome.late[:3]):
        print(f"  {each}", flush=True)


def _loss_of_power(report: Report, machine: Machine, options: argparse.Namespace, number: int) -> None:
    """Of the databases whose files Lakelog's own process writes."""
    if machine.shim is None:
        return
    for backend in (each for each in options.backend if each != "postgres"):
        seed = options.seed * 100_000 + number
        directory = machine.directory / f"power-{backend}-{seed}"
        losses = options.losses if backend == "sqlite" else max(options.losses // 6, 1)
        found = try_power(directory, machine.shim, backend, seed, commits=40, losses=losses)
        shutil.rmtree(directory, ignore_errors=True)
        totals = report.totals(backend)
        totals.faults["a loss of power"] += found.losses
        totals.acknowledged += found.acknowledged
        totals.lost += found.lost
        totals.otherwise += len(found.findings) - found.lost
        report.findings += [f"{backend}: {each}" for each in found.findings]
        print(f"{backend}, seed {seed}: {found.losses} losses of power, {len(found.findings)} findings", flush=True)
        for each in found.findings[:5]:
            print(f"  {each}", flush=True)


def _outage(report: Report, machine: Machine, backend: str, commits: int, postgres: Server | None) -> None:
    if machine.shim is None:
        return
    directory = machine.directory / f"outage-{backend}"
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        url = f"{backend}:///{directory}/catalog.db"
        if postgres is not None:
            revive_server(postgres)
            url = stack.enter_context(new_database(postgres.url))
        found = try_outage(directory, machine.shim, url, commits // 2 if backend == "duckdb" else commits)
    totals = report.totals(backend)
    totals.acknowledged += found.commits
    totals.otherwise += len(found.findings)
    totals.faults["a mirror that fails for thousands of commits"] += int(found.failures > 0)
    report.findings += [f"{backend}: {each}" for each in found.findings]
    print(
        f"{backend}: {found.commits} commits while the mirror failed {found.failures} times, whole {found.seconds} s "
        f"later, {len(found.findings)} findings",
        flush=True,
    )


def _soak(report: Report, directory: Path, backend: str, commits: int, postgres: Server | None) -> None:
    """In a process of its own: what the campaign has done before is no measure."""
    place = directory / f"soak-{backend}"
    place.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        url = f"{backend}:///{place}/catalog.db"
        if postgres is not None:
            revive_server(postgres)
            url = stack.enter_context(new_database(postgres.url))
        count = max(commits // 10, 10) if backend == "duckdb" else commits
        command = [sys.executable, "-m", "tests.campaign.soak", place / "files", str(count), url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_NEVER)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    wrong = found.pop("findings")
    report.findings += [f"{backend}: {each}" for each in wrong]
    report.totals(backend).otherwise += len(wrong)
    report.totals(backend).soaked += found["commits"]
    report.soak[backend] = found
    print(f"{backend}: soak {found}", flush=True)


def _verbs(report: Report, backends: Sequence[str], seed: int) -> None:
    """Every verb of Spark's on random tables, against plain lists and plain Spark, with a random history each."""
    tests = ["tests/spark/test_rows_model.py", "tests/spark/test_verbs_beside_spark.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", " or ".join(backends), *tests]
    environment = {**os.environ, "LAKELOG_MODEL_SEED": str(seed), "LAKELOG_VERBS_SEED": str(seed)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=_NEVER)
    if done.returncode:
        report.findings.append(f"verbs of Spark, seed {seed}: {done.stdout[-4000:]}")
        for backend in backends:
            report.totals(backend).otherwise += 1
    report.verbs.append(seed)
    print(
        f"verbs of Spark, seed {seed}: {done.stdout.splitlines()[-1] if done.stdout else done.stderr[-500:]}",
        flush=True,
    )


def _inputs(report: Report, directory: Path, backend: str, seed: int, count: int, postgres: Server | None) -> None:
    with contextlib.ExitStack() as stack:
        url = None
        if postgres is not None:
            revive_server(postgres)
            url = stack.enter_context(new_database(postgres.url))
        # They run in this process: one that hangs says where, instead of the campaign saying nothing.
        faulthandler.dump_traceback_later(_HANGS, exit=True)
        stack.callback(faulthandler.cancel_dump_traceback_later)
        found = try_inputs(directory / f"inputs-{backend}-{seed}", seed, count, INPUTS, backend, url)
    report.totals(backend).inputs += sum(found.tried.values())
    report.totals(backend).otherwise += len(found.findings)
    report.inputs.update(found.tried)
    report.unclear += found.unclear
    report.findings += found.findings
    print(
        f"{backend}, seed {seed}: {sum(found.tried.values())} hostile inputs, {len(found.unclear)} unclear errors, "
        f"{len(found.findings)} findings",
        flush=True,
    )
    for each in (*found.unclear[:5], *found.findings[:5]):
        print(f"  {each}", flush=True)


@contextmanager
def _directory() -> Iterator[Path]:
    """In memory, where there is room: nothing here needs a disk, and waiting for one would take the time."""
    memory = Path("/dev/shm")
    has_room = memory.is_dir() and shutil.disk_usage(memory).free > _ROOM
    with tempfile.TemporaryDirectory(prefix="lakelog-campaign-", dir=memory if has_room else None) as found:
        # PostgreSQL and pgbouncer run under another account.
        Path(found).chmod(0o755)
        yield Path(found)


def _machine(directory: Path, cache: Path) -> Machine:
    cache.mkdir(parents=True, exist_ok=True)
    shim = compile_shim(cache.resolve())
    if shim is not None:
        os.environ["LD_PRELOAD"] = str(shim)
        multiprocessing.forkserver.ensure_running()
        del os.environ["LD_PRELOAD"]
    found = find_pgbouncer(cache.resolve() / "pgbouncer")
    return Machine(directory=directory, shim=shim, pgbouncer=found, disks=can_mount(directory))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
