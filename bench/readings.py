"""What several systems took for the same work, and how they stand to each other."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.measure import Sample

LAKELOG = "Lakelog"
LIMIT = "the limit"
"""Hand-written SQL, or Spark alone: what does the same work without keeping a log's promises."""

_MORE_IS_BETTER = ("/s", "of mean")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One system at one piece of work; without a sample if it could not do it."""

    subject: str
    what: str
    system: str
    database: str = ""
    unit: str
    sample: Sample | None
    size: int | None = None
    """What grows from one reading to the next, for a chart: files, commits, processes."""
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.system} on {self.database}" if self.database else self.system

    @property
    def work(self) -> tuple[str, str, int | None]:
        """What is the same for readings that may be compared."""
        return self.subject, self.what, self.size

    def times_better(self, other: "Reading") -> float | None:
        """1 if both are equal, 2 if this one does twice as much or takes half as long."""
        if self.sample is None or other.sample is None:
            return None
        if self.unit.endswith(_MORE_IS_BETTER):
            return self.sample.median / other.sample.median if other.sample.median else None
        return other.sample.median / self.sample.median


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """How many times better one system must be than another, or how close to the limit."""

    subject: str
    what: str
    system: str
    over: str
    times: float
    size: int | None = None
    over_what: str = ""
    """What the other one does, if it is not the same."""

    def __str__(self) -> str:
        return f"≥ {self.times:.3g} × {self.over}" + (f", {self.over_what}" if self.over_what else "")


def of_same_work(readings: Iterable[Reading]) -> list[list[Reading]]:
    """Readings that may be compared, together."""
    groups: dict[tuple[str, str, int | None], list[Reading]] = {}
    for reading in readings:
        groups.setdefault(reading.work, []).append(reading)
    return list(groups.values())


def best_peer(group: Sequence[Reading]) -> Reading | None:
    peers = [reading for reading in group if reading.system not in (LAKELOG, LIMIT) and reading.sample is not None]
    best = None
    for peer in peers:
        if best is None or (peer.times_better(best) or 0) > 1:
            best = peer
    return best


def limit_for(group: Sequence[Reading], reading: Reading) -> Reading | None:
    """The limit on the same database, or the one for all."""
    limits = [each for each in group if each.system == LIMIT and each.sample is not None]
    same = [each for each in limits if each.database in (reading.database, "")]
    return same[0] if same else None


def reached(goal: Goal, readings: Iterable[Reading]) -> float | None:
    """How many times better it is, or None if one of the two was not measured."""
    found = {
        (reading.what, reading.name): reading
        for reading in readings
        if reading.subject == goal.subject and goal.size in (None, reading.size)
    }
    mine, other = found.get((goal.what, goal.system)), found.get((goal.over_what or goal.what, goal.over))
    return None if mine is None or other is None else mine.times_better(other)
