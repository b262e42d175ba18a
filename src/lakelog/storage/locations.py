"""Where a lake and its datasets live."""

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

from lakelog.errors import ConfigurationError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

_DIRECTORY = 200
"""Characters of a dataset's directory; file systems hold 255 bytes, and a suffix may follow."""


def root_directory(url: str, root: str | os.PathLike[str] | None, *, create: bool) -> str | None:
    """Where new datasets of a catalog live, made if need be; None if nothing says it. Raises ``ConfigurationError``."""
    if root is None:
        if url.startswith("postgres"):
            return None
        root = _directory_of_file(url)
    place = absolute(root)
    if create and "://" not in place:
        try:
            Path(place).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigurationError(f"cannot create the root directory {place}: {error.strerror}") from error
        if not os.access(place, os.W_OK):
            raise ConfigurationError(f"the root directory {place} is not writable")
    return place


@contextmanager
def removing_new_directories(url: str, root: str | os.PathLike[str] | None) -> Iterator[None]:
    """If the block fails, removes the empty directories of a catalog and its root that were not there before."""
    places = [] if url.startswith("postgres") else [_directory_of_file(url)]
    if root is not None and "://" not in (place := absolute(root)):
        places.append(Path(place))
    new = {each for place in places for each in (place, *place.parents) if not os.access(each, os.F_OK)}
    try:
        yield
    except BaseException:
        for each in sorted(new, key=lambda each: len(each.parts), reverse=True):
            with suppress(OSError):
                each.rmdir()
        raise


def _directory_of_file(url: str) -> Path:
    return Path(unquote(url.partition(":///")[2]) or ".").parent


def absolute(location: str | os.PathLike[str]) -> str:
    """A path or URI in the one form that the catalog has. Raises ``ConfigurationError``."""
    location = os.fspath(location)
    if not location:
        raise ConfigurationError("a location is a path or a URI, not an empty text")
    if location.startswith("file:/"):
        location = unquote(urlsplit(location).path)
    if "://" in location:
        return location.rstrip("/")
    if _SCHEME.match(location):
        raise ConfigurationError(f"{location!r} is neither a path nor a URI: write it with ://, as in s3://bucket/path")
    # POSIX leaves two slashes at the beginning to the system, for which they are one.
    return str(Path(re.sub("^//+", "/", os.path.normpath(location))).absolute())


def real(location: str | os.PathLike[str]) -> str:
    """A location that exists, by its one name."""
    place = absolute(location)
    return place if "://" in place else str(Path(place).resolve())


def is_filled(location: str) -> bool:
    """Whether there is anything at a location that may be somebody's. Hidden files are nobody's; object stores are not
    asked."""
    if "://" in location:
        return False
    try:
        return any(not each.name.startswith(".") for each in Path(location).iterdir())
    except NotADirectoryError:
        return True
    except OSError:
        return False


def directory_of(name: str) -> str:
    """The directory of a dataset: its name, escaped, and cut where a file system could not hold it."""
    escaped = quote(name, safe=" -_.")
    if len(escaped) <= _DIRECTORY:
        return escaped
    digest = hashlib.blake2b(name.encode(), digest_size=8).hexdigest()
    return f"{escaped[:_DIRECTORY].rpartition('%')[0] or escaped[:_DIRECTORY]}-{digest}"
