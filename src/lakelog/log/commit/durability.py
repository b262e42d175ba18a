"""Data files reach the disk before the commit that names them: what is acknowledged is there after a power loss."""

import errno
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from lakelog.actions import AddFile, CdcFile, DeletionVector
from lakelog.errors import LakelogError
from lakelog.log.commit.files import AddFiles
from lakelog.log.deletion_vectors import FileVector
from lakelog.storage.uris import is_absolute, root_uri
from lakelog.threads import map_in_threads

if TYPE_CHECKING:
    from lakelog.catalog.base import Catalog
    from lakelog.log.commit.draft import Draft

DURABILITIES = ("full", "relaxed")
"""What ``connect`` takes. With the latter, the system writes files to the disk when it likes to."""

_WORKERS = 16

_log = logging.getLogger("lakelog.commit")

_NOT_THERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP})
"""The log does not ask for that."""
_NOT_OURS = frozenset({errno.EACCES, errno.EPERM})
"""Somebody else has written it, and has to have synced it."""

_UNKNOWN = frozenset({errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EROFS})
"""From file systems that have no such call, for directories mostly."""


class DataSync:
    """Syncs the files that commits add below their tables' locations on local disks, and the directories they are in.

    Object stores acknowledge an object only when it is durable.
    """

    def __init__(self, catalog: "Catalog", durability: str = "full") -> None:
        self._catalog = catalog
        self._full = durability == "full"
        self.locations: dict[int, str] = {}
        """Where tables lie, which never changes."""
        self._anchored: set[str] = set()
        """Locations whose own entries, and those of the directories above, are on disk."""

    def locate(self, drafts: Sequence["Draft"]) -> None:
        """Asks the catalog where the tables lie whose files are to be synced, so that ``before_commit`` need not."""
        for draft in drafts:
            if self._full and _may_have_files(draft):
                self._location(draft.table_id)

    def before_commit(self, drafts: Sequence["Draft"]) -> None:
        """Raises ``LakelogError`` if a file cannot be made durable. For when no lock is held, if that can be."""
        for draft in drafts:
            if self._full and _may_have_files(draft):
                self._sync(draft, self._location(draft.table_id))

    def before_creation(self, draft: "Draft", location: str | None) -> None:
        """The same for a table that begins with files."""
        if self._full and _may_have_files(draft):
            self._sync(draft, location)

    def before_import(self, table_id: int, actions: Iterable[Any]) -> None:
        """The same for commits that somebody else has made, who need not have synced their files."""
        location = self._location(table_id)
        if self._full and location is not None:
            self._sync_paths(_added_paths(actions, location), location)

    def _location(self, table_id: int) -> str | None:
        if table_id not in self.locations:
            with self._catalog.session() as session:
                rows = session.fetch(self._catalog.queries["table_by_id"], {"table_id": table_id})
            if not rows:
                return None
            self.locations[table_id] = rows[0][2]
        return self.locations[table_id]

    def _sync(self, draft: "Draft", location: str | None) -> None:
        if location is not None:
            self._sync_paths(_new_paths(draft, location), location)

    def _sync_paths(self, paths: Iterable[str], location: str) -> None:
        if "://" in location:
            return
        names: dict[str, list[str]] = {}
        for path in paths:
            directory, _, name = f"{location}/{unquote(path)}".rpartition("/")
            names.setdefault(directory, []).append(name)
        there = {directory: found for directory, found in names.items() if _is_directory(directory)}
        if not there:
            return
        anchors = [] if location in self._anchored else map(str, Path(location).parents)
        directories = {above for directory in there for above in _up_to(directory, location)}.union(anchors)
        # Spark reads no file whose checksum beside it is torn.
        files = [
            f"{directory}/{each}"
            for directory, found in there.items()
            for name in found
            for each in (name, f".{name}.crc")
        ]
        if closed := _sync_all([*files, *directories]):
            message = "%s cannot be opened to be synced, nor %d others: whoever wrote them has to have done that"
            _log.warning(message, closed[0], len(closed) - 1)
        self._anchored.add(location)


def _may_have_files(draft: "Draft") -> bool:
    return bool(draft.adds.count or draft.change_paths)


def _new_paths(draft: "Draft", location: str) -> Iterator[str]:
    """Files below the table's location that no version had before, as the log names them."""
    yield from draft.change_paths
    if draft.inherited.version is not None and draft.inherited.table_id is None:
        return
    known = set(draft.removes.paths)
    paths = draft.adds.paths
    for path in paths if isinstance(paths, list) else paths.to_pylist():
        if path not in known and not is_absolute(path):
            yield path
    yield from {path for vector in draft.adds.stored_vectors if (path := _vector_path(vector, root_uri(location)))}


def _added_paths(actions: Iterable[Any], location: str) -> Iterator[str]:
    """Files below a table's location that actions add."""
    vectors: list[DeletionVector] = []
    for action in actions:
        if isinstance(action, AddFiles):
            yield from (path for path in action.table.column("path").to_pylist() if not is_absolute(path))
            if "deletion_vector" in action.table.column_names:
                vectors += map(DeletionVector.from_json, action.table.column("deletion_vector").drop_null().to_pylist())
        elif isinstance(action, AddFile | CdcFile) and not is_absolute(action.path):
            yield action.path
        if isinstance(action, AddFile) and action.deletion_vector is not None:
            vectors.append(action.deletion_vector)
    yield from {path for vector in vectors if (path := _vector_path(vector, root_uri(location)))}


def _vector_path(vector: DeletionVector, root: str) -> str | None:
    """Where a deletion vector lies below the table's location; None if it lies elsewhere, or cannot be read."""
    try:
        place = FileVector(file="", rows=None, root=root, vector=vector).place
    except ValueError:
        return None
    return place[len(root) + 1 :] if place is not None and place.startswith(f"{root}/") else None


def _up_to(directory: str, location: str) -> Iterator[str]:
    """A directory and those above it, as far as the location."""
    while len(directory) > len(location):
        yield directory
        directory = directory.rpartition("/")[0]
    yield location


def _is_directory(path: str) -> bool:
    try:
        return os.path.isdir(path)  # noqa: PTH112
    except ValueError:
        return False


def _sync_all(paths: Sequence[str]) -> list[str]:
    """Many at once: a journal's write makes all of them durable that wait for one.

    Returns those that this process must not open, but for directories above, which nobody here has made.
    """
    parts = [paths[start::_WORKERS] for start in range(min(_WORKERS, len(paths)))]
    closed = (
        [path for found in map_in_threads(_sync_each, parts) for path in found] if len(paths) > 2 else _sync_each(paths)
    )
    return [path for path in closed if not _is_directory(path)]


def _sync_each(paths: Iterable[str]) -> list[str]:
    closed: list[str] = []
    for path in paths:
        try:
            # A pipe that somebody put there would wait for its other end.
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno in _NOT_OURS:
                closed.append(path)
            elif error.errno not in _NOT_THERE:
                raise _not_durable(path, error) from error
            continue
        except ValueError:
            continue
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _UNKNOWN:
                raise _not_durable(path, error) from error
        finally:
            os.close(descriptor)
    return closed


def _not_durable(path: str, error: OSError) -> LakelogError:
    return LakelogError(
        f"{path} cannot be made durable ({error.strerror}): nothing was committed. Look at the disk and its quota, "
        "and write again"
    )
