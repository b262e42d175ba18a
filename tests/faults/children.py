"""Processes that a test may kill. They are forked from a clean one that has only imported what they need."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Self

from lakelog import TransactionManager
from tests.fixtures.lakes import Place

DEADLINE = 60.0
"""Seconds after which a child is stuck."""

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "lakelog.catalog.duckdb.catalog",
        "lakelog.catalog.postgres.catalog",
        "lakelog.catalog.sqlite.catalog",
        "tests.faults.warm",
        "tests.fixtures.lakes",
    ]
)


class Child:
    """A running process, whose target gets the other end of a pipe and then the arguments.

    What it sent is received even if it was killed right after.
    """

    def __init__(self, target: Callable[..., None], *arguments: Any) -> None:
        self._pipe, theirs = _context.Pipe()
        self._process = _context.Process(target=target, args=(theirs, *arguments))
        self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join(DEADLINE)
        self._process.close()
        self._pipe.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal. None while the process runs."""
        return self._process.exitcode

    def receive(self) -> Any:
        """The next message. Raises ``EOFError`` when the process has ended without one."""
        assert self._pipe.poll(DEADLINE), "the child says nothing"
        return self._pipe.recv()

    def send(self, message: Any) -> None:
        self._pipe.send(message)

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def end(self) -> tuple[int, list[Any]]:
        """Waits for the end: the exit code, negative for a signal, and the messages that were not received."""
        found: list[Any] = []
        try:
            while True:
                found.append(self.receive())
        except (EOFError, ConnectionResetError):
            pass
        self._process.join(DEADLINE)
        assert self._process.exitcode is not None, "the child does not end"
        return self._process.exitcode, found


def run(target: Callable[..., None], *arguments: Any) -> tuple[int, list[Any]]:
    """A process from start to end: its exit code and messages."""
    with Child(target, *arguments) as child:
        return child.end()


def die() -> None:
    """Ends this process as a power cut would: nothing is flushed, closed or rolled back."""
    os.kill(os.getpid(), signal.SIGKILL)


def _hold(pipe: Connection, place: Place) -> None:
    with place.connect() as lake, TransactionManager(lake).begin(lake.dataset("events").id):
        pipe.send("holds")
        pipe.recv()


@contextmanager
def held_by_a_process(place: Place) -> Iterator[None]:
    """Another process has the lock of the dataset ``events``."""
    with Child(_hold, place) as holder:
        assert holder.receive() == "holds"
        yield
        holder.send("enough")
        assert holder.end() == (0, [])
