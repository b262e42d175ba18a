"""Partition columns of files that lie in Hive's directories: their values, checked, and their types where unsaid."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa

from lakelog.errors import ValidationError, Violation
from lakelog.importing.file_listing import Listing
from lakelog.storage.hive import values_of
from lakelog.strict_json import text_problem

Values: TypeAlias = Mapping[str, str | None]
"""A directory's texts by column."""

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_MOMENT = re.compile(rf"({_DATE.pattern})(?:[ T]([0-9:]{{5,8}}(?:\.[0-9]{{1,6}})?)(Z|[+-][0-9]{{2}}:?[0-9]{{2}})?)?")


def partition_columns(
    listing: Listing, partition_by: Sequence[str] | Mapping[str, pa.DataType] | None, stated: pa.Schema | None
) -> tuple[list[pa.Field], dict[str, Values]]:
    """The partition columns, and by directory their values as the log's texts.

    Types are those of ``partition_by``, of a stated schema, or what all values can be. Raises ``ValidationError``, with
    a file of each directory that says too little, too much or no value of its column's type.
    """
    wanted = _wanted(partition_by)
    examples = {file.directory: file.relative for file in reversed(listing.files)}
    problems: list[Violation] = []
    found: dict[str, Values] = {}
    for directory, example in sorted(examples.items()):
        try:
            values = values_of(directory)
        except ValueError as error:
            reason = "has an escape that is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
            problems.append(Violation(example, reason))
            continue
        found[directory] = values
        problems += [
            Violation(example, f"the column {name!r} would be lost: its directories say it, partition_by does not")
            for name in values
            if name not in wanted
        ]
        problems += [Violation(example, f"has no directory {name}=…") for name in wanted if name not in values]
    if problems:
        raise ValidationError("partition_by", problems)
    fields = [_column(name, kind, stated, [values[name] for values in found.values()]) for name, kind in wanted.items()]
    typed = {directory: _typed(values, fields, examples[directory], problems) for directory, values in found.items()}
    if problems:
        raise ValidationError("partition values", problems)
    return fields, typed


def _column(name: str, kind: pa.DataType | None, stated: pa.Schema | None, texts: Sequence[str | None]) -> pa.Field:
    if stated is None or name not in stated.names:
        return pa.field(name, kind or _inferred(texts))
    field = stated.field(name)
    if kind not in (None, field.type):
        raise ValidationError("partition_by", [Violation(name, f"is {kind} here, and {field.type} in the schema")])
    return field


def _wanted(partition_by: Sequence[str] | Mapping[str, pa.DataType] | None) -> dict[str, pa.DataType | None]:
    """The types of the columns by name, None where they are not said."""
    if isinstance(partition_by, Mapping):
        wanted = dict(partition_by)
    elif isinstance(partition_by, str):
        raise ValidationError("partition_by", [Violation(repr(partition_by), "expected a list of column names")])
    else:
        wanted = dict.fromkeys(partition_by or ())
    problems = [
        Violation(repr(name), f"expected an Arrow type that a directory can say, got {kind}")
        for name, kind in wanted.items()
        if kind is not None and (not isinstance(kind, pa.DataType) or _reader(kind) is None)
    ]
    if problems:
        raise ValidationError("partition_by", problems)
    return wanted


def _inferred(texts: Sequence[str | None]) -> pa.DataType:
    said = [text for text in texts if text is not None]
    for kind, pattern in ((pa.int64(), _WHOLE_NUMBER), (pa.date32(), _DATE)):
        if said and all(pattern.fullmatch(text) and _text(text, kind) is not None for text in said):
            return kind
    return pa.string()


def _typed(values: Values, columns: Sequence[pa.Field], example: str, problems: list[Violation]) -> Values:
    typed: dict[str, str | None] = {}
    for column in columns:
        text = values[column.name]
        typed[column.name] = None if text is None else _text(text, column.type)
        if text is not None and typed[column.name] is None:
            problems.append(Violation(example, f"{text!r} is no value of {column.name!r}, which is {column.type}"))
        if text is None and not column.nullable:
            problems.append(Violation(example, f"{column.name!r} is null, and NOT NULL in the schema"))
    return typed


def _text(text: str, kind: pa.DataType) -> str | None:
    """The log's text for a value, None if it is none of that type."""
    reader = _reader(kind)
    try:
        return None if reader is None else reader(text, kind)
    except (ValueError, ArithmeticError):
        return None


def _reader(kind: pa.DataType) -> Callable[[str, pa.DataType], str | None] | None:
    return next((reader for holds, reader in _READERS if holds(kind)), None)


def _string(text: str, kind: pa.DataType) -> str | None:
    return None if text_problem(text) else text


def _integer(text: str, kind: pa.DataType) -> str | None:
    value = int(text) if re.fullmatch(r"-?[0-9]{1,30}", text) else 1 << 64
    largest = 1 << (kind.bit_width - 1)
    return str(value) if -largest <= value < largest else None


def _boolean(text: str, kind: pa.DataType) -> str | None:
    return text.lower() if text.lower() in ("true", "false") else None


def _float(text: str, kind: pa.DataType) -> str | None:
    return text if text in ("NaN", "Infinity", "-Infinity") or _NUMBER.fullmatch(text) else None


def _decimal(text: str, kind: pa.DataType) -> str | None:
    if not _NUMBER.fullmatch(text):
        return None
    value = pa.scalar(Decimal(text), kind).as_py()
    return f"{value:f}"


def _date(text: str, kind: pa.DataType) -> str | None:
    return date.fromisoformat(text).isoformat() if _DATE.fullmatch(text) else None


def _timestamp(text: str, kind: pa.DataType) -> str | None:
    """Without a zone, as the log has it: an instant's is UTC."""
    found = _MOMENT.fullmatch(text)
    if found is None or (found[3] and kind.tz is None):
        return None
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    return moment.isoformat(sep=" ")


_READERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[str, pa.DataType], str | None]], ...] = (
    (pa.types.is_string, _string),
    (pa.types.is_signed_integer, _integer),
    (pa.types.is_boolean, _boolean),
    (pa.types.is_floating, _float),
    (pa.types.is_decimal128, _decimal),
    (pa.types.is_date32, _date),
    (pa.types.is_timestamp, _timestamp),
)
