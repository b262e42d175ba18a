"""Two writers append to one dataset at the same time."""

import logging
import multiprocessing
import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import lakelog
from lakelog.spark import session

RATINGS = "demo_ratings"
WRITERS = ("anna", "ben")
SPARK = {"spark.driver.memory": "512m", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}

_APPENDS = 3
_ROWS = 1000
_PATIENCE = 120.0
"""Seconds that a writer waits for the other one to be ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """How a writer fared."""

    writer: str
    versions: list[int]
    rows: int
    lost: list[str]
    """What the log said when another commit came first."""


def race(url: str, root: str, *, processes: bool) -> list[Finish]:
    """Lets this process append together with another one, or with a thread where a catalog belongs to one process."""
    mine, other = WRITERS
    pool, barrier = _other(processes)
    with pool:
        future = pool.submit(append, url, root, other)
        future.add_done_callback(lambda _: barrier.abort())
        _meet_at(barrier)
        try:
            return [append(url, root, mine), future.result()]
        except threading.BrokenBarrierError:
            future.result()
            raise


def append(url: str, root: str, writer: str) -> Finish:
    """Appends a few times. A lost race is tried again: the rows are written once, the commit comes later."""
    spark = session("lakelog-demo", master="local[1]", config=SPARK)
    ratings = spark.range(_ROWS).selectExpr(f"'{writer}' AS writer", "id AS product", "CAST(id % 5 AS INT) AS stars")
    with lakelog.connect(url, root) as lake, _lost_races() as lost:
        _ready.wait(_PATIENCE)
        results = [
            lakelog.write_dataset(lake, RATINGS, ratings, retries=10, committer=writer, spark=spark)
            for _ in range(_APPENDS)
        ]
    return Finish(
        writer=writer,
        versions=[result.version for result in results],
        rows=sum(result.rows for result in results),
        lost=lost,
    )


def _other(processes: bool) -> tuple[Executor, Any]:
    """Where the other writer runs, and where both meet."""
    if not processes:
        barrier = threading.Barrier(len(WRITERS))
        return ThreadPoolExecutor(1, initializer=_meet_at, initargs=(barrier,)), barrier
    # A fork would share the Java of this process.
    context = multiprocessing.get_context("spawn")
    shared = context.Barrier(len(WRITERS))
    return ProcessPoolExecutor(1, mp_context=context, initializer=_meet_at, initargs=(shared,)), shared


def _meet_at(barrier: Any) -> None:
    global _ready  # noqa: PLW0603
    _ready = barrier


_ready: Any = None


class _Listener(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.heard: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        if record.thread == self._thread:
            self.heard.append(record.getMessage())


@contextmanager
def _lost_races() -> Iterator[list[str]]:
    """What this thread logs about races that it lost."""
    logger, listener = logging.getLogger("lakelog.retry"), _Listener()
    logger.addHandler(listener)
    logger.setLevel(logging.INFO)
    try:
        yield listener.heard
    finally:
        logger.removeHandler(listener)
