"""The public face is the documented list, and nothing else."""

import pytest

import lakelog

DOCUMENTED = {
    # a lake and what is in it
    "connect",
    "Lake",
    "Dataset",
    "Snapshot",
    "Commit",
    "Changes",
    "FileGroup",
    "SchemaVersion",
    "SchemaChange",
    # writing
    "SqlTxnLogWriter",
    "TransactionManager",
    "TxContext",
    "WritePlan",
    "write_dataset",
    "WriteResult",
    "OptimizeResult",
    "RestoreResult",
    # reading
    "read_dataset",
    "read_changes",
    "CommitResult",
    "actions",
    "AddFiles",
    "RemoveFiles",
    "RowGroup",
    # Delta
    "MirrorStatus",
    # what can go wrong
    "LakelogError",
    "ConcurrencyError",
    "VersionConflict",
    "ValidationError",
    "Violation",
    "SchemaMismatchError",
    "DatabaseError",
    "CatalogVersionError",
    "LakelogTimeoutError",
    "CommitOutcomeUnknown",
    "ConfigurationError",
    "DatasetNotFoundError",
    "VersionNotFoundError",
    "DatasetExistsError",
    "PrivilegeError",
    "ReadOnlyError",
    "DeltaLogError",
}

ACTIONS = {"AddFile", "RemoveFile", "Metadata", "Protocol", "Txn", "CommitInfo"}


def test_the_public_names_are_the_documented_ones() -> None:
    assert set(lakelog.__all__) == DOCUMENTED
    assert lakelog.__all__ == sorted(lakelog.__all__)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_a_public_name_can_be_imported(name: str) -> None:
    assert getattr(lakelog, name) is not None


@pytest.mark.parametrize("name", sorted(ACTIONS))
def test_an_action_has_its_own_name_in_the_actions(name: str) -> None:
    action = getattr(lakelog.actions, name)
    assert callable(action.to_json)
    assert callable(action.from_json)


def test_every_error_has_one_root() -> None:
    public = [getattr(lakelog, name) for name in lakelog.__all__]
    errors = [each for each in public if isinstance(each, type) and issubclass(each, Exception)]
    assert all(issubclass(each, lakelog.LakelogError) for each in errors)
