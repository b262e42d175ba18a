"""Predicates: what is read, what is refused, and that no row that SQL would return is ever pruned."""

import contextlib
import datetime
import itertools
import subprocess
import sys
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.errors import ValidationError
from lakelog.log.pruning.predicate import (
    And,
    Differs,
    Everything,
    IsNull,
    Nothing,
    NotNull,
    Or,
    Predicate,
    Range,
    Value,
    holds,
)
from lakelog.log.pruning.reader import parse, read_condition

COLUMNS = {
    "i": pa.int32(),
    "j": pa.int64(),
    "s": pa.string(),
    "d": pa.date32(),
    "t": pa.timestamp("us", "UTC"),
    "n": pa.timestamp("us"),
    "f": pa.float64(),
    "g": pa.float32(),
    "m": pa.decimal128(10, 2),
    "wide": pa.decimal128(38, 0),
    "fine": pa.decimal128(20, 18),
    "b": pa.bool_(),
    "raw": pa.binary(),
    "tags": pa.list_(pa.string()),
    "user": pa.struct([("name", pa.string())]),
    "user.name": pa.string(),
    "`a.b`.c": pa.int32(),
    "Mixed": pa.int32(),
    "one.two.three.four.five.six": pa.int32(),
    "date": pa.date32(),
}
DAY = 86_400_000_000
HOUR = DAY // 24
NEW_YEAR = 20454 * DAY  # 2026-01-01


def point(column: str, value: Value) -> Range:
    return Range(column, value, True, value, True)


def above(column: str, value: Value, inclusive: bool = False) -> Range:
    return Range(column, value, inclusive, None, False)


def below(column: str, value: Value, inclusive: bool = False) -> Range:
    return Range(column, None, False, value, inclusive)


def around(column: str, value: int, slack: int) -> Range:
    return Range(column, value - slack, True, value + slack, True)


def either(*items: Predicate) -> Or:
    return Or(items)


def both(*items: Predicate) -> And:
    return And(items)


def messages(where: str, timezone: str = "UTC") -> str:
    with pytest.raises(ValidationError) as caught:
        parse(where, COLUMNS, timezone)
    assert caught.value.subject == "predicate"
    return str(caught.value)


@pytest.mark.parametrize(
    ("where", "form"),
    [
        ("i = 5", point("i", 5)),
        ("i == 5", point("i", 5)),
        ("i <=> 5", point("i", 5)),
        ("i is not distinct from 5", point("i", 5)),
        ("i != 5", Differs("i", 5)),
        ("i <> 5", Differs("i", 5)),
        ("i < 5", below("i", 5)),
        ("i <= 5", below("i", 5, inclusive=True)),
        ("i > 5", above("i", 5)),
        ("i >= 5", above("i", 5, inclusive=True)),
        ("5 < i", above("i", 5)),
        ("5 >= i", below("i", 5, inclusive=True)),
        ("5 = i", point("i", 5)),
        ("(i) = ((5))", point("i", 5)),
        ("i = -5", point("i", -5)),
        ("i = -(-5)", point("i", 5)),
        ("i = +5", point("i", 5)),
        ("i = 5L and j = 5S", both(point("i", 5), point("j", 5))),
        ("i between 1 and 5", Range("i", 1, True, 5, True)),
        ("5 between i and 10", below("i", 5, inclusive=True)),
        ("i not between 1 and 5", either(below("i", 1), above("i", 5))),
        ("i in (3, 1, 2, 1)", either(point("i", 1), point("i", 2), point("i", 3))),
        ("i in (7)", point("i", 7)),
        ("i not in (2, 1)", both(Differs("i", 1), Differs("i", 2))),
        ("i is null", IsNull("i")),
        ("i is not null", NotNull("i")),
        ("b", point("b", 1)),
        ("not b", point("b", 0)),
        ("b = true", point("b", 1)),
        ("b is true", point("b", 1)),
        ("b is not true", either(point("b", 0), IsNull("b"))),
        ("b is false", point("b", 0)),
        ("b = 'no'", point("b", 0)),
        ("true", Everything()),
        ("false", Nothing()),
        ("null", Nothing()),
        ("not null", Nothing()),
        ("1 = 1", Everything()),
        ("'a' = 'b'", Nothing()),
    ],
)
def test_comparisons_become_intervals(where: str, form: Predicate) -> None:
    assert parse(where, COLUMNS) == form


