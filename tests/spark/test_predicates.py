"""What Spark's own reading of a condition leaves of a table's files: never too few."""

from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakelog import Dataset, Lake, ValidationError
from lakelog.log.pruning.predicate import And, Differs, Everything, IsNull, Nothing, NotNull, Or, Predicate, Range
from lakelog.spark.predicates.analysis import predicate_of
from lakelog.spark.read.read import spark_scan
from tests.contract import predicates
from tests.contract.predicates import ALL, File, replace_files
from tests.contract.samples import table

ZONE = "spark.sql.session.timeZone"
ANSI = "spark.sql.ansi.enabled"
NEW_YORK = "America/New_York"
HOUR = 3_600_000_000
DAY = 24 * HOUR

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("n", pa.int64()),
        ("d", pa.float64()),
        ("f", pa.float32()),
        ("m", pa.decimal128(12, 2)),
        ("b", pa.bool_()),
        ("t", pa.string()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("place", pa.struct([("x", pa.int32()), ("a.b", pa.string())])),
        ("we.ird `name`", pa.int32()),
        ("list", pa.list_(pa.int32())),
    ]
)


@pytest.fixture
def setting(spark: SparkSession) -> Iterator[Callable[[str, str], None]]:
    """Changes settings of the session until the test ends."""
    before: dict[str, str] = {}

    def change(key: str, value: str) -> None:
        before.setdefault(key, spark.conf.get(key))
        spark.conf.set(key, value)

    yield change
    for key, value in before.items():
        spark.conf.set(key, value)


def moment(text: str) -> int:
    """Microseconds since 1970."""
    return (date.fromisoformat(text) - date(1970, 1, 1)).days * DAY


def point(column: str, value: Any) -> Range:
    return Range(column, value, True, value, True)


def above(column: str, value: Any, inclusive: bool = False) -> Range:
    return Range(column, value, inclusive, None, False)


NEW_YEAR = moment("2024-01-01")
UNDERSTOOD: dict[str, Predicate] = {
    "i > 5": above("i", 5),
    "5 < i": above("i", 5),
    "NOT (i <= 5)": above("i", 5),
    "n > 5": above("n", 5),
    "i = '5'": point("i", 5),
    "i > 5.5": above("i", 5),
    "i != 5": Differs("i", 5),
    "i BETWEEN 2 AND 8": Range("i", 2, True, 8, True),
    "NOT (i BETWEEN 2 AND 8)": Or((Range("i", None, False, 2, False), above("i", 8))),
    "i IN (1, 2)": Or((point("i", 1), point("i", 2))),
    "i IN (1, NULL)": point("i", 1),
    "i NOT IN (1, 2)": And((Differs("i", 1), Differs("i", 2))),
    "i NOT IN (1, NULL)": Nothing(),
    "i IS NULL": IsNull("i"),
    "i IS NOT NULL": NotNull("i"),
    "i <=> NULL": IsNull("i"),
    "i <=> 5": point("i", 5),
    "NOT (i <=> 5)": Or((Differs("i", 5), IsNull("i"))),
    "i = CAST(NULL AS INT)": Nothing(),
    "i = 2 + 3": point("i", 5),
    "m > 1": above("m", 1),
    "d > 0.5": above("d", 0.5, inclusive=True),
    "b": point("b", 1),
    "NOT b": point("b", 0),
    "b IS NOT FALSE": Or((Differs("b", 0), IsNull("b"))),
    "t = 'x'": point("t", "x"),
    "t LIKE 'ab%'": Range("t", "ab", True, "ac", False),
    "t LIKE 'ab%c_'": Range("t", "ab", True, "ac", False),
    "t LIKE 'abc'": point("t", "abc"),
    "t NOT LIKE 'ab%'": NotNull("t"),
    "startswith(t, 'ab')": Range("t", "ab", True, "ac", False),
    "day = '2024-01-01'": point("day", NEW_YEAR),
    "at >= '2024-01-01'": above("at", NEW_YEAR + 5 * HOUR, inclusive=True),
    "at >= '2024-01-01T00:00:00Z'": above("at", NEW_YEAR, inclusive=True),
    "at >= TIMESTAMP '2024-07-01 00:00:00'": above("at", moment("2024-07-01") + 4 * HOUR, inclusive=True),
    "local >= '2024-01-01'": above("local", NEW_YEAR, inclusive=True),
    "CAST(at AS DATE) = '2024-01-01'": Range("at", NEW_YEAR - DAY, True, NEW_YEAR + 2 * DAY, True),
    "place.x = 3": point("place.x", 3),
    "place.`a.b` IS NULL": IsNull("place.`a.b`"),
    "`we.ird ``name``` = 3": point("`we.ird ``name```", 3),
    "i = 1 AND t = 'x'": And((point("i", 1), point("t", "x"))),
    "i = 1 AND length(t) > 3": point("i", 1),
    "i = 1 OR length(t) > 3": Everything(),
    "TRUE": Everything(),
    "FALSE": Nothing(),
    "rand() > 0.5": Everything(),
    "coalesce(i, 0) = 0": Everything(),
    "i = n": Everything(),
    "i = 1 / 0": Everything(),
    "t = 5": NotNull("t"),
    "CAST(n AS INT) = 5": NotNull("n"),
    "try_cast(t AS INT) IS NULL": Everything(),
    "t = 'a' COLLATE UTF8_LCASE": NotNull("t"),
    "element_at(list, 1) = 5": Everything(),
}


