"""The demo runs on every database, checks itself, and never touches what is not its own."""

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from rich.console import Console

import lakelog
from lakelog import ConfigurationError
from lakelog.demo import pipeline, story
from lakelog.demo.events import DELIVERIES, Shop
from lakelog.demo.run import NAMES, run
from lakelog.demo.show import Show
from tests.fixtures.lakes import BACKENDS
from tests.invariants import check_invariants

ROWS = 20_000


class Printed(Show):
    """Keeps what was printed."""

    def __init__(self, spark: SparkSession, *, terminal: bool = False) -> None:
        self.file = io.StringIO()
        super().__init__(Console(file=self.file, width=160, force_terminal=terminal), spark)

    @property
    def text(self) -> str:
        return self.file.getvalue()


@pytest.fixture(params=BACKENDS)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> str | None:
    """The URL of a catalog; None is the demo's default, SQLite."""
    if request.param == "postgres":
        fresh_database: Callable[[], str] = request.getfixturevalue("fresh_database")
        return fresh_database()
    return None if request.param == "sqlite" else f"duckdb:///{tmp_path / 'catalog.duckdb'}"


@pytest.mark.slow
def test_the_demo_runs_and_its_claims_hold(spark: SparkSession, catalog: str | None, tmp_path: Path) -> None:
    directory = tmp_path / "demo"
    show = Printed(spark)
    assert run(spark, show, catalog=catalog, directory=directory, rows=ROWS), show.text
    assert "✗" not in show.text
    assert "VersionConflict" in show.text
    with lakelog.connect(catalog or f"sqlite:///{directory / 'catalog.db'}", directory / "tables") as lake:
        assert {dataset.name for dataset in lake.datasets()} == set(NAMES)
        check_invariants(lake)


@pytest.mark.slow
def test_the_demo_can_be_repeated_in_its_directory_and_fails_by_a_claim_that_does_not_hold(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(demo: story.Demo) -> None:
        _no_race(demo)
        demo.claim("one is two", 1, 2)

    catalog = f"sqlite:///{tmp_path / 'catalog.db'}"
    for last, holds in ((_no_race, True), (wrong, False)):
        monkeypatch.setattr("lakelog.demo.run._CHAPTERS", (story.first_days, story.new_release, last))
        show = Printed(spark)
        assert run(spark, show, catalog=catalog, directory=tmp_path / "demo", rows=1000) == holds, show.text
        assert ("✗" in show.text) != holds


def _no_race(demo: story.Demo) -> None:
    lakelog.write_dataset(demo.lake, story.RATINGS, demo.spark.range(1))


def test_a_directory_of_somebody_else_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    with pytest.raises(ConfigurationError, match="--directory"):
        run(spark, Printed(spark), catalog=None, directory=tmp_path, rows=1000)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_dataset_of_somebody_else_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    catalog = f"sqlite:///{tmp_path / 'catalog.db'}"
    with lakelog.connect(catalog, tmp_path / "mine") as lake:
        lakelog.write_dataset(lake, pipeline.SILVER, spark.range(1))
    with pytest.raises(ConfigurationError, match=pipeline.SILVER):
        run(spark, Printed(spark), catalog=catalog, directory=tmp_path / "demo", rows=1000)
    with lakelog.connect(catalog) as lake:
        assert lake.dataset(pipeline.SILVER).version == 0


def test_the_same_seed_makes_the_same_events(spark: SparkSession) -> None:
    def lines(seed: int) -> list[tuple[object, ...]]:
        return sorted(map(tuple, Shop(rows=1000, seed=seed).lines(spark, 0, DELIVERIES).collect()))

    assert lines(1) == lines(1)
    assert lines(1) != lines(2)


def test_a_terminal_has_a_bar_with_the_tasks_of_spark(spark: SparkSession) -> None:
    show = Printed(spark, terminal=True)
    with show.step("count"):
        spark.range(0, 60_000_000, 1, 4).selectExpr("sum(hash(id))").collect()
    assert "tasks" in show.text
    assert "✓" in show.text
    assert re.search(r"count .*[0-9]\.[0-9]", show.text)
