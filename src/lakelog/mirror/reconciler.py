"""A thread that does what was left undone: tables that could not be published, checkpoints that are due."""

import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable

from lakelog.threads import Worker

_log = logging.getLogger("lakelog.mirror")

_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 60.0
"""Seconds between two attempts at the same table."""

_DOUBLINGS = 16
"""Of the first pause, at most; the longest is reached before. More would leave what a float can hold."""


class Reconciler:
    """Calls ``work`` for tables, one at a time, and again with longer and longer pauses while it says that it failed.

    The thread starts when there is something to do. With ``sweep``, it also asks for tables to do every ``interval``
    seconds, so that what other processes left is done, too.
    """

    def __init__(
        self,
        work: Callable[[int], bool],
        *,
        sweep: Callable[[], Iterable[int]] | None = None,
        interval: float = 30.0,
        patience: float = 10.0,
    ) -> None:
        """``patience`` is how many seconds ``close`` waits for work that has begun."""
        # Weak, so that the thread does not keep a lake that nobody has any more.
        self._work = weakref.WeakMethod(work)
        self._sweep = None if sweep is None else weakref.WeakMethod(sweep)
        self._interval = interval
        self._patience = patience
        self._closing = False
        self._reset()

    def _reset(self) -> None:
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._due: dict[int, float] = {}
        self._attempts: dict[int, int] = {}
        self._next_sweep = time.monotonic()
        self._thread = Worker(self._run)

    def start(self) -> None:
        if os.getpid() != self._process:
            # A forked child has the parent's plans but not its thread.
            self._reset()
        if self._closing:
            return
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as error:
            # What is due stays so until a later call finds room for a thread.
            _log.warning("the mirror's thread cannot start, and is tried again with the next commit: %s", error)

    def wake(self, table_id: int) -> None:
        """Does a table soon. After a failure, not before its pause is over."""
        self.start()
        with self._changed:
            self._due.setdefault(table_id, time.monotonic())
            self._changed.notify()

    def retry(self, table_id: int) -> None:
        """Does a table after a pause that grows with each failure."""
        self.start()
        with self._changed:
            self._postpone(table_id)
            self._changed.notify()

    def close(self) -> None:
        """Does what is due for the first time, and ends. What has failed before is left to the next lake."""
        if self._due and os.getpid() == self._process:
            self.start()
        self._closing = True
        if os.getpid() != self._process or self._thread.is_current or not self._thread.is_alive:
            return
        with self._changed:
            self._due = {table: due for table, due in self._due.items() if table not in self._attempts}
            self._changed.notify()
        self._thread.join(self._patience)

    def _run(self) -> None:
        while (table_id := self._next()) is not None:
            work = self._work()
            if work is None:
                return
            try:
                failed = work(table_id)
            except Exception:
                _log.warning("the mirror of table %s could not be worked on", table_id, exc_info=True)
                failed = True
            del work
            with self._changed:
                if not failed:
                    self._attempts.pop(table_id, None)
                elif not self._closing:
                    self._postpone(table_id)

    def _next(self) -> int | None:
        """Waits for a table that is due; None at the end."""
        while True:
            if self._sweep is not None and not self._closing and time.monotonic() >= self._next_sweep:
                sweep = self._sweep()
                if sweep is None:
                    return None
                self._look(sweep)
                del sweep
            with self._changed:
                now = time.monotonic()
                ready = min(self._due.items(), key=lambda item: item[1], default=None)
                if ready is not None and ready[1] <= now:
                    del self._due[ready[0]]
                    return ready[0]
                if self._closing:
                    return None
                times = [] if ready is None else [ready[1]]
                times += [] if self._sweep is None else [self._next_sweep]
                self._changed.wait(max(min(times) - now, 0.001) if times else None)

    def _look(self, sweep: Callable[[], Iterable[int]]) -> None:
        try:
            found = list(sweep())
        except Exception:
            _log.warning("could not ask for unpublished tables", exc_info=True)
            found = []
        with self._changed:
            self._next_sweep = time.monotonic() + self._interval * random.uniform(0.8, 1.2)
            for table_id in found:
                self._due.setdefault(table_id, time.monotonic())

    def _postpone(self, table_id: int) -> None:
        attempt = self._attempts[table_id] = self._attempts.get(table_id, 0) + 1
        pause = min(_FIRST_PAUSE * 2 ** min(attempt - 1, _DOUBLINGS), _LONGEST_PAUSE) * random.uniform(0.5, 1.0)
        self._due[table_id] = time.monotonic() + pause
