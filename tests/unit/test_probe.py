"""A footer that makes pyarrow abort its process is refused, and the process goes on."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

REGISTER = """
import sys
import lakelog

with lakelog.connect(f"sqlite:///{sys.argv[1]}/catalog.db") as lake:
    try:
        lake.register_parquet(f"{sys.argv[1]}/raw", "events")
    except lakelog.LakelogError as error:
        print(error)
    print([each.name for each in lake.datasets()])
"""


def test_a_fatal_footer_is_refused_and_named(tmp_path: Path) -> None:
    raw = tmp_path / "raw"
    raw.mkdir()
    for number in range(3):
        pq.write_table(pa.table({"id": [number, 2**53 + 1]}), raw / f"part-{number}.parquet")
    damaged = raw / "part-1.parquet"
    data = damaged.read_bytes()
    # The footer's version 2, and the type INT64 of its only column chunk; a list follows both.
    assert data.count(b"\x15\x04\x19") == 2
    before, found, after = data.rpartition(b"\x15\x04\x19")
    damaged.write_bytes(before + found.replace(b"\x04", b"\x00") + after)
    # Not in this process, which might not survive.
    done = subprocess.run([sys.executable, "-c", REGISTER, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "nothing was committed" in done.stdout
    assert "part-1.parquet: " in done.stdout
    assert "part-0.parquet" not in done.stdout
    assert "part-2.parquet" not in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
    damaged.write_bytes(data)
    done = subprocess.run([sys.executable, "-c", REGISTER, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout == "['events']\n"


def test_a_module_beside_the_files_is_not_run(tmp_path: Path) -> None:
    """Who looks at files that came from somewhere does so in their directory, perhaps."""
    raw = tmp_path / "raw"
    raw.mkdir()
    pq.write_table(pa.table({"id": [1]}), raw / "part-0.parquet")
    for name in ("socket", "json", "pyarrow", "lakelog"):
        (raw / f"{name}.py").write_text(f"open({str(tmp_path / 'was-run')!r}, 'w').close()\n")
    program = tmp_path / "register.py"
    program.write_text(REGISTER)
    done = subprocess.run(
        [sys.executable, program, str(tmp_path)], capture_output=True, text=True, check=False, cwd=raw
    )
    assert done.stdout == "['events']\n", done.stderr
    assert not (tmp_path / "was-run").exists()
