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
    needs: str | None = None
    """What an arena must have for it: ``shim``, ``proxy``, ``pooler``, ``server`` or ``disks``."""


def pause(rng: random.Random, least: float, most: float) -> None:
    time.sleep(rng.uniform(least, most))
