"""What Delta's verbs answer, as DataFrames with Delta's columns."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lakelog.dataset import Dataset
from lakelog.log.snapshot import Commit, moment
from lakelog.log.validation.features import supported_features

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


def detail_frame(spark: "SparkSession", dataset: Dataset) -> "DataFrame":
    snapshot = dataset.snapshot()
    metadata, protocol = snapshot.metadata, snapshot.protocol
    files = snapshot.files(columns=["size"])
    row: tuple[Any, ...] = (
        "lakelog",
        metadata.id,
        dataset.name,
        metadata.description,
        dataset.location,
        None if metadata.created_time is None else moment(metadata.created_time),
        dataset.history(1)[0].timestamp,
        list(metadata.partition_columns),
        [],
        files.num_rows,
        int(pc.sum(files.column("size")).as_py() or 0),
        dict(metadata.configuration),
        protocol.min_reader_version,
        protocol.min_writer_version,
        sorted(supported_features(protocol)),
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


def optimize_frame(spark: "SparkSession", location: str, metrics: Mapping[str, int]) -> "DataFrame":
    """A row with the table's path and the metrics of an optimization, which are zero if there was nothing to do."""
    names = ("numFilesAdded", "numFilesRemoved", "bytesAdded", "bytesRemoved")
    told = ("numAddedFiles", "numRemovedFiles", "numAddedBytes", "numRemovedBytes")
    row = (location, tuple(int(metrics.get(name, 0)) for name in told))
    return spark.createDataFrame([row], f"path string, metrics struct<{', '.join(f'{name}: long' for name in names)}>")


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
