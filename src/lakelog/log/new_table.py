"""What a new table is: the protocol and metadata of its first version."""

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from lakelog.actions import Metadata, Protocol
from lakelog.catalog.base import now_ms
from lakelog.errors import ValidationError, Violation
from lakelog.log.validation.features import MIRROR, needed_features, raised_protocol
from lakelog.log.validation.text import check_name
from lakelog.schema import to_delta_json
from lakelog.schema.mapping import is_mapped, name_new_columns, without_past


def definition(
    name: str,
    schema: pa.Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    mirror: bool | str = True,
    description: str | None = None,
) -> tuple[Protocol, Metadata]:
    """What a new table is."""
    check_definition(name, schema, mirror)
    if isinstance(partition_by, str):
        message = "expected a list of column names, got one text"
        raise ValidationError("partition_by", [Violation("partition_by", message)])
    schema, configuration = name_new_columns(pa.schema(map(without_past, schema)), configured(properties, mirror))
    return described(name, schema, configuration, partition_by, description)


def check_definition(name: str, schema: pa.Schema, mirror: bool | str) -> None:
    """Raises ``ValidationError`` for what cannot be a table's name or schema, or a way to mirror it."""
    check_name(name)
    if not isinstance(schema, pa.Schema):
        message = f"expected a pyarrow.Schema, got {type(schema).__name__}"
        raise ValidationError("schema", [Violation("schema", message)])
    if mirror not in (True, False, "fenced"):
        raise ValidationError("mirror", [Violation("mirror", f"expected True, False or 'fenced', got {mirror!r}")])


def configured(properties: Mapping[str, str] | None, mirror: bool | str) -> dict[str, str]:
    """The properties of a new table."""
    configuration = dict(properties or {})
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
    """A new table of just this schema and these properties."""
    metadata = Metadata(
        id=str(uuid.uuid4()),
        schema_string=to_delta_json(schema, column_mapping=is_mapped(configuration)),
        partition_columns=tuple(partition_by),
        configuration=configuration,
        name=name,
        description=description,
        created_time=now_ms(),
    )
    return raised_protocol(None, needed_features(schema, configuration)), metadata
