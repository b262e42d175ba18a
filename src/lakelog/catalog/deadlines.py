"""Points in time by which waits end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Deadline:
    """A point in time that several waits share."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(self._end - time.monotonic(), 0.0)

    def postpone(self, seconds: float) -> None:
        self._end += seconds

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._end


_shared: ContextVar[Deadline | None] = ContextVar("lakelog_deadline", default=None)


@contextmanager
def sharing(seconds: float) -> Iterator[Deadline]:
    """Makes the waits of a block end after so many seconds in all, also those that have a limit of their own."""
    deadline = Deadline(limited(seconds))
    token = _shared.set(deadline)
    try:
        yield deadline
    finally:
        _shared.reset(token)


def limited(seconds: float) -> float:
    """What is left of so many seconds for a wait that begins now."""
    shared = _shared.get()
    return seconds if shared is None else min(seconds, shared.left)


@contextmanager
def uncounted() -> Iterator[None]:
    """Leaves the time that a block takes, which waits for nobody, out of the limit that the waits around it share."""
    began = time.monotonic()
    try:
        yield
    finally:
        if (shared := _shared.get()) is not None:
            shared.postpone(time.monotonic() - began)
