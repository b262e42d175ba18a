"""Any Delta log, in Lakelog's own words: which versions it tells, its commits, and its checkpoints.

Nothing is written, and nothing but the log is read. What is broken raises ``DeltaLogError``; whether Lakelog can take
in what was read (its paths, its features, its schema) is for ``lakelog.log.validation`` to say.
"""

from lakelog.delta_log.checkpoint import LogState, is_whole, read_checkpoint
from lakelog.delta_log.commit import LogCommit, read_commit
from lakelog.delta_log.listing import Checkpoint, LogListing, checkpoints_in, commits_in
from lakelog.errors import DeltaLogError
from lakelog.storage.log_store import LogStore

__all__ = [
    "Checkpoint",
    "LogCommit",
    "LogListing",
    "LogState",
    "list_log",
    "read_checkpoint",
    "read_commit",
]


def list_log(store: LogStore) -> LogListing:
    """The commits and checkpoints of a log.

    Raises ``DeltaLogError`` if there is no log, or none of its versions can be reconstructed.
    """
    files = store.files()
    commits = commits_in(files)
    checkpoints = tuple(_choose(store, candidates) for candidates in checkpoints_in(files))
    if not commits and not checkpoints:
        raise DeltaLogError(
            "expected a Delta log, found neither a commit nor a checkpoint. Check the table's location.", store.place
        )
    if 0 not in commits and not checkpoints:
        raise DeltaLogError(
            f"expected version 0 or a checkpoint to begin with, found commits from version {min(commits)} on. "
            "Restore the files that are missing.",
            store.place,
        )
    return LogListing(place=store.place, commits=commits, checkpoints=checkpoints)


def _choose(store: LogStore, candidates: list[Checkpoint]) -> Checkpoint:
    """One of a version's checkpoints. Only if all may have sidecars, and there are several, are these looked for."""
    if len(candidates) == 1 or not candidates[0].may_have_sidecars:
        return candidates[0]
    return next((each for each in candidates if is_whole(store, each)), candidates[0])
