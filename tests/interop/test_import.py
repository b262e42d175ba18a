"""Delta tables that delta-rs wrote become datasets: every version, every file, and nothing left behind where not."""

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakelog
import lakelog.importing.loading
from lakelog import Dataset, DeltaLogError, Lake, ValidationError
from tests.contract.samples import add, commit, paths
from tests.fixtures.lakes import Place, catalog_rows
from tests.invariants import check_invariants

ODD = "a b/c=d%25é:'\\"


@pytest.fixture
def source(tmp_path: Path) -> str:
    """A Delta table with some history: appends, a delete, an overwrite, a checkpoint in the middle."""
    place = str(tmp_path / "source")
    for number in range(4):
        write_deltalake(place, rows(number), mode="append", partition_by=["day"])
    DeltaTable(place).create_checkpoint()
    DeltaTable(place).delete("id = 1")
    write_deltalake(place, rows(9), mode="append")
    DeltaTable(place).optimize.compact()
    return place


def rows(number: int) -> pa.Table:
    days = [date(2026, 1, 1 + number % 28), None]
    return pa.table({"id": [number, number + 1], "day": pa.array(days, pa.date32()), "name": [f"n{number}", None]})


def log_of(place: str) -> Path:
    return Path(place) / "_delta_log"


def live(place: str, version: int | None = None) -> list[str]:
    """The paths of a version's files by delta-rs, as its log spells them."""
    return sorted(DeltaTable(place, version=version).get_add_actions(flatten=True).column("path").to_pylist())


def content(dataset: Dataset, version: int | None = None) -> list[tuple[Any, ...]]:
    """The rows of a dataset, read file by file."""
    found = []
    for path, values in zip(*dataset.snapshot(version).files().select(["path", "partition_values"]), strict=True):
        table = pq.ParquetFile(Path(dataset.location) / path.as_py().replace("%20", " ")).read()
        day = json.loads(values.as_py())["day"]
        found += [(row["id"], day, row["name"]) for row in table.to_pylist()]
    return sorted(found, key=str)


def expected(place: str, version: int | None = None) -> list[tuple[Any, ...]]:
    table = DeltaTable(place, version=version).to_pyarrow_table()
    return sorted(((row["id"], row["day"] and str(row["day"]), row["name"]) for row in table.to_pylist()), key=str)


