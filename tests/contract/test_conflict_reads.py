"""What a commit read: predicates, partitions and renamed columns, compared with what others wrote."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakelog import Lake, LakelogError, ValidationError
from lakelog.actions import AddFile
from lakelog.catalog.base import Parameters, Row, Session
from lakelog.changes.bins import Bin
from lakelog.changes.conflicts import Reads, find_conflict
from lakelog.changes.evolution import plan_overwrite
from lakelog.changes.partition_values import files_in
from lakelog.parquet.footers import Harvest
from lakelog.spark.optimize import compaction as optimize
from lakelog.spark.write.options import WriteOptions
from lakelog.spark.write.table_change import Change
from tests.contract.lost_races import FIRST, SECOND, Setting, file, removes
from tests.contract.registering import on_sqlite
from tests.contract.samples import add, commit, paths, stats, table

PREDICATES = [
    "id = 25",
    "id BETWEEN 0 AND 5 OR id > 95",
    "id != 7",
    "NOT id = 7",
    "id NOT IN (7, 8)",
    "id IS NULL",
    "id IS NOT NULL",
    "id IS NOT NULL AND id <> 7 AND day IS NOT NULL",
    "name = 'b'",
    "name LIKE 'b%'",
    "name <> 'b'",
    "name IS NULL OR id < 5",
    f"day = DATE'{FIRST}'",
    f"day > DATE'{FIRST}' AND (name = 'b' OR NOT id = 7)",
    "later IS NULL",
    "later = 3",
    "later <> 3",
    "1 = 1",
    "1 = 0",
]
"""Searches for what can match and for what cannot, of columns that were always there and of one that came later."""


def assorted(prefix: str, later: bool) -> list[AddFile]:
    def known(name: str, *, low: Any, high: Any, nulls: int = 0, more: Any = None) -> str:
        values = {"id": (low, high), "name": (name, name)}
        if later and more is not None:
            values["later"] = (more, more)
        said = {
            "numRecords": 4,
            "minValues": {key: value[0] for key, value in values.items()},
            "maxValues": {key: value[1] for key, value in values.items()},
            "nullCount": dict.fromkeys(values, nulls),
        }
        return json.dumps(said)

    texts = [
        known("a", low=0, high=9),
        known("b", low=7, high=7, more=3),
        known("b", low=20, high=29, nulls=1, more=4),
        json.dumps({"numRecords": 4, "nullCount": {"id": 4, "name": 0}, "minValues": {"name": "c"}}),
        json.dumps({"numRecords": 4}),
        None,
    ]
    days = itertools.cycle([FIRST, SECOND])
    return [file(f"{prefix}{number}", next(days), stats=text) for number, text in enumerate(texts)]


def test_a_predicate_is_in_conflict_with_exactly_the_files_that_pruning_keeps(lake: Lake, other_lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"])
    commit(lake, dataset, *assorted("old", later=False))
    dataset.add_column("later", pa.int64())
    base = commit(lake, dataset, *assorted("base", later=True)).version
    removed = {commit(other_lake, dataset, *removes(path)).version: path for path in paths(dataset.snapshot().files())}
    added = {commit(other_lake, dataset, each).version: each.path for each in assorted("new", later=True)}
    head = dataset.version
    for predicate in PREDICATES:
        reads = Reads(predicates=(predicate,))
        kept = {*paths(dataset.snapshot(base).files(predicate)), *paths(dataset.snapshot(head).files(predicate))}
        expected = {version for version, path in (removed | added).items() if path in kept}
        found = {
            version
            for version in range(base + 1, head + 1)
            if find_conflict(lake.committer, dataset.id, version - 1, version, reads)
        }
        assert found == expected, predicate
        first = find_conflict(lake.committer, dataset.id, base, head, reads)
        assert (first.version if first else None) == min(expected, default=None), predicate


def test_a_predicate_that_cannot_be_analysed_is_taken_to_match(setting: Setting) -> None:
    setting.win([file("w", SECOND, 20)])
    assert setting.find(Reads(predicates=("id + 1 = 5",))) is not None
    assert setting.find(Reads(predicates=("id = 5", "upper(name) = 'X'"))) is not None
    assert setting.find(Reads(predicates=("id = 5",))) is None


def test_one_of_several_predicates_is_enough(setting: Setting) -> None:
    setting.win([file("w", SECOND, 20)])
    assert setting.find(Reads(predicates=("id = 5", f"day = DATE'{FIRST}'"))) is None
    assert setting.find(Reads(predicates=("id = 5", f"day = DATE'{SECOND}'"))) is not None
    assert setting.find(Reads(predicates=("id = 5",), partitions=({"day": SECOND},))) is not None


PARTITIONED = pa.schema(
    [
        ("id", pa.int64()),
        ("text", pa.string()),
        ("money", pa.decimal128(8, 2)),
        ("ratio", pa.float32()),
        ("at", pa.timestamp("us", "UTC")),
        ("flag", pa.bool_()),
    ]
)
VALUES = {
    "text": "a",
    "money": "1.50",
    "ratio": "0.1",
    "at": "2026-01-01T12:00:00.000000Z",
    "flag": "true",
}


@pytest.mark.parametrize(
    ("read", "conflicting"),
    [
        (VALUES, True),
        ({"money": "1.5"}, True),
        ({"money": "1.51"}, False),
        ({"ratio": "0.10000000149011612"}, True),
        ({"ratio": "0.11"}, False),
        ({"at": "2026-01-01 12:00:00"}, True),
        ({"at": "2026-01-01T14:00:00+02:00"}, True),
        ({"at": "2026-01-01 12:00:01"}, False),
        ({"flag": "TRUE"}, True),
        ({"flag": "false"}, False),
        ({"text": "A"}, False),
        ({"text": None}, False),
        ({**VALUES, "flag": "false"}, False),
        ({}, True),
    ],
)
def test_partition_values_are_compared_as_values(
    lake: Lake, other_lake: Lake, read: dict[str, str | None], conflicting: bool
) -> None:
    dataset = table(lake, schema=PARTITIONED, partition_by=list(VALUES))
    commit(other_lake, dataset, add("w", partition_values=VALUES))
    commit(other_lake, dataset, *removes("w"))
    for base in (0, 1):
        found = find_conflict(lake.committer, dataset.id, base, base + 1, Reads(partitions=({"text": "z"}, read)))
        assert (found is not None) == conflicting


EDGES = [
    (pa.int64(), "1729000000000000002", "1729000000000000001"),
    (pa.int64(), "9007199254740993", "9007199254740992"),
    (pa.decimal128(38, 0), "12345678901234567890123456789012345678", "12345678901234567890123456789012345677"),
    (pa.decimal128(38, 10), "1234567890123456789012345678.0000000001", "1234567890123456789012345678.0000000002"),
    (pa.timestamp("us", "UTC"), "1600-01-01T00:00:00.000001Z", "1600-01-01T00:00:00.000002Z"),
    (pa.timestamp("us", "UTC"), "9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999998Z"),
    (pa.timestamp("us"), "9999-12-31 23:59:59.999999", "9999-12-31 23:59:59.999998"),
    (pa.float64(), "0.30000000000000004", "0.3"),
    (pa.float64(), "NaN", "1.5"),
    (pa.float32(), "16777216", "16777218"),
    (pa.date32(), "1500-02-28", "1500-03-01"),
    (pa.string(), "x" * 1000 + "a", "x" * 1000 + "b"),
    (pa.string(), "e\u0301", "\u00e9"),
]
"""Values of a type that rounding would make the same."""


def test_neighbouring_partition_values_are_not_the_same(lake: Lake, other_lake: Lake) -> None:
    names = [f"p{number}" for number in range(len(EDGES))]
    kinds, ones, others = zip(*EDGES, strict=True)
    schema = pa.schema([("id", pa.int64()), *zip(names, kinds, strict=True)])
    dataset = table(lake, schema=schema, partition_by=names)
    read = dict(zip(names, ones, strict=True))
    neighbours = [{**read, name: other} for name, other in zip(names, others, strict=True)]
    commit(
        other_lake,
        dataset,
        *(add(each, partition_values=values) for each, values in zip(names, neighbours, strict=True)),
    )
    commit(other_lake, dataset, add("same", partition_values=read))
    snapshot = dataset.snapshot()
    for unsure in (False, True):
        found = files_in(snapshot.files(), [read], snapshot.state.metadata, unsure=unsure)
        assert found.column("path").to_pylist() == ["same"]
    for base, conflicting in ((0, False), (1, True)):
        found = find_conflict(lake.committer, dataset.id, base, base + 1, Reads(partitions=(read,)))
        assert (found is not None) == conflicting


@pytest.mark.parametrize(
    ("kind", "written", "read"),
    [
        (pa.decimal128(8, 2), "1.005", "1.01"),
        (pa.timestamp("us"), "2026-01-01T12:00:00+02:00", "2026-01-01 12:00:00"),
        (pa.timestamp("us", "UTC"), "2026-01-01T12:00:00.0000009", "2026-01-01T12:00:00Z"),
    ],
)
def test_a_file_of_a_value_that_cannot_be_told_is_kept_and_conflicts(
    lake: Lake, other_lake: Lake, kind: pa.DataType, written: str, read: str
) -> None:
    dataset = table(lake, schema=pa.schema([("id", pa.int64()), ("p", kind)]), partition_by=["p"])
    commit(other_lake, dataset, add("w", partition_values={"p": written}))
    snapshot = dataset.snapshot()
    for overwritten, removed in ((read, []), (written, ["w"])):
        found = files_in(snapshot.files(), [{"p": overwritten}], snapshot.state.metadata)
        assert found.column("path").to_pylist() == removed
        assert find_conflict(lake.committer, dataset.id, 0, 1, Reads(partitions=({"p": overwritten},))) is not None


def written_to(value: str) -> Harvest:
    """A file of one row."""
    adds = pa.table({"partition_values": [json.dumps({"p": value})]})
    return Harvest(adds=adds, row_groups=adds.slice(0, 0), rows=1)


@on_sqlite
def test_a_value_that_cannot_be_told_is_neither_overwritten_nor_what_compaction_wrote(lake: Lake) -> None:
    """Conflicts take it for what it may be, and these two only for what it is."""
    dataset = table(lake, schema=pa.schema([("id", pa.int64()), ("p", pa.decimal128(8, 2))]), partition_by=["p"])
    commit(lake, dataset, add("unsure", partition_values={"p": "1.005"}), add("sure", partition_values={"p": "1.010"}))
    snapshot = dataset.snapshot()
    change = Change(snapshot=snapshot, plan=plan_overwrite(snapshot, snapshot.schema, None))
    options = WriteOptions(mode="overwrite", partition_overwrite_mode="dynamic")
    removed, _ = change.removes(written_to("1.01"), options)
    assert removed is not None
    assert paths(removed) == ["sure"]
    read = snapshot.files().filter(pc.equal(snapshot.files()["path"], "unsure"))
    with pytest.raises(LakelogError, match="nothing was committed"):
        optimize._check(written_to("1.01"), read, [Bin(files=(0,), size=1, rows=1)], snapshot.state.metadata)


@pytest.mark.parametrize("null", [None, ""])
def test_a_null_partition_is_one_partition_however_it_is_written(
    lake: Lake, other_lake: Lake, null: str | None
) -> None:
    dataset = table(lake, partition_by=["name"])
    commit(other_lake, dataset, add("w", partition_values={"name": null}))
    for read, conflicting in ((None, True), ("", True), ("x", False)):
        found = find_conflict(lake.committer, dataset.id, 0, 1, Reads(partitions=({"name": read},)))
        assert (found is not None) == conflicting


def test_a_partition_of_a_column_that_is_none_is_refused(setting: Setting) -> None:
    setting.win([file("w", FIRST, 0)])
    with pytest.raises(ValidationError, match=r"'id': is not one of the partition columns \['day'\]"):
        setting.find(Reads(partitions=({"id": "1"},)))


def test_renamed_columns_are_read_by_name_and_partitions_by_the_name_in_files(lake: Lake, other_lake: Lake) -> None:
    dataset = table(lake, partition_by=["day"])
    dataset.rename_column("id", "key")
    dataset.rename_column("day", "date")
    (physical,) = dataset.snapshot().state.metadata.partition_columns
    base = dataset.version
    commit(other_lake, dataset, add("w", partition_values={physical: FIRST}, stats=stats(id=(0, 9))))
    for reads, conflicting in (
        (Reads(predicates=("key = 5",)), True),
        (Reads(predicates=("key = 50",)), False),
        (Reads(predicates=(f"date = DATE'{FIRST}'",)), True),
        (Reads(predicates=(f"date = DATE'{SECOND}'",)), False),
        (Reads(partitions=({physical: FIRST},)), True),
        (Reads(partitions=({physical: SECOND},)), False),
    ):
        found = find_conflict(lake.committer, dataset.id, base, base + 1, reads)
        assert (found is not None) == conflicting, reads


class _Counting:
    """A session that counts its statements."""

    def __init__(self, session: Session, seen: list[str]) -> None:
        self._session = session
        self._seen = seen

    def fetch(self, statement: str, parameters: Parameters) -> list[Row]:
        self._seen.append(statement)
        return self._session.fetch(statement, parameters)

    def fetch_arrow(self, statement: str, parameters: Parameters, schema: Any, *, large: bool = False) -> Any:
        self._seen.append(statement)
        return self._session.fetch_arrow(statement, parameters, schema, large=large)


@pytest.mark.parametrize(
    ("reads", "apps", "expected"),
    [
        (Reads(), (), 1),
        (Reads(), ("stream",), 3),
        (Reads(files=frozenset({"1a"})), (), 3),
        (Reads(partitions=({"day": FIRST},)), (), 3),
        (Reads(predicates=("id = 5", "id = 6 OR id = 7")), (), 4),
        (Reads(predicates=("id = 5",), partitions=({"day": FIRST},), files=frozenset({"1a"})), ("stream",), 5),
        (Reads(everything=True), (), 3),
    ],
    ids=["append", "stream", "compaction", "dynamic overwrite", "predicates", "all", "conflict"],
)
@pytest.mark.parametrize("winners", [1, 20])
def test_a_check_takes_a_few_statements_however_much_has_happened(
    setting: Setting,
    monkeypatch: pytest.MonkeyPatch,
    reads: Reads,
    apps: tuple[str, ...],
    expected: int,
    winners: int,
) -> None:
    setting.win(*([file(f"w{number}", SECOND, 20)] for number in range(winners)))
    head = setting.dataset.version
    catalog = setting.lake.committer.catalog
    seen: list[str] = []
    session = catalog.session

    @contextmanager
    def counted() -> Iterator[_Counting]:
        with session() as opened:
            yield _Counting(opened, seen)

    monkeypatch.setattr(catalog, "session", counted)
    find_conflict(setting.lake.committer, setting.dataset.id, setting.base, head, reads, apps=apps)
    assert len(seen) == expected
