"""Repeated measurements, in turns, and what is asked of them."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sample:
    """The results of one measurement, repeated."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def over(self, other: "Sample") -> float:
        """How many times as large as another sample: the median over the rounds, in which both ran close together."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.values, other.values, strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a figure, or its ratio to the limit, must reach."""

    at_least: float | None = None
    at_most: float | None = None
    ratio: bool = False

    def met_by(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def text(self, unit: str, against: str) -> str:
        sign, bound = ("≥", self.at_least) if self.at_least is not None else ("≤", self.at_most)
        return f"{sign} {bound:.3g} × {against}" if self.ratio else f"{sign} {bound:g} {unit}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the report."""

    subject: str
    backend: str
    what: str
    unit: str
    sample: Sample
    limit: Sample | None = None
    against: str = "limit"
    """What the limit is."""
    targets: tuple[Target, ...] = ()
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return None if self.limit is None else self.sample.over(self.limit)

    @property
    def verdict(self) -> str:
        if not self.targets:
            return ""
        return "ok" if all(target.met_by(self._judged(target)) for target in self.targets) else "short"

    @property
    def target_text(self) -> str:
        return ", ".join(target.text(self.unit, self.against) for target in self.targets)

    def _judged(self, target: Target) -> float:
        value = self.ratio if target.ratio else self.sample.median
        assert value is not None, "a target for a ratio needs a limit"
        return value


def in_turns(systems: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, Sample]:
    """Runs every system once per round, in alternating order, so that a busy machine hurts all of them alike."""
    values: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(rounds):
        names = list(systems) if number % 2 == 0 else list(systems)[::-1]
        for name in names:
            values[name].append(systems[name]())
    return {name: Sample(tuple(found)) for name, found in values.items()}


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started
