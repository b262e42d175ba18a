"""Actions about the table as a whole: metadata, protocol, applications' progress, domains, commit info."""

from collections import Counter
from collections.abc import Iterable, Mapping

import pyarrow as pa

from lakelog.actions import NAME, TEXT_MAP, CommitInfo, DomainMetadata, Field, Metadata, Protocol, Txn
from lakelog.errors import ValidationError, Violation
from lakelog.log.feeds.columns import feed_column_problems
from lakelog.log.validation.features import protocol_problems
from lakelog.log.validation.fields import field_violations
from lakelog.schema.mapping import MODE, MODES
from lakelog.strict_json import shown

KNOWN_SYSTEM_DOMAINS = frozenset({"delta.clustering", "delta.rowTracking"})

_METADATA_FIELDS = (
    *(field for field in Metadata.fields if field.attribute != "format"),
    Field("format_provider", "format.provider", NAME, True),
    Field("format_options", "format.options", TEXT_MAP, True),
)
_FORMAT_FIELDS = frozenset({"provider", "options"})
_UNCOLLATED = "make it STRING COLLATE UTF8_BINARY, and import a Delta table that once had it without its history"


def validate_metadata(metadata: Metadata, where: str = "metaData") -> list[Violation]:
    """Everything that is wrong with metadata by itself, its schema and partition columns included."""
    violations = field_violations(metadata, where, fields=_METADATA_FIELDS)
    broken = {violation.where for violation in violations}
    if metadata.id == "":
        violations.append(Violation(f"{where}.id", "is empty"))
    if f"{where}.format_provider" not in broken and metadata.format_provider != "parquet":
        message = f"expected 'parquet', got {shown(metadata.format_provider)}"
        violations.append(Violation(f"{where}.format_provider", message))
    if f"{where}.extra" not in broken:
        beyond = metadata.extra.get("format", {})
        if not isinstance(beyond, Mapping) or not _FORMAT_FIELDS.isdisjoint(beyond):
            message = "'format' takes an object without provider and options, which have fields of their own"
            violations.append(Violation(f"{where}.extra", message))
    if broken.isdisjoint({f"{where}.schema_string", f"{where}.configuration"}):
        mode = metadata.configuration.get(MODE, "none")
        if mode not in MODES:
            message = f"expected {MODE} to be one of {', '.join(MODES)}, got {shown(mode)}"
            violations.append(Violation(f"{where}.configuration", message))
        schema, problems = _read_schema(metadata, f"{where}.schema_string")
        violations += problems
        if schema is not None:
            violations += feed_column_problems(schema, metadata.configuration)
        if schema is not None and f"{where}.partition_columns" not in broken:
            columns = f"{where}.partition_columns"
            violations += [Violation(columns, p) for p in _partition_problems(schema, metadata.partition_columns)]
    return violations


def validate_protocol(protocol: Protocol, where: str = "protocol") -> list[Violation]:
    """Everything that is wrong with a protocol by itself."""
    violations = field_violations(protocol, where)
    return violations or [Violation(where, problem) for problem in protocol_problems(protocol)]


def validate_txn(txn: Txn, where: str = "txn") -> list[Violation]:
    """Everything that is wrong with an application's progress by itself."""
    violations = field_violations(txn, where)
    if txn.app_id == "":
        violations.append(Violation(f"{where}.app_id", "is empty"))
    return violations


def validate_domain(domain: DomainMetadata, where: str = "domainMetadata") -> list[Violation]:
    """Everything that is wrong with a domain by itself. Those that begin with ``delta.`` belong to Delta."""
    violations = field_violations(domain, where)
    if not any(violation.where == f"{where}.domain" for violation in violations):
        violations += [Violation(f"{where}.domain", problem) for problem in _domain_problems(domain.domain)]
    return violations


def validate_commit_info(info: CommitInfo, where: str = "commitInfo") -> list[Violation]:
    """Everything that is wrong with commit info by itself."""
    return field_violations(info, where)


def _read_schema(metadata: Metadata, where: str) -> tuple[pa.Schema | None, list[Violation]]:
    from lakelog.schema.collations import collated_columns
    from lakelog.schema.delta import from_delta_json

    mapped = metadata.configuration.get("delta.columnMapping.mode", "none") != "none"
    try:
        schema = from_delta_json(metadata.schema_string, column_mapping=mapped)
        return schema, [
            Violation(f"{where}.{name}", f"strings are compared byte by byte, not by {collation}; {_UNCOLLATED}")
            for name, collation in collated_columns(schema).items()
        ]
    except ValidationError as error:
        return None, [Violation(where, str(violation)) for violation in error.violations]


def _domain_problems(name: str) -> Iterable[str]:
    if not name:
        yield "is empty"
    if name.lower().startswith("delta.") and name not in KNOWN_SYSTEM_DOMAINS:
        known = " and ".join(sorted(KNOWN_SYSTEM_DOMAINS))
        yield f"{shown(name)} is reserved for Delta; of its domains only {known} are known"


def _partition_problems(schema: pa.Schema, columns: tuple[str, ...]) -> Iterable[str]:
    for name, count in Counter(columns).items():
        if count > 1:
            yield f"{name!r} occurs {count} times"
        if name not in schema.names:
            yield f"{name!r} is not a column of the schema"
        elif pa.types.is_nested(schema.field(name).type) or pa.types.is_binary(schema.field(name).type):
            yield f"{name!r} has the type {schema.field(name).type}; expected a primitive type other than binary"
    if columns and set(columns) == set(schema.names):
        yield "every column is a partition column; at least one must be left for the files"
