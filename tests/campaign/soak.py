"""A soak: thousands of commits and snapshots in one process, which must not need ever more of anything."""

import gc
import random
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from lakelog import SqlTxnLogWriter, connect
from lakelog.actions import AddFile, RemoveFile

GROWTH_MB = 64
"""By which memory may grow from a tenth of the way to the end."""
DESCRIPTORS = 8
THREADS = 2


def soak(directory: Path, *, commits: int, snapshots: int, url: str | None = None, seed: int = 1) -> dict[str, Any]:
    """Runs it, and returns what it measured, with ``findings``."""
    directory.mkdir(parents=True)
    rng = random.Random(seed)
    began = time.monotonic()
    early: dict[str, int] = {}
    with connect(url or f"sqlite:///{directory}/catalog.db", root=directory / "lake") as lake:
        events = lake.create_dataset("events", pa.schema([("id", pa.int64())]))
        writer = SqlTxnLogWriter(lake)
        live: list[str] = []
        every = max(commits // snapshots, 1)
        for number in range(commits):
            path = f"{number}.parquet"
            added = AddFile(path=path, size=1, modification_time=0, stats='{"numRecords":1}')
            removed = [RemoveFile(path=live.pop(rng.randrange(len(live))))] if len(live) > 200 else []
            writer.commit(events.id, number + 1, [*removed, added], operation="WRITE")
            live.append(path)
            if number % every == 0:
                chosen = None if rng.random() < 0.7 else rng.randrange(number + 2)
                found = events.snapshot(chosen).files(columns=["path"])
                if chosen is None and found.num_rows != len(live):
                    return {"findings": [f"soak: {found.num_rows} files are live, not {len(live)}"]}
            if number == commits // 10:
                early = measure()
        late = measure()
        version = events.version
    seconds = time.monotonic() - began
    findings = [
        f"soak: {name} went from {early[name]} to {late[name]}"
        for name, allowed in (("megabytes", GROWTH_MB), ("descriptors", DESCRIPTORS), ("threads", THREADS))
        if late[name] > early[name] + allowed
    ]
    if version != commits:
        findings.append(f"soak: the head is {version} after {commits} commits")
    return {
        "commits": commits,
        "snapshots": snapshots,
        "seconds": round(seconds),
        **{f"{name}, at a tenth and at the end": f"{early[name]}, {late[name]}" for name in late},
        "findings": findings,
    }


def measure() -> dict[str, int]:
    """What this process holds."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "megabytes": pages * 4096 >> 20,
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
    }
