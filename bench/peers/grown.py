"""Tables of many files that exist in the log alone, made by each system's own commits, or where it has none by SQL."""

import json
from dataclasses import replace

import pyarrow as pa

from bench.lab import Lab
from bench.peers import systems
from bench.peers.committing import create
from bench.peers.systems import DELTA_RS, DUCKLAKE, PYICEBERG, TABLE, Spot, spots
from bench.readings import LAKELOG, LIMIT
from bench.workload import ROWS, day_of, files, path_of, stats_of
from lakelog import AddFiles, SqlTxnLogWriter

_COMMITS = 10


def grown(lab: Lab, system: str, backend: str, count: int) -> Spot:
    """A table of this many files, added by ten commits. That of the limit is Lakelog's, for SQL to write more into."""
    key = ("grown", system, backend, count)
    if key not in lab.kept:
        spot = spots(lab, [system], [backend])[0]
        create(replace(spot, system=LAKELOG) if system == LIMIT else spot, [TABLE])
        {LAKELOG: _lakelog, LIMIT: _lakelog, DUCKLAKE: _ducklake, DELTA_RS: _delta_rs, PYICEBERG: _pyiceberg}[system](
            spot, count
        )
        lab.kept[key] = spot
    found = lab.kept[key]
    assert isinstance(found, Spot)
    return found


def _parts(count: int) -> list[range]:
    step = count // _COMMITS
    return [range(first, first + step) for first in range(0, count, step)]


def _lakelog(spot: Spot, count: int) -> None:
    with spot.place.connect() as lake:
        dataset, writer = lake.dataset(TABLE), SqlTxnLogWriter(lake)
        for version, part in enumerate(_parts(count), start=1):
            writer.commit(dataset.id, version, [AddFiles(files(len(part), first=part.start))])
    if spot.backend == "postgres":
        # What autovacuum would have done by the time that a table is so large.
        connection = spot.place.limit()
        connection.execute("VACUUM (ANALYZE)")
        connection.close()


def _delta_rs(spot: Spot, count: int) -> None:
    from deltalake import DeltaTable

    table = DeltaTable(systems.delta_path(spot, TABLE))
    for part in _parts(count):
        systems.delta_commit(table, [systems.delta_add(number) for number in part])
    # As its own writer would by default after a hundred commits.
    table.create_checkpoint()


def _pyiceberg(spot: Spot, count: int) -> None:
    with systems.iceberg(spot) as catalog:
        table = catalog.load_table(f"bench.{TABLE}")
        for part in _parts(count):
            systems.iceberg_commit(table, [systems.iceberg_file(table, number) for number in part])


def _ducklake(spot: Spot, count: int) -> None:
    """The rows of DuckLake's own tables, as its commits would leave them: it adds files only by opening them."""
    name = systems.ducklake_metadata(spot)
    with systems.ducklake(spot) as connection:
        execute = connection.execute
        table = execute(f"SELECT table_id FROM {name}.ducklake_table WHERE end_snapshot IS NULL").fetchone()[0]
        partition = execute(f"SELECT max(partition_id) FROM {name}.ducklake_partition_info").fetchone()[0]
        snapshot = execute(f"SELECT max(snapshot_id) FROM {name}.ducklake_snapshot").fetchone()[0]
        columns = dict(execute(f"SELECT column_name, column_id FROM {name}.ducklake_column").fetchall())
        for part in _parts(count):
            described, bounds = _ducklake_rows(part, columns)
            connection.register("described", described)
            connection.register("bounds", bounds)
            execute(
                f"INSERT INTO {name}.ducklake_data_file (data_file_id, table_id, begin_snapshot, path,"
                f" path_is_relative, file_format, record_count, file_size_bytes, footer_size, row_id_start,"
                f" partition_id) SELECT id, {table}, {snapshot}, path, true, 'parquet', {ROWS}, 1000000 + id, 1000,"
                f" id * {ROWS}, {partition} FROM described"
            )
            execute(f"INSERT INTO {name}.ducklake_file_partition_value SELECT id, {table}, 0, day FROM described")
            execute(
                f"INSERT INTO {name}.ducklake_file_column_stats (data_file_id, table_id, column_id, column_size_bytes,"
                f" value_count, null_count, min_value, max_value)"
                f" SELECT id, {table}, column_id, 1000, {ROWS} - nulls, nulls, low, high FROM bounds"
            )
        execute(f"UPDATE {name}.ducklake_snapshot SET next_file_id = {count + 1} WHERE snapshot_id = {snapshot}")
    _settle(spot)


def _ducklake_rows(part: range, columns: dict[str, int]) -> tuple[pa.Table, pa.Table]:
    """Files and the bounds of their columns."""
    days = [day_of(number) for number in part]
    described = pa.table({"id": pa.array(part, pa.int64()), "path": [path_of(number) for number in part], "day": days})
    stats = [json.loads(stats_of(number * ROWS, ROWS)) for number in part]
    bounds = []
    for column, column_id in columns.items():
        if column == "day":
            low, high, nulls = days, days, [0] * len(part)
        else:
            low, high = ([_text(each[side][column]) for each in stats] for side in ("minValues", "maxValues"))
            nulls = [each["nullCount"][column] for each in stats]
        ids = pa.array([column_id] * len(part), pa.int64())
        columns_of_part = {"id": described.column("id"), "column_id": ids, "low": low, "high": high}
        bounds.append(pa.table({**columns_of_part, "nulls": pa.array(nulls, pa.int64())}))
    return described, pa.concat_tables(bounds)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _settle(spot: Spot) -> None:
    if spot.backend == "postgres":
        import psycopg

        with psycopg.connect(spot.place.address, autocommit=True) as connection:
            connection.execute("VACUUM (ANALYZE)")
