"""Python that runs in a process of its own, where a library makes the system's calls fail."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.shim import compile_shim
from tests.fixtures.lakes import Place

ROOT = Path(__file__).parent.parent.parent

BEFORE = """
import errno, sys
from pathlib import Path
import lakelog, pyarrow as pa
from lakelog.actions import AddFile
from tests.campaign import shim
control = shim.Control(Path(sys.argv[4]))
shim.attach(control.path)
lake = lakelog.connect(sys.argv[1], root=sys.argv[2], schema=sys.argv[3])
events = lake.create_dataset("events", pa.schema([("id", pa.int64())]), mirror=False)
def add(*names):
    files = [AddFile(path=f"{name}.parquet", size=1, modification_time=0) for name in names]
    lakelog.SqlTxnLogWriter(lake).commit(events.id, events.version + 1, files)
"""
"""What each script begins with: a table, and a control of what fails."""


def run_shimmed(script: str, place: Place, tmp_path: Path) -> str:
    """What a script prints."""
    library = compile_shim(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler, or no Linux")
    arguments = [place.url, str(place.root), place.schema, str(tmp_path / "control")]
    done = subprocess.run(
        [sys.executable, "-c", BEFORE + script, *arguments],
        env={**os.environ, "LD_PRELOAD": str(library)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
