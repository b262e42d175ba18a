"""A scan: which files of a version a condition needs, and why."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.log.deletion_vectors import live_rows
from lakelog.log.pruning.predicate import Condition, Everything, Predicate, columns_in
from lakelog.log.pruning.reader import read_condition
from lakelog.log.snapshot.snapshot import Snapshot, column_types

_KEY = ["version", "ordinal"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """How much of something a scan reads, and how much there is."""

    kept: int
    total: int

    def __str__(self) -> str:
        return f"{self.kept:,} of {self.total:,}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """What one part of a condition does by itself."""

    condition: str
    files: Kept
    by: str
    """What decides: partition values, statistics, both; or that nothing is known."""

    def __str__(self) -> str:
        return f"{self.condition}: keeps {self.files} files, by {self.by}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What a scan reads, of how much, and why. As text it is for people."""

    table: str
    version: int
    files: Kept
    rows: Kept
    bytes: Kept
    row_groups: Kept
    """By estimate: those that the catalog's statistics leave. The reader looks into the files, and may leave more."""
    reasons: tuple[Reason, ...]

    def __str__(self) -> str:
        lines = [
            f"{self.table} at version {self.version}",
            f"  files       {self.files}",
            f"  row groups  {self.row_groups} (estimate)",
            f"  rows        at most {self.rows}",
            f"  bytes       {self.bytes}",
        ]
        return "\n".join([*lines, *(f"  where {reason}" for reason in self.reasons)])


class Scan:
    """The files of one version that can hold rows that match a condition."""

    def __init__(self, table: str, snapshot: Snapshot, condition: Condition | None) -> None:
        self._table = table
        self._condition = condition or Condition(Everything(), Everything(), ())
        self.snapshot = snapshot

    @classmethod
    def of(cls, table: str, snapshot: Snapshot, where: str | None) -> "Scan":
        """By the text of a condition. Raises ``ValidationError`` for one that cannot be analysed."""
        return cls(table, snapshot, None if where is None else read_condition(where, column_types(snapshot.schema)))

    def __repr__(self) -> str:
        return f"Scan({self._table!r}, version={self.snapshot.version})"

    def files(self, columns: Sequence[str] | None = None) -> Any:
        """The files as a ``pyarrow.Table``."""
        return self.snapshot.files(self._condition.rows, columns)

    def row_groups(self, columns: Sequence[str] | None = None) -> Any:
        """The row groups in them that can hold matching rows, as a ``pyarrow.Table``."""
        return self.snapshot.row_groups(self._condition.rows, columns)

    def decided(self) -> tuple[Any, Any]:
        """The files of which bounds prove that every row matches, and those of which they do not."""
        files = self.files()
        if not self._condition.parts:
            return files, files.slice(0, 0)
        undecided = _among(files, self.snapshot.files(self._condition.others, _KEY))
        return files.filter(pc.invert(undecided)), files.filter(undecided)

    def counted(self) -> tuple[int, Any]:
        """The matching rows of all files in which bounds decide for every row, and the files in which they do not."""
        whole, undecided = self.decided()
        # Bounds are those of all rows that are in the file, so what they prove holds for those that are not deleted.
        rows = live_rows(whole)
        unknown = rows.is_null()
        return _sum(rows), pa.concat_tables([undecided, whole.filter(unknown)])

    def explain(self) -> Explanation:
        """How much the scan reads, and which part of the condition saves how much."""
        sizes = ["size", "row_count", "deletion_vector"]
        everything, kept = self.snapshot.files(columns=sizes), self.files(sizes)
        groups = self.snapshot.row_groups(columns=["row_group"]).num_rows
        kept_groups = groups if not self._condition.parts else self.row_groups(["row_group"]).num_rows
        return Explanation(
            table=self._table,
            version=self.snapshot.version,
            files=Kept(kept=kept.num_rows, total=everything.num_rows),
            rows=Kept(kept=_sum(live_rows(kept)), total=_sum(live_rows(everything))),
            bytes=Kept(kept=_sum(kept.column("size")), total=_sum(everything.column("size"))),
            row_groups=Kept(kept=kept_groups, total=groups),
            reasons=tuple(self._reason(*part, everything.num_rows) for part in self._condition.parts),
        )

    def _reason(self, text: str, form: Predicate, total: int) -> Reason:
        kept = self.snapshot.files(form, _KEY).num_rows
        return Reason(condition=text, files=Kept(kept=kept, total=total), by=self._decides(form))

    def _decides(self, form: Predicate) -> str:
        names = {name.lower() for name in columns_in(form)}
        if not names:
            return "nothing that is known of files"
        partitions = {name.lower() for name in self.snapshot.metadata.partition_columns}
        kinds = [("partition values", names & partitions), ("statistics", names - partitions)]
        return " and ".join(kind for kind, found in kinds if found)


def _among(files: Any, others: Any) -> Any:
    """Which files are among others."""
    keys = pa.table({"version": others.column("version"), "ordinal": others.column("ordinal")})
    marked = keys.append_column("there", pa.repeat(True, keys.num_rows))
    rows = files.select(_KEY).append_column("row", pa.array(range(files.num_rows), pa.int64()))
    joined = rows.join(marked, _KEY).sort_by("row")
    return pc.fill_null(joined.column("there"), False)


def _sum(numbers: Any) -> int:
    return int(pc.sum(numbers).as_py() or 0)
