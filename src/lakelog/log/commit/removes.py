"""Removed files, and the live rows that they close."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.actions import DeletionVector, RemoveFile
from lakelog.catalog.base import Rows
from lakelog.catalog.tables import TABLES
from lakelog.errors import ValidationError, Violation
from lakelog.log.commit.files import (
    REMOVE_COLUMNS,
    RemoveFiles,
    any_valid,
    conformed,
    partition_text_problems,
    repeated_paths,
)
from lakelog.log.pruning.bulk_bounds import UnusualStatistics, read_statistics
from lakelog.log.validation.files import validate_remove
from lakelog.strict_json import encode_json, loads_strict


class LiveFile(NamedTuple):
    """The live row of a path."""

    version: int
    ordinal: int
    deletion_vector: str | None
    schema_version: int

    @property
    def vector(self) -> str | None:
        """The identity of the file's deletion vector."""
        return DeletionVector.from_json(self.deletion_vector).unique_id if self.deletion_vector else None


class Removes:
    """The removed files of a commit, as values or as an Arrow table."""

    def __init__(self, removes: Sequence[RemoveFile] | RemoveFiles) -> None:
        self._actions: Sequence[RemoveFile] = ()
        self._table: Any = None
        if isinstance(removes, RemoveFiles):
            self._table = conformed(removes.table, REMOVE_COLUMNS, ("path",), "removed files")
            problems = _problems(self._table)
            if problems:
                raise ValidationError("removed files", problems)
        else:
            self._actions = removes

    def __len__(self) -> int:
        return len(self._actions) if self._table is None else int(self._table.num_rows)

    @property
    def paths(self) -> list[str]:
        if self._table is None:
            return [remove.path for remove in self._actions]
        return self._table.column("path").to_pylist()  # type: ignore[no-any-return]

    @property
    def vectors(self) -> dict[str, str | None]:
        """The identity of the deletion vector that each removed file is said to have."""
        if self._table is None:
            return {
                each.path: each.deletion_vector.unique_id if each.deletion_vector else None for each in self._actions
            }
        pairs = zip(self.paths, self._table.column("deletion_vector").to_pylist(), strict=True)
        return {path: DeletionVector.from_json(text).unique_id if text else None for path, text in pairs}

    def append_only_problems(self) -> list[Violation]:
        if self._table is None:
            paths = [remove.path for remove in self._actions if remove.data_change]
        else:
            paths = self._table.column("path").filter(pc.fill_null(self._table.column("data_change"), True)).to_pylist()
        return [Violation(f"remove {path}", "the table is append-only (delta.appendOnly)") for path in paths]

    def rows(self, table_id: int, version: int, committed_at: int, live: Mapping[str, LiveFile]) -> Rows:
        """Rows of ``dl_remove_files``."""
        if self._table is not None:
            return self._arrow_rows(table_id, version, committed_at, live)
        return [
            (
                table_id,
                version,
                ordinal,
                remove.path,
                committed_at if remove.deletion_timestamp is None else remove.deletion_timestamp,
                remove.data_change,
                remove.extended_file_metadata,
                None if remove.partition_values is None else encode_json(remove.partition_values),
                remove.size,
                remove.stats,
                None if remove.tags is None else encode_json(remove.tags),
                None if remove.deletion_vector is None else encode_json(remove.deletion_vector.to_dict()),
                remove.base_row_id,
                remove.default_row_commit_version,
                live[remove.path].version,
                live[remove.path].ordinal,
                encode_json(remove.extra) if remove.extra else None,
            )
            for ordinal, remove in enumerate(self._actions)
        ]

    def _arrow_rows(self, table_id: int, version: int, committed_at: int, live: Mapping[str, LiveFile]) -> Any:
        count = self._table.num_rows
        closed = [live[path] for path in self.paths]
        columns = {name: self._table.column(name) for name in REMOVE_COLUMNS}
        columns |= {
            "table_id": pa.repeat(pa.scalar(table_id, pa.int64()), count),
            "version": pa.repeat(pa.scalar(version, pa.int64()), count),
            "ordinal": pa.array(range(count), pa.int32()),
            "deletion_timestamp": pc.fill_null(columns["deletion_timestamp"], committed_at),
            "data_change": pc.fill_null(columns["data_change"], True),
            "added_version": pa.array([file.version for file in closed], pa.int64()),
            "added_ordinal": pa.array([file.ordinal for file in closed], pa.int32()),
        }
        schema = TABLES["dl_remove_files"]
        return pa.table({field.name: columns[field.name] for field in schema}, schema)


def _problems(table: Any) -> list[Violation]:
    """What is wrong with removed files by themselves. Paths are left to the look at the live files."""
    found = [Violation(f"remove {path}", "is removed twice") for path in repeated_paths(table.column("path"))]
    for name in ("deletion_timestamp", "size", "base_row_id", "default_row_commit_version"):
        negative = pc.fill_null(pc.less(table.column(name), 0), False)
        paths = table.column("path").filter(negative).to_pylist()
        found += [Violation(f"remove {path}", f"{name} is negative") for path in paths]
    for text in table.column("partition_values").drop_null().unique().to_pylist():
        found += partition_text_problems(text)
    suspects = any_valid(table, ("tags", "deletion_vector", "extra"))
    suspects = pc.or_(suspects, pc.fill_null(table.column("extended_file_metadata"), False))
    try:
        read_statistics(table.column("stats"), ())
    except UnusualStatistics:
        suspects = pc.or_(suspects, table.column("stats").is_valid())
    for row in table.filter(suspects).to_pylist():
        where = f"remove {row['path']}"
        try:
            found += validate_remove(_action(row), where, allow_absolute=True)
        except ValidationError as error:
            found += [Violation(where, str(violation)) for violation in error.violations]
        except ValueError as error:
            found.append(Violation(where, str(error)))
    return found


def _action(row: dict[str, Any]) -> RemoveFile:
    """A row of ``REMOVE_COLUMNS`` as an action. Its partition values are checked elsewhere, once for all files."""
    texts = {name: loads_strict(row[name]) for name in ("tags", "deletion_vector", "extra") if row[name] is not None}
    if "deletion_vector" in texts:
        texts["deletion_vector"] = DeletionVector.from_json(texts["deletion_vector"])
    return RemoveFile(
        path=row["path"],
        size=row["size"],
        stats=row["stats"],
        extended_file_metadata=row["extended_file_metadata"],
        partition_values=None if row["partition_values"] is None else {},
        **texts,
    )
