"""What the command line prints: tables that a person can read, in a terminal or not."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from lakelog.strict_json import printable, whole_number

if TYPE_CHECKING:
    from lakelog import Commit, Dataset

_WIDTH = 160
"""Of lines that go to no terminal."""

_LONGEST_METRIC = 40
"""Characters of what a foreign writer gives for a number."""


def console() -> Console:
    """Standard output."""
    found = Console(highlight=False)
    return found if found.is_terminal else Console(highlight=False, width=_WIDTH)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """Rows under their columns. Numbers stand on the right, with separators."""
    rows = [list(row) for row in rows]
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for index, name in enumerate(columns):
        numeric = bool(rows) and all(_is_number(row[index]) for row in rows)
        made.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*[escape(f"{value:,}" if _is_number(value) else printable(str(value))) for value in row])
    return made


@contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A bar on standard error, while there is a terminal; to be told how many are done, of how many."""
    bar = Progress(
        TextColumn("{task.completed:,} of {task.total:,} " + what),
        BarColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.disable = not bar.console.is_terminal
    with bar:
        task = bar.add_task(what, total=0)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def history(dataset: "Dataset", limit: int | None = None) -> Table:
    """A dataset's commits, newest first."""
    return table(
        ["version", "time (UTC)", "operation", "rows", "files", "committer"],
        [
            (
                commit.version,
                f"{commit.timestamp:%Y-%m-%d %H:%M:%S}",
                commit.operation,
                _metric(commit, "numOutputRows"),
                _metric(commit, "numFiles"),
                commit.committer or "",
            )
            for commit in dataset.history(limit)
        ],
    )


def _metric(commit: "Commit", name: str) -> Any:
    """What the writer said of its commit; not every writer does."""
    metrics = commit.extra.get("operationMetrics")
    value = str(metrics.get(name, "")) if isinstance(metrics, dict) else ""
    count = whole_number(value)
    return value[:_LONGEST_METRIC] if count is None else count


def _is_number(value: Any) -> bool:
    return not isinstance(value, str | bool) and hasattr(value, "__float__")
