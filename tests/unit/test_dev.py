"""``./dev test`` tells the truth by its exit code, which is all that CI looks at."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the script, with an environment in which a file named like a tool's argument makes that tool fail."""
    for name in ("dev", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(
        "#!/usr/bin/env bash\n"
        f'[ "$1" != -c ] || exec {sys.executable} "$@"\n'
        'last=${!#}\necho "ran $last"\n[ ! -e "fails-${last//\\//-}" ]\n'
    )
    python.chmod(0o755)
    shutil.copy(python, python.with_name("lint-imports"))
    # Set up already: the script compares this with what it would install.
    script = (ROOT / "dev").read_text().partition("command=${1:-help}")[0]
    (tmp_path / "stamp.sh").write_text(script + '{ fingerprint && echo all,dev; } >"$stamp"\n')
    subprocess.run(["bash", "stamp.sh"], cwd=tmp_path, check=True)
    return tmp_path


def run(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "dev", "test"],
        cwd=project,
        env={"PATH": "/usr/bin:/bin", "JAVA_HOME": "anywhere"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_success_is_success(project: Path) -> None:
    done = run(project)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "== all good")
    assert "ran --ignore=tests/spark" in done.stdout
    assert "ran tests/spark" in done.stdout


@pytest.mark.parametrize(
    ("argument", "step"),
    [
        ("mypy", "types"),
        ("--no-cache", "layers"),
        ("tests-spark", "tests with Spark"),
        ("--ignore=tests-spark", "tests without Spark"),
        ("--check", "speed"),
    ],
)
def test_one_failure_of_any_step_is_a_failure(project: Path, argument: str, step: str) -> None:
    (project / f"fails-{argument}").touch()
    done = run(project)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, f"dev: failed: {step}")
