"""A network that resets, cuts, swallows and delays, and a pooler that goes away."""

import random
import time
from collections.abc import Callable

from tests.campaign.arena import Arena
from tests.campaign.kinds.kind import Kind, pause
from tests.faults.proxy import Fault, Link, Proxy

_COMMITS = 1.0
"""Seconds in which a COMMIT is expected to come by."""


def _on_proxy(name: str, act: Callable[[Proxy, random.Random], int]) -> Kind:
    def strike(arena: Arena, rng: random.Random) -> int:
        assert arena.proxy is not None
        return act(arena.proxy, rng)

    return Kind(name=name, strike=strike, backends=("postgres",), needs=("proxy",))


def _cut(proxy: Proxy, rng: random.Random) -> int:
    count = proxy.cut_all()
    pause(rng, 0.0, 0.4)
    proxy.reachable = True
    return count


def _reset(proxy: Proxy, rng: random.Random) -> int:
    return proxy.reset_some(rng)


def _freeze(proxy: Proxy, rng: random.Random) -> int:
    """Nothing passes, and nobody is told."""
    proxy.freeze()
    pause(rng, 0.1, 1.5)
    proxy.thaw()
    return 1


def _freeze_for_long(proxy: Proxy, rng: random.Random) -> int:
    proxy.freeze()
    pause(rng, 3.5, 5.0)
    proxy.cut_all()
    proxy.thaw()
    proxy.reachable = True
    return 1


def _delay(proxy: Proxy, rng: random.Random) -> int:
    proxy.delay = rng.choice((0.005, 0.02, 0.1))
    pause(rng, 0.3, 1.0)
    proxy.delay = 0.0
    return 1


def _at(name: str, moment: str, fault: Fault) -> Kind:
    def act(proxy: Proxy, rng: random.Random) -> int:
        hits: list[int] = []

        def strike(link: Link, message: bytes) -> None:
            hits.append(1)
            fault(link, message)

        setattr(proxy, moment, strike)
        end = time.monotonic() + _COMMITS
        while not hits and time.monotonic() < end:
            time.sleep(0.01)
        setattr(proxy, moment, None)
        return len(hits)

    return _on_proxy(name, act)


def _hang_up_after(link: Link, message: bytes) -> None:
    link.server.sendall(message)
    link.hang_up()


def _send_a_part(link: Link, message: bytes) -> None:
    link.server.sendall(message[: len(message) // 2])
    link.cut()


def _kill_pooler(arena: Arena, rng: random.Random) -> int:
    assert arena.pooler is not None
    arena.pooler.kill()
    pause(rng, 0.0, 0.3)
    arena.pooler.start()
    return 1


def _pause_pooler(arena: Arena, rng: random.Random) -> int:
    assert arena.pooler is not None
    arena.pooler.freeze()
    pause(rng, 0.1, 1.0)
    arena.pooler.thaw()
    return 1


KINDS = [
    _on_proxy("connections that are cut", _cut),
    _on_proxy("connections that are reset", _reset),
    _on_proxy("a network that swallows for a moment", _freeze),
    _on_proxy("a network that swallows past the timeout", _freeze_for_long),
    _on_proxy("a network that delays", _delay),
    _at("a COMMIT that never arrives", "at_commit", lambda link, message: link.cut()),
    _at("a COMMIT whose answer is lost", "at_commit", lambda link, message: link.swallow_answer(message)),
    _at("a COMMIT of which a part arrives", "at_commit", _send_a_part),
    _at("a COMMIT that arrives when its client is gone", "at_commit", _hang_up_after),
    _at("a BEGIN that never arrives", "at_begin", lambda link, message: link.cut()),
    Kind(name="SIGKILL of pgbouncer", strike=_kill_pooler, backends=("postgres",), needs=("pooler",)),
    Kind(name="SIGSTOP of pgbouncer", strike=_pause_pooler, backends=("postgres",), needs=("pooler",)),
]
