"""The code that the README and the docs show works when pasted."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "docs" / "quickstart.md"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [
    pytest.param(block, id=f"{page.stem}-{number}")
    for page in PAGES
    if page != QUICKSTART
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL))
]
# A few rows are not worth 200 parts.
ENVIRONMENT = {**os.environ, "PYSPARK_SUBMIT_ARGS": "--conf spark.sql.shuffle.partitions=2 pyspark-shell"}


# Spark takes longer to start than most blocks to run, so they have one process. It empties its directory for each.
RUNNER = """
import json, os, shutil, sys, traceback
from pathlib import Path

answers = os.fdopen(os.dup(1), "w", 1)
os.dup2(2, 1)
for line in sys.stdin:
    for left in Path().iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    if "pyspark" in sys.modules and (spark := sys.modules["pyspark"].sql.SparkSession.getActiveSession()):
        for table in spark.catalog.listTables():
            spark.catalog.dropTempView(table.name)
    try:
        exec(compile(json.loads(line), "<block>", "exec"), {"__name__": "__main__"})
        problem = None
    except BaseException:
        problem = traceback.format_exc()
    print(json.dumps(problem), file=answers)
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[str]]:
    """Somebody who pastes code, into an empty directory each time."""
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER],
        cwd=tmp_path_factory.mktemp("pasted"),
        env=ENVIRONMENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process


@pytest.mark.parametrize("block", BLOCKS)
def test_a_code_block_runs_in_an_empty_directory(block: str, reader: subprocess.Popen[str]) -> None:
    assert reader.stdin is not None
    assert reader.stdout is not None
    print(json.dumps(block), file=reader.stdin, flush=True)
    problem = json.loads(reader.stdout.readline())
    assert problem is None, problem


def test_the_quickstart_can_be_followed(tmp_path: Path) -> None:
    page = QUICKSTART.read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    _, commands = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", f"python -c {shlex.quote(code)}\n{commands}"],
        cwd=tmp_path,
        env={**ENVIRONMENT, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "coupon added: string" in done.stdout
    assert re.search(r"^\d of \d files$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_files_of_the_project_that_a_page_names_exist(page: Path) -> None:
    named = set(re.findall(r"`((?:tests|src|bench|docs|examples)/[\w./:-]+)`", page.read_text()))
    assert sorted(name for name in named if not (ROOT / name.split("::")[0]).exists()) == []


def test_the_published_campaign_reaches_its_aims() -> None:
    page = (ROOT / "docs" / "reliability.md").read_text()
    found = re.search(
        r"\*\*([\d,]+) faults\s+of (\d+) kinds, ([\d,]+) acknowledged commits, none lost, none told wrongly\*\*, "
        r"and ([\d,]+) hostile inputs",
        page,
    )
    assert found is not None
    faults, kinds, commits, inputs = (int(each.replace(",", "")) for each in found.groups())
    assert (faults >= 5_000, kinds >= 30, commits >= 200_000, inputs >= 20_000) == (True, True, True, True)
    rows = [
        line.strip("| ").split(" | ") for line in page.splitlines() if re.match(r"\| (sqlite|duckdb|postgres) \|", line)
    ]
    assert sum(int(row[2].replace(",", "")) for row in rows) == faults
    assert sum(int(row[3].replace(",", "")) for row in rows) == commits
    assert {(row[4], row[5]) for row in rows} == {("0", "0")}
