"""What is measured, one module for each subject."""

from collections.abc import Callable

from bench.lab import Lab
from bench.measure import Figure
from bench.subjects import large_commit, listing, one_file, pruning

SUBJECTS: dict[str, Callable[[Lab, str], list[Figure]]] = {
    "one-file": one_file.measure,
    "large-commit": large_commit.measure,
    "listing": listing.measure,
    "pruning": pruning.measure,
}
