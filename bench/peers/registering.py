"""Parquet files that exist become a table, where they are: every system has to open each of them."""

import time
from collections.abc import Callable
from pathlib import Path

from bench.lab import Lab
from bench.measure import in_turns
from bench.peers import systems
from bench.peers.systems import DELTA_RS, DUCKLAKE, PYICEBERG, TABLE, Spot, spots
from bench.readings import LAKELOG, LIMIT, Goal, Reading
from bench.small_files import loose_files, read_footers

SUBJECT = "registering"
FILES = "Parquet files registered"
GOALS = tuple(
    Goal(subject=SUBJECT, what=FILES, system=f"Lakelog on {database}", over=peer, times=5)
    for database in ("SQLite", "DuckDB", "PostgreSQL")
    for peer in (
        "DuckLake on DuckDB",
        "DuckLake on SQLite",
        "DuckLake on PostgreSQL",
        "pyiceberg on SQLite",
        "delta-rs",
    )
)
_DAYS = 300
_ROUNDS = 3


def measure(lab: Lab) -> list[Reading]:
    size = lab.scale.large
    wanted = spots(lab, [LAKELOG, DUCKLAKE, PYICEBERG, DELTA_RS])
    systems_by_name: dict[str, Callable[[], float]] = {LIMIT: _limit(lab, size)}
    for spot in wanted:
        register = {LAKELOG: _lakelog, DUCKLAKE: _ducklake, PYICEBERG: _pyiceberg, DELTA_RS: _delta_rs}[spot.system]
        systems_by_name[spot.name] = _repeated(lab, spot, register, size)
    samples = in_turns(systems_by_name, _ROUNDS if lab.scale.full else 1)
    limit = Reading(
        subject=SUBJECT,
        what=FILES,
        system=LIMIT,
        unit="s",
        size=size,
        sample=samples[LIMIT],
        note="pyarrow reads the footers",
    )
    return [
        limit,
        *(
            Reading(
                subject=SUBJECT,
                what=FILES,
                system=spot.system,
                database=spot.database,
                unit="s",
                size=size,
                sample=samples[spot.name],
            )
            for spot in wanted
        ),
    ]


def _files(lab: Lab, size: int, *, own: str = "") -> Path:
    """Files in a directory for each day; some systems write beside them and get a copy of their own."""
    root = lab.directory / f"loose{own}-{size}"
    if not root.exists():
        loose_files(root, size, _DAYS)
    return root


def _limit(lab: Lab, size: int) -> Callable[[], float]:
    paths = [str(path) for path in sorted(_files(lab, size).rglob("*.parquet"))]

    def run() -> float:
        started = time.perf_counter()
        read_footers(paths)
        return time.perf_counter() - started

    return run


def _repeated(lab: Lab, spot: Spot, register: Callable[[Spot, Path], float], size: int) -> Callable[[], float]:
    """Each time in a new place: what a table has once taken it keeps."""

    def run() -> float:
        fresh = Spot(spot.system, spot.backend, lab.place(spot.backend))
        return register(fresh, _files(lab, size, own="-delta" if spot.system == DELTA_RS else ""))

    return run


def _lakelog(spot: Spot, root: Path) -> float:
    with spot.place.connect() as lake:
        started = time.perf_counter()
        lake.register_parquet(root / "**" / "*.parquet", TABLE, ["day"])
        return time.perf_counter() - started


def _ducklake(spot: Spot, root: Path) -> float:
    with systems.ducklake(spot) as connection:
        connection.execute(f"CREATE TABLE lake.{TABLE} (id BIGINT, event_time TIMESTAMPTZ, amount DOUBLE, day DATE)")
        connection.execute(f"ALTER TABLE lake.{TABLE} SET PARTITIONED BY (day)")
        started = time.perf_counter()
        connection.execute(
            f"CALL ducklake_add_data_files('lake', '{TABLE}', '{root}/**/*.parquet', hive_partitioning => true)"
        )
        return time.perf_counter() - started


def _pyiceberg(spot: Spot, root: Path) -> float:
    """Without the partitions, which it would look for inside the files."""
    import pyarrow.parquet as pq

    paths = [str(path) for path in sorted(root.rglob("*.parquet"))]
    with systems.iceberg(spot) as catalog:
        catalog.create_namespace("bench")
        with pq.ParquetFile(paths[0]) as first:
            table = catalog.create_table(f"bench.{TABLE}", schema=first.schema_arrow)
        started = time.perf_counter()
        table.add_files(paths, check_duplicate_files=False)
        return time.perf_counter() - started


def _delta_rs(spot: Spot, root: Path) -> float:
    import shutil

    import pyarrow as pa
    from deltalake import Schema, convert_to_deltalake

    shutil.rmtree(root / "_delta_log", ignore_errors=True)
    partitions = Schema.from_arrow(pa.schema([("day", pa.date32())]))
    started = time.perf_counter()
    convert_to_deltalake(str(root), partition_by=partitions, partition_strategy="hive")
    return time.perf_counter() - started
