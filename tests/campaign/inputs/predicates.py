"""Conditions: over values from the edges of every type, compared with DuckDB, and damaged ones."""

import random
from functools import cache
from typing import Any

from tests.campaign.inputs.arguments import TEXTS
from tests.campaign.inputs.world import World
from tests.contract import predicates


def condition(world: World, rng: random.Random) -> None:
    engine = _engine()
    dataset = world.conditions
    if dataset is None or rng.random() < 0.05:
        if dataset is None:
            dataset = world.conditions = world.table(
                commits=0, schema=predicates.SCHEMA, partition_by=list(predicates.PARTITIONS), mirror=False
            )
        files = predicates.some_files(rng)
        predicates.replace_files(world.lake, dataset, files, in_bulk=rng.random() < 0.5)
        predicates.load_rows(engine, files)
    predicates.check_condition(engine, dataset.snapshot(), predicates.some_condition(rng))


@cache
def _engine() -> Any:
    import duckdb

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def damaged(world: World, rng: random.Random) -> None:
    """A text that was a condition. What is still one keeps some of the files, and no others."""
    text = predicates.some_condition(rng).replace("p_day", "day").replace("moment", "id")
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(len(text) + 1)
        what = rng.choice(
            (*TEXTS[:24], "(" * rng.choice((1, 50, 3000)), ")", "'", "--", "/*", ";", "CASE", "SELECT", "1e400")
        )
        text = rng.choice((text[:at] + what + text[at:], text[:at] + text[at + rng.randrange(5) :], f"{what} {text}"))
    snapshot = world.events.snapshot()
    kept = set(snapshot.files(text).column("path").to_pylist())
    assert kept <= set(snapshot.files().column("path").to_pylist())
