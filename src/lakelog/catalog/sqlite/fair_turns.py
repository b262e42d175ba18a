"""Turns: processes that lost a race for a SQLite file make their next tries one after another."""

import logging
import os
import queue
import threading
import time
from contextlib import suppress
from pathlib import Path
from weakref import finalize

from lakelog.catalog.locks import Descriptor
from lakelog.threads import Worker

_log = logging.getLogger("lakelog.catalog")

_TRIES = 4
"""How many tries a turn has: a few, since handing it over costs as much as one; counted, so that slow is no loss."""

_PAUSE = 0.005
"""Seconds after which a turn ends whose holder makes no try."""


class Turn:
    """Whose turn it is among processes that lost a race for the same file: in order of arrival, for a few tries each.

    Without it all of them learn of a new head at once, and all but one lose again. A turn ends after ``_TRIES`` tries,
    or sooner if its holder makes none for ``_PAUSE`` seconds. It is a courtesy, not a lock: whoever does not ask is
    not held up, and nothing depends on it but speed.
    """

    def __init__(self, database: Path) -> None:
        self._paths = [database.with_name(database.name + suffix) for suffix in ("-next", "-turn")]
        self._asking = threading.Lock()
        self._taker: _Taker | None = None
        self._closed = False

    def take(self, timeout: float) -> bool:
        """Waits until it is this process's turn, or the time is over. Whether others wait, too. Never fails."""
        # One thread at a time asks for the process: threads have their own order, by the fair lock.
        if self._closed or not self._asking.acquire(blocking=False):
            return False
        try:
            taker = self._taker
            if taker is None:
                taker = self._taker = _Taker(*map(Descriptor, self._paths))
                finalize(self, taker.stop)
            return taker.take(timeout)
        except (OSError, RuntimeError, MemoryError) as error:
            _log.warning("writers do not take turns: %s", error)
            return False
        finally:
            self._asking.release()

    @property
    def is_ours(self) -> bool:
        return (taker := self._taker) is not None and taker.holds

    def try_begins(self) -> None:
        if (taker := self._taker) is not None:
            taker.trying = True

    def try_ends(self) -> None:
        if (taker := self._taker) is not None:
            taker.try_ends()

    def forget(self) -> None:
        """Lets go for good: at the end, or in a forked child."""
        self._closed = True
        taker, self._taker = self._taker, None
        if taker is not None:
            taker.stop()


class _Taker:
    """A thread that waits for the turn and keeps it until it is told to let go, or until its process is idle.

    ``flock`` wakes who waits for it but does not hand itself over: whoever lets go could take it again at once. So the
    one who waits for the turn holds another lock meanwhile, which all who come later have to take first.
    """

    def __init__(self, next_in_line: Descriptor, turn: Descriptor) -> None:
        self._next_in_line = next_in_line
        self._turn = turn
        self._process = os.getpid()
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._granted = threading.Semaphore(0)
        self._pending = False
        self._wanted = False
        self._waited = False
        self._last = 0.0
        self._tries = 0
        self.trying = False
        self.holds = False
        self._thread = Worker(self._run)

    def take(self, timeout: float) -> bool:
        """Waits until it is our turn, or the time is over. Whether others wait, too."""
        self._thread.start()
        self._let_go()
        with self._guard:
            self._wanted = True
            if not self._pending:
                self._pending = True
                self._words.put("take")
        try:
            if self._granted.acquire(timeout=max(timeout, 0)):
                return self._waited
        finally:
            # A turn that comes when nobody wants it is passed on.
            with self._guard:
                self._wanted = False
                self._granted.acquire(blocking=False)
        return True

    def try_ends(self) -> None:
        self.trying = False
        self._last = time.monotonic()
        self._tries += 1
        if self._tries >= _TRIES:
            self._let_go()

    def stop(self) -> None:
        if self._process == os.getpid():
            self._words.put("stop")

    def _let_go(self) -> None:
        if self.holds:
            self._words.put("let go")
            self.holds = False

    def _run(self) -> None:
        word = ""
        while word != "stop":
            word = self._words.get()
            if word == "take":
                self._waited = not (self._next_in_line.try_lock() and self._turn.try_lock())
                if self._waited:
                    self._next_in_line.lock()
                    self._turn.lock()
                self._next_in_line.unlock()
                word = self._hold()
                self._turn.unlock()
        self._next_in_line.close()
        self._turn.close()

    def _hold(self) -> str:
        """Returns when the turn is over, with the last word."""
        with self._guard:
            self._pending = False
            if not self._wanted:
                return ""
            self._last = time.monotonic()
            self._tries = 0
            self.holds = True
            self._granted.release()
        word = ""
        while not word and (self.trying or time.monotonic() < self._last + _PAUSE):
            with suppress(queue.Empty):
                word = self._words.get(timeout=_PAUSE)
        self.holds = False
        if word == "take":
            # Somebody else's, in between.
            self._words.put(word)
            return ""
        return word
