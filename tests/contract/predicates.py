"""Random rows, the statistics that writers make of them, and conditions over them in SQL.

Values come from small pools, so that conditions hit them, and the pools hold what is hard: the ends of each type,
numbers that no double is, strings longer than statistics keep, NaN.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lakelog import AddFiles, Dataset, Lake, RemoveFiles, RowGroup
from lakelog.actions import AddFile
from lakelog.log.snapshot.scan import Scan
from lakelog.log.snapshot.snapshot import Snapshot
from tests.contract.samples import commit

LONG = "the same thirty-two characters.." * 3


@dataclass(frozen=True, slots=True)
class Column:
    """A column's type, its values, how SQL writes them, and how a writer's statistics do: minimum and maximum."""

    type: pa.DataType
    pool: Sequence[Any]
    sql: Callable[[Any], str]
    minimum: Callable[[Any], str | None]
    maximum: Callable[[Any], str | None]
    partition: Callable[[Any], str] = str

    @property
    def comparable(self) -> pa.DataType:
        """The type in which Spark compares it with a constant."""
        return pa.float64() if pa.types.is_float32(self.type) else self.type


def quoted(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _float_sql(value: float) -> str:
    return repr(value) if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"


def _float_json(value: float) -> str | None:
    return repr(value) if math.isfinite(value) else None


def _single_json(value: float) -> str | None:
    """The fewest digits that tell a 32-bit float from its neighbours, as Spark writes it."""
    return str(np.float32(value)) if math.isfinite(value) else None


def _cut(text: str) -> str:
    return json.dumps(text[:32])


def _cut_above(text: str) -> str:
    return json.dumps(text if len(text) <= 32 else text[:32] + "\U0010ffff")


def _milliseconds(moment: datetime) -> str:
    """Delta cuts the statistics of timestamps."""
    whole = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    return json.dumps(whole.isoformat(timespec="milliseconds").replace("+00:00", "Z"))


def _timestamp_sql(moment: datetime) -> str:
    return f"TIMESTAMP '{moment:%Y-%m-%d %H:%M:%S.%f}'".replace("'1-", "'0001-")


def _same(write: Callable[[Any], str | None]) -> tuple[Callable[[Any], str | None], Callable[[Any], str | None]]:
    return write, write


_MOMENTS = [
    datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(1970, 1, 1, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 30, 15, 123_456, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 30, 15, 123_999, tzinfo=UTC),
    datetime(2024, 2, 29, 12, 30, 15, 124_000, tzinfo=UTC),
    datetime(2400, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
]
_SINGLES = [float(np.float32(value)) for value in (-1.5, -0.0, 0.1, 0.3, 0.7, 16777217, 1e-45, 3.4e38)]

COLUMNS: dict[str, Column] = {
    "i": Column(pa.int64(), [-(2**63), -(2**53) - 1, -1, 0, 1, 5, 6, 2**53, 2**53 + 1, 2**63 - 1], str, *_same(str)),
    "n": Column(pa.int32(), [-(2**31), -7, 0, 1, 2, 3, 2**31 - 1], str, *_same(str)),
    "d": Column(
        pa.float64(),
        [-math.inf, -1e308, -0.0, 0.1, 0.30000000000000004, 5e-324, 9007199254740993.0, 1.5, math.inf, math.nan],
        _float_sql,
        *_same(_float_json),
    ),
    "f": Column(pa.float32(), [*_SINGLES, math.nan, math.inf], _float_sql, *_same(_single_json)),
    "m": Column(
        pa.decimal128(12, 2),
        [Decimal(text) for text in ("-9999999999.99", "-0.01", "0.00", "0.10", "1.00", "1.01", "9999999999.99")],
        str,
        *_same(str),
    ),
    "long": Column(
        pa.decimal128(38, 18),
        [
            Decimal(text)
            for text in ("-1", "0.999999999999999999", "1", "1.000000000000000001", "9007199254740992.5", "123456789")
        ],
        lambda value: f"{value:.18f}",
        *_same(lambda value: f"{value:.18f}"),
    ),
    "b": Column(
        pa.bool_(),
        [False, True],
        lambda value: str(value).upper(),
        *_same(json.dumps),
        partition=json.dumps,
    ),
    "t": Column(
        pa.string(),
        ["a", "ab", "abc", "b", "it's", "é", "🦆", "\U0010ffff", LONG + "a", LONG + "b", LONG],
        quoted,
        _cut,
        _cut_above,
    ),
    "day": Column(
        pa.date32(),
        [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(9999, 12, 31)],
        lambda value: f"DATE '{value}'",
        *_same(lambda value: json.dumps(str(value))),
    ),
    "moment": Column(
        pa.timestamp("us", "UTC"),
        _MOMENTS,
        _timestamp_sql,
        *_same(_milliseconds),
        partition=lambda value: f"{value:%Y-%m-%d %H:%M:%S.%f}",
    ),
    "local": Column(
        pa.timestamp("us"),
        [moment.replace(tzinfo=None) for moment in _MOMENTS],
        lambda value: f"TIMESTAMP_NTZ '{value:%Y-%m-%d %H:%M:%S.%f}'",
        *_same(_milliseconds),
        partition=lambda value: f"{value:%Y-%m-%d %H:%M:%S.%f}",
    ),
}
PARTITIONS = {f"p_{name}": COLUMNS[name] for name in ("i", "m", "b", "t", "day", "moment")}
ALL = COLUMNS | PARTITIONS
SCHEMA = pa.schema([(name, column.type) for name, column in ALL.items()])

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class File:
    """A data file: its rows by row group, and what its writer says of them."""

    groups: list[list[Row]]
    partition_values: dict[str, str | None]
    stats: str | None
    group_stats: list[str | None]


def files() -> st.SearchStrategy[list[File]]:
    return st.randoms(use_true_random=False).map(some_files)


def some_files(random: Random) -> list[File]:
    return [_file(random) for _ in range(random.randint(1, 5))]


def _file(random: Random) -> File:
    values = {name: random.choice([None, *column.pool]) for name, column in PARTITIONS.items()}
    # Few values of each column, so that its bounds leave something out.
    pools = {
        name: [random.choice([None, *column.pool]) for _ in range(random.randint(1, 3))]
        for name, column in COLUMNS.items()
    }
    groups = [
        [{name: random.choice(pool) for name, pool in pools.items()} | values for _ in range(random.randint(1, 3))]
        for _ in range(random.randint(1, 2))
    ]
    return File(
        groups,
        {name: None if value is None else PARTITIONS[name].partition(value) for name, value in values.items()},
        _statistics(random, [row for group in groups for row in group]),
        [_statistics(random, group) for group in groups],
    )


def _statistics(random: Random, rows: Sequence[Row]) -> str | None:
    """What a writer says of rows. It may leave out anything, and cuts what it cuts."""
    if random.randint(0, 7) == 0:
        return None
    lows: dict[str, str] = {}
    highs: dict[str, str] = {}
    nulls: dict[str, str] = {}
    for name, column in COLUMNS.items():
        if random.randint(0, 5) == 0:
            continue
        known = [row[name] for row in rows if row[name] is not None]
        # NaN is left out of the bounds, as Parquet asks for.
        ordered = sorted(value for value in known if not (isinstance(value, float) and math.isnan(value)))
        low = column.minimum(ordered[0]) if ordered else None
        high = column.maximum(ordered[-1]) if ordered else None
        if low is not None and random.randint(0, 9):
            lows[name] = low
        if high is not None and random.randint(0, 9):
            highs[name] = high
        if random.randint(0, 9):
            nulls[name] = str(len(rows) - len(known))
    parts = {"minValues": _object(lows), "maxValues": _object(highs), "nullCount": _object(nulls)}
    kept = {name: text for name, text in parts.items() if random.randint(0, 9)}
    return _object(({"numRecords": str(len(rows))} if random.randint(0, 9) else {}) | kept)


def _object(members: dict[str, str]) -> str:
    """A JSON object of values that are JSON already: decimals keep their digits."""
    return "{" + ",".join(f"{json.dumps(name)}:{text}" for name, text in members.items()) + "}"


def conditions() -> st.SearchStrategy[str]:
    return st.randoms(use_true_random=False).map(some_condition)


def some_condition(random: Random, depth: int = 3) -> str:
    """A condition that Spark and DuckDB read in the same way."""
    kind = random.choice(["leaf", "leaf", "both", "not"]) if depth else "leaf"
    if kind == "leaf":
        return _leaf(random)
    one = some_condition(random, depth - 1)
    if kind == "not":
        return f"(NOT {one})"
    return f"({one} {random.choice(['AND', 'OR'])} {some_condition(random, depth - 1)})"


def _leaf(random: Random) -> str:
    name = random.choice(sorted(ALL))
    column = ALL[name]

    def value() -> str:
        found = random.choice(column.pool)
        if random.choice([False, True]) and isinstance(found, date | datetime):
            found += timedelta(days=1 if found.year < 9999 else -1)
        return column.sql(found)

    kind = random.choice(["compare", "compare", "mirrored", "in", "between", "null", "own"])
    operator = random.choice(["=", "!=", "<>", "<", "<=", ">", ">="])
    negation = random.choice(["", "NOT "])
    if kind == "compare":
        return f"{name} {operator} {value()}"
    if kind == "mirrored":
        return f"{value()} {operator} {name}"
    if kind == "in":
        values = [value() for _ in range(random.randint(1, 4))]
        values += ["NULL"] if random.randint(0, 5) == 0 else []
        return f"{name} {negation}IN ({', '.join(values)})"
    if kind == "between":
        return f"{name} {negation}BETWEEN {value()} AND {value()}"
    if kind == "own" and pa.types.is_boolean(column.type):
        return random.choice([name, f"NOT {name}", f"{name} IS TRUE", f"{name} IS NOT FALSE"])
    if kind == "own" and pa.types.is_string(column.type):
        text = random.choice(column.pool)
        prefix = text[: random.randint(0, len(text))]
        return f"{name} {negation}LIKE {quoted(prefix + random.choice(['%', '', '%a', '_']))}"
    return f"{name} IS {negation}NULL"


def load_rows(engine: Any, files: Sequence[File]) -> None:
    """Gives DuckDB all rows, each with its file and row group."""
    rows = pa.table(
        {
            "file": [n for n, file in enumerate(files) for group in file.groups for _ in group],
            "row_group": [n for file in files for n, group in enumerate(file.groups) for _ in group],
            **{
                name: pa.array(
                    [row[name] for file in files for group in file.groups for row in group], column.comparable
                )
                for name, column in ALL.items()
            },
        }
    )
    engine.register("arrow_rows", rows)
    engine.execute("CREATE OR REPLACE TABLE rows AS FROM arrow_rows")


def check_condition(engine: Any, snapshot: Snapshot, condition: str) -> None:
    """Asserts that no file and no row group is left out in which DuckDB finds a row."""
    asked = condition.replace("TIMESTAMP_NTZ", "TIMESTAMP")
    matching = set(engine.execute(f"SELECT DISTINCT file, row_group FROM rows WHERE {asked}").fetchall())
    kept = snapshot.files(condition, columns=["ordinal", "path"])
    ordinals = dict(zip(kept.column("path").to_pylist(), kept.column("ordinal").to_pylist(), strict=True))
    assert {f"{snapshot.version}/{file}.parquet" for file, _ in matching} <= ordinals.keys(), condition
    groups = snapshot.row_groups(condition, columns=["ordinal", "row_group"]).to_pylist()
    assert matching <= {(group["ordinal"], group["row_group"]) for group in groups}, condition
    assert {group["ordinal"] for group in groups} <= set(ordinals.values()), condition
    # What bounds decide about whole files is right, too.
    decided, undecided = Scan.of("events", snapshot, condition).counted()
    open_files = [int(Path(path).stem) for path in undecided.column("path").to_pylist()]
    counts = dict(engine.execute(f"SELECT file, count(*) FROM rows WHERE {asked} GROUP BY file").fetchall())
    assert decided + sum(counts.get(file, 0) for file in open_files) == sum(counts.values()), condition


def replace_files(lake: Lake, dataset: Dataset, files: list[File], *, in_bulk: bool) -> None:
    """Makes these files the only live ones."""
    live = dataset.snapshot().files(columns=["path"])
    version = dataset.version + 1
    adds = [
        AddFile(path=f"{version}/{n}.parquet", size=1, partition_values=file.partition_values, stats=file.stats)
        for n, file in enumerate(files)
    ]
    groups = [
        RowGroup(path=each.path, row_group=n, row_count=len(group), stats=file.group_stats[n])
        for each, file in zip(adds, files, strict=True)
        for n, group in enumerate(file.groups)
    ]
    added: list[Any] = [AddFiles.of(adds)] if in_bulk else [*adds]
    removed = [RemoveFiles(live)] if live.num_rows else []
    commit(lake, dataset, *added, *removed, version=version, row_groups=groups)
