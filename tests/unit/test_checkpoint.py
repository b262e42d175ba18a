"""Checkpoints as Parquet: their schema, the typed statistics and partition values, and what names the last one."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakelog.actions import AddFile, DeletionVector, DomainMetadata, Metadata, Protocol, RemoveFile, Txn
from lakelog.delta_log.names import checkpoint_name
from lakelog.log.state import TableMetadata
from lakelog.mirror.checkpoint import CheckpointContent, checkpoint_parquet, last_checkpoint_json, write_checkpoint
from lakelog.schema import to_delta_json
from lakelog.schema.mapping import with_mapping
from lakelog.storage.log_store import LocalStore
from tests.interop.delta_tables import live_files, removed_files

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("instant", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("part", pa.date32()),
    ]
)
PROTOCOL = Protocol(min_reader_version=1, min_writer_version=2)


def metadata(
    schema: pa.Schema = SCHEMA, partition_columns: tuple[str, ...] = ("part",), **configuration: str
) -> TableMetadata:
    properties = {f"delta.{name.replace('_', '.')}": value for name, value in configuration.items()}
    action = Metadata(
        id="an id",
        schema_string=to_delta_json(schema),
        partition_columns=partition_columns,
        configuration=properties,
        description="About it",
        created_time=5,
    )
    return TableMetadata(0, action, 0)


def content(adds: Sequence[AddFile] = (), removes: Sequence[RemoveFile] = (), **said: Any) -> CheckpointContent:
    known = {
        "version": 10,
        "protocol": PROTOCOL,
        "metadata": metadata(),
        "files": live_files(adds),
        "removed": removed_files(removes),
        "txns": (),
        "domains": (),
    }
    return CheckpointContent(**{**known, **said})


def read(of: CheckpointContent) -> pa.Table:
    return pq.read_table(pa.BufferReader(checkpoint_parquet(of)))


def actions(of: CheckpointContent, name: str) -> list[dict[str, Any]]:
    return [row for row in read(of).column(name).to_pylist() if row is not None]


def add(stats: str | None = None, **said: Any) -> AddFile:
    return AddFile(path="a.parquet", size=7, modification_time=3, stats=stats, **said)


class TestSchema:
    def test_it_is_the_protocols(self) -> None:
        """Delta's example: a table with two partition columns and three others."""
        schema = pa.schema(
            [
                ("asset", pa.string()),
                ("quantity", pa.float64()),
                ("is_available", pa.bool_()),
                ("date", pa.date32()),
                ("region", pa.string()),
            ]
        )
        file = pq.ParquetFile(
            pa.BufferReader(checkpoint_parquet(content(metadata=metadata(schema, ("date", "region")))))
        )
        texts = pa.map_(pa.string(), pa.string())
        bounds = pa.struct([("asset", pa.string()), ("quantity", pa.float64())])
        counts = pa.struct([("asset", pa.int64()), ("quantity", pa.int64()), ("is_available", pa.int64())])
        expected = {
            "metaData.id": pa.string(),
            "metaData.name": pa.string(),
            "metaData.description": pa.string(),
            "metaData.format": pa.struct([("provider", pa.string()), ("options", texts)]),
            "metaData.schemaString": pa.string(),
            "metaData.partitionColumns": pa.list_(pa.field("element", pa.string())),
            "metaData.createdTime": pa.int64(),
            "metaData.configuration": texts,
            "protocol.minReaderVersion": pa.int32(),
            "protocol.minWriterVersion": pa.int32(),
            "protocol.readerFeatures": pa.list_(pa.field("element", pa.string())),
            "protocol.writerFeatures": pa.list_(pa.field("element", pa.string())),
            "txn.appId": pa.string(),
            "txn.version": pa.int64(),
            "txn.lastUpdated": pa.int64(),
            "domainMetadata.domain": pa.string(),
            "domainMetadata.configuration": pa.string(),
            "domainMetadata.removed": pa.bool_(),
            "add.path": pa.string(),
            "add.partitionValues": texts,
            "add.size": pa.int64(),
            "add.modificationTime": pa.int64(),
            "add.dataChange": pa.bool_(),
            "add.stats": pa.string(),
            "add.tags": texts,
            "add.deletionVector": VECTOR,
            "add.baseRowId": pa.int64(),
            "add.defaultRowCommitVersion": pa.int64(),
            "add.clusteringProvider": pa.string(),
            "add.partitionValues_parsed": pa.struct([("date", pa.date32()), ("region", pa.string())]),
            "add.stats_parsed": pa.struct(
                [
                    ("numRecords", pa.int64()),
                    ("minValues", bounds),
                    ("maxValues", bounds),
                    ("nullCount", counts),
                ]
            ),
            "remove.path": pa.string(),
            "remove.deletionTimestamp": pa.int64(),
            "remove.dataChange": pa.bool_(),
            "remove.extendedFileMetadata": pa.bool_(),
            "remove.partitionValues": texts,
            "remove.size": pa.int64(),
            "remove.deletionVector": VECTOR,
            "remove.baseRowId": pa.int64(),
            "remove.defaultRowCommitVersion": pa.int64(),
        }
        found = {f"{action.name}.{field.name}": field.type for action in file.schema_arrow for field in action.type}
        assert found == expected

    def test_parquet_is_as_spark_writes_it(self) -> None:
        file = pq.ParquetFile(pa.BufferReader(checkpoint_parquet(content([add()]))))
        shown = str(file.schema)
        assert "repeated group field_id=-1 key_value" in shown
        assert "repeated group field_id=-1 list" in shown
        assert "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds" in shown
        assert "Timestamp(isAdjustedToUTC=false, timeUnit=microseconds" in shown
        assert file.metadata.metadata is None
        assert file.metadata.row_group(0).column(0).compression == "SNAPPY"

    def test_properties_switch_each_kind_of_statistics_off(self) -> None:
        for name, gone in {
            "checkpoint_writeStatsAsJson": {"stats"},
            "checkpoint_writeStatsAsStruct": {"stats_parsed", "partitionValues_parsed"},
        }.items():
            full = {field.name for field in read(content([add()])).schema.field("add").type}
            less = content([add()], metadata=metadata(**{name: "false"}))
            assert full - {field.name for field in read(less).schema.field("add").type} == gone

    def test_a_table_without_columns_that_have_bounds_has_none(self) -> None:
        stats = '{"numRecords":3,"nullCount":{"list":1}}'
        table = metadata(pa.schema([("list", pa.list_(pa.int64()))]), ())
        [row] = actions(content([add(stats)], metadata=table), "add")
        assert row["stats_parsed"] == {"numRecords": 3}
        assert "partitionValues_parsed" not in row

    def test_a_mapped_table_uses_physical_names(self) -> None:
        mapped, configuration = with_mapping(pa.schema([("id", pa.int64()), ("part", pa.int32())]), {})
        renamed = pa.schema([field.with_name(f"my {field.name}") for field in mapped])
        action = Metadata(
            id="an id",
            schema_string=to_delta_json(renamed, column_mapping=True),
            partition_columns=("my part",),
            configuration=configuration,
        )
        stats = '{"numRecords":1,"minValues":{"id":1},"maxValues":{"id":2},"nullCount":{"id":0}}'
        table = content([add(stats, partition_values={"part": "5"})], metadata=TableMetadata(0, action, 0))
        [row] = actions(table, "add")
        assert row["stats_parsed"]["maxValues"] == {"id": 2}
        assert row["partitionValues_parsed"] == {"part": 5}


