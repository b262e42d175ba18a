"""Existing Parquet files as a new dataset: nothing is copied, and of each file only the footer is read."""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakelog.actions import Metadata, Protocol
from lakelog.changes.new_table import check_definition, configured, described
from lakelog.errors import DatasetExistsError, DatasetNotFoundError, SchemaMismatchError, ValidationError, Violation
from lakelog.importing.file_listing import find_files
from lakelog.importing.hive_partitions import partition_columns
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.files import AddFiles
from lakelog.log.state import Head, TableMetadata
from lakelog.log.validation.features import needed_features
from lakelog.opening.engine import Engine
from lakelog.parquet.footers import (
    Harvest,
    Layouts,
    WrittenFile,
    harvest_of,
    leaves_in,
    read_footers,
    refuse_broken,
)
from lakelog.parquet.probe import refuse_fatal
from lakelog.parquet.schemas import FileSchema, file_schema, united, with_widenings
from lakelog.schema.evolution.widening import ENABLED, FEATURE
from lakelog.schema.mapping import MODE, is_mapped, with_mapping, without_past
from lakelog.schema.rules import Rules, rules_of
from lakelog.storage.hive import log_path

_SAMPLE = 32
"""Files whose schemas are looked at first. If others have more, all footers are read a second time."""

Progress = Callable[[int, int], None]


def register_parquet(
    lake: Engine,
    glob: str | os.PathLike[str],
    name: str,
    partition_by: Sequence[str] | Mapping[str, pa.DataType] | None = None,
    *,
    properties: Mapping[str, str] | None = None,
    mirror: bool | str = True,
    location: str | os.PathLike[str] | None = None,
    schema: pa.Schema | None = None,
    description: str | None = None,
    progress: Progress | None = None,
) -> Head:
    """See ``Lake.register_parquet``."""
    check_definition(name, pa.schema([]) if schema is None else schema, mirror)
    stated = None if schema is None else pa.schema(map(without_past, schema))
    _refuse_rules(rules_of(stated or pa.schema([]), properties or {}))
    _refuse_taken(lake, name)
    listing = find_files(glob, location)
    partitions, values = partition_columns(listing, partition_by, stated)
    files = [
        WrittenFile(
            path=log_path(file.relative),
            place=file.place,
            size=file.size,
            modification_time=file.modification_time,
            partition_values=values[file.directory],
        )
        for file in listing.files
    ]
    table = _Table(name, partitions, stated, configured(properties, mirror), description)
    table.learn(files, _sampled(files))
    refuse_fatal(files)
    found = _harvest(table, files, progress)
    parameters = {
        "numFiles": len(files),
        "partitionedBy": json.dumps([field.name for field in partitions]),
        "collectStats": True,
        "sourceFormat": "parquet",
    }
    extra = {"operationMetrics": {"numConvertedFiles": str(len(files))}}
    converted = Description(operation="CONVERT", operation_parameters=parameters, extra=extra)
    draft = Draft(0, -1, [*table.defined(), AddFiles(found.adds)], converted, found.row_groups)
    return lake.create_from(name, draft, listing.location)[0]


def _refuse_rules(rules: Rules) -> None:
    """Only footers are read here, and rules are about rows."""
    found = [Violation(check.owner, "add it when the files are registered") for check in rules.checks]
    found += [Violation(name, "set its default when the files are registered") for name in rules.defaults]
    message = "is generated, which the rows of files that exist were not checked for"
    found += [Violation(name, message) for name in (*rules.generated, *rules.inside)]
    if found:
        raise ValidationError("register_parquet", found)


def _refuse_taken(lake: Engine, name: str) -> None:
    """Before thousands of footers are read, although only the commit decides."""
    try:
        lake.dataset(name)
    except DatasetNotFoundError:
        return
    raise DatasetExistsError(f"there is already a dataset {name!r}")


def _sampled(files: Sequence[WrittenFile]) -> dict[str, tuple[int, Any]]:
    """The Parquet schemas of some files from all over the place."""
    numbers = range(0, len(files), -(-len(files) // _SAMPLE))
    layouts = Layouts(())
    listed = [(number, files[number].place, files[number].size) for number in numbers]
    refuse_broken(files, read_footers(listed, layouts, "other"))
    return layouts.schemas


def _harvest(table: "_Table", files: Sequence[WrittenFile], progress: Progress | None) -> Harvest:
    listed = [(number, file.place, file.size) for number, file in enumerate(files)]
    while True:
        data = table.data
        indexed = TableMetadata(0, table.defined()[1], 0).indexed
        layouts = Layouts(leaves_in(data, indexed))
        footers = read_footers(listed, layouts, "other", progress)
        refuse_broken(files, footers)
        table.learn(files, layouts.schemas)
        if table.data.equals(data):
            return harvest_of(files, footers, data_change=True)


class _Table:
    """The table that files make. It grows with each schema that turns up, unless somebody stated what it is."""

    def __init__(
        self,
        name: str,
        partitions: Sequence[pa.Field],
        stated: pa.Schema | None,
        configuration: Mapping[str, str],
        description: str | None,
    ) -> None:
        self.data = pa.schema([])
        """The columns that are in files."""
        self._name = name
        self._partitions = partitions
        self._stated = stated
        self._configuration = configuration
        self._description = description
        self._known: dict[str, FileSchema] = {}

    def learn(self, files: Sequence[WrittenFile], schemas: Mapping[str, tuple[int, Any]]) -> None:
        """Takes in the Parquet schemas of files, each with the number of one. Raises ``SchemaMismatchError``."""
        new = [(number, text, schema) for text, (number, schema) in schemas.items() if text not in self._known]
        if not new:
            return
        for number, text, schema in sorted(new, key=lambda each: each[0]):
            self._known[text] = file_schema(schema, files[number].place)
        known = list(self._known.values())
        self._refuse_partitions(known)
        names = {field.name for field in self._partitions}
        data = united(known) if self._stated is None else pa.schema([f for f in self._stated if f.name not in names])
        self.data = with_widenings(data, known)

    def _refuse_partitions(self, schemas: Sequence[FileSchema]) -> None:
        names = {field.name.lower() for field in self._partitions}
        problems = [
            Violation(f"{schema.file}: {column}", "is in the file, and the directories say it, too")
            for schema in schemas
            for column in schema.found.names
            if column.lower() in names
        ]
        if problems:
            raise SchemaMismatchError("partition columns", problems)

    def defined(self) -> tuple[Protocol, Metadata]:
        """The table as actions."""
        schema, configuration = self._in_order(), dict(self._configuration)
        if FEATURE in needed_features(schema, {}):
            configuration[ENABLED] = "true"
        if is_mapped(configuration):
            schema, configuration = _mapped(schema, configuration)
        return described(self._name, schema, configuration, [f.name for f in self._partitions], self._description)

    def _in_order(self) -> pa.Schema:
        """All columns: those of partitions are last, unless somebody stated another place."""
        stated = self._stated or ()
        fields = {field.name: field for field in (*stated, *self.data)}
        return pa.schema([*fields.values(), *(field for field in self._partitions if field.name not in fields)])


def _mapped(schema: pa.Schema, configuration: Mapping[str, str]) -> tuple[pa.Schema, dict[str, str]]:
    """With column mapping, by the names that files have."""
    if configuration[MODE] != "name":
        message = f"expected 'name', got {configuration[MODE]!r}: files that exist know their columns by name"
        raise ValidationError("properties", [Violation(MODE, message)])
    return with_mapping(schema, {key: value for key, value in configuration.items() if key != MODE})
