"""The project's own files: what is committed works on every machine."""

import ast
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A path below a directory that only one machine has; a preceding word, dot or closing bracket makes it a relative one.
MACHINE_PATH = re.compile(r"(?<![\w.~)\]}>*-])/(?:home|Users|root|work|opt|mnt)/[\w.-]+")
REGISTRY = re.compile(
    r"https?://\S*(?:/simple\b|\.whl\b|\.tar\.gz\b|pythonhosted|/pypi/)|(?:index-url|find-links)[ =]+\S*/"
)


def committed_files() -> list[Path]:
    try:
        listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    return [ROOT / name for name in listing.stdout.split("\0") if name]


def matches(pattern: re.Pattern[str]) -> list[str]:
    found = []
    for path in committed_files():
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="ignore")
        lines = enumerate(text.splitlines(), start=1)
        found += [
            f"{path.relative_to(ROOT)}:{number}: {line.strip()}" for number, line in lines if pattern.search(line)
        ]
    return found


def test_no_committed_file_names_a_path_of_one_machine() -> None:
    assert matches(MACHINE_PATH) == []


def test_no_committed_file_names_a_package_registry() -> None:
    assert matches(REGISTRY) == []


def test_constraints_are_names_and_versions_only() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[0-9][0-9a-z.]*", line)] == []
    assert lines == sorted(set(lines))


def test_the_package_imports_nothing_that_only_spark_connect_needs() -> None:
    nodes = [node for path in (ROOT / "src").rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {str(node.module) for node in nodes if isinstance(node, ast.ImportFrom)}
    found = {name.partition(".")[0] for name in imported}
    assert "pyspark" in found
    assert found.isdisjoint({"google", "grpc", "grpc_status", "yaml", "zstandard"})


@pytest.mark.parametrize("script", ["dev", ".ci/run"])
def test_scripts_are_executable(script: str) -> None:
    assert os.access(ROOT / script, os.X_OK)
