"""What a new table is: the protocol and metadata of its first version."""

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakelog.actions import Metadata, Protocol
from lakelog.catalog.base import now_ms
from lakelog.changes.properties import FEATURE, MIN_READER, MIN_WRITER, check_new
from lakelog.changes.redefine import upgraded
from lakelog.errors import ValidationError, Violation
from lakelog.log.validation.features import MIRROR, needed_features, raised_protocol
from lakelog.log.validation.text import check_name
from lakelog.schema import to_delta_json
from lakelog.schema.mapping import is_mapped, name_new_columns, without_past
from lakelog.strict_json import describe


def definition(
    name: str,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    mirror: bool | str = True,
    description: str | None = None,
    replaced: Mapping[str, str] | None = None,
) -> tuple[Protocol, Metadata]:
    """What a new table is, or one that is put in the place of another, which had the properties ``replaced``."""
    check_definition(name, schema, mirror)
    if isinstance(partition_by, str):
        message = "expected a list of column names, got one text"
        raise ValidationError("partition_by", [Violation("partition_by", message)])
    configuration = configured(properties, mirror, replaced)
    schema, configuration = name_new_columns(pa.schema(map(without_past, schema)), configuration)
    return described(name, schema, configuration, partition_by, description)


def check_definition(name: str, schema: pa.Schema, mirror: bool | str) -> None:
    """Raises ``ValidationError`` for what cannot be a table's name or schema, or a way to mirror it."""
    check_name(name)
    if not isinstance(schema, pa.Schema):
        message = f"expected a pyarrow.Schema, got {type(schema).__name__}"
        raise ValidationError("schema", [Violation("schema", message)])
    if mirror not in (True, False, "fenced"):
        raise ValidationError(
            "mirror", [Violation("mirror", f"expected True, False or 'fenced', got {describe(mirror)}")]
        )


_LASTING = ("delta.columnMapping.", MIRROR)
"""How properties begin that a table keeps when another is put in its place."""


def configured(
    properties: Mapping[str, str] | None, mirror: bool | str, replaced: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The properties of a new table. Raises ``ValidationError`` for what cannot be one."""
    asked = {} if properties is None else properties
    check_new(asked, replaced)
    lasting = {key: value for key, value in (replaced or {}).items() if key.startswith(_LASTING)}
    configuration = {**lasting, **asked}
    if mirror is not True:
        configuration[MIRROR] = str(mirror).lower()
    return configuration


def described(
    name: str,
    schema: pa.Schema,
    configuration: Mapping[str, str],
    partition_by: Sequence[str],
    description: str | None = None,
) -> tuple[Protocol, Metadata]:
    """A new table of just this schema and these properties, of which some ask for a protocol."""
    about_protocol = {
        key: value for key, value in configuration.items() if key in (MIN_READER, MIN_WRITER) or key.startswith(FEATURE)
    }
    configuration = {key: value for key, value in configuration.items() if key not in about_protocol}
    features = frozenset(key[len(FEATURE) :] for key in about_protocol if key.startswith(FEATURE))
    protocol = raised_protocol(None, needed_features(schema, configuration) | features)
    reader = max(int(about_protocol.get(MIN_READER, 0)), protocol.min_reader_version)
    writer = max(int(about_protocol.get(MIN_WRITER, 0)), protocol.min_writer_version)
    if (reader, writer) != (protocol.min_reader_version, protocol.min_writer_version):
        protocol = upgraded(protocol, reader, writer)
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=to_delta_json(schema, column_mapping=is_mapped(configuration)),
        partition_columns=tuple(partition_by),
        configuration=configuration,
        name=name,
        description=description,
        created_time=now_ms(),
    )
    return protocol, metadata