class TestHistory:
    def test_every_version_is_there(self, lake: Lake, source: str) -> None:
        report = lake.import_delta(source, "events")
        dataset = lake.dataset("events")
        assert (report.first_version, report.version, report.dropped_stats) == (0, DeltaTable(source).version(), 0)
        assert (report.files, dataset.version) == (len(live(source)), report.version)
        for version in range(report.version + 1):
            assert content(dataset, version) == expected(source, version), f"version {version}"
        history = {entry["version"]: entry["operation"] for entry in DeltaTable(source).history()}
        assert {each.version: each.operation for each in dataset.history()} == history
        check_invariants(lake)

    def test_times_are_those_of_the_log(self, lake: Lake, source: str) -> None:
        dataset = lake.import_delta(source).dataset
        assert dataset is not None
        assert dataset.name == "source"
        for each in dataset.history():
            modified = (log_of(source) / f"{each.version:020}.json").stat().st_mtime_ns // 1_000_000
            assert each.timestamp == datetime.fromtimestamp(0, UTC) + (each.timestamp - datetime.fromtimestamp(0, UTC))
            assert abs(each.timestamp.timestamp() * 1000 - modified) < 2

    def test_without_history_only_the_last_version_is_there(self, lake: Lake, source: str) -> None:
        report = lake.import_delta(source, "events", history=False)
        dataset = lake.dataset("events")
        assert report.first_version == report.version == dataset.first_version == DeltaTable(source).version()
        assert content(dataset) == expected(source)
        with pytest.raises(lakelog.VersionNotFoundError, match=f"are {report.version} to {report.version}"):
            dataset.snapshot(0)
        check_invariants(lake)

    def test_a_log_without_its_beginning_starts_with_its_checkpoint(self, lake: Lake, source: str) -> None:
        for version in range(4):
            (log_of(source) / f"{version:020}.json").unlink()
        (log_of(source) / "_last_checkpoint").unlink()
        report = lake.import_delta(source, "events")
        assert report.first_version == 3
        for version in range(3, report.version + 1):
            assert content(lake.dataset("events"), version) == expected(source, version)
        check_invariants(lake)

    def test_an_older_version_can_be_imported_and_the_rest_adopted(self, lake: Lake, source: str) -> None:
        lake.import_delta(source, "events", up_to_version=2)
        dataset = lake.dataset("events")
        assert content(dataset) == expected(source, 2)
        assert dataset.mirror_status().state == "stopped"
        assert "ended at version 2" in (dataset.mirror_status().error or "")
        assert lake.import_delta(source, up_to_version=4).version == dataset.version == 4
        assert dataset.mirror_status().state == "stopped"
        assert dataset.adopt() == DeltaTable(source).version()
        assert content(dataset) == expected(source)
        assert dataset.mirror_status().state == "published"
        check_invariants(lake)

    def test_another_name_of_the_same_place_is_the_same_table(self, lake: Lake, source: str, tmp_path: Path) -> None:
        lake.import_delta(source, "events")
        (tmp_path / "link").symlink_to(source)
        for other in (f"file://{source}", tmp_path / "link", f"{source}/../source"):
            assert lake.import_delta(other).name == "events"

    def test_what_delta_rs_adds_later_is_taken_over(self, lake: Lake, source: str) -> None:
        dataset = lake.import_delta(source, "events").dataset
        assert dataset is not None
        write_deltalake(source, rows(20), mode="append")
        write_deltalake(source, rows(21), mode="overwrite")
        assert dataset.mirror_status().state == "stopped"
        report = lake.import_delta(source)
        assert (report.version, report.commits) == (DeltaTable(source).version(), 2)
        assert content(dataset) == expected(source)
        assert dataset.mirror_status().state == "published"
        check_invariants(lake)

    def test_commits_of_both_make_one_log(self, lake: Lake, source: str) -> None:
        dataset = lake.import_delta(source, "events").dataset
        assert dataset is not None
        pq.write_table(rows(30).drop_columns(["day"]), Path(source) / "ours.parquet")
        size = (Path(source) / "ours.parquet").stat().st_size
        commit(lake, dataset, add("ours.parquet", size=size, partition_values={"day": "2026-02-01"}))
        assert DeltaTable(source).version() == dataset.version
        assert expected(source) == content(dataset)
        write_deltalake(source, rows(31), mode="append")
        assert dataset.adopt() == DeltaTable(source).version()
        assert expected(source) == content(dataset)
        check_invariants(lake)


