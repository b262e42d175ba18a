"""What callers can catch: builtin kinds, and errors that pass between processes."""

import pickle

import pytest

from lakelog import errors
from lakelog.errors import DatasetNotFoundError, LakelogError, ValidationError, VersionNotFoundError, Violation

ARGUMENTS = {
    "VersionConflict": ("t", 1, 2, 3),
    "ValidationError": ("t", [Violation("a", "is wrong")]),
    "SchemaMismatchError": ("t", [Violation("a", "is wrong")]),
    "LakelogTimeoutError": ("a lock", 1.5),
    "DeltaLogError": ("is broken", "0.json", 3),
    "CommitOutcomeUnknown": ("id", ["t"], "lost"),
}


def test_wrong_input_is_a_value_error() -> None:
    assert issubclass(ValidationError, ValueError)


def test_a_version_that_is_not_there_is_no_missing_dataset() -> None:
    assert not issubclass(VersionNotFoundError, DatasetNotFoundError)


@pytest.mark.parametrize(
    "name", [name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, LakelogError)]
)
def test_errors_survive_pickling(name: str) -> None:
    error = getattr(errors, name)(*ARGUMENTS.get(name, ("what happened",)))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert (str(again), again.args) == (str(error), error.args)
