"""The rows that a handful of added files become: plain Python, since Arrow costs more than it saves here."""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from lakelog.actions import AddFile, DeletionVector
from lakelog.catalog.base import Row
from lakelog.errors import DatabaseError, Violation
from lakelog.log.commit.files import RowGroup, add_values
from lakelog.log.pruning.bounds import Bounds, bounds_of, partition_bounds
from lakelog.log.state import TableMetadata

WITHOUT_STATISTICS = ("", float("inf"), float("-inf"), "")
"""column_name, span, min_num and min_text of the row that makes every search keep a file without statistics."""


class FewFiles:
    """Added files and their row groups, checked and turned into rows one by one."""

    def __init__(
        self, adds: Sequence[AddFile], stats: Sequence[dict[str, Any]], row_groups: Sequence[RowGroup]
    ) -> None:
        self._adds = adds
        self._stats = stats
        self._row_groups = row_groups
        self.count = len(adds)

    @property
    def paths(self) -> list[str]:
        return [add.path for add in self._adds]

    @property
    def vectors(self) -> dict[str, str | None]:
        """The identity of each file's deletion vector."""
        return {add.path: add.deletion_vector.unique_id if add.deletion_vector else None for add in self._adds}

    @property
    def stored_vectors(self) -> list[DeletionVector]:
        """The deletion vectors themselves."""
        return [add.deletion_vector for add in self._adds if add.deletion_vector]

    def problems(self, metadata: TableMetadata) -> list[Violation]:
        """What contradicts the table's metadata, or the files' own row groups."""
        found: list[Violation] = []
        columns = set(metadata.partition_columns)
        kinds = {leaf.path[0]: kind for leaf, kind in metadata.bounded if leaf.path[0] in columns}
        for add in self._adds:
            if add.partition_values.keys() != columns:
                found.append(
                    Violation(
                        f"add {add.path}", partition_key_problem(add.partition_values, metadata.partition_columns)
                    )
                )
                continue
            found += [
                Violation(f"add {add.path}", f"partition value {value!r} is not a value of column {name!r}")
                for name, value in add.partition_values.items()
                if (kind := kinds.get(name)) is not None and partition_bounds(kind, value, None) is None
            ]
        return found + (self._row_group_problems() if self._row_groups else [])

    def _row_group_problems(self) -> list[Violation]:
        found: list[Violation] = []
        rows = {add.path: stats.get("numRecords") for add, stats in zip(self._adds, self._stats, strict=True)}
        sums: dict[str, int] = {}
        seen: set[tuple[str, int]] = set()
        for group in self._row_groups:
            where = f"row group {group.row_group} of {group.path}"
            if group.path not in rows:
                found.append(Violation(where, "belongs to a file that this commit does not add"))
            if (group.path, group.row_group) in seen:
                found.append(Violation(where, "is there twice"))
            seen.add((group.path, group.row_group))
            sums[group.path] = sums.get(group.path, 0) + group.row_count
        for path, total in sums.items():
            expected = rows.get(path)
            if expected is not None and expected != total:
                found.append(
                    Violation(f"add {path}", f"has {expected} rows by its statistics and {total} by its row groups")
                )
        return found

    def rows(
        self, table_id: int, version: int, metadata: TableMetadata, older: Mapping[str, int], unsure: Set[str]
    ) -> Iterator[tuple[str, list[Row]]]:
        """The rows of each catalog table.

        ``older`` are the schema versions of files that were there before, ``unsure`` those whose statistics are not for
        the table's types.
        """
        added: list[Row] = []
        partitions: list[Row] = []
        bounds: list[Row] = []
        sums = self._row_sums()
        for ordinal, (add, stats) in enumerate(zip(self._adds, self._stats, strict=True)):
            count = stats.get("numRecords", sums.get(add.path))
            *values, extra = add_values(add, count)
            schema_version = older.get(add.path, metadata.schema_version)
            added.append((table_id, version, ordinal, *values, schema_version, extra))
            partitions += [(table_id, version, ordinal, key, value) for key, value in add.partition_values.items()]
            meant = {} if add.path in unsure else stats
            bounds += self._bounds((table_id, version, ordinal), add, meant, count, metadata)
        if added:
            yield "dl_add_files", added
        if self._row_groups:
            yield "row_groups", self._group_rows(table_id, version)
        if partitions:
            yield "partitions", partitions
        if bounds:
            yield "column_stats", bounds

    def _row_sums(self) -> dict[str, int]:
        sums: dict[str, int] = {}
        for group in self._row_groups:
            sums[group.path] = sums.get(group.path, 0) + group.row_count
        return sums

    def _group_rows(self, table_id: int, version: int) -> list[Row]:
        ordinals = {add.path: ordinal for ordinal, add in enumerate(self._adds)}
        return [
            (table_id, version, ordinals[group.path], group.row_group, group.row_count, group.byte_size, group.stats)
            for group in self._row_groups
        ]

    @staticmethod
    def _bounds(
        key: tuple[int, int, int], add: AddFile, stats: Mapping[str, Any], count: int | None, metadata: TableMetadata
    ) -> Iterator[Row]:
        table_id, version, ordinal = key
        known = any(stats.get(name) for name in ("minValues", "maxValues", "nullCount"))
        if not known:
            name, span, min_num, min_text = WITHOUT_STATISTICS
            yield (table_id, name, span, min_num, min_text, version, ordinal, float("inf"), None, None)
        for name, bounds in bounds_by_leaf(add.partition_values, stats if known else None, count, metadata).items():
            span, min_num, min_text, max_num, max_text, null_count = bounds
            yield (table_id, name, span, min_num, min_text, version, ordinal, max_num, max_text, null_count)


def bounds_by_leaf(
    partition_values: Mapping[str, str | None],
    stats: Mapping[str, Any] | None,
    count: int | None,
    metadata: TableMetadata,
) -> dict[str, Bounds]:
    """What searches read of a file, by column; only of its partition columns if there are no statistics."""
    lows, highs, nulls = ((stats or {}).get(name) or {} for name in ("minValues", "maxValues", "nullCount"))
    found: dict[str, Bounds] = {}
    for leaf, kind in metadata.bounded:
        path = leaf.path
        if path[0] in partition_values:
            bounds = partition_bounds(kind, partition_values[path[0]], count)
            if bounds is None:
                # Of a commit, problems() has said so. Only a catalog that is damaged gets here.
                raise DatabaseError(
                    f"the catalog is damaged: {partition_values[path[0]]!r} is not a value of the partition column "
                    f"{leaf.name}. Stop, keep a copy of it, and restore a backup"
                )
            found[leaf.name] = bounds
        elif stats is None:
            continue
        elif len(path) == 1:
            found[leaf.name] = bounds_of(kind, lows.get(path[0]), highs.get(path[0]), nulls.get(path[0]), count)
        else:
            found[leaf.name] = bounds_of(kind, dig(lows, path), dig(highs, path), dig(nulls, path), count)
    return found


def partition_key_problem(values: Mapping[str, Any], columns: Sequence[str]) -> str:
    return f"has partition values for {sorted(values)}, but the table is partitioned by {list(columns)}"


def dig(tree: Any, path: tuple[str, ...]) -> Any:
    """What nested JSON objects hold at a path, or None."""
    for part in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(part)
    return tree
