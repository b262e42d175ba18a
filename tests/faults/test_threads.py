"""Where no thread can start any more, commits go on, and nothing else than our errors is raised."""

from pathlib import Path

from tests.faults.shimmed import run_shimmed
from tests.fixtures.lakes import Place

COMMITS = """
control.refuse_threads(1 << 20)
try:
    add("first")
    add(*range(301))
finally:
    control.refuse_threads(0)
print(events.version, events.snapshot().files().num_rows)
"""

LISTING = """
add("first", "second")
control.refuse_threads(1 << 20)
try:
    assert events.snapshot().files().num_rows == 2
except lakelog.LakelogError as error:
    assert "thread" in str(error), error
finally:
    control.refuse_threads(0)
print(events.snapshot().files().num_rows)
"""


def test_commits_need_no_thread_that_could_not_start(place: Place, tmp_path: Path) -> None:
    assert run_shimmed(COMMITS, place, tmp_path) == "2 302\n"


def test_a_listing_without_a_thread_is_our_error_or_whole(place: Place, tmp_path: Path) -> None:
    assert run_shimmed(LISTING, place, tmp_path) == "2\n"
