"""A log that is imported names no file outside of its table by a deletion vector: nothing there is ever opened."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from lakelog import Lake, ValidationError
from lakelog.actions import DeletionVector, Protocol, RemoveFile
from tests.contract.registering import on_sqlite
from tests.fixtures.lakes import catalog_rows
from tests.fixtures.vectors import stored
from tests.interop.delta_tables import HandMadeTable

pytestmark = on_sqlite

PROTOCOL = Protocol(
    min_reader_version=3,
    min_writer_version=7,
    reader_features=("deletionVectors",),
    writer_features=("deletionVectors", "appendOnly", "invariants"),
)
SCHEMA = pa.schema([("id", pa.int64())])
ROWS = pa.table({"id": [1, 2, 3]})
ELSEWHERE = {
    "a path": "{tmp}/else/deletion_vector_x.bin",
    "a neighbour whose name begins alike": "{tmp}/table2/deletion_vector_x.bin",
    "a URI of a file": "file://{tmp}/else/x.bin",
    "another host": "file://host{tmp}/table/x.bin",
    "a bucket": "s3://bucket{tmp}/table/x.bin",
    "a web server": "https://example.org{tmp}/table/x.bin",
}


@pytest.fixture
def table(tmp_path: Path) -> HandMadeTable:
    return HandMadeTable(tmp_path / "table", SCHEMA, protocol=PROTOCOL)


def vector(tmp_path: Path, place: str) -> DeletionVector:
    text = place.format(tmp=tmp_path)
    return DeletionVector(storage_type="p", path_or_inline_dv=text, offset=1, size_in_bytes=40, cardinality=1)


@pytest.mark.parametrize("elsewhere", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_vector_outside_of_the_table_is_refused(
    lake: Lake, table: HandMadeTable, tmp_path: Path, elsewhere: str, checkpoint: bool
) -> None:
    table.write(ROWS, deletion_vector=vector(tmp_path, elsewhere))
    if checkpoint:
        table.checkpoint()
    before = catalog_rows(lake)
    for dry_run in (True, False):
        with pytest.raises(ValidationError, match=r"expected a file below the table, found .*part-00000\.parquet"):
            lake.import_delta(table.location, "events", dry_run=dry_run)
    assert catalog_rows(lake) == before


def test_a_vector_outside_of_the_table_is_not_adopted(lake: Lake, table: HandMadeTable, tmp_path: Path) -> None:
    add = table.write(ROWS)
    dataset = lake.import_delta(table.location, "events").dataset
    assert dataset is not None
    outside = vector(tmp_path, "{tmp}/else/x.bin")
    table.commit(RemoveFile(path=add.path), replace(add, deletion_vector=outside))
    with pytest.raises(ValidationError, match="expected a file below the table"):
        dataset.adopt()
    assert dataset.version == 1


@pytest.mark.parametrize("by_link", [False, True])
def test_an_absolute_path_below_the_table_is_imported(
    lake: Lake, table: HandMadeTable, tmp_path: Path, by_link: bool
) -> None:
    (found,) = stored(table.location, [1], absolute=True)
    table.write(ROWS, deletion_vector=found)
    (tmp_path / "link").symlink_to(table.location, target_is_directory=True)
    dataset = lake.import_delta(tmp_path / "link" if by_link else table.location, "events").dataset
    assert dataset is not None
    assert dataset.count() == 2
    assert not lake.check("events").findings
