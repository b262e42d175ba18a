"""Files that cannot be written, synced, made, named or read, or only in part. By the shim."""

import errno
import random

from tests.campaign.arena import Arena
from tests.campaign.kinds.kind import ALL, FILES, Kind, pause, wait_for
from tests.campaign.shim import Mode, Operations, Rule

_CATALOG, _DATA, _MIRROR = "/catalog/", ".parquet", "/_delta_log"
_COPIES = "/copy-"
"""Data that Lakelog itself writes, by deep clones. What the actors write is not Lakelog's to fail at."""
_CHANGES = Operations.WRITE | Operations.CREATE | Operations.LINK | Operations.UNLINK | Operations.TRUNCATE


def _needs(path: str) -> tuple[str, ...]:
    return ("shim", "mirror") if path == _MIRROR else ("shim",)


def _hit(name: str, path: str, operations: Operations, backends: tuple[str, ...], **options: int) -> Kind:
    def strike(arena: Arena, rng: random.Random) -> int:
        assert arena.control is not None
        # DuckDB is one process with few commits.
        most = 4 if arena.settings.backend == "duckdb" else 40
        rule = Rule(
            operations=operations,
            path=path,
            mode=Mode(options.get("mode", Mode.FAIL)),
            error=options.get("error", errno.EIO),
            skip=rng.randrange(most) if operations & (Operations.WRITE | Operations.SYNC | Operations.READ) else 0,
            times=options.get("times", rng.choice((1, 1, 1, 3, 20))),
        )
        control = arena.control
        control.arm(rule)
        pause(rng, 0.1, 0.4)
        wait_for(lambda: control.hits() > 0, 1.0)
        return arena.control.disarm()

    return Kind(name=name, strike=strike, backends=backends, needs=_needs(path))


def _read_only(name: str, path: str, backends: tuple[str, ...]) -> Kind:
    return _all(name, path, backends, _CHANGES, errno.EROFS)


def _all(name: str, path: str, backends: tuple[str, ...], operations: Operations, error: int) -> Kind:
    """Every operation fails for a while, which is one fault."""

    def strike(arena: Arena, rng: random.Random) -> int:
        assert arena.control is not None
        arena.control.arm(Rule(operations=operations, path=path, error=error, times=1 << 30))
        pause(rng, 0.1, 0.6)
        return int(arena.control.disarm() > 0)

    return Kind(name=name, strike=strike, backends=backends, needs=_needs(path))


def _slow(arena: Arena, rng: random.Random) -> int:
    assert arena.control is not None
    arena.control.arm(Rule(operations=Operations.SYNC, path="", mode=Mode.WAIT, pause=rng.randrange(50, 400), times=5))
    pause(rng, 0.2, 0.5)
    return arena.control.disarm()


def _fail_for_good(arena: Arena, rng: random.Random) -> int:
    """The mirror of every table fails from now on, or works again. Counted when something has failed."""
    assert arena.control is not None
    arena.mirror_fails = not arena.mirror_fails
    if not arena.mirror_fails:
        arena.control.disarm(_FOR_GOOD)
        return 0
    arena.control.arm(Rule(operations=Operations.WRITE, path=_MIRROR, times=1 << 30), _FOR_GOOD)
    return int(wait_for(lambda: arena.control is not None and arena.control.hits(_FOR_GOOD) > 0))


_FOR_GOOD = 7
"""A slot that no other kind takes."""

_WRITE, _SYNC = Operations.WRITE, Operations.SYNC

KINDS = [
    _hit("EIO from a write to the catalog", _CATALOG, _WRITE, FILES),
    _hit("ENOSPC from a write to the catalog", _CATALOG, _WRITE, FILES, error=errno.ENOSPC),
    _hit("a torn write to the catalog", _CATALOG, _WRITE, FILES, mode=Mode.TEAR),
    _hit("a short write to the catalog", _CATALOG, _WRITE, FILES, mode=Mode.SHORTEN),
    _hit("EINTR from a write to the catalog", _CATALOG, _WRITE, FILES, error=errno.EINTR, times=1),
    _hit("EIO from a sync of the catalog", _CATALOG, _SYNC, FILES),
    _hit("ENOSPC from a sync of the catalog", _CATALOG, _SYNC, FILES, error=errno.ENOSPC),
    _hit("EIO from a read of the catalog", _CATALOG, Operations.READ, FILES),
    _hit("EIO from a truncation of the catalog", _CATALOG, Operations.TRUNCATE, FILES),
    _hit("EACCES from making a file of the catalog", _CATALOG, Operations.CREATE, FILES, error=errno.EACCES),
    _hit("EIO from a write of data", _COPIES, _WRITE, ALL),
    _hit("ENOSPC from a write of data", _COPIES, _WRITE, ALL, error=errno.ENOSPC),
    _hit("a torn write of data", _COPIES, _WRITE, ALL, mode=Mode.TEAR),
    _hit("ENOSPC from making a file of data", _COPIES, Operations.CREATE, ALL, error=errno.ENOSPC),
    _hit("EIO from a sync of data", _DATA, _SYNC, ALL),
    _hit("ENOSPC from a sync of data", _DATA, _SYNC, ALL, error=errno.ENOSPC),
    _hit("EIO from a sync of directories, data or mirror", "/lake/", _SYNC, ALL),
    _hit("EIO from a write of the mirror", _MIRROR, _WRITE, ALL),
    _hit("ENOSPC from a write of the mirror", _MIRROR, _WRITE, ALL, error=errno.ENOSPC),
    _hit("a torn write of the mirror", _MIRROR, _WRITE, ALL, mode=Mode.TEAR),
    _hit("a short write of the mirror", _MIRROR, _WRITE, ALL, mode=Mode.SHORTEN),
    _hit("EIO from a sync of the mirror", _MIRROR, _SYNC, ALL),
    _hit("EIO from naming a file of the mirror", _MIRROR, Operations.LINK, ALL),
    _hit("EACCES from making a file of the mirror", _MIRROR, Operations.CREATE, ALL, error=errno.EACCES),
    _hit("EIO from a read of the mirror", _MIRROR, Operations.READ, ALL),
    _all("a full disk under the mirror", _MIRROR, ALL, _WRITE | Operations.CREATE, errno.ENOSPC),
    _read_only("a read-only disk under the catalog", _CATALOG, FILES),
    _read_only("a read-only disk under the data", "/lake/", ALL),
    _read_only("a read-only disk under the mirror", _MIRROR, ALL),
    Kind(name="a mirror that fails until it is mended", strike=_fail_for_good, needs=("shim", "mirror")),
    Kind(name="a disk that syncs slowly", strike=_slow, needs=("shim",)),
]
