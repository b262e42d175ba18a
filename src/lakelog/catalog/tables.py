"""The catalog's tables as Arrow schemas: the columns that a bulk load brings, in their order."""

from typing import Any

import pyarrow as pa

_INT, _TEXT, _BOOL, _SHORT, _NUM = pa.int64(), pa.string(), pa.bool_(), pa.int32(), pa.float64()

_FILE_KEY = [("table_id", _INT), ("version", _INT), ("ordinal", _SHORT)]

TABLES: dict[str, Any] = {
    "dl_table_versions": pa.schema(
        [
            ("table_id", _INT),
            ("version", _INT),
            ("committed_at", _INT),
            ("commit_id", _TEXT),
            ("committer", _TEXT),
            ("operation", _TEXT),
            ("operation_parameters", _TEXT),
            ("extra", _TEXT),
        ]
    ),
    "dl_add_files": pa.schema(
        [
            *_FILE_KEY,
            ("path", _TEXT),
            ("size", _INT),
            ("partition_values", _TEXT),
            ("stats", _TEXT),
            ("row_count", _INT),
            ("modification_time", _INT),
            ("data_change", _BOOL),
            ("tags", _TEXT),
            ("deletion_vector", _TEXT),
            ("base_row_id", _INT),
            ("default_row_commit_version", _INT),
            ("schema_version", _SHORT),
            ("extra", _TEXT),
        ]
    ),
    "dl_remove_files": pa.schema(
        [
            *_FILE_KEY,
            ("path", _TEXT),
            ("deletion_timestamp", _INT),
            ("data_change", _BOOL),
            ("extended_file_metadata", _BOOL),
            ("partition_values", _TEXT),
            ("size", _INT),
            ("stats", _TEXT),
            ("tags", _TEXT),
            ("deletion_vector", _TEXT),
            ("base_row_id", _INT),
            ("default_row_commit_version", _INT),
            ("added_version", _INT),
            ("added_ordinal", _SHORT),
            ("extra", _TEXT),
        ]
    ),
    "dl_metadata_updates": pa.schema(
        [
            ("table_id", _INT),
            ("version", _INT),
            ("metadata_id", _TEXT),
            ("name", _TEXT),
            ("description", _TEXT),
            ("format", _TEXT),
            ("schema_string", _TEXT),
            ("partition_columns", _TEXT),
            ("configuration", _TEXT),
            ("created_time", _INT),
            ("schema_version", _SHORT),
            ("extra", _TEXT),
        ]
    ),
    "dl_protocol_updates": pa.schema(
        [
            ("table_id", _INT),
            ("version", _INT),
            ("min_reader_version", _SHORT),
            ("min_writer_version", _SHORT),
            ("reader_features", _TEXT),
            ("writer_features", _TEXT),
            ("extra", _TEXT),
        ]
    ),
    "dl_txn_actions": pa.schema(
        [
            ("table_id", _INT),
            ("app_id", _TEXT),
            ("version", _INT),
            ("app_version", _INT),
            ("last_update", _INT),
            ("extra", _TEXT),
        ]
    ),
    "dl_domain_metadata": pa.schema(
        [
            ("table_id", _INT),
            ("domain", _TEXT),
            ("version", _INT),
            ("configuration", _TEXT),
            ("removed", _BOOL),
            ("extra", _TEXT),
        ]
    ),
    "dl_cdc_files": pa.schema(
        [
            *_FILE_KEY,
            ("path", _TEXT),
            ("size", _INT),
            ("partition_values", _TEXT),
            ("tags", _TEXT),
            ("extra", _TEXT),
        ]
    ),
    "schema_versions": pa.schema(
        [
            ("table_id", _INT),
            ("version", _SHORT),
            ("arrow_schema", pa.binary()),
            ("introduced_by", _INT),
            ("merge", _TEXT),
        ]
    ),
    "row_groups": pa.schema(
        [*_FILE_KEY, ("row_group", _SHORT), ("row_count", _INT), ("byte_size", _INT), ("stats", _TEXT)]
    ),
    "partitions": pa.schema([*_FILE_KEY, ("key", _TEXT), ("value", _TEXT)]),
    "column_stats": pa.schema(
        [
            ("table_id", _INT),
            ("column_name", _TEXT),
            ("span", _NUM),
            ("min_num", _NUM),
            ("min_text", _TEXT),
            ("version", _INT),
            ("ordinal", _SHORT),
            ("max_num", _NUM),
            ("max_text", _TEXT),
            ("null_count", _INT),
        ]
    ),
}
