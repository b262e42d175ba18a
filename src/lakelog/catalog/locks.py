"""Locks that keep their order: whoever waits longest is next, so that no writer starves."""

import fcntl
import os
import threading
import time
from collections import deque
from contextlib import suppress
from pathlib import Path

from lakelog.errors import LakelogError


class FairLock:
    """A mutex between threads that is handed over in order of arrival, with a timeout.

    It may be released by another thread than the one that holds it. ``owner`` is the holder.
    """

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._held = False
        self._waiting: deque[threading.Lock] = deque()
        self.owner: int | None = None

    def acquire(self, timeout: float) -> bool:
        with self._guard:
            if not self._held:
                self._held = True
                self.owner = threading.get_ident()
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        if turn.acquire(timeout=max(timeout, 0)):
            self.owner = threading.get_ident()
            return True
        with self._guard, suppress(ValueError):
            self._waiting.remove(turn)
            return False
        # The lock was handed over between the timeout and the guard: pass it on.
        self.release()
        return False

    def release(self) -> None:
        with self._guard:
            self.owner = None
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._held = False


class FileLock:
    """An exclusive ``flock`` between processes, which the kernel grants in order of arrival, with a timeout.

    ``flock`` itself knows no timeout, so a wait happens in a thread. A wait that was given up ends as soon as the
    lock is granted, and releases it at once.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def acquire(self, timeout: float) -> bool:
        descriptor = (
            os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600) if self._descriptor is None else self._descriptor
        )
        self._descriptor = descriptor
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return self._wait(descriptor, timeout)
        return True

    def release(self) -> None:
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def forget(self) -> None:
        """Closes the descriptor: at the end, or in a forked child, where it must not stay shared."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _wait(self, descriptor: int, timeout: float) -> bool:
        granted = threading.Event()
        guard = threading.Lock()
        given_up = False

        def wait() -> None:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            with guard:
                if given_up:
                    os.close(descriptor)
                else:
                    granted.set()

        threading.Thread(target=wait, name="lakelog-flock", daemon=True).start()
        if granted.wait(max(timeout, 0)):
            return True
        with guard:
            if granted.is_set():
                return True
            given_up = True
        self._descriptor = None
        return False


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
