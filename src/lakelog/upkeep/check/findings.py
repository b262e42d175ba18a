"""What a check found."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

_SHOWN = 1000
"""Findings of one kind that are told one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that is not as it must be."""

    invariant: int
    """Which of the invariants it breaks, by the numbers of the documentation."""
    message: str
    versions: tuple[int, int] | None = None
    """The first and the last version that are affected, where that is known."""
    mend: str | None = None
    """What ``repair=True`` does about it; None if it takes a person."""
    repaired: bool = False

    def __str__(self) -> str:
        where = ""
        if self.versions is not None:
            first, last = self.versions
            where = f" (version {first})" if first == last else f" (versions {first} to {last})"
        end = "; repaired" if self.repaired else f"; repair would: {self.mend}" if self.mend else ""
        return f"invariant {self.invariant}: {self.message}{where}{end}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """The state of a dataset."""

    dataset: str
    version: int
    """The head that was looked at. What was committed since then is not part of it."""
    first_version: int
    files: int
    """Data files that were looked at."""
    deep: bool
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether everything is as it must be, now that what could be was repaired."""
        return all(finding.repaired for finding in self.findings)


def limited(findings: Iterable[Finding]) -> Iterator[Finding]:
    """The first thousand, and how many more there are."""
    found = iter(findings)
    last: Finding | None = None
    for last in islice(found, _SHOWN):
        yield last
    rest = sum(1 for _ in found)
    if last is not None and rest:
        yield Finding(invariant=last.invariant, message=f"the same of {rest} more")
