"""What the mirror to ``_delta_log`` costs a small commit when it is written with it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

from bench.lab import Lab, new_dataset
from bench.measure import Figure, Sample, Target, in_turns
from bench.workload import add_file
from lakelog import Lake, SqlTxnLogWriter

NAME = "mirror of a one-file commit"
ADDED = (Target(at_most=3),)


def measure(lab: Lab, backend: str) -> list[Figure]:
    scale = lab.scale
    with lab.place(backend).connect() as plain, lab.place(backend).connect("sync") as mirrored:
        systems = {
            "without": _commits(plain, scale.commits),
            "mirrored": _commits(mirrored, scale.commits),
            "mirrored, no fsync": _without_fsync(_commits(mirrored, scale.commits, "unsynced")),
        }
        for warm_up in systems.values():
            warm_up()
        samples = in_turns(systems, scale.rounds)

    def added(what: str, subject: str, targets: tuple[Target, ...] = ()) -> Figure:
        pairs = zip(samples[what].values, samples["without"].values, strict=True)
        return Figure(
            subject=f"{NAME}: {subject}",
            backend=backend,
            what="added",
            unit="ms",
            sample=Sample(tuple(one - other for one, other in pairs)),
            targets=targets if scale.full else (),
        )

    return [
        added("mirrored, no fsync", "added, fsync aside", ADDED),
        added("mirrored", "added, with fsync"),
    ]


def _commits(lake: Lake, commits: int, prefix: str = "round") -> Callable[[], float]:
    """The median time of a commit, in milliseconds."""
    adds = [add_file(file) for file in range(commits)]
    writer = SqlTxnLogWriter(lake)
    rounds = 0

    def run() -> float:
        nonlocal rounds
        rounds += 1
        table_id = new_dataset(lake, f"{prefix} {rounds}").id
        times = []
        for version, add in enumerate(adds, start=1):
            started = time.perf_counter()
            writer.commit(table_id, version, [add])
            times.append(time.perf_counter() - started)
        return sorted(times)[len(times) // 2] * 1000

    return run


def _without_fsync(run: Callable[[], float]) -> Callable[[], float]:
    def unsynced() -> float:
        with _no_fsync():
            return run()

    return unsynced


@contextmanager
def _no_fsync() -> Iterator[None]:
    with mock.patch("lakelog.storage.log_store.os.fsync"):
        yield
