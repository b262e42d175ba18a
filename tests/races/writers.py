"""Writers that run against each other: real processes, or threads where a database belongs to one process."""

import multiprocessing
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from lakelog import SqlTxnLogWriter, VersionConflict
from tests.contract.samples import add
from tests.faults.children import DEADLINE, Child
from tests.fixtures.lakes import Place


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A commit that its writer was told about."""

    table: str
    version: int
    commit_id: str
    path: str
    moment: float
    """By the monotonic clock, which all processes share."""


@dataclass(frozen=True, slots=True)
class Finished:
    """What one writer did."""

    commits: list[Acknowledged]
    conflicts: int


def race(place: Place, tables: Sequence[str], commits: int) -> list[Finished]:
    """One writer for each of these names of tables. All begin at once, when the last of them has connected."""
    with ExitStack() as stack:
        start = _in_thread if place.backend == "duckdb" else _in_process
        writers = [
            stack.enter_context(start(_write, place, name, commits, f"writer-{number}"))
            for number, name in enumerate(tables)
        ]
        for receive, _ in writers:
            assert (answer := receive()) == "ready", answer
        for _, send in writers:
            send("go")
        finished = [receive() for receive, _ in writers]
    for each in finished:
        assert isinstance(each, Finished), each
    return finished


def _write(pipe: Any, place: Place, table: str, commits: int, name: str) -> None:
    """A strict optimistic caller: whoever loses reloads the head and tries again. Any other error ends the race."""
    try:
        with place.connect() as lake:
            dataset, writer = lake.dataset(table), SqlTxnLogWriter(lake)
            pipe.send("ready")
            pipe.recv()
            done: list[Acknowledged] = []
            conflicts = 0
            while len(done) < commits:
                path = f"{name}-{len(done):04}.parquet"
                try:
                    result = writer.commit(dataset.id, dataset.version + 1, [add(path)], committer=name)
                except VersionConflict:
                    conflicts += 1
                else:
                    done.append(Acknowledged(table, result.version, result.commit_id, path, time.monotonic()))
        pipe.send(Finished(done, conflicts))
    except Exception:
        with suppress(OSError):
            pipe.send(traceback.format_exc())


Ends = tuple[Callable[[], Any], Callable[[Any], None]]
"""How to hear from a writer, and how to talk to it."""


@contextmanager
def _in_process(target: Callable[..., None], *arguments: Any) -> Iterator[Ends]:
    with Child(target, *arguments) as child:
        yield child.receive, child.send


@contextmanager
def _in_thread(target: Callable[..., None], *arguments: Any) -> Iterator[Ends]:
    ours, theirs = multiprocessing.Pipe()
    thread = threading.Thread(target=target, args=(theirs, *arguments), daemon=True)
    thread.start()

    def receive() -> Any:
        assert ours.poll(DEADLINE), "the thread says nothing"
        return ours.recv()

    with theirs:
        # When a race fails, the closed end tells the threads that still wait or write.
        with ours:
            yield receive, ours.send
        thread.join(DEADLINE)
        assert not thread.is_alive(), "the thread does not end"
