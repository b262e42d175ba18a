"""Logs that delta-rs wrote, as Lakelog and as delta-rs itself read them."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.actions import AddFile, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from lakelog.delta_log.log import Checkpoint, list_log, read_checkpoint, read_commit
from lakelog.log.commit.files import AddFiles
from lakelog.log.validation.actions import validate_actions
from lakelog.schema.delta import from_delta_json
from lakelog.storage.log_store import LocalStore, LogStore, log_store
from tests.delta_logs import UUIDS, checkpoint_name, part_name, top_name, write_parquet

deltalake = pytest.importorskip("deltalake")

ROWS = pa.table(
    {
        "p": ["a b", "x/y%", "é:?", "", None, "a=b&c", "100%", ".", "~(a)"],
        "q": pa.array([1, 2, None] * 3, pa.int32()),
        "i": pa.array([1, 2, None] * 3, pa.int64()),
        "f": [1.5, float("nan"), float("inf")] * 3,
        "b": [True, False, None] * 3,
        "d": [date(2020, 1, 1), date(9999, 12, 31), None] * 3,
        "t": pa.array([datetime(2020, 1, 1, 1, 2, 3, 456789, UTC)] * 9, pa.timestamp("us", "UTC")),
        "n": pa.array([datetime(1969, 12, 31, 23, 59, 59, 999999)] * 9, pa.timestamp("us")),  # noqa: DTZ001
        "dec": pa.array([Decimal("1.10"), Decimal("-99999999999999999999.25"), None] * 3, pa.decimal128(38, 2)),
        "bin": [b"a\xff", None, b""] * 3,
        "s": ["ä" * 50, "\U0001f600" * 40, 'q"\n\u2028'] * 3,
        "st": [{"x": 1, "y.z": "k"}, None, {"x": None, "y.z": ""}] * 3,
        "l": [[1, 2], [], None] * 3,
    }
)


def write(path: Path, rows: pa.Table = ROWS, **options: Any) -> Any:
    deltalake.write_deltalake(path, rows, **options)
    return deltalake.DeltaTable(path)


def many_types(path: Path) -> None:
    write(path, partition_by=["p", "q"])
    write(path, mode="append")


def changes(path: Path) -> None:
    table = write(path, partition_by=["p"], configuration={"delta.enableChangeDataFeed": "true"})
    table.delete("i = 1")
    table.update(updates={"i": "i + 10"}, predicate="i = 2")
    source = pa.table({"p": ["a b", "new"], "i": pa.array([12, 13], pa.int64())})
    merge = table.merge(source, "t.p = s.p", source_alias="s", target_alias="t")
    merge.when_matched_update({"i": "s.i"}).when_not_matched_insert({"p": "s.p", "i": "s.i"}).execute()
    write(path, mode="overwrite", predicate="p = 'a b'", rows=ROWS.slice(0, 1))
    table = deltalake.DeltaTable(path)
    table.optimize.compact()
    table.restore(1)


def evolution(path: Path) -> None:
    table = write(path, ROWS.select(["i"]), name="a table", description="of «things»")
    table.alter.add_constraint({"positive": "i > 0 OR i IS NULL"})
    table.alter.set_table_properties({"delta.logRetentionDuration": "interval 7 days"})
    write(path, ROWS.select(["i", "s"]).slice(0, 1), mode="append", schema_mode="merge")
    deltalake.DeltaTable(path).alter.drop_constraint("positive")
    write(path, ROWS.select(["d", "n"]), mode="overwrite", schema_mode="overwrite")


def applications(path: Path) -> None:
    for version in range(3):
        properties = deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction("app", version, 17), deltalake.Transaction(f"one {version}", 1)],
            custom_metadata={"who": "me"},
        )
        write(path, ROWS.select(["i"]), mode="append", commit_properties=properties)


def column_mapping(path: Path) -> None:
    table = write(
        path, ROWS.select(["p", "i", "st"]), partition_by=["p"], configuration={"delta.columnMapping.mode": "name"}
    )
    table.delete("i = 1")


def empty(path: Path) -> None:
    deltalake.DeltaTable.create(path, deltalake.Schema.from_arrow(ROWS.schema), partition_by=["p"])


HISTORIES = [many_types, changes, evolution, applications, column_mapping, empty]


class Replayed:
    """A table at one version, from a checkpoint, if any, and the commits after it."""

    def __init__(self, store: LogStore, checkpoint: Checkpoint | None, commits: range) -> None:
        self.adds: dict[str, dict[str, Any]] = {}
        self.txns: dict[str, Txn] = {}
        self.domains: dict[str, DomainMetadata] = {}
        self.dropped_stats = 0
        if checkpoint is not None:
            state = read_checkpoint(store, checkpoint)
            self.protocol, self.metadata = state.protocol, state.metadata
            self.adds = {row["path"]: row for row in state.adds.to_pylist()}
            self.txns = {txn.app_id: txn for txn in state.txns}
            self.dropped_stats = state.dropped_stats
        for version in commits:
            commit = read_commit(store, version)
            assert validate_actions(commit.actions, creating=version == 0) == []
            self.dropped_stats += commit.dropped_stats
            for action in commit.actions:
                self._apply(action)

    def _apply(self, action: Any) -> None:
        match action:
            case AddFile():
                [self.adds[action.path]] = AddFiles.of([action]).table.to_pylist()
            case RemoveFile():
                self.adds.pop(action.path, None)
            case Protocol():
                self.protocol = action
            case Metadata():
                self.metadata = action
            case Txn():
                self.txns[action.app_id] = action


def replayed(path: Path, version: int, *, history: bool) -> Replayed:
    store = log_store(str(path))
    return Replayed(store, *list_log(store).start(version, history=history))


def same(found: Replayed, expected: Replayed) -> bool:
    return vars(found) == vars(expected)


def check(found: Replayed, path: Path, version: int) -> None:
    """Compares with what delta-rs says of the same version."""
    table = deltalake.DeltaTable(path, version=version)
    root = f"{path}/"
    assert sorted(root + unquote(each) for each in found.adds) == sorted(table.file_uris())
    assert all((path / unquote(each)).is_file() for each in found.adds)
    actions = {each["path"]: each for each in pa.table(table.get_add_actions()).to_pylist()}
    for row in found.adds.values():
        action = actions.get(row["path"]) or actions[unquote(row["path"])]
        assert (row["size"], row["modification_time"]) == (action["size_bytes"], action["modification_time"])
        partition = json.loads(row["partition_values"])
        if not any(name.startswith("col-") for name in partition):
            # To delta-rs, an empty text is no null.
            partition_texts = {
                name: None if value in {None, ""} else str(value) for name, value in action.get("partition", {}).items()
            }
            assert partition == partition_texts
        assert (json.loads(row["stats"])["numRecords"] if row["stats"] else None) == action["num_records"]
    protocol = table.protocol()
    assert found.protocol.min_reader_version == protocol.min_reader_version
    assert found.protocol.min_writer_version == protocol.min_writer_version
    assert set(found.protocol.reader_features or ()) == set(protocol.reader_features or ())
    assert set(found.protocol.writer_features or ()) == set(protocol.writer_features or ())
    metadata = table.metadata()
    assert (found.metadata.id, found.metadata.name) == (str(metadata.id), metadata.name)
    assert found.metadata.description == metadata.description
    assert (list(found.metadata.partition_columns), dict(found.metadata.configuration)) == (
        metadata.partition_columns,
        metadata.configuration,
    )
    assert json.loads(found.metadata.schema_string) == json.loads(table.schema().to_json())
    for name, txn in found.txns.items():
        assert table.transaction_version(name) == txn.version
    assert found.dropped_stats == 0


@pytest.fixture(params=HISTORIES, ids=lambda history: history.__name__)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    history: Callable[[Path], None] = request.param
    history(tmp_path / "table")
    return tmp_path / "table"


def test_every_version_is_what_delta_rs_says(table: Path) -> None:
    for version in range(list_log(log_store(str(table))).latest + 1):
        check(replayed(table, version, history=True), table, version)


def test_a_checkpoint_says_what_the_commits_say(table: Path) -> None:
    latest = list_log(log_store(str(table))).latest
    expected = replayed(table, latest, history=True)
    deltalake.DeltaTable(table).create_checkpoint()
    found = replayed(table, latest, history=False)
    check(found, table, latest)
    assert same(found, expected)


def test_commits_that_a_checkpoint_made_superfluous_may_be_gone(table: Path) -> None:
    store = log_store(str(table))
    latest = list_log(store).latest
    expected = replayed(table, latest, history=True)
    deltalake.DeltaTable(table).create_checkpoint()
    for version in range(latest + 1):
        Path(store.place, f"{version:020}.json").unlink()
    assert list_log(store).latest == latest
    assert same(replayed(table, latest, history=True), expected)


def split(table: Path, version: int, kind: str) -> None:
    """Writes delta-rs' checkpoint anew as one of another kind, and deletes it and the commits before it."""
    log = table / "_delta_log"
    rows = pq.read_table(log / checkpoint_name(version))
    is_file = pa.compute.or_(rows.column("add").is_valid(), rows.column("remove").is_valid())
    files, others = rows.filter(is_file), rows.filter(pa.compute.invert(is_file))
    if kind == "parts":
        parts = [others, files.slice(0, 2), files.slice(2)]
        for number, part in enumerate(parts, 1):
            pq.write_table(part, log / part_name(version, number, len(parts)))
    else:
        (log / "_sidecars").mkdir()
        sidecars = []
        for uuid, part in zip(UUIDS, (files.slice(0, 2), files.slice(2)), strict=True):
            pq.write_table(part.select(["add", "remove"]), log / "_sidecars" / f"{uuid}.parquet")
            sidecars.append({"sidecar": {"path": f"{uuid}.parquet", "sizeInBytes": 1, "modificationTime": 1}})
        actions = [_plain(row) for row in others.to_pylist(maps_as_pydicts="strict")] + sidecars
        if kind == "json":
            lines = [{"checkpointMetadata": {"version": version}}, *actions]
            (log / top_name(version)).write_text("".join(json.dumps(each) + "\n" for each in lines))
        else:
            write_parquet(LocalStore(log), top_name(version, "parquet"), *actions)
    (log / checkpoint_name(version)).unlink()
    for each in log.glob("*.json"):
        if each.name != top_name(version):
            each.unlink()


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None}


