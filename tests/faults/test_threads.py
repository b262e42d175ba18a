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


def test_commits_need_no_thread_that_could_not_start(place: Place, tmp_path: Path) -> None:
    library = compile_shim(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler, or no Linux")
    command = [sys.executable, "-c", WORK, place.url, str(place.root), place.schema, str(tmp_path / "control")]
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.stdout == "2 302\n", done.stderr[-3000:]