class TestActions:
    def test_a_file_is_there_with_everything_but_unknown_fields(self) -> None:
        vector = DeletionVector(storage_type="u", path_or_inline_dv="x", offset=1, size_in_bytes=2, cardinality=3)
        file = add(
            "{}",
            partition_values={"part": None},
            tags={"a": "b", "c": None},
            deletion_vector=vector,
            base_row_id=4,
            default_row_commit_version=5,
            clustering_provider="liquid",
            extra={"unknown": 1},
        )
        [row] = actions(content([file]), "add")
        assert row.pop("stats_parsed")["numRecords"] is None
        assert row == {
            "path": "a.parquet",
            "partitionValues": [("part", None)],
            "size": 7,
            "modificationTime": 3,
            "dataChange": False,
            "tags": [("a", "b"), ("c", None)],
            "deletionVector": vector.to_dict(),
            "baseRowId": 4,
            "defaultRowCommitVersion": 5,
            "clusteringProvider": "liquid",
            "stats": "{}",
            "partitionValues_parsed": {"part": None},
        }

    def test_a_removed_file_is_there_without_statistics(self) -> None:
        remove = RemoveFile(
            path="b.parquet",
            deletion_timestamp=9,
            data_change=True,
            extended_file_metadata=True,
            partition_values={"part": "2024-01-01"},
            size=8,
            stats="{}",
            tags={},
        )
        [row] = actions(content(removes=[remove]), "remove")
        assert row == {
            "path": "b.parquet",
            "deletionTimestamp": 9,
            "dataChange": False,
            "extendedFileMetadata": True,
            "partitionValues": [("part", "2024-01-01")],
            "size": 8,
            "deletionVector": None,
            "baseRowId": None,
            "defaultRowCommitVersion": None,
        }

    def test_metadata_and_protocol_are_there(self) -> None:
        features = Protocol(
            min_reader_version=3, min_writer_version=7, reader_features=("a",), writer_features=("a", "b")
        )
        table = content(protocol=features, metadata=metadata(some_property="x"))
        assert actions(table, "protocol") == [
            {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["a"], "writerFeatures": ["a", "b"]}
        ]
        assert actions(table, "metaData") == [
            {
                "id": "an id",
                "name": None,
                "description": "About it",
                "format": {"provider": "parquet", "options": []},
                "schemaString": table.metadata.action.schema_string,
                "partitionColumns": ["part"],
                "configuration": [("delta.some.property", "x")],
                "createdTime": 5,
            }
        ]
        assert actions(content(), "protocol")[0]["readerFeatures"] is None

    def test_transactions_and_domains_that_are_not_removed_are_there(self) -> None:
        table = content(
            txns=[Txn(app_id="b", version=2), Txn(app_id="a", version=1, last_updated=3)],
            domains=[
                DomainMetadata(domain="kept", configuration="{}"),
                DomainMetadata(domain="gone", configuration="", removed=True),
            ],
        )
        assert [(row["appId"], row["version"], row["lastUpdated"]) for row in actions(table, "txn")] == [
            ("a", 1, 3),
            ("b", 2, None),
        ]
        assert actions(table, "domainMetadata") == [{"domain": "kept", "configuration": "{}", "removed": False}]

    def test_each_row_is_one_action(self) -> None:
        table = content([add()], [RemoveFile(path="b")], txns=[Txn(app_id="a", version=1)])
        rows = read(table).to_pylist()
        assert [sum(value is not None for value in row.values()) for row in rows] == [1] * 5
        assert json.loads(last_checkpoint_json(table, 99)) == {
            "version": 10,
            "size": len(rows),
            "sizeInBytes": 99,
            "numOfAddFiles": 1,
        }

    def test_the_order_of_rows_makes_no_difference(self) -> None:
        table = content(
            [replace(add(f'{{"numRecords":{number}}}'), path=f"{number}") for number in range(50)],
            [RemoveFile(path=f"gone {number}") for number in range(50)],
            txns=[Txn(app_id=str(number), version=number) for number in range(5)],
        )
        backwards = list(range(49, -1, -1))
        other = replace(
            table,
            files=table.files.take(backwards),
            removed=table.removed.take(backwards),
            txns=table.txns[::-1],
        )
        assert checkpoint_parquet(other) == checkpoint_parquet(table) == checkpoint_parquet(table)

    def test_tight_bounds_are_there_if_a_file_speaks_of_them(self) -> None:
        found = actions(content([add('{"numRecords":1,"tightBounds":false}'), add('{"numRecords":1}')]), "add")
        assert [row["stats_parsed"]["tightBounds"] for row in found] == [False, None]

    def test_no_statistics_are_null(self) -> None:
        found = actions(content([add(None), add('{"numRecords":1}'), add(None)]), "add")
        assert [row["stats_parsed"] is None for row in found] == [True, False, True]


