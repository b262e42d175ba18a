"""Which file paths an action may name.

A path in Delta's log is a URI by RFC 2396, relative to the table's root or absolute, percent-encoded exactly once. It
is decoded exactly once, too, when the file is opened; a path that would mean something else to a reader that decodes
it twice is refused, since such readers exist.
"""

import re
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.storage.uris import LOG_DIRECTORY

MAX_PATH_BYTES = 4096

# Segments that begin with a letter or a digit can be neither "." nor ".." nor empty nor the log's own directory.
# RE2, which Arrow uses, and Python's re agree on everything that this pattern uses.
_PLAIN = r"[A-Za-z0-9][A-Za-z0-9._=+-]*(?:/[A-Za-z0-9_][A-Za-z0-9._=+-]*)*"
_plain = re.compile(_PLAIN).fullmatch

_bad_escape = re.compile(r"%(?![0-9A-Fa-f]{2})").search
_control = re.compile(r"[\x00-\x1f\x7f-\x9f]").search
# What a URI's path cannot have as it is: java.net.URI, through which Spark opens files, throws on each of them.
_not_in_a_uri = re.compile(r'[\s"<>\[\]^`{|}]').search
_absolute = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]+:(?://[^/]*)?)?(/.*)", re.DOTALL).fullmatch


def path_problem(path: str, *, allow_absolute: bool = False) -> str | None:
    """Why an action may not name this path, or None if it may.

    With ``allow_absolute`` also ``/x``, ``file:///x`` and ``s3://bucket/x`` pass, under the same rules otherwise.
    """
    if _plain(path) and len(path) <= MAX_PATH_BYTES:
        return None
    return _text_problem(path) or _uri_problem(path, allow_absolute)


def bad_path_mask(paths: pa.Array | pa.ChunkedArray, *, allow_absolute: bool = False) -> pa.BooleanArray:
    """For each path whether ``path_problem`` has an objection; null counts as one. Plain paths cost no Python."""
    array = _one_array(paths)
    plain = pc.and_(
        pc.match_substring_regex(array, rf"\A{_PLAIN}\z"), pc.less_equal(pc.binary_length(array), MAX_PATH_BYTES)
    )
    bad = pc.invert(pc.fill_null(plain, False))
    suspects = pc.indices_nonzero(bad)
    if len(suspects) == 0:
        return bad
    verdicts = [
        path is None or path_problem(path, allow_absolute=allow_absolute) is not None
        for path in array.take(suspects).to_pylist()
    ]
    return pc.replace_with_mask(bad, bad, pa.array(verdicts, pa.bool_()))


def _one_array(paths: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(paths, pa.ChunkedArray):
        return pa.concat_arrays(paths.chunks) if paths.num_chunks else pa.array([], paths.type)
    return paths


def _text_problem(path: str) -> str | None:
    if not path:
        return "is empty"
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        return "contains a lone surrogate"
    if size > MAX_PATH_BYTES:
        return f"is {size} bytes long; at most {MAX_PATH_BYTES} are allowed"
    return _character_problem(path)


def _character_problem(text: str) -> str | None:
    if found := _control(text):
        return f"contains the control character U+{ord(found.group()):04X}"
    return "contains a backslash" if "\\" in text else None


def _uri_problem(path: str, allow_absolute: bool) -> str | None:
    if _bad_escape(path):
        return "contains a % that is not followed by two hexadecimal digits; write a literal % as %25"
    if found := _not_in_a_uri(path):
        return f"contains {found.group()!r}, which a URI cannot have; write it as {quote(found.group())}"
    for character, name in (("?", "query"), ("#", "fragment")):
        if character in path:
            return f"contains {character!r}, which begins a URI's {name}; write it as %{ord(character):02X}"
    if path.startswith("//"):
        return "begins with '//', which names a host"
    absolute = _absolute(path)
    if absolute and not allow_absolute:
        return "is absolute; only paths relative to the table's root are allowed"
    if not absolute and ":" in path.partition("/")[0]:
        return "has ':' in its first segment, which makes the part before it a scheme; write it as %3A"
    return _segment_problem(absolute.group(1)[1:] if absolute else path, bool(absolute))


def _segment_problem(path: str, absolute: bool) -> str | None:
    try:
        decoded = unquote(path, errors="strict")
    except UnicodeDecodeError:
        return "is not UTF-8 once its percent escapes are decoded"
    if problem := _character_problem(decoded):
        return f"{problem} once it is decoded"
    segments = decoded.split("/")
    for segment in segments:
        if not segment:
            return "has an empty segment, or a slash at its beginning or end"
        if segment in {".", ".."}:
            return f"has the segment {segment!r}"
        if unquote(segment) in {".", ".."}:
            return f"has the segment {segment!r}, which decoded a second time is {unquote(segment)!r}"
    if ".." in re.split(r"[/\\]", unquote(decoded)):
        return "has the segment '..' when it is decoded a second time"
    if LOG_DIRECTORY in (segment.casefold() for segment in (segments if absolute else segments[:1])):
        return f"lies in {LOG_DIRECTORY}, which belongs to the log"
    return None
