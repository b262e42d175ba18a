"""What checkpoints of a Delta log say, whichever kind they are."""

import json
from contextlib import suppress
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.actions import DomainMetadata, Txn
from lakelog.delta_log.log import LogState, list_log, read_checkpoint
from lakelog.errors import DeltaLogError
from lakelog.log.commit.files import ADD_COLUMNS
from lakelog.storage.log_store import LocalStore
from tests.delta_logs import (
    ADD_TYPE,
    METADATA,
    PROTOCOL,
    TYPES,
    add,
    checkpoint_name,
    log_at,
    part_name,
    top_name,
    write_json,
    write_parquet,
)

ENTRIES = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))
VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return log_at(tmp_path / "table")


def with_fields(kind: pa.StructType, **fields: pa.DataType) -> pa.StructType:
    return pa.struct([*(each for each in kind if each.name not in fields), *fields.items()])


def read(store: LocalStore) -> LogState:
    [checkpoint] = list_log(store).checkpoints
    return read_checkpoint(store, checkpoint)


def paths(state: LogState) -> list[str]:
    return sorted(state.adds.column("path").to_pylist())


def sidecar(path: str) -> dict[str, Any]:
    return {"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1}}


class TestKinds:
    def test_one_file(self, store: LocalStore) -> None:
        write_parquet(store, checkpoint_name(3), PROTOCOL, METADATA, add("a"), add("b"))
        state = read(store)
        assert paths(state) == ["a", "b"]
        assert (state.protocol.min_reader_version, state.metadata.id) == (1, "0f5a")
        assert (state.txns, state.domains, state.dropped_stats) == ((), (), 0)

    def test_parts(self, store: LocalStore) -> None:
        write_parquet(store, part_name(0, 1, 3), add("a"), METADATA)
        write_parquet(store, part_name(0, 2, 3), PROTOCOL)
        write_parquet(store, part_name(0, 3, 3), add("b"))
        assert paths(read(store)) == ["a", "b"]

    @pytest.mark.parametrize("suffix", ["json", "parquet"])
    def test_a_top_file_with_sidecars(self, store: LocalStore, suffix: str) -> None:
        write = write_json if suffix == "json" else write_parquet
        top = [PROTOCOL, METADATA, sidecar("one.parquet"), sidecar("t%20wo.parquet")]
        if suffix == "json":
            top.insert(0, {"checkpointMetadata": {"version": 0}})
        write(store, top_name(0, suffix), *top)
        write_parquet(store, "_sidecars/one.parquet", add("a"))
        write_parquet(store, "_sidecars/t wo.parquet", add("b"))
        assert paths(read(store)) == ["a", "b"]

    @pytest.mark.parametrize("suffix", ["json", "parquet"])
    def test_a_top_file_without_sidecars(self, store: LocalStore, suffix: str) -> None:
        write = write_json if suffix == "json" else write_parquet
        write(store, top_name(0, suffix), PROTOCOL, METADATA, add("a", stats='{"numRecords":-1}'))
        assert (paths(read(store)), read(store).dropped_stats) == (["a"], 1)

    def test_a_file_with_the_usual_name_may_have_sidecars(self, store: LocalStore) -> None:
        write_parquet(store, checkpoint_name(0), PROTOCOL, METADATA, sidecar("one.parquet"))
        write_parquet(store, "_sidecars/one.parquet", add("a"))
        assert paths(read(store)) == ["a"]

    def test_a_table_without_files(self, store: LocalStore) -> None:
        write_parquet(store, checkpoint_name(0), PROTOCOL, METADATA)
        assert read(store).adds.num_rows == 0
        assert read(store).adds.schema == pa.schema(list(ADD_COLUMNS.items()))

    def test_many_row_groups(self, store: LocalStore) -> None:
        files = [add(f"{index}", stats=f'{{"numRecords":{index}}}') for index in range(200)]
        write_parquet(store, checkpoint_name(0), PROTOCOL, *files, METADATA, row_group_size=7)
        state = read(store)
        assert state.adds.column("stats").to_pylist() == [f'{{"numRecords":{index}}}' for index in range(200)]


class TestContents:
    def test_every_field_of_a_file_is_read(self, store: LocalStore) -> None:
        vector = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 40, "cardinality": 6}
        kind = with_fields(
            ADD_TYPE,
            tags=pa.map_(pa.string(), pa.string()),
            deletionVector=VECTOR,
            baseRowId=pa.int64(),
            defaultRowCommitVersion=pa.int64(),
            clusteringProvider=pa.string(),
            novelty=pa.int32(),
            other=pa.list_(pa.int32()),
        )
        full = add(
            "p=1/a",
            partitionValues={"p": '"1\n', "q": None, "r": ""},
            stats='{"numRecords":9}',
            tags={"x": "", "y": None},
            deletionVector=vector,
            baseRowId=5,
            defaultRowCommitVersion=6,
            clusteringProvider="liquid",
            novelty=7,
            other=[1],
        )
        write_parquet(store, checkpoint_name(0), full, add("b"), PROTOCOL, METADATA, types={"add": kind})
        first, second = read(store).adds.to_pylist()
        texts = {name: json.loads(first.pop(name)) for name in ("partition_values", "tags", "deletion_vector", "extra")}
        assert texts == {
            "partition_values": {"p": '"1\n', "q": None, "r": None},
            "tags": {"x": "", "y": None},
            "deletion_vector": vector,
            "extra": {"clusteringProvider": "liquid", "novelty": 7},
        }
        assert first == {
            "path": "p=1/a",
            "size": 1,
            "stats": '{"numRecords":9}',
            "row_count": None,
            "modification_time": 7,
            "data_change": True,
            "base_row_id": 5,
            "default_row_commit_version": 6,
        }
        assert {name for name, value in second.items() if value is None} == {
            *("stats", "row_count", "tags", "deletion_vector", "base_row_id", "default_row_commit_version", "extra"),
        }

    def test_fields_that_are_missing_have_their_defaults(self, store: LocalStore) -> None:
        kind = pa.struct([("path", pa.large_string()), ("size", pa.int32())])
        write_parquet(store, checkpoint_name(0), add("a"), PROTOCOL, METADATA, types={"add": kind})
        table = read(store).adds
        assert table.schema == pa.schema(list(ADD_COLUMNS.items()))
        [row] = table.to_pylist()
        assert {name: value for name, value in row.items() if value is not None} == {
            "path": "a",
            "size": 1,
            "partition_values": "{}",
            "modification_time": 0,
            "data_change": True,
        }

    def test_maps_may_be_lists_of_keys_and_values(self, store: LocalStore) -> None:
        entry = [{"key": "p", "value": "1"}]
        metadata = TYPES["metaData"]
        options = pa.struct([("provider", pa.string()), ("options", ENTRIES)])
        types = {
            "add": with_fields(ADD_TYPE, partitionValues=ENTRIES),
            "metaData": with_fields(metadata, configuration=ENTRIES, format=options),
        }
        body = METADATA["metaData"] | {"configuration": entry, "format": {"provider": "parquet", "options": []}}
        file = add("a", partitionValues=entry)
        write_parquet(store, checkpoint_name(0), file, {"metaData": body}, PROTOCOL, types=types)
        state = read(store)
        assert state.adds.column("partition_values").to_pylist() == ['{"p":"1"}']
        assert (state.metadata.configuration, state.metadata.format_options) == ({"p": "1"}, {})

    def test_applications_and_domains_are_read(self, store: LocalStore) -> None:
        write_parquet(
            store,
            checkpoint_name(0),
            PROTOCOL,
            METADATA,
            {"txn": {"appId": "a", "version": 3, "lastUpdated": None}},
            {"txn": {"appId": "b", "version": -1, "lastUpdated": 5}},
            {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}},
            {"domainMetadata": {"domain": "gone", "configuration": "", "removed": True}},
        )
        state = read(store)
        assert state.txns == (Txn(app_id="a", version=3), Txn(app_id="b", version=-1, last_updated=5))
        assert state.domains == (DomainMetadata(domain="d", configuration="{}"),)

    def test_tombstones_are_passed_over(self, store: LocalStore) -> None:
        types = {"remove": pa.struct([("path", pa.string())])}
        write_parquet(store, checkpoint_name(0), PROTOCOL, METADATA, {"remove": {"path": "a"}}, add("a"), types=types)
        assert paths(read(store)) == ["a"]

    def test_a_struct_in_which_everything_is_null_is_no_action(self, store: LocalStore) -> None:
        nothing = {"add": {}, "txn": {}, "domainMetadata": {}, "sidecar": {}}
        write_parquet(store, checkpoint_name(0), PROTOCOL | nothing, METADATA | nothing, add("a"))
        assert paths(read(store)) == ["a"]

    def test_absolute_paths_below_the_table_become_relative(self, store: LocalStore) -> None:
        root = Path(store.place).parent
        write_parquet(store, checkpoint_name(0), PROTOCOL, METADATA, add(f"file:{root}/a%20b"), add("/x/y"), add("c"))
        assert paths(read(store)) == ["/x/y", "a%20b", "c"]

    def test_lists_of_features_are_read(self, store: LocalStore) -> None:
        body = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["x"], "writerFeatures": ["x", "y"]}
        write_parquet(store, checkpoint_name(0), {"protocol": body}, METADATA)
        assert (read(store).protocol.reader_features, read(store).protocol.writer_features) == (("x",), ("x", "y"))


