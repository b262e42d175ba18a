"""Times of commits that are ahead of the clock, of which somebody has to be told."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from lakelog.catalog.base import now_ms
from lakelog.log.commit.draft import Draft
from lakelog.telemetry import log

CLOCKS_APART = 60_000
"""Milliseconds by which two clocks may differ."""


class AheadOfTheClock:
    """Warns of commits that are ahead of this machine's clock, once for each table."""

    def __init__(self) -> None:
        self._tables: set[int] = set()

    def warn(self, drafts: Sequence[Draft]) -> None:
        """Never raises: the drafts are committed."""
        latest = now_ms() + CLOCKS_APART
        for draft in drafts:
            if draft.committed is None or draft.imported:
                continue
            result = draft.committed.result
            if result.committed_at > latest and result.table_id not in self._tables:
                self._tables.add(result.table_id)
                log.warning(
                    "version %d of %s was committed at %s, which is ahead of this machine's clock: this clock is "
                    "wrong, or that of an earlier commit was. Commit times never go back, so a timestamp before then "
                    "does not find these versions; lake.check() names the first of them",
                    result.version,
                    result.table,
                    time_text(result.committed_at),
                )


def time_text(milliseconds: int) -> str:
    """A time as people write it, or as the catalog has it where no calendar goes so far."""
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)).isoformat()
    except OverflowError:
        return f"{milliseconds} ms since 1970"