class TestWriting:
    def test_a_checkpoint_and_its_name_are_written(self, tmp_path: Path) -> None:
        table = content([add()])
        size = write_checkpoint(LocalStore(tmp_path), table)
        assert checkpoint_name(10) == "00000000000000000010.checkpoint.parquet"
        assert (tmp_path / checkpoint_name(10)).read_bytes() == checkpoint_parquet(table)
        assert (tmp_path / "_last_checkpoint").read_bytes() == last_checkpoint_json(table, size)
        assert {path.name for path in tmp_path.iterdir()} == {checkpoint_name(10), "_last_checkpoint"}

    def test_one_that_is_there_is_kept(self, tmp_path: Path) -> None:
        other = checkpoint_parquet(content())
        (tmp_path / checkpoint_name(10)).write_bytes(other)
        assert write_checkpoint(LocalStore(tmp_path), content([add()])) == len(other)
        assert (tmp_path / checkpoint_name(10)).read_bytes() == other
        assert json.loads((tmp_path / "_last_checkpoint").read_bytes())["sizeInBytes"] == len(other)

    @pytest.mark.parametrize("size", [0, 3, 500])
    def test_one_that_broke_off_is_replaced(self, tmp_path: Path, size: int) -> None:
        table = content([add()])
        whole = checkpoint_parquet(table)
        (tmp_path / checkpoint_name(10)).write_bytes(whole[:size])
        assert write_checkpoint(LocalStore(tmp_path), table) == len(whole)
        assert (tmp_path / checkpoint_name(10)).read_bytes() == whole

    @pytest.mark.parametrize(
        ("said", "stays"),
        [
            ('{"version":11,"size":3}', True),
            ('{"version":10,"size":3}', True),
            ('{"version":12,"size":3}', False),
            ('{"version":9,"size":3}', False),
            ('{"version":"11"}', False),
            ("[]", False),
            ("torn", False),
        ],
    )
    def test_the_last_checkpoint_never_goes_back(self, tmp_path: Path, said: str, stays: bool) -> None:
        (tmp_path / "_last_checkpoint").write_text(said)
        (tmp_path / checkpoint_name(11)).touch()
        write_checkpoint(LocalStore(tmp_path), content())
        assert ((tmp_path / "_last_checkpoint").read_text() == said) == stays


VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)