class TestBroken:
    @pytest.mark.parametrize("cut", [1, 4, 8, 100])
    def test_a_torn_file_is_named(self, store: LocalStore, cut: int) -> None:
        write_parquet(store, part_name(0, 1, 2), PROTOCOL, METADATA)
        write_parquet(store, part_name(0, 2, 2), add("a"))
        path = Path(store.place, part_name(0, 2, 2))
        path.write_bytes(path.read_bytes()[:-cut])
        with pytest.raises(DeltaLogError, match="expected a checkpoint as Parquet, found") as error:
            read(store)
        assert error.value.file == str(path)

    def test_a_part_that_is_gone_is_named(self, store: LocalStore) -> None:
        write_parquet(store, part_name(0, 1, 2), PROTOCOL, METADATA)
        write_parquet(store, part_name(0, 2, 2), add("a"))
        [checkpoint] = list_log(store).checkpoints
        Path(store.place, part_name(0, 2, 2)).unlink()
        with pytest.raises(DeltaLogError, match=f"{part_name(0, 2, 2)}: expected this file, found none"):
            read_checkpoint(store, checkpoint)

    @pytest.mark.parametrize("suffix", ["json", "parquet"])
    def test_a_sidecar_that_is_gone_is_named(self, store: LocalStore, suffix: str) -> None:
        write = write_json if suffix == "json" else write_parquet
        write(store, top_name(0, suffix), PROTOCOL, METADATA, sidecar("one.parquet"))
        with pytest.raises(DeltaLogError, match=r"_sidecars/one\.parquet: expected this file, found none"):
            read(store)

    @pytest.mark.parametrize("path", ["/x/one.parquet", "s3://b/one.parquet", "..", "../one.parquet", "%2Fx", ""])
    def test_a_sidecar_elsewhere_is_refused(self, store: LocalStore, path: str) -> None:
        write_json(store, top_name(0), PROTOCOL, METADATA, sidecar(path))
        with pytest.raises(DeltaLogError, match="expected the name of a file in _sidecars, found"):
            read(store)

    def test_a_torn_top_file_is_named(self, store: LocalStore) -> None:
        Path(store.place, top_name(0)).write_text('{"protocol":{"minRea')
        with pytest.raises(DeltaLogError, match=f"{top_name(0)}, line 1: expected one action as JSON"):
            read(store)

    @pytest.mark.parametrize(
        ("actions", "message"),
        [
            ([METADATA], "expected one protocol action, found 0"),
            ([PROTOCOL, METADATA, METADATA], "expected one metaData action, found 2"),
            (
                [PROTOCOL, METADATA, add("a"), add("b"), add("a")],
                "expected each file once, found more than one for 'a'",
            ),
            (
                [PROTOCOL, METADATA, *({"txn": {"appId": "x", "version": version}} for version in (1, 2))],
                "expected each application once, found more than one for 'x'",
            ),
            ([PROTOCOL, METADATA, add("a", size=None)], "expected a size for every file"),
            ([PROTOCOL, METADATA, {"add": {"size": 1}}], "expected a path, found null"),
            ([{"protocol": {"minReaderVersion": 1}}, METADATA], "minWriterVersion: is missing"),
        ],
    )
    def test_what_no_state_can_hold_is_refused(self, store: LocalStore, actions: list[Any], message: str) -> None:
        write_parquet(store, checkpoint_name(0), *actions)
        with pytest.raises(DeltaLogError, match=message) as error:
            read(store)
        assert error.value.file == f"{store.place}/{checkpoint_name(0)}"

    def test_a_file_in_two_parts_is_refused(self, store: LocalStore) -> None:
        write_parquet(store, part_name(0, 1, 2), PROTOCOL, METADATA, add("a"))
        write_parquet(store, part_name(0, 2, 2), add("a"))
        with pytest.raises(DeltaLogError, match="expected each file once"):
            read(store)

    @pytest.mark.parametrize(
        ("field", "kind", "value"),
        [
            ("size", pa.string(), "many"),
            ("partitionValues", pa.string(), "x"),
            ("partitionValues", pa.map_(pa.string(), pa.list_(pa.int32())), {"a": [1]}),
            ("deletionVector", pa.int32(), 1),
            ("dataChange", pa.date32(), date(2020, 1, 1)),
        ],
    )
    def test_a_field_of_another_type_is_refused(self, store: LocalStore, field: str, kind: Any, value: Any) -> None:
        types = {"add": with_fields(ADD_TYPE, **{field: kind})}
        write_parquet(store, checkpoint_name(0), PROTOCOL, METADATA, add("a", **{field: value}), types=types)
        with pytest.raises(DeltaLogError, match=f"expected {field} as"):
            read(store)

    @pytest.mark.parametrize("kind", [pa.int32(), pa.list_(pa.int32())])
    def test_an_action_that_is_no_struct_is_refused(self, store: LocalStore, kind: Any) -> None:
        path = Path(store.place, checkpoint_name(0))
        pq.write_table(pa.table({"add": pa.nulls(1, kind), "protocol": pa.nulls(1, kind)}), path)
        with pytest.raises(DeltaLogError, match="expected"):
            read(store)

    def test_a_path_that_is_not_utf8_is_refused(self, store: LocalStore) -> None:
        self._write_bytes(store, path=b"\xff", stats=b"{}")
        with pytest.raises(DeltaLogError, match="expected UTF-8 in path"):
            read(store)

    def test_statistics_that_are_not_utf8_are_dropped(self, store: LocalStore) -> None:
        self._write_bytes(store, path=b"a", stats=b"\xff")
        assert (read(store).adds.column("stats").to_pylist(), read(store).dropped_stats) == ([None], 1)

    def _write_bytes(self, store: LocalStore, **texts: bytes) -> None:
        arrays = [pa.array([text, text], pa.binary()).view(pa.string()) for text in texts.values()]
        adds = pa.StructArray.from_arrays([*arrays, pa.array([1, 1])], [*texts, "size"], mask=pa.array([False, True]))
        write_parquet(store, part_name(0, 1, 2), PROTOCOL, METADATA)
        pq.write_table(pa.table({"add": adds}), Path(store.place, part_name(0, 2, 2)))

    @settings(deadline=None, max_examples=60, derandomize=True)
    @given(st.integers(0, 2000), st.integers(1, 255))
    def test_a_changed_byte_is_refused_or_read(self, tmp_path_factory: Any, position: int, change: int) -> None:
        store = log_at(tmp_path_factory.getbasetemp() / "changed")
        path = Path(store.place, part_name(0, 2, 2))
        write_parquet(store, part_name(0, 1, 2), PROTOCOL, METADATA)
        write_parquet(store, path.name, *(add(str(index), stats="{}") for index in range(20)))
        data = bytearray(path.read_bytes())
        data[position % len(data)] ^= change
        path.write_bytes(data)
        with suppress(DeltaLogError):
            read(store)


