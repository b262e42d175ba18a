"""What actors write down while they work, and the history that it makes. A line is whole or not there."""

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.campaign.history import Digest, Read, Told, Write


class Pen:
    """Writes events to a file of its own: nothing that happens to its process later takes them back."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._count = 0

    def begin(
        self,
        adds: Mapping[str, Iterable[str]],
        removes: Mapping[str, Iterable[str]],
        batch: tuple[str, int] | None,
        expected: Mapping[str, int],
    ) -> int:
        """A write is about to begin. Its number."""
        self._count += 1
        told = {"adds": adds, "removes": removes, "batch": batch, "expected": expected}
        self._put("begin", n=self._count, at=time.monotonic(), **told)
        return self._count

    def end(self, number: int, told: Told, **fields: Any) -> None:
        """What a write was told, at once or later."""
        self._put("end", n=number, at=time.monotonic(), told=told.value, **fields)

    def read(
        self,
        began: float,
        ended: float,
        versions: Mapping[str, int],
        files: Mapping[str, Digest],
        at: int | None = None,
        times: Mapping[str, int] | None = None,
    ) -> None:
        digests = {table: (digest.count, digest.total) for table, digest in files.items()}
        self._put("read", began=began, ended=ended, versions=versions, files=digests, at=at, times=times or {})

    def error(self, doing: str, error: BaseException, trace: str) -> None:
        """An error that is not one of Lakelog's."""
        self._put("error", doing=doing, type=type(error).__name__, text=str(error)[:300], trace=trace[-4000:])

    def late(self, doing: str, seconds: float) -> None:
        """A call that took longer than any may."""
        self._put("late", doing=doing, seconds=seconds)

    def _put(self, kind: str, **fields: Any) -> None:
        os.write(self._file, json.dumps({"kind": kind, **fields}).encode() + b"\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the actors of a round did, told by themselves."""

    writes: tuple[Write, ...]
    reads: tuple[Read, ...]
    errors: tuple[dict[str, Any], ...]
    late: tuple[dict[str, Any], ...]


def read_story(directory: Path) -> Story:
    writes: list[Write] = []
    reads: list[Read] = []
    errors: list[dict[str, Any]] = []
    late: list[dict[str, Any]] = []
    for path in sorted(directory.glob("*.jsonl")):
        begun: dict[int, dict[str, Any]] = {}
        ended: dict[int, dict[str, Any]] = {}
        for line in path.read_bytes().split(b"\n"):
            if not line:
                continue
            event = json.loads(line)
            kind = event.pop("kind")
            if kind == "begin":
                begun[event["n"]] = event
            elif kind == "end":
                # An answer that came later is better than that there was none.
                ended[event["n"]] = event
            elif kind == "read":
                reads.append(_read(path.stem, event))
            else:
                (errors if kind == "error" else late).append({**event, "actor": path.stem})
        writes += [_write(path.stem, event, ended.get(number)) for number, event in begun.items()]
    return Story(writes=tuple(writes), reads=tuple(reads), errors=tuple(errors), late=tuple(late))


def _write(actor: str, begin: dict[str, Any], end: dict[str, Any] | None) -> Write:
    end = end or {"told": Told.UNKNOWN.value, "at": float("inf")}
    return Write(
        actor=actor,
        began=begin["at"],
        ended=end["at"],
        told=Told(end["told"]),
        adds={table: tuple(paths) for table, paths in begin["adds"].items()},
        removes={table: tuple(paths) for table, paths in begin["removes"].items()},
        versions=end.get("versions", {}),
        times=end.get("times", {}),
        commit_id=end.get("commit_id"),
        batch=None if begin["batch"] is None else (begin["batch"][0], begin["batch"][1]),
        expected=begin["expected"],
    )


def _read(actor: str, event: dict[str, Any]) -> Read:
    return Read(
        actor=actor,
        began=event["began"],
        ended=event["ended"],
        versions=event["versions"],
        files={table: Digest(count, total) for table, (count, total) in event["files"].items()},
        at=event["at"],
        times=event["times"],
    )