class TestKinds:
    def test_every_type_and_partition_that_delta_rs_writes(self, lake: Lake, tmp_path: Path) -> None:
        place = str(tmp_path / "types")
        table = pa.table(
            {
                "b": pa.array([1, None], pa.int8()),
                "h": pa.array([1, -5], pa.int16()),
                "i": pa.array([1, 2**31 - 1], pa.int32()),
                "l": pa.array([-(2**63), 2**63 - 1], pa.int64()),
                "f": pa.array([1.5, float("nan")], pa.float32()),
                "d": pa.array([float("inf"), -0.0], pa.float64()),
                "n": pa.array([Decimal("1.23"), None], pa.decimal128(38, 2)),
                "o": pa.array([True, None]),
                "s": ["é" * 100, ""],
                "y": pa.array([b"\0\xff", None], pa.binary()),
                "t": pa.array([datetime(2026, 1, 1, 1, 1, 1, 123456, UTC), None], pa.timestamp("us", "UTC")),
                "z": pa.array([datetime(1, 1, 1), datetime(9999, 12, 31)], pa.timestamp("us")),  # noqa: DTZ001
                "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int32())),
                "a": pa.array([[{"x": 1}], []], pa.list_(pa.struct([("x", pa.int64())]))),
                "p": [ODD, None],
                "q": pa.array([date(2026, 1, 1), None], pa.date32()),
            }
        )
        write_deltalake(place, table, partition_by=["p", "q"])
        DeltaTable(place).create_checkpoint()
        for history in (True, False):
            name = f"types-{history}"
            copied = f"{place}-{history}"
            shutil.copytree(place, copied)
            lake.import_delta(copied, name, history=history)
            dataset = lake.dataset(name)
            assert paths(dataset.snapshot().files()) == live(copied)
            values = [json.loads(text) for text in column(dataset, "partition_values")]
            assert sorted(values, key=lambda each: each["p"] or "") == [
                {"p": None, "q": None},
                {"p": ODD, "q": "2026-01-01"},
            ]
            assert dataset.snapshot().files("l > 0").num_rows == 1
        check_invariants(lake)

    def test_changes_of_schema_and_properties(self, lake: Lake, tmp_path: Path) -> None:
        place = str(tmp_path / "evolved")
        write_deltalake(place, pa.table({"id": [1]}), configuration={"delta.enableChangeDataFeed": "true"})
        write_deltalake(place, pa.table({"id": [2], "more": ["x"]}), mode="append", schema_mode="merge")
        write_deltalake(place, pa.table({"other": [1.5]}), mode="overwrite", schema_mode="overwrite")
        DeltaTable(place).alter.add_constraint({"positive": "other > 0"})
        lake.import_delta(place, "evolved")
        dataset = lake.dataset("evolved")
        assert [entry.schema.names for entry in reversed(dataset.schema_history())] == [
            ["id"],
            ["id", "more"],
            ["other"],
        ]
        assert dataset.snapshot().metadata.configuration == DeltaTable(place).metadata().configuration
        check_invariants(lake)

    @pytest.mark.parametrize("kind", ["in parts", "with sidecars", "with sidecars, as JSON", "typed statistics only"])
    def test_every_kind_of_checkpoint(self, lake: Lake, tmp_path: Path, kind: str) -> None:
        place = str(tmp_path / "checkpointed")
        for number in range(6):
            write_deltalake(place, rows(number), mode="append", partition_by=["day"])
        DeltaTable(place).create_checkpoint()
        expected_rows, expected_paths = expected(place), live(place)
        log = log_of(place)
        lines = (log / f"{0:020}.json").read_text().splitlines()
        small = "\n".join(line for line in lines if line.startswith(('{"protocol"', '{"metaData"')))
        for version in range(6):
            (log / f"{version:020}.json").unlink()
        classic = log / f"{5:020}.checkpoint.parquet"
        table = pq.read_table(classic)
        classic.unlink()
        REMADE[kind](log, table, small)
        write_deltalake_later(log, 6)
        report = lake.import_delta(place, "events")
        assert (report.first_version, report.version, report.dropped_stats) == (5, 6, 0)
        dataset = lake.dataset("events")
        assert content(dataset, 5) == expected_rows
        assert paths(dataset.snapshot(5).files()) == expected_paths
        assert dataset.snapshot(5).files("id = 0").num_rows < len(expected_paths)
        check_invariants(lake)


def write_deltalake_later(log: Path, version: int) -> None:
    """A commit that changes nothing, by hand."""
    info = {"commitInfo": {"timestamp": 1, "operation": "NOTHING", "operationParameters": {}}}
    (log / f"{version:020}.json").write_text(json.dumps(info) + "\n")


def in_parts(log: Path, table: pa.Table) -> None:
    for part, rows_of_part in enumerate((table.slice(0, 3), table.slice(3)), 1):
        pq.write_table(rows_of_part, log / f"{5:020}.checkpoint.{part:010}.{2:010}.parquet")


def with_sidecars(log: Path, table: pa.Table, small: str | None = None) -> None:
    """The files apart, and the rest in Parquet, or as lines of JSON."""
    whole = table.to_pylist()
    adds = [number for number, row in enumerate(whole) if row["add"] is not None]
    others = [number for number, row in enumerate(whole) if row["protocol"] or row["metaData"]]
    (log / "_sidecars").mkdir()
    sidecar = log / "_sidecars" / "3a0d65cd-4056-49b8-937b-95f9e3ee90e5.parquet"
    pq.write_table(table.take(adds).select(["add"]), sidecar)
    named = {"path": sidecar.name, "sizeInBytes": sidecar.stat().st_size, "modificationTime": 1}
    name = f"{5:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11"
    if small is not None:
        lines = [small, json.dumps({"checkpointMetadata": {"version": 5}}), json.dumps({"sidecar": named})]
        (log / f"{name}.json").write_text("\n".join(lines))
        return
    top = table.take(others).select(["protocol", "metaData"])
    top = top.append_column("sidecar", pa.array([None] * top.num_rows, pa.struct(SIDECAR)))
    last = {field.name: pa.array([named if field.name == "sidecar" else None], field.type) for field in top.schema}
    pq.write_table(pa.concat_tables([top, pa.table(last, top.schema)]), log / f"{name}.parquet")


