"""Which file paths an action may name."""

from urllib.parse import quote, unquote

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakelog.log.validation.paths import bad_path_mask, path_problem

GOOD = [
    "a",
    "part-00000-3f2b1e7c-9f8e-4d0a-8a56-0d7f6b1c2d3e.c000.snappy.parquet",
    "day=2024-01-01/hour=3/part-0.parquet",
    "day=__HIVE_DEFAULT_PARTITION__/a.parquet",
    "_change_data/cdc-0.parquet",
    "a%20b.parquet",
    "city=S%C3%A3o%20Paulo/a.parquet",
    "city=São/ü.parquet",
    "ts=2024-01-01%2000%253A00%253A00/a.parquet",
    "url=http%253A%252F%252Fexample.com%252F/a.parquet",
    "k=..%252Fx/a.parquet",
    "a%3Ab/c",
    "b/a:c",
    "a%3Fb%23c",
    "100%25",
    "a@b,c;d$e&f!g'h(i)j*k~l",
    "...",
    ".hidden/x",
    "a..b/..c",
    "x/_delta_log/y",
    "_delta_log_archive/x",
    "a" * 4096,
    "é" * 2048,
]

BAD = {
    "": "is empty",
    "..": "segment '..'",
    ".": "segment '.'",
    "../a": "segment '..'",
    "a/../b": "segment '..'",
    "a/./b": "segment '.'",
    "a/..": "segment '..'",
    "%2e%2e/a": "segment '..'",
    "%2E./a": "segment '..'",
    "a/%2e%2E/b": "segment '..'",
    "a%2F..%2Fb": "segment '..'",
    "%252e%252e/a": "decoded a second time",
    "%252e/a": "decoded a second time",
    "a/.%252E/b": "decoded a second time",
    "k=a%252F..%252F..%252Fb": "decoded a second time",
    "..%255c..%255cx": "decoded a second time",
    "/a": "is absolute",
    "/etc/passwd": "is absolute",
    "s3://bucket/key": "is absolute",
    "file:///x": "is absolute",
    "file:/x": "is absolute",
    "//host/share": "names a host",
    "C:/x": "':' in its first segment",
    "a:b/c": "':' in its first segment",
    "urn:x": "':' in its first segment",
    "C:\\x": "backslash",
    "a\\b": "backslash",
    "a%5Cb": "backslash",
    "a//b": "empty segment",
    "a/": "empty segment",
    "a%2F": "empty segment",
    "%2Fetc/passwd": "empty segment",
    "a/%2F/b": "empty segment",
    "_delta_log": "belongs to the log",
    "_delta_log/0.json": "belongs to the log",
    "_DELTA_log/0.json": "belongs to the log",
    "%5Fdelta%5flog/0.json": "belongs to the log",
    "_delta_log%2F0.json": "belongs to the log",
    "a?b": "query",
    "a#b": "fragment",
    "a%": "%25",
    "a%2": "%25",
    "a%zz": "%25",
    "a b": "%20",
    "a\u00a0b": "%C2%A0",
    "a[1]": "%5B",
    'a"b': "%22",
    "a{b}": "%7B",
    "a\0": "control character U+0000",
    "a\n": "control character U+000A",
    "a\x85b": "control character U+0085",
    "a%00": "control character U+0000",
    "a%0Ab": "control character U+000A",
    "a\ud800": "surrogate",
    "a%ff": "not UTF-8",
    "a%ED%A0%80": "not UTF-8",
    "a" * 4097: "4097 bytes",
    "é" * 2049: "4098 bytes",
}


@pytest.mark.parametrize("path", GOOD)
def test_an_encoded_relative_path_is_accepted(path: str) -> None:
    assert path_problem(path) is None


@pytest.mark.parametrize(("path", "reason"), BAD.items(), ids=map(ascii, (path[:40] for path in BAD)))
def test_a_path_that_could_lead_elsewhere_is_refused_with_the_reason(path: str, reason: str) -> None:
    assert reason in (path_problem(path) or "")


@pytest.mark.parametrize(
    "path",
    ["/x", "/a/b", "s3://bucket/key", "file:///x", "file:/x", "hdfs://nn:8020/a/b", "abfss://c@acc.dfs.x.net/a", "a/b"],
)
def test_a_well_formed_absolute_path_is_accepted_where_it_is_allowed(path: str) -> None:
    assert path_problem(path, allow_absolute=True) is None


@pytest.mark.parametrize(
    "path",
    [
        "//host/x",
        "/",
        "/a/",
        "/a/../b",
        "/a//b",
        "/%2e%2e/b",
        "/%252e%252e/b",
        "s3://bucket",
        "s3://bucket/",
        "s3://bucket/../other/key",
        "s3://bucket/a?versionId=1",
        "file:////x",
        "file:x",
        "C:/x",
        "1s3://b/k",
        "/table/_delta_log/0.json",
        "s3://bucket/table/_delta_log/0.json",
        "../a",
        "_delta_log/x",
    ],
)
def test_an_absolute_path_keeps_to_the_same_rules(path: str) -> None:
    assert path_problem(path, allow_absolute=True) is not None


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=3))
def test_what_is_encoded_once_and_accepted_decodes_to_a_file_below_the_root(segments: list[str]) -> None:
    try:
        path = "/".join(quote(segment, safe="") for segment in segments)
    except UnicodeEncodeError:
        return
    if path_problem(path) is None:
        assert unquote(path) == "/".join(segments)
        assert not {"", ".", ".."}.intersection(unquote(path).split("/"))


@given(st.text(max_size=20) | st.text("./%2eE5fF_-a:\\ ", max_size=12))
def test_no_accepted_text_has_a_traversal_however_often_it_is_decoded(path: str) -> None:
    if path_problem(path) is None:
        for decoded in (path, unquote(path), unquote(unquote(path))):
            assert ".." not in decoded.replace("\\", "/").split("/")


def test_a_mask_marks_exactly_the_paths_that_have_a_problem() -> None:
    paths = [path for path in [*GOOD, *BAD] if path.isprintable()]
    expected = [path_problem(path) is not None for path in paths]
    assert bad_path_mask(pa.array(paths)).to_pylist() == expected
    assert bad_path_mask(pa.chunked_array([paths[:3], paths[3:]])).to_pylist() == expected
    assert bad_path_mask(pa.array(paths, pa.large_string())).to_pylist() == expected


@given(st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=10), max_size=5))
def test_a_mask_agrees_with_the_judgement_of_each_path(paths: list[str | None]) -> None:
    expected = [path is None or path_problem(path) is not None for path in paths]
    assert bad_path_mask(pa.array(paths, pa.string())).to_pylist() == expected


def test_a_mask_of_no_paths_is_empty() -> None:
    assert len(bad_path_mask(pa.chunked_array([], pa.string()))) == 0
    assert bad_path_mask(pa.array(["/x"]), allow_absolute=True).to_pylist() == [False]
