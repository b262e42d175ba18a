"""Writers that are killed, frozen and told to end."""

import contextlib
import os
import random
import signal

from tests.campaign.arena import Arena
from tests.campaign.kinds.kind import Kind, pause


def _signalled(number: signal.Signals) -> Kind:
    def strike(arena: Arena, rng: random.Random) -> int:
        pid = _send(arena, rng, number)
        return int(pid is not None and arena.ends(pid))

    return Kind(name=f"{number.name} of a writer", strike=strike)


def _send(arena: Arena, rng: random.Random, number: signal.Signals) -> int | None:
    pids = arena.pids
    if not pids:
        return None
    pid = rng.choice(pids)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        return pid
    return None


def _freeze(arena: Arena, rng: random.Random) -> int:
    pid = _send(arena, rng, signal.SIGSTOP)
    if pid is None:
        return 0
    pause(rng, 0.05, 0.8)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    return 1


def _freeze_for_long(arena: Arena, rng: random.Random) -> int:
    """Longer than the others wait."""
    pid = _send(arena, rng, signal.SIGSTOP)
    if pid is None:
        return 0
    pause(rng, arena.settings.timeout, arena.settings.timeout + 0.5)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    return 1


def _freeze_and_kill(arena: Arena, rng: random.Random) -> int:
    pid = _send(arena, rng, signal.SIGSTOP)
    if pid is None:
        return 0
    pause(rng, 0.05, 0.5)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return int(arena.ends(pid))


KINDS = [
    _signalled(signal.SIGKILL),
    _signalled(signal.SIGTERM),
    _signalled(signal.SIGINT),
    Kind(name="SIGSTOP of a writer for a moment", strike=_freeze),
    Kind(name="SIGSTOP of a writer past the timeout", strike=_freeze_for_long),
    Kind(name="SIGSTOP, then SIGKILL of a writer", strike=_freeze_and_kill),
]