@pytest.mark.parametrize(
    ("where", "form"),
    [
        ("not (i = 5)", Differs("i", 5)),
        ("not i = 5", Differs("i", 5)),
        ("! i = 5", Differs("i", 5)),
        ("not (i > 5)", below("i", 5, inclusive=True)),
        ("not (i >= 5)", below("i", 5)),
        ("not (i < 5)", above("i", 5, inclusive=True)),
        ("not (i <= 5)", above("i", 5)),
        ("not (i <> 5)", point("i", 5)),
        ("not not i = 5", point("i", 5)),
        ("not (i = 5 or s = 'a')", both(Differs("i", 5), Differs("s", "a"))),
        ("not (i = 5 and s = 'a')", either(Differs("i", 5), Differs("s", "a"))),
        ("not (i <=> 5)", either(Differs("i", 5), IsNull("i"))),
        ("i is distinct from 5", either(Differs("i", 5), IsNull("i"))),
        ("i <=> null", IsNull("i")),
        ("not (i <=> null)", NotNull("i")),
        ("null <=> i", IsNull("i")),
        ("i = null", Nothing()),
        ("not (i = null)", Nothing()),
        ("i in (1, null)", point("i", 1)),
        ("i not in (1, null)", Nothing()),
        ("i in (null)", Nothing()),
        ("i between null and 5", Nothing()),
        ("i not between null and 5", above("i", 5)),
        ("s like null", Nothing()),
        ("not (not i is null)", IsNull("i")),
    ],
)
def test_null_is_neither_true_nor_false(where: str, form: Predicate) -> None:
    assert parse(where, COLUMNS) == form


@pytest.mark.parametrize(
    ("where", "form"),
    [
        ("i > 1 and i <= 5 and i < 9", Range("i", 1, False, 5, True)),
        ("i >= 1 and i > 1", above("i", 1)),
        ("i <= 1 and i < 1", below("i", 1)),
        ("i > 1 and (s = 'a' and i < 3)", both(Range("i", 1, False, 3, False), point("s", "a"))),
        ("i > 5 and i < 3", Nothing()),
        ("i > 5 and i <= 5", Nothing()),
        ("i = 1 and i = 2", Nothing()),
        ("i between 5 and 1", Nothing()),
        ("i = 1 and i is not null", point("i", 1)),
        ("i = 1 and i is null", Nothing()),
        ("i is null and i is not null", Nothing()),
        ("i is null or i is not null", Everything()),
        ("i is not null or i > 5", NotNull("i")),
        ("i = 1 or (i = 2 or i = 1)", either(point("i", 1), point("i", 2))),
        ("i = 1 or false", point("i", 1)),
        ("i = 1 and true", point("i", 1)),
        ("i = 1 or true", Everything()),
        ("i = 1 and false", Nothing()),
        ("i = 1 or i = 2 and s = 'a'", either(point("i", 1), both(point("i", 2), point("s", "a")))),
        ("(i = 1 or i = 2) and i > 0", both(either(point("i", 1), point("i", 2)), above("i", 0))),
    ],
)
def test_the_form_is_simplified(where: str, form: Predicate) -> None:
    assert parse(where, COLUMNS) == form


@pytest.mark.parametrize(
    ("where", "form"),
    [
        ("s like 'abc%'", Range("s", "abc", True, "abd", False)),
        ("s like 'abc'", point("s", "abc")),
        ("s not like 'abc'", Differs("s", "abc")),
        ("s not like 'abc%'", NotNull("s")),
        ("not (s not like 'abc%')", Range("s", "abc", True, "abd", False)),
        ("s like 'a%b'", Range("s", "a", True, "b", False)),
        ("s like 'a_'", Range("s", "a", True, "b", False)),
        ("s like '%'", NotNull("s")),
        ("s like '_a'", NotNull("s")),
        ("s like ''", point("s", "")),
        ("s like 'a!%b%' escape '!'", Range("s", "a%b", True, "a%c", False)),
        ("s not like 'a!!' escape '!'", Differs("s", "a!")),
        (r"s like 'a\%b'", point("s", "a%b")),
        (r"s like 'a\_%'", Range("s", "a_", True, "a`", False)),
        ("s like '\ud7ff%'", Range("s", "\ud7ff", True, "\ue000", False)),
        ("s like 'a\U0010ffff%'", Range("s", "a\U0010ffff", True, "b", False)),
        ("s like '\U0010ffff%'", above("s", "\U0010ffff", inclusive=True)),
    ],
)
def test_like_becomes_the_range_of_its_prefix(where: str, form: Predicate) -> None:
    assert parse(where, COLUMNS) == form


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("s = 'O''Brien'", "O'Brien"),
        ("s = ''''", "'"),
        ('s = "a""b"', 'a"b'),
        (r"s = 'it\'s'", "it's"),
        (r"s = 'a\nb\tc\\d\qe'", "a\nb\tc\\dqe"),
        (r"s = 'a\%b'", r"a\%b"),
        (r"s = '\u0041\U0001F600\101'", "A\U0001f600A"),
        (r"s = '\uD83D\uDE00'", "\U0001f600"),
        (r"s = r'a\nb'", r"a\nb"),
        ("s = cast('x' as string)", "x"),
    ],
)
def test_strings_are_read_as_spark_reads_them(where: str, value: str) -> None:
    assert parse(where, COLUMNS) == point("s", value)


