"""Where the files lie that a log names: each by one real path, so that no other spelling hides that it is needed."""

import os
import re
import unicodedata
from urllib.parse import quote, unquote

from lakelog.actions import DeletionVector
from lakelog.errors import LakelogError
from lakelog.log.deletion_vectors import FileVector

_ABSOLUTE = re.compile(r"(?:([A-Za-z][A-Za-z0-9+.-]+):)?(?://([^/]*))?(/.*)", re.DOTALL)


def key_of(place: str) -> str:
    """The same for all names of a file where a file system does not tell case or Unicode's forms apart."""
    return place if place.isascii() and place.islower() else unicodedata.normalize("NFC", place).casefold()


class Places:
    """The files of one table, or of any table at the same location."""

    def __init__(self, location: str) -> None:
        if "://" in location:
            raise LakelogError(f"only tables on local disks can be looked after so far, not {location}")
        self.location = location
        self.root = os.path.realpath(location)
        """Without a symbolic link on the way."""
        self._directories: dict[str, str] = {}

    def of(self, path: str) -> str | None:
        """Where a file lies that the log names; None if that is not on this machine's disks."""
        absolute = _ABSOLUTE.fullmatch(path)
        if absolute is None:
            return self._real(f"{self.location}/{unquote(path)}")
        if (absolute[1] or "file").lower() != "file" or absolute[2] not in (None, "", "localhost"):
            return None
        return self._real(unquote(absolute[3]))

    def of_vector(self, text: str, file: str) -> str | None:
        """The file in which a deletion vector lies; None if it lies in the log, or not on this machine's disks."""
        vector = FileVector(
            file=file, rows=None, root=f"file://{quote(self.location)}", vector=DeletionVector.from_json(text)
        )
        try:
            place = vector.place
        except ValueError as error:
            raise LakelogError(f"the deletion vector of {file} cannot be found: it {error}") from error
        return None if place is None else self.of(place)

    def _real(self, place: str) -> str:
        directory, _, name = place.rpartition("/")
        known = self._directories.get(directory)
        if known is None:
            known = self._directories[directory] = os.path.realpath(directory)
        real = f"{known}/{name}"
        # A file that is a link itself is rare, and lies below the root only if somebody put it there.
        return os.path.realpath(real) if os.path.islink(real) else real  # noqa: PTH114 - for each file
