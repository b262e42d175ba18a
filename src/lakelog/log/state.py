"""What a table is at a version: its head row, metadata, protocol and schema."""

import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from lakelog.actions import Metadata, Protocol
from lakelog.catalog.base import Catalog, Row, Session
from lakelog.catalog.stored import stored_json
from lakelog.errors import VersionNotFoundError
from lakelog.log.pruning.bounds import Kind, kind_of
from lakelog.schema import Leaf, from_delta_json, indexed_leaves
from lakelog.schema.mapping import is_mapped, physical_schema
from lakelog.schema.rules import Rules, rules_of
from lakelog.strict_json import whole_number

if TYPE_CHECKING:
    from lakelog.log.pruning.plan import Column

_INDEXED = "delta.dataSkippingNumIndexedCols"
_CACHED = 1024
_CACHED_COLUMNS = 128


class Head(NamedTuple):
    """A row of ``dl_tables``."""

    table_id: int
    name: str
    location: str
    version: int
    committed_at: int
    metadata_version: int
    protocol_version: int
    created_at: int
    dropped_at: int | None


@dataclass(frozen=True)
class TableMetadata:
    """A metadata action that stands, with what follows from it."""

    version: int
    action: Metadata
    schema_version: int

    @cached_property
    def mapped(self) -> bool:
        return is_mapped(self.action.configuration)

    @cached_property
    def schema(self) -> Any:
        return from_delta_json(self.action.schema_string, column_mapping=self.mapped)

    @cached_property
    def physical(self) -> Any:
        """The schema under the names that files and statistics use."""
        return physical_schema(self.schema) if self.mapped else self.schema

    @cached_property
    def rules(self) -> Rules:
        """What it asks of every row."""
        return rules_of(self.schema, self.action.configuration)

    @cached_property
    def partition_columns(self) -> tuple[str, ...]:
        """Physical names."""
        physical = dict(zip(self.schema.names, self.physical.names, strict=True))
        return tuple(physical[name] for name in self.action.partition_columns)

    @cached_property
    def partitions(self) -> tuple[Any, ...]:
        """The partition columns as fields, by physical name."""
        return tuple(self.physical.field(name) for name in self.partition_columns)

    @cached_property
    def indexed(self) -> tuple[Leaf, ...]:
        """The columns that every file of this metadata has bounds for, unless it has no statistics at all."""
        return indexed_leaves(self.physical, self.partition_columns, self._indexed_count)

    @property
    def _indexed_count(self) -> int:
        found = whole_number(self.action.configuration.get(_INDEXED, ""))
        return 32 if found is None else found

    @property
    def measured(self) -> tuple[Leaf, ...]:
        """The same, also with those whose names are too long for the catalog: files have bounds for them."""
        return indexed_leaves(self.physical, self.partition_columns, self._indexed_count, sys.maxsize)

    @cached_property
    def bounded(self) -> tuple[tuple[Leaf, Kind], ...]:
        """The indexed columns that have an order."""
        return tuple((leaf, kind) for leaf in self.indexed if (kind := kind_of(leaf.type)) is not None)

    def is_searched_as(self, other: "TableMetadata") -> bool:
        """Whether the same columns can be searched in both. Neither schema is parsed for that."""
        one, two = self.action, other.action
        return (
            one.schema_string == two.schema_string
            and one.partition_columns == two.partition_columns
            and one.configuration.get(_INDEXED) == two.configuration.get(_INDEXED)
            and self.mapped == other.mapped
        )


@dataclass(frozen=True)
class TableState:
    """What a commit that builds on ``version`` has to respect. Immutable, since versions are."""

    table_id: int
    version: int
    metadata: TableMetadata
    protocol_version: int
    protocol: Protocol


