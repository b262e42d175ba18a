"""JSON as its standard has it, where Python's own reader is lenient."""

import json
import math
import reprlib
from collections import Counter
from typing import Any, NoReturn


def loads(text: str) -> Any:
    """The value of a JSON text.

    Anything else is a ``ValueError``: malformed text, a key that occurs twice in an object, NaN and the infinities,
    a number that Python cannot hold, nesting that Python cannot follow.
    """
    try:
        return _DECODER.decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dumps(value: Any) -> str:
    """The value as compact JSON text, with characters beyond ASCII as they are."""
    return _ENCODER.encode(value)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        ((twice, _),) = Counter(key for key, _ in pairs).most_common(1)
        owner = f" (the object with the name {members['name']!r})" if isinstance(members.get("name"), str) else ""
        raise ValueError(f"the key {twice!r} occurs twice in one object{owner}")
    return members


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {reprlib.repr(digits)} is out of range")
    return number


def _not_a_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_float=_finite, parse_constant=_not_a_number)
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False)
