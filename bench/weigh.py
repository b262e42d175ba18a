"""One large commit in this process, and what it weighs: ``python -m bench.weigh``, started by a subject."""

import json
import sys
import time
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.feather

from bench.lab import Place, new_dataset
from lakelog import AddFiles, SqlTxnLogWriter


def weigh(place: Place, adds_file: Path, groups_file: Path) -> tuple[float, float, float]:
    """Seconds of one commit, and in MB by how much the process grew meanwhile and how large its input is."""
    adds = pyarrow.feather.read_table(adds_file, memory_map=False)
    groups = pyarrow.feather.read_table(groups_file, memory_map=False)
    with place.connect() as lake:
        dataset = new_dataset(lake, "huge")
        # What is loaded and allocated once, by the first large commit of a process, is not this one's.
        small = new_dataset(lake, "small")
        few = pc.is_in(groups.column("path"), value_set=adds.column("path").slice(0, 2_000).combine_chunks())
        writer = SqlTxnLogWriter(lake)
        writer.commit(small.id, 1, [AddFiles(adds.slice(0, 2_000))], row_groups=groups.filter(few))
        Path("/proc/self/clear_refs").write_text("5")
        before = _memory("VmRSS")
        started = time.perf_counter()
        writer.commit(dataset.id, 1, [AddFiles(adds)], row_groups=groups)
        elapsed = time.perf_counter() - started
        return elapsed, (_memory("VmHWM") - before) / 1024, (adds.nbytes + groups.nbytes) / 1024**2


def _memory(name: str) -> int:
    """In KB; VmHWM is the most since ``clear_refs``."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    *address, adds_path, groups_path = sys.argv[1:]
    print(json.dumps(weigh(Place(*address), Path(adds_path), Path(groups_path))))
