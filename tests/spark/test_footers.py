"""What the log learns from the footers of real files: no bound that a value breaks, and none from a doubtful footer."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pf
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakelog import AddFiles, Lake, LakelogError, SqlTxnLogWriter
from lakelog.parquet.footers import WrittenFile, harvest
from lakelog.schema import Leaf, leaf_columns
from lakelog.spark.write.footers import harvest_in_spark
from tests.fixtures.footers import SparkWrite, arrow_file, bounds, harvested, stats, written
from tests.fixtures.thrift import edit_statistics


def test_a_file_of_spark_has_bounds_of_every_type_in_the_spelling_of_delta(spark_write: SparkWrite) -> None:
    (path,) = spark_write("""
        SELECT * FROM VALUES
            (1Y, 10L, 1.5F, -0.5D, 1.25BD, 12345678901234567890.12345BD, true, DATE'2026-01-02',
             TIMESTAMP'2026-01-02 03:04:05.123456Z', TIMESTAMP_NTZ'2026-01-02 03:04:05', 'a', X'00', array(1),
             named_struct('x', 7, 'y', named_struct('z', 'é'))),
            (3Y, -10L, 2.5F, 0.5D, -0.05BD, -99999999999999999999.99999BD, false, DATE'1999-12-31',
             TIMESTAMP'2026-01-02 03:04:05.5Z', TIMESTAMP_NTZ'0001-01-01 00:00:00', 'b"\\n', X'01', array(),
             named_struct('x', CAST(NULL AS INT), 'y', CAST(NULL AS STRUCT<z: STRING>))),
            (NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)
        AS rows(tiny, long, single, double, dec, wide, flag, day, at, local, text, raw, tags, nested)""")
    text = harvested(path).adds.column("stats")[0].as_py()
    assert '"wide":-99999999999999999999.99999' in text
    assert '"wide":12345678901234567890.12345' in text
    found = json.loads(text, parse_float=str)
    assert found["numRecords"] == 3
    assert found["minValues"] == {
        "tiny": 1,
        "long": -10,
        "single": "1.5",
        "double": "-0.5",
        "dec": "-0.05",
        "wide": "-99999999999999999999.99999",
        "flag": False,
        "day": "1999-12-31",
        "at": "2026-01-02T03:04:05.123456Z",
        "local": "0001-01-01T00:00:00.000000",
        "text": "a",
        "nested": {"x": 7, "y": {"z": "é"}},
    }
    assert found["maxValues"] == {
        "tiny": 3,
        "long": 10,
        "single": "2.5",
        "double": "0.5",
        "dec": "1.25",
        "wide": "12345678901234567890.12345",
        "flag": True,
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.500000Z",
        "local": "2026-01-02T03:04:05.000000",
        "text": 'b"\n',
        "nested": {"x": 7, "y": {"z": "é"}},
    }
    flat = dict.fromkeys([name for name in found["minValues"] if name != "nested"], 1)
    assert found["nullCount"] == flat | {"raw": 1, "nested": {"x": 2, "y": {"z": 2}}}


def test_row_groups_have_their_own_statistics_and_the_file_has_those_of_all(tmp_path: Path) -> None:
    data = pa.table({"id": [5, None, 3, 9, None, None], "name": ["b", "a", "z", "y", None, None]})
    path = arrow_file(tmp_path, data, row_group_size=2)
    found = harvested(path)
    assert found.rows == 6
    assert found.row_groups.column("row_count").to_pylist() == [2, 2, 2]
    assert found.row_groups.column("row_group").to_pylist() == [0, 1, 2]
    assert found.row_groups.column("path").to_pylist() == [path.name] * 3
    assert min(found.row_groups.column("byte_size").to_pylist()) > 0
    assert [json.loads(text) for text in found.row_groups.column("stats").to_pylist()] == [
        _stats(2, {"id": 5, "name": "a"}, {"id": 5, "name": "b"}, {"id": 1, "name": 0}),
        _stats(2, {"id": 3, "name": "y"}, {"id": 9, "name": "z"}, {"id": 0, "name": 0}),
        _stats(2, {}, {}, {"id": 2, "name": 2}),
    ]
    assert stats(path) == _stats(6, {"id": 3, "name": "a"}, {"id": 9, "name": "z"}, {"id": 3, "name": 2})


def _stats(rows: int, low: dict[str, Any], high: dict[str, Any], nulls: dict[str, int]) -> dict[str, Any]:
    return {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def test_row_groups_of_spark_are_told_apart(spark_write: SparkWrite) -> None:
    (path,) = spark_write("SELECT id, uuid() AS text FROM range(20000)", **{"parquet.block.size": "65536"})
    groups = harvested(path).row_groups
    assert groups.num_rows > 1
    lows = [json.loads(text)["minValues"]["id"] for text in groups.column("stats").to_pylist()]
    assert lows == [0, *pc.cumulative_sum(groups.column("row_count")).to_pylist()[:-1]]
    assert bounds(path, "id") == (0, 19999, 0)


def test_one_row_group_without_bounds_leaves_the_file_without_them(tmp_path: Path) -> None:
    # pyarrow writes no bounds of strings that are too long.
    path = arrow_file(tmp_path, pa.table({"id": [1, 2], "text": ["a", "b" * 5000]}), row_group_size=1)
    assert bounds(path, "text") == (None, None, 0)
    assert bounds(path, "id") == (1, 2, 0)


def test_one_row_group_without_a_count_of_nulls_leaves_the_file_without_it(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"id": [1, 2], "n": [1, 2]}), row_group_size=1)
    edit_statistics(path, lambda group, column, found: found.pop(3) if (group, column) == (1, 0) else None)
    assert bounds(path, "id") == (1, 2, None)
    assert bounds(path, "n") == (1, 2, 0)


def test_a_column_without_statistics_is_unknown(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"id": [1], "n": [1]}), write_statistics=["n"])
    assert bounds(path, "id") == (None, None, None)


def test_a_column_of_nulls_has_a_count_and_no_bounds(tmp_path: Path, spark_write: SparkWrite) -> None:
    (by_spark,) = spark_write("SELECT CAST(NULL AS INT) AS n, id FROM range(3)")
    by_arrow = arrow_file(tmp_path, pa.table({"n": pa.nulls(3, pa.int32())}))
    assert bounds(by_spark, "n") == bounds(by_arrow, "n") == (None, None, 3)


def test_a_column_that_the_file_lacks_is_null_in_every_row(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"s": [{"a": 1}, {"a": 2}, None]}))
    schema = pa.schema([("s", pa.struct([("a", pa.int64()), ("b", pa.int64())])), ("new", pa.string())])
    assert stats(path, schema) == _stats(3, {"s": {"a": 1}}, {"s": {"a": 2}}, {"s": {"a": 1, "b": 3}, "new": 3})


@pytest.mark.parametrize(
    ("name", "kind"), [("ID", pa.int64()), ("tags", pa.int64()), ("id", pa.struct([("x", pa.int64())]))]
)
def test_a_column_that_the_file_may_have_in_another_form_is_unknown(tmp_path: Path, name: str, kind: Any) -> None:
    path = arrow_file(tmp_path, pa.table({"id": [1, 2], "tags": [[1], []]}))
    assert stats(path, pa.schema([(name, kind)])) == _stats(2, {}, {}, {})


def test_columns_are_found_behind_lists_and_by_names_with_dots(tmp_path: Path) -> None:
    inside = pa.list_(pa.struct([("x", pa.int32()), ("m", pa.map_(pa.string(), pa.int32()))]))
    data = pa.table(
        {
            "list": pa.array([[{"x": 1, "m": [("k", 5)]}]], inside),
            "s.x": [2],
            "s": [{"x": 3}],
            "d": pa.array(["dictionary"]).dictionary_encode(),
        }
    )
    path = arrow_file(tmp_path, data)
    schema = pa.schema([("s", pa.struct([("x", pa.int64())])), ("s.x", pa.int64()), ("d", pa.string())])
    assert stats(path, schema)["minValues"] == {"s": {"x": 3}, "s.x": 2, "d": "dictionary"}


def test_only_indexed_columns_of_the_schema_have_statistics(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"a": [1], "b": [2]}))
    indexed = [Leaf(("b",), "b", pa.int64()), Leaf(("partition",), "partition", pa.int64())]
    found = harvest([written(path)], pq.read_schema(path), indexed)
    assert json.loads(found.adds.column("stats")[0].as_py()) == _stats(1, {"b": 2}, {"b": 2}, {"b": 0})


def test_a_file_without_rows_is_reported_as_such(tmp_path: Path, spark_write: SparkWrite) -> None:
    (by_spark,) = spark_write("SELECT id FROM range(1) WHERE id > 1")
    for path in (by_spark, arrow_file(tmp_path, pa.table({"id": pa.array([], pa.int64())}))):
        found = harvested(path)
        assert (found.rows, found.adds.column("row_count").to_pylist()) == (0, [0])
        assert stats(path) == _stats(0, {}, {}, {"id": 0})


def test_no_files_give_empty_tables(spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int64())])
    for found in (harvest([], schema, leaf_columns(schema)), harvest_in_spark(spark, [], schema, leaf_columns(schema))):
        assert (found.adds.num_rows, found.row_groups.num_rows, found.rows) == (0, 0, 0)


def broken_files(tmp_path: Path) -> list[WrittenFile]:
    whole = arrow_file(tmp_path, pa.table({"id": [1]}))
    content = whole.read_bytes()
    files = [written(whole)]
    for name, left in (("cut", content[:-20]), ("empty", b""), ("text", b"not Parquet at all"), ("half", content[:50])):
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(left)
        files.append(written(path))
    longer = arrow_file(tmp_path, pa.table({"id": [1]})).rename(tmp_path / "longer.parquet")
    return [*files, written(longer, size=99), written(whole, place=str(tmp_path / "missing.parquet"))]


@pytest.mark.parametrize("in_spark", [False, True])
def test_files_that_are_not_whole_parquet_are_named(spark: SparkSession, tmp_path: Path, in_spark: bool) -> None:
    files = broken_files(tmp_path)
    schema = pa.schema([("id", pa.int64())])
    read = partial(harvest_in_spark, spark) if in_spark else harvest
    with pytest.raises(LakelogError) as caught:
        read(files, schema, leaf_columns(schema))
    for name in ("cut", "empty", "text", "half", "longer", "missing"):
        assert f"{tmp_path / name}.parquet: " in str(caught.value)
    assert files[0].place not in str(caught.value)
    assert "was listed with 99 bytes" in str(caught.value)


def test_places_are_paths_or_uris(tmp_path: Path) -> None:
    path = arrow_file(tmp_path, pa.table({"id": [1]})).rename(tmp_path / "a b%20é.parquet")
    encoded = f"{tmp_path}/a%20b%2520%C3%A9.parquet"
    places = [str(path), f"file:{encoded}", f"file://{encoded}"]
    schema = pa.schema([("id", pa.int64())])
    assert harvest([written(path, place=place) for place in places], schema, leaf_columns(schema)).rows == 3


def test_files_in_one_bucket_share_a_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = arrow_file(tmp_path, pa.table({"id": [1]}))
    path = path.rename(path.parent / "a b.parquet")
    opened: list[str] = []

    def from_uri(uri: str) -> tuple[pf.FileSystem, str]:
        opened.append(uri)
        return pf.SubTreeFileSystem(str(tmp_path.parent), pf.LocalFileSystem()), uri.removeprefix("s3://")

    monkeypatch.setattr(
        "lakelog.parquet.footers.pf",
        SimpleNamespace(LocalFileSystem=pf.LocalFileSystem, FileSystem=SimpleNamespace(from_uri=from_uri)),
    )
    place = f"s3a://{tmp_path.name}/a%20b.parquet"
    schema = pa.schema([("id", pa.int64())])
    assert harvest([written(path, place=place)] * 300, schema, leaf_columns(schema)).rows == 300
    assert opened == [f"s3://{tmp_path.name}/a%20b.parquet"]


def test_spark_harvests_the_same(spark: SparkSession, spark_write: SparkWrite, tmp_path: Path) -> None:
    (wide,) = spark_write("SELECT id, CAST(id AS STRING) AS text, id / 3D AS x FROM range(5)")
    numbered = [arrow_file(tmp_path, pa.table({"id": range(n), "x": [0.5] * n}), row_group_size=2) for n in range(300)]
    files = [written(path, partition_values={"day": None, "p": path.name}) for path in [wide, *numbered]]
    schema = pq.read_schema(wide)
    for by in ("spark", "pyarrow"):
        here = harvest(files, schema, leaf_columns(schema), by=by, data_change=False)
        there = harvest_in_spark(spark, files, schema, leaf_columns(schema), by=by, data_change=False)
        assert here.adds.equals(there.adds)
        assert here.row_groups.equals(there.row_groups)
        assert here.rows == there.rows == 5 + sum(range(300))
    assert here.adds.column("data_change").unique().to_pylist() == [False]
    assert json.loads(here.adds.column("partition_values")[0].as_py()) == files[0].partition_values


@pytest.mark.parametrize("backend", ["sqlite"])
def test_a_committed_harvest_prunes_files_and_row_groups(lake: Lake, spark_write: SparkWrite) -> None:
    nested = pa.struct([("at", pa.timestamp("us", "UTC"))])
    schema = pa.schema([("p", pa.string()), ("id", pa.int64()), ("text", pa.string()), ("s", nested)])
    dataset = lake.create_dataset("events", schema=schema, partition_by=["p"])
    query = """SELECT id + {0} AS id, repeat(concat(id + {0}, '-'), 40) AS text,
               named_struct('at', timestamp_seconds(id + {0})) AS s FROM range(1000, 1100)"""
    paths = [spark_write(query.format(start))[0] for start in (0, 1000, 2000)]
    files = [
        written(path, path=f"p={p}/{p}.parquet", partition_values={"p": p})
        for p, path in zip("abc", paths, strict=True)
    ]
    metadata = dataset.snapshot().state.metadata
    found = harvest(files, metadata.physical.remove(0), metadata.indexed)
    SqlTxnLogWriter(lake).commit(dataset.id, dataset.version + 1, [AddFiles(found.adds)], row_groups=found.row_groups)
    snapshot = dataset.snapshot()
    for where, kept in (
        ("id >= 2000", ["b", "c"]),
        ("id = 1099", ["a"]),
        ("id = 1100", []),
        ("text > '3'", ["c"]),
        ("text = '2000'", []),
        ("s.at >= TIMESTAMP'1970-01-01 00:50:00Z'", ["c"]),
        ("id IS NULL", []),
        ("p = 'b' AND id < 2001", ["b"]),
    ):
        wanted = [f"p={p}/{p}.parquet" for p in kept]
        assert sorted(snapshot.files(where).column("path").to_pylist()) == wanted, where
        assert snapshot.row_groups(where).num_rows == len(kept), where
