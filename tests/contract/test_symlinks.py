"""Lists of files for engines that know no log: written below the table, and nowhere else."""

from pathlib import Path

import pytest

from lakelog import Lake, LakelogError
from tests.contract.registering import on_sqlite
from tests.contract.upkeep_tables import rewritten

DIRECTORY = "_symlink_format_manifest"


@on_sqlite
def test_a_list_names_the_files_of_the_head_and_takes_the_place_of_the_one_before(lake: Lake) -> None:
    events = rewritten(lake)
    events.generate()
    listed = Path(events.location, DIRECTORY, "manifest").read_text().splitlines()
    assert len(listed) == 2
    assert all(line.startswith("file:/") and Path(line.removeprefix("file:")).is_file() for line in listed)
    events.restore(1)
    events.generate()
    assert len(Path(events.location, DIRECTORY, "manifest").read_text().splitlines()) == 1


@on_sqlite
def test_a_link_in_the_place_of_the_lists_is_not_followed(lake: Lake, tmp_path: Path) -> None:
    """A directory that was imported may hold one, and its target is somebody's own."""
    events = rewritten(lake)
    home = tmp_path / "home"
    (home / "below").mkdir(parents=True)
    precious = [home / "precious.txt", home / "below" / "manifest"]
    for file in precious:
        file.write_text("precious")
    Path(events.location, DIRECTORY).symlink_to(home)
    with pytest.raises(LakelogError, match=r"symbolic link.*nothing was written"):
        events.generate()
    assert [file.read_text() for file in precious] == ["precious"] * 2


@on_sqlite
def test_files_of_others_among_the_lists_stay(lake: Lake) -> None:
    events = rewritten(lake)
    note = Path(events.location, DIRECTORY, "note.txt")
    note.parent.mkdir()
    note.write_text("stays")
    events.generate()
    assert note.read_text() == "stays"