def typed_only(log: Path, table: pa.Table) -> None:
    """Statistics as a struct, without the text."""
    adds = table.column("add").combine_chunks()
    fields = {field.name: adds.field(field.name) for field in adds.type}
    texts = [None if text is None else json.loads(text) for text in fields.pop("stats").to_pylist()]
    kind = pa.struct([("id", pa.int64()), ("name", pa.string())])
    counts = pa.struct([("id", pa.int64()), ("name", pa.int64())])
    stats = pa.struct([("numRecords", pa.int64()), ("minValues", kind), ("maxValues", kind), ("nullCount", counts)])
    fields["stats_parsed"] = pa.array(texts, stats)
    typed = pa.StructArray.from_arrays(
        list(fields.values()), fields=[pa.field(name, array.type) for name, array in fields.items()],
        mask=adds.is_null(),
    )  # fmt: skip
    index = table.column_names.index("add")
    pq.write_table(table.set_column(index, "add", typed), log / f"{5:020}.checkpoint.parquet")


SIDECAR = [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]
REMADE: dict[str, Callable[[Path, pa.Table, str], None]] = {
    "in parts": lambda log, table, _: in_parts(log, table),
    "with sidecars": lambda log, table, _: with_sidecars(log, table),
    "with sidecars, as JSON": with_sidecars,
    "typed statistics only": lambda log, table, _: typed_only(log, table),
}


def column(dataset: Dataset, name: str) -> list[Any]:
    return dataset.snapshot().files(columns=[name]).column(name).to_pylist()  # type: ignore[no-any-return]


def metadata_line(place: str) -> dict[str, Any]:
    lines = map(json.loads, (log_of(place) / f"{0:020}.json").read_text().splitlines())
    return next(line for line in lines if "metaData" in line)


def collate(place: str, collations: Any) -> None:
    """Gives the column ``name`` a collation from the beginning, as Delta keeps it."""
    file = log_of(place) / f"{0:020}.json"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if "metaData" in line:
            schema = json.loads(line["metaData"]["schemaString"])
            (field,) = (field for field in schema["fields"] if field["name"] == "name")
            field["metadata"]["__COLLATIONS"] = collations
            line["metaData"]["schemaString"] = json.dumps(schema)
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")


