"""Row groups as values: their types, ranges and statistics."""

from collections.abc import Sequence
from typing import Any

from lakelog.errors import Violation
from lakelog.log.commit.files import RowGroup
from lakelog.log.validation.fields import MAX_INT32, MAX_INT64
from lakelog.log.validation.stats import checked_stats
from lakelog.strict_json import describe

_LARGEST = {"row_group": MAX_INT32, "row_count": MAX_INT64, "byte_size": MAX_INT64}


def validate_row_groups(row_groups: Any) -> list[Violation]:
    """Everything that is wrong with row groups by themselves; empty if nothing is."""
    if not isinstance(row_groups, Sequence) or isinstance(row_groups, str | bytes):
        message = f"expected a list of RowGroup or a pyarrow.Table, got {describe(row_groups)}"
        return [Violation("row_groups", message)]
    found: list[Violation] = []
    for index, group in enumerate(row_groups):
        where = f"row_groups[{index}]"
        if not isinstance(group, RowGroup):
            found.append(Violation(where, f"expected a RowGroup, got {describe(group)}"))
            continue
        if not isinstance(group.path, str):
            found.append(Violation(f"{where}.path", f"expected a string, got {describe(group.path)}"))
        for name, largest in _LARGEST.items():
            value = getattr(group, name)
            if value is None and name == "byte_size":
                continue
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= largest:
                found.append(Violation(f"{where}.{name}", f"expected 0 to {largest}, got {describe(value)}"))
        if isinstance(group.stats, str):
            found += checked_stats(group.stats, f"{where}.stats")[1]
        elif group.stats is not None:
            found.append(Violation(f"{where}.stats", f"expected a string, got {describe(group.stats)}"))
    return found
