"""A column whose bounds are not known in full hides no rows from other readers."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakelog import Dataset, Lake, connect
from lakelog.actions import RemoveFile
from lakelog.mirror.checkpoint import checkpoint_parquet, write_checkpoint
from lakelog.mirror.commit_json import earlier_delta_json, read_rows
from lakelog.storage.log_store import log_store
from tests.contract.mirror_files import log_of
from tests.contract.registering import put, stats_of
from tests.contract.samples import commit
from tests.interop.readers import rows_by_delta_rs, rows_by_duckdb, rows_by_polars, rows_by_pyarrow
from tests.invariants import check_invariants

# No text of 64 characters comes after it.
LAST = "\U0010ffff" * 70

COLUMNS = {
    "double": (pa.array([1.0, 2.0, 3.0]), 2.0),
    "single": (pa.array([1.0, 2.0, 3.0], pa.float32()), 2.0),
    "infinite": (pa.array([-math.inf, 2.0, math.inf]), 2.0),
    "not a number": (pa.array([1.0, 2.0, math.nan]), 2.0),
    "nullable": (pa.array([1.0, 2.0, None]), 2.0),
    "text": (pa.array(["a", "b", LAST]), "b"),
    "without statistics": (pa.array([1, 2, 3]), 2),
}


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with connect(f"sqlite:///{tmp_path}/catalog.db", root=tmp_path / "lake") as lake:
        yield lake


@pytest.mark.parametrize("kind", COLUMNS)
def test_a_filter_on_a_column_without_both_bounds_finds_its_rows(lake: Lake, tmp_path: Path, kind: str) -> None:
    values, middle = COLUMNS[kind]
    put(
        tmp_path / "data" / "a.parquet",
        {"id": [1, 2, 3], "x": values},
        write_statistics=["id"] if "statistics" in kind else True,
    )
    dataset = lake.register_parquet(tmp_path / "data", "events")
    # Readers do not agree on whether NaN is above all numbers.
    last = [3] if kind not in ("nullable", "not a number") else []
    expected = {"<=": [1, 2], ">=": [2, *last], "=": [2]}
    ids = [1, 2] if kind == "not a number" else [1, 2, 3]
    assert _found(dataset, middle, ids) == dict.fromkeys(READERS, expected)
    check_invariants(lake)
    _leave_only_a_checkpoint(dataset)
    assert _found(dataset, middle, ids) == dict.fromkeys(READERS, expected)


def test_a_column_without_bounds_is_found_in_files_that_are_older_than_another(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "data" / "a.parquet", {"id": [1, 2, 3], "x": [1, 2, 3]}, write_statistics=["id"])
    dataset = lake.register_parquet(tmp_path / "data", "events")
    dataset.add_column("more", pa.int64())
    path = dataset.snapshot().files().column("path")[0].as_py()
    commit(lake, dataset, RemoveFile(path=path))
    dataset.restore(1)
    expected = {reader: {"<=": [1, 2], ">=": [2, 3], "=": [2]} for reader in READERS}
    assert _found(dataset, 2, [1, 2, 3]) == expected
    check_invariants(lake)
    assert lake.check("events").findings == ()
    _leave_only_a_checkpoint(dataset)
    assert _found(dataset, 2, [1, 2, 3]) == expected


def test_files_that_are_older_than_a_column_keep_their_bounds(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "data" / "a.parquet", {"id": [1, 2, 3], "x": [1, 2, 3]})
    dataset = lake.register_parquet(tmp_path / "data", "events")
    dataset.add_column("more", pa.int64())
    content = dataset._lake.mirror.checkpoints.content(dataset.id, 1)
    table = pq.read_table(pa.BufferReader(checkpoint_parquet(content)))
    (stats,) = [add["stats"] for add in table.column("add").to_pylist() if add]
    assert '"minValues":{"id":1,"x":1}' in stats


def test_the_catalog_keeps_the_bounds_that_are_known(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "data" / "a.parquet", {"id": [1, 2], "x": [1.5, 2.5]})
    put(tmp_path / "data" / "b.parquet", {"id": [3, 4], "x": [3.5, 4.5]})
    dataset = lake.register_parquet(tmp_path / "data", "events")
    assert stats_of(dataset)["a.parquet"]["minValues"] == {"id": 1, "x": 1.5}
    assert dataset.snapshot().files("x < 3 AND id > 0").column("path").to_pylist() == ["a.parquet"]
    assert b"minValues" not in (log_of(dataset) / f"{0:020}.json").read_bytes()


def test_a_check_finds_nothing_in_a_log_of_an_earlier_lakelog(lake: Lake, tmp_path: Path) -> None:
    put(tmp_path / "data" / "a.parquet", {"id": [1, 2], "x": [1.5, 2.5]})
    dataset = lake.register_parquet(tmp_path / "data", "events")
    file = log_of(dataset) / f"{0:020}.json"
    with lake.committer.catalog.session() as session:
        rows = read_rows(session, lake.committer.catalog.queries, dataset.id, 0, 0)[0]
    earlier = earlier_delta_json(rows, dataset.snapshot().state.metadata)
    assert b"minValues" in earlier
    file.write_bytes(earlier)
    assert not lake.check("events").findings
    file.write_bytes(earlier.replace(b"1.5", b"1.4"))
    assert "is not what was published" in str(lake.check("events").findings)


def _by_pyarrow(location: str, comparison: str, middle: Any) -> list[dict[str, Any]]:
    compare = {"<=": pc.less_equal, ">=": pc.greater_equal, "=": pc.equal}[comparison]
    return rows_by_pyarrow(location, where=compare(pc.field("x"), pa.scalar(middle)))


READERS = {
    "pyarrow": None,
    "delta-rs": rows_by_delta_rs,
    "DuckDB": rows_by_duckdb,
    "Polars": rows_by_polars,
}


def _found(dataset: Dataset, middle: Any, ids: list[int]) -> dict[str, dict[str, list[int]]]:
    """By reader and comparison, which of some rows a filter finds."""
    text = f"'{middle}'" if isinstance(middle, str) else middle
    found: dict[str, dict[str, list[int]]] = {}
    for reader, read in READERS.items():
        for comparison in ("<=", ">=", "="):
            if read is None:
                rows = _by_pyarrow(dataset.location, comparison, middle)
            else:
                rows = read(dataset.location, where=f"x {comparison} {text}")
            found.setdefault(reader, {})[comparison] = sorted(row["id"] for row in rows if row["id"] in ids)
    return found


def _leave_only_a_checkpoint(dataset: Dataset) -> None:
    version = dataset.version
    write_checkpoint(log_store(dataset.location), dataset._lake.mirror.checkpoints.content(dataset.id, version))
    for earlier in range(version):
        (log_of(dataset) / f"{earlier:020}.json").unlink()
    name = log_of(dataset) / f"{version:020}.json"
    # Some readers ask for the last commit: without what it says of files, and of the table.
    name.write_text(name.read_text().splitlines()[0] + "\n")