class TestRefusals:
    """Each leaves the catalog as it was."""

    def refused(self, lake: Lake, place: str, error: type[Exception], match: str, **options: Any) -> None:
        before = catalog_rows(lake)
        for dry_run in (True, False):
            with pytest.raises(error, match=match):
                lake.import_delta(place, "refused", dry_run=dry_run, **options)
        after = catalog_rows(lake)
        assert after == before

    def test_no_table(self, lake: Lake, tmp_path: Path) -> None:
        self.refused(lake, str(tmp_path / "nothing"), DeltaLogError, "nothing")

    def test_a_version_that_is_not_there(self, lake: Lake, source: str) -> None:
        self.refused(lake, source, lakelog.VersionNotFoundError, "no version 99", up_to_version=99)

    def test_a_missing_commit(self, lake: Lake, source: str) -> None:
        (log_of(source) / f"{5:020}.json").unlink()
        self.refused(lake, source, DeltaLogError, "5")

    def test_a_torn_commit(self, lake: Lake, source: str) -> None:
        file = log_of(source) / f"{2:020}.json"
        file.write_bytes(file.read_bytes()[:-20])
        self.refused(lake, source, DeltaLogError, f"{2:020}.json")

    def test_a_broken_checkpoint(self, lake: Lake, source: str) -> None:
        file = log_of(source) / f"{3:020}.checkpoint.parquet"
        file.write_bytes(file.read_bytes()[:100])
        (log_of(source) / f"{1:020}.json").unlink()
        self.refused(lake, source, DeltaLogError, "checkpoint")

    def test_a_feature_that_nobody_knows(self, lake: Lake, source: str) -> None:
        protocol = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["magic"],
            "writerFeatures": ["magic"],
        }
        with (log_of(source) / f"{6:020}.json").open("a") as file:
            file.write("\n" + json.dumps({"protocol": protocol}))
        self.refused(lake, source, ValidationError, "magic")

    def test_columns_by_id(self, lake: Lake, source: str) -> None:
        file = log_of(source) / f"{0:020}.json"
        text = file.read_text().replace('"configuration":{', '"configuration":{"delta.columnMapping.mode":"id"')
        file.write_text(text)
        (log_of(source) / f"{3:020}.checkpoint.parquet").unlink()
        self.refused(lake, source, DeltaLogError, "ids")

    @pytest.mark.parametrize(
        ("collations", "name"),
        [
            ({"name": "spark.UTF8_LCASE"}, "UTF8_LCASE"),
            ({"name": "icu.de_CI_AI.75.1"}, "de_CI_AI"),
            ({"name.element": "icu.UNICODE"}, "UNICODE"),
            ("icu.UNICODE", "UNICODE"),
        ],
    )
    def test_strings_of_another_collation(self, lake: Lake, source: str, collations: Any, name: str) -> None:
        collate(source, collations)
        (log_of(source) / f"{3:020}.checkpoint.parquet").unlink()
        for history in (True, False):
            self.refused(
                lake, source, ValidationError, f"compared byte by byte, not by .*{name}.*UTF8_BINARY", history=history
            )

    def test_strings_that_had_another_collation_once(self, lake: Lake, source: str) -> None:
        (log_of(source) / f"{3:020}.checkpoint.parquet").unlink()
        collate(source, {"name": "spark.UTF8_LCASE"})
        metadata = json.dumps(metadata_line(source)).replace("UTF8_LCASE", "UTF8_BINARY")
        with (log_of(source) / f"{6:020}.json").open("a") as file:
            file.write(f"\n{metadata}")
        self.refused(lake, source, ValidationError, "(?s)version 0 .*not by .*UTF8_LCASE", history=True)
        assert lake.import_delta(source, "plain", history=False).dataset is not None

    @pytest.mark.parametrize("history", [True, False])
    def test_a_log_without_a_protocol(self, lake: Lake, source: str, history: bool) -> None:
        file = log_of(source) / f"{0:020}.json"
        file.write_text("".join(line for line in file.read_text().splitlines(True) if '"protocol"' not in line))
        self.refused(lake, source, DeltaLogError, "no protocol action", history=history, up_to_version=2)
        # A later checkpoint brings its own.
        if history:
            self.refused(lake, source, DeltaLogError, "no protocol action", history=True)
        else:
            assert lake.import_delta(source, "events", history=False).dataset is not None

    def test_a_file_outside_of_the_table(self, lake: Lake, source: str) -> None:
        with (log_of(source) / f"{6:020}.json").open("a") as file:
            file.write("\n" + add("../other.parquet", partition_values={"day": None}).to_json())
        self.refused(lake, source, ValidationError, "other.parquet")

    def test_a_checkpoint_that_contradicts_the_commits(self, lake: Lake, source: str) -> None:
        file = log_of(source) / f"{3:020}.checkpoint.parquet"
        table = pq.read_table(file)
        keep = [index for index, row in enumerate(table.to_pylist()) if row["add"] is None]
        pq.write_table(table.take(keep), file)
        before = catalog_rows(lake)
        with pytest.raises(DeltaLogError, match="contradict"):
            lake.import_delta(source, "refused")
        assert catalog_rows(lake) == before

    def test_a_time_that_is_none(self, lake: Lake, source: str) -> None:
        file = log_of(source) / f"{2:020}.json"
        text = file.read_text().replace('"commitInfo":{', f'"commitInfo":{{"inCommitTimestamp":{2**62},')
        file.write_text(text)
        self.refused(lake, source, DeltaLogError, "milliseconds since 1970")

    def test_a_name_that_no_dataset_has(self, lake: Lake, source: str) -> None:
        with pytest.raises(ValidationError, match="dataset name"):
            lake.import_delta(source, "a\u200bb")

    def test_a_name_that_is_taken(self, lake: Lake, source: str) -> None:
        lake.create_dataset("refused", pa.schema([("id", pa.int64())]))
        self.refused(lake, source, lakelog.DatasetExistsError, "already")

    def test_a_location_that_overlaps(self, lake: Lake, source: str) -> None:
        log = log_of(source)
        # No dataset is created below a table that shows.
        hidden = log.rename(log.with_name("hidden"))
        lake.create_dataset("inner", pa.schema([("id", pa.int64())]), location=f"{source}/inner", mirror=False)
        hidden.rename(log)
        before = catalog_rows(lake)
        with pytest.raises(lakelog.DatasetExistsError, match="overlaps"):
            lake.import_delta(source, "refused")
        assert catalog_rows(lake) == before


