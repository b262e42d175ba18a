"""What can go wrong, as types that a caller can decide on.

    LakelogError
    ├── ConcurrencyError            someone else's commit came first: reload, then decide
    │   └── VersionConflict         expected head, actual head, table
    ├── ValidationError             the input is wrong (also a builtin ValueError); lists every violation
    │   └── SchemaMismatchError     the input's schema does not fit the table's
    ├── DatabaseError               the catalog's database failed or refused; nothing was committed
    │   ├── CatalogVersionError     the catalog was made by another version of Lakelog
    │   └── PrivilegeError          the database lets this role not do that
    ├── LakelogTimeoutError         a wait ran out (also a builtin TimeoutError); nothing was committed
    ├── CommitOutcomeUnknown        the connection died inside COMMIT and could not be asked again
    ├── ConfigurationError          a URL, an option or a directory is unusable
    ├── DeltaLogError               a Delta log is broken or has a gap; says which file, and which line
    ├── DatasetNotFoundError        no such dataset, or it was dropped
    ├── VersionNotFoundError        no such version or time in the dataset's history
    └── DatasetExistsError          the name is taken

Doors that take a SparkSession raise subclasses of the last three that are PySpark's ``AnalysisException`` as well
(``lakelog.spark.errors``).

Every class keeps its positional arguments in ``args``, so that it survives pickling between Spark's processes.
"""

from collections.abc import Sequence
from dataclasses import dataclass


class LakelogError(Exception):
    """The root of everything that Lakelog raises on purpose."""


class ConcurrencyError(LakelogError):
    """Another writer's commit stands in the way. Reload the table and decide whether to try again."""


class VersionConflict(ConcurrencyError):
    """The table's head is not the one that the caller expected. Nothing was changed."""

    def __init__(self, table: str, table_id: int, expected: int, actual: int) -> None:
        super().__init__(table, table_id, expected, actual)
        self.table = table
        self.table_id = table_id
        self.expected = expected
        self.actual = actual

    def __str__(self) -> str:
        relation = "another commit came first" if self.actual > self.expected else "that version does not exist yet"
        return (
            f"version conflict on table {self.table!r} (id {self.table_id}): expected head {self.expected}, "
            f"found {self.actual}: {relation}. Reload the table and retry if the change still applies."
        )


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that is wrong with the input, and where."""

    where: str
    message: str

    def __str__(self) -> str:
        return f"{self.where}: {self.message}"


class ValidationError(LakelogError, ValueError):
    """The input is wrong. Nothing was changed, and nothing was locked."""

    shown = 20

    def __init__(self, subject: str, violations: Sequence[Violation]) -> None:
        super().__init__(subject, tuple(violations))
        self.subject = subject
        self.violations: tuple[Violation, ...] = tuple(violations)

    def __str__(self) -> str:
        lines = [f"{self.subject}: {len(self.violations)} problem{'s' if len(self.violations) != 1 else ''}"]
        lines += [f"  - {violation}" for violation in self.violations[: self.shown]]
        if len(self.violations) > self.shown:
            lines.append(f"  … and {len(self.violations) - self.shown} more, in .violations")
        return "\n".join(lines)


class SchemaMismatchError(ValidationError):
    """The incoming schema does not fit the table's; lists every difference."""


class DatabaseError(LakelogError):
    """The catalog's database failed or refused. Nothing of the operation was committed."""

    def __init__(self, message: str, constraint: str | None = None, detail: str | None = None) -> None:
        super().__init__(message, constraint, detail)
        self.message = message
        self.constraint = constraint
        self.detail = detail

    def __str__(self) -> str:
        text = self.message
        if self.constraint:
            text += f" (constraint {self.constraint})"
        if self.detail:
            text += f": {self.detail}"
        return text


class CatalogVersionError(DatabaseError):
    """The catalog's tables belong to another version of Lakelog."""


class PrivilegeError(DatabaseError):
    """The database's role must not do what is asked for. To try again does not help."""


class LakelogTimeoutError(LakelogError, TimeoutError):
    """A wait ran out. Nothing was committed."""

    def __init__(self, waited_for: str, seconds: float) -> None:
        super().__init__(waited_for, seconds)
        self.waited_for = waited_for
        self.seconds = seconds

    def __str__(self) -> str:
        return (
            f"gave up after {self.seconds:.1f} s of waiting for {self.waited_for}. "
            "Nothing was committed; retry later, or connect with a longer timeout."
        )


class CommitOutcomeUnknown(LakelogError):
    """The commit may stand or not. Ask ``lake.commit_status(error.commit_id)``; delete no file before that."""

    def __init__(self, commit_id: str, tables: Sequence[str] = (), detail: str | None = None) -> None:
        super().__init__(commit_id, tuple(tables), detail)
        self.commit_id = commit_id
        self.tables: tuple[str, ...] = tuple(tables)
        self.detail = detail

    def __str__(self) -> str:
        names = ", ".join(repr(name) for name in self.tables) or "unknown tables"
        text = (
            f"the outcome of commit {self.commit_id} on {names} is unknown: the database was lost while it was "
            f"committing and could not be asked again. Call lake.commit_status({self.commit_id!r}) when it is back; "
            "until then keep every file of the commit and do not repeat it."
        )
        return f"{text} Cause: {self.detail}" if self.detail else text


class ConfigurationError(LakelogError):
    """A URL, an option or a directory that Lakelog cannot work with."""


class DeltaLogError(LakelogError):
    """A Delta log that cannot be read: a file of it is broken or missing."""

    def __init__(self, message: str, file: str | None = None, line: int | None = None) -> None:
        super().__init__(message, file, line)
        self.message = message
        self.file = file
        self.line = line

    def __str__(self) -> str:
        places = [] if self.file is None else [self.file]
        if self.line is not None:
            places.append(f"line {self.line}")
        return f"{', '.join(places)}: {self.message}" if places else self.message


class DatasetNotFoundError(LakelogError):
    """There is no such dataset, or it was dropped."""


class VersionNotFoundError(LakelogError):
    """The dataset exists, but not at that version or time."""


class ReadOnlyError(LakelogError):
    """The catalog is older than the table's ``_delta_log``, as after a restored backup: a person has to decide."""


class DatasetExistsError(LakelogError):
    """The name, or the location, belongs to another dataset."""
