"""A change whose files are written and that is not committed yet: by itself, or with those of other tables."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from lakelog.changes.changeset import Contents
from lakelog.changes.conflicts import Reads
from lakelog.changes.retry import Prepared, commit_with_retries
from lakelog.changes.staging_directory import OwnDirectory
from lakelog.log.commit.outcomes import CommitResult
from lakelog.opening.engine import Engine

Result = TypeVar("Result")


def prepared_from(contents: Contents, base_version: int, reads: Reads) -> Prepared:
    return Prepared(table_id=contents.table_id, base_version=base_version, draft_for=contents.draft, reads=reads)


@dataclass(frozen=True, kw_only=True)
class PreparedChange(Generic[Result]):
    """What a write, delete, update or merge commits, and what its caller is told of it then."""

    contents: Contents | None
    """None if there is nothing to commit."""
    base_version: int
    reads: Reads = field(default_factory=Reads)
    told: Callable[[CommitResult | None], Result]
    directories: tuple[OwnDirectory, ...] = ()
    """With files that go if this is never committed."""

    def commit(self, lake: Engine, retries: int) -> Result:
        """Commits it by itself."""
        return self.told(self.send(lake, retries))

    def send(self, lake: Engine, retries: int) -> CommitResult | None:
        """Commits it by itself; None if there is nothing to commit."""
        if self.contents is None:
            return None
        with ExitStack() as stack:
            for own in self.directories:
                stack.push(own)
            prepared = prepared_from(self.contents, self.base_version, self.reads)
            (result,) = commit_with_retries(lake.committer, [prepared], retries=retries)
        return result