@pytest.mark.parametrize(
    ("where", "form"),
    [
        ("i > 2.5", above("i", Decimal("2.5"))),
        ("i = '5'", point("i", 5)),
        ("i = 1e3", point("i", 1000)),
        ("i = cast('5' as int)", point("i", 5)),
        ("i > 2.5D", above("i", 3, inclusive=True)),
        ("j = 9007199254740993", point("j", 9007199254740993)),
        ("j = 99999999999999999999", point("j", 99999999999999999999)),
        ("m = 1.10", point("m", Decimal("1.1"))),
        ("m = 1.5BD", point("m", Decimal("1.5"))),
        ("m = cast('1.25' as decimal(10, 2))", point("m", Decimal("1.25"))),
        ("m <> 1", Differs("m", 1)),
    ],
)
def test_integers_and_decimals_stay_exact(where: str, form: Predicate) -> None:
    assert parse(where, COLUMNS) == form


def test_a_comparison_in_floating_point_covers_every_value_that_rounds_to_the_constant() -> None:
    form = parse("j = 9007199254740992D", COLUMNS)
    assert all(holds(form, {"j": value}) for value in (9007199254740992, 9007199254740993))
    form = parse("j in (9007199254740993, 1D)", COLUMNS)
    assert holds(form, {"j": 9007199254740992})
    assert holds(parse("i = 16777216F", COLUMNS), {"i": 16777217})
    assert parse("m not in ('1.5')", COLUMNS) == NotNull("m")
    assert parse("i not in ('05')", COLUMNS) == NotNull("i")
    assert holds(parse("fine = '0.1'", COLUMNS), {"fine": Decimal("0.100000000000000001")})
    assert parse("fine <> '0.1'", COLUMNS) == NotNull("fine")


def test_an_order_that_spark_takes_as_settled_includes_nulls() -> None:
    assert parse("j < 9223372036854775808", COLUMNS) == Everything()
    assert parse("not (-9223372036854775809 >= j)", COLUMNS) == Everything()
    assert parse("j < 9223372036854775807", COLUMNS) == below("j", 2**63 - 1)
    assert parse("j > 9223372036854775808", COLUMNS) == above("j", 2**63)


def test_a_comparison_beyond_38_digits_covers_what_spark_rounds() -> None:
    assert holds(parse("wide = 4.5", COLUMNS), {"wide": 5})
    assert holds(parse("fine = cast(1 as decimal(38, 0))", COLUMNS), {"fine": Decimal("1.4")})
    assert parse("wide <> 4.5", COLUMNS) == NotNull("wide")


@pytest.mark.parametrize("column", ["f", "g"])
def test_floating_point_columns_cover_the_constant_and_its_roundings(column: str) -> None:
    nearest_single = Decimal("0.100000001490116119384765625")
    assert parse(f"{column} = 0.1", COLUMNS) == Range(column, Decimal("0.1"), True, nearest_single, True)
    assert parse(f"{column} < 0.1", COLUMNS) == below(column, nearest_single, inclusive=True)
    assert parse(f"{column} > 0.1", COLUMNS) == above(column, Decimal("0.1"), inclusive=True)
    assert parse(f"not ({column} >= 0.1)", COLUMNS) == below(column, nearest_single, inclusive=True)
    assert parse(f"{column} = 0.5", COLUMNS) == point(column, Decimal("0.5"))
    assert parse(f"{column} <> 0.5", COLUMNS) == NotNull(column)
    assert parse(f"not ({column} <=> 0.5)", COLUMNS) == Everything()


def test_infinities_and_nan_lie_beyond_all_numbers() -> None:
    nan = parse("f = cast('NaN' as double)", COLUMNS)
    assert isinstance(nan, Range)
    assert nan.high is None
    assert holds(nan, {"f": float("inf")})
    assert holds(parse("f <= '-Infinity'", COLUMNS), {"f": float("-inf")})
    assert parse("f < 'Infinity'", COLUMNS) == NotNull("f")
    assert parse("g < 1e39", COLUMNS) == NotNull("g")


