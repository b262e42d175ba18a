"""Listing and pruning where ten times as many files were removed as are live, beside the same without a past."""

from collections.abc import Callable

from bench.filled import DATASET, filled_place
from bench.lab import Lab
from bench.measure import Figure, Target, in_turns, seconds
from bench.subjects.pruning import predicates, searching
from lakelog import Snapshot

TARGETS = (Target(at_most=1.5, ratio=True),)
REPETITIONS = 5
"""Measurements of a round."""


def measure(lab: Lab, backend: str) -> list[Figure]:
    scale = lab.scale
    removed = scale.generations * scale.live
    with (
        filled_place(lab, backend, generations=scale.generations).connect() as old,
        filled_place(lab, backend).connect() as young,
    ):
        snapshots = {"old": old.dataset(DATASET).snapshot(), "young": young.dataset(DATASET).snapshot()}
        figures = []
        for what, unit, action in _actions(scale.live):
            systems = {name: action(snapshot) for name, snapshot in snapshots.items()}
            for warm_up in systems.values():
                warm_up()
            samples = in_turns(systems, scale.rounds * (1 if unit == "s" else REPETITIONS))
            figures.append(
                Figure(
                    subject=f"{scale.live:,} live files after {removed:,} removed ones",
                    backend=backend,
                    what=what,
                    unit=unit,
                    sample=samples["old"],
                    limit=samples["young"],
                    against="no removed",
                    targets=TARGETS if scale.full else (),
                )
            )
    return figures


def _actions(live: int) -> list[tuple[str, str, Callable[[Snapshot], Callable[[], float]]]]:
    prunes = [
        (f"10 by a {column} column", "ms", lambda snapshot, column=column: searching(snapshot, column, live))
        for column in predicates(0)
    ]
    return [("list", "s", lambda snapshot: lambda: seconds(snapshot.files)), *prunes]
