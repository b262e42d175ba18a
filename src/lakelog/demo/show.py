"""What the demo prints: steps with a bar while Spark works, and tables. Plain lines where there is no terminal."""

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.padding import Padding
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from lakelog.terminal import history, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakelog import Dataset

_LOOK = 0.2
"""Seconds between two looks at what Spark does."""


@dataclass
class Show:
    """Prints."""

    console: Console
    spark: "SparkSession | None" = None

    def chapter(self, title: str) -> None:
        self.console.print(f"\n[bold]{escape(title)}[/bold]")

    def say(self, text: str) -> None:
        self.console.print(f"  {escape(text)}")

    def quote(self, text: str) -> None:
        """What Lakelog said, word for word."""
        for line in text.splitlines():
            self.console.print(f"    [yellow]{escape(line)}[/yellow]")

    def command(self, text: str) -> None:
        """A line to paste, in one piece."""
        self.console.print(f"  [cyan]{escape(text)}[/cyan]", soft_wrap=True)

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """A line for something that takes a while."""
        start = time.monotonic()
        with self._bar(title):
            yield
        took = time.monotonic() - start
        self.console.print(f"  [green]✓[/green] {escape(title)} [dim]{took:.1f} s[/dim]")

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        self.console.print(Padding(table(columns, rows), (0, 0, 0, 2), expand=False))

    def history(self, dataset: "Dataset") -> None:
        self.console.print(Padding(history(dataset), (0, 0, 0, 2), expand=False))

    @contextmanager
    def _bar(self, title: str) -> Iterator[None]:
        if not self.console.is_terminal:
            yield
            return
        columns = [
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[tasks]}"),
            TimeElapsedColumn(),
        ]
        with Progress(*columns, console=self.console, transient=True) as progress:
            task = progress.add_task(title, total=None, tasks="")
            done = threading.Event()
            watcher = threading.Thread(target=_watch, args=(self.spark, progress, task, done), daemon=True)
            watcher.start()
            try:
                yield
            finally:
                done.set()
                watcher.join()


def _watch(spark: "SparkSession | None", progress: Progress, task: TaskID, done: threading.Event) -> None:
    """Moves the bar with the tasks of the stages that Spark works on."""
    while spark is not None and not done.wait(_LOOK):
        tracker = spark.sparkContext.statusTracker()
        stages = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage))]
        if stages:
            finished, total = (
                sum(stage.numCompletedTasks for stage in stages),
                sum(stage.numTasks for stage in stages),
            )
            progress.update(task, completed=finished, total=total, tasks=f"Spark: {finished} of {total} tasks")
