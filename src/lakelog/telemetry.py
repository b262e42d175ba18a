"""Logging, metrics and traces. OpenTelemetry does nothing unless the application sets it up."""

import logging
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation

from lakelog.errors import LakelogTimeoutError

SLOW_COMMIT = 10.0
"""Seconds after which a commit is worth a warning."""

log = logging.getLogger("lakelog")
_tracer = trace.get_tracer("lakelog")
_meter = metrics.get_meter("lakelog")
_commits = _meter.create_counter("lakelog.commits", "{commit}", "Commits by outcome")
_durations = _meter.create_histogram("lakelog.commit.duration", "s", "Time of a commit, from the call to the answer")
_waits = _meter.create_histogram("lakelog.commit.lock_wait", "s", "Time a commit spent on the way to its lock")
_rows = _meter.create_counter("lakelog.commit.rows", "{row}", "Rows that commits added to the log, by catalog table")
_failed_watches = _meter.create_counter(
    "lakelog.commit.watch_failures", "{failure}", "Failures of what watches commits, after commits that stand"
)


def count_failed_watch() -> None:
    """Counts a failure, such as the mirror's, that came after COMMIT and did not change the answer. Never raises."""
    try:
        _failed_watches.add(1)
    except Exception:
        log_safely("a failure after a commit cannot be counted")


def log_safely(message: str, *arguments: object) -> None:
    """Logs the exception that is being handled. Never raises, whatever an application's handlers of logs do."""
    with suppress(Exception):
        log.exception(message, *arguments)


def report_safely(level: int, message: str, *arguments: object) -> None:
    """Logs something that comes after a commit. Never raises, whatever an application's handlers of logs do."""
    with suppress(Exception):
        log.log(level, message, *arguments)


class CommitRecord:
    """A commit while it happens. As a context manager it measures the commit and reports it, however it ends."""

    def __init__(self, tables: str, operation: str) -> None:
        self.outcome = "error"
        self.waited = 0.0
        self.rows: dict[str, int] = {}
        self._tables = tables
        self._operation = operation

    def __enter__(self) -> "CommitRecord":
        self._started = time.perf_counter()
        self._span = _tracer.start_span("lakelog.commit")
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        try:
            self._report(error)
        except Exception:
            # An application's exporter must not turn a commit that stands into an error.
            log_safely("the commit to %s (%s) cannot be reported: %s", self._tables, self._operation, self.outcome)

    def _report(self, error: BaseException | None) -> None:
        seconds = time.perf_counter() - self._started
        if isinstance(error, LakelogTimeoutError) and not self.waited:
            self.waited = seconds
        attributes = {"outcome": self.outcome, "operation": self._operation}
        _commits.add(1, attributes)
        _durations.record(seconds, attributes)
        _waits.record(self.waited, attributes)
        if self.outcome == "committed":
            for table, count in self.rows.items():
                _rows.add(count, {"table": table})
        if self._span.is_recording():
            self._span.set_attributes({"lakelog.tables": self._tables, "lakelog.lock_wait": self.waited, **attributes})
            if error is not None:
                self._span.record_exception(error)
        self._span.end()
        level = logging.WARNING if seconds > SLOW_COMMIT else logging.DEBUG
        if log.isEnabledFor(level):
            log.log(
                level,
                "commit to %s (%s): %s in %.3f s, %.3f s of it waiting for the lock",
                self._tables,
                self._operation,
                self.outcome,
                seconds,
                self.waited,
            )


def observe_pool(catalog: Any) -> None:
    """Reports a catalog's connections in use, and callers waiting for one, for as long as it lives."""
    _catalogs.add(catalog)


def _pools(index: int) -> Callable[[CallbackOptions], Iterable[Observation]]:
    def observe(options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(catalog.usage()[index], {"catalog": repr(catalog)}) for catalog in _catalogs]

    return observe


_catalogs: WeakSet[Any] = WeakSet()
_meter.create_observable_gauge("lakelog.pool.in_use", [_pools(0)], "{connection}", "Connections in use")
_meter.create_observable_gauge("lakelog.pool.waiting", [_pools(1)], "{caller}", "Callers waiting for a connection")
