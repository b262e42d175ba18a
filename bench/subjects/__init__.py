"""What is measured, one module for each subject."""

from collections.abc import Callable

from bench.lab import Lab
from bench.measure import Figure
from bench.subjects import (
    history,
    large_commit,
    listing,
    many_writers,
    mirror,
    one_file,
    pruning,
    register,
    replace,
    spark_io,
    spark_open,
    spark_select,
    worn,
)

SUBJECTS: dict[str, Callable[[Lab, str], list[Figure]]] = {
    "one-file": one_file.measure,
    "many-writers": many_writers.measure,
    "mirror": mirror.measure,
    "large-commit": large_commit.measure,
    "replace": replace.measure,
    "register": register.measure,
    "worn": worn.measure,
    "listing": listing.measure,
    "pruning": pruning.measure,
    "history": history.measure,
    "spark-io": spark_io.measure,
    "spark-select": spark_select.measure,
    "spark-open": spark_open.measure,
}
