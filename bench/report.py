"""Lakelog against its limit: the table that a run prints, and the same as JSON and Markdown."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.measure import Figure
from bench.results import number

HEADINGS = ("subject", "database", "figure", "low to high", "limit", "ratio", "target", "", "note")


def cells(figure: Figure) -> tuple[str, ...]:
    ratio = figure.ratio
    return (
        f"{figure.subject}: {figure.what}",
        figure.backend,
        f"{number(figure.sample.median)} {figure.unit}",
        f"{number(figure.sample.low)} to {number(figure.sample.high)}",
        "" if figure.limit is None else f"{number(figure.limit.median)} {figure.unit}",
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


def save_figures(directory: Path, figures: Sequence[Figure], run: Mapping[str, Any]) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    kept = {**run, "figures": [_plain(figure) for figure in figures]}
    (directory / "limits.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    page = directory / "limits.md"
    page.write_text(_markdown(figures, run))
    return page


def _markdown(figures: Sequence[Figure], run: Mapping[str, Any]) -> str:
    lines = [
        f"{run['date']}, {run['source']}, {run['machine']}. "
        + ", ".join(f"{name} {found}" for name, found in run["versions"].items())
        + ".",
        "",
        "| " + " | ".join(HEADINGS) + " |",
        "|" + "---|" * len(HEADINGS),
        *("| " + " | ".join(cells(figure)) + " |" for figure in figures),
    ]
    return "\n".join(lines) + "\n"


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
