"""``python -m bench [subject…] [--backend …] [--quick]``: measures, prints a table, and saves it in ``results/``."""

import argparse
import os
import sys
import time

from lakelog.bench.lab import BACKENDS, FULL, QUICK, Lab
from lakelog.bench.measure import Figure
from lakelog.bench.report import print_headings, print_line, save
from lakelog.bench.subjects import SUBJECTS


def main() -> int:
    arguments = _arguments()
    subjects = arguments.subject or list(SUBJECTS)
    backends = arguments.backend or list(BACKENDS)
    started = time.monotonic()
    figures: list[Figure] = []
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the start", flush=True)
    print_headings()
    with Lab(QUICK if arguments.quick else FULL) as lab:
        for subject in subjects:
            for backend in backends:
                for figure in SUBJECTS[subject](lab, backend):
                    figures.append(figure)
                    print_line(figure)
    complete = not arguments.quick and set(subjects) == set(SUBJECTS) and set(backends) == set(BACKENDS)
    page = save(figures, complete=complete)
    short = sum(figure.verdict == "short" for figure in figures)
    print(f"{short} short of their target, {time.monotonic() - started:.0f} s, saved in {page}")
    return 1 if short else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench", description="Measures Lakelog against hand-written SQL.")
    parser.add_argument("subject", nargs="*", metavar="subject", help=", ".join(SUBJECTS))
    parser.add_argument("--backend", action="append", choices=BACKENDS, help="may be repeated; all if absent")
    parser.add_argument("--quick", action="store_true", help="less of everything, and no targets: does it run?")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
