"""One-file commits by one writer."""

import time
from collections.abc import Callable, Sequence

from bench.lab import Lab, new_dataset
from bench.limits.base import FILE_TABLES, FileRows, Limit
from bench.measure import Figure, Target, in_turns
from bench.recorded import recorded_files
from bench.same_rows import check_same_rows
from bench.workload import add_file, path_of
from lakelog import Lake, SqlTxnLogWriter

NAME = "one-file commits, one writer"
TARGETS = {
    "postgres": (Target(at_least=0.6, ratio=True), Target(at_least=400)),
    "sqlite": (Target(at_least=0.6, ratio=True),),
}


def measure(lab: Lab, backend: str) -> list[Figure]:
    scale = lab.scale
    written = recorded_files(lab, scale.commits)
    by_hand, through_lakelog = lab.place(backend), lab.place(backend)
    limit_connection = by_hand.limit(create=True)
    with through_lakelog.connect() as lake:
        systems = {"limit": limit(limit_connection, written), "lakelog": lakelog(lake, scale.commits)}
        for warm_up in systems.values():
            warm_up()
        samples = in_turns(systems, scale.rounds)
    limit_connection.close()
    check_same_rows([by_hand, through_lakelog], FILE_TABLES)
    return [
        Figure(
            subject=NAME,
            backend=backend,
            what="commits",
            unit="/s",
            sample=samples["lakelog"],
            limit=samples["limit"],
            targets=TARGETS.get(backend, ()) if scale.full else (),
        )
    ]


def limit(connection: Limit, written: Sequence[FileRows]) -> Callable[[], float]:
    paths = [path_of(file) for file in range(len(written))]
    rounds = 0

    def run() -> float:
        nonlocal rounds
        rounds += 1
        table_id = connection.create_table(f"round {rounds}")
        started = time.perf_counter()
        for version, (path, file) in enumerate(zip(paths, written, strict=True)):
            assert connection.commit(table_id, version - 1, path, file)
        return len(paths) / (time.perf_counter() - started)

    return run


def lakelog(lake: Lake, commits: int) -> Callable[[], float]:
    adds = [add_file(file) for file in range(commits)]
    writer = SqlTxnLogWriter(lake)
    rounds = 0

    def run() -> float:
        nonlocal rounds
        rounds += 1
        table_id = new_dataset(lake, f"round {rounds}").id
        started = time.perf_counter()
        for version, add in enumerate(adds, start=1):
            writer.commit(table_id, version, [add])
        return len(adds) / (time.perf_counter() - started)

    return run
