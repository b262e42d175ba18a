"""Logging, metrics and traces. OpenTelemetry does nothing unless the application sets it up."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, Observation

SLOW_COMMIT = 10.0
"""Seconds after which a commit is worth a warning."""

log = logging.getLogger("lakelog")
_tracer = trace.get_tracer("lakelog")
_meter = metrics.get_meter("lakelog")
_commits = _meter.create_counter("lakelog.commits", "{commit}", "Commits by outcome")
_durations = _meter.create_histogram("lakelog.commit.duration", "s", "Time of a commit, from the call to the answer")
_waits = _meter.create_histogram("lakelog.commit.lock_wait", "s", "Time a commit spent on the way to its lock")
_rows = _meter.create_counter("lakelog.commit.rows", "{row}", "Rows that commits added to the log, by catalog table")


class CommitRecord:
    """What is known of a commit while it happens."""

    def __init__(self) -> None:
        self.outcome = "error"
        self.waited = 0.0
        self.rows: dict[str, int] = {}


@contextmanager
def commit_span(tables: str, operation: str) -> Iterator[CommitRecord]:
    """Measures a commit and reports it, however it ends."""
    record = CommitRecord()
    started = time.perf_counter()
    with _tracer.start_as_current_span("lakelog.commit") as span:
        try:
            yield record
        finally:
            seconds = time.perf_counter() - started
            attributes = {"outcome": record.outcome, "operation": operation}
            _commits.add(1, attributes)
            _durations.record(seconds, attributes)
            _waits.record(record.waited, attributes)
            for table, count in record.rows.items():
                _rows.add(count, {"table": table})
            if span.is_recording():
                span.set_attributes({"lakelog.tables": tables, "lakelog.lock_wait": record.waited, **attributes})
            level = logging.WARNING if seconds > SLOW_COMMIT else logging.DEBUG
            if log.isEnabledFor(level):
                log.log(
                    level,
                    "commit to %s (%s): %s in %.3f s, %.3f s of it waiting for the lock",
                    tables,
                    operation,
                    record.outcome,
                    seconds,
                    record.waited,
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
