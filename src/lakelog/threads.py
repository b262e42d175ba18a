"""Threads: work that mostly waits for a file system, done many at a time, and starts that never wait."""

import _thread
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from queue import SimpleQueue
from typing import TypeVar

THREADS = 16

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def start_thread(run: Callable[[], None]) -> None:
    """Starts a thread, which the end of the process does not wait for. Raises ``RuntimeError`` if none can start.

    ``threading.Thread.start`` waits until the thread says that it runs, and so for ever for one that lacks the memory
    to say anything. This does not: whoever needs the thread has to do without it if it never comes.
    """
    _thread.start_new_thread(run, ())


def threads_start() -> bool:
    """Whether a thread can start now. Where none can, some of Arrow's readers end the process instead of raising."""
    try:
        start_thread(lambda: None)
    except (RuntimeError, MemoryError):
        return False
    return True


def map_in_threads(work: Callable[[_Item], _Found], items: Iterable[_Item], threads: int = THREADS) -> Iterator[_Found]:
    """Yields what the work gives for each item, in order, while the next are already worked on.

    The calling thread works, too: it does everything where no other can start. The first error ends it.
    """
    todo = deque(enumerate(items))
    done: SimpleQueue[tuple[int, list[_Found], BaseException | None]] = SimpleQueue()
    guard = threading.Lock()
    begun = 0

    def work_on_one() -> bool:
        nonlocal begun
        with guard:
            if not todo:
                return False
            number, item = todo.popleft()
            begun += 1
        try:
            done.put((number, [work(item)], None))
        except BaseException as error:
            done.put((number, [], error))
            with guard:
                todo.clear()
        return True

    def work_on_all() -> None:
        while work_on_one():
            pass

    count = len(todo)
    _start(work_on_all, min(threads, count) - 1)
    found: dict[int, list[_Found]] = {}
    finished = 0
    try:
        for number in range(count):
            while number not in found:
                if done.empty():
                    work_on_one()
                place, result, error = done.get()
                finished += 1
                if error is not None:
                    raise error
                found[place] = result
            yield from found.pop(number)
    finally:
        # What others have begun goes on: nobody is told that it is over before it is.
        with guard:
            todo.clear()
        while finished < begun:
            done.get()
            finished += 1


def _start(target: Callable[[], None], count: int) -> None:
    for _ in range(count):
        try:
            start_thread(target)
        except RuntimeError:
            # No memory, or no process, is left for it.
            break


class Worker:
    """A thread that runs in the background until its work is over, and starts again if it never came or has died."""

    _PATIENCE = 1.0
    """Seconds in which a thread that has started must have begun."""

    def __init__(self, run: Callable[[], None]) -> None:
        self._run = run
        self._guard = threading.Lock()
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._is_started = False
        self._ident = 0

    @property
    def is_alive(self) -> bool:
        """Whether it runs, or may be about to."""
        return self._is_started and not self._ended.is_set() and self._begun.wait(self._PATIENCE)

    @property
    def is_current(self) -> bool:
        return self._ident == threading.get_ident()

    def start(self) -> None:
        """Raises ``RuntimeError``, and ``MemoryError``."""
        with self._guard:
            if self.is_alive:
                return
            self._begun.clear()
            self._ended.clear()
            start_thread(self._work)
            self._is_started = True

    def join(self, timeout: float) -> None:
        if self.is_alive:
            self._ended.wait(timeout)

    def _work(self) -> None:
        self._ident = threading.get_ident()
        self._begun.set()
        try:
            self._run()
        finally:
            self._ended.set()
