"""Spark Connect: what works there works as on a classic session, and what cannot be is refused with a reason."""

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakelog
from tests.fixtures.connect import run
from tests.fixtures.lakes import execute, forget_keys, qualified
from tests.invariants import check_invariants

pytestmark = pytest.mark.slow

CLIENT = """
import json, sys
from dataclasses import replace
import pyarrow as pa
import lakelog, lakelog.spark
from lakelog.schema import to_delta_json
from lakelog.spark.read.read import may_read
from pyspark.sql import SparkSession

url, root, checkpoint, twins = sys.argv[1:]
spark = SparkSession.builder.remote("local[1]").getOrCreate()
lake = lakelog.connect(url, root=root)
found = {"session": type(spark).__module__}


def ids(frame):
    return sorted(row.id for row in frame.collect())


def refused(call):
    try:
        call()
    except lakelog.ValidationError as error:
        return str(error)


def rows(*bounds):
    return spark.range(*bounds).selectExpr("id", "id % 3 AS k")


kept = {"delta.enableChangeDataFeed": "true"}
lakelog.write_dataset(lake, "events", rows(10), partition_by=["k"], properties=kept)
lakelog.write_dataset(lake, "events", rows(10, 20))
lakelog.write_dataset(lake, "events", rows(100, 101), "overwrite", replace_where="k = 1")
frame = lakelog.read_dataset(lake, "events", spark=spark)
found["read"] = ids(frame)
found["version"] = lake.dataset("events").version_of(frame)
found["pruned"] = ids(lakelog.read_dataset(lake, "events", where="k = 2 AND id > 9", spark=spark))
found["count"] = lake.dataset("events").count("id < 5", spark=spark)
changed = lakelog.read_changes(lake, "events", 2, spark=spark)
found["changed"] = {kind: ids(changed.where(f"_change_type = '{kind}'")) for kind in ("insert", "delete")}
with lakelog.spark.attach(spark, lake):
    found["attached"] = spark.sql("SELECT count(*) AS n FROM events").collect()[0].n

# A file for each row, so that a condition that is read differently than Spark reads it leaves the wrong one.
for s, t in [("'tab\\tbed'", "b"), (r"r'tab\\tbed'", "a"), ("'a'", "a"), ("'value'", "c")]:
    lakelog.write_dataset(lake, "texts", spark.sql(f"SELECT {s} AS s, '{t}' AS t").coalesce(1))
settings = {
    "spark.sql.parser.escapedStringLiterals": r"s = 'tab\\tbed'",
    "spark.sql.ansi.doubleQuotedIdentifiers": 's = "t"',
    "lakelog.variable": "s = '${lakelog.variable}'",
}
found["by_setting"] = []
for name, where in settings.items():
    before = spark.conf.get(name, "false")
    spark.conf.set(name, "value" if "variable" in name else "true")
    read = [lakelog.read_dataset(lake, "texts", where=each, spark=spark) for each in (where, None)]
    found["by_setting"].append([sorted(map(list, frame.where(where).collect())) for frame in read])
    spark.conf.set(name, before)

options = {"catalog": url, "root": root}
rows(200, 202).write.format("lakelog").options(**options).mode("append").save("events")
by_format = spark.read.format("lakelog").options(**options).load("events")
found["door"] = ids(by_format)
found["may_read"] = [
    may_read(frame, lake.dataset("events")) for frame in (by_format.where("id > 3"), frame, rows(3))
]

ruled = lake.create_dataset("ruled", pa.schema([("id", pa.int64()), ("twice", pa.int64())]))
twice = pa.field("twice", pa.int64(), metadata={"delta.generationExpression": "id * 2"})
metadata = replace(
    ruled.snapshot().metadata,
    schema_string=to_delta_json(ruled.schema().set(1, twice)),
    configuration={"delta.constraints.small": "id < 5"},
)
lakelog.SqlTxnLogWriter(lake).commit(ruled.id, 1, [metadata])
lakelog.write_dataset(lake, "ruled", spark.range(4, 5))
found["ruled"] = [tuple(row) for row in lakelog.read_dataset(lake, "ruled", spark=spark).collect()]
found["broken"] = refused(lambda: lakelog.write_dataset(lake, "ruled", spark.range(4, 7)))

stream = spark.readStream.format("rate").load()
found["refused"] = [
    refused(lambda: lake.sql("SELECT * FROM events", spark=spark)),
    refused(lambda: lakelog.spark.read_stream(lake, "events", checkpoint=checkpoint, spark=spark)),
    refused(lambda: lakelog.spark.write_stream(stream, lake, "copy", checkpoint=checkpoint)),
    refused(lambda: ruled.add_constraint("other", "id > 0", spark=spark)),
]
found["unsteady"] = [
    refused(lambda: lakelog.write_dataset(lake, "events", rows(9), "overwrite", replace_where="rand() < 0.5")),
    refused(lambda: lake.dataset("events").delete("rand() < 0.5", spark=spark)),
]

# What is asked of a row depends on rows of another table.
spark.sql("SELECT 0 AS kind, 4 AS most UNION ALL SELECT 1, 20 UNION ALL SELECT 2, 0").createOrReplaceTempView("limits")
correlated = "id < (SELECT max(most) FROM limits WHERE kind = {})"
for name in ("deleted", "updated", "merged", "replaced"):
    lakelog.write_dataset(lake, name, rows(6).coalesce(1))
lake.dataset("deleted").delete(correlated.format("k"), spark=spark)
lake.dataset("updated").update({"id": "id + 100"}, correlated.format("k"), spark=spark)
merge = lake.dataset("merged").merge(rows(6).alias("s"), "t.id = s.id", alias="t")
merge.whenMatchedDelete(correlated.format("t.k").replace("id <", "t.id <")).execute()
lakelog.write_dataset(lake, "replaced", rows(1), "overwrite", replace_where=correlated.format("k"))
changed = ("deleted", "updated", "merged", "replaced")
found["correlated"] = {name: ids(lakelog.read_dataset(lake, name, spark=spark)) for name in changed}
found["unsteady"].append(
    refused(lambda: lake.dataset("deleted").delete(f"{correlated.format('k')} AND rand() < 0.5", spark=spark))
)
today = ["id > 0 AND DATE 'today' > DATE '2020-01-01'", "id > 1 AND timestamp_ntz 'NOW' > at", "date' yesterday' > at"]
found["today"] = [refused(lambda each=each: lake.dataset("deleted").delete(each, spark=spark)) for each in today]
with lakelog.connect(twins, root=root, upgrade=True) as old, lakelog.spark.attach(spark, old):
    found["views"] = sorted(table.name for table in spark.catalog.listTables() if table.name in old.versions())
lake.close()
spark.stop()
print(json.dumps(found))
"""

