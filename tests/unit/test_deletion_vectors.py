"""Deletion vectors out of the log and out of files: the right rows, or an error that names what is wrong."""

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pf
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog import ConfigurationError, LakelogError
from lakelog.actions import DeletionVector
from lakelog.log.deletion_vectors import FileVector, live_rows, loosened, vectors_of
from tests.fixtures.vectors import bitmap, inline, stored, z85

ROWS = {
    "none": [],
    "one": [0],
    "an array container": [3, 5, 70_000, 1_000_000],
    "a bitset container": list(range(0, 60_000, 3)),
    "a run container": list(range(100, 60_000)),
    "all containers": [7, *range(65_536, 131_072, 2), *range(200_000, 300_000)],
    "several keys": [1, 2**32 - 1, 2**32, 5 * 2**32 + 9, 2**40],
}

sets_of_rows = st.sets(st.integers(0, 200_000) | st.integers(2**32 - 5, 2**34)).map(sorted)


def opened(uri: str) -> Any:
    system, path = pf.FileSystem.from_uri(uri)
    return system.open_input_file(path)


def never_opened(uri: str) -> Any:
    raise AssertionError(f"{uri} was opened")


def read(vector: DeletionVector, location: Path | None = None, rows: int | None = None) -> list[int]:
    root = "file:///nowhere" if location is None else location.as_uri()
    file = FileVector(file="data/a.parquet", rows=rows, root=root, vector=vector)
    return list(file.read(never_opened if location is None else opened))


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS)
def test_a_vector_in_the_log_gives_its_rows(rows: list[int]) -> None:
    assert read(inline(rows)) == rows


@pytest.mark.parametrize("prefix", ["", "ab"])
@pytest.mark.parametrize("absolute", [False, True])
def test_vectors_that_share_a_file_give_their_own_rows(tmp_path: Path, prefix: str, absolute: bool) -> None:
    location = tmp_path / "a table"
    vectors = stored(location, *ROWS.values(), prefix=prefix, absolute=absolute)
    assert [read(vector, location) for vector in vectors] == list(ROWS.values())


@given(rows=sets_of_rows)
def test_any_set_of_rows_comes_back(rows: list[int]) -> None:
    assert read(inline(rows)) == rows


def test_the_name_in_deltas_specification_is_understood() -> None:
    vector = DeletionVector(
        storage_type="u", path_or_inline_dv="ab^-aqEH.-t@S}K{vb[*k^", offset=4, size_in_bytes=40, cardinality=6
    )
    file = FileVector(file="a", rows=None, root="s3://bucket/table", vector=vector)
    assert file.place == "s3://bucket/table/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def test_the_text_of_a_vector_is_that_of_other_readers() -> None:
    text = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    vector = DeletionVector(storage_type="i", path_or_inline_dv=text, size_in_bytes=44, cardinality=6)
    assert read(vector) == [3, 4, 7, 11, 18, 29]
    assert inline([3, 4, 7, 11, 18, 29]) == vector


def test_the_vector_in_deltas_specification_is_of_a_form_that_nobody_reads() -> None:
    """It has the bytes of its numbers in the opposite order. Delta's own reader refuses it, too."""
    text = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    vector = DeletionVector(storage_type="i", path_or_inline_dv=text, size_in_bytes=40, cardinality=6)
    with pytest.raises(LakelogError, match="expected a bitmap with the number 1681511377, found 3503503716"):
        read(vector)


@pytest.mark.parametrize(
    ("root", "name", "place"),
    [
        ("file:///a%20table", "/else/x%20y.bin", "file:///else/x%20y.bin"),
        ("s3://bucket/table", "/else/x.bin", "s3://bucket/else/x.bin"),
        ("file:///table", "s3a://bucket/x.bin", "s3a://bucket/x.bin"),
    ],
)
def test_an_absolute_path_is_on_the_tables_own_host_unless_it_names_one(root: str, name: str, place: str) -> None:
    vector = DeletionVector(storage_type="p", path_or_inline_dv=name, offset=1, size_in_bytes=1, cardinality=1)
    assert FileVector(file="a", rows=None, root=root, vector=vector).place == place


