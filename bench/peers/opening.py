"""A table opened by a process that knows nothing of it, up to the first plan: ten of its files, by a number column."""

import importlib
import json
import subprocess
import sys
import time
from dataclasses import asdict
from functools import partial

from bench.lab import Lab, Place
from bench.measure import in_turns
from bench.peers.grown import grown
from bench.peers.planning import BY_NUMBER, MOST, planning
from bench.peers.systems import DELTA_RS, DUCKLAKE, PYICEBERG, Spot, spots
from bench.readings import LAKELOG, Reading

SUBJECT = "opening"
COLD = "opened in a new process, and ten files found"
GOALS = ()
_MODULES = {LAKELOG: "lakelog", DUCKLAKE: "duckdb", DELTA_RS: "deltalake", PYICEBERG: "pyiceberg.catalog.sql"}
"""What a process has imported before the time counts, as Lakelog is by being here."""


def measure(lab: Lab) -> list[Reading]:
    sizes = (1_000, 10_000, 100_000) if lab.scale.full else (1_000,)
    return [reading for size in sizes for reading in _at(lab, size)]


def _at(lab: Lab, size: int) -> list[Reading]:
    tables = [
        grown(lab, spot.system, spot.backend, size)
        for spot in spots(lab, [LAKELOG, DUCKLAKE, DELTA_RS, PYICEBERG])
        if size <= MOST.get(spot.system, size) and (spot.system != PYICEBERG or spot.backend == "sqlite")
    ]
    samples = in_turns({spot.name: partial(_cold, spot) for spot in tables}, min(lab.scale.rounds, 5))
    return [
        Reading(
            subject=SUBJECT,
            what=COLD,
            system=spot.system,
            database=spot.database,
            unit="ms",
            size=size,
            sample=samples[spot.name],
        )
        for spot in tables
    ]


def _cold(spot: Spot) -> float:
    command = [sys.executable, "-c", f"import {__name__} as opening; opening.main()", json.dumps(asdict(spot))]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def main() -> None:
    """In a process of its own: prints the milliseconds."""
    found = json.loads(sys.argv[1])
    spot = Spot(found["system"], found["backend"], Place(**found["place"]))
    importlib.import_module(_MODULES[spot.system])
    started = time.perf_counter()
    with planning(spot) as plan:
        plan(100, BY_NUMBER)
        elapsed = time.perf_counter() - started
    print(elapsed * 1e3)