@pytest.mark.parametrize("condition", UNDERSTOOD)
def test_a_condition_means_what_spark_takes_it_for(
    spark: SparkSession, setting: Callable[[str, str], None], condition: str
) -> None:
    setting(ZONE, NEW_YORK)
    assert predicate_of(spark, SCHEMA, condition) == UNDERSTOOD[condition]


def test_a_condition_may_be_a_column(spark: SparkSession) -> None:
    assert predicate_of(spark, SCHEMA, (F.col("i") > 5) & F.col("t").startswith("ab")) == And(
        (above("i", 5), Range("t", "ab", True, "ac", False))
    )


def test_what_time_it_is_is_only_used_where_time_cannot_change_the_answer(spark: SparkSession) -> None:
    today = moment(str(datetime.now(UTC).date()))
    recent = predicate_of(spark, SCHEMA, "day >= date_sub(current_date(), 7)")
    assert isinstance(recent, Range)
    assert recent.high is None
    assert today - 10 * DAY <= int(str(recent.low)) <= today - 7 * DAY
    same = predicate_of(spark, SCHEMA, "at = now() - INTERVAL 1 HOUR")
    assert isinstance(same, Range)
    assert same.high is None
    for condition in ("day < current_date()", "day != current_date()", "day <= date_add(current_date(), 1)"):
        assert predicate_of(spark, SCHEMA, condition) == NotNull("day")
    # An hour without a day is one of the day on which it is asked.
    assert predicate_of(spark, SCHEMA, "at < '12:00'") == NotNull("at")
    assert predicate_of(spark, SCHEMA, "i = day(current_date())") == NotNull("i")
    assert predicate_of(spark, SCHEMA, "current_date() > DATE '2020-01-01'") == Everything()


def test_a_long_list_keeps_its_ends(spark: SparkSession) -> None:
    listed = ", ".join(str(n) for n in range(10, 6_010))
    assert predicate_of(spark, SCHEMA, f"i IN ({listed})") == Range("i", 10, True, 6_009, True)


def test_an_empty_list_has_no_value_and_leaves_out_none(spark: SparkSession) -> None:
    column = F.col("i")
    assert predicate_of(spark, SCHEMA, column.isin([])) == Nothing()
    assert predicate_of(spark, SCHEMA, ~column.isin([])) == Everything()


def test_a_condition_of_many_parts_is_understood(spark: SparkSession) -> None:
    found = predicate_of(spark, SCHEMA, " OR ".join(f"(i = {n} AND t = 'x')" for n in range(200)))
    assert isinstance(found, Or)
    assert len(found.items) == 200


@pytest.mark.parametrize("condition", ["i >", "nothing = 1", "i", "sum(i) > 3", "i = DATE '2024-01-01'"])
def test_a_condition_that_spark_refuses_is_our_error_with_its_words(spark: SparkSession, condition: str) -> None:
    with pytest.raises(ValidationError, match="SQLSTATE"):
        predicate_of(spark, SCHEMA, condition)


