"""The directory that a write has for itself, below the table's location."""

import shutil
from pathlib import Path

from lakelog.errors import CommitOutcomeUnknown, LakelogError
from lakelog.log.commit import Committer
from lakelog.log.places import write_directory
from lakelog.upkeep.writes import Lease, end_write, register_write, renew_write

CHANGE_DATA = "_change_data"
"""Where files of the change feed lie below a table's location, as in Delta."""


class OwnDirectory:
    """What is in it is nobody's until the commit, and goes if there was none. No vacuum touches it meanwhile."""

    def __init__(self, committer: Committer, location: str) -> None:
        if "://" in location:
            raise LakelogError(f"rows can be written to local files only so far, not to {location}")
        self.name = write_directory()
        self._committer = committer
        self._location = location
        self._lease: Lease | None = None
        self._sent = False

    def __enter__(self) -> "OwnDirectory":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        # Once a commit was tried, only our own word that nothing was committed lets the files go.
        failed = isinstance(error, LakelogError if self._sent else BaseException)
        if failed and not isinstance(error, CommitOutcomeUnknown):
            self.discard()

    def begin(self) -> None:
        """Tells that files are about to be written to it. For before the first of them; harmless when repeated."""
        if self._lease is None:
            self._lease = register_write(self._committer, self._location, self.name)

    def sending(self) -> None:
        """Tells that the commit of its files is tried from here on. Raises ``LakelogError`` if they may be gone."""
        if self._lease is not None:
            self._lease = renew_write(self._committer, self._lease)
        self._sent = True

    def end(self) -> None:
        """Tells that nothing of it is in flight any more: the files are part of the table, or gone."""
        if self._lease is not None:
            end_write(self._committer, self.name)
            self._lease = None

    def discard(self) -> None:
        """Deletes what was written. Only for who knows that it is not committed."""
        for directory in (self.name, f"{CHANGE_DATA}/{self.name}"):
            shutil.rmtree(Path(self._location) / directory, ignore_errors=True)
        self.end()
