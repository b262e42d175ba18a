"""The actions of a commit, as frozen values, and Delta's own JSON for them in both directions.

A field has its Python name here and Delta's name in JSON. What an action's JSON says beyond the known fields is kept
in ``extra`` and written back, so that nothing a newer Delta writer said is lost on its way through the catalog.

Making an action checks nothing; ``lakelog.log.validation`` does that, before a commit. Reading JSON is strict: text
that is not JSON by its standard, a missing field and a field of the wrong type raise ``ValidationError``, which lists
all of them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

from lakelog.errors import ValidationError, Violation
from lakelog.strict_json import describe, encode_json, json_problem, loads_strict

MAX_LINE_CHARACTERS = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """What a field holds: in words, and as a test of a Python value's type. Ranges and contents come later."""

    expected: str
    accepts: Callable[[Any], bool]


class Field(NamedTuple):
    """A field of an action: its Python name, its name in Delta's JSON, what it holds, whether it may be absent."""

    attribute: str
    name: str
    kind: Kind
    required: bool


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_text_map(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())


def _is_nullable_map(value: Any) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(k, str) and (v is None or isinstance(v, str)) for k, v in value.items()
    )


NAME = Kind("a string", _is_text)
TEXT = Kind("a string", _is_text)
PATH = Kind("a string", _is_text)
STATS = Kind("a string", _is_text)
COUNT = Kind("an integer", _is_integer)
INT32_COUNT = Kind("an integer", _is_integer)
INT64 = Kind("an integer", _is_integer)
BOOLEAN = Kind("true or false", lambda value: isinstance(value, bool))
NAMES = Kind("a list of strings", lambda value: isinstance(value, tuple | list) and all(map(_is_text, value)))
TEXT_MAP = Kind("an object of strings", _is_text_map)
NULLABLE_MAP = Kind("an object of strings and nulls", _is_nullable_map)
OBJECT = Kind("an object", lambda value: isinstance(value, Mapping) and all(map(_is_text, value)))
VECTOR = Kind("a deletion vector", lambda value: isinstance(value, DeletionVector))


def _required(attribute: str, kind: Kind) -> Field:
    return Field(attribute, _camel_case(attribute), kind, True)


def _optional(attribute: str, kind: Kind) -> Field:
    return Field(attribute, _camel_case(attribute), kind, False)


def _camel_case(attribute: str) -> str:
    first, *rest = attribute.split("_")
    return first + "".join(word.capitalize() for word in rest)


class _Record:
    """A JSON object with known fields, in Delta's order, and whatever else it says in ``extra``."""

    __slots__ = ()

    fields: ClassVar[tuple[Field, ...]] = ()
    known: ClassVar[frozenset[str]] = frozenset()
    free_form: ClassVar[bool] = False
    extra: Mapping[str, Any]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.known = frozenset(field.name for field in cls.fields)

    def to_dict(self) -> dict[str, Any]:
        """The JSON object without its wrapper. Absent fields are left out; a known field wins over ``extra``."""
        body: dict[str, Any] = {}
        for field in self.fields:
            value = getattr(self, field.attribute)
            if value is not None:
                body[field.name] = value
        for name, value in self.extra.items():
            body.setdefault(name, value)
        return body

    @classmethod
    def _read(cls, body: Mapping[str, Any], where: str, problems: list[Violation]) -> Self | None:
        values: dict[str, Any] = {}
        left_over: set[str] = set()
        for attribute, name, kind, required in cls.fields:
            value = body.get(name)
            if value is None:
                if required:
                    problems.append(Violation(f"{where}.{name}", "is missing"))
                continue
            if kind is NAMES and isinstance(value, list):
                value = tuple(value)
            elif kind is VECTOR and isinstance(value, Mapping):
                value = DeletionVector._read(value, f"{where}.{name}", problems)
                if value is None:
                    continue
            if kind.accepts(value):
                values[attribute] = value
            elif cls.free_form:
                left_over.add(name)
            else:
                problems.append(Violation(f"{where}.{name}", f"expected {kind.expected}, got {describe(value)}"))
        if len(values) < len(body):
            values["extra"] = {n: value for n, value in body.items() if n not in cls.known or n in left_over}
        cls._adapt(values, where, problems)
        return None if problems else cls(**values)

    @classmethod
    def _adapt(cls, values: dict[str, Any], where: str, problems: list[Violation]) -> None:
        """Turn what was read into the constructor's arguments, where the two differ."""


