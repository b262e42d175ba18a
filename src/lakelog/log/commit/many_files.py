"""The rows that thousands of added files become: Arrow from end to end, one column of bounds at a time."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import AddFile, DeletionVector
from lakelog.catalog.tables import TABLES
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.few_files import WITHOUT_STATISTICS, dig, partition_key_problem
from lakelog.log.commit.files import (
    ADD_COLUMNS,
    ROW_GROUP_COLUMNS,
    AddFiles,
    any_valid,
    conformed,
    partition_text_problems,
    repeated_paths,
)
from lakelog.log.pruning.bounds import Bounds, bounds_of, kind_of, partition_bounds
from lakelog.log.pruning.bulk_bounds import BulkStatistics, ColumnBounds, UnusualStatistics, read_statistics
from lakelog.log.state import TableMetadata
from lakelog.log.validation.actions import validate_add
from lakelog.log.validation.paths import bad_path_mask, path_problem
from lakelog.schema import Leaf
from lakelog.strict_json import loads_strict

_LOADED = 100_000
"""Rows of bounds that are made before they are loaded."""

_SHOWN = 1000
"""Violations of one kind that are listed."""


class ManyFiles:
    """Added files as an Arrow table. The constructor raises ``ValidationError`` for what is wrong without any state."""

    def __init__(self, files: AddFiles, row_groups: Any | None, *, allow_absolute: bool = False) -> None:
        table = conformed(files.table, ADD_COLUMNS, ("path", "size"), "files")
        defaults = {"partition_values": "{}", "modification_time": 0, "data_change": True}
        for name, value in defaults.items():
            table = table.set_column(table.column_names.index(name), name, pc.fill_null(table.column(name), value))
        self._table = table
        self._groups = (
            conformed(row_groups, ROW_GROUP_COLUMNS, ("path", "row_group", "row_count"), "row_groups")
            if row_groups is not None
            else None
        )
        self._allow_absolute = allow_absolute
        self._statistics: BulkStatistics | None = None
        self._partitions = table.column("partition_values").combine_chunks().dictionary_encode()
        self.count = table.num_rows
        found = self._stateless_problems()
        if found:
            raise ValidationError("files", found)

    @property
    def paths(self) -> Any:
        return self._table.column("path")

    @property
    def vectors(self) -> dict[str, str | None]:
        paths = self.paths.filter(self._table.column("deletion_vector").is_valid()).to_pylist()
        return {path: vector.unique_id for path, vector in zip(paths, self.stored_vectors, strict=True)}

    @property
    def stored_vectors(self) -> list[DeletionVector]:
        """The deletion vectors themselves."""
        return [
            DeletionVector.from_json(text) for text in self._table.column("deletion_vector").drop_null().to_pylist()
        ]

    def _stateless_problems(self) -> list[Violation]:
        found = [Violation(f"add {path}", "is added twice") for path in repeated_paths(self.paths)]
        absolute = self._allow_absolute
        bad = self.paths.filter(bad_path_mask(self.paths, allow_absolute=absolute)).slice(0, _SHOWN).to_pylist()
        found += [Violation(f"add {path[:200]}", path_problem(path, allow_absolute=absolute) or "") for path in bad]
        for name in ("size", "modification_time", "base_row_id", "default_row_commit_version", "row_count"):
            negative = pc.fill_null(pc.less(self._table.column(name), 0), False)
            found += [Violation(f"add {path}", f"{name} is negative") for path in self._where(negative)]
        found += self._one_by_one(any_valid(self._table, ("tags", "deletion_vector", "extra")))
        for text in self._partitions.dictionary.to_pylist():
            found += partition_text_problems(text)
        return found + self._row_group_problems()

    def _row_group_problems(self) -> list[Violation]:
        if self._groups is None:
            return []
        found: list[Violation] = []
        ordinals = self._group_ordinals()
        if ordinals.null_count:
            strangers = self._groups.column("path").filter(ordinals.is_null()).unique().slice(0, _SHOWN).to_pylist()
            found += [
                Violation(f"row groups of {path}", "belong to a file that this commit does not add")
                for path in strangers
            ]
        keys = pa.table({"ordinal": ordinals, "group": self._groups.column("row_group")})
        if keys.group_by(["ordinal", "group"]).aggregate([]).num_rows < keys.num_rows:
            found.append(Violation("row_groups", "a row group is there twice"))
        for name in ("row_group", "row_count", "byte_size"):
            if pc.any(pc.less(self._groups.column(name), 0)).as_py():
                found.append(Violation(f"row_groups.{name}", "is negative"))
        # Whether it is JSON shows when it is read; what no JSON can hold would break the reading.
        if pc.any(pc.match_substring_regex(self._groups.column("stats"), r"[\x00-\x08\x0b\x0c\x0e-\x1f]")).as_py():
            found.append(Violation("row_groups.stats", "contains a control character"))
        return found

    def problems(self, metadata: TableMetadata) -> list[Violation]:
        """What contradicts the table's metadata, or the files' own statistics and row groups."""
        found: list[Violation] = []
        columns = metadata.partition_columns
        kinds = {leaf.path[0]: kind_of(leaf.type) for leaf in metadata.indexed if len(leaf.path) == 1}
        for text in self._partitions.dictionary.to_pylist():
            values = loads_strict(text)
            if values.keys() != set(columns):
                found.append(Violation(f"partition values {text[:200]}", partition_key_problem(values, columns)))
                continue
            found += [
                Violation(f"partition values {text[:200]}", f"{value!r} is not a value of column {name!r}")
                for name, value in values.items()
                if (kind := kinds.get(name)) is not None and partition_bounds(kind, value, None) is None
            ]
        leaves = tuple(leaf for leaf in metadata.indexed if leaf.path[0] not in columns)
        try:
            self._statistics = read_statistics(self._table.column("stats"), leaves)
        except UnusualStatistics:
            found += self._one_by_one(self._table.column("stats").is_valid())
            self._statistics = None if found else self._statistics_one_by_one(leaves)
        if self._statistics is not None:
            found += [
                Violation(f"add {path}", "statistics contradict themselves")
                for path in self._where(self._statistics.contradictory)
            ]
            found += self._count_problems()
        return found

    def _count_problems(self) -> list[Violation]:
        """Row counts by statistics, by the caller and by row groups must be the same where they are known."""
        assert self._statistics is not None
        sources = {
            "its statistics": self._statistics.rows,
            "row_count": self._table.column("row_count"),
            "its row groups": self._group_sums(),
        }
        known = [(source, counts) for source, counts in sources.items() if counts is not None]
        return [
            Violation(f"add {path}", f"has another number of rows by {one} than by {other}")
            for (one, rows), (other, counts) in itertools.combinations(known, 2)
            for path in self._where(pc.fill_null(pc.not_equal(rows, counts), False))
        ]

    def rows(
        self, table_id: int, version: int, metadata: TableMetadata, older: Mapping[str, int], unsure: Set[str]
    ) -> Iterator[tuple[str, Any]]:
        """The rows of each catalog table, in pieces that are made only when they are needed.

        ``older`` are the schema versions of files that were there before, ``unsure`` those whose statistics are not for
        the table's types.
        """
        assert self._statistics is not None, "problems() comes first"
        count = self.count
        key = {
            "table_id": pa.repeat(pa.scalar(table_id, pa.int64()), count),
            "version": pa.repeat(pa.scalar(version, pa.int64()), count),
            "ordinal": pa.array(np.arange(count, dtype=np.int32)),
        }
        rows = pc.coalesce(self._statistics.rows, self._table.column("row_count"), *self._sums_if_any())
        columns = {name: self._table.column(name) for name in ADD_COLUMNS}
        schema_version = pa.repeat(pa.scalar(metadata.schema_version, pa.int32()), count)
        doubtful = self._table.column("stats").is_null()
        if older:
            found = pc.index_in(self.paths, value_set=pa.array(list(older)))
            schema_version = pc.coalesce(pa.array(list(older.values()), pa.int32()).take(found), schema_version)
        if unsure:
            doubtful = pc.or_(doubtful, pc.is_in(self.paths, value_set=pa.array(sorted(unsure), pa.string())))
        yield (
            "dl_add_files",
            _table("dl_add_files", key | columns | {"row_count": rows, "schema_version": schema_version}),
        )
        if self._groups is not None:
            yield "row_groups", self._group_rows(table_id, version)
        for name in metadata.partition_columns:
            values = self._by_partition(
                [loads_strict(text)[name] for text in self._partitions.dictionary.to_pylist()], pa.string()
            )
            yield "partitions", _table("partitions", key | {"key": pa.repeat(name, count), "value": values})
        for table in _in_pieces(_bounds_table(bounds, key) for bounds in self._bounds(metadata, rows)):
            yield "column_stats", table
        yield from self._without_statistics(key, doubtful)

    def _bounds(self, metadata: TableMetadata, rows: Any) -> Iterator[ColumnBounds]:
        assert self._statistics is not None
        leaves = {leaf.name: leaf for leaf in metadata.indexed}
        for name in metadata.partition_columns:
            kind = kind_of(leaves[name].type) if name in leaves else None
            if kind is not None:
                yield self._partition_column(name, kind, rows)
        yield from self._statistics.columns

    def _partition_column(self, name: str, kind: Any, rows: Any) -> ColumnBounds:
        values: list[Bounds] = []
        for text in self._partitions.dictionary.to_pylist():
            bounds = partition_bounds(kind, loads_strict(text)[name], -1)
            assert bounds is not None, "checked by problems()"
            values.append(bounds)
        is_text = kind.value == "text"
        low, high = ("min_text", "max_text") if is_text else ("min_num", "max_num")
        kept = pa.string() if is_text else pa.float64()
        null_count = self._by_partition([bounds.null_count for bounds in values], pa.int64())
        return ColumnBounds(
            name,
            self._by_partition([bounds.span for bounds in values], pa.float64()),
            self._by_partition([getattr(bounds, low) for bounds in values], kept),
            self._by_partition([getattr(bounds, high) for bounds in values], kept),
            # A partition value of null is null in every row.
            pc.if_else(pc.equal(null_count, -1), rows, null_count),
            is_text,
        )

    def _by_partition(self, values: list[Any], kind: Any) -> Any:
        return pa.array(values, kind).take(self._partitions.indices)

    def _without_statistics(self, key: dict[str, Any], unsure: Any) -> Iterator[tuple[str, Any]]:
        if pc.any(unsure).as_py():
            files = pa.table(key).filter(unsure)
            name, span, min_num, min_text = WITHOUT_STATISTICS
            constants = {
                "column_name": name,
                "span": span,
                "min_num": min_num,
                "min_text": min_text,
                "max_num": float("inf"),
            }
            columns = {column: pa.repeat(value, files.num_rows) for column, value in constants.items()}
            yield "column_stats", _table("column_stats", {name: files.column(name) for name in key} | columns)

    def _group_ordinals(self) -> Any:
        assert self._groups is not None
        return pc.index_in(self._groups.column("path"), value_set=self.paths.combine_chunks())

    def _group_rows(self, table_id: int, version: int) -> Any:
        assert self._groups is not None
        count = self._groups.num_rows
        key = {
            "table_id": pa.repeat(pa.scalar(table_id, pa.int64()), count),
            "version": pa.repeat(pa.scalar(version, pa.int64()), count),
            "ordinal": self._group_ordinals(),
        }
        return _table(
            "row_groups",
            key | {name: self._groups.column(name) for name in ("row_group", "row_count", "byte_size", "stats")},
        )

    def _group_sums(self) -> Any | None:
        """Rows of each file by its row groups; null for files without any."""
        if self._groups is None:
            return None
        ordinals = np.array(self._group_ordinals())
        sums = np.bincount(ordinals, weights=np.array(self._groups.column("row_count")), minlength=self.count)
        present = np.bincount(ordinals, minlength=self.count) > 0
        return pa.array(sums.astype(np.int64), mask=~present)

    def _sums_if_any(self) -> list[Any]:
        sums = self._group_sums()
        return [] if sums is None else [sums]

    def _where(self, mask: Any) -> list[str]:
        return self.paths.filter(mask).slice(0, _SHOWN).to_pylist()  # type: ignore[no-any-return]

    def _one_by_one(self, mask: Any) -> list[Violation]:
        """The violations of these files, found as for a single action."""
        found: list[Violation] = []
        for row in self._table.filter(mask).to_pylist():
            where = f"add {row['path']}"
            try:
                found += validate_add(_action(row), where, allow_absolute=self._allow_absolute)
            except ValidationError as error:
                found += [Violation(where, str(violation)) for violation in error.violations]
            except ValueError as error:
                found.append(Violation(where, str(error)))
        return found

    def _statistics_one_by_one(self, leaves: tuple[Leaf, ...]) -> BulkStatistics:
        parsed = [None if text is None else loads_strict(text) for text in self._table.column("stats").to_pylist()]
        rows = [None if stats is None else stats.get("numRecords") for stats in parsed]
        columns = []
        for leaf in leaves:
            kind = kind_of(leaf.type)
            if kind is None:
                continue
            bounds = [
                None if stats is None else bounds_of(kind, *_bounds_in(stats, leaf.path), count)
                for stats, count in zip(parsed, rows, strict=True)
            ]
            is_text = kind.value == "text"
            low, high = ("min_text", "max_text") if is_text else ("min_num", "max_num")
            kept = pa.string() if is_text else pa.float64()
            columns.append(
                ColumnBounds(
                    leaf.name,
                    pa.array([entry and entry.span for entry in bounds], pa.float64()),
                    pa.array([entry and getattr(entry, low) for entry in bounds], kept),
                    pa.array([entry and getattr(entry, high) for entry in bounds], kept),
                    pa.array([entry and entry.null_count for entry in bounds], pa.int64()),
                    is_text,
                )
            )
        nothing = pa.repeat(False, self.count)
        return BulkStatistics(pa.array(rows, pa.int64()), tuple(columns), nothing)


_PARTS = ("minValues", "maxValues", "nullCount")


def _bounds_in(stats: dict[str, Any], path: tuple[str, ...]) -> tuple[Any, Any, Any]:
    low, high, nulls = (dig(stats.get(part), path) for part in _PARTS)
    return low, high, nulls


def _action(row: dict[str, Any]) -> AddFile:
    """A row of ``ADD_COLUMNS`` as an action. Its partition values are checked elsewhere, once for all files."""
    texts = {name: loads_strict(row[name]) for name in ("tags", "deletion_vector", "extra") if row[name] is not None}
    extra = texts.pop("extra", {})
    if "deletion_vector" in texts:
        texts["deletion_vector"] = DeletionVector.from_json(texts["deletion_vector"])
    return AddFile(
        path=row["path"],
        size=row["size"],
        stats=row["stats"],
        clustering_provider=extra.pop("clusteringProvider", None) if isinstance(extra, dict) else None,
        extra=extra,
        **texts,
    )


def _in_pieces(tables: Iterable[Any]) -> Iterator[Any]:
    """The tables one after the other, joined as long as they are small: each load has a price of its own."""
    joined: list[Any] = []
    for table in tables:
        joined.append(table)
        if sum(each.num_rows for each in joined) >= _LOADED:
            yield pa.concat_tables(joined)
            joined = []
    if joined:
        yield pa.concat_tables(joined)


def _bounds_table(bounds: ColumnBounds, key: dict[str, Any]) -> Any:
    """Rows of ``column_stats`` for one column, in the order of its key, so that the load appends to the index."""
    count = len(key["ordinal"])
    none = pa.nulls(count, pa.string())
    zero, empty = pa.repeat(0.0, count), pa.repeat("", count)
    numbers = (zero, zero) if bounds.is_text else (bounds.minimum, bounds.maximum)
    texts = (bounds.minimum, bounds.maximum) if bounds.is_text else (empty, none)
    table = pa.table(
        {
            "table_id": key["table_id"],
            "column_name": pa.repeat(bounds.name, count),
            "span": bounds.span,
            "min_num": numbers[0],
            "min_text": texts[0],
            "version": key["version"],
            "ordinal": key["ordinal"],
            "max_num": numbers[1],
            "max_text": texts[1],
            "null_count": bounds.null_count,
        },
        TABLES["column_stats"],
    )
    if bounds.span.null_count:
        table = table.filter(table.column("span").is_valid())
    order = "min_text" if bounds.is_text else "min_num"
    return table.sort_by([("span", "ascending"), (order, "ascending"), ("ordinal", "ascending")])


def _table(name: str, columns: dict[str, Any]) -> Any:
    schema = TABLES[name]
    missing = {
        field.name: pa.nulls(len(columns["ordinal"]), field.type) for field in schema if field.name not in columns
    }
    return pa.table({field.name: (columns | missing)[field.name] for field in schema}, schema)
