"""Locks that keep their order: whoever waits longest is next, so that no writer starves."""

import fcntl
import heapq
import os
import queue
import threading
import time
from contextlib import suppress
from pathlib import Path

from lakelog.errors import LakelogError

_TURN = 0.004
"""Seconds that a turn lasts: long enough for a few tries, since handing it over costs as much as one."""

_PAUSE = 0.002
"""Seconds after which a turn ends whose holder makes no try."""


class FairLock:
    """A mutex between threads that is handed over in order of arrival, with a timeout.

    A holder that got what it wanted says so (``served``) and then stands back until everyone who was waiting has had
    the time to come once more: with a new head they all lose the race that they are waiting for, and would for ever
    queue up again behind the winner.

    It may be released by another thread than the one that holds it. ``owner`` is the holder.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._arrivals = 0
        self._waiting: list[tuple[int, int, threading.Lock]] = []
        self._standing_back: dict[int | None, int] = {}
        self.owner: int | None = None

    def acquire(self, timeout: float) -> bool:
        me = threading.get_ident()
        with self._guard:
            if not self._held:
                self._held = True
                self.owner = me
                return True
            turn = threading.Lock()
            turn.acquire()
            self._arrivals += 1
            ticket = (max(self._arrivals, self._standing_back.pop(me, 0)), self._arrivals, turn)
            heapq.heappush(self._waiting, ticket)
        if turn.acquire(timeout=max(timeout, 0)):
            self.owner = me
            return True
        with self._guard, suppress(ValueError):
            self._waiting.remove(ticket)
            heapq.heapify(self._waiting)
            return False
        # The lock was handed over between the timeout and the guard: pass it on.
        self.release()
        return False

    def release(self, *, served: bool = False) -> None:
        with self._guard:
            if self._waiting:
                if served:
                    self._standing_back[self.owner] = self._arrivals + len(self._waiting) + 2
                self.owner = None
                heapq.heappop(self._waiting)[-1].release()
            else:
                self.owner = None
                self._held = False
                self._standing_back.clear()


class FileLock:
    """An exclusive ``flock`` between processes, which the kernel grants in order of arrival, with a timeout.

    Not for several threads at once: a ``FairLock`` stands before it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None
        self._waiter: _Waiter | None = None

    def try_acquire(self) -> bool:
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def acquire(self, timeout: float) -> bool:
        if not self.try_acquire():
            assert self._descriptor is not None
            self._waiter = self._waiter or _Waiter(self._descriptor)
            if not self._waiter.wait(max(timeout, 0)):
                self._waiter = self._descriptor = None
                return False
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def forget(self) -> None:
        """Closes the descriptor: at the end, or in a forked child, where it must not stay shared."""
        if self._waiter is not None:
            self._waiter.stop()
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._waiter = self._descriptor = None


class _Waiter:
    """A thread that waits for a ``flock``, which itself knows no timeout.

    A wait that was given up ends as soon as the lock is granted, and gives it back at once.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._granted = threading.Semaphore(0)
        self._guard = threading.Lock()
        self._given_up = False
        threading.Thread(target=self._run, name="lakelog-flock", daemon=True).start()

    def wait(self, timeout: float) -> bool:
        """Whether the lock was granted in time. If not, the waiter and its descriptor must not be used again."""
        self._asked.put(True)
        if self._granted.acquire(timeout=timeout):
            return True
        with self._guard:
            self._given_up = not self._granted.acquire(blocking=False)
            return not self._given_up

    def stop(self) -> None:
        self._asked.put(False)

    def _run(self) -> None:
        while self._asked.get():
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            with self._guard:
                if self._given_up:
                    os.close(self._descriptor)
                    return
                self._granted.release()


class Turn:
    """Whose turn it is among processes that lost a race for the same file: in order of arrival, for a few tries each.

    Without it all of them learn of a new head at once, and all but one lose again. A turn ends after ``_TURN`` seconds,
    or sooner if its holder makes no try for ``_PAUSE`` seconds. It is a courtesy, not a lock: whoever does not ask
    is not held up, and nothing depends on it but speed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._asking = threading.Lock()
        self._taker: _Taker | None = None

    def take(self, timeout: float) -> None:
        """Waits until it is this process's turn, or the time is over."""
        # One thread at a time asks for the process: threads have their own order, by the fair lock.
        if self._asking.acquire(blocking=False):
            try:
                self._taker = self._taker or _Taker(os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600))
                if not self._taker.take(timeout):
                    self._taker = None
            finally:
                self._asking.release()

    @property
    def is_ours(self) -> bool:
        return self._taker is not None and self._taker.holds

    def try_begins(self) -> None:
        if (taker := self._taker) is not None:
            taker.trying = True

    def try_ends(self) -> None:
        if (taker := self._taker) is not None:
            taker.try_ends()

    def forget(self) -> None:
        """Closes what is open: at the end, or in a forked child."""
        if self._taker is not None:
            self._taker.stop()
        self._taker = None


class _Taker:
    """A thread that waits for a ``flock`` and keeps it until it is told to let go, or until its process is idle."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()
        self._words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._granted = threading.Semaphore(0)
        self._last = self._end = 0.0
        self.trying = False
        self.holds = False
        threading.Thread(target=self._run, name="lakelog-turn", daemon=True).start()

    def take(self, timeout: float) -> bool:
        """Whether it is our turn. If not, the taker ends by itself and must not be used again."""
        if self.holds:
            self._let_go()
        self._words.put("take")
        if self._granted.acquire(timeout=max(timeout, 0)):
            return True
        self.stop()
        return False

    def try_ends(self) -> None:
        self.trying = False
        self._last = time.monotonic()
        if self.holds and self._last > self._end:
            self._let_go()

    def stop(self) -> None:
        if self._process == os.getpid():
            self._words.put("stop")
        else:
            os.close(self._descriptor)

    def _let_go(self) -> None:
        self.holds = False
        self._words.put("let go")

    def _run(self) -> None:
        word = ""
        while word != "stop":
            word = self._words.get()
            if word == "take":
                fcntl.flock(self._descriptor, fcntl.LOCK_EX)
                word = self._hold()
                fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)

    def _hold(self) -> str:
        """Returns when the turn is over, with what was said."""
        self._last = time.monotonic()
        self._end = self._last + _TURN
        self.holds = True
        self._granted.release()
        while self.trying or time.monotonic() < self._last + _PAUSE:
            with suppress(queue.Empty):
                return self._words.get(timeout=_PAUSE)
        self.holds = False
        return ""


class Deadline:
    """A point in time that several waits share."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return max(self._end - time.monotonic(), 0.0)

    @property
    def passed(self) -> bool:
        return time.monotonic() >= self._end


def refuse_own_wait(owner: int | None, what: str) -> None:
    """Raises if this thread itself holds what it is about to wait for."""
    if owner == threading.get_ident():
        raise LakelogError(
            f"this thread already has an open transaction that holds {what}, and would wait for itself: "
            "commit or roll back that one first"
        )
