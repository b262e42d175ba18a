"""What Delta's verbs answer, as DataFrames with Delta's columns."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakelog.detail import DatasetDetail
from lakelog.log.snapshot.snapshot import Commit

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HISTORY = (
    "version long, timestamp timestamp, userId string, userName string, operation string, "
    "operationParameters map<string,string>, job struct<jobId:string,jobName:string,jobRunId:string,runId:string,"
    "jobOwnerId:string,triggerType:string>, notebook struct<notebookId:string>, clusterId string, readVersion long, "
    "isolationLevel string, isBlindAppend boolean, operationMetrics map<string,string>, userMetadata string, "
    "engineInfo string"
)
_DETAIL = (
    "format string, id string, name string, description string, location string, createdAt timestamp, "
    "lastModified timestamp, partitionColumns array<string>, clusteringColumns array<string>, numFiles long, "
    "sizeInBytes long, properties map<string,string>, minReaderVersion int, minWriterVersion int, "
    "tableFeatures array<string>"
)
_MERGE = "num_affected_rows long, num_updated_rows long, num_deleted_rows long, num_inserted_rows long"


def history_frame(spark: "SparkSession", commits: Sequence[Commit]) -> "DataFrame":
    rows = [
        (
            commit.version,
            commit.timestamp,
            None,
            commit.committer,
            commit.operation,
            _texts(commit.operation_parameters),
            None,
            None,
            None,
            commit.version - 1 if commit.version else None,
            "Serializable",
            commit.extra.get("isBlindAppend"),
            _texts(commit.extra.get("operationMetrics") or {}),
            commit.extra.get("userMetadata"),
            commit.extra.get("engineInfo", "Lakelog"),
        )
        for commit in commits
    ]
    return spark.createDataFrame(rows, _HISTORY)


def detail_frame(spark: "SparkSession", detail: DatasetDetail) -> "DataFrame":
    row: tuple[Any, ...] = (
        "lakelog",
        detail.id,
        detail.name,
        detail.description,
        detail.location,
        detail.created_at,
        detail.last_modified,
        list(detail.partition_columns),
        list(detail.clustering_columns),
        detail.files,
        detail.bytes,
        dict(detail.properties),
        detail.min_reader_version,
        detail.min_writer_version,
        list(detail.features),
    )
    return spark.createDataFrame([row], _DETAIL)


def merge_frame(spark: "SparkSession", metrics: Mapping[str, int]) -> "DataFrame":
    updated, deleted, inserted = (metrics[f"numTargetRows{what}"] for what in ("Updated", "Deleted", "Inserted"))
    return spark.createDataFrame([(updated + deleted + inserted, updated, deleted, inserted)], _MERGE)


def restore_frame(spark: "SparkSession", metrics: Mapping[str, int]) -> "DataFrame":
    """Delta's answer to a restoration, out of what its history has."""
    names = {
        "table_size_after_restore": "tableSizeAfterRestore",
        "num_of_files_after_restore": "numOfFilesAfterRestore",
        "num_removed_files": "numRemovedFiles",
        "num_restored_files": "numRestoredFiles",
        "removed_files_size": "removedFilesSize",
        "restored_files_size": "restoredFilesSize",
    }
    row = tuple(int(metrics.get(name, 0)) for name in names.values())
    return spark.createDataFrame([row], ", ".join(f"{name} long" for name in names))


def _texts(values: Mapping[str, Any]) -> dict[str, str | None]:
    """Values as a map of texts has them. What is not said stays null, and is not the text of one."""
    return {
        name: value if isinstance(value, str | None) else json.dumps(value, separators=(",", ":"))
        for name, value in values.items()
    }
