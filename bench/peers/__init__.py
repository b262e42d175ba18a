"""Lakelog beside what people would use instead: one module for each subject, one function for each system."""

from collections.abc import Callable
from typing import NamedTuple

from bench.lab import Lab
from bench.peers import (
    commits,
    importing,
    lag,
    large,
    opening,
    planning,
    registering,
    spark_changes,
    spark_rows,
    spark_stream,
    spark_upkeep,
    writers,
)
from bench.readings import Goal, Reading


class Subject(NamedTuple):
    """What is measured, and what Lakelog has to reach."""

    measure: Callable[[Lab], list[Reading]]
    goals: tuple[Goal, ...]


SUBJECTS: dict[str, Subject] = {
    module.SUBJECT.replace(" ", "-"): Subject(module.measure, module.GOALS)
    for module in (
        commits,
        writers,
        large,
        planning,
        opening,
        registering,
        importing,
        lag,
        spark_rows,
        spark_stream,
        spark_changes,
        spark_upkeep,
    )
}
