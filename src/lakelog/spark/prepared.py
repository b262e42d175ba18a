"""A change whose files are written and that is not committed yet: by itself, or with those of other tables."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Generic, TypeVar

from lakelog.lake import Lake
from lakelog.log.commit import CommitResult
from lakelog.log.retry import Prepared, commit_with_retries
from lakelog.spark.stage import Stage

Result = TypeVar("Result")


@dataclass(frozen=True, kw_only=True)
class PreparedChange(Generic[Result]):
    """What a write, delete, update or merge commits, and what its caller is told of it then."""

    prepared: Prepared | None
    """None if there is nothing to commit."""
    told: Callable[[CommitResult | None], Result]
    stages: tuple[Stage, ...] = ()
    """Files that go if this is never committed."""

    def commit(self, lake: Lake, retries: int) -> Result:
        """Commits it by itself."""
        if self.prepared is None:
            return self.told(None)
        with ExitStack() as stack:
            for stage in self.stages:
                stack.push(stage.sending())
            (result,) = commit_with_retries(lake.committer, [self.prepared], retries=retries)
        for stage in self.stages:
            stage.end()
        return self.told(result)
