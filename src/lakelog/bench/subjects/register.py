"""Parquet files that exist become a dataset."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.fs as pf
import pyarrow.parquet as pq

from lakelog.bench.lab import Lab
from lakelog.bench.measure import Figure, Target, in_turns, seconds
from lakelog.bench.small_files import loose_files

NAME = "files registered"
TIME = (Target(at_most=3),)
DAYS = 300
THREADS = 16


def measure(lab: Lab, backend: str) -> list[Figure]:
    count = lab.scale.large
    root = lab.directory / f"loose-{count}"
    if not root.exists():
        loose_files(root, count, DAYS)
    samples = in_turns({"footers": _footers(root), "lakelog": _lakelog(lab, backend, root)}, lab.scale.rounds)
    return [
        Figure(
            subject=f"{count:,} {NAME}",
            backend=backend,
            what="time",
            unit="s",
            sample=samples["lakelog"],
            limit=samples["footers"],
            against="footers",
            targets=TIME if lab.scale.full else (),
        )
    ]


def _lakelog(lab: Lab, backend: str, root: Path) -> Callable[[], float]:
    def run() -> float:
        # A location belongs to one dataset of a catalog for ever.
        with lab.place(backend).connect() as lake:
            return seconds(lambda: lake.register_parquet(root / "**" / "*.parquet", "events", ["day"]))

    return run


def _footers(root: Path) -> Callable[[], float]:
    """What pyarrow has to do for the same files, and nothing with what it finds."""
    local = pf.LocalFileSystem()
    paths = [str(path) for path in sorted(root.rglob("*.parquet"))]

    def read(part: list[str]) -> int:
        rows = 0
        for path in part:
            with local.open_input_file(path) as opened:
                rows += pq.ParquetFile(opened).metadata.num_rows
        return rows

    def run() -> None:
        parts = [paths[start : start + 64] for start in range(0, len(paths), 64)]
        with ThreadPoolExecutor(THREADS) as pool:
            assert sum(pool.map(read, parts)) == len(paths) * 10

    return lambda: seconds(run)
