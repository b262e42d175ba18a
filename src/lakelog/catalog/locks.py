"""Locks that keep their order: whoever waits longest is next, so that no writer starves."""

import fcntl
import heapq
import os
import queue
import threading
from pathlib import Path
from weakref import WeakSet, finalize

from lakelog.errors import LakelogError
from lakelog.threads import Worker


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
            if timeout <= 0:
                return False
            turn = threading.Lock()
            turn.acquire()
            self._arrivals += 1
            ticket = (max(self._arrivals, self._standing_back.pop(me, 0)), self._arrivals, turn)
            heapq.heappush(self._waiting, ticket)
        try:
            if turn.acquire(timeout=timeout):
                self.owner = me
                return True
        except BaseException:
            self._give_up(ticket)
            raise
        self._give_up(ticket)
        return False

    def _give_up(self, ticket: tuple[int, int, threading.Lock]) -> None:
        with self._guard:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
                heapq.heapify(self._waiting)
                return
        # The lock was handed over meanwhile: pass it on.
        self.release()

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


class Descriptor:
    """A file that is open for its ``flock``. A forked child, which would share the lock, closes it at once."""

    def __init__(self, path: Path) -> None:
        self.number: int | None = None
        self.number = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        _descriptors.add(self)

    def lock(self) -> None:
        if self.number is not None:
            fcntl.flock(self.number, fcntl.LOCK_EX)

    def try_lock(self) -> bool:
        if self.number is None:
            return False
        try:
            fcntl.flock(self.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def unlock(self) -> None:
        if self.number is not None:
            fcntl.flock(self.number, fcntl.LOCK_UN)

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        number, self.number = self.number, None
        if number is not None:
            os.close(number)


_descriptors: WeakSet[Descriptor] = WeakSet()


def _close_inherited() -> None:
    for descriptor in list(_descriptors):
        descriptor.close()


os.register_at_fork(after_in_child=_close_inherited)


class FileLock:
    """An exclusive ``flock`` between processes, with a timeout.

    Not for several threads at once: a ``FairLock`` stands before it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: Descriptor | None = None
        self._waiter: _Waiter | None = None

    def try_acquire(self) -> bool:
        if self._waiter is not None and self._waiter.pending:
            return False
        if self._descriptor is None or self._descriptor.number is None:
            self._descriptor = Descriptor(self._path)
        return self._descriptor.try_lock()

    def acquire(self, timeout: float) -> bool:
        if self.try_acquire():
            return True
        if self._waiter is None:
            assert self._descriptor is not None
            self._waiter = _Waiter(self._descriptor)
            # Of a lake that nobody closes, too, the thread ends.
            finalize(self, self._waiter.stop)
        return self._waiter.wait(timeout)

    def release(self) -> None:
        if self._descriptor is not None:
            self._descriptor.unlock()

    def forget(self) -> None:
        """Closes the file: at the end, or in a forked child."""
        if self._waiter is not None:
            self._waiter.stop()
        elif self._descriptor is not None:
            self._descriptor.close()
        self._waiter = self._descriptor = None


class _Waiter:
    """A thread that waits for a ``flock``, which itself knows no timeout.

    A lock that is granted when nobody wants it any more is given back at once; who comes before that takes the place.
    """

    def __init__(self, descriptor: Descriptor) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._granted = threading.Semaphore(0)
        self._guard = threading.Lock()
        self._wanted = False
        self.pending = False
        self._thread = Worker(self._run)

    def wait(self, timeout: float) -> bool:
        """Whether the lock was granted in time. Raises ``RuntimeError`` if no thread can start for it."""
        self._thread.start()
        try:
            with self._guard:
                self._wanted = True
                if not self.pending:
                    self.pending = True
                    self._asked.put(True)
            if self._granted.acquire(timeout=max(timeout, 0)):
                return True
        except BaseException:
            if self._gives_up():
                self._descriptor.unlock()
            raise
        return self._gives_up()

    def _gives_up(self) -> bool:
        """Whether the lock came at the last moment."""
        with self._guard:
            self._wanted = False
            return self._granted.acquire(blocking=False)

    def stop(self) -> None:
        if self._process == os.getpid():
            self._asked.put(False)

    def _run(self) -> None:
        while self._asked.get():
            self._descriptor.lock()
            with self._guard:
                self.pending = False
                if self._wanted:
                    self._wanted = False
                    self._granted.release()
                else:
                    self._descriptor.unlock()
        self._descriptor.close()


def refuse_own_wait(owner: int | None, what: str) -> None:
    """Raises if this thread itself holds what it is about to wait for."""
    if owner == threading.get_ident():
        raise LakelogError(
            f"this thread already has an open transaction that holds {what}, and would wait for itself: "
            "commit or roll back that one first"
        )
