"""A one-file commit to a table with thousands of versions and live files, beside one to an empty table."""

import statistics
from functools import partial

from bench.filled import DATASET, filled_place
from bench.lab import Lab, new_dataset
from bench.measure import Figure, Sample, Target, seconds
from bench.workload import add_file
from lakelog import Lake, SqlTxnLogWriter

NAME = "one-file commit"
TARGETS = (Target(at_most=1.2, ratio=True),)


def measure(lab: Lab, backend: str) -> list[Figure]:
    scale = lab.scale
    with filled_place(lab, backend).connect() as lake:
        # The first round is not counted: what it prepares and loads is paid once.
        rounds = [_round(lake, number, scale.live, scale.commits // 4) for number in range(scale.rounds + 1)][1:]
    grown, empty = (Sample(tuple(times)) for times in zip(*rounds, strict=True))
    return [
        Figure(
            subject=NAME,
            backend=backend,
            what=f"at {scale.versions:,} versions and {scale.live:,} files",
            unit="ms",
            sample=grown,
            limit=empty,
            against="empty",
            targets=TARGETS if scale.full else (),
        )
    ]


def _round(lake: Lake, number: int, live: int, commits: int) -> tuple[float, float]:
    """The median milliseconds of a commit to the grown table and to a new one, in turns."""
    writer = SqlTxnLogWriter(lake)
    tables = lake.dataset(DATASET), new_dataset(lake, f"empty {number}")
    times: tuple[list[float], list[float]] = ([], [])
    versions = [table.version for table in tables]
    for commit in range(commits):
        # Files that no other subject looks for.
        add = add_file(live + number * commits + commit)
        for which in (0, 1) if commit % 2 else (1, 0):
            versions[which] += 1
            table_id, version = tables[which].id, versions[which]
            elapsed = seconds(partial(writer.commit, table_id, version, [add]))
            times[which].append(elapsed * 1000)
    return statistics.median(times[0]), statistics.median(times[1])