_ODD = [
    "moment {op} '2024-02-29'",
    "moment {op} '2024-02-29 12:30:15.1239'",
    "moment {op} DATE '2024-02-29'",
    "moment {op} TIMESTAMP '2024-02-29 07:30:15.124'",
    "moment {op} TIMESTAMP_NTZ '2024-02-29 07:30:15.124'",
    "local {op} TIMESTAMP '2024-02-29 12:30:15.124'",
    "local {op} DATE '1970-01-01'",
    "day {op} TIMESTAMP '1970-01-01 00:00:00'",
    "day {op} TIMESTAMP_NTZ '1969-12-31 12:00:00'",
    "day {op} '2024-02-29'",
    "CAST(moment AS DATE) {op} DATE '1969-12-31'",
    "CAST(local AS DATE) {op} DATE '1970-01-01'",
    "CAST(moment AS TIMESTAMP_NTZ) {op} TIMESTAMP_NTZ '1969-12-31 19:00:00'",
    "p_moment {op} '1969-12-31 19:00:00'",
    "p_day {op} TIMESTAMP '2024-02-29 00:00:00'",
    "i {op} 9007199254740992.0D",
    "i {op} 0.5",
    "i {op} '6'",
    "n {op} 2.0",
    "n {op} 99999999999",
    "CAST(i AS DOUBLE) {op} 9007199254740993",
    "m {op} 1.005",
    "m {op} 1",
    "m {op} 0.1D",
    "long {op} 1",
    "long {op} 1.000000000000000001",
    "CAST(long AS DOUBLE) {op} 1.0D",
    "f {op} 0.1",
    "f {op} 0.1F",
    "f {op} 0.1D",
    "f {op} CAST('NaN' AS FLOAT)",
    "d {op} CAST('NaN' AS DOUBLE)",
    "d {op} CAST('-Infinity' AS DOUBLE)",
    "d {op} 0",
    "d {op} -0.0D",
    "d {op} '0.1'",
    "p_m {op} 1.0",
    "p_i {op} 5.5",
    "t {op} 'ab'",
    "p_t {op} ''",
    "day {op} date_sub(DATE '2024-03-01', 1)",
]
_odd = st.builds(
    lambda template, op: template.format(op=op),
    st.sampled_from(_ODD),
    st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "<=>"]),
)
_mixed = st.one_of(
    predicates.conditions(),
    _odd,
    _odd.map("NOT ({})".format),
    st.tuples(_odd, st.sampled_from(["AND", "OR"]), predicates.conditions()).map(" ".join),
)


@given(files=predicates.files(), conditions=st.lists(_mixed, min_size=10, max_size=20), data=st.data())
@settings(
    max_examples=30,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_row_that_spark_finds_is_never_lost(
    spark: SparkSession,
    setting: Callable[[str, str], None],
    lake: Lake,
    files: list[File],
    conditions: list[str],
    data: st.DataObject,
) -> None:
    """Spark evaluates each condition on all rows; the files of those that it finds must be kept."""
    setting(ZONE, data.draw(st.sampled_from(["UTC", NEW_YORK])))
    setting(ANSI, data.draw(st.sampled_from(["true", "false"])))
    dataset = _table(lake)
    replace_files(lake, dataset, files, in_bulk=data.draw(st.booleans()))
    numbers = [n for n, file in enumerate(files) for group in file.groups for _ in group]
    rows = [row for file in files for group in file.groups for row in group]
    columns = {name: pa.array([row[name] for row in rows], column.type) for name, column in ALL.items()}
    frame = spark.createDataFrame(pa.table({"file": pa.array(numbers), **columns}))
    asked = [F.count_if(F.expr(each)).alias(f"c{n}") for n, each in enumerate(conditions)]
    answers = frame.groupBy("file").agg(*asked).collect()
    snapshot = dataset.snapshot()
    for n, condition in enumerate(conditions):
        matching = {f"{dataset.version}/{row['file']}.parquet" for row in answers if row[f"c{n}"]}
        predicate = predicate_of(spark, predicates.SCHEMA, condition)
        kept = set(snapshot.files(predicate, columns=["path"]).column("path").to_pylist())
        assert matching <= kept, (condition, predicate)
        # What bounds decide about whole files is right, too.
        decided, undecided = spark_scan(spark, dataset, snapshot, condition).counted()
        open_files = {int(Path(path).stem) for path in undecided.column("path").to_pylist()}
        left = sum(row[f"c{n}"] for row in answers if row["file"] in open_files)
        assert decided + left == sum(row[f"c{n}"] for row in answers), condition


def _table(lake: Lake) -> Dataset:
    known = {dataset.name for dataset in lake.datasets()}
    if "events" in known:
        return lake.dataset("events")
    return table(lake, schema=predicates.SCHEMA, partition_by=list(predicates.PARTITIONS))
