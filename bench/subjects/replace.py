"""Thousands of files replaced by as many others in one commit, as a compaction or an overwrite does."""

import time
from collections.abc import Callable

import pyarrow as pa

from bench.lab import Lab, new_dataset
from bench.limits.base import Limit
from bench.measure import Figure, Target, in_turns
from bench.recorded import Rows, moved, recorded_rows, removes, with_values
from bench.same_rows import check_same_rows
from bench.workload import files, row_groups
from lakelog import AddFiles, Lake, RemoveFiles, SqlTxnLogWriter

NAME = "files replaced in one commit"
TARGETS = (Target(at_most=1.5),)
_OLD = "old/"


def measure(lab: Lab, backend: str) -> list[Figure]:
    return [_replace(lab, backend, groups=groups) for groups in (False, True)]


def _replace(lab: Lab, backend: str, *, groups: bool) -> Figure:
    count = lab.scale.large
    rows = recorded_rows(lab, count, groups=groups)
    by_hand, through_lakelog = lab.place(backend), lab.place(backend)
    connection = by_hand.limit(create=True)
    with through_lakelog.connect() as lake:
        systems = {"limit": limit(connection, rows), "lakelog": lakelog(lake, count, groups=groups)}
        samples = in_turns(systems, lab.scale.rounds)
    connection.close()
    check_same_rows([by_hand, through_lakelog], (*rows, "dl_remove_files"))
    return Figure(
        subject=f"{count:,} {NAME}",
        backend=backend,
        what="with row groups" if groups else "without row groups",
        unit="s",
        sample=samples["lakelog"],
        limit=samples["limit"],
        targets=TARGETS if lab.scale.full else (),
    )


def limit(connection: Limit, rows: Rows) -> Callable[[], float]:
    rounds = 0

    def run() -> float:
        nonlocal rounds
        rounds += 1
        table_id = connection.create_table(f"round {rounds}")
        old, new = moved(rows, table_id, 0), moved(rows, table_id, 1)
        paths = [_OLD + path for path in old["dl_add_files"].column("path").to_pylist()]
        old["dl_add_files"] = with_values(old["dl_add_files"], {"path": pa.array(paths)})
        connection.commit_many(table_id, -1, old)
        new["dl_remove_files"] = removes(old["dl_add_files"], 1)
        close = f"UPDATE dl_add_files SET removed_version = 1 WHERE table_id = {table_id} AND version = 0"
        started = time.perf_counter()
        connection.commit_many(table_id, 0, new, close)
        return time.perf_counter() - started

    return run


def lakelog(lake: Lake, count: int, *, groups: bool) -> Callable[[], float]:
    old, new = files(count, prefix=_OLD), files(count)
    removed = old.select(["path", "modification_time"]).rename_columns(["path", "deletion_timestamp"])
    old_groups, new_groups = (row_groups(count, prefix=_OLD), row_groups(count)) if groups else ((), ())
    writer = SqlTxnLogWriter(lake)
    rounds = 0

    def run() -> float:
        nonlocal rounds
        rounds += 1
        dataset = new_dataset(lake, f"round {rounds}")
        writer.commit(dataset.id, 1, [AddFiles(old)], row_groups=old_groups)
        started = time.perf_counter()
        writer.commit(dataset.id, 2, [RemoveFiles(removed), AddFiles(new)], row_groups=new_groups)
        elapsed = time.perf_counter() - started
        assert dataset.snapshot().files(columns=["path"]).num_rows == count
        return elapsed

    return run
