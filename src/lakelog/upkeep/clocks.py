"""The clocks that a vacuum goes by. If they disagree, nobody knows how old a file is."""

import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.catalog.base import now_ms
from lakelog.errors import LakelogError
from lakelog.log.commit.times import CLOCKS_APART, time_text

if TYPE_CHECKING:
    from lakelog.log.commit.committer import Committer


def agreed_time(committer: "Committer", root: str) -> int:
    """The catalog's time in milliseconds.

    Raises ``LakelogError`` if it, this machine's and that of a file that is made below a location are more than a
    minute apart.
    """
    before = now_ms()
    with committer.catalog.session() as session:
        found = {"the catalog's database": committer.now(session)}
    if Path(root).is_dir():
        found[f"the file system of {root}"] = _time_of_a_file(root)
    after = now_ms()
    # How far each is ahead, without what it took to ask.
    ahead = {name: max(time - after, 0) or min(time - before, 0) for name, time in found.items()}
    ahead["this machine"] = 0
    slow, fast = min(ahead, key=ahead.__getitem__), max(ahead, key=ahead.__getitem__)
    if ahead[fast] - ahead[slow] > CLOCKS_APART:
        raise LakelogError(
            f"nothing was deleted: the clock of {fast} says {time_text(after + ahead[fast])}, that of {slow} "
            f"{time_text(after + ahead[slow])}, and a vacuum goes by the age of files and leases. Expected at most "
            f"{CLOCKS_APART // 1000} seconds between them: set the clock that is wrong, and vacuum again"
        )
    return found["the catalog's database"]


def _time_of_a_file(root: str) -> int:
    probe = Path(root, f".lakelog-clock-{uuid.uuid4().hex}")
    try:
        try:
            probe.touch(exist_ok=False)
            return probe.stat().st_mtime_ns // 1_000_000
        finally:
            with suppress(FileNotFoundError):
                probe.unlink()
    except OSError as error:
        raise LakelogError(f"nothing was deleted: no file can be made below {root}: {error.strerror}") from error
