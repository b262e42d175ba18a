"""A connection to PostgreSQL on which every wait ends, and every wait for an answer also sends what is not sent yet."""

import select
import time
import weakref
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import pq
from psycopg.generators import fetch, send
from psycopg.waiting import Ready, Wait

from lakelog.catalog.deadlines import Deadline

_LOOK = 1.0
"""Seconds after which a wait looks whether another thread has closed the connection."""

_CANCEL = 1.0
"""Seconds for a request to cancel."""

_BREATHS = 10
"""Waits that a generator is told to end, one after the other."""


class NoAnswer(psycopg.OperationalError):
    """The server did not answer in time. The connection is closed."""


class BoundedConnection(psycopg.Connection[Any]):
    """Psycopg's connection with limits for its waits, which nothing on the server has to know of.

    A wait ends by an error when nothing was sent or received for ``silence`` seconds, or when ``deadline`` has passed.
    The connection is closed then. The statement is cancelled before, unless ``is_committing`` says that a COMMIT may be
    under way: PostgreSQL answers a cancelled wait for a standby as if it was committed and replicated.
    """

    silence = 30.0
    deadline: Deadline | None = None
    is_committing = False

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.warnings: list[str] = []
        # Not by a reference to itself, which would keep it open until the garbage collector comes.
        itself = weakref.ref(self)

        def keep(notice: Any) -> None:
            connection = itself()
            if connection is not None and notice.severity_nonlocalized == "WARNING":
                connection.warnings.append(str(notice.message_primary))

        self.add_notice_handler(keep)

    def limit(self, silence: float, deadline: Deadline | None = None, *, committing: bool = False) -> None:
        """Sets the limits of the waits that follow, and forgets the warnings of those before."""
        self.silence = silence
        self.deadline = deadline
        self.is_committing = committing
        self.warnings.clear()

    def wait(
        self, gen: Generator[Any, Any, Any], interval: float = _LOOK, timeout: float | None = None
    ) -> Any:  # psycopg runs all that it does through here
        try:
            wanted = next(gen)
            while True:
                try:
                    ready = self._ready(wanted)
                except BaseException as error:
                    self._abandon(gen, error)
                    raise
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value
        except psycopg.Error:
            raise
        except BaseException:
            # An interrupt between two waits.
            if self.pgconn.status == pq.ConnStatus.OK and self.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
                self._close_now()
            raise

    def copy_out(self, statements: str) -> tuple[bytearray, int]:
        """The bytes of the one COPY … TO STDOUT among statements that travel as one, and its longest row's length."""
        with self.lock:
            found: tuple[bytearray, int] = self.wait(_copied_out(self.pgconn, statements.encode()))
        return found

    def _ready(self, wanted: int) -> int:
        """Waits until the socket is ready for what is wanted."""
        pgconn = self.pgconn
        descriptor = pgconn.socket
        end = time.monotonic() + self.silence
        poll = select.poll()  # not select.select, which cannot watch a descriptor past 1,023
        while True:
            asked = (wanted & Wait.R and select.POLLIN) | (wanted & Wait.W and select.POLLOUT)
            # psycopg flushes once before it waits for the answer to a pipeline. The rest would never be sent.
            if not wanted & Wait.W and _is_unsent(pgconn):
                asked |= select.POLLOUT
            left = min(end - time.monotonic(), _LOOK if self.deadline is None else min(self.deadline.left, _LOOK))
            poll.register(descriptor, asked)
            events = poll.poll(max(left, 0) * 1000)
            if events:
                found = events[0][1]
                lost = found & (select.POLLERR | select.POLLHUP | select.POLLNVAL)
                ready = (Ready.R if found & select.POLLIN or lost else 0) | (
                    Ready.W if found & select.POLLOUT or lost else 0
                )
                if ready & wanted:
                    return ready & wanted
                end = time.monotonic() + self.silence
            elif pgconn.status == pq.ConnStatus.BAD:
                raise psycopg.OperationalError("the connection was closed")
            elif time.monotonic() >= end or (self.deadline is not None and self.deadline.passed):
                raise NoAnswer("the server did not answer in time")

    def _abandon(self, gen: Generator[Any, Any, Any], error: BaseException) -> None:
        self._close_now()
        # Some of psycopg's generators wait again in their last breath, which ends now that the connection is closed.
        with suppress(Exception, type(error)):
            for _ in range(_BREATHS):
                gen.throw(error)

    def _close_now(self) -> None:
        # Else the server would go on waiting, with all locks that it holds, until its own limits end it. Before version
        # 17 libpq's request has no limit, and would wait for a server that does not answer for as long as TCP does.
        if not self.is_committing and psycopg.capabilities.has_cancel_safe():
            with suppress(Exception):
                self.cancel_safe(timeout=_CANCEL)
        self.pgconn.finish()


def _is_unsent(pgconn: Any) -> bool:
    try:
        return bool(pgconn.flush())
    except psycopg.Error:
        # What the server said before it went is still to be read.
        return False


def _copied_out(pgconn: Any, statements: bytes) -> Generator[Any, Any, tuple[bytearray, int]]:
    pgconn.send_query(statements)
    yield from send(pgconn)
    text, longest, error = bytearray(), 0, None
    while (result := (yield from fetch(pgconn))) is not None:
        if result.status == pq.ExecStatus.FATAL_ERROR:
            error = error or result
        while result.status == pq.ExecStatus.COPY_OUT:
            # Not joined at the end: that would keep every row's own buffer until then.
            size, row = pgconn.get_copy_data(1)
            if size < 0:
                break
            if size:
                text += row
                longest = max(longest, size)
            else:
                yield Wait.R
                pgconn.consume_input()
    if error is not None:
        raise psycopg.errors.error_from_result(error)
    return text, longest
