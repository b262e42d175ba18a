"""A machine that is full, whose clock jumps, and whose descriptors, memory and threads run out."""

import contextlib
import errno
import os
import random
import resource
from collections.abc import Callable
from pathlib import Path

from tests.campaign.arena import Arena
from tests.campaign.kinds.kind import FILES, Kind, pause
from tests.campaign.shim import Clocks

_LOCKS = ("-lock", "-turn", "-next")


def _full(arena: Arena, rng: random.Random, directory: Path) -> int:
    """Takes all room that a disk has left, but for a few bytes."""
    assert arena.control is not None
    before = arena.control.refusals(errno.ENOSPC)
    ballast = directory / "ballast"
    with ballast.open("wb") as file:
        for _ in range(3):
            left = os.statvfs(directory)
            with contextlib.suppress(OSError):
                size = os.fstat(file.fileno()).st_size
                os.posix_fallocate(file.fileno(), size, max(left.f_bavail * left.f_frsize, 1))
    pause(rng, 0.1, 0.6)
    ballast.unlink()
    return int(arena.control.refusals(errno.ENOSPC) > before)


def _full_catalog(arena: Arena, rng: random.Random) -> int:
    return _full(arena, rng, arena.catalog_directory)


def _full_data(arena: Arena, rng: random.Random) -> int:
    return _full(arena, rng, arena.root)


def _delete_locks(arena: Arena, rng: random.Random) -> int:
    count = 0
    for path in arena.catalog_directory.iterdir():
        if path.name.endswith(_LOCKS) and rng.random() < 0.7:
            path.unlink(missing_ok=True)
            count += 1
    pause(rng, 0.05, 0.2)
    return count


def _clock(sign: int) -> Kind:
    def strike(arena: Arena, rng: random.Random) -> int:
        assert arena.control is not None
        # Of all processes, or of some, so that they disagree.
        arena.control.set_clock(sign * rng.choice((0.5, 30, 3600, 86_400, 400 * 86_400)), rng.choice(tuple(Clocks)))
        pause(rng, 0.1, 0.5)
        arena.control.set_clock(0)
        return 2

    return Kind(name=f"a clock that jumps {'ahead' if sign > 0 else 'back'}, and again", strike=strike, needs=("shim",))


def _descriptors(arena: Arena, rng: random.Random) -> int:
    """No file can be opened any more."""

    def most(pid: int) -> int:
        return len(list(Path(f"/proc/{pid}/fd").iterdir())) + rng.randrange(3)

    return _limited(arena, rng, resource.RLIMIT_NOFILE, errno.EMFILE, most)


def _memory(arena: Arena, rng: random.Random) -> int:
    def size(pid: int) -> int:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[0])
        return pages * resource.getpagesize() + rng.choice((0, 1 << 16, 1 << 20, 1 << 22))

    return _limited(arena, rng, resource.RLIMIT_AS, errno.ENOMEM, size)


def _limited(arena: Arena, rng: random.Random, limit: int, error: int, most: Callable[[int], int]) -> int:
    """Counts only if something was refused: the process may need no more of it."""
    assert arena.control is not None
    pids = arena.pids
    if not pids:
        return 0
    pid, before = rng.choice(pids), arena.control.refusals(error)
    with contextlib.suppress(OSError, ValueError):
        soft, hard = resource.prlimit(pid, limit)
        if limit == resource.RLIMIT_AS:
            arena.starved.add(pid)
        resource.prlimit(pid, limit, (most(pid), hard))
        pause(rng, 0.1, 0.5)
        resource.prlimit(pid, limit, (soft, hard))
    return int(arena.control.refusals(error) > before)


def _threads(arena: Arena, rng: random.Random) -> int:
    assert arena.control is not None
    before = arena.control.refused_threads
    arena.control.refuse_threads(rng.choice((1, 5, 1000)))
    pause(rng, 0.2, 0.6)
    arena.control.refuse_threads(0)
    # One that is asked for again and again is one fault.
    return int(arena.control.refused_threads > before)


KINDS = [
    Kind(name="a full disk under the catalog", strike=_full_catalog, backends=FILES, needs=("disks", "shim")),
    Kind(name="a full disk under data and mirror", strike=_full_data, needs=("disks", "shim")),
    Kind(name="a lock file that is deleted", strike=_delete_locks, backends=("sqlite",)),
    _clock(1),
    _clock(-1),
    Kind(name="descriptors that run out", strike=_descriptors, needs=("shim",)),
    Kind(name="memory that runs out", strike=_memory, needs=("shim",)),
    Kind(name="threads that do not start", strike=_threads, needs=("shim",)),
]
