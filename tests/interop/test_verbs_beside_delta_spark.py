"""The same verb on the same rows by ``LakeTable`` and by delta-spark's ``DeltaTable``: rows, change feed, schema,
metrics, errors and answers are the same, but for the differences that docs/changing.md lists.

Skipped where delta-spark's jars cannot be had (CONTRIBUTING.md says how). ``LAKELOG_TEST_DELTA_EXAMPLES`` is how many
stories each test makes up.
"""

import json
import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import lakelog
from lakelog import LakelogError, ValidationError, read_changes, write_dataset
from lakelog.spark import LakeTable
from tests.interop.readers import delta_spark
from tests.interop.stories import Seen, Side, Step, Story, play
from tests.interop.story_strategies import RULED, SCHEMA, deletes, merges, ruled_stories, stories, updates
from tests.invariants import check_invariants

SOME = settings(
    max_examples=int(os.environ.get("LAKELOG_TEST_DELTA_EXAMPLES", "10")),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SAME = ("error", "rows", "schema", "changes", "operation", "versions")
OF_FILES = {"numCopiedRows", "numTargetRowsCopied", "numOutputRows", "numRemovedFiles", "numTargetFilesRemoved"}
"""Metrics that follow from which rows lie together. They do so in the first commit; each side has its own way then."""
OF_ROWS = {
    "numDeletedRows",
    "numUpdatedRows",
    *(
        f"numTargetRows{which}{what}"
        for which in ("", "Matched", "NotMatchedBySource")
        for what in ("Updated", "Deleted")
    ),
    "numTargetRowsInserted",
}

KINDS = {
    "matched by more than one row of the source": "several matches",
    "the constraint": "rule",
    "where the table has NOT NULL": "rule",
    "as which it is generated": "rule",
    "does not fit": "does not fit",
}


def kind(error: Exception) -> str:
    found = next((word for part, word in KINDS.items() if part in str(error)), None)
    if found is None and isinstance(error, ValidationError):
        return "refused"
    if found is None and not isinstance(error, LakelogError | PySparkException):
        raise error
    return found or f"{type(error).__name__}: {error}"[:300]


@pytest.fixture
def side_by_side(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    ask = delta_spark()

    def played(story: Story) -> list[tuple[Seen, Seen]]:
        place = tmp_path_factory.mktemp("story")
        with (
            lakelog.connect(f"sqlite:///{place}/catalog.db", root=place / "lake") as lake,
            ThreadPoolExecutor(1) as pool,
        ):
            theirs = pool.submit(ask, {"location": str(place / "delta"), "story": story})
            side = Side(
                spark=spark,
                builder=lambda: LakeTable.create(spark, lake=lake).tableName("t"),
                table=lambda: LakeTable.forName(spark, "t", lake=lake),
                append=lambda frame: write_dataset(lake, "t", frame),
                add_constraint=lambda name, expression: lake.dataset("t").add_constraint(name, expression),
                changes=lambda version: read_changes(lake, "t", version, version),
                kind=kind,
            )
            ours = json.loads(json.dumps(play(side, story), default=str))
            check_invariants(lake)
            return list(zip(ours, theirs.result()["seen"], strict=True))

    return played


def compare(pairs: list[tuple[Seen, Seen]]) -> None:
    is_laid_out_alike = True
    for ours, theirs in pairs:
        if is_less_strict(ours, theirs):
            return
        changed = told(theirs, OF_ROWS)
        said = f"{ours.get('said')} and {theirs.get('said')}"
        same = [key for key in SAME if not is_idle(ours, theirs) or key not in ("versions", "operation")]
        assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}, said
        if ours["versions"]:
            assert told(ours, changed) == changed
            # Delta counts a source twice that it reads twice.
            if ours["step"]["do"] == "merge":
                assert told(ours, ["numSourceRows"])["numSourceRows"] == len(ours["step"]["source"])
            copied = told(theirs, OF_FILES)
            if is_laid_out_alike:
                # Never more than Delta writes, and less where rows without a match are all that changes.
                assert all(told(ours, copied)[name] <= value for name, value in copied.items())
        is_laid_out_alike &= not theirs["versions"]


def told(seen: Seen, names: Collection[str]) -> dict[str, int]:
    """The numbers that a commit gives under these names."""
    return {name: int(value) for name, value in seen["metrics"].items() if name in names}


def is_less_strict(ours: Seen, theirs: Seen) -> bool:
    """Delta refuses several matches even if there is no clause for rows with a match."""
    return (
        ours["error"] is None
        and theirs["error"] == "several matches"
        and not any(method.startswith("whenMatched") for method, _ in ours["step"]["clauses"])
    )


def is_idle(ours: Seen, theirs: Seen) -> bool:
    """Delta commits a merge that changes no row; here nothing is committed then."""
    changed = sum(told(theirs, OF_ROWS).values())
    return ours["versions"] == 0 and theirs["operation"] == "MERGE" and not changed


@SOME
@given(story=stories(deletes))
def test_a_delete_does_what_deltas_does(side_by_side: Any, story: Story) -> None:
    compare(side_by_side(story))


@SOME
@given(story=stories(updates))
def test_an_update_does_what_deltas_does(side_by_side: Any, story: Story) -> None:
    compare(side_by_side(story))


@SOME
@given(story=stories(merges()))
def test_a_merge_does_what_deltas_does(side_by_side: Any, story: Story) -> None:
    compare(side_by_side(story))


@SOME
@given(story=stories(merges(evolves=True), most=1))
def test_a_merge_evolves_the_schema_as_deltas_does(side_by_side: Any, story: Story) -> None:
    compare(side_by_side(story))


@SOME
@given(story=ruled_stories())
def test_rules_are_kept_as_delta_keeps_them(side_by_side: Any, story: Story) -> None:
    compare(side_by_side(story))


WRITTEN = {
    "schema": SCHEMA,
    "partitioned": ["k"],
    "properties": {"delta.enableChangeDataFeed": "true", "team": "mine"},
    "files": [[[number, number % 2, f"s{number}", {"x": number, "y": None}, [number], None] for number in (1, 2, 3)]]
    * 2,
}


def test_answers_have_deltas_columns_and_types(side_by_side: Any) -> None:
    steps = [
        {"do": "optimize", "condition": "k = 1"},
        {"do": "optimize"},
        {"do": "optimize"},
        {"do": "optimize", "zorder": ["id", "s"]},
        {"do": "restore", "version": 1},
        {"do": "generate", "mode": "symlink_format_manifest"},
        {"do": "history", "limit": 3},
        {"do": "detail"},
        {"do": "delete", "condition": "id = 1"},
        {"do": "update", "condition": "id = 2", "set": {"s": "'new'"}},
        {
            "do": "merge",
            "condition": "t.id = s.id",
            "clauses": [["whenMatchedDelete", {}]],
            "source": [[2]],
            "schema": "id long",
        },
        {"do": "vacuum", "hours": 168},
    ]
    pairs = side_by_side(WRITTEN | {"steps": steps})
    compare(pairs[:-1])
    for ours, theirs in pairs:
        if ours["answer"] is None or "columns" not in ours["answer"]:
            assert ours["answer"] == theirs["answer"]
        else:
            assert ours["answer"]["columns"] == theirs["answer"]["columns"]
            assert [told_alike(row) for row in ours["answer"]["rows"]] == [
                told_alike(row) for row in theirs["answer"]["rows"]
            ]


ITS_OWN = {
    *("path", "location", "id", "name", "format", "engineInfo"),
    *("minReaderVersion", "minWriterVersion", "tableFeatures"),
    *("sizeInBytes", "table_size_after_restore", "removed_files_size", "restored_files_size"),
    *("min", "max", "avg", "totalSize", "size", "isolationLevel", "operationParameters", "operationMetrics"),
    *("totalClusterParallelism", "totalScheduledTasks", "startTimeMs", "endTimeMs", "numTableColumnsWithStats"),
}
"""Where and what a table is, the sizes of files, how conditions are spelled, and how Delta's engine went about it."""


def told_alike(value: Any) -> Any:
    """An answer without what each side says in its own way."""
    if isinstance(value, dict):
        return {name: told_alike(inner) for name, inner in value.items() if name not in ITS_OWN}
    return value


@pytest.mark.parametrize(
    "step",
    [
        {"do": "delete", "condition": "nope = 1"},
        {"do": "delete", "condition": "id"},
        {"do": "update", "condition": None, "set": {"nope": "1"}},
        {"do": "update", "condition": None, "set": {"k": "'text'"}},
        {"do": "update", "condition": None, "set": {"k": "id + 3000000000"}},
        {"do": "update", "condition": None, "set": {"place": "named_struct('x', 1)"}},
        {"do": "update", "condition": None, "set": {"place.x": "1", "place": "NULL"}},
        {"do": "restore", "version": 99},
        {"do": "optimize", "condition": "id = 1"},
        {"do": "optimize", "zorder": ["k"]},
        {"do": "optimize", "zorder": ["nope"]},
        {"do": "generate", "mode": "nope"},
        {"do": "merge", "clauses": [["whenNotMatchedInsert", {"values": {"nope": "s.id"}}]]},
        {"do": "merge", "clauses": [["whenNotMatchedInsert", {"values": {"id": "t.id"}}]]},
        {"do": "merge", "clauses": [["whenNotMatchedBySourceUpdate", {"set": {"s": "s.id"}}]]},
        {"do": "merge", "clauses": [["whenMatchedDelete", {}], ["whenMatchedUpdateAll", {}]]},
        {"do": "merge", "clauses": [["whenNotMatchedInsertAll", {}]]},
        {"do": "merge", "clauses": []},
    ],
    ids=lambda step: json.dumps(list(step.values())).replace('"', ""),
)
def test_what_delta_refuses_is_refused(side_by_side: Any, step: Step) -> None:
    if step["do"] == "merge":
        step = step | {"source": [[1]], "schema": "id long", "condition": "t.id = s.id"}
    ((ours, theirs),) = side_by_side(WRITTEN | {"steps": [step]})
    assert theirs["error"] is not None, "delta-spark has not refused it"
    assert ours["error"] is not None
    assert (ours["rows"], ours["versions"]) == (theirs["rows"], theirs["versions"])


class TestDifferences:
    """Those that docs/changing.md lists, and that stories above keep away from."""

    def test_a_column_is_widened_without_a_property(self, side_by_side: Any) -> None:
        step = {
            "do": "merge",
            "condition": "t.k = s.k",
            "evolves": True,
            "schema": "k bigint",
            "source": [[7], [1 << 40]],
        }
        story = {"schema": "k int", "files": [[[1]]], "steps": [step | {"clauses": [["whenNotMatchedInsertAll", {}]]}]}
        ((ours, theirs),) = side_by_side(story)
        assert (ours["error"], ours["schema"]) == (None, [["k", "bigint"]])
        assert (theirs["error"], theirs["schema"]) == ("does not fit", [["k", "int"]])
        ((ours, theirs),) = side_by_side(story | {"properties": {"delta.enableTypeWidening": "true"}})
        compare([(ours, theirs)])

    def test_an_update_finds_the_fields_of_a_struct_by_name(self, side_by_side: Any) -> None:
        step = {"do": "update", "condition": None, "set": {"p": "named_struct('y', p.y, 'x', 7)"}}
        story = {"schema": "p struct<x:int,y:string>", "files": [[[{"x": 1, "y": "2"}]]], "steps": [step]}
        ((ours, theirs),) = side_by_side(story)
        assert (ours["rows"], theirs["rows"]) == (['{"p":{"x":7,"y":"2"}}'], ['{"p":{"x":2,"y":"7"}}'])

    def test_a_struct_gets_the_fields_that_a_clause_takes(self, side_by_side: Any) -> None:
        clauses = [["whenMatchedUpdate", {"set": {"p": "named_struct('y', s.id, 'x', 7)"}}]]
        step = {"do": "merge", "condition": "t.id = s.id", "evolves": True, "clauses": clauses}
        step |= {"schema": "id int, p struct<x:int,y:int,z:int>", "source": [[1, None]]}
        story = {"schema": "id int, p struct<x:int,y:int>", "files": [[[1, {"x": 1, "y": 2}]]], "steps": [step]}
        ((ours, theirs),) = side_by_side(story)
        assert ours["rows"] == ['{"id":1,"p":{"x":7,"y":1}}']
        assert theirs["rows"] == ['{"id":1,"p":{"x":7,"y":1,"z":null}}']

    def test_a_null_struct_has_no_field_that_is_null(self, side_by_side: Any) -> None:
        step = {"do": "append", "schema": "p struct<x:int>", "source": [[None]]}
        story = {"schema": "p struct<x:int NOT NULL>", "files": [], "steps": [step, step | {"source": [[{"x": None}]]}]}
        (null, inside) = side_by_side(story)
        assert [seen["error"] for seen in null] == [None, "rule"]
        assert [seen["error"] for seen in inside] == ["rule", "rule"]

    def test_defaults_and_generated_columns_need_not_be_in_a_source(self, side_by_side: Any) -> None:
        source = {"schema": "id bigint", "source": [[1]]}
        merge = {"do": "merge", "condition": "t.id = s.id", "clauses": [["whenNotMatchedInsertAll", {}]]}
        rules = {key: RULED[key] for key in ("generated", "defaults", "properties")}
        story = rules | {"schema": "id bigint, twice bigint, kind string", "files": []}
        (appended, merged) = side_by_side(
            story | {"steps": [{"do": "append"} | source, merge | source | {"source": [[2]]}]}
        )
        assert [seen["error"] for seen in merged] == [None, "refused"]
        assert ['"kind":"plain"' in seen["rows"][0] for seen in appended] == [True, False]
        assert merged[0]["rows"][1] == '{"id":2,"twice":4,"kind":"plain"}'

    def test_no_rows_are_a_version(self, side_by_side: Any) -> None:
        step = {"do": "append", "schema": "id bigint", "source": []}
        ((ours, theirs),) = side_by_side({"schema": "id bigint", "files": [], "steps": [step]})
        assert (ours["versions"], theirs["versions"]) == (1, 0)