@pytest.mark.parametrize("kind", ["parts", "json", "parquet"])
def test_checkpoints_of_other_kinds_say_the_same(table: Path, kind: str) -> None:
    latest = list_log(log_store(str(table))).latest
    expected = replayed(table, latest, history=True)
    deltalake.DeltaTable(table).create_checkpoint()
    split(table, latest, kind)
    assert same(replayed(table, latest, history=False), expected)


def test_struct_statistics_say_what_the_text_says(tmp_path: Path) -> None:
    table = tmp_path / "table"
    many_types(table)
    expected = replayed(table, 1, history=True)
    deltalake.DeltaTable(table).create_checkpoint()
    path = table / "_delta_log" / checkpoint_name(1)
    rows = pq.read_table(path)
    adds = rows.column("add").combine_chunks()
    pq.write_table(rows.set_column(0, "add", _with_structs(adds)), path)
    for each in (table / "_delta_log").glob("*.json"):
        each.unlink()
    found = replayed(table, 1, history=False)
    check(found, table, 1)
    for name, row in expected.adds.items():
        text, parsed = json.loads(row["stats"]), json.loads(found.adds[name]["stats"])
        assert parsed["numRecords"] == text["numRecords"]
        for part in ("minValues", "maxValues"):
            assert set(parsed[part]) <= set(text[part])
            for column in ("i", "s", "d", "t"):
                assert parsed[part].get(column) == text[part].get(column)
            assert "b" not in parsed[part]


