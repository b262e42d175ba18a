"""What a kind of fault is."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass

from tests.campaign.arena import Arena

ALL = ("sqlite", "duckdb", "postgres")
FILES = ("sqlite", "duckdb")
"""The databases whose files the actors themselves write."""

Strike = Callable[[Arena, random.Random], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Something that goes wrong. ``strike`` lets it happen, mends it, and says how often it did happen."""

    name: str
    strike: Strike
    backends: tuple[str, ...] = ALL
    needs: tuple[str, ...] = ()
    """What an arena must have for it: ``shim``, ``proxy``, ``pooler``, ``server``, ``disks`` or ``mirror``."""


def wait_for(happened: Callable[[], bool], seconds: float = 2.0) -> bool:
    """Whether something does happen within some time."""
    end = time.monotonic() + seconds
    while not happened():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def pause(rng: random.Random, least: float, most: float) -> None:
    time.sleep(rng.uniform(least, most))
