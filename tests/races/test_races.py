"""Eight writers at once, each reloading and trying again when it loses: nothing is lost, doubled or starved."""

from collections import Counter

import pytest

from lakelog import Lake
from tests.contract.samples import table
from tests.fixtures.lakes import Place
from tests.invariants import check_invariants
from tests.races.writers import Finished, race

WRITERS = 8
COMMITS = {"sqlite": 200, "duckdb": 50, "postgres": 200}
"""Of each writer. DuckDB, where eight threads share one process, needs several times as long for each."""


@pytest.mark.parametrize("tables", [1, WRITERS], ids=["to_one_table", "to_a_table_each"])
def test_every_commit_of_eight_writers_has_its_own_version_and_no_writer_starves(
    lake: Lake, place: Place, tables: int
) -> None:
    datasets = [table(lake, f"table {number}") for number in range(tables)]
    names = [datasets[number % tables].name for number in range(WRITERS)]
    commits = COMMITS[place.backend]
    finished = race(place, names, commits)

    acknowledged = [each for writer in finished for each in writer.commits]
    for dataset in datasets:
        mine = {each.version: each for each in acknowledged if each.table == dataset.name}
        total = commits * WRITERS // tables
        assert sorted(mine) == list(range(1, total + 1))
        history = {entry.version: entry for entry in dataset.history()}
        assert sorted(history) == list(range(total + 1))
        assert {version: history[version].commit_id for version in mine} == {
            version: each.commit_id for version, each in mine.items()
        }
        files = dataset.snapshot().files(columns=["path", "version"]).to_pylist()
        assert {(row["path"], row["version"]) for row in files} == {(each.path, each.version) for each in mine.values()}
        assert len(files) == total
        assert Counter(entry.committer for entry in history.values() if entry.version) == Counter(
            {f"writer-{number}": commits for number, name in enumerate(names) if name == dataset.name}
        )
    if tables == WRITERS:
        assert sum(writer.conflicts for writer in finished) == 0, "a writer alone on its table lost a race"
    check_invariants(lake)
    assert_nobody_starved(finished)


def assert_nobody_starved(finished: list[Finished]) -> None:
    """When the first writer was through, none had less than half of the mean."""
    first = min(writer.commits[-1].moment for writer in finished)
    done = [sum(each.moment <= first for each in writer.commits) for writer in finished]
    assert min(done) >= sum(done) / len(done) / 2, f"commits when the first writer was through: {done}"
