"""All live files as an Arrow table."""

from functools import partial

from bench.filled import DATASET, filled_place
from bench.lab import Lab
from bench.measure import Figure, Sample, Target, seconds
from lakelog.catalog.tables import TABLES

NAME = "listing"
TARGETS = {
    "postgres": (Target(at_most=0.3),),
    "duckdb": (Target(at_most=0.3),),
    "sqlite": (Target(at_most=0.6),),
}
WITHOUT_STATISTICS = [name for name in TABLES["dl_add_files"].names if name not in ("table_id", "stats")]


def measure(lab: Lab, backend: str) -> list[Figure]:
    count = lab.scale.live
    with filled_place(lab, backend).connect() as lake:
        snapshot = lake.dataset(DATASET).snapshot()
        figures = []
        for what, columns in (("everything", None), ("without statistics", WITHOUT_STATISTICS)):
            assert snapshot.files(columns=columns).num_rows >= count
            times = [seconds(partial(snapshot.files, columns=columns)) for _ in range(lab.scale.rounds)]
            figures.append(
                Figure(
                    subject=f"{NAME} {count:,} live files",
                    backend=backend,
                    what=what,
                    unit="s",
                    sample=Sample(tuple(times)),
                    targets=TARGETS[backend] if lab.scale.full else (),
                )
            )
    return figures
