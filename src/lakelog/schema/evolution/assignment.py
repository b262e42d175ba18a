"""Which values may be put into a column: what SQL stores with a check, and where it is asked for what it casts."""

from collections.abc import Iterator

import pyarrow as pa

from lakelog.errors import Violation
from lakelog.schema.evolution.projection import by_name, is_list
from lakelog.schema.leaves import join_path


def assignment_problems(
    path: tuple[str, ...], source: pa.DataType, target: pa.DataType, *, partial: bool = False, casts: bool = False
) -> Iterator[Violation]:
    """Why values of one type cannot be stored in a column of another.

    Numbers go into any numeric type, and fail where a value does not fit. Everything simple goes into a string. With
    ``casts``, a text goes into whatever it is the text of, a moment into its day, and truth into 0 and 1 and back.
    Structs go by the names of their fields, of which the source may lack some only if it is ``partial``.
    """
    how = {"partial": partial, "casts": casts}
    if source.equals(target) or pa.types.is_null(source):
        return
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        known = {by_name(field): field for field in target}
        for field in source:
            if by_name(field) not in known:
                yield Violation(join_path((*path, field.name)), "is not a field of the column")
            else:
                inside = known[by_name(field)].type
                yield from assignment_problems((*path, field.name), field.type, inside, **how)
        lacking = known.keys() - {by_name(field) for field in source}
        if lacking and not partial:
            names = ", ".join(sorted(known[name].name for name in lacking))
            yield Violation(join_path(path), f"the value lacks {names}: give all fields, or set them one by one")
    elif is_list(source) and is_list(target):
        yield from assignment_problems((*path, "element"), source.value_type, target.value_type, **how)
    elif pa.types.is_map(source) and pa.types.is_map(target):
        yield from assignment_problems((*path, "key"), source.key_type, target.key_type, **how)
        yield from assignment_problems((*path, "value"), source.item_type, target.item_type, **how)
    elif not _is_storable(source, target) and not (casts and is_cast(source, target)):
        yield Violation(join_path(path), f"cannot hold {source}, it is {target}: cast the value")


def _is_storable(source: pa.DataType, target: pa.DataType) -> bool:
    if _is_number(source) and _is_number(target):
        return True
    if pa.types.is_string(target):
        return not pa.types.is_nested(source) and not pa.types.is_binary(source)
    return (_is_time(source) or pa.types.is_date(source)) and _is_time(target)


def is_cast(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a value becomes one of another kind, if it can."""
    if pa.types.is_string(source):
        kinds = (_is_number, _is_time, pa.types.is_date, pa.types.is_boolean)
        return any(is_kind(target) for is_kind in kinds)
    if pa.types.is_boolean(source) or pa.types.is_boolean(target):
        return _is_number(source) or _is_number(target)
    return _is_time(source) and bool(pa.types.is_date(target))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))