class States:
    """States by table and version, kept because a version never changes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._guard = threading.Lock()
        self._states: OrderedDict[tuple[int, int], TableState] = OrderedDict()
        self._latest: dict[int, TableState] = {}
        self._searched: OrderedDict[tuple[int, int], Mapping[str, Column]] = OrderedDict()
        self.names: dict[int, str] = {}
        """What tables were called when they were last seen."""
        self.created: dict[int, int] = {}
        """When tables were created, in milliseconds."""

    def known(self, table_id: int, version: int) -> TableState | None:
        return self._states.get((table_id, version))

    def latest(self, table_id: int) -> TableState | None:
        """The latest that was seen, which may be of the past."""
        return self._latest.get(table_id)

    def put(self, state: TableState) -> TableState:
        with self._guard:
            self._states[state.table_id, state.version] = state
            latest = self._latest.get(state.table_id)
            if latest is None or latest.version < state.version:
                self._latest[state.table_id] = state
            while len(self._states) > _CACHED:
                self._states.popitem(last=False)
        return state

    def forget(self, table_id: int) -> None:
        """For a table whose versions are gone, as no shown table's ever are."""
        with self._guard:
            self._latest.pop(table_id, None)
            for kept in (self._states, self._searched):
                for key in [key for key in kept if key[0] == table_id]:
                    del kept[key]

    def searched(self, table_id: int, version: int) -> tuple[int | None, Mapping[str, "Column"]]:
        """The columns that can be searched by the newest metadata up to a version for which they are known."""
        with self._guard:
            known = max((at for table, at in self._searched if table == table_id and at <= version), default=None)
            return (None, {}) if known is None else (known, self._searched[table_id, known])

    def put_searched(self, table_id: int, version: int, columns: Mapping[str, "Column"]) -> None:
        """``version`` is that of the metadata."""
        with self._guard:
            self._searched[table_id, version] = columns
            while len(self._searched) > _CACHED_COLUMNS:
                self._searched.popitem(last=False)

    def of_head(self, session: Session, head: Head) -> TableState:
        """The state at a head; needs no statement if its metadata and protocol were seen before."""
        known = self.known(head.table_id, head.version)
        if known is not None:
            return known
        latest = self._latest.get(head.table_id)
        if (
            latest is not None
            and latest.metadata.version == head.metadata_version
            and latest.protocol_version == head.protocol_version
        ):
            return self.put(
                TableState(head.table_id, head.version, latest.metadata, latest.protocol_version, latest.protocol)
            )
        return self.load(session, head.table_id, head.version)

    def load(self, session: Session, table_id: int, version: int) -> TableState:
        """The state at a version. Raises ``VersionNotFoundError`` if it has expired, as it may have just now."""
        known = self.known(table_id, version)
        if known is not None:
            return known
        queries = self._catalog.queries
        key = {"table_id": table_id, "version": version}
        metadata, protocols = (session.fetch(queries[name], key) for name in ("metadata_at", "protocol_at"))
        if not metadata or not protocols:
            raise VersionNotFoundError(
                f"version {version} of dataset {self.names.get(table_id, table_id)!r} has expired: "
                "dataset.first_version is the oldest one left"
            )
        (protocol_version, *protocol) = protocols[0]
        return self.put(
            TableState(table_id, version, read_metadata(metadata[0]), protocol_version, _protocol(tuple(protocol)))
        )


def read_metadata(row: Row) -> TableMetadata:
    (
        version,
        metadata_id,
        name,
        description,
        file_format,
        schema_string,
        columns,
        configuration,
        created,
        schema_version,
        extra,
    ) = row
    form = stored_json(file_format)
    kept = stored_json(extra) if extra else {}
    action = Metadata(
        id=metadata_id,
        schema_string=schema_string,
        partition_columns=tuple(stored_json(columns)),
        configuration=stored_json(configuration),
        name=name,
        description=description,
        format_provider=form["provider"],
        format_options=form.get("options", {}),
        created_time=created,
        extra=kept,
    )
    return TableMetadata(version, action, schema_version)


def _protocol(row: Row) -> Protocol:
    reader, writer, reader_features, writer_features, extra = row
    return Protocol(
        min_reader_version=reader,
        min_writer_version=writer,
        reader_features=None if reader_features is None else tuple(stored_json(reader_features)),
        writer_features=None if writer_features is None else tuple(stored_json(writer_features)),
        extra=stored_json(extra) if extra else {},
    )
