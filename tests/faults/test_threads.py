"""Where no thread can start any more, commits go on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.campaign.shim import compile_shim
from tests.fixtures.lakes import Place

ROOT = Path(__file__).parent.parent.parent

WORK = """
import sys
from pathlib import Path
import lakelog, pyarrow as pa
from lakelog.actions import AddFile
from tests.campaign import shim
control = shim.Control(Path(sys.argv[4]))
shim.attach(control.path)
with lakelog.connect(sys.argv[1], root=sys.argv[2], schema=sys.argv[3]) as lake:
    events = lake.create_dataset("events", pa.schema([("id", pa.int64())]), mirror=False)
    control.refuse_threads(1 << 20)
    try:
        for number in (0, 300):
            paths = [f"{number + each}.parquet" for each in range(number + 1)]
            files = [AddFile(path=path, size=1, modification_time=0) for path in paths]
            lakelog.SqlTxnLogWriter(lake).commit(events.id, events.version + 1, files)
    finally:
        control.refuse_threads(0)
    print(events.version, events.snapshot().files().num_rows)
"""


LISTING = """
import sys
from pathlib import Path
import lakelog, pyarrow as pa
from lakelog.actions import AddFile
from tests.campaign import shim
control = shim.Control(Path(sys.argv[4]))
shim.attach(control.path)
with lakelog.connect(sys.argv[1], root=sys.argv[2], schema=sys.argv[3]) as lake:
    events = lake.create_dataset("events", pa.schema([("id", pa.int64())]), mirror=False)
    files = [AddFile(path=f"{number}.parquet", size=1, modification_time=0) for number in range(2)]
    lakelog.SqlTxnLogWriter(lake).commit(events.id, 1, files)
    control.refuse_threads(1 << 20)
    try:
        assert events.snapshot().files().num_rows == 2
    except lakelog.LakelogError as error:
        assert "thread" in str(error), error
    finally:
        control.refuse_threads(0)
    print("2 or an error of ours, then", events.snapshot().files().num_rows)
"""


@pytest.fixture
def library(tmp_path: Path) -> Path:
    found = compile_shim(tmp_path)
    if found is None:
        pytest.skip("there is no C compiler, or no Linux")
    return found


def run(script: str, place: Place, tmp_path: Path, library: Path) -> str:
    command = [sys.executable, "-c", script, place.url, str(place.root), place.schema, str(tmp_path / "control")]
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_commits_need_no_thread_that_could_not_start(place: Place, tmp_path: Path, library: Path) -> None:
    assert run(WORK, place, tmp_path, library) == "2 302\n"


def test_a_listing_without_a_thread_is_our_error_or_whole(place: Place, tmp_path: Path, library: Path) -> None:
    assert run(LISTING, place, tmp_path, library) == "2 or an error of ours, then 2\n"
