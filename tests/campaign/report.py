"""The table of a campaign: what was done to Lakelog, and what became of it."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.campaign.actor import PATIENCE


@dataclass(slots=True)
class Totals:
    """Of one database, or of all."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    """Findings: commits that were acknowledged and are gone, or in part."""
    told_wrongly: int = 0
    """Findings: answers to writers and readers that are not true."""
    otherwise: int = 0
    """Findings: invariants that do not hold, mirrors that do not recover, threads that hang."""
    unknown: int = 0
    resolved: int = 0
    failed: int = 0
    reads: int = 0
    soaked: int = 0
    """Commits in one process, with nothing that goes wrong."""
    inputs: int = 0
    """Hostile ones."""
    faults: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True, kw_only=True)
class Report:
    """What a campaign has shown, as it goes on."""

    seed: int
    minutes: float
    command: str
    """What ``./dev faults`` was given, all of it."""
    by_backend: dict[str, Totals] = field(default_factory=dict)
    inputs: Counter[str] = field(default_factory=Counter)
    """Hostile inputs by kind."""
    unclear: list[str] = field(default_factory=list)
    """Errors that are not ours, or that say nothing."""
    findings: list[str] = field(default_factory=list)
    late: int = 0
    lacks: list[str] = field(default_factory=list)
    verbs: list[int] = field(default_factory=list)
    """Seeds of histories of Spark's verbs."""
    soak: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By database."""
    seconds: float = 0.0

    def totals(self, backend: str) -> Totals:
        return self.by_backend.setdefault(backend, Totals())

    @property
    def faults(self) -> Counter[str]:
        return sum((each.faults for each in self.by_backend.values()), Counter())

    @property
    def is_clean(self) -> bool:
        return not (self.findings or self.unclear or self.late)

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "faults.json").write_text(json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n")
        (directory / "faults.md").write_text(self.text())

    def to_dict(self) -> dict[str, Any]:
        return {
            "command": self.command,
            "seed": self.seed,
            "minutes": self.minutes,
            "seconds": round(self.seconds),
            "databases": {
                name: {
                    "rounds": each.rounds,
                    "faults": sum(each.faults.values()),
                    "acknowledged": each.acknowledged,
                    "lost": each.lost,
                    "told wrongly": each.told_wrongly,
                    "other findings": each.otherwise,
                    "unknown": each.unknown,
                    "resolved": each.resolved,
                    "failed": each.failed,
                    "reads": each.reads,
                    "inputs": each.inputs,
                    "soak commits": each.soaked,
                }
                for name, each in self.by_backend.items()
            },
            "faults": dict(sorted(self.faults.items())),
            "inputs": dict(sorted(self.inputs.items())),
            "findings": self.findings,
            "unclear": self.unclear,
            "late": self.late,
            "soak": self.soak,
            "verbs": self.verbs,
            "lacks": self.lacks,
        }

    def text(self) -> str:
        faults = self.faults
        kinds = sum(count > 0 for count in faults.values())
        commits = sum(each.acknowledged for each in self.by_backend.values())
        lines = [
            "# A fault campaign",
            "",
            (
                f"`./dev faults {self.command}`, {self.seconds / 60:.0f} minutes: "
                f"{sum(faults.values()):,} faults of {kinds} kinds, {commits:,} acknowledged commits, "
                f"{sum(self.inputs.values()):,} hostile inputs."
            ),
            "",
            *_table(
                (
                    "database",
                    "rounds",
                    "faults",
                    "acknowledged",
                    "lost",
                    "told wrongly",
                    "other findings",
                    "unknown, later told",
                    "failed",
                    "reads checked",
                    "hostile inputs",
                    "soak commits",
                ),
                [
                    (
                        name,
                        each.rounds,
                        sum(each.faults.values()),
                        each.acknowledged,
                        each.lost,
                        each.told_wrongly,
                        each.otherwise,
                        f"{each.unknown + each.resolved:,}, {each.resolved:,}",
                        each.failed,
                        each.reads,
                        each.inputs,
                        each.soaked,
                    )
                    for name, each in self.by_backend.items()
                ],
            ),
            "",
            *_table(
                ("fault", *self.by_backend),
                [
                    (name, *(each.faults.get(name, 0) or "" for each in self.by_backend.values()))
                    for name in sorted(faults, key=str.lower)
                ],
            ),
            "",
            *_table(("hostile input", "tried"), sorted(self.inputs.items())),
            "",
            (
                f"Errors that are not Lakelog's, or unclear: {len(self.unclear)}. Calls that took longer than twice "
                f"the timeout and 2 s, and {PATIENCE:g} s more, which a busy machine may need: {self.late}."
            ),
        ]
        if self.verbs:
            seeds = ", ".join(map(str, self.verbs))
            lines += ["", f"Histories of Spark's verbs beside plain rows, on each database: seeds {seeds}."]
        if self.soak:
            names = list(dict.fromkeys(name for found in self.soak.values() for name in found))
            rows = [(name, *(found.get(name, "") for found in self.soak.values())) for name in names]
            lines += ["", *_table(("soak", *self.soak), rows)]
        if self.lacks:
            lines += ["", "Not tried on this machine:", *(f"- {each}" for each in self.lacks)]
        if self.findings:
            lines += ["", "Findings:", *(f"- {each}" for each in self.findings)]
        if self.unclear:
            lines += ["", "Unclear errors:", *(f"- {each}" for each in self.unclear)]
        return "\n".join(lines) + "\n"


def _table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    def line(cells: Sequence[Any]) -> str:
        return "| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells) + " |"

    return [line(header), "|---|" + "---:|" * (len(header) - 1), *map(line, rows)]
