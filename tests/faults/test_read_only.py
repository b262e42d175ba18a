"""A disk that takes no writes for a while, as one that was remounted after an error: later it takes them again."""

from pathlib import Path

import pytest

from tests.faults.shimmed import run_shimmed
from tests.fixtures.lakes import Place

pytestmark = pytest.mark.parametrize("backend", ["sqlite"])

OPENED_MEANWHILE = """
catalog = lake.committer.catalog
refused = shim.Rule(operations=shim.Operations.CREATE, path="catalog.db", error=errno.EROFS, times=1 << 20)
with catalog.session():
    control.arm(refused)
    with catalog.session() as session:
        print(session.fetch("SELECT count(*) FROM dl_tables", {}))
    control.disarm()
with catalog.session():
    add("first")
print(events.version)
"""


def test_a_file_that_was_opened_for_reading_alone_is_opened_again(place: Place, tmp_path: Path) -> None:
    assert run_shimmed(OPENED_MEANWHILE, place, tmp_path) == "[(1,)]\n1\n"
