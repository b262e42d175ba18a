"""A table as a transaction sees it that has changed it and not committed yet."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.changes.changeset import Contents, paths_of
from lakelog.errors import ValidationError
from lakelog.log.pruning.predicate import Predicate
from lakelog.log.snapshot.snapshot import FILE_SCHEMA, ROW_GROUP_SCHEMA, Snapshot

_KEY = ["version", "ordinal"]


class PendingSnapshot(Snapshot):
    """A version with changes on top of it that nobody else sees. Its number is that of the version.

    Files that are not committed have no statistics in the catalog: every condition keeps them.
    """

    def __init__(self, base: Snapshot, contents: Contents) -> None:
        """Raises ``ValidationError`` if the version does not take the changes."""
        draft = contents.draft(base.version)
        if problems := draft.settle(base.state):
            raise ValidationError(f"change of {base._head.name!r}", problems)
        super().__init__(base._committer, base._head, replace(draft.state, version=base.version))
        self._base = base
        self._has_new_rules = draft.new_metadata is not None
        self._gone = paths_of(contents.removes)
        self._added = _files(contents, base.version + 1, self.state.metadata.schema_version)
        self._added_groups = _row_groups(contents, self._added)

    def files(
        self, where: str | Predicate | None = None, columns: Sequence[str] | None = None, *, whole: bool = True
    ) -> Any:
        names = FILE_SCHEMA.names if columns is None else list(columns)
        asked = list(dict.fromkeys([*names, "path"]))
        found = self._base.files(self._known(where), asked, whole=whole)
        left = found.filter(pc.invert(pc.is_in(found.column("path"), self._gone)))
        return pa.concat_tables([left, self._added.select(asked)]).select(names)

    def row_groups(
        self,
        where: str | Predicate | None = None,
        columns: Sequence[str] | None = None,
        *,
        whole_files: bool = False,
        whole: bool = True,
    ) -> Any:
        names = ROW_GROUP_SCHEMA.names if columns is None else list(columns)
        asked = list(dict.fromkeys([*names, *_KEY]))
        found = self._base.row_groups(self._known(where), asked, whole_files=whole_files, whole=whole)
        if len(self._gone):
            files = self._base.files(self._known(where), [*_KEY, "path"])
            gone = files.filter(pc.is_in(files.column("path"), self._gone)).select(_KEY)
            found = found.join(gone, _KEY, join_type="left anti").select(asked)
        return pa.concat_tables([found, self._added_groups.select(asked)]).select(names)

    def schemas(self, files: Any) -> dict[int, Any]:
        current = self.state.metadata
        return {**self._base.schemas(files), current.schema_version: current.schema}

    def _known(self, where: str | Predicate | None) -> str | Predicate | None:
        """A condition that the version itself can answer: not if it may be on a column that it does not have."""
        return None if self._has_new_rules else where


def _files(contents: Contents, version: int, schema_version: int) -> pa.Table:
    """The added files as a snapshot gives files."""
    adds = contents.adds
    if adds is None:
        return FILE_SCHEMA.empty_table()
    count = adds.num_rows
    known: dict[str, Any] = {name: adds.column(name) for name in adds.column_names}
    known |= {
        "version": pa.repeat(version, count),
        "ordinal": pa.array(range(count)),
        "schema_version": pa.array(
            [contents.inherited.schema_versions.get(path, schema_version) for path in adds.column("path").to_pylist()]
        ),
        "data_change": pa.repeat(True, count),
    }
    return pa.table(
        [known.get(field.name, pa.nulls(count, field.type)).cast(field.type) for field in FILE_SCHEMA], FILE_SCHEMA
    )


def _row_groups(contents: Contents, files: pa.Table) -> pa.Table:
    if contents.row_groups is None:
        return ROW_GROUP_SCHEMA.empty_table()
    joined = contents.row_groups.join(files.select([*_KEY, "path"]), "path", join_type="inner")
    return joined.select(ROW_GROUP_SCHEMA.names).cast(ROW_GROUP_SCHEMA)
