"""Field metadata: bytes to bytes in Arrow, a JSON object in Delta.

Keys and strings are UTF-8 and stay as they are: ``b"a note"`` in Arrow is ``"a note"`` in Delta. Every other JSON value
is in Arrow its JSON text behind the mark ``json:``, so that ``"delta.columnMapping.id": 4`` in Delta is
``b"json:4"`` in Arrow. A value that begins with the mark but goes on with something that is not JSON is a plain string.
A string that would be mistaken for a marked value is marked itself: ``"json:4"`` in Delta is ``b'json:"json:4"'``.

Both directions undo each other; of a marked value, only the spelling of its JSON (spaces, ``1.0e1``) is normalised.
"""

from collections.abc import Mapping
from typing import Any

from lakelog.strict_json import encode_json, parse_json

_MARK = "json:"


def to_json_object(metadata: Mapping[bytes, bytes]) -> dict[str, Any]:
    """Arrow's metadata as Delta's. Bytes that are not UTF-8 raise ``UnicodeDecodeError``."""
    return {key.decode(): _json_value(value.decode()) for key, value in metadata.items()}


def from_json_object(metadata: Mapping[str, Any]) -> dict[bytes, bytes]:
    """Delta's metadata as Arrow's. Strings with lone surrogates raise ``UnicodeEncodeError``."""
    return {key.encode(): _arrow_text(value).encode() for key, value in metadata.items()}


def _json_value(text: str) -> Any:
    if not text.startswith(_MARK):
        return text
    try:
        return parse_json(text.removeprefix(_MARK))
    except ValueError:
        return text


def _arrow_text(value: Any) -> str:
    if isinstance(value, str) and _json_value(value) == value:
        return value
    return _MARK + encode_json(value)
