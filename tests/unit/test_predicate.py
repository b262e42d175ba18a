"""The form that a condition is read as: intervals of the columns, and what is null."""

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lakelog.errors import ValidationError
from lakelog.log.pruning.predicate import Differs, Everything, IsNull, Nothing, NotNull, Predicate, Range, holds
from lakelog.log.pruning.reader import parse
from tests.fixtures.forms import COLUMNS, DAY, HOUR, NEW_YEAR, above, around, below, both, either, messages, point


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
