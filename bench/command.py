"""What ``./dev bench`` does: measures, prints, keeps the results, and draws them."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from bench import peers, results
from bench.charts import Panel, picture
from bench.lab import FULL, QUICK, Lab
from bench.measure import Figure
from bench.peers import commits, large, opening, planning, systems, writers
from bench.readings import Goal, Reading
from bench.report import print_headings, print_line, save_figures
from bench.subjects import SUBJECTS as LIMITS

PICTURE = "peers.svg"
PAGE = "peers.md"
_PANELS = (
    (commits, commits.AGED, "One commit, as the table ages", "commits before it"),
    (writers, f"{writers.ONE_TABLE}: commits", "Commits of all processes to one table", "processes"),
    (planning, planning.BY_NUMBER, "Finding ten files by a number column", "files of the table"),
    (planning, planning.BY_PARTITION, "Finding ten files by a partition column", "files of the table"),
    (opening, opening.COLD, "A new process opens a table and finds ten files", "files of the table"),
    (large, large.EMPTY, "Many files in one commit", "files of the commit"),
)


def compare(subjects: Sequence[str], *, quick: bool, output: Path | None) -> int:
    """Measures subjects beside the peers that are installed; how many aims were missed."""
    for peer in systems.missing():
        print(f"{peer} is not installed, and left out: pip install 'lakelog[bench]'")
    started, missed = time.monotonic(), 0
    with Lab(QUICK if quick else FULL) as lab:
        print(
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start; {', '.join(lab.backends)}", flush=True
        )
        for name in subjects:
            subject, run = peers.SUBJECTS[name], results.about()
            readings = subject.measure(lab)
            _print(name, readings, () if quick else subject.goals)
            if not quick:
                missed += len(results.short(readings, subject.goals))
                if output is not None:
                    results.save(output, name, readings, run)
    if output is not None and not quick:
        draw(output)
        print(f"saved in {output}")
    print(f"{missed} short of their aim, {time.monotonic() - started:.0f} s")
    return missed


def draw(output: Path) -> None:
    """Writes the page and the picture of all results that are there."""
    found = {name: kept for name in peers.SUBJECTS if (kept := results.load(output, name)) is not None}
    sections = [
        f"## {name}\n\n{results.markdown(readings, peers.SUBJECTS[name].goals, run)}"
        for name, (readings, run) in found.items()
    ]
    everything = [reading for readings, _ in found.values() for reading in readings]
    overview = f"# Lakelog beside its peers\n\n{results.matrix(everything)}\n"
    (output / PAGE).write_text(overview + "\n".join(sections))
    panels = []
    for module, what, title, across in _PANELS:
        readings, _ = found.get(module.SUBJECT.replace(" ", "-"), ([], {}))
        if shown := [reading for reading in readings if reading.what == what]:
            panels.append(Panel(title, across, shown))
    if panels:
        (output / PICTURE).write_text(picture(panels))


def against_limits(subjects: Sequence[str], backends: Sequence[str], *, quick: bool, output: Path | None) -> int:
    """Measures Lakelog beside hand-written SQL, and Spark's own reading and writing; how many targets were missed."""
    figures: list[Figure] = []
    started, run = time.monotonic(), results.about()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    print_headings()
    with Lab(QUICK if quick else FULL) as lab:
        for subject in subjects:
            for backend in backends or lab.backends:
                for figure in LIMITS[subject](lab, backend):
                    figures.append(figure)
                    print_line(figure)
    if output is not None and not quick and set(subjects) == set(LIMITS):
        print(f"saved in {save_figures(output, figures, run)}")
    missed = sum(figure.verdict == "short" for figure in figures)
    print(f"{missed} short of their target, {time.monotonic() - started:.0f} s")
    return missed


CHECKED = {"one-file": 0.2, "large-commit": 6.0, "replace": 6.0}
"""Ratios to the limit that a quick run must keep, far from what is measured, since machines are noisy."""


def check() -> list[str]:
    """Runs a few subjects in small, and says where Lakelog has become slower than it may be beside its limit."""
    problems = []
    print_headings()
    with Lab(QUICK) as lab:
        for subject, allowed in CHECKED.items():
            for figure in (figure for backend in lab.backends for figure in LIMITS[subject](lab, backend)):
                print_line(figure)
                if figure.ratio is None or figure.against != "limit":
                    continue
                is_rate = figure.unit == "/s"
                if figure.ratio < allowed if is_rate else figure.ratio > allowed:
                    bound = f"{'at least' if is_rate else 'at most'} {allowed:g}"
                    problems.append(
                        f"{figure.subject}, {figure.what} on {figure.backend}: {figure.ratio:.2f} of the limit, {bound}"
                    )
    return problems


def _print(name: str, readings: Sequence[Reading], goals: Sequence[Goal]) -> None:
    print(f"\n{name}")
    for heading, rows in results.lines(readings, goals):
        print(f"  {heading}")
        for system, figure, spread, peer, limit, aim, verdict, note in rows:
            beside = "" if not limit else f"{limit} of the limit"
            print(
                f"    {system:28} {figure:>13}  {spread:>18}  {peer:34} {beside:20} {verdict:5} {aim} {note}".rstrip(),
                flush=True,
            )
