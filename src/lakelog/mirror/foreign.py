"""Files in a log that are not ours: what they do to the mirror, and what a person is told of them."""

import logging

from lakelog.delta_log.names import version_of
from lakelog.errors import DatasetExistsError
from lakelog.mirror.ownership import Verdict, described, judge
from lakelog.mirror.status import BEHIND, STOPPED
from lakelog.storage.log_store import LogStore, log_store

_log = logging.getLogger("lakelog.mirror")


def objection(
    store: LogStore, name: str, found: bytes, expected: bytes | None, commit_id: str | None
) -> tuple[str, str]:
    """The state that a file puts the mirror in, and why."""
    if judge(found, expected, commit_id) is Verdict.LOST:
        return BEHIND, f"{name} in {store.place} is a commit of Lakelog that this catalog does not have"
    return STOPPED, f"{name} in {store.place} was written by {described(found)}"


def read_only(place: str, error: str | None) -> str:
    return (
        f"the table takes no commits: its log {place} has more than this catalog, as after a restored backup "
        f"({error}). Take the log's commits over with dataset.adopt(), or keep the catalog's and move the others "
        "away with dataset.mirror(set_aside=True)"
    )


def refuse_foreign(location: str) -> None:
    """Raises ``DatasetExistsError`` if a Delta log is at a place where a table is to be created."""
    store = log_store(location)
    try:
        found = next((each.name for each in store.files() if version_of(each.name) is not None), None)
    except OSError as error:
        # Then nothing will be written there either, and the mirror says so.
        _log.warning("cannot look whether there is a Delta table at %s: %s", location, error)
        return
    if found is not None:
        raise DatasetExistsError(
            f"there is a Delta table at {location!r} ({found}): take it over with lake.import_delta, "
            "or choose another location"
        )
