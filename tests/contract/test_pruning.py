"""Which files and row groups a condition leaves: none too few, and where the bounds say it, none too many."""

import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakelog import AddFiles, Dataset, Lake, RowGroup
from lakelog.actions import AddFile
from tests.contract import predicates
from tests.contract.predicates import File, check_condition, load_rows, replace_files
from tests.contract.samples import add, bounded, commit, paths, stats, table


@pytest.fixture
def engine() -> Iterator[duckdb.DuckDBPyConnection]:
    """An engine that evaluates conditions on the rows themselves."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@pytest.fixture
def dataset(lake: Lake) -> Dataset:
    return table(lake, schema=predicates.SCHEMA, partition_by=list(predicates.PARTITIONS))


@given(
    files=predicates.files(),
    conditions=st.lists(predicates.conditions(), min_size=4, max_size=8),
    in_bulk=st.booleans(),
)
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
def test_a_matching_row_is_never_lost(
    lake: Lake,
    dataset: Dataset,
    engine: duckdb.DuckDBPyConnection,
    files: list[File],
    conditions: list[str],
    in_bulk: bool,
) -> None:
    """Every file and row group with a row that matches is kept, whatever its statistics say or do not say."""
    replace_files(lake, dataset, files, in_bulk=in_bulk)
    load_rows(engine, files)
    snapshot = dataset.snapshot()
    for condition in conditions:
        check_condition(engine, snapshot, condition)


# Three ranges of values, one value, only nulls; and a file that says nothing, which all conditions keep that can hold.
FILES = {"low": (10, 30), "middle": (40, 60), "fifty": (50, 50), "high": (70, 90)}
START = date(2026, 1, 1)


def day(n: int) -> str:
    return str(START + timedelta(days=n))


KINDS: dict[str, tuple[pa.DataType, Callable[[int], tuple[Any, str]]]] = {
    "integer": (pa.int64(), lambda n: (n, str(n))),
    "short": (pa.int16(), lambda n: (n, str(n))),
    "double": (pa.float64(), lambda n: (n + 0.5, f"{n}.5")),
    "float": (pa.float32(), lambda n: (n + 0.5, f"{n}.5")),
    "decimal": (pa.decimal128(10, 2), lambda n: (n + 0.25, f"{n}.25")),
    "long decimal": (pa.decimal128(30, 2), lambda n: (n + 0.25, f"{n}.25")),
    "string": (pa.string(), lambda n: (f"k{n}", f"'k{n}'")),
    "date": (pa.date32(), lambda n: (day(n), f"DATE '{day(n)}'")),
    "date as text": (pa.date32(), lambda n: (day(n), f"'{day(n)}'")),
    "timestamp": (pa.timestamp("us", "UTC"), lambda n: (f"{day(n)}T12:00:00.000Z", f"TIMESTAMP '{day(n)} 12:00:00'")),
    "local timestamp": (
        pa.timestamp("us"),
        lambda n: (f"{day(n)}T12:00:00.000", f"TIMESTAMP_NTZ '{day(n)} 12:00:00'"),
    ),
}
NOTHING = "nothing, not even the silent file"
OPERATORS = {
    "x = {50}": "middle fifty",
    "{50} = x": "middle fifty",
    "x = {20}": "low",
    "x = {65}": "",
    "x < {35}": "low",
    "x <= {35}": "low",
    "{35} > x": "low",
    "x > {65}": "high",
    "x >= {65}": "high",
    "{65} <= x": "high",
    "x != {20}": "low middle fifty high",
    "x IN ({20}, {80})": "low high",
    "x NOT IN ({20}, {80})": "low middle fifty high",
    "x BETWEEN {35} AND {45}": "middle",
    "x NOT BETWEEN {35} AND {65}": "low high",
    "x NOT BETWEEN {11} AND {95}": "low",
    "x IS NULL": "nulls",
    "x IS NOT NULL": "low middle fifty high",
    "NOT x IS NULL": "low middle fifty high",
    "x = {20} AND x = {80}": NOTHING,
    "x = {20} OR x = {80}": "low high",
    "x < {35} OR x IS NULL": "low nulls",
    "x > {35} AND x < {65}": "middle fifty",
    "NOT (x < {35} OR x > {65})": "middle fifty",
    "NOT (x >= {35} AND x <= {65})": "low high",
    "x = NULL": NOTHING,
    "x IS NULL AND x = {50}": NOTHING,
    "TRUE": "low middle fifty high nulls",
    "FALSE": NOTHING,
}
# A float may be NaN, which is above every number, and which no statistics need mention.
ABOVE = {"x > {65}", "x >= {65}", "{65} <= x", "x NOT BETWEEN {35} AND {65}", "x NOT BETWEEN {11} AND {95}"}
ABOVE |= {"NOT (x >= {35} AND x <= {65})"}
# Where a bound is the value itself, for types whose statistics are never rounded or cut.
BORDERS = {
    "x < {40}": "low",
    "x <= {40}": "low middle",
    "x > {60}": "high",
    "x >= {60}": "middle high",
    "x NOT BETWEEN {10} AND {90}": "",
    "x > {30} AND x < {70}": "middle fifty",
    "NOT (x >= {40} AND x <= {60})": "low high",
    "x != {50}": "low middle high",
    "x <> {60}": "low middle fifty high",
    "NOT x = {50}": "low middle high",
    "x NOT IN ({50}, {60})": "low middle high",
}


def check_kept(lake: Lake, kind: str, expectations: dict[str, str], *, in_bulk: bool) -> None:
    arrow_type, value = KINDS[kind]
    dataset = table(lake, schema=pa.schema([("x", arrow_type)]))
    adds = [add(name, stats=bounded(value(low)[0], value(high)[0])) for name, (low, high) in FILES.items()]
    adds += [add("nulls", stats='{"numRecords":3,"nullCount":{"x":3}}'), add("silent")]
    commit(lake, dataset, *([AddFiles.of(adds)] if in_bulk else adds))
    snapshot = dataset.snapshot()
    for template, names in expectations.items():
        condition = re.sub(r"{(\d+)}", lambda number: value(int(number[1]))[1], template)
        expected = [] if names == NOTHING else [*names.split(), "silent"]
        assert paths(snapshot.files(condition)) == sorted(expected), condition


@pytest.mark.parametrize("in_bulk", [False, True], ids=["few", "many"])
@pytest.mark.parametrize("kind", KINDS)
def test_each_operator_leaves_exactly_what_it_should(lake: Lake, kind: str, in_bulk: bool) -> None:
    knows_nan = pa.types.is_floating(KINDS[kind][0])
    expected = dict.fromkeys(ABOVE, "low middle fifty high") if knows_nan else {}
    check_kept(lake, kind, OPERATORS | expected, in_bulk=in_bulk)


@pytest.mark.parametrize("in_bulk", [False, True], ids=["few", "many"])
@pytest.mark.parametrize("kind", ["integer", "short", "date"])
def test_a_bound_that_is_exact_prunes_at_its_very_value(lake: Lake, kind: str, in_bulk: bool) -> None:
    check_kept(lake, kind, BORDERS, in_bulk=in_bulk)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("b", "true both"),
        ("NOT b", "false both"),
        ("b = TRUE", "true both"),
        ("b != TRUE", "false both"),
        ("b IS TRUE", "true both"),
        ("b IS NOT TRUE", "false both nulls"),
        ("b IN (TRUE, FALSE)", "true false both"),
        ("b > FALSE", "true both"),
        ("b IS NULL", "nulls"),
    ],
)
def test_booleans_are_pruned(lake: Lake, condition: str, expected: str) -> None:
    dataset = table(lake, schema=pa.schema([("b", pa.bool_()), ("x", pa.int64())]))
    bounds = {"true": (True, True), "false": (False, False), "both": (False, True)}
    commit(
        lake,
        dataset,
        *(add(name, stats=stats(3, b=pair)) for name, pair in bounds.items()),
        add("nulls", stats='{"numRecords":3,"nullCount":{"b":3}}'),
    )
    assert paths(dataset.snapshot().files(condition)) == sorted(expected.split())


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("t LIKE 'apple%'", "apples"),
        ("t LIKE 'b%'", "bananas berries"),
        ("t LIKE 'banana'", "bananas"),
        ("t LIKE '%x'", "apples bananas berries"),
        ("t LIKE '_a'", "apples bananas berries"),
        ("t NOT LIKE 'b%'", "apples bananas berries"),
        ("t LIKE 'be%' OR t LIKE 'a%'", "apples berries"),
        ("t LIKE 'c%'", ""),
        ("t = 'it''s'", ""),
        ("t >= 'b' AND t < 'be'", "bananas"),
    ],
)
def test_strings_are_pruned_by_prefix(lake: Lake, condition: str, expected: str) -> None:
    dataset = table(lake, schema=pa.schema([("t", pa.string())]))
    bounds = {"apples": ("apple 1", "apple 9"), "bananas": ("banana", "banana split"), "berries": ("berry", "berry 7")}
    commit(lake, dataset, *(add(name, stats=stats(3, t=pair)) for name, pair in bounds.items()))
    assert paths(dataset.snapshot().files(condition)) == sorted(expected.split())


def test_long_strings_that_differ_late_are_kept(lake: Lake) -> None:
    """Writers cut statistics, and the index cuts them again: equal bounds no longer mean equal values."""
    dataset = table(lake, schema=pa.schema([("t", pa.string())]))
    text = "x" * 32
    commit(
        lake,
        dataset,
        add("cut", stats=stats(3, t=(text, text + "\U0010ffff"))),
        add("same", stats=stats(3, t=(text, text))),
        add("whole", stats=stats(3, t=("x" * 100 + "a", "x" * 100 + "b"))),
    )
    snapshot = dataset.snapshot()
    for condition in (f"t != '{text}'", f"t LIKE '{'x' * 20}%'"):
        assert paths(snapshot.files(condition)) == ["cut", "same", "whole"]
    assert paths(snapshot.files(f"t = '{'x' * 100}aa'")) == ["cut", "whole"]
    assert paths(snapshot.files(f"t = '{text}x'")) == ["cut"]


@pytest.mark.parametrize("in_bulk", [False, True], ids=["few", "many"])
def test_partition_values_are_pruned_with_and_without_statistics(lake: Lake, in_bulk: bool) -> None:
    dataset = table(lake, partition_by=["day", "name"])
    days = ["2026-01-01", "2026-01-02", None]
    adds = [
        add(
            f"{day}-{name}",
            partition_values={"day": day, "name": name},
            stats=stats(3, id=(1, 2)) if name == "a" else None,
        )
        for day in days
        for name in ("a", "k")
    ]
    commit(lake, dataset, *([AddFiles.of(adds)] if in_bulk else adds))
    snapshot = dataset.snapshot()
    for condition, expected in {
        "day = '2026-01-01'": ["2026-01-01-a", "2026-01-01-k"],
        "day > DATE '2026-01-01'": ["2026-01-02-a", "2026-01-02-k"],
        "day IS NULL": ["None-a", "None-k"],
        "day IS NOT NULL AND name = 'k'": ["2026-01-01-k", "2026-01-02-k"],
        "day != '2026-01-02'": ["2026-01-01-a", "2026-01-01-k"],
        "name LIKE 'a%' AND day IN ('2026-01-01', '2025-01-01')": ["2026-01-01-a"],
        "id = 7": ["2026-01-01-k", "2026-01-02-k", "None-k"],
        "id = 7 AND name = 'a'": [],
        "id = 7 OR name = 'a'": [f"{day}-{name}" for day in days for name in ("a", "k")],
    }.items():
        assert paths(snapshot.files(condition)) == sorted(expected), condition


def test_row_groups_are_pruned_one_level_deeper(lake: Lake) -> None:
    dataset = table(lake)
    bounds = {"a.parquet": [(1, 3), (4, 6)], "b.parquet": [(1, 9), (7, 9)]}
    adds = [add(path, stats=stats(6, id=(pairs[0][0], pairs[1][1]))) for path, pairs in bounds.items()]
    groups = [
        RowGroup(path=path, row_group=n, row_count=3, stats=stats(3, id=pair))
        for path, pairs in bounds.items()
        for n, pair in enumerate(pairs)
    ]
    groups += [RowGroup(path="c.parquet", row_group=0, row_count=3)]
    commit(lake, dataset, *adds, add("c.parquet", stats=stats(3, id=(1, 9))), row_groups=groups)
    snapshot = dataset.snapshot()
    for condition, expected in {
        None: [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)],
        "id = 2": [(0, 0), (1, 0), (2, 0)],
        "id >= 7": [(1, 0), (1, 1), (2, 0)],
        "id IS NULL": [],
        "id > 100": [],
        "id BETWEEN 4 AND 6": [(0, 1), (1, 0), (2, 0)],
        "name = 'x'": [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0)],
    }.items():
        found = snapshot.row_groups(condition, columns=["ordinal", "row_group"]).to_pylist()
        assert sorted((row["ordinal"], row["row_group"]) for row in found) == expected, condition


def test_row_groups_with_unreadable_statistics_are_kept(lake: Lake) -> None:
    """In Arrow nobody looks into them before they are needed."""
    dataset = table(lake)
    groups = pa.table(
        {
            "path": ["a.parquet"] * 4,
            "row_group": [0, 1, 2, 3],
            "row_count": [1, 1, 1, 1],
            "stats": ["null", "not JSON", None, '{"minValues":{"id":"x"}}'],
        }
    )
    commit(lake, dataset, add(stats=stats(4, id=(1, 9))), row_groups=groups)
    assert dataset.snapshot().row_groups("id = 5").num_rows == 4
    assert dataset.snapshot().row_groups("id = 10").num_rows == 0


@pytest.mark.parametrize("in_bulk", [False, True], ids=["few", "many"])
def test_nan_is_never_lost(lake: Lake, in_bulk: bool) -> None:
    """Spark takes NaN for greater than any number; statistics may not mention it, or may be it."""
    dataset = table(lake, schema=pa.schema([("d", pa.float64()), ("x", pa.int64())]))
    adds = [
        add("unmentioned", stats=stats(3, d=(1.0, 2.0))),
        add("as text", stats='{"numRecords":3,"minValues":{"d":1.0},"maxValues":{"d":"NaN"},"nullCount":{"d":0}}'),
        add("infinite", stats='{"numRecords":3,"minValues":{"d":"-Infinity"},"maxValues":{"d":"Infinity"}}'),
        add("none", stats='{"numRecords":3,"nullCount":{"d":3}}'),
    ]
    adds = [AddFile(path=each.path.replace(" ", "-"), size=1, stats=each.stats) for each in adds]
    commit(lake, dataset, *([AddFiles.of(adds)] if in_bulk else adds))
    snapshot = dataset.snapshot()
    everything = ["as-text", "infinite", "unmentioned"]
    for condition in ("d > 1e300", "d = CAST('NaN' AS DOUBLE)", "d != 1", "NOT d < 1", "d >= CAST('NaN' AS DOUBLE)"):
        assert paths(snapshot.files(condition)) == everything, condition
    assert paths(snapshot.files("d < 0")) == ["infinite"]
    assert paths(snapshot.files("d = 7")) == ["as-text", "infinite"]
    assert paths(snapshot.files("d < CAST('-Infinity' AS DOUBLE)")) in ([], ["infinite"])


@pytest.mark.parametrize("kind", ["integer", "string", "date"])
def test_more_than_500_values_of_in_prune_too(lake: Lake, kind: str) -> None:
    arrow_type, value = {
        "integer": (pa.int64(), lambda n: (n, str(n))),
        "string": (pa.string(), lambda n: (f"{n:06}", f"'{n:06}'")),
        "date": (
            pa.date32(),
            lambda n: ((day := f"{1900 + n // 336}-{n // 28 % 12 + 1:02}-{n % 28 + 1:02}"), f"'{day}'"),
        ),
    }[kind]
    dataset = table(lake, schema=pa.schema([("x", arrow_type)]))
    commit(lake, dataset, *(add(f"{n}", stats=bounded(value(n)[0], value(n + 9)[0])) for n in range(0, 20_000, 100)))
    wanted = range(5000, 6000)
    kept = paths(dataset.snapshot().files(f"x IN ({', '.join(value(n)[1] for n in wanted)})"))
    assert kept == sorted(str(n) for n in range(5000, 6000, 100))
    excluded = paths(dataset.snapshot().files(f"x NOT IN ({', '.join(value(n)[1] for n in wanted)})"))
    assert len(excluded) == 200


def test_a_condition_of_any_size_is_answered(lake: Lake) -> None:
    """Databases take only so many parts of a query; what is beyond keeps files instead of failing."""
    dataset = table(lake)
    commit(lake, dataset, add("one", stats=stats(3, id=(1, 1))), add("two", stats=stats(3, id=(2, 2))))
    snapshot = dataset.snapshot()
    for condition in (
        " OR ".join(f"(id = {n} AND name = 'x{n}')" for n in range(1000)),
        " AND ".join(f"(id != {n} OR name != 'x{n}')" for n in range(1000)),
        " OR ".join(f"id != {n}" for n in range(1000)),
    ):
        assert paths(snapshot.files(condition)) == ["one", "two"]
    assert paths(snapshot.files(" OR ".join(f"id = {n}" for n in range(2, 3000)))) == ["two"]
