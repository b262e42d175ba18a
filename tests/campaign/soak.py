"""A soak: thousands of commits and snapshots in one process, which must not need ever more of anything."""

import gc
import json
import random
import sys
import threading
import time
from array import array
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakelog import Dataset, SqlTxnLogWriter, connect
from lakelog.actions import AddFile, RemoveFile
from tests.campaign.history import Digest

GROWTH = {"megabytes": 16, "peak megabytes": 16, "descriptors": 4, "threads": 2}
"""By how much each may grow in the second half."""

_LIVE = 200
"""Files, at most."""

_FORGETFUL = {"delta.deletedFileRetentionDuration": "interval 0 seconds"}
"""A checkpoint holds every file that was removed in this time, which is a week otherwise, and needs memory for them."""


def soak(directory: Path, *, commits: int, snapshots: int, url: str, seed: int = 1) -> dict[str, Any]:
    """Runs it on an empty catalog, and returns what it measured, with ``findings``."""
    directory.mkdir(parents=True)
    rng = random.Random(seed)
    began = time.monotonic()
    findings: list[str] = []
    half: dict[str, int] = {}
    with connect(url, root=directory / "lake") as lake:
        events = lake.create_dataset("events", pa.schema([("id", pa.int64())]), properties=_FORGETFUL)
        writer = SqlTxnLogWriter(lake)
        live: list[str] = []
        # What each version has, in memory that is there from the start and so is no growth.
        counts, totals = (array("Q", bytes(8 * (commits + 1))) for _ in range(2))
        digest = Digest()
        every = max(commits // snapshots, 1)
        for number in range(commits):
            path = f"{number}.parquet"
            added = AddFile(path=path, size=1, modification_time=0, stats='{"numRecords":1}')
            gone = [live.pop(rng.randrange(len(live)))] if len(live) > _LIVE else []
            writer.commit(events.id, number + 1, [*(RemoveFile(path=each) for each in gone), added], operation="WRITE")
            live.append(path)
            digest = digest.minus(gone).plus([path])
            counts[number + 1], totals[number + 1] = digest.count, digest.total
            if number % every == 0:
                asked = None if rng.random() < 0.7 else rng.randrange(number + 2)
                version = number + 1 if asked is None else asked
                findings += _compare(events, version, asked, Digest(counts[version], totals[version]))
            if number == commits // 2:
                half = measure()
        end = measure()
        if events.version != commits:
            findings.append(f"the head is {events.version} after {commits} commits")
    findings += [
        f"{name} went from {half[name]} at half of the way to {end[name]}"
        for name, allowed in GROWTH.items()
        if end[name] > half[name] + allowed
    ]
    return {
        "commits": commits,
        "snapshots": len(range(0, commits, every)),
        "seconds": round(time.monotonic() - began),
        **{f"{name}, at half and at the end": f"{half[name]}, {end[name]}" for name in end},
        "findings": [f"soak: {each}" for each in findings[:20]],
    }


def _compare(events: Dataset, version: int, asked: int | None, expected: Digest) -> list[str]:
    """The files of a version, or of the head where none is asked for."""
    paths = events.snapshot(asked).files(columns=["path"]).column("path").to_pylist()
    if Digest.of(paths) == expected:
        return []
    return [f"version {version} has {len(paths)} files, which are not the {expected.count} that were committed"]


def measure() -> dict[str, int]:
    """What this process holds, and the most memory that it ever had."""
    gc.collect()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {
        "megabytes": int(status["VmRSS"].split()[0]) >> 10,
        "peak megabytes": int(status["VmHWM"].split()[0]) >> 10,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
    }


def _main(directory: str, commits: str, url: str) -> None:
    """In a process of its own: what a campaign has done before is no measure."""
    print(json.dumps(soak(Path(directory), commits=int(commits), snapshots=max(int(commits) // 5, 1), url=url)))


if __name__ == "__main__":
    _main(*sys.argv[1:])
