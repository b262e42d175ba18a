"""Which files the catalog needs, and which it only remembers."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.catalog.base import Session
from lakelog.catalog.queries import Queries
from lakelog.delta_log.names import version_of
from lakelog.errors import LakelogError
from lakelog.log.state import Head
from lakelog.mirror.status import BEHIND, OFF, STOPPED
from lakelog.storage.log_store import log_store
from lakelog.upkeep.places import Places, key_of

if TYPE_CHECKING:
    from lakelog.log.table import Table
    from lakelog.opening.engine import Engine


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The files that the log names, by the keys of their real paths."""

    needed: set[str] = field(default_factory=set)
    gone: dict[str, int] = field(default_factory=dict)
    """Files that no version needs any more, and the first version that did not; 0 for what no version ever read."""


def known_files(session: Session, queries: Queries, head: Head, places: Places, since: int | None) -> KnownFiles:
    """The files that versions from ``since`` on need, and the others. Without ``since``, all are needed."""
    known = KnownFiles()
    for path, vector, removed_version in session.fetch(queries["known_files"], {"table_id": head.table_id}):
        gone = since is not None and removed_version is not None and removed_version <= since
        for place in _places(places, path, vector):
            _note(known, place, removed_version if gone else None)
    for path, version in session.fetch(queries["known_cdc_files"], {"table_id": head.table_id}):
        for place in _places(places, path, None):
            _note(known, place, 0 if since is not None and version < since else None)
    for path, vector in session.fetch(queries["absolute_files"], {"table_id": head.table_id}):
        for place in _places(places, path, vector):
            _note(known, place, None)
    for key in known.needed:
        known.gone.pop(key, None)
    return known


def refuse_overlap(lake: "Engine", dataset: "Table", places: Places) -> None:
    """Raises ``LakelogError`` if a link makes the location another table's, too: whose files are there is unclear."""
    catalog = lake.committer.catalog
    with catalog.session() as session:
        others = {row[0] for row in session.fetch(catalog.queries["locations"], {})} - {dataset.location}
    for other in others:
        if "://" in other:
            continue
        real = str(Path(other).resolve())
        if f"{real}/".startswith(f"{places.root}/") or f"{places.root}/".startswith(f"{real}/"):
            raise LakelogError(
                f"{dataset.location} and {other}, which belongs to another dataset, are the same place by a symbolic "
                "link, so that it is unclear whose files are there: nothing was deleted"
            )


def refuse_unknown_commits(lake: "Engine", dataset: "Table") -> None:
    """Raises ``LakelogError`` if the table's log has commits that the catalog lacks.

    That is so after a backup was restored, or when another engine has written to the table. Their files would look
    like orphans.
    """
    status = lake.mirror.status(dataset.id)
    if status.state == OFF:
        return
    try:
        commits = [version_of(file.name) or 0 for file in log_store(dataset.location).files()]
    except OSError as error:
        raise LakelogError(f"nothing was deleted: the log of {dataset.name!r} cannot be looked at: {error}") from error
    # The head last: what it is now was published after that.
    if status.state in (STOPPED, BEHIND) or max(commits, default=0) > dataset.version:
        raise LakelogError(
            f"nothing was deleted: _delta_log of {dataset.name!r} may have commits that the catalog does not have "
            f"({status.error or 'it is ahead of it'}), and their files would look like orphans. Take them over with "
            "dataset.adopt(), or move them away with dataset.mirror(set_aside=True)"
        )


def _places(places: Places, path: str, vector: str | None) -> list[str]:
    found = [places.of(path), None if vector is None else places.of_vector(vector, path)]
    return [place for place in found if place is not None]


def _note(known: KnownFiles, place: str, gone: int | None) -> None:
    key = key_of(place)
    if gone is None:
        known.needed.add(key)
    else:
        known.gone[key] = max(known.gone.get(key, 0), gone)
