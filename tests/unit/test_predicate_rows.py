"""A condition keeps every row that SQL returns for it, and puts the others on the other side."""

import datetime
import itertools

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.log.pruning.predicate import Differs, Everything, IsNull, Nothing, Predicate, Value, holds
from lakelog.log.pruning.reader import parse, read_condition
from tests.fixtures.forms import DAY, below, either

INTS = (None, -1, 0, 1, 2, 3)
STRINGS = (None, "", "a", "a%", "ab", "b", "é", "\uffff", "\U0001f600")
DATES = (None, "2025-12-31", "2026-01-01", "2026-01-02")
BOOLS = (None, True, False)
SMALL = {"i": pa.int32(), "s": pa.string(), "d": pa.date32(), "b": pa.bool_()}
CELLS = list(itertools.product(INTS, STRINGS, DATES, BOOLS))


def in_form_units(cell: tuple[int | None, str | None, str | None, bool | None]) -> dict[str, Value | None]:
    number, text, day, truth = cell
    days = None if day is None else datetime.date.fromisoformat(day).toordinal() - datetime.date(1970, 1, 1).toordinal()
    return {"i": number, "s": text, "d": None if days is None else days * DAY, "b": truth}


ROWS = [in_form_units(cell) for cell in CELLS]


@pytest.fixture(scope="module")
def reference() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    table = pa.table(
        {
            "id": pa.array(range(len(CELLS))),
            "i": pa.array([cell[0] for cell in CELLS], pa.int32()),
            "s": pa.array([cell[1] for cell in CELLS], pa.string()),
            "d": pa.array([cell[2] for cell in CELLS], pa.string()).cast(pa.date32()),
            "b": pa.array([cell[3] for cell in CELLS], pa.bool_()),
        }
    )
    connection.register("source", table)
    connection.execute("create table cells as from source")
    return connection


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def conditions(*, exact: bool) -> st.SearchStrategy[str]:
    """SQL that Spark and DuckDB read alike; exact leaves out what the normal form only approximates."""
    ints = st.integers(-2, 4).map(str) | st.just("NULL") | st.sampled_from(["0.5", "2.50", "-1.5", "'1'"])
    listed_ints = st.integers(-2, 4).map(str) | st.just("NULL")
    strings = st.sampled_from([quoted(text) for text in STRINGS if text is not None] + ["'aa'", "'''x'", "NULL"])
    dates = st.sampled_from([f"{kind}'{day}'" for day in DATES if day for kind in ("DATE ", "")] + ["NULL"])
    listed_dates = st.sampled_from([f"DATE '{day}'" for day in DATES if day] + ["NULL"])
    sides = [("i", ints, listed_ints), ("s", strings, strings), ("d", dates, listed_dates)]
    operators = st.sampled_from(["=", "==", "<>", "!=", "<", "<=", ">", ">="])
    distinct = st.sampled_from(["IS DISTINCT FROM", "IS NOT DISTINCT FROM"])
    negation = st.sampled_from(["", "NOT "])
    leaves: list[st.SearchStrategy[str]] = [
        st.sampled_from(["b", "NOT b", "b IS NULL", "b = TRUE", "b IS NOT TRUE", "TRUE", "FALSE", "1 = 1"])
    ]
    for column, values, listed in sides:
        name = st.just(column)
        leaves += [
            st.builds("{}{} {} {}".format, negation, name, operators | distinct, values),
            st.tuples(values, operators, name).map(" ".join),
            st.builds("{} {}BETWEEN {} AND {}".format, name, negation, values, values),
            st.builds("{} {}IN ({})".format, name, negation, st.lists(listed, min_size=1, max_size=4).map(", ".join)),
            st.builds("{} IS {}NULL".format, name, negation),
        ]
    if not exact:
        patterns = st.text("ab%_é", max_size=4).map(quoted)
        leaves.append(st.builds("s {}LIKE {}".format, negation, patterns))
        leaves.append(
            st.builds("s {}LIKE {} ESCAPE '!'".format, negation, st.sampled_from(["'a!%'", "'a!%%'", "'!_b'"]))
        )
    return st.recursive(
        st.one_of(leaves),
        lambda inner: st.one_of(
            st.builds("{} AND {}".format, inner, inner),
            st.builds("{} OR {}".format, inner, inner),
            st.builds("NOT ({})".format, inner),
            st.builds("({})".format, inner),
        ),
        max_leaves=6,
    )


def true_rows(reference: duckdb.DuckDBPyConnection, where: str) -> set[int]:
    return {key for (key,) in reference.execute(f"select id from cells where {where}").fetchall()}


def kept_rows(where: str) -> set[int]:
    form = parse(where, SMALL)
    return {key for key, row in enumerate(ROWS) if holds(form, row)}


@settings(max_examples=200, deadline=None)
@given(where=conditions(exact=False))
def test_no_row_that_sql_returns_is_pruned(reference: duckdb.DuckDBPyConnection, where: str) -> None:
    assert true_rows(reference, where) <= kept_rows(where)


@settings(max_examples=200, deadline=None)
@given(where=conditions(exact=True))
def test_exact_predicates_keep_exactly_the_rows_that_sql_returns(
    reference: duckdb.DuckDBPyConnection, where: str
) -> None:
    assert true_rows(reference, where) == kept_rows(where)


@settings(max_examples=200, deadline=None)
@given(where=conditions(exact=False))
def test_every_row_is_on_the_side_that_sql_puts_it(reference: duckdb.DuckDBPyConnection, where: str) -> None:
    condition = read_condition(where, SMALL)
    true = true_rows(reference, where)
    assert condition.rows == parse(where, SMALL)
    assert all(holds(condition.others, row) for key, row in enumerate(ROWS) if key not in true)
    assert all(holds(form, ROWS[key]) for _, form in condition.parts for key in true)


@pytest.mark.parametrize(
    ("where", "others"),
    [
        ("i > 1", either(below("i", 1, True), IsNull("i"))),
        ("i > 1 AND s = 'a'", either(below("i", 1, True), Differs("s", "a"), IsNull("i"), IsNull("s"))),
        ("i IS NOT NULL", IsNull("i")),
        ("i = NULL", Everything()),
        ("i IN (1, NULL)", Everything()),
        ("TRUE", Nothing()),
    ],
)
def test_the_other_side_of_a_condition(where: str, others: Predicate) -> None:
    assert read_condition(where, SMALL).others == others
