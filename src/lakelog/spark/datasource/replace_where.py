"""``replaceWhere`` where partition values alone decide it, so that whole files go and no row has to be looked at."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.errors import SchemaMismatchError, ValidationError, Violation
from lakelog.log.commit.files import REMOVED
from lakelog.log.pruning.literals import DAY, Value
from lakelog.log.pruning.predicate import Condition, holds
from lakelog.log.pruning.reader import depends_on_settings, read_condition
from lakelog.log.snapshot.snapshot import Snapshot
from lakelog.schema.leaves import join_path
from lakelog.spark.datasource.rows import typed_value
from lakelog.spark.read.partitions import is_instant, partition_values

_INSTEAD = "here it compares partition columns with constants, and lakelog.write_dataset takes any condition"
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """What a condition on partition columns replaces."""

    text: str
    condition: Condition
    partitions: tuple[pa.Field, ...]
    """Partition columns as files name them."""
    names: tuple[str, ...]
    """The same as the condition names them."""
    files: pa.Table
    """The files that go."""

    def check(self, values: Mapping[str, str | None]) -> None:
        """Rows that are written into a partition have to match."""
        texts = tuple(values[field.name] for field in self.partitions)
        if not _matches(self.condition, _comparable(self.partitions, self.names, texts), self.text):
            message = f"rows do not match {self.text!r}, or match as NULL: {dict(values)}"
            raise SchemaMismatchError("values of the incoming data", [Violation("replaceWhere", message)])


def replaced(snapshot: Snapshot, text: str) -> Replaced:
    """The files whose rows all match. Raises ``ValidationError`` for a condition that their partitions leave open."""
    metadata = snapshot.state.metadata
    partitions = tuple(metadata.physical.field(name) for name in metadata.partition_columns)
    names = tuple(join_path([name]) for name in metadata.action.partition_columns)
    known = {name: field.type for name, field in zip(names, partitions, strict=True) if _is_plain(field)}
    if depends_on_settings(text):
        raise _refused(text, "what a backslash, a double quote or ${ means in it depends on the session")
    if not known:
        raise _refused(text, "the table has no partition column that it could be on")
    try:
        condition = read_condition(text, known)
    except ValidationError as error:
        raise _refused(text, "; ".join(violation.message for violation in error.violations)) from error
    files = snapshot.files(condition.rows, columns=REMOVED)
    numbers, tuples = partition_values(files.column("partition_values"), partitions)
    whole = [
        number
        for number, texts in enumerate(tuples)
        if _matches(condition, _comparable(partitions, names, texts), text)
    ]
    return Replaced(
        text=text,
        condition=condition,
        partitions=partitions,
        names=names,
        files=files.filter(pc.is_in(numbers, value_set=pa.array(whole, numbers.type))),
    )


def _matches(condition: Condition, values: Mapping[str, Value | None], text: str) -> bool:
    """Whether the condition is TRUE. Raises if these values do not say."""
    if not holds(condition.rows, values):
        return False
    if holds(condition.others, values):
        raise _refused(text, f"the partition {dict(values)} may match, or not")
    return True


def _comparable(
    partitions: tuple[pa.Field, ...], names: tuple[str, ...], texts: tuple[str | None, ...]
) -> dict[str, Value | None]:
    """Partition values as predicates have constants: times in microseconds, booleans as numbers."""
    return {
        name: _value(typed_value(text, field).as_py()) if text is not None and _is_plain(field) else None
        for name, field, text in zip(names, partitions, texts, strict=True)
    }


def _is_plain(field: pa.Field) -> bool:
    """Whether texts say how values compare. That of an instant depends on the session's zone; a float may be NaN."""
    return not (is_instant(field) or pa.types.is_floating(field.type))


def _value(value: Any) -> Value:
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, datetime):
        moment = value - datetime(1970, 1, 1)  # noqa: DTZ001 - both are local
        return (moment.days * 86_400 + moment.seconds) * 1_000_000 + moment.microseconds
    if isinstance(value, date):
        return (value.toordinal() - _EPOCH) * DAY
    found: int | float | Decimal | str = value
    return found


def _refused(text: str, reason: str) -> ValidationError:
    return ValidationError("replaceWhere", [Violation(repr(text), f"{reason}; {_INSTEAD}")])
