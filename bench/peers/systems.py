"""The systems that are compared: how each is opened, and the one table that all of them have.

Each is imported where it is used: who has not installed a peer measures the others.
"""

import contextlib
import importlib.util
import json
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from bench.lab import Lab, Place
from bench.readings import LAKELOG, LIMIT
from bench.workload import PARTITION_BY, ROWS, SCHEMA, day_of, path_of, stats_of

DUCKLAKE, DELTA_RS, PYICEBERG = "DuckLake", "delta-rs", "pyiceberg"
DATABASES = {"sqlite": "SQLite", "duckdb": "DuckDB", "postgres": "PostgreSQL", "": ""}
TABLE = "events"

_MODULES = {
    DUCKLAKE: ("duckdb", "duckdb_extension_ducklake"),
    DELTA_RS: ("deltalake",),
    PYICEBERG: ("pyiceberg", "sqlalchemy"),
    LAKELOG: (),
    LIMIT: (),
}
_BACKENDS = {
    LAKELOG: ("sqlite", "duckdb", "postgres"),
    LIMIT: ("sqlite", "duckdb", "postgres"),
    DUCKLAKE: ("sqlite", "duckdb", "postgres"),
    PYICEBERG: ("sqlite", "postgres"),
    DELTA_RS: ("",),
}


@dataclass(frozen=True, slots=True)
class Spot:
    """One system on one database, at an address of its own. It may be handed to another process."""

    system: str
    backend: str
    place: Place

    @property
    def database(self) -> str:
        return DATABASES[self.backend]

    @property
    def name(self) -> str:
        return f"{self.system} on {self.database}" if self.backend else self.system


def missing() -> list[str]:
    """The peers that are not installed here."""
    return [name for name in _MODULES if not _is_installed(name)]


def spots(lab: Lab, systems: Sequence[str] = tuple(_BACKENDS), backends: Sequence[str] | None = None) -> list[Spot]:
    """A new place for each system on each database that it knows, if the system is installed."""
    return [
        Spot(system, backend, lab.place(backend))
        for system in systems
        if _is_installed(system)
        for backend in _BACKENDS[system]
        if not backend or backend in lab.backends
        if backends is None or backend in backends or not backend
    ]


def _is_installed(system: str) -> bool:
    return all(importlib.util.find_spec(module) for module in _MODULES[system])


# DuckLake


@contextlib.contextmanager
def ducklake(spot: Spot) -> Iterator[Any]:
    """A DuckDB connection to which the lake is attached as ``lake``."""
    import duckdb
    from duckdb_extensions import import_extension

    place = spot.place
    scanner = {"postgres": "postgres_scanner", "sqlite": "sqlite_scanner"}.get(spot.backend)
    address = {
        "postgres": f"postgres:{place.address}",
        "sqlite": f"sqlite:{place.address}",
        "duckdb": place.address,
    }[spot.backend]
    schema = f", METADATA_SCHEMA '{place.schema}'" if spot.backend == "postgres" else ""
    # Or it takes names of Python's for its own tables.
    with duckdb.connect(config={"python_enable_replacements": False}) as connection:
        for extension in filter(None, ("ducklake", scanner)):
            import_extension(extension)
            connection.execute(f"LOAD {extension}")
        connection.execute(f"ATTACH 'ducklake:{address}' AS lake (DATA_PATH '{place.root}/'{schema})")
        yield connection


def ducklake_metadata(spot: Spot) -> str:
    """The name before DuckLake's own tables, in a connection to which the lake is attached."""
    schema = {"postgres": spot.place.schema, "sqlite": "main", "duckdb": "main"}[spot.backend]
    return f'__ducklake_metadata_lake."{schema}"'


def create_ducklake(connection: Any, table: str) -> None:
    connection.register("shape", SCHEMA.empty_table())
    connection.execute(f'CREATE TABLE lake."{table}" AS FROM shape')
    connection.execute(f'ALTER TABLE lake."{table}" SET PARTITIONED BY ({", ".join(PARTITION_BY)})')


