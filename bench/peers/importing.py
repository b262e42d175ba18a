"""A Delta log of a thousand commits taken over, with its history. delta-rs reads its newest state."""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from bench.lab import Lab, new_dataset
from bench.measure import in_turns
from bench.peers.systems import DELTA_RS, TABLE, Spot, spots
from bench.readings import LAKELOG, Reading
from bench.workload import add_file
from lakelog import SqlTxnLogWriter

SUBJECT = "importing"
COMMITS = "commits of a Delta log imported"
GOALS = ()


def measure(lab: Lab) -> list[Reading]:
    size = 1_000 if lab.scale.full else 100
    log = _delta_log(lab, size)
    wanted = spots(lab, [LAKELOG, DELTA_RS])
    readers: dict[str, Callable[[], float]] = {
        spot.name: partial(_import, lab, spot, log) if spot.system == LAKELOG else partial(_open, log)
        for spot in wanted
    }
    samples = in_turns(readers, 3 if lab.scale.full else 1)
    return [
        Reading(
            subject=SUBJECT,
            what=COMMITS,
            system=spot.system,
            database=spot.database,
            unit="s",
            size=size,
            sample=samples[spot.name],
            note="opens it" if spot.system == DELTA_RS else "",
        )
        for spot in wanted
    ]


def _delta_log(lab: Lab, commits: int) -> Path:
    """A log as Lakelog's own mirror writes it, without checkpoints: one file for each commit."""
    place = lab.place("sqlite")
    with place.connect("manual") as lake:
        dataset, writer = new_dataset(lake, TABLE), SqlTxnLogWriter(lake)
        for version in range(1, commits):
            writer.commit(dataset.id, version, [add_file(version)])
        dataset.mirror()
    log = Path(dataset.location) / "_delta_log"
    for checkpoint in (*log.glob("*.parquet"), *log.glob("_last_checkpoint")):
        checkpoint.unlink()
    assert len(list(log.glob("*.json"))) == commits
    return Path(dataset.location)


def _import(lab: Lab, spot: Spot, location: Path) -> float:
    with lab.place(spot.backend).connect() as lake:
        started = time.perf_counter()
        lake.import_delta(location, TABLE)
        return time.perf_counter() - started


def _open(location: Path) -> float:
    from deltalake import DeltaTable

    started = time.perf_counter()
    assert len(DeltaTable(location).file_uris()) > 0
    return time.perf_counter() - started