KEPT = [0, 2, 3, 5, 6, 8, 9, 11, 12, 14, 15, 17, 18, 100]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("connect")


@pytest.fixture(scope="module")
def found(place: Path) -> dict[str, Any]:
    """What a client saw. It has a process of its own, since a classic session and one of Connect do not share one."""
    twins = f"sqlite:///{place}/twins.db"
    with lakelog.connect(twins, root=place / "twins") as lake:
        for name in ("Orders", "other", "parts"):
            lake.create_dataset(name, pa.schema([("id", pa.int64())]))
        forget_keys(lake)
        execute(lake, f"UPDATE {qualified(lake, 'dl_tables')} SET name = 'orders' WHERE name = 'other'")
    arguments = [f"sqlite:///{place}/catalog.db", str(place / "lake"), str(place / "checkpoint"), twins]
    printed = run(sys.executable, "-c", CLIENT, *arguments, directory=place)
    return dict(json.loads(printed.splitlines()[-1]))


def test_tables_are_written_and_read(found: dict[str, Any], place: Path) -> None:
    assert found["session"].startswith("pyspark.sql.connect")
    assert (found["read"], found["version"], found["attached"]) == (KEPT, 2, len(KEPT))
    with lakelog.connect(f"sqlite:///{place}/catalog.db", root=place / "lake") as lake:
        assert lake.dataset("events").count() == len(KEPT) + 2
        check_invariants(lake)


def test_conditions_are_understood(found: dict[str, Any]) -> None:
    assert (found["pruned"], found["count"]) == ([11, 14, 17], 3)


def test_a_setting_that_changes_what_a_text_means_hides_no_row(found: dict[str, Any]) -> None:
    """Spark's own filter over all rows is the oracle."""
    pruned, expected = zip(*found["by_setting"], strict=True)
    assert pruned == expected == ([[r"tab\tbed", "a"]], [["a", "a"]], [["value", "c"]])


def test_the_change_feed_is_read(found: dict[str, Any]) -> None:
    assert found["changed"] == {"insert": [100], "delete": [1, 4, 7, 10, 13, 16, 19]}


def test_sparks_own_door_is_open(found: dict[str, Any]) -> None:
    assert found["door"] == [*KEPT, 200, 201]
    assert found["may_read"] == [True, True, False]


def test_rules_are_enforced(found: dict[str, Any]) -> None:
    assert found["ruled"] == [[4, 8]]
    assert "the constraint 'small': 2 rows for which id < 5 is not true, one of them with id = " in found["broken"]


def test_conditions_that_choose_other_rows_each_time_are_refused(found: dict[str, Any]) -> None:
    assert all("gives another answer each time it is asked" in (each or "") for each in found["unsteady"])


def test_conditions_may_depend_on_rows_of_another_table(found: dict[str, Any]) -> None:
    assert found["correlated"] == {
        "deleted": [2, 5],
        "updated": [2, 5, 100, 101, 103, 104],
        "merged": [2, 5],
        "replaced": [0, 2, 5],
    }


def test_days_that_each_query_may_take_for_another_are_refused(found: dict[str, Any]) -> None:
    assert all("may mean another day in each query" in (each or "") for each in found["today"])


def test_datasets_whose_names_differ_only_by_case_are_left_out(found: dict[str, Any]) -> None:
    assert found["views"] == ["parts"]


def test_what_needs_a_classic_session_is_refused_with_a_reason(found: dict[str, Any]) -> None:
    sql, read_stream, write_stream, add_constraint = found["refused"]
    assert "spark: Spark Connect keeps its plans to itself: use lakelog.spark.attach, or read_dataset" in sql
    assert "spark: Spark Connect has no access to the driver's files: use format('lakelog')" in read_stream
    assert "frame: Spark Connect runs batches in another process: use writeStream.format('lakelog')" in write_stream
    assert "Spark Connect does not show how it understands an expression" in add_constraint