def _with_structs(adds: pa.StructArray) -> pa.StructArray:
    """Added files whose statistics stand in a struct of the columns' own types, as Spark writes them."""
    columns = {"i": pa.int64(), "f": pa.float64(), "b": pa.bool_(), "d": pa.date32(), "s": pa.string()}
    bounds = pa.struct([*columns.items(), ("t", pa.timestamp("us", "UTC"))])
    counts = pa.struct([("i", pa.int64()), ("s", pa.int64())])
    kind = pa.struct([("numRecords", pa.int64()), ("minValues", bounds), ("maxValues", bounds), ("nullCount", counts)])
    parsed = [None if text is None else _typed(json.loads(text)) for text in adds.field("stats").to_pylist()]
    fields = [field.name for field in adds.type if field.name != "stats"]
    return pa.StructArray.from_arrays(
        [*(adds.field(name) for name in fields), pa.array(parsed, kind)],
        fields=[*(adds.type.field(name) for name in fields), pa.field("stats_parsed", kind)],
        mask=adds.is_null(),
    )


def _typed(stats: dict[str, Any]) -> dict[str, Any]:
    for part in ("minValues", "maxValues"):
        values = stats[part]
        for name, read in (("d", date.fromisoformat), ("t", datetime.fromisoformat)):
            if values.get(name) is not None:
                values[name] = read(values[name])
        stats[part] = {name: values.get(name) for name in ("i", "f", "b", "d", "s", "t")}
    stats["nullCount"] = {name: stats["nullCount"].get(name) for name in ("i", "s")}
    return stats


def test_the_schema_is_one_that_lakelog_reads(tmp_path: Path) -> None:
    many_types(tmp_path / "table")
    found = replayed(tmp_path / "table", 0, history=True)
    assert from_delta_json(found.metadata.schema_string).names == ROWS.column_names
