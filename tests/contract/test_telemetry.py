"""What an application sees of commits and pools in its logs, metrics and traces."""

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakelog import Lake, LakelogTimeoutError, SqlTxnLogWriter, TransactionManager, ValidationError, VersionConflict
from lakelog.actions import RemoveFile
from lakelog.telemetry import CommitRecord
from tests.contract.samples import add, commit, table
from tests.fixtures.lakes import Place

ROOT = Path(__file__).parents[2]


def watched_commits(place: Place) -> None:
    """A program that sets OpenTelemetry up, commits, and prints what it was told."""
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    reader, exporter = InMemoryMetricReader(), InMemorySpanExporter()
    metrics.set_meter_provider(MeterProvider([reader]))
    tracing = TracerProvider()
    tracing.add_span_processor(SimpleSpanProcessor(exporter))
    trace.set_tracer_provider(tracing)

    lake = place.connect(timeout=5)
    dataset = table(lake, partition_by=["day"])
    files = [add(name, partition_values={"day": "2026-01-05"}) for name in "abc"]
    commit(lake, dataset, *files, operation="WRITE")
    commit(lake, dataset, RemoveFile(path="a"), operation="DELETE")
    manager = TransactionManager(lake)
    manager.commit(manager.begin(dataset.id), [], (), {"operation": "MANAGED"})
    for actions, version, error in (([], 1, VersionConflict), ([RemoveFile(path="x")], 4, ValidationError)):
        try:
            SqlTxnLogWriter(lake).commit(dataset.id, version, actions)
        except error:
            continue
        raise AssertionError("the commit should have failed")
    with CommitRecord("events", "BROKEN") as record:
        record.rows["dl_cdc_files"] = 9
    with lake.committer.catalog.session():
        told = json.loads(reader.get_metrics_data().to_json())
    spans = [
        {"name": span.name, "events": len(span.events), **span.attributes} for span in exporter.get_finished_spans()
    ]
    lake.close()
    print(json.dumps({"metrics": told, "spans": spans}))


def _watch(place: Place) -> tuple[dict[str, list[dict[str, Any]]], list[dict[str, Any]]]:
    program = (
        "from pathlib import PosixPath; from tests.fixtures.lakes import Place; "
        f"from tests.contract.test_telemetry import watched_commits; watched_commits({place!r})"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    scopes = [scope for resource in told["metrics"]["resource_metrics"] for scope in resource["scope_metrics"]]
    (ours,) = [scope for scope in scopes if scope["scope"]["name"] == "lakelog"]
    return {metric["name"]: metric["data"]["data_points"] for metric in ours["metrics"]}, told["spans"]


def test_metrics_and_spans_tell_what_happened(place: Place) -> None:
    metrics, spans = _watch(place)

    def by(name: str, field: str, *attributes: str) -> dict[Any, Any]:
        return {tuple(each["attributes"][key] for key in attributes): each[field] for each in metrics[name]}

    commits = {
        ("committed", "CREATE TABLE"): 1,
        ("committed", "WRITE"): 1,
        ("committed", "DELETE"): 1,
        ("committed", "MANAGED"): 1,
        ("conflict", "WRITE"): 1,
        ("error", "WRITE"): 1,
        ("error", "BROKEN"): 1,
    }
    assert by("lakelog.commits", "value", "outcome", "operation") == commits
    durations = by("lakelog.commit.duration", "sum", "outcome", "operation")
    waits = by("lakelog.commit.lock_wait", "sum", "outcome", "operation")
    assert by("lakelog.commit.duration", "count", "outcome", "operation") == commits
    assert by("lakelog.commit.lock_wait", "count", "outcome", "operation") == commits
    assert all(0 < durations[key] < 30 for key in commits)
    assert all(0 <= waits[key] < 30 for key in commits)

    rows = by("lakelog.commit.rows", "value", "table")
    assert (rows["dl_add_files",], rows["dl_remove_files",], rows["partitions",]) == (3, 1, 3)
    assert rows["dl_metadata_updates",] == 1
    assert ("dl_cdc_files",) not in rows, "rows that were rolled back are counted"

    (in_use,) = metrics["lakelog.pool.in_use"]
    (waiting,) = metrics["lakelog.pool.waiting"]
    assert (in_use["value"], waiting["value"]) == (1, 0)
    assert "Catalog(" in in_use["attributes"]["catalog"]

    assert {span["name"] for span in spans} == {"lakelog.commit"}
    outcomes = [(span["outcome"], span["operation"]) for span in spans]
    assert sorted(outcomes) == sorted(commits)
    failed = [span for span in spans if (span["outcome"], span["operation"]) == ("error", "WRITE")]
    assert [span["events"] for span in failed] == [1]
    assert all(span["lakelog.lock_wait"] >= 0 for span in spans)
    assert {span["lakelog.tables"] for span in spans} == {"events", "1"}


def test_a_commit_is_logged_at_debug(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    dataset = table(lake)
    caplog.set_level(logging.DEBUG, "lakelog")
    commit(lake, dataset, operation="WRITE")
    with pytest.raises(VersionConflict):
        commit(lake, dataset, version=1, operation="DELETE")
    committed, lost = [record for record in caplog.records if record.name == "lakelog"]
    assert {committed.levelno, lost.levelno} == {logging.DEBUG}
    assert f"commit to {dataset.id} (WRITE): committed in " in committed.getMessage()
    assert f"commit to {dataset.id} (DELETE): conflict in " in lost.getMessage()


def test_an_ordinary_commit_is_no_news(lake: Lake, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lakelog")
    commit(lake, table(lake), add())
    assert [record for record in caplog.records if record.name == "lakelog"] == []


def test_a_slow_commit_is_a_warning(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dataset = table(lake)
    monkeypatch.setattr("lakelog.telemetry.SLOW_COMMIT", 0.0)
    commit(lake, dataset, add(), operation="WRITE")
    (warning,) = [record for record in caplog.records if record.name == "lakelog"]
    assert warning.levelno == logging.WARNING
    assert f"commit to {dataset.id} (WRITE): committed in" in warning.getMessage()
    assert "waiting for the lock" in warning.getMessage()


def test_a_commit_that_waited_in_vain_says_that_it_waited(
    connect: Callable[..., Lake], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    holder, waiter = connect(), connect(timeout=0.5)
    dataset = table(holder)
    monkeypatch.setattr("lakelog.telemetry.SLOW_COMMIT", 0.3)
    with TransactionManager(holder).begin(dataset.id):
        # The holder's own thread would be told at once that it waits for itself.
        errors: list[BaseException] = []

        def write() -> None:
            try:
                SqlTxnLogWriter(waiter).commit(dataset.id, 1, [add()])
            except LakelogTimeoutError as error:
                errors.append(error)

        thread = threading.Thread(target=write)
        thread.start()
        thread.join(30)
    assert len(errors) == 1
    (warning,) = [record for record in caplog.records if record.levelno == logging.WARNING and record.name == "lakelog"]
    total, waited = warning.args[-2:]  # type: ignore[index]
    assert "error in" in warning.getMessage()
    assert 0.4 < waited <= total


def test_importing_lakelog_loads_no_driver_and_no_engine() -> None:
    program = "import sys, lakelog; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert loaded & {"pyspark", "duckdb", "psycopg", "psycopg_pool", "apsw", "sqlglot", "pandas"} == set()
    assert "opentelemetry" in loaded
