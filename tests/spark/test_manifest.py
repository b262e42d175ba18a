"""Exactly the named files reach Spark, whatever they are called and whatever the session's settings are."""

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lakelog.spark.predicates.analysis import is_connect
from lakelog.spark.read import manifest
from lakelog.spark.read.manifest import (
    FEW,
    SCANS,
    Files,
    clean,
    metadata_path,
    place_of,
    read_files,
    uri_of,
    write_manifest,
)

ODD_NAMES = ["plain", "a b", "100%", "é 日本", "a=b", "a+b&c@d,e;f$", "(x)!~'*", "[y]{z}?", "a%20b", "#"]


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Nothing is remembered of earlier tests but that the canary lived."""
    manifest._relations.clear()
    trusted = dict(manifest._trusted)
    yield
    manifest._trusted.clear()
    manifest._trusted.update(trusted)


@pytest.fixture
def schema(spark: SparkSession) -> object:
    return spark.range(0).selectExpr("CAST(id AS INT) AS n").schema


def written(directory: Path, count: int, names: Callable[[int], str] = "{}.parquet".format) -> Files:
    """Files with a number each, and one between them that nobody asked for."""
    directory.mkdir(parents=True, exist_ok=True)
    paths = [names(n) for n in range(count)]
    for n, path in enumerate([*paths, "stranger.parquet"]):
        pq.write_table(pa.table({"n": pa.array([n], pa.int32())}), directory / path)
    sizes = [(directory / path).stat().st_size for path in paths]
    encoded = [uri_of(f"/{path}").removeprefix("file:///") for path in paths]
    return Files(str(directory), pa.array(encoded), pa.array(sizes, pa.int64()))


def numbers(spark: SparkSession, schema: object, files: Files) -> list[int]:
    return sorted(row.n for row in read_files(spark, schema, files, version=1).collect())  # type: ignore[arg-type]


def location(spark: SparkSession, schema: object, files: Files) -> str:
    frame = read_files(spark, schema, files, version=1)  # type: ignore[arg-type]
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize("count", [1, FEW, FEW + 1, 60])
def test_few_and_many_files_give_the_same_rows(spark: SparkSession, schema: object, tmp_path: Path, count: int) -> None:
    files = written(tmp_path / "t", count)
    assert numbers(spark, schema, files) == list(range(count))
    assert ("MetadataLogFileIndex" in location(spark, schema, files)) == (count > FEW)


@pytest.mark.parametrize("many", [False, True])
def test_names_may_hold_anything(spark: SparkSession, schema: object, tmp_path: Path, many: bool) -> None:
    extra = [f"more {n}" for n in range(FEW)] if many else []
    names = [*ODD_NAMES, *extra]
    files = written(tmp_path / "t a%20b[c] é", len(names), lambda n: f"{names[n]}.parquet")
    assert numbers(spark, schema, files) == list(range(len(names)))


def test_a_file_name_is_found_again_in_the_metadata_column(spark: SparkSession, schema: object, tmp_path: Path) -> None:
    names = [*ODD_NAMES, "nbsp\u00a0x", "wide\u3000x", "line\u2028x"]
    files = written(tmp_path / "t a%20b[c] é", len(names), lambda n: f"{names[n]}.parquet")
    rows = read_files(spark, schema, files, version=1).select("n", "_metadata.file_path").collect()  # type: ignore[arg-type]
    found = {row.n: "/" + row.file_path.removeprefix("file:").lstrip("/") for row in rows}
    assert found == {n: metadata_path(place) for n, place in enumerate(files.places)}


@pytest.mark.parametrize("few", [True, False])
def test_absolute_paths_and_uris_lie_where_they_say(
    spark: SparkSession, schema: object, tmp_path: Path, few: bool
) -> None:
    files = written(tmp_path / "else where", 2 if few else FEW + 2)
    uris = files.uris.to_pylist()
    absolute = [uris[0].removeprefix("file://"), uris[1], *[uri.replace("file:///", "file:/") for uri in uris[2:]]]
    elsewhere = Files(str(tmp_path / "table"), pa.array(absolute), files.sizes)
    (tmp_path / "table").mkdir()
    assert numbers(spark, schema, elsewhere) == list(range(len(files)))


def test_uris_and_places_are_inverse() -> None:
    for place in ("/a b/100%/é", "s3a://bucket/a b", "hdfs://host:9000/x%20y"):
        assert place_of(uri_of(place)) == place
    remote = Files("s3a://bucket/table", pa.array(["x%20y.parquet", "/z.parquet", "gs://other/q.parquet"]), None)
    assert remote.places == ["s3a://bucket/table/x y.parquet", "s3a://bucket/z.parquet", "gs://other/q.parquet"]


def test_a_manifest_holds_the_exact_sizes(tmp_path: Path) -> None:
    files = written(tmp_path, 3)
    lines = (Path(write_manifest(tmp_path, 7, files)) / "_spark_metadata/0").read_text().splitlines()
    assert lines[0] == "v1"
    for n, line in enumerate(lines[1:]):
        assert f'"size":{(tmp_path / f"{n}.parquet").stat().st_size},' in line


def test_the_same_files_share_a_manifest(spark: SparkSession, schema: object, tmp_path: Path) -> None:
    files = written(tmp_path, 40)
    one, other = (read_files(spark, schema, files, version=1) for _ in range(2))  # type: ignore[arg-type]
    assert len(list((tmp_path / SCANS).iterdir())) == 1
    one.cache()
    try:
        assert "InMemoryRelation" in other._jdf.queryExecution().withCachedData().toString()
    finally:
        one.unpersist()


def test_old_manifests_go_whole_and_new_ones_stay(tmp_path: Path) -> None:
    files = written(tmp_path / "t", 3)
    old, new = (Path(write_manifest(tmp_path, version, files)) for version in (1, 2))
    os.utime(old, (time.time() - 2 * manifest.LIFETIME,) * 2)
    clean(tmp_path)
    assert not old.exists()
    assert (new / "_spark_metadata/0").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    os.utime(new, (time.time() - 2 * manifest.LIFETIME,) * 2)
    write_manifest(tmp_path, 2, files)
    clean(tmp_path)
    assert (new / "_spark_metadata/0").exists(), "it was just used"


def test_cleaning_is_never_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: Path, target: object) -> Path:
        raise PermissionError(13, "no", str(self))

    (tmp_path / "old").mkdir()
    os.utime(tmp_path / "old", (0, 0))
    monkeypatch.setattr(Path, "rename", refuse)
    clean(tmp_path)
    clean(tmp_path / "not there")
    assert (tmp_path / "old").exists()


def test_a_broken_manifest_is_made_anew(tmp_path: Path) -> None:
    files = written(tmp_path / "t", 3)
    made = Path(write_manifest(tmp_path, 1, files)) / "_spark_metadata/0"
    before = made.read_bytes()
    made.write_bytes(before[:-5])
    write_manifest(tmp_path, 1, files)
    assert made.read_bytes() == before
    made.unlink()
    write_manifest(tmp_path, 1, files)
    assert made.read_bytes() == before


def test_without_a_place_for_manifests_files_are_named_one_by_one(
    spark: SparkSession, schema: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise PermissionError(13, "read-only")

    monkeypatch.setattr(manifest, "write_manifest", refuse)
    files = written(tmp_path, 40)
    assert numbers(spark, schema, files) == list(range(40))
    assert "InMemoryFileIndex" in location(spark, schema, files)


def test_a_location_that_cannot_be_written_uses_temporary_files(
    spark: SparkSession, schema: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest.tempfile, "gettempdir", lambda: str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    files = written(tmp_path / "t", 40)
    (tmp_path / "t" / "_lakelog").write_text("in the way")
    assert numbers(spark, schema, files) == list(range(40))
    assert len(list((tmp_path / "tmp").glob("lakelog-scans-*/1-*/_spark_metadata/0"))) == 1


def test_a_spark_that_reads_manifests_wrongly_gets_no_manifest(
    spark: SparkSession,
    schema: object,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    manifest._trusted.clear()
    files = written(tmp_path, 40, lambda n: f"{n} [x].parquet")
    with monkeypatch.context() as patch:
        patch.setattr(manifest, "MANIFEST", "_other_metadata")
        threshold = spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold")
        assert numbers(spark, schema, files) == list(range(40))
        assert "InMemoryFileIndex" in location(spark, schema, files)
        assert spark.conf.get("spark.sql.sources.parallelPartitionDiscovery.threshold") == threshold
    assert caplog.text.count("does not read scan manifests") == 1


def test_the_canary_sings_once_and_leaves_nothing(
    spark: SparkSession, schema: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manifest._trusted.clear()
    files = written(tmp_path, 40)
    assert numbers(spark, schema, files) == list(range(40))
    assert list(manifest._trusted.values()) == [True]
    assert len(list((tmp_path / SCANS).iterdir())) == 1
    assert not is_connect(spark)
    assert caplog.text == ""


def test_the_setting_that_ignores_manifests_is_respected(spark: SparkSession, schema: object, tmp_path: Path) -> None:
    spark.conf.set("spark.sql.streaming.fileStreamSink.metadata.ignored", "true")
    try:
        files = written(tmp_path, 40)
        assert numbers(spark, schema, files) == list(range(40))
        assert "InMemoryFileIndex" in location(spark, schema, files)
    finally:
        spark.conf.unset("spark.sql.streaming.fileStreamSink.metadata.ignored")


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("ignore", ["spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"])
def test_a_lost_file_is_an_error_even_where_the_session_ignores_it(
    spark: SparkSession, schema: object, tmp_path: Path, count: int, ignore: str
) -> None:
    files = written(tmp_path, count)
    if "Missing" in ignore:
        (tmp_path / "1.parquet").unlink()
    else:
        (tmp_path / "1.parquet").write_bytes(b"x" * files.sizes[1].as_py())
    spark.conf.set(ignore, "true")
    try:
        with pytest.raises(Exception, match=r"1\.parquet"):
            numbers(spark, schema, files)
    finally:
        spark.conf.unset(ignore)


def test_of_many_files_only_the_latest_are_remembered(
    spark: SparkSession, schema: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manifest, "_REMEMBERED_FILES", 100)
    manifest._relations.clear()
    for number in range(4):
        files = written(tmp_path / str(number), 40)
        assert numbers(spark, schema, files) == list(range(40))
    assert [files for _, files in manifest._relations.values()] == [40, 40]
    numbers(spark, schema, written(tmp_path / "many", 101))
    assert [files for _, files in manifest._relations.values()] == [101]
