"""Whether what pruning reads of each file is what the file's statistics say: else a search would lose rows silently."""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from types import NoneType
from typing import NamedTuple

from lakelog.catalog.base import Row, Session, Transaction
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.few_files import WITHOUT_STATISTICS, bounds_by_leaf
from lakelog.log.pruning.bounds import INFINITY, Bounds, text_span
from lakelog.log.state import Head, TableMetadata, read_metadata
from lakelog.log.validation.stats import checked_stats
from lakelog.strict_json import loads_strict
from lakelog.upkeep.check.findings import Finding

_FILES = 50_000
"""Files that are looked at together, for which all bounds of the table are passed over once."""

_NUMBER = (int, float)
_KINDS: tuple[type | tuple[type, ...], ...] = (_NUMBER, _NUMBER, str, _NUMBER, (str, NoneType), (int, NoneType))
"""The types of ``Bounds``, as ``isinstance`` takes them."""

_MEND = "write the bounds again, as the statistics say them"


class _File(NamedTuple):
    """A row of ``check_file_texts``."""

    version: int
    ordinal: int
    path: str
    row_count: int | None
    stats: str | None
    partition_values: str


class WrongBounds(NamedTuple):
    """A file whose rows of ``column_stats`` let a search miss it, with what they should be."""

    file: _File
    columns: Sequence[str]
    rows: Sequence[Row]

    def finding(self) -> Finding:
        message = f"what searches read of {self.file.path} is not what its statistics say: {', '.join(self.columns)}"
        return Finding(invariant=9, message=message, versions=(self.file.version, self.file.version), mend=_MEND)


def wrong_bounds(committer: Committer, session: Session, head: Head) -> Iterator[WrongBounds]:
    """The files up to a head of which searches read something that their statistics do not say."""
    queries, key = committer.catalog.queries, {"table_id": head.table_id, "version": head.version}
    # Not by states: of versions that expired, metadata is kept for the files that are left of them, the protocol not.
    history = [read_metadata(row) for row in reversed(session.fetch(queries["metadata_history"], key))]
    changed = [metadata.version for metadata in history]
    for first, last in _parts(session.fetch(queries["check_file_counts"], key)):
        some = {"table_id": head.table_id, "first": first, "last": last}
        found: dict[tuple[int, int], dict[str, Bounds]] = defaultdict(dict)
        for version, ordinal, name, *bounds in session.fetch(queries["check_bounds"], some):
            found[version, ordinal][name] = Bounds(*bounds)
        for row in session.fetch(queries["check_some_file_texts"], some):
            file = _File(*row)
            metadata = history[bisect_right(changed, file.version) - 1]
            wrong = _wrong(head.table_id, file, metadata, found[file.version, file.ordinal])
            if wrong is not None:
                yield wrong


def mend_bounds(committer: Committer, transaction: Transaction, table_id: int, wrong: Sequence[WrongBounds]) -> None:
    """Writes bounds again, with the table's lock held."""
    queries = committer.catalog.queries
    for file, _, rows in wrong:
        key = {"table_id": table_id, "version": file.version, "ordinal": file.ordinal}
        # Its version may have expired since it was looked at.
        if transaction.fetch(queries["check_file"], key):
            transaction.execute(queries["forget_bounds"], key)
            transaction.insert("column_stats", rows)


def _parts(counts: Sequence[Row]) -> Iterator[tuple[int, int]]:
    """Ranges of versions with not too many files each."""
    first, files = None, 0
    for version, count in counts:
        if first is not None and files + count > _FILES:
            yield first, version - 1
            first, files = None, 0
        first, files = version if first is None else first, files + count
    if first is not None:
        yield first, counts[-1][0]


def _wrong(table_id: int, file: _File, metadata: TableMetadata, found: dict[str, Bounds]) -> WrongBounds | None:
    if WITHOUT_STATISTICS[0] in found:
        return None  # Every search keeps it.
    stats, problems = checked_stats(file.stats, "statistics") if file.stats else ({}, [])
    try:
        values = loads_strict(file.partition_values)
    except ValueError:
        values = None
    if problems or not isinstance(values, dict):
        return None  # The damage is a finding of its own.
    expected = bounds_by_leaf(values, stats, file.row_count, metadata)
    columns = [name for name, bounds in expected.items() if name not in found or not _covers(found[name], bounds)]
    if not columns:
        return None
    rows = [
        (table_id, name, each.span, each.min_num, each.min_text, file.version, file.ordinal, *each[3:])
        for name, each in expected.items()
    ]
    return WrongBounds(file, columns, rows)


def _covers(found: Bounds, expected: Bounds) -> bool:
    """Whether a search by one pair of bounds keeps a file whenever a search by the other would.

    Numbers were rounded outward, by one step more or less.
    """
    if any(not isinstance(value, kind) for value, kind in zip(found, _KINDS, strict=True)):
        return False  # A damaged SQLite file gives values of any type.
    if found.null_count not in (None, expected.null_count):
        return False
    if expected.span == -1 or found.span == -1:
        return expected.span == -1
    if found.min_text or found.max_text is not None or expected.max_text is not None:
        ends = found.max_text is None or (expected.max_text is not None and found.max_text >= expected.max_text)
        return ends and found.min_text <= expected.min_text and found.span <= text_span(found.min_text, found.max_text)
    low, high = expected.min_num, expected.max_num
    for _ in range(2):
        low, high = math.nextafter(low, INFINITY), math.nextafter(high, -INFINITY)
    is_wide = found.max_num - found.min_num <= found.span or found.span == INFINITY
    return is_wide and found.min_num <= low and found.max_num >= high
