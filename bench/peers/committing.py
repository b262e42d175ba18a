"""One file made part of a table, as each system does it. The file exists; what it holds is known."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench.lab import new_dataset
from bench.limits.base import FileRows
from bench.peers import systems
from bench.peers.systems import DELTA_RS, DUCKLAKE, PYICEBERG, Spot
from bench.readings import LAKELOG, LIMIT
from bench.workload import SCHEMA, add_file, path_of
from lakelog import SqlTxnLogWriter

Commit = Callable[[str], object]
"""Makes a file with this name part of the table, or raises."""


def create(spot: Spot, tables: list[str]) -> None:
    """Makes empty tables."""
    if spot.system == LAKELOG:
        with spot.place.connect() as lake:
            for table in tables:
                new_dataset(lake, table)
    elif spot.system == LIMIT:
        connection = spot.place.limit(create=True)
        for table in tables:
            connection.create_table(table)
        connection.close()
    elif spot.system == DUCKLAKE:
        with systems.ducklake(spot) as connection:
            for table in tables:
                systems.create_ducklake(connection, table)
    elif spot.system == DELTA_RS:
        for table in tables:
            systems.create_delta(spot, table)
    elif spot.system == PYICEBERG:
        with systems.iceberg(spot) as catalog:
            for table in tables:
                systems.create_iceberg(catalog, table)


def committing(spot: Spot, table: str, file: FileRows | None, *, alone: bool = True) -> AbstractContextManager[Commit]:
    """A connection that commits to a table; ``file`` has the rows that hand-written SQL writes for a file.

    Who is not ``alone`` appends to whatever the head is.
    """
    if spot.system == LAKELOG and not alone:
        return _lakelog_in_a_crowd(spot, table)
    if spot.system == LIMIT:
        assert file is not None
        return _by_hand(spot, table, file)
    return {LAKELOG: _lakelog, DUCKLAKE: _ducklake, DELTA_RS: _delta_rs, PYICEBERG: _pyiceberg}[spot.system](
        spot, table
    )


@contextlib.contextmanager
def _lakelog(spot: Spot, table: str) -> Iterator[Commit]:
    with spot.place.connect() as lake:
        dataset, writer, add = lake.dataset(table), SqlTxnLogWriter(lake), add_file(0)
        versions = itertools.count(dataset.version + 1)
        yield lambda name: writer.commit(dataset.id, next(versions), [replace(add, path=path_of(0, f"{name}/"))])


@contextlib.contextmanager
def _lakelog_in_a_crowd(spot: Spot, table: str) -> Iterator[Commit]:
    with spot.place.connect() as lake:
        dataset, writer, add = lake.dataset(table), SqlTxnLogWriter(lake), add_file(0)
        yield lambda name: writer.append(dataset.id, [replace(add, path=path_of(0, f"{name}/"))])


@contextlib.contextmanager
def _by_hand(spot: Spot, table: str, file: FileRows) -> Iterator[Commit]:
    connection = spot.place.limit()
    try:
        found = connection.execute(f"SELECT table_id FROM dl_tables WHERE name = '{table}'")
        table_id = int(found[0][0])

        yield lambda name: connection.commit(table_id, None, path_of(0, f"{name}/"), file)
    finally:
        connection.close()


@contextlib.contextmanager
def _ducklake(spot: Spot, table: str) -> Iterator[Commit]:
    """DuckLake takes no description of a file: it opens it. It has no objection to the same one again."""
    file = _real_file(Path(spot.place.root + "-files"))
    with systems.ducklake(spot) as connection:
        call = f"CALL ducklake_add_data_files('lake', '{table}', '{file}', hive_partitioning => true)"
        yield lambda _: connection.execute(call)


@contextlib.contextmanager
def _delta_rs(spot: Spot, table: str) -> Iterator[Commit]:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

    opened = DeltaTable(systems.delta_path(spot, table))
    add = systems.delta_add(0)

    def commit(name: str) -> None:
        action = AddAction(f"{name}/{add.path}", add.size, add.partition_values, 1, True, add.stats)
        systems.delta_commit(opened, [action])

    yield commit


@contextlib.contextmanager
def _pyiceberg(spot: Spot, table: str) -> Iterator[Commit]:
    from pyiceberg.exceptions import CommitFailedException

    with systems.iceberg(spot) as catalog:
        opened = catalog.load_table(f"bench.{table}")

        def commit(name: str) -> None:
            try:
                systems.iceberg_commit(opened, [systems.iceberg_file(opened, 0, f"{name}/")])
            except CommitFailedException:
                opened.refresh()
                raise

        yield commit


def _real_file(directory: Path) -> Path:
    file = directory / path_of(0)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        columns = [pa.nulls(10, field.type) for field in SCHEMA if field.name != "day"]
        names = [field.name for field in SCHEMA if field.name != "day"]
        partial = file.with_suffix(f".{id(columns)}")
        pq.write_table(pa.table(columns, names), partial)
        partial.rename(file)
    return file