@pytest.mark.parametrize(
    ("where", "form"),
    [
        ("d = '2026-01-01'", point("d", NEW_YEAR)),
        ("d = '2026-1-1'", point("d", NEW_YEAR)),
        ("d = date '2026-01-01'", point("d", NEW_YEAR)),
        ("date < date '2026-01-01'", below("date", NEW_YEAR)),
        ("d = cast('2026-01-01' as date)", point("d", NEW_YEAR)),
        ("d > '1969-12-31'", above("d", -DAY)),
        ("d in ('2026-01-02', '2026-01-01')", either(point("d", NEW_YEAR), point("d", NEW_YEAR + DAY))),
        ("d = timestamp_ntz '2026-01-01 01:00:00'", point("d", NEW_YEAR + HOUR)),
        ("d = timestamp '2026-01-01 01:00:00'", around("d", NEW_YEAR + HOUR, DAY)),
        ("d <> timestamp '2026-01-01'", NotNull("d")),
        ("t = '2026-01-01'", point("t", NEW_YEAR)),
        ("t = timestamp '2026-01-01 01:00:00.000001'", point("t", NEW_YEAR + HOUR + 1)),
        ("t = '2026-01-01T01:00Z'", point("t", NEW_YEAR + HOUR)),
        ("t > timestamp '2026-01-01 01:00:00+01:00'", above("t", NEW_YEAR)),
        ("t = '2026-01-01 01:00:00 Europe/Berlin'", point("t", NEW_YEAR)),
        ("t = date '2026-01-01'", around("t", NEW_YEAR, DAY)),
        ("t >= timestamp_ntz '2026-01-01'", above("t", NEW_YEAR - DAY, inclusive=True)),
        ("n = '2026-01-01 01:00:00'", point("n", NEW_YEAR + HOUR)),
        ("n = timestamp '2026-01-01 01:00:00'", point("n", NEW_YEAR + HOUR)),
        ("n = timestamp_ntz '2026-01-01'", point("n", NEW_YEAR)),
        ("n = date '2026-01-01'", point("n", NEW_YEAR)),
        ("n = timestamp '2026-01-01 00:00:00Z'", around("n", NEW_YEAR, DAY)),
        ("t = '0001-01-01'", point("t", -719162 * DAY)),
        ("t < '9999-12-31 23:59:59.999999'", below("t", 2932897 * DAY - 1)),
    ],
)
def test_dates_and_timestamps_become_microseconds(where: str, form: Predicate) -> None:
    assert parse(where, COLUMNS) == form


def test_timestamps_without_a_zone_are_read_in_the_given_one() -> None:
    berlin = "Europe/Berlin"
    assert parse("t = '2026-01-01 01:00:00'", COLUMNS, berlin) == point("t", NEW_YEAR)
    assert parse("t = '2026-01-01 01:00:00'", COLUMNS, "+01:00") == point("t", NEW_YEAR)
    assert parse("t = '2026-01-01 00:00:00Z'", COLUMNS, berlin) == point("t", NEW_YEAR)
    assert parse("n = timestamp '2026-01-01'", COLUMNS, berlin) == point("n", NEW_YEAR)
    assert "not a known time zone" in messages("i = 1", "Europe/Bonn")


def test_near_a_clock_change_a_day_is_added_on_both_sides() -> None:
    changed = int(datetime.datetime(2026, 3, 29, 1, 30, tzinfo=datetime.UTC).timestamp()) * 1_000_000
    where = "t = '2026-03-29 02:30:00'"  # a time that no clock in Berlin shows
    assert parse(where, COLUMNS, "Europe/Berlin") == around("t", changed, DAY)


@pytest.mark.parametrize(
    ("where", "column"),
    [
        ("I = 5", "i"),
        ("mixed = 5", "Mixed"),
        ("`MIXED` = 5", "Mixed"),
        ("`a.b`.C = 5", "`a.b`.c"),
        ("One.Two.Three.Four.Five.Six = 5", "one.two.three.four.five.six"),
    ],
)
def test_columns_are_found_without_regard_to_case(where: str, column: str) -> None:
    assert parse(where, COLUMNS) == point(column, 5)


def test_of_two_spellings_the_exact_one_is_taken() -> None:
    columns = {"Id": pa.int32(), "ID": pa.int32()}
    assert parse("Id = 1", columns) == point("Id", 1)
    with pytest.raises(ValidationError, match="ambiguous: Id, ID"):
        parse("id = 1", columns)


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