def test_a_vector_outside_of_the_table_is_opened_only_for_a_file_that_is_outside_too(tmp_path: Path) -> None:
    (vector,) = stored(tmp_path / "source", [1, 2], absolute=True)
    clone = (tmp_path / "clone").as_uri()
    with pytest.raises(LakelogError, match="it lies outside of the table, and nothing there is opened"):
        FileVector(file="a.parquet", rows=None, root=clone, vector=vector).read(never_opened)
    shared = (tmp_path / "source" / "a.parquet").as_uri()
    assert list(FileVector(file=shared, rows=None, root=clone, vector=vector).read(opened)) == [1, 2]


def test_a_vector_without_an_offset_is_the_first_of_its_file(tmp_path: Path) -> None:
    vector, _ = stored(tmp_path, [1, 2], [3])
    assert read(replace(vector, offset=None), tmp_path) == [1, 2]


def broken(change: Callable[[bytearray], Any]) -> Callable[[Path], None]:
    def apply(place: Path) -> None:
        content = bytearray(place.read_bytes())
        change(content)
        place.write_bytes(content)

    return apply


def at(position: int, value: bytes) -> Callable[[Path], None]:
    def change(content: bytearray) -> None:
        begin = position % len(content)
        content[begin : begin + len(value)] = value

    return broken(change)


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (Path.unlink, "the file is gone"),
        (broken(bytearray.clear), "the file ends at 0"),
        (broken(lambda content: content.pop()), r"expected \d+ bytes at 1, and the file ends at \d+"),
        (at(0, b"\2"), "expected format 1, found 2"),
        (at(1, b"\0\0\0\1"), r"expected \d+ bytes at 1, and the file says 1"),
        (at(-1, b"\0"), "do not match their checksum"),
        (at(5, b"\0"), "do not match their checksum"),
        (at(-6, b"\7"), "do not match their checksum"),
    ],
    ids=["gone", "empty", "truncated", "version", "size", "checksum", "magic", "data"],
)
def test_a_file_that_is_damaged_is_an_error_that_names_it(
    tmp_path: Path, breaks: Callable[[Path], None], message: str
) -> None:
    [vector] = stored(tmp_path, [1, 500, 70_000])
    [place] = tmp_path.iterdir()
    breaks(place)
    with pytest.raises(LakelogError, match=rf"'data/a\.parquet', {re.escape(place.as_uri())},.*{message}"):
        read(vector, tmp_path)


def test_another_vector_of_the_same_file_is_not_taken_for_this_one(tmp_path: Path) -> None:
    one, other = stored(tmp_path, [1], [2, 3])
    for offset in (0, other.offset, (other.offset or 0) + 1):
        with pytest.raises(LakelogError, match="cannot be applied"):
            read(replace(one, offset=offset), tmp_path)


def encoded(data: bytes, cardinality: int = 2) -> DeletionVector:
    text = z85(data + bytes(-len(data) % 4))
    return DeletionVector(storage_type="i", path_or_inline_dv=text, size_in_bytes=len(data), cardinality=cardinality)


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        (inline([1, 2], cardinality=3), "the log says 3 deleted rows, and it has 2"),
        (inline([1, 2], size_in_bytes=9), r"the log says 9 bytes, and has \d+"),
        (inline([1, 2], size_in_bytes=99), r"the log says 99 bytes, and has \d+"),
        (inline([1, 2], path_or_inline_dv="wi5b"), "expected Z85 text, found 4 characters"),
        (inline([1, 2], path_or_inline_dv="w~5b="), "character"),
        (inline([1, 2], path_or_inline_dv="é5b=0"), "character"),
        (inline([1, 2], path_or_inline_dv="#####"), "overflow"),
        (inline([1, 2], storage_type="x"), "is stored as 'x'"),
        (inline([1, 2], storage_type="u", path_or_inline_dv="tooshort"), "expected Z85 text, found 8 characters"),
        (encoded(bitmap([1, 2])[:3]), "expected a bitmap with the number 1681511377"),
        (encoded(bitmap([1, 2])[4:]), "expected a bitmap with the number 1681511377"),
        (encoded(bitmap([1, 2])[:-2]), "deserialize"),
        (encoded(bitmap([1, 2])[:-4] + bytes([9, 0, 2, 0])), "after deserialization"),
        (inline([1, 2**63]), r"deletes the row with index 9223372036854775808"),
    ],
)
def test_a_vector_that_does_not_fit_what_the_log_says_is_an_error(vector: DeletionVector, message: str) -> None:
    with pytest.raises(LakelogError, match=rf"'data/a\.parquet' cannot be applied.*{message}"):
        read(vector)


