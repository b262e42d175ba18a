"""Which files a compaction puts together: those of one partition, small ones first, up to a size."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakelog.catalog.stored import stored_json
from lakelog.errors import ValidationError, Violation

TARGET_SIZE = "delta.targetFileSize"
"""The table property with the size of a table's files."""

DEFAULT_TARGET = 1 << 30
"""Delta's own: larger files save little, and smaller ones cost every reader and the catalog."""

_DELETED = 0.05
"""The share of deleted rows from which on a file is worth writing again, as in Delta."""

_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_size = re.compile(r"\s*([0-9]+)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE).fullmatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of the files that a compaction makes, and of those that it leaves alone."""

    target: int
    minimum: int

    @classmethod
    def of(cls, configuration: Mapping[str, str], target: Any = None, minimum: Any = None) -> "Sizes":
        """What was asked for, or what the table's properties say. Raises ``ValidationError``.

        By default a file of three quarters of the target counts as large: to write it again would gain next to nothing.
        """
        problems = [
            Violation(name, f"expected a positive number of bytes, got {value!r}")
            for name, value in (("target_file_size", target), ("min_file_size", minimum))
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1)
        ]
        if problems:
            raise ValidationError("optimize", problems)
        wanted = target or _configured(configuration) or DEFAULT_TARGET
        smallest = wanted * 3 // 4 if minimum is None else minimum
        if smallest > wanted:
            message = f"{smallest} bytes are more than the target of {wanted}: every file would be written again"
            raise ValidationError("optimize", [Violation("min_file_size", message)])
        return cls(target=wanted, minimum=max(smallest, 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bin:
    """Files of one partition, whose rows belong together in ``outputs`` new files."""

    files: tuple[int, ...]
    """The files' positions among all that were looked at."""
    size: int
    """Bytes of their rows that are not deleted, as far as one can tell."""
    rows: int | None
    """Rows that are not deleted; None if the log does not know."""
    outputs: int = 1


def packed(files: Any, sizes: Sizes) -> list[Bin]:
    """Bins for the files that are small, or have many deleted rows, of a table as ``Snapshot.files`` gives it.

    A file that would be alone in its bin is left as it is unless it has many deleted rows.
    """
    bins = []
    for candidates in _by_partition(files):
        wanted = [file for file in candidates if file.size < sizes.minimum or file.is_worn]
        bins += [_bin(each) for each in _packed(wanted, sizes.target) if len(each) > 1 or each[0].is_worn]
    return bins


def whole_partitions(files: Any, sizes: Sizes) -> list[Bin]:
    """A bin for each partition with all its files: to put rows in another order, all of them are needed."""
    bins = [_bin(candidates) for candidates in _by_partition(files)]
    return [
        Bin(files=each.files, size=each.size, rows=each.rows, outputs=max(1, each.size // sizes.target))
        for each in bins
    ]


@dataclass(frozen=True, slots=True)
class _File:
    position: int
    size: int
    """Bytes, less the share of deleted rows."""
    rows: int | None
    is_worn: bool
    """Whether so many rows are deleted that they are worth purging."""


def _by_partition(files: Any) -> list[list[_File]]:
    """The files of each partition, small ones first."""
    columns = ("partition_values", "path", "size", "row_count", "deletion_vector")
    rows = zip(*(files.column(name).to_pylist() for name in columns), strict=True)
    found: dict[str, list[tuple[int, str, _File]]] = {}
    for position, (partition, path, size, count, vector) in enumerate(rows):
        file = _File(position, size, count, False) if vector is None else _with_vector(position, size, count, vector)
        found.setdefault(partition, []).append((file.size, path, file))
    return [[file for _, _, file in sorted(partition, key=lambda each: each[:2])] for partition in found.values()]


def _with_vector(position: int, size: int, count: int | None, vector: str) -> _File:
    deleted = stored_json(vector)["cardinality"]
    if not count:
        # Once it is written again, its rows are counted.
        return _File(position, size, None, True)
    left = max(count - deleted, 0)
    return _File(position, size * left // count, left, deleted / count > _DELETED)


def _packed(files: Sequence[_File], target: int) -> list[list[_File]]:
    bins: list[list[_File]] = []
    filled = 0
    for file in files:
        if not bins or filled + file.size > target:
            bins.append([])
            filled = 0
        bins[-1].append(file)
        filled += file.size
    return bins


def _bin(files: Sequence[_File]) -> Bin:
    counts = [file.rows for file in files]
    known = [count for count in counts if count is not None]
    return Bin(
        files=tuple(file.position for file in files),
        size=sum(file.size for file in files),
        rows=sum(known) if len(known) == len(counts) else None,
    )


def _configured(configuration: Mapping[str, str]) -> int | None:
    text = configuration.get(TARGET_SIZE)
    if text is None:
        return None
    found = _size(text)
    if found is None or int(found[1]) == 0:
        message = f"expected a size such as 134217728 or 128mb, got {text!r}; or pass target_file_size"
        raise ValidationError("optimize", [Violation(TARGET_SIZE, message)])
    return int(found[1]) * _UNITS[found[2].lower()]
