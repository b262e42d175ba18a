"""JSON as its standard has it and as every database can hold it, where Python's own reader is lenient."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any, NoReturn, TypeGuard

MAX_JSON_DEPTH = 200
MAX_INTEGER_DIGITS = 100


def parse_json(text: str) -> Any:
    """The value of a JSON text by the standard.

    Raises ``ValueError`` for anything else: malformed text, a key that occurs twice in an object, NaN and infinities,
    a number beyond reason, nesting that Python cannot follow.
    """
    if _LONG_NUMBER.search(text) and (problem := _number_problem(text)):
        raise ValueError(problem)
    try:
        return _decode(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos}") from None
    except RecursionError:
        raise ValueError("nested too deeply") from None


def loads_strict(text: str) -> Any:
    """As ``parse_json``, and within what every database and reader can hold.

    Also refuses a nesting beyond reason, a lone surrogate and a NUL character.
    """
    if not isinstance(text, str):
        raise ValueError(f"expected JSON text, got {describe(text)}")  # noqa: TRY004 - callers handle one class
    value = parse_json(text)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"a lone surrogate at character {error.start}") from None
    # Only these texts can hold what the decoder lets through, so that the common case pays for no second look.
    suspicious = text.count("{") + text.count("[") > MAX_JSON_DEPTH or (
        "\\u" in text and _SUSPICIOUS_ESCAPE.search(text) is not None
    )
    if suspicious and (problem := json_problem(value)):
        raise ValueError(problem)
    return value


def encode_json(value: Any) -> str:
    """The compact JSON text of a value. One for which ``json_problem`` has words raises ``ValueError`` at best."""
    return _encode(value)


def json_problem(value: Any) -> str | None:
    """Why a Python value has no JSON text that ``loads_strict`` reads back as the same value, or None if it has."""
    pending = [(value, 0)]
    while pending:
        item, depth = pending.pop()
        if isinstance(item, str):
            if problem := text_problem(item):
                return f"{problem} in {shown(item)}"
        elif isinstance(item, (bool, type(None))):
            continue
        elif isinstance(item, int):
            if not -_LARGEST_INTEGER <= item <= _LARGEST_INTEGER:
                return f"an integer of more than {MAX_INTEGER_DIGITS} digits"
        elif isinstance(item, float):
            if not math.isfinite(item):
                return f"{item} is not a JSON number"
        elif isinstance(item, (Mapping, list, tuple)):
            if depth >= MAX_JSON_DEPTH:
                return f"nested deeper than {MAX_JSON_DEPTH} levels"
            if isinstance(item, Mapping):
                for key, member in item.items():
                    if not isinstance(key, str):
                        return f"a key is {describe(key)}, not a string"
                    pending += ((key, depth), (member, depth + 1))
            else:
                pending += ((member, depth + 1) for member in item)
        else:
            return f"{describe(item)} has no JSON form"
    return None


def text_problem(text: str) -> str | None:
    """Why a string cannot be stored and read back as it is on every database, or None if it can."""
    if "\0" in text:
        return "a NUL character"
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            return "a lone surrogate"
    return None


def is_text(value: object) -> TypeGuard[str]:
    """Whether a value is a string that every database can store, and can be asked for."""
    return isinstance(value, str) and text_problem(value) is None


def whole_number(text: str) -> int | None:
    """The integer of 64 bits that a text is, None if it is none."""
    if _WHOLE.fullmatch(text) is None:
        return None
    found = int(text)
    return found if -(2**63) <= found < 2**63 else None


def describe(value: object) -> str:
    """A value for an error message: its type, and the value itself where that is short."""
    if value is None:
        return "null"
    name = type(value).__name__
    if isinstance(value, int) and not -_LARGEST_INTEGER <= value <= _LARGEST_INTEGER:
        return f"{name} of {value.bit_length()} bits"
    return f"{name} {shown(value)}" if isinstance(value, (str, int, float)) else name


def printable(text: str, *, lines: bool = False) -> str:
    """A text without the control characters that a stored name or value may hold; ``lines`` keeps its lines apart."""
    return (_replace_hidden if lines else _replace_in_line)(lambda found: _escaped(found.group()), text)


def shown(value: str | float) -> str:
    """A scalar for an error message: as Python writes it, cut short where it is long."""
    text = repr(value[:60] if isinstance(value, str) else value)
    return f"{text[:60]}…" if len(text) > 60 else text


_WHOLE = re.compile("-?[0-9]{1,19}")
_HIDDEN = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff"
"""What moves a terminal's cursor, commands it, or turns its direction, and what it cannot show."""
_replace_hidden = re.compile(f"[{_HIDDEN}]").sub
_replace_in_line = re.compile(f"[{_HIDDEN}\\t\\n]").sub
_LARGEST_INTEGER = 10**MAX_INTEGER_DIGITS - 1
_LONG_NUMBER = re.compile(rf"(?<![\d.])\d{{{MAX_INTEGER_DIGITS + 1}}}(?!\d*[.eE])")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_SUSPICIOUS_ESCAPE = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        owner = f" (the object with the name {members['name']!r})" if isinstance(members.get("name"), str) else ""
        raise ValueError(f"the key {twice!r} occurs twice in one object{owner}")
    return members


def _number_problem(text: str) -> str | None:
    """Long runs of digits may stand in strings, where they are no number."""
    outside = _STRING.sub('""', text)
    return f"an integer of more than {MAX_INTEGER_DIGITS} digits" if _LONG_NUMBER.search(outside) else None


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"the number {digits[:40]} is out of range")
    return number


def _constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


class _Encoder(json.JSONEncoder):
    def default(self, o: Any) -> Any:
        if hasattr(o, "to_dict"):
            return o.to_dict()
        if isinstance(o, Mapping):
            return dict(o)
        return super().default(o)


_encode = _Encoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
_decode = json.JSONDecoder(object_pairs_hook=_object, parse_float=_finite, parse_constant=_constant).decode
