"""Which files a pattern stands for, and how the log names them."""

import os
from pathlib import Path

import pytest

from lakelog import ConfigurationError, ValidationError
from lakelog.importing.file_listing import Listing, find_files
from lakelog.log.validation.paths import path_problem
from lakelog.storage.hive import directory_of, log_path, values_of

FILES = (
    "a.parquet",
    "b.csv",
    "one/c.parquet",
    "one/two/d.parquet",
    "two/c.parquet",
    "_hidden/e.parquet",
    ".hidden/e.parquet",
    "_day=1/f.parquet",
    "_SUCCESS",
    "one/_metadata",
    "one/.c.parquet.crc",
    "one/_g.parquet",
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


def names(listing: Listing) -> list[str]:
    return [file.relative for file in listing.files]


@pytest.mark.parametrize(
    ("pattern", "location", "found"),
    [
        ("", "", ["_day=1/f.parquet", "a.parquet", "one/c.parquet", "one/two/d.parquet", "two/c.parquet"]),
        ("**/*.parquet", "", ["_day=1/f.parquet", "a.parquet", "one/c.parquet", "one/two/d.parquet", "two/c.parquet"]),
        ("*.parquet", "", ["a.parquet"]),
        ("a.parquet", "", ["a.parquet"]),
        ("one", "one", ["c.parquet", "two/d.parquet"]),
        ("one/*.parquet", "one", ["c.parquet"]),
        ("*/c.parquet", "", ["one/c.parquet", "two/c.parquet"]),
        ("**/c.parquet", "", ["one/c.parquet", "two/c.parquet"]),
        ("**/two/**/*.parquet", "", ["one/two/d.parquet", "two/c.parquet"]),
        ("**/**/d.parquet", "", ["one/two/d.parquet"]),
        ("one/**", "one", ["c.parquet", "two/d.parquet"]),
        ("[ab].*", "", ["a.parquet", "b.csv"]),
        ("?.parquet", "", ["a.parquet"]),
        ("t*", "", ["two/c.parquet"]),
        ("_hidden/*.parquet", "_hidden", ["e.parquet"]),
        ("one/../two/*", "two", ["c.parquet"]),
    ],
)
def test_a_pattern_finds_files_below_its_first_wildcard(
    root: Path, pattern: str, location: str, found: list[str]
) -> None:
    listing = find_files(root / pattern if ".." not in pattern else f"{root}/{pattern}")
    assert listing.location == str(root / location)
    assert sorted(names(listing)) == sorted(found)
    assert all(file.place == f"{listing.location}/{file.relative}" for file in listing.files)
    assert {file.size for file in listing.files} == {1}


def test_a_relative_pattern_is_below_the_current_directory(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    assert find_files("one/*.parquet").location == str(root / "one")
    assert names(find_files("*.parquet")) == ["a.parquet"]


def test_a_path_that_exists_stands_for_itself(tmp_path: Path) -> None:
    for name in ("x[1]", "x1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a[*].parquet").write_text("x")
        (tmp_path / name / "a*.parquet").write_text("x")
    assert find_files(tmp_path / "x[1]").location == str(tmp_path / "x[1]")
    assert names(find_files(tmp_path / "x[1]" / "a[*].parquet")) == ["a[*].parquet"]
    assert names(find_files(tmp_path / "x[[]1]" / "*.parquet")) == ["x[1]/a*.parquet", "x[1]/a[*].parquet"]


@pytest.mark.parametrize("pattern", ["nothing", "nothing/*.parquet", "*.orc", "a.parquet/*", "a.parquet/b"])
def test_no_file_is_an_error(root: Path, pattern: str) -> None:
    with pytest.raises(ConfigurationError, match=r"no file matches '.*'$"):
        find_files(root / pattern)


@pytest.mark.parametrize("pattern", ["_SUCCESS", "one/_*", ".hidden*"])
def test_hidden_files_only_are_an_error_that_says_so(root: Path, pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="are hidden, by a name that begins with"):
        find_files(root / pattern)


def test_a_location_holds_all_files(root: Path) -> None:
    assert names(find_files(root / "one" / "*.parquet", root)) == ["one/c.parquet"]
    assert names(find_files(root / "*" / "two" / "*.parquet", root / "one")) == ["two/d.parquet"]
    with pytest.raises(ValidationError, match=f"{root}/two/c.parquet: is not below the location '{root}/one'"):
        find_files(root / "*" / "c.parquet", root / "one")
    with pytest.raises(ConfigurationError, match="are hidden"):
        find_files(root / "_hidden" / "*.parquet", root)


def test_links_are_followed_but_never_in_circles(root: Path) -> None:
    elsewhere = root.parent / f"{root.name}-elsewhere"
    (elsewhere / "deep").mkdir(parents=True)
    (elsewhere / "deep" / "x.parquet").write_text("x")
    (root / "linked").symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(root)
    (root / "one" / "up").symlink_to(root)
    (root / "link.parquet").symlink_to(root / "a.parquet")
    found = names(find_files(root))
    assert "linked/deep/x.parquet" in found
    assert "link.parquet" in found
    assert len(found) == 7


def test_a_link_to_nothing_is_an_error(root: Path) -> None:
    (root / "gone.parquet").symlink_to(root / "nowhere")
    with pytest.raises(ConfigurationError, match=r"cannot read .*gone\.parquet"):
        find_files(root)


def test_a_name_that_is_not_text_is_an_error(root: Path) -> None:
    try:
        Path(os.fsdecode(bytes(root) + b"/\xff.parquet")).write_text("x")
    except OSError:
        pytest.skip("this file system takes text only")
    with pytest.raises(ConfigurationError, match="lone surrogate"):
        find_files(root)


@pytest.mark.parametrize(
    ("relative", "path"),
    [
        ("day=2026-01-31/a.parquet", "day=2026-01-31/a.parquet"),
        ("a b/é.parquet", "a%20b/%C3%A9.parquet"),
        ("k=a%2Fb/x#?.parquet", "k=a%252Fb/x%23%3F.parquet"),
        ("a:b/c:d.parquet", "a%3Ab/c:d.parquet"),
        ("x{1}[2]^|<>`.parquet", "x%7B1%7D%5B2%5D%5E%7C%3C%3E%60.parquet"),
    ],
)
def test_the_log_names_a_path_encoded_once(relative: str, path: str) -> None:
    assert log_path(relative) == path
    assert path_problem(path) is None


def test_directories_say_what_spark_wrote_into_them() -> None:
    values = {"a/b": "x=y:z%", "empty": None, "é": "ü é"}
    assert values_of(f"__w=1/{directory_of(values)}") == {"__w": "1", **values}
