"""Conditions that cannot be analysed are refused with a reason, whatever their text."""

import contextlib
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.errors import ValidationError
from lakelog.log.pruning.predicate import Everything, IsNull, NotNull, Or
from lakelog.log.pruning.reader import parse
from tests.fixtures.forms import COLUMNS, messages


def test_columns_without_bounds_can_only_be_asked_for_null() -> None:
    assert parse("raw is null", COLUMNS) == IsNull("raw")
    assert parse("tags is null", COLUMNS) == Everything()
    assert parse("user is not null", COLUMNS) == Everything()
    assert parse("user.name is not null", COLUMNS) == NotNull("user.name")
    assert "binary" in messages("raw = 'a'")
    assert "cannot be compared" in messages("tags = 5")
    assert "cannot be compared" in messages("user = 'a'")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("usr.name = 'a'", "no column 'usr.name'; did you mean user.name?"),
        ("zzzzz = 1", "no column 'zzzzz'; there are i, j,"),
        ("s = 5", "quote the value"),
        ("s = date '2026-01-01'", "quote the value"),
        ("s in ('a', 5)", "quote the value"),
        ("i = 'five'", "'five' is not written as one"),
        ("i = '5.5'", "is not written as one"),
        ("i = true", "cannot be compared"),
        ("m = 'x'", "not a number"),
        ("m = '1.005'", "more digits after the point"),
        ("b = 1", "TRUE or FALSE"),
        ("b = 'maybe'", "not a boolean"),
        ("i", "not a boolean"),
        ("d = 5", "write the value as DATE"),
        ("d = '2026-01-01 10:00:00'", "not a date"),
        ("d = '2026-02-30'", "no such day"),
        ("t = 'yesterday'", "not a timestamp"),
        ("t = '2026-01-01 25:00:00'", "no such day or time"),
        ("t = '2026-01-01 00:00:00 Mars/Base'", "not a known time zone"),
        ("t = '2026-01-01 00:00:00.1234567'", "not a timestamp"),
        ("i = cast(300 as tinyint)", "does not fit into TINYINT"),
        ("i = cast('5.5' as int)", "does not fit into INT"),
        ("m = cast(1.005 as decimal(10, 2))", "does not fit into DECIMAL"),
        ("i = 123456789012345678901234567890123456789", "more than the 38 digits"),
        ("f = 1e999", "out of range"),
        ("i = -'5'", "only a number can have a sign"),
        ("i = j", "two columns"),
        ("i + 1 = 5", "cannot be analysed"),
        ("i = 1 + 1", "cannot be analysed"),
        ("s = +'5'", "plus sign"),
        ("abs(i) = 5", "cannot be analysed"),
        ("cast(i as string) = '5'", "cannot be analysed"),
        ("d = current_date()", "cannot be analysed"),
        ("s ilike 'a%'", "cannot be analysed"),
        ("s rlike 'a'", "cannot be analysed"),
        ("i between symmetric 5 and 1", "cannot be analysed"),
        ("i < 5 < 6", "cannot be analysed"),
        ("(i = 5) is true", "cannot be analysed"),
        ("case when b then true end", "cannot be analysed"),
        ("tags[0] = 'a'", "cannot be analysed"),
        ("1.5 = 1e0", "no column"),
        ("s like 5", "quoted pattern"),
        ("i like '5%'", "LIKE needs a string column"),
        (r"s like 'a\\'", "must be followed by"),
        ("s like 'a' escape 'ab'", "one character"),
        ("i in ()", "at least one value"),
        ("i in (select 1)", "subquery"),
        ("i = (select max(i) from t)", "subquery"),
        ("exists (select 1)", "subquery"),
        ("count(i) > 5", "aggregate"),
        ("i = 1 -- one", "comment"),
        ("-- nothing else", "not one condition"),
        ("i = 1; j = 2", "more than one statement"),
        ("", "empty"),
        (" \n ", "empty"),
        ("i = ", "not a condition"),
        ("i = 5 5", "not a condition"),
        ("i = 'a", "not a condition"),
        ("select 1", "not a condition"),
        ("drop table i", "not a condition"),
        ("i = 5 \0", "NUL"),
        (r"s = 'a\0'", "NUL"),
        ("s = '\ud800'", "surrogate"),
        (r"s = '\ud800'", "not a Unicode character"),
        (r"s = '\Uffffffff'", "not a Unicode character"),
        ("i = 1" + " or i = 1" * 20_000, "longer than 100,000"),
        ("(" * 5_000 + "i = 1" + ")" * 5_000, "nested too deeply"),
        ("not " * 5_000 + "i = 1", "nested too deeply"),
        ("abs(" * 90 + "i" + ")" * 90, ""),
    ],
)
def test_what_cannot_be_analysed_is_refused_with_a_reason(where: str, message: str) -> None:
    assert message in messages(where)


def test_all_problems_of_a_predicate_are_listed() -> None:
    with pytest.raises(ValidationError) as caught:
        parse("zz = 1 and (s = 5 or not abs(i) > 3)", COLUMNS)
    assert [violation.where for violation in caught.value.violations] == ["zz = 1", "s = 5", "ABS(i) > 3"]


def test_thousands_of_terms_are_read() -> None:
    form = parse(" or ".join(f"i = {n}" for n in range(5_000)), COLUMNS)
    assert isinstance(form, Or)
    assert len(form.items) == 5_000
    assert parse(f"i in ({', '.join(str(n) for n in range(5_000))})", COLUMNS) == form


def test_sqlglot_is_loaded_only_when_a_predicate_is_read() -> None:
    code = "import lakelog.log.pruning.predicate, sys; sys.exit('sqlglot' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


WORDS = (
    *("i", "j", "s", "d", "b", "t", "x.y", "not", "and", "or", "in", "is", "null", "like", "between", "escape", "cast"),
    *("=", "<", "<=>", "(", ")", ",", "-", "'", "5", "1e5", "'a'", "'2026-01-01'", "date", "true", "as", "int", "--"),
)


@given(st.text(st.sampled_from("ijsd()'\"`=<>!,%_;.*-+[]{}\\ 019eE") | st.characters(), max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ValidationError):
        parse(text, COLUMNS)


@given(st.lists(st.sampled_from(WORDS)))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    with contextlib.suppress(ValidationError):
        parse(" ".join(words), COLUMNS)
