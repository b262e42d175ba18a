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
from lakelog.log.files import AddFiles, RemoveFiles, RowGroup
from lakelog.log.snapshot import Changes, Commit, Snapshot
from lakelog.log.transaction import TransactionManager, TxContext
from lakelog.log.writer import SqlTxnLogWriter

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
    "Lake",
    "LakelogError",
    "LakelogTimeoutError",
    "RemoveFiles",
    "RowGroup",
    "SchemaMismatchError",
    "Snapshot",
    "SqlTxnLogWriter",
    "TransactionManager",
    "TxContext",
    "ValidationError",
    "VersionConflict",
    "VersionNotFoundError",
    "Violation",
    "actions",
    "connect",
]
