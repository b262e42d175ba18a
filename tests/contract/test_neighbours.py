"""Tables of two catalogs in one place: no vacuum of the one deletes files of the other."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from lakelog import DatasetExistsError, Lake, LakelogError, connect
from tests.contract.registering import on_sqlite
from tests.contract.samples import commit
from tests.contract.upkeep_tables import SCHEMA, ids, new_file, numbers, put, rewritten, settle, there
from tests.parquet import write

WRITE = f"__w={'0123456789abcdef' * 2}="


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Lake]:
    """A lake of another catalog."""
    with connect(f"sqlite:///{tmp_path}/other.db", root=tmp_path / "other") as lake:
        yield lake


@on_sqlite
@pytest.mark.parametrize("way", ["{}/inner", "{}/day=1/inner", "link/inner"])
@pytest.mark.parametrize("dry_run", [False, True])
def test_a_table_of_another_catalog_below_is_not_vacuumed(
    lake: Lake, other: Lake, tmp_path: Path, way: str, dry_run: bool
) -> None:
    outer = lake.create_dataset("outer", SCHEMA, mirror=False)
    Path(outer.location).mkdir()
    (tmp_path / "link").symlink_to(outer.location, target_is_directory=True)
    # Nothing shows yet that there is a table above.
    inner = other.create_dataset("inner", SCHEMA, location=str(tmp_path / way.format(outer.location)), mirror=False)
    commit(other, inner, new_file(inner, f"{WRITE}/part-0.parquet", 7))
    write(lake, outer, numbers(1))
    put(outer, f"{WRITE}/orphan.parquet")
    settle()
    before = there(outer)
    with pytest.raises(LakelogError, match=r"inner lies below .* that it is a table of its own"):
        outer.vacuum(0, force=True, dry_run=dry_run)
    assert there(outer) == before
    assert (ids(inner), ids(outer)) == ([7], [1])


@on_sqlite
def test_writes_of_the_table_itself_are_no_table_below(lake: Lake) -> None:
    events = rewritten(lake)
    for path in (f"{WRITE}/a.parquet", f"_change_data/{WRITE}/a.parquet", f"{WRITE}/{WRITE}/a.parquet"):
        put(events, path)
    settle()
    assert events.vacuum(0, force=True).orphans == 3


@on_sqlite
@pytest.mark.parametrize("sign", ["_delta_log/00000000000000000000.json", f"{WRITE}/part-0.parquet"])
@pytest.mark.parametrize("way", ["outer/inner", "outer/a/b", "link/inner"])
def test_no_table_is_made_below_a_place_that_is_one(lake: Lake, tmp_path: Path, sign: str, way: str) -> None:
    file = tmp_path / "outer" / sign
    file.parent.mkdir(parents=True)
    file.touch()
    (tmp_path / "link").symlink_to(tmp_path / "outer", target_is_directory=True)
    with pytest.raises(DatasetExistsError, match=r"outer', which is a table already"):
        lake.create_dataset("inner", SCHEMA, location=str(tmp_path / way))
    assert lake.datasets() == []
    assert not (tmp_path / way).exists()


@on_sqlite
@pytest.mark.parametrize("sign", ["_delta_log/00000000000000000000.json", f"{WRITE}/part-0.parquet"])
def test_no_files_are_registered_below_a_place_that_is_a_table(lake: Lake, tmp_path: Path, sign: str) -> None:
    file = tmp_path / "outer" / sign
    file.parent.mkdir(parents=True)
    file.touch()
    inner = tmp_path / "outer" / "inner"
    inner.mkdir()
    pq.write_table(numbers(1), inner / "a.parquet")
    with pytest.raises(LakelogError, match=r"outer'?,? (which )?is a (Delta )?table"):
        lake.register_parquet(inner, "inner", mirror=False)
    assert lake.datasets() == []


def test_no_table_is_made_in_a_root_that_lies_in_a_table(tmp_path: Path) -> None:
    (tmp_path / "outer" / WRITE).mkdir(parents=True)
    with (
        connect(f"sqlite:///{tmp_path}/catalog.db", root=tmp_path / "outer" / "root") as lake,
        pytest.raises(DatasetExistsError, match=r"outer', which is a table already"),
    ):
        lake.create_dataset("inner", SCHEMA)
