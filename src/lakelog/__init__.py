"""Lakelog: a lakehouse whose transaction log is a SQL database."""

from lakelog import actions
from lakelog.dataset import Dataset
from lakelog.errors import (
    CatalogVersionError,
    CommitOutcomeUnknown,
    ConcurrencyError,
    ConfigurationError,
    DatabaseError,
    DatasetExistsError,
    DatasetNotFoundError,
    LakelogError,
    LakelogTimeoutError,
    SchemaMismatchError,
    ValidationError,
    VersionConflict,
    VersionNotFoundError,
    Violation,
)
from lakelog.lake import Lake, connect
from lakelog.log.commit import CommitResult
from lakelog.log.evolution import SchemaVersion, WritePlan
from lakelog.log.files import AddFiles, RemoveFiles, RowGroup
from lakelog.log.reading import FileGroup
from lakelog.log.snapshot import Changes, Commit, Snapshot
from lakelog.log.transaction import TransactionManager, TxContext
from lakelog.log.writer import SqlTxnLogWriter
from lakelog.schema.changes import SchemaChange

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
    "FileGroup",
    "Lake",
    "LakelogError",
    "LakelogTimeoutError",
    "RemoveFiles",
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
    "actions",
    "connect",
]
