"""All verbs that remove or keep rows, in random order, against a plain list of rows.

Values lie at the edges of every type, files at paths as Spark writes them, sessions have other zones and ANSI modes,
schemas change and come back, other applications commit and clean up in between, and at the end the log is replayed into
another catalog.
``LAKELOG_MODEL_SEED`` runs another history than the usual one.
"""

import os
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakelog import Lake, write_dataset
from tests.contract.upkeep_tables import move_clock
from tests.fixtures.lakes import BACKENDS, Place
from tests.invariants import check_invariants
from tests.model.rows import Column, State, Table
from tests.model.values import INT, KINDS, Kind
from tests.spark.changes import KEYS, PARTITION, Changes, Key, add, columns_of, drop, rename, settings, widen
from tests.spark.changing import BY_VECTORS
from tests.spark.history import History

SEED = int(os.environ.get("LAKELOG_MODEL_SEED", "0"))
CLONE = "copy"
PARTITIONING = [kind for kind in KINDS if kind.partitions]


TABLES = 5
"""On each database, so that on the three of them every type partitions a table."""


def kinds_of(backend: str) -> list[tuple[Kind, list[Kind]]]:
    """The partition column's type and the other columns', for some tables. Other seeds have others."""
    first = (BACKENDS.index(backend) + SEED) * TABLES
    chosen = [PARTITIONING[(first + number) % len(PARTITIONING)] for number in range(TABLES)]
    others = list(KINDS)
    Random(f"kinds {SEED} {backend}").shuffle(others)
    halves = (others[: len(others) // 2], others[len(others) // 2 :])
    return [(kind, halves[number % 2]) for number, kind in enumerate(chosen)]


@pytest.fixture
def history(spark: SparkSession, lake: Lake, other_lake: Lake, place: Place) -> History:
    random = Random(f"{SEED} {place.backend}")
    history = History(spark, lake, other_lake, random, Changes(spark, random))
    for number, (partition, values) in enumerate(kinds_of(place.backend)):
        name, state = f"rows{number}", State(columns_of(partition, values), by=PARTITION)
        properties = BY_VECTORS if number % 2 else {}
        rows = every_edge(history, state)
        write_dataset(lake, name, history.changes.frame(state, rows), partition_by=[PARTITION], properties=properties)
        history.tables[name] = Table()
        history.stands(name, state.with_rows(rows))
    return history


def every_edge(history: History, state: State) -> list[Any]:
    """Rows that have every value which a partition can have, and no other twice in a file."""
    partition = state.column(PARTITION)
    edges = [None, *(edge for edge in partition.kind.edges if partition.kind.names_a_directory(edge))]
    rows = history.changes.rows(state, len(edges))
    return [tuple((state.named(row) | {PARTITION: edge}).values()) for row, edge in zip(rows, edges, strict=True)]


def test_rows_are_what_a_list_of_them_says(history: History, place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        for step in deck(history, monkeypatch):
            with settings(history.spark, circumstances(history)):
                step()
        check_invariants(history.lake)
        with place.beside(1).connect() as other:
            replayed(history, other)
    except BaseException as error:
        error.add_note("\n".join(history.told))
        raise


def circumstances(history: History) -> Sequence[tuple[str, str]]:
    """Settings of a session that change what a zone's clock shows and what a cast does, and no row."""
    zone = history.random.choice(("UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Pacific/Apia"))
    found = (("spark.sql.session.timeZone", zone), ("spark.sql.ansi.enabled", history.random.choice(("true", "false"))))
    history.told.append(f"in {found}")
    return found


def deck(history: History, monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """Every verb, in random order, each on one of the tables."""
    changes = history.changes

    def changed(verb: Callable[..., Any], *given: Any) -> Callable[[str], None]:
        return lambda name: history.do(name, verb(history.now(name), *given))

    def found(key: Key) -> Callable[[str], None]:
        return lambda name: found_by(history, key, name)

    def cleaned(lake: Lake, name: str) -> None:
        with monkeypatch.context() as patched:
            move_clock(patched, timedelta(days=400))
            lake.dataset(name).vacuum(0, force=True)

    verbs = [
        changed(changes.append),
        changed(changes.overwrite),
        *[changed(changes.replace_where)] * 2,
        *[changed(changes.delete)] * 2,
        changed(changes.update),
        *[changed(changes.merge)] * 2,
        *map(found, KEYS),
        *[history.meet] * 4,
        history.optimize,
        history.zorder,
        history.expire,
        history.vacuum,
        *[history.restore] * 2,
        lambda name: there_and_back(history, name),
        lambda name: copied_over(history, name),
        lambda name: swapped(history, name),
        lambda name: history.vacuumed_while_written(name, cleaned),
    ]
    history.random.shuffle(verbs)
    first = history.random.randrange(len(history.tables))
    names = list(history.tables)
    steps = [partial(verb, names[(first + number) % len(names)]) for number, verb in enumerate(verbs)]
    # While every edge is there: of two neighbours one is written again, and the other must stay.
    return [*(partial(every_other_edge, history, name) for name in names), *steps]


def every_other_edge(history: History, name: str) -> None:
    state = history.now(name)
    history.do(name, history.changes.replace_partitions(state, every_edge(history, state)[::2]))


def found_by(history: History, key: Key, name: str) -> None:
    for change in history.changes.found_by(history.now(name), key):
        history.do(name, change)


def there_and_back(history: History, name: str) -> None:
    """A column goes, others change, and a restore brings it back; its name may be another column's meanwhile."""
    before = max(history.tables[name].versions)
    evolve(history, name)
    history.restore(name, before)


def copied_over(history: History, name: str) -> None:
    """A clone changes its columns and is replaced by its source."""
    history.clone(name, CLONE)
    evolve(history, CLONE)
    history.clone(name, CLONE)


def swapped(history: History, name: str) -> None:
    """Another table has the name for a while, in another spelling, and is dropped; then the table itself is, and comes
    back."""
    lake, state = history.lake, history.now(name)
    lake.rename_dataset(name, "Aside")
    write_dataset(lake, name.upper(), history.changes.frame(state, history.changes.rows(state, 1)))
    history.compare("aside", at=name)
    lake.drop_dataset(name)
    lake.rename_dataset("ASIDE", name)
    history.compare(name)
    lake.drop_dataset(name)
    lake.undrop_dataset(name)
    history.compare(name)


def evolve(history: History, name: str) -> None:
    """Of ``w`` and ``u``, one goes, the other is widened, and the first's name is another column's."""
    state = history.now(name)
    if {"w", "u"} <= set(state.names):
        history.do(name, drop("w"))
    for narrow in [column.name for column in history.now(name).columns if column.kind is INT]:
        history.do(name, widen(narrow))
    gone = "w" if "u" in history.now(name).names else "u"
    history.do(name, history.random.choice([add(Column(gone, INT)), rename({"w": "u", "u": "w"}[gone], gone)]))


def replayed(history: History, other: Lake) -> None:
    """What another catalog reads that knows nothing but ``_delta_log``. A clone's names files of its source."""
    for name, table in history.tables.items():
        if name == CLONE:
            continue
        location = history.lake.dataset(name).location
        other.import_delta(location, name)
        for version in table.versions:
            history.compare(name, version, other)
