"""How long a commit is unseen by Delta's readers: from its return to its file in ``_delta_log``."""

import time
from pathlib import Path

from bench.lab import Lab, new_dataset
from bench.measure import Sample
from bench.peers.systems import Spot, spots
from bench.readings import LAKELOG, Reading
from bench.workload import add_file
from lakelog import SqlTxnLogWriter

SUBJECT = "mirror lag"
ALONE, BURST = "one commit, mirrored in the background", "the last of many commits at once, in the background"
GOALS = ()
_PATIENCE = 60


def measure(lab: Lab) -> list[Reading]:
    return [reading for spot in spots(lab, [LAKELOG]) for reading in _lags(lab, spot)]


def _lags(lab: Lab, spot: Spot) -> list[Reading]:
    with spot.place.connect("background") as lake:
        dataset, writer = new_dataset(lake, "lag"), SqlTxnLogWriter(lake)
        log = Path(dataset.location) / "_delta_log"
        alone, burst, version = [], [], 0
        for _ in range(lab.scale.rounds * 3):
            version += 1
            writer.commit(dataset.id, version, [add_file(version)])
            alone.append(_wait_for(log, version))
        for _ in range(lab.scale.rounds):
            for _ in range(lab.scale.commits):
                version += 1
                writer.commit(dataset.id, version, [add_file(version)])
            burst.append(_wait_for(log, version))
    return [
        Reading(
            subject=SUBJECT,
            what=what,
            system=spot.system,
            database=spot.database,
            unit="ms",
            sample=Sample(tuple(values)),
            size=size,
        )
        for what, values, size in ((ALONE, alone, 1), (BURST, burst, lab.scale.commits))
    ]


def _wait_for(log: Path, version: int) -> float:
    """Milliseconds until a version's file is there."""
    file, started = log / f"{version:020}.json", time.perf_counter()
    while not file.exists():
        time.sleep(0.0002)
        assert time.perf_counter() < started + _PATIENCE, f"{file.name} was not mirrored"
    return (time.perf_counter() - started) * 1e3
