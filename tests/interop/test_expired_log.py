"""Other readers of a table whose oldest versions have expired, and whose log was then lost and written again."""

import shutil
from pathlib import Path

import pytest

import lakelog
from tests.contract.samples import commit
from tests.contract.upkeep_tables import ids, rewritten
from tests.interop.readers import rows_by_delta_rs


@pytest.mark.parametrize("lost", [False, True])
def test_delta_readers_see_the_versions_that_are_left(tmp_path: Path, lost: bool) -> None:
    with lakelog.connect(f"sqlite:///{tmp_path}/catalog.db", root=tmp_path / "lake") as lake:
        events = rewritten(lake)
        events.expire_versions(keep_last=2)
        commit(lake, events)
        if lost:
            shutil.rmtree(Path(events.location, "_delta_log"))
            events.mirror()
        for version in (2, 3, 4):
            found = sorted(row["id"] for row in rows_by_delta_rs(events.location, version))
            assert found == ids(events, version)
