"""Parquet files that exist become a dataset."""

from collections.abc import Callable
from pathlib import Path

from bench.lab import Lab
from bench.measure import Figure, Target, in_turns, seconds
from bench.small_files import loose_files, read_footers

NAME = "files registered"
TIME = (Target(at_most=3),)
DAYS = 300


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
    paths = [str(path) for path in sorted(root.rglob("*.parquet"))]
    return lambda: seconds(lambda: read_footers(paths))
