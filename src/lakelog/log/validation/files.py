"""File actions: added, removed and change data files, with their deletion vectors."""

import re
from typing import Any

from lakelog.actions import AddFile, CdcFile, DeletionVector, RemoveFile
from lakelog.errors import Violation
from lakelog.log.validation.fields import field_violations
from lakelog.log.validation.paths import path_problem
from lakelog.log.validation.stats import checked_stats
from lakelog.strict_json import shown

_UUID_CHARACTERS = 20
_is_z85 = re.compile(r"(?:[0-9A-Za-z.\-:+=^!/*?&<>()\[\]{}@%$#]{5})*").fullmatch


def checked_add(
    add: AddFile, where: str = "add", *, allow_absolute: bool = False
) -> tuple[dict[str, Any] | None, list[Violation]]:
    """The parsed statistics of an added file, None if it has none, and everything that is wrong with the action."""
    violations = field_violations(add, where, allow_absolute=allow_absolute)
    parsed = None
    if isinstance(add.stats, str):
        parsed, problems = checked_stats(add.stats, f"{where}.stats")
        violations += problems
    vector = add.deletion_vector
    if isinstance(vector, DeletionVector):
        problems = validate_vector(vector, f"{where}.deletion_vector")
        violations += problems
        records = (parsed or {}).get("numRecords")
        if records is None:
            violations.append(Violation(f"{where}.stats", "numRecords is required with a deletion vector"))
        elif not problems and type(records) is int and vector.cardinality > records:
            message = f"deletes {vector.cardinality} rows of a file with {records}"
            violations.append(Violation(f"{where}.deletion_vector.cardinality", message))
    return parsed, violations


def validate_add(add: AddFile, where: str = "add", *, allow_absolute: bool = False) -> list[Violation]:
    """Everything that is wrong with an added file by itself."""
    return checked_add(add, where, allow_absolute=allow_absolute)[1]


def validate_remove(remove: RemoveFile, where: str = "remove", *, allow_absolute: bool = False) -> list[Violation]:
    """Everything that is wrong with a removed file by itself."""
    violations = field_violations(remove, where, allow_absolute=allow_absolute)
    if isinstance(remove.stats, str):
        violations += checked_stats(remove.stats, f"{where}.stats")[1]
    if isinstance(remove.deletion_vector, DeletionVector):
        violations += validate_vector(remove.deletion_vector, f"{where}.deletion_vector")
    if remove.extended_file_metadata is True:
        violations += [
            Violation(f"{where}.{name}", "is missing, though extended_file_metadata promises it")
            for name in ("partition_values", "size")
            if getattr(remove, name) is None
        ]
    return violations


def validate_cdc(cdc: CdcFile, where: str = "cdc", *, allow_absolute: bool = False) -> list[Violation]:
    """Everything that is wrong with a change data file by itself."""
    violations = field_violations(cdc, where, allow_absolute=allow_absolute)
    if cdc.data_change is True:
        violations.append(Violation(f"{where}.data_change", "must be false: change data is not the table's data"))
    return violations


def validate_vector(vector: DeletionVector, where: str) -> list[Violation]:
    """Everything that is wrong with a deletion vector by itself."""
    violations = field_violations(vector, where)
    if violations:
        return violations
    if vector.storage_type == "u":
        problem = _file_name_problem(vector.path_or_inline_dv)
    elif vector.storage_type == "p":
        problem = _absolute_path_problem(vector.path_or_inline_dv)
    elif vector.storage_type == "i":
        problem = _inline_problem(vector)
        if vector.offset is not None:
            violations.append(Violation(f"{where}.offset", "must be absent: an inline vector lies in no file"))
    else:
        message = f"expected 'u', 'i' or 'p', got {shown(vector.storage_type)}"
        return [Violation(f"{where}.storage_type", message)]
    if problem:
        violations.append(Violation(f"{where}.path_or_inline_dv", problem))
    return violations


def _file_name_problem(name: str) -> str | None:
    prefix, uuid = name[:-_UUID_CHARACTERS], name[-_UUID_CHARACTERS:]
    if len(uuid) != _UUID_CHARACTERS or not _is_z85(uuid):
        return f"expected a UUID as {_UUID_CHARACTERS} characters of Z85 after an optional prefix"
    problem = path_problem(prefix) if prefix else None
    return f"the prefix {shown(prefix)} {problem}" if problem else None


def _absolute_path_problem(path: str) -> str | None:
    if problem := path_problem(path, allow_absolute=True):
        return problem
    return "expected an absolute path" if path_problem(path) is None else None


def _inline_problem(vector: DeletionVector) -> str | None:
    text = vector.path_or_inline_dv
    if not _is_z85(text):
        return "is not Z85 text"
    held = len(text) // 5 * 4
    # Z85 works in groups of four bytes, so that up to three are padding.
    if not 0 <= held - vector.size_in_bytes < 4:
        return f"holds {held} bytes, but size_in_bytes is {vector.size_in_bytes}"
    return None