class TestStructStatistics:
    KIND = pa.struct(
        [
            ("numRecords", pa.int64()),
            ("tightBounds", pa.bool_()),
            ("minValues", pa.struct([("id", pa.int64())])),
            ("maxValues", pa.struct([("id", pa.int64())])),
            ("nullCount", pa.struct([("id", pa.int64())])),
        ]
    )

    def test_they_become_text_where_there_is_none(self, store: LocalStore) -> None:
        parsed = {"numRecords": 3, "minValues": {"id": 1}, "maxValues": {"id": 2}, "nullCount": {"id": 0}}
        types = {"add": with_fields(ADD_TYPE, stats_parsed=self.KIND, partitionValues_parsed=pa.int32())}
        files = [
            add("a", stats_parsed=parsed),
            add("b", stats='{"numRecords":4}', stats_parsed=parsed),
            add("c", stats_parsed=None),
            add("d", stats_parsed=parsed | {"numRecords": -1}),
        ]
        write_parquet(store, checkpoint_name(0), PROTOCOL, *files, METADATA, types=types)
        text = '{"numRecords":3,"minValues":{"id":1},"maxValues":{"id":2},"nullCount":{"id":0}}'
        assert read(store).adds.column("stats").to_pylist() == [text, '{"numRecords":4}', None, None]
        assert read(store).dropped_stats == 1

    def test_a_file_without_the_text_at_all_has_them(self, store: LocalStore) -> None:
        kind = pa.struct([("path", pa.string()), ("size", pa.int64()), ("stats_parsed", self.KIND)])
        file = add("a", stats_parsed={"numRecords": 3, "tightBounds": False})
        write_parquet(store, checkpoint_name(0), PROTOCOL, METADATA, file, types={"add": kind})
        assert read(store).adds.column("stats").to_pylist() == ['{"numRecords":3,"tightBounds":false}']

    def test_times_in_the_old_form_of_spark_are_points_in_time(self, store: LocalStore) -> None:
        times = pa.struct([("t", pa.timestamp("ns")), ("d", pa.date32())])
        kind = pa.struct([("numRecords", pa.int64()), ("maxValues", times)])
        far = datetime(2500, 1, 1, 0, 0, 0, 1999)  # noqa: DTZ001
        near = datetime(2000, 1, 1, 0, 0, 0, 1999)  # noqa: DTZ001
        file = add("a", stats_parsed={"numRecords": 3, "maxValues": {"t": near, "d": far.date()}})
        types = {"add": with_fields(ADD_TYPE, stats_parsed=kind)}
        name = checkpoint_name(0)
        write_parquet(store, name, PROTOCOL, METADATA, file, types=types, use_deprecated_int96_timestamps=True)
        expected = '{"numRecords":3,"maxValues":{"t":"2000-01-01T00:00:00.001Z","d":"2500-01-01"}}'
        assert read(store).adds.column("stats").to_pylist() == [expected]