class _ActionRecord(_Record):
    __slots__ = ()

    action: ClassVar[str]

    def to_json(self) -> str:
        """The action's line in Delta's log. A value that JSON does not have raises ``ValueError`` or ``TypeError``."""
        return encode_json({self.action: self.to_dict()})

    @classmethod
    def from_json(cls, source: str | Mapping[str, Any]) -> Self:
        """Read a line of Delta's log, as text or parsed, that holds this action."""
        name, body = _unwrap(source)
        if name != cls.action:
            raise ValidationError(f"{cls.action} action", [Violation(name, f"expected the action {cls.action!r}")])
        return cls._from_body(body)

    @classmethod
    def _from_body(cls, body: Mapping[str, Any]) -> Self:
        problems: list[Violation] = []
        found = cls._read(body, cls.action, problems)
        if found is None:
            raise ValidationError(f"{cls.action} action", problems)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionVector(_Record):
    """Which rows of a data file no longer belong to the table."""

    storage_type: str
    path_or_inline_dv: str
    offset: int | None = None
    size_in_bytes: int
    cardinality: int
    extra: Mapping[str, Any] = dataclass_field(default_factory=dict)

    fields: ClassVar[tuple[Field, ...]] = (
        _required("storage_type", NAME),
        _required("path_or_inline_dv", TEXT),
        _optional("offset", INT32_COUNT),
        _required("size_in_bytes", INT32_COUNT),
        _required("cardinality", COUNT),
    )

    @property
    def unique_id(self) -> str:
        """What tells this vector from others of the same file."""
        base = f"{self.storage_type}{self.path_or_inline_dv}"
        return base if self.offset is None else f"{base}@{self.offset}"

    def to_json(self) -> str:
        """The descriptor as it stands inside an action, without a wrapper."""
        return encode_json(self.to_dict())

    @classmethod
    def from_json(cls, source: str | Mapping[str, Any]) -> Self:
        """Read a descriptor, as text or parsed."""
        problems: list[Violation] = []
        body = _parsed(source)
        if not isinstance(body, Mapping):
            problems.append(Violation("deletionVector", f"expected an object, got {describe(body)}"))
            body = {}
        found = cls._read(body, "deletionVector", problems)
        if found is None:
            raise ValidationError("deletion vector", problems)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AddFile(_ActionRecord):
    """A data file becomes part of the table. ``stats`` is JSON text and is kept byte for byte."""

    path: str
    size: int
    partition_values: Mapping[str, str | None] = dataclass_field(default_factory=dict)
    modification_time: int = 0
    data_change: bool = True
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    clustering_provider: str | None = None
    extra: Mapping[str, Any] = dataclass_field(default_factory=dict)

    action: ClassVar[str] = "add"
    fields: ClassVar[tuple[Field, ...]] = (
        _required("path", PATH),
        _required("partition_values", NULLABLE_MAP),
        _required("size", COUNT),
        _required("modification_time", COUNT),
        _required("data_change", BOOLEAN),
        _optional("stats", STATS),
        _optional("tags", NULLABLE_MAP),
        _optional("deletion_vector", VECTOR),
        _optional("base_row_id", COUNT),
        _optional("default_row_commit_version", COUNT),
        _optional("clustering_provider", NAME),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveFile(_ActionRecord):
    """A data file stops being part of the table. Earlier versions still have it."""

    path: str
    deletion_timestamp: int | None = None
    data_change: bool = True
    extended_file_metadata: bool | None = None
    partition_values: Mapping[str, str | None] | None = None
    size: int | None = None
    stats: str | None = None
    tags: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    extra: Mapping[str, Any] = dataclass_field(default_factory=dict)

    action: ClassVar[str] = "remove"
    fields: ClassVar[tuple[Field, ...]] = (
        _required("path", PATH),
        _optional("deletion_timestamp", COUNT),
        _required("data_change", BOOLEAN),
        _optional("extended_file_metadata", BOOLEAN),
        _optional("partition_values", NULLABLE_MAP),
        _optional("size", COUNT),
        _optional("stats", STATS),
        _optional("tags", NULLABLE_MAP),
        _optional("deletion_vector", VECTOR),
        _optional("base_row_id", COUNT),
        _optional("default_row_commit_version", COUNT),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcFile(_ActionRecord):
    """A file with the rows that the commit changed, for readers of the change feed only."""

    path: str
    partition_values: Mapping[str, str | None] = dataclass_field(default_factory=dict)
    size: int
    data_change: bool = False
    tags: Mapping[str, str | None] | None = None
    extra: Mapping[str, Any] = dataclass_field(default_factory=dict)

    action: ClassVar[str] = "cdc"
    fields: ClassVar[tuple[Field, ...]] = (
        _required("path", PATH),
        _required("partition_values", NULLABLE_MAP),
        _required("size", COUNT),
        _required("data_change", BOOLEAN),
        _optional("tags", NULLABLE_MAP),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata(_ActionRecord):
    """The table's schema, partitioning and properties, all of them: the latest one replaces those before it."""

    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = dataclass_field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    format_provider: str = "parquet"
    format_options: Mapping[str, str] = dataclass_field(default_factory=dict)
    created_time: int | None = None
    extra: Mapping[str, Any] = dataclass_field(default_factory=dict)

    action: ClassVar[str] = "metaData"
    fields: ClassVar[tuple[Field, ...]] = (
        _required("id", NAME),
        _optional("name", NAME),
        _optional("description", TEXT),
        _required("format", OBJECT),
        _required("schema_string", TEXT),
        _required("partition_columns", NAMES),
        _optional("created_time", COUNT),
        _required("configuration", TEXT_MAP),
    )

    def is_on(self, name: str) -> bool:
        """Whether a property that is true or false is true; one that is not there is false."""
        return self.configuration.get(name, "").lower() == "true"

    @property
    def format(self) -> Mapping[str, Any]:
        """Delta's ``format`` object. What it says beyond provider and options stands in ``extra["format"]``."""
        known = {"provider": self.format_provider, "options": self.format_options}
        return known | {name: value for name, value in self.extra.get("format", {}).items() if name not in known}

    @classmethod
    def _adapt(cls, values: dict[str, Any], where: str, problems: list[Violation]) -> None:
        beyond = dict(values.pop("format", {}))
        for name, kind in (("provider", NAME), ("options", TEXT_MAP)):
            value = beyond.pop(name, None)
            if value is None:
                continue
            if not kind.accepts(value):
                message = f"expected {kind.expected}, got {describe(value)}"
                problems.append(Violation(f"{where}.format.{name}", message))
            values[f"format_{name}"] = value
        if beyond:
            values["extra"] = {**values.get("extra", {}), "format": beyond}


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol(_ActionRecord):
    """What a client must be able to do to read or write the table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: tuple[str, ...] | None = None
    writer_features: tuple[str, ...] | None = None
    extra: Mapping[str, Any] = dataclass_field(default_factory=dict)

    action: ClassVar[str] = "protocol"
    fields: ClassVar[tuple[Field, ...]] = (
        _required("min_reader_version", INT32_COUNT),
        _required("min_writer_version", INT32_COUNT),
        _optional("reader_features", NAMES),
        _optional("writer_features", NAMES),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Txn(_ActionRecord):
    """How far an application has come, recorded with the data that it wrote."""

    app_id: str
    version: int
    last_updated: int | None = None
    extra: Mapping[str, Any] = dataclass_field(default_factory=dict)

    action: ClassVar[str] = "txn"
    fields: ClassVar[tuple[Field, ...]] = (
        _required("app_id", NAME),
        _required("version", INT64),
        _optional("last_updated", COUNT),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DomainMetadata(_ActionRecord):
    """A named text that belongs to the table. ``removed`` takes the domain away."""

    domain: str
    configuration: str
    removed: bool = False
    extra: Mapping[str, Any] = dataclass_field(default_factory=dict)

    action: ClassVar[str] = "domainMetadata"
    fields: ClassVar[tuple[Field, ...]] = (
        _required("domain", NAME),
        _required("configuration", TEXT),
        _required("removed", BOOLEAN),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitInfo(_ActionRecord):
    """Where a commit came from.

    Delta lets a writer say anything here, so reading never fails on a field's type: a known name with a value of
    another type stays in ``extra`` under Delta's name.
    """

    timestamp: int | None = None
    operation: str | None = None
    operation_parameters: Mapping[str, Any] | None = None
    in_commit_timestamp: int | None = None
    user_id: str | None = None
    user_name: str | None = None
    read_version: int | None = None
    isolation_level: str | None = None
    is_blind_append: bool | None = None
    operation_metrics: Mapping[str, Any] | None = None
    user_metadata: str | None = None
    engine_info: str | None = None
    txn_id: str | None = None
    extra: Mapping[str, Any] = dataclass_field(default_factory=dict)

    action: ClassVar[str] = "commitInfo"
    free_form: ClassVar[bool] = True
    fields: ClassVar[tuple[Field, ...]] = (
        _optional("in_commit_timestamp", COUNT),
        _optional("timestamp", COUNT),
        _optional("user_id", NAME),
        _optional("user_name", NAME),
        _optional("operation", NAME),
        _optional("operation_parameters", OBJECT),
        _optional("read_version", INT64),
        _optional("isolation_level", NAME),
        _optional("is_blind_append", BOOLEAN),
        _optional("operation_metrics", OBJECT),
        _optional("user_metadata", TEXT),
        _optional("engine_info", TEXT),
        _optional("txn_id", NAME),
    )


Action: TypeAlias = AddFile | RemoveFile | CdcFile | Metadata | Protocol | Txn | DomainMetadata | CommitInfo

_ACTIONS: Mapping[str, type[Action]] = {
    cls.action: cls for cls in (AddFile, RemoveFile, CdcFile, Metadata, Protocol, Txn, DomainMetadata, CommitInfo)
}


def from_json(source: str | Mapping[str, Any]) -> Action:
    """Read a line of Delta's log, as text or parsed, whichever action it holds."""
    name, body = _unwrap(source)
    return _ACTIONS[name]._from_body(body)


def _parsed(source: str | Mapping[str, Any]) -> Any:
    """The source's value, or ``ValidationError`` where it is not strict JSON."""
    if isinstance(source, str):
        if len(source) > MAX_LINE_CHARACTERS:
            message = f"is longer than {MAX_LINE_CHARACTERS} characters"
            raise ValidationError("action", [Violation("line", message)])
        try:
            return loads_strict(source)
        except ValueError as error:
            raise ValidationError("action", [Violation("line", str(error))]) from None
    if problem := json_problem(source):
        raise ValidationError("action", [Violation("line", problem)])
    return source


def _unwrap(source: str | Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    line = _parsed(source)
    if not isinstance(line, Mapping) or len(line) != 1:
        found = f"{len(line)} members" if isinstance(line, Mapping) else describe(line)
        message = f'expected an object with one action, such as {{"add":{{…}}}}, got {found}'
        raise ValidationError("action", [Violation("line", message)])
    [(name, body)] = line.items()
    if name not in _ACTIONS:
        message = f"is not an action that Lakelog knows; it knows {', '.join(_ACTIONS)}"
        raise ValidationError("action", [Violation(repr(name), message)])
    if not isinstance(body, Mapping):
        raise ValidationError(f"{name} action", [Violation(name, f"expected an object, got {describe(body)}")])
    return name, body
