"""Footers that others wrote are opened in another process first: some damage makes pyarrow abort its process.

pyarrow checks a column chunk (its type, its histograms) when asked for statistics; an exception there ends the process.
"""

import os
import resource
import subprocess
import sys
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.errors import LakelogError
from lakelog.parquet.footers import Places, WrittenFile
from lakelog.threads import map_in_threads

_ENOUGH = 5
"""Each fatal footer costs a process, and nobody needs to see all of them."""


def refuse_fatal(files: Sequence[WrittenFile]) -> None:
    """Raises ``LakelogError`` that names files whose footers no process survives."""
    workers = max(1, min(os.cpu_count() or 1, len(files) // 500))
    shares = [[file.place for file in files[start::workers]] for start in range(workers)]
    fatal = [line for share in map_in_threads(_fatal, shares, workers) for line in share]
    if fatal:
        raise LakelogError(
            "expected whole Parquet files, but some footers are damaged so that pyarrow cannot survive them; "
            "nothing was committed. Write the data again:\n  - " + "\n  - ".join(fatal)
        )


def _fatal(places: Sequence[str]) -> list[str]:
    found: list[str] = []
    while places and len(found) < _ENOUGH:
        done = _run(places)
        if done.returncode == 0:
            break
        survived = done.stdout.count(b".")
        said = done.stderr.decode(errors="backslashreplace").strip()
        if done.returncode > 0 or survived >= len(places):
            raise LakelogError(f"footers cannot be looked at in another process ({sys.executable}): {said[-500:]}")
        found.append(f"{places[survived]}: {said.splitlines()[-1] if said else f'signal {-done.returncode}'}")
        places = places[survived + 1 :]
    return found


def _run(places: Sequence[str]) -> "subprocess.CompletedProcess[bytes]":
    # What this process can import, the other one can, too.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    return subprocess.run(
        # Without the directory that it happens to be in, whose files may be called like modules.
        [sys.executable, "-P", "-m", "lakelog.parquet.probe"],
        input="\0".join(places).encode(errors="surrogateescape"),
        capture_output=True,
        env=environment,
        check=False,
    )


def main() -> None:
    """Opens all that the reader of footers opens, and prints a dot for each file that was survived."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    places = Places()
    for place in sys.stdin.buffer.read().decode(errors="surrogateescape").split("\0"):
        try:
            with places.open(place) as opened:
                footer = pq.ParquetFile(opened).metadata
            for index in range(footer.num_row_groups):
                group = footer.row_group(index)
                for column in range(group.num_columns):
                    _ = group.column(column).statistics
        except (pa.ArrowException, OSError, ValueError):
            pass  # The reader says this better.
        os.write(1, b".")


if __name__ == "__main__":
    main()