class TestInterrupted:
    def test_an_import_that_fails_half_way_leaves_nothing(
        self, lake: Lake, source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(lakelog.importing.loading, "_BATCH", 2)
        file = log_of(source) / f"{6:020}.json"
        file.write_text(file.read_text().replace('"path":"', '"path":"../'))
        before = catalog_rows(lake)
        with pytest.raises(ValidationError, match="version 6 of"):
            lake.import_delta(source, "events")
        assert catalog_rows(lake) == before

    def test_an_import_that_was_killed_goes_on_where_it_stopped(
        self, place: Place, source: str, connect: Callable[..., Lake]
    ) -> None:
        child = subprocess.run(
            [sys.executable, "-c", _KILLED, place.url, str(place.root), place.schema, source], check=False
        )
        assert child.returncode == -signal.SIGKILL
        lake = connect()
        assert lake.datasets() == []
        seen: list[tuple[int, int]] = []
        report = lake.import_delta(source, "events", progress=lambda done, total: seen.append((done, total)))
        assert content(lake.dataset("events")) == expected(source)
        assert report.version == DeltaTable(source).version()
        check_invariants(lake)

    def test_a_killed_import_is_begun_anew_for_an_older_version(
        self, place: Place, source: str, connect: Callable[..., Lake]
    ) -> None:
        subprocess.run([sys.executable, "-c", _KILLED, place.url, str(place.root), place.schema, source], check=False)
        lake = connect()
        assert lake.import_delta(source, "events", up_to_version=1).version == 1
        assert lake.dataset("events").version == 1
        check_invariants(lake)

    def test_an_import_that_finds_another_one_done_takes_nothing_away(
        self, lake: Lake, other_lake: Lake, source: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The other one resumes the same table, finishes first, and somebody commits."""
        monkeypatch.setattr(lakelog.importing.loading, "_BATCH", 2)
        seen: list[int] = []

        def progress(done: int, total: int) -> None:
            seen.append(done)
            if len(seen) == 1:
                other_lake.import_delta(source, "events")
                theirs = other_lake.dataset("events")
                commit(other_lake, theirs, add("more.parquet", partition_values={"day": None}))

        with pytest.raises(lakelog.LakelogError, match="somebody else"):
            lake.import_delta(source, "events", progress=progress)
        assert lake.dataset("events").version == DeltaTable(source).version()
        check_invariants(lake)

    def test_an_error_of_the_callers_leaves_nothing(self, lake: Lake, source: str) -> None:
        before = catalog_rows(lake)
        with pytest.raises(ZeroDivisionError):
            lake.import_delta(source, "events", progress=lambda *_: 1 / 0)
        assert catalog_rows(lake) == before

    def test_a_killed_import_of_another_table_is_begun_anew(
        self, place: Place, source: str, connect: Callable[..., Lake]
    ) -> None:
        subprocess.run([sys.executable, "-c", _KILLED, place.url, str(place.root), place.schema, source], check=False)
        shutil.rmtree(source)
        write_deltalake(source, pa.table({"x": [1]}))
        lake = connect()
        lake.import_delta(source, "events")
        assert lake.dataset("events").snapshot().schema.names == ["x"]
        check_invariants(lake)


_KILLED = """
import os, signal, sys
import lakelog, lakelog.importing.loading
url, root, schema, source = sys.argv[1:]
lakelog.importing.loading._BATCH = 2
lake = lakelog.connect(url, root=root, schema=schema)
def progress(done, total):
    if done >= 4:
        os.kill(os.getpid(), signal.SIGKILL)
lake.import_delta(source, "events", progress=progress)
"""
