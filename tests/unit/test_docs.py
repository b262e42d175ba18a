"""The code that the README and the docs show works when pasted."""

import os
import re
import shlex
import subprocess
import sys
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


@pytest.mark.parametrize("block", BLOCKS)
def test_a_code_block_runs_in_an_empty_directory(block: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block], cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


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
