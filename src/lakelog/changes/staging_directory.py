"""The directory that a write has for itself, below the table's location."""

import shutil
from pathlib import Path

from lakelog.changes.leases import register_write, take_back
from lakelog.errors import CommitOutcomeUnknown, LakelogError
from lakelog.log.commit.committer import Committer
from lakelog.storage.uris import write_directory

CHANGE_DATA = "_change_data"
"""Where files of the change feed lie below a table's location, as in Delta."""


class OwnDirectory:
    """What is in it is nobody's until the commit, and goes if there was none. No vacuum touches it meanwhile."""

    def __init__(self, committer: Committer, location: str, registered: str | None = None) -> None:
        """``registered`` is the name of one that was begun elsewhere."""
        if "://" in location:
            raise LakelogError(f"rows can be written to local files only so far, not to {location}")
        self.name = registered or write_directory()
        self._committer = committer
        self._location = location
        self._has_lease = registered is not None

    def __enter__(self) -> "OwnDirectory":
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None and not isinstance(error, CommitOutcomeUnknown):
            self.discard()

    @property
    def leases(self) -> tuple[str, ...]:
        """What the commit of its files needs."""
        return (self.name,) if self._has_lease else ()

    def begin(self) -> None:
        """Registers that files are about to be written. For before the first of them; harmless when repeated."""
        if not self._has_lease:
            register_write(self._committer, self._location, self.name)
            self._has_lease = True

    def discard(self) -> None:
        """Deletes what was written, if it is proven that it is not committed. Otherwise it is left to a vacuum."""
        if self._has_lease and take_back(self._committer, self.name):
            for directory in (self.name, f"{CHANGE_DATA}/{self.name}"):
                shutil.rmtree(Path(self._location) / directory, ignore_errors=True)
        self._has_lease = False


def leases_of(*directories: OwnDirectory) -> tuple[str, ...]:
    return tuple(lease for own in directories for lease in own.leases)