def test_a_vector_for_rows_that_the_file_does_not_have_is_an_error() -> None:
    assert read(inline([0, 9]), rows=10) == [0, 9]
    with pytest.raises(LakelogError, match="deletes the row with index 10 of 10"):
        read(inline([0, 10]), rows=10)


@given(data=st.data(), rows=sets_of_rows.filter(bool))
def test_a_damaged_vector_never_gives_other_rows_in_silence(data: st.DataObject, rows: Sequence[int]) -> None:
    """A vector in the log has no checksum: what is left is that it is a sound bitmap of as many rows."""
    content = bytearray(bitmap(rows))
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    try:
        found = read(encoded(bytes(content), len(rows)))
    except LakelogError:
        return
    assert len(found) == len(rows)
    assert found == sorted(set(found))


def test_without_pyroaring_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyroaring", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'lakelog\[delta\]'"):
        read(inline([1]))


def test_files_know_their_vectors_and_the_rows_that_these_leave() -> None:
    vector = inline([1, 2])
    files = pa.table(
        {
            "path": ["a", "b", "c"],
            "row_count": pa.array([5, 7, None], pa.int64()),
            "deletion_vector": [vector.to_json(), None, vector.to_json()],
        }
    )
    first, second, third = vectors_of(files, "file:///table")
    assert first == FileVector(file="a", rows=5, root="file:///table", vector=vector)
    assert second is None
    assert third is not None
    assert live_rows(files).to_pylist() == [3, 7, None]
    assert live_rows(files.slice(1, 1)).to_pylist() == [7]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, '{"numRecords": 7, "tightBounds": false}'),
        ('{"minValues":{"a":1}}', '{"numRecords": 7, "tightBounds": false}'),
        (
            '{"numRecords":7,"minValues":{"d":12345678901234567890.10}}',
            '{"numRecords":7,"minValues":{"d":12345678901234567890.10},"tightBounds":false}',
        ),
        ('{"numRecords":7,"tightBounds":false}', '{"numRecords":7,"tightBounds":false}'),
        ('{"tightBounds" : true,"numRecords":7,"x":1.10}', '{"tightBounds" : false,"numRecords":7,"x":1.10}'),
        (
            '{"numRecords":7,"tightBounds":true,"minValues":{"tightBounds":true}}',
            '{"numRecords": 7, "tightBounds": false}',
        ),
    ],
)
def test_statistics_of_a_marked_file_say_that_bounds_are_not_tight(before: str | None, after: str) -> None:
    assert loosened(before, 7) == after


def test_a_vector_behind_a_link_of_the_table_is_outside(tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "table" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "another").symlink_to(tmp_path / "table")
    root = (tmp_path / "table").as_uri()
    for place, is_outside in (("table/link", True), ("another", False), ("table", False), ("elsewhere", True)):
        vector = DeletionVector(
            storage_type="p", path_or_inline_dv=f"file://{tmp_path}/{place}/x.bin", size_in_bytes=4, cardinality=1
        )
        assert FileVector(file="a.parquet", rows=9, root=root, vector=vector).is_outside is is_outside
