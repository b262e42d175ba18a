"""The demo from end to end: it tells the story, and checks that it is true."""

import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow.compute as pc
from pyspark.sql import functions as F

import lakelog
from lakelog import ConfigurationError, read_dataset
from lakelog.catalog.url import shown
from lakelog.demo import story
from lakelog.demo.events import RELEASE, Shop, day
from lakelog.demo.pipeline import BRONZE, GOLD, QUARANTINE, SILVER, rows_of
from lakelog.demo.race import RATINGS
from lakelog.demo.show import Show
from lakelog.demo.story import Demo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = (BRONZE, QUARANTINE, SILVER, GOLD, RATINGS)

_PROBLEMS = {"cut": "not JSON", "price": "no price", "country": "unknown country"}
_MARK = ".lakelog-demo"
"""A file that says that the directory is the demo's own."""


def run(spark: "SparkSession", show: Show, *, catalog: str | None, directory: Path, rows: int) -> bool:
    """Runs the demo, whose files of an earlier run go first. True if all that it claims is so.

    Raises ``ConfigurationError`` if the directory, or a dataset of the demo's names, is somebody else's.
    """
    directory = directory.absolute()
    _take_directory(directory)
    if catalog is not None:
        _drop_datasets(catalog, directory)
    _empty_directory(directory)
    url = catalog or f"sqlite:///{quote(str(directory / 'catalog.db'))}"
    start = time.monotonic()
    with lakelog.connect(url, directory / "tables") as lake:
        demo = Demo(spark=spark, lake=lake, url=url, directory=directory, shop=Shop(rows=rows), show=show)
        for chapter in _CHAPTERS:
            chapter(demo)
        _verify(demo)
        _summary(demo, time.monotonic() - start)
    return all(claim.holds for claim in demo.claims)


_CHAPTERS = (
    story.first_days,
    story.new_release,
    story.two_writers,
    story.lost_update,
    story.replay,
    story.time_travel,
    story.pruning,
)


def _verify(demo: Demo) -> None:
    """Holds what is in the tables against what the shop has sent."""
    show, lake = demo.show, demo.lake
    show.chapter("8. Does it add up?")
    with show.step("count what was sent, and what is there"):
        planted = demo.shop.planted(demo.spark)
        sent = demo.spark.read.text(str(demo.directory / "landing")).count()
        found = {
            row.problem: row["count"] for row in read_dataset(lake, QUARANTINE).groupBy("problem").count().collect()
        }
        ids = read_dataset(lake, SILVER).agg(F.count_distinct("event_id")).first()
    bronze, silver, refused = (rows_of(lake, name) for name in (BRONZE, SILVER, QUARANTINE))
    repeated = planted.get("repeated", 0) // 2
    show.say(f"{sent:,} lines = {silver:,} events + {refused:,} in quarantine + {repeated:,} sent twice")
    demo.claim("every line that was sent is in bronze", sent, bronze)
    demo.claim("sent = silver + quarantine + sent twice", sent, silver + refused + repeated)
    demo.claim("every event is in silver once", silver, ids[0] if ids else None)
    for flaw, problem in _PROBLEMS.items():
        demo.claim(f"quarantine has all lines with the problem: {problem}", planted.get(flaw, 0), found.get(problem, 0))
    rows = [(each.text, each.expected, each.found, "✓" if each.holds else "✗ WRONG") for each in demo.claims]
    show.table(["claim", "expected", "found", ""], rows)


def _summary(demo: Demo, seconds: float) -> None:
    show, lake = demo.show, demo.lake
    show.chapter("What there is now")
    sizes = {name: lake.dataset(name).snapshot().files(columns=["size", "row_count"]) for name in NAMES}
    show.table(
        ["dataset", "versions", "files", "rows", "MB"],
        [
            (
                name,
                lake.dataset(name).version + 1,
                files.num_rows,
                _sum(files, "row_count"),
                round(_sum(files, "size") / 1e6, 1),
            )
            for name, files in sizes.items()
        ],
    )
    show.say(f"History of {GOLD}:")
    show.history(lake.dataset(GOLD))
    broken = [claim for claim in demo.claims if not claim.holds]
    show.say(
        f"{len(demo.claims) - len(broken)} of {len(demo.claims)} claims hold, {seconds:.0f} s after Spark had started."
    )
    show.say(f"Catalog: {shown(demo.url)}")
    show.say(f"Files:   {demo.directory}")
    show.chapter("Go on with")
    for command in _commands(demo):
        show.command(command)


def _commands(demo: Demo) -> list[str]:
    catalog = shlex.quote(shown(demo.url))
    program = "lakelog" if shutil.which("lakelog") else shlex.quote(sys.argv[0])
    return [
        f"export LAKELOG_CATALOG={catalog}",
        f"{program} history {GOLD}",
        f"{program} files {SILVER} --where \"day = '{day(RELEASE)}' AND country = 'DE'\"",
    ]


def _sum(files: Any, column: str) -> int:
    return int(pc.sum(files.column(column)).as_py() or 0)


def _take_directory(directory: Path) -> None:
    try:
        if directory.is_dir() and any(directory.iterdir()) and not (directory / _MARK).is_file():
            raise ConfigurationError(
                f"{directory} has files that are not of an earlier demo: choose another one with --directory"
            )
        directory.mkdir(parents=True, exist_ok=True)
        (directory / _MARK).touch()
    except OSError as error:
        raise ConfigurationError(f"cannot use the directory {directory} for the demo: {error.strerror}") from error


def _drop_datasets(url: str, directory: Path) -> None:
    """Drops what an earlier demo in this directory has left in a catalog that stays."""
    with lakelog.connect(url, directory / "tables") as lake:
        earlier = [dataset for dataset in lake.datasets() if dataset.name in NAMES]
        for dataset in earlier:
            if not dataset.location.startswith(f"{directory}/"):
                raise ConfigurationError(
                    f"{dataset.name!r} exists in {shown(url)} and lies in {dataset.location}: run the demo with the "
                    "--directory of that run, or drop the dataset"
                )
        for dataset in earlier:
            lake.drop_dataset(dataset.name)


def _empty_directory(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        elif entry.name != _MARK:
            entry.unlink()