# delta-rs


def delta_path(spot: Spot, table: str) -> str:
    return f"{spot.place.root}/{table}"


def create_delta(spot: Spot, table: str) -> Any:
    from deltalake import DeltaTable

    Path(spot.place.root).mkdir(parents=True, exist_ok=True)
    return DeltaTable.create(delta_path(spot, table), SCHEMA, partition_by=list(PARTITION_BY))


def delta_add(number: int, prefix: str = "") -> Any:
    from deltalake.transaction import AddAction

    stats = stats_of(number * ROWS, ROWS)
    return AddAction(path_of(number, prefix), 1_000_000 + number, {"day": day_of(number)}, 1, True, stats)


def delta_commit(table: Any, adds: list[Any]) -> None:
    table.create_write_transaction(adds, "append", table.schema(), partition_by=list(PARTITION_BY))


# pyiceberg


@contextlib.contextmanager
def iceberg(spot: Spot) -> Iterator[Any]:
    from pyiceberg.catalog.sql import SqlCatalog

    # It tells of every race that it loses.
    logging.getLogger("pyiceberg").setLevel(logging.ERROR)
    place = spot.place
    Path(place.root).mkdir(parents=True, exist_ok=True)
    if spot.backend == "postgres":
        server, _, query = place.address.partition("?")
        uri = f"{server.replace('postgresql://', 'postgresql+psycopg2://')}?{query}"
    else:
        uri = f"sqlite:///{place.address}"
    catalog = SqlCatalog(place.schema, uri=uri, warehouse=f"file://{place.root}")
    try:
        yield catalog
    finally:
        catalog.engine.dispose()


def create_iceberg(catalog: Any, table: str) -> Any:
    catalog.create_namespace_if_not_exists("bench")
    created = catalog.create_table(f"bench.{table}", schema=SCHEMA)
    with created.update_spec() as spec:
        for column in PARTITION_BY:
            spec.add_identity(column)
    return created


def iceberg_file(table: Any, number: int, prefix: str = "") -> Any:
    """A data file as a writer would describe it, with the bounds that the others have."""
    from pyiceberg.conversions import to_bytes
    from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
    from pyiceberg.typedef import Record

    fields, sides = _iceberg_bounds(table, number)
    stats = json.loads(stats_of(number * ROWS, ROWS))
    lower, upper = (
        {fields[name].field_id: to_bytes(fields[name].field_type, value) for name, value in side.items()}
        for side in sides
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{prefix}{path_of(number)}",
        file_format=FileFormat.PARQUET,
        partition=Record(_days(day_of(number))),
        record_count=ROWS,
        file_size_in_bytes=1_000_000 + number,
        column_sizes={},
        value_counts={field.field_id: ROWS for field in fields.values()},
        null_value_counts={fields[name].field_id: count for name, count in stats["nullCount"].items()},
        nan_value_counts={},
        lower_bounds=lower,
        upper_bounds=upper,
        split_offsets=[4],
        sort_order_id=None,
        spec_id=table.spec().spec_id,
    )


def iceberg_commit(table: Any, files: list[Any]) -> None:
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for file in files:
            append.append_data_file(file)


def _days(day: str) -> int:
    return int(pa.scalar(day).cast(pa.date32()).cast(pa.int32()).as_py())


def _iceberg_bounds(table: Any, number: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The table's fields, and the least and greatest values of a file's columns, as pyiceberg takes them."""
    fields = {field.name: field for field in table.schema().fields}
    stats = json.loads(stats_of(number * ROWS, ROWS))
    sides = []
    for side in (stats["minValues"], stats["maxValues"]):
        values = {}
        for name, value in side.items():
            kind = SCHEMA.field(name).type
            if pa.types.is_timestamp(kind):
                value = pa.scalar(value).cast(kind).value
            elif pa.types.is_decimal(kind):
                value = pa.scalar(str(value)).cast(kind).as_py()
            elif pa.types.is_string(kind):
                value = value[:16]
            values[name] = value
        sides.append(values)
    return fields, sides
