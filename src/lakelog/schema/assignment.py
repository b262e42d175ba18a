"""Which values a statement may put into a column: what SQL stores with a check, and nothing that changes its kind."""

from collections.abc import Iterator

import pyarrow as pa

from lakelog.errors import Violation
from lakelog.schema.leaves import join_path
from lakelog.schema.projection import by_name, is_list


def assignment_problems(
    path: tuple[str, ...], source: pa.DataType, target: pa.DataType, *, partial: bool = False
) -> Iterator[Violation]:
    """Why values of one type cannot be stored in a column of another.

    Numbers go into any numeric type, and fail where a value does not fit. Everything simple goes into a string.
    Structs go by the names of their fields, of which the source may lack some only if it is ``partial``.
    """
    if source.equals(target) or pa.types.is_null(source):
        return
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        known = {by_name(field): field for field in target}
        for field in source:
            if by_name(field) not in known:
                yield Violation(join_path((*path, field.name)), "is not a field of the column")
            else:
                inside = known[by_name(field)].type
                yield from assignment_problems((*path, field.name), field.type, inside, partial=partial)
        lacking = known.keys() - {by_name(field) for field in source}
        if lacking and not partial:
            names = ", ".join(sorted(known[name].name for name in lacking))
            yield Violation(join_path(path), f"the value lacks {names}: give all fields, or set them one by one")
    elif is_list(source) and is_list(target):
        yield from assignment_problems((*path, "element"), source.value_type, target.value_type, partial=partial)
    elif pa.types.is_map(source) and pa.types.is_map(target):
        yield from assignment_problems((*path, "key"), source.key_type, target.key_type, partial=partial)
        yield from assignment_problems((*path, "value"), source.item_type, target.item_type, partial=partial)
    elif not _is_storable(source, target):
        yield Violation(join_path(path), f"cannot hold {source}, it is {target}: cast the value")


def _is_storable(source: pa.DataType, target: pa.DataType) -> bool:
    if _is_number(source) and _is_number(target):
        return True
    if pa.types.is_string(target):
        return not pa.types.is_nested(source) and not pa.types.is_binary(source)
    return (_is_time(source) or pa.types.is_date(source)) and _is_time(target)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind))
