"""Thousands of files with statistics, row groups and partitions in one commit: its time, and its memory."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.feather

from bench.lab import Lab, Place, new_dataset
from bench.limits.base import Limit
from bench.measure import Figure, Sample, Target, in_turns
from bench.recorded import Rows, moved, recorded_rows
from bench.same_rows import check_same_rows
from bench.workload import files, row_groups
from lakelog import AddFiles, Lake, SqlTxnLogWriter

NAME = "files in one commit"
TIME = (Target(at_most=1.5, ratio=True), Target(at_most=1.1))
HUGE_TIME = (Target(at_most=8),)
MEMORY = (Target(at_most=2, ratio=True),)


def measure(lab: Lab, backend: str) -> list[Figure]:
    return [_large(lab, backend), *_huge(lab, backend)]


def _large(lab: Lab, backend: str) -> Figure:
    count = lab.scale.large
    rows = recorded_rows(lab, count, groups=True)
    by_hand, through_lakelog = lab.place(backend), lab.place(backend)
    connection = by_hand.limit(create=True)
    with through_lakelog.connect() as lake:
        systems = {"limit": limit(connection, rows), "lakelog": lakelog(lake, files(count), row_groups(count))}
        samples = in_turns(systems, lab.scale.rounds)
    connection.close()
    check_same_rows([by_hand, through_lakelog], tuple(rows))
    return Figure(
        subject=f"{count:,} {NAME}",
        backend=backend,
        what="time",
        unit="s",
        sample=samples["lakelog"],
        limit=samples["limit"],
        targets=TIME if lab.scale.full else (),
    )


def limit(connection: Limit, rows: Rows) -> Callable[[], float]:
    rounds = 0

    def run() -> float:
        nonlocal rounds
        rounds += 1
        table_id = connection.create_table(f"round {rounds}")
        ready = moved(rows, table_id, 0)
        started = time.perf_counter()
        connection.commit_many(table_id, -1, ready)
        return time.perf_counter() - started

    return run


def lakelog(lake: Lake, adds: Any, groups: Any) -> Callable[[], float]:
    writer = SqlTxnLogWriter(lake)
    rounds = 0

    def run() -> float:
        nonlocal rounds
        rounds += 1
        table_id = new_dataset(lake, f"round {rounds}").id
        started = time.perf_counter()
        writer.commit(table_id, 1, [AddFiles(adds)], row_groups=groups)
        return time.perf_counter() - started

    return run


def _huge(lab: Lab, backend: str) -> list[Figure]:
    """In a process of its own for each repetition, since memory that was once used stays with a process."""
    count, scale = lab.scale.huge, lab.scale
    adds, groups = lab.directory / f"files-{count}.arrow", lab.directory / f"row-groups-{count}.arrow"
    if not adds.exists():
        pyarrow.feather.write_feather(files(count), adds, "uncompressed")
        pyarrow.feather.write_feather(row_groups(count), groups, "uncompressed")
    results = [_in_own_process(lab.place(backend), adds, groups) for _ in range(3 if scale.full else 1)]
    times, grown, inputs = (Sample(tuple(column)) for column in zip(*results, strict=True))
    common: dict[str, Any] = {"subject": f"{count:,} {NAME}", "backend": backend}
    return [
        Figure(**common, what="time", unit="s", sample=times, targets=HUGE_TIME if scale.full else ()),
        Figure(
            **common,
            what="growth of memory",
            unit="MB",
            sample=grown,
            limit=inputs,
            against="input",
            targets=MEMORY if scale.full else (),
        ),
    ]


def _in_own_process(place: Place, adds: Path, groups: Path) -> list[float]:
    arguments = [place.backend, place.address, place.schema, place.root, str(adds), str(groups)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.weigh", *arguments],
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(done.stdout)  # type: ignore[no-any-return]
