"""Lakelog: a lakehouse whose transaction log is a SQL database."""

from typing import TYPE_CHECKING, Any

from lakelog import actions
from lakelog.changes.evolution import SchemaVersion, WritePlan
from lakelog.changes.restore import RestoreResult
from lakelog.dataset import Dataset
from lakelog.errors import (
    CatalogVersionError,
    CommitOutcomeUnknown,
    ConcurrencyError,
    ConfigurationError,
    DatabaseError,
    DatasetExistsError,
    DatasetNotFoundError,
    DeltaLogError,
    LakelogError,
    LakelogTimeoutError,
    PrivilegeError,
    ReadOnlyError,
    SchemaMismatchError,
    ValidationError,
    VersionConflict,
    VersionNotFoundError,
    Violation,
)
from lakelog.lake import Lake, connect
from lakelog.log.commit.files import AddFiles, RemoveFiles, RowGroup
from lakelog.log.commit.outcomes import CommitResult
from lakelog.log.snapshot.file_groups import FileGroup
from lakelog.log.snapshot.snapshot import Changes, Commit, Snapshot
from lakelog.mirror.status import MirrorStatus
from lakelog.schema.evolution.changes import SchemaChange
from lakelog.transaction_manager import TransactionManager, TxContext
from lakelog.txn_log_writer import SqlTxnLogWriter

if TYPE_CHECKING:
    from lakelog.spark import OptimizeResult, WriteResult, write_dataset
    from lakelog.spark.read.change_feed import read_changes
    from lakelog.spark.read.read import read_dataset

__all__ = [
    "AddFiles",
    "CatalogVersionError",
    "Changes",
    "Commit",
    "CommitOutcomeUnknown",
    "CommitResult",
    "ConcurrencyError",
    "ConfigurationError",
    "DatabaseError",
    "Dataset",
    "DatasetExistsError",
    "DatasetNotFoundError",
    "DeltaLogError",
    "FileGroup",
    "Lake",
    "LakelogError",
    "LakelogTimeoutError",
    "MirrorStatus",
    "OptimizeResult",
    "PrivilegeError",
    "ReadOnlyError",
    "RemoveFiles",
    "RestoreResult",
    "RowGroup",
    "SchemaChange",
    "SchemaMismatchError",
    "SchemaVersion",
    "Snapshot",
    "SqlTxnLogWriter",
    "TransactionManager",
    "TxContext",
    "ValidationError",
    "VersionConflict",
    "VersionNotFoundError",
    "Violation",
    "WritePlan",
    "WriteResult",
    "actions",
    "connect",
    "read_changes",
    "read_dataset",
    "write_dataset",
]

_ON_SPARK = ("OptimizeResult", "WriteResult", "read_changes", "read_dataset", "write_dataset")
"""Names that need pyspark, which is imported when the first of them is used."""


def __getattr__(name: str) -> Any:
    if name not in _ON_SPARK:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from lakelog import spark

    return getattr(spark, name)
