"""Which versions of a Delta table its log can still tell, judged by the names of the log's files.

``_last_checkpoint`` is only a hint, and everything else that lies in a log (checksums, compacted and staged commits,
temporary files) repeats what commits and checkpoints say; all of it is passed over.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from lakelog.delta_log.names import version_of
from lakelog.errors import DeltaLogError
from lakelog.storage.log_store import LogFile

_is_commit = re.compile(r"([0-9]{20})\.json").fullmatch
_is_checkpoint = re.compile(r"([0-9]{20})\.checkpoint\.parquet").fullmatch
_is_part = re.compile(r"([0-9]{20})\.checkpoint\.([0-9]{10})\.([0-9]{10})\.parquet").fullmatch
_is_v2 = re.compile(
    r"([0-9]{20})\.checkpoint\.[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}\.(?:json|parquet)"
).fullmatch

_SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """One whole checkpoint: a file, all parts of one, or the top file of one with sidecars."""

    version: int
    files: tuple[LogFile, ...]
    modified: int
    """In milliseconds since 1970."""

    @property
    def may_have_sidecars(self) -> bool:
        return len(self.files) == 1 and _is_v2(self.files[0].name) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogListing:
    """The commits and whole checkpoints of a log."""

    place: str
    commits: Mapping[int, LogFile]
    checkpoints: tuple[Checkpoint, ...]

    @property
    def latest(self) -> int:
        """The newest version. ``start`` tells whether it can be reconstructed."""
        return max([*self.commits, *(checkpoint.version for checkpoint in self.checkpoints)])

    def start(self, up_to: int, *, history: bool) -> tuple[Checkpoint | None, range]:
        """Where to begin in order to reconstruct a version, and the commits to replay after it.

        None begins with version 0. With ``history`` it is the earliest beginning after which no commit is missing, and
        the latest otherwise. Raises ``DeltaLogError`` if there is none, with the versions that are missing.
        """
        if not 0 <= up_to <= self.latest:
            raise DeltaLogError(f"has no version {up_to}; its newest is {self.latest}", self.place)
        earlier = [checkpoint for checkpoint in self.checkpoints if checkpoint.version <= up_to]
        first = up_to + 1
        while first - 1 in self.commits:
            first -= 1
        usable = [checkpoint for checkpoint in earlier if checkpoint.version >= first - 1]
        if first == 0 and (history or not usable):
            return None, range(up_to + 1)
        if not usable:
            raise self._gap(earlier[-1].version if earlier else -1, up_to)
        found = usable[0 if history else -1]
        return found, range(found.version + 1, up_to + 1)

    def _gap(self, beginning: int, up_to: int) -> DeltaLogError:
        missing = _gaps((version for version in self.commits if beginning < version <= up_to), beginning, up_to)
        since = f"after the checkpoint of version {beginning}" if beginning >= 0 else "and has no checkpoint before it"
        return DeltaLogError(
            f"version {up_to} cannot be reconstructed: the log lacks the commits {_shown(missing)} {since}. "
            "Restore them, or choose a version that does not need them.",
            self.place,
        )


def commits_in(files: Iterable[LogFile]) -> dict[int, LogFile]:
    """The JSON commits, by version."""
    return {
        int(match[1]): file for file in files if (match := _is_commit(file.name)) and version_of(file.name) is not None
    }


def checkpoints_in(files: Iterable[LogFile]) -> Iterator[list[Checkpoint]]:
    """The checkpoints of which no part is missing, those of one version together, the simplest kind first.

    Whether sidecars are missing, a name does not tell. Empty files are left behind by writers that died.
    """
    single: list[Checkpoint] = []
    top: list[Checkpoint] = []
    parts: dict[tuple[int, int], dict[int, LogFile]] = {}
    for file in files:
        if not file.size or version_of(file.name) is None:
            continue
        if match := _is_checkpoint(file.name):
            single.append(_checkpoint(int(match[1]), file))
        elif match := _is_v2(file.name):
            top.append(_checkpoint(int(match[1]), file))
        elif match := _is_part(file.name):
            version, number, count = map(int, match.groups())
            parts.setdefault((version, count), {})[number] = file
    whole = [
        _checkpoint(version, *(found[number] for number in sorted(found)))
        for (version, count), found in parts.items()
        if len(found) == count and min(found) == 1 and max(found) == count
    ]
    # Sorting keeps the order of kinds within a version.
    for _, group in groupby(sorted([*single, *whole, *top], key=_version), _version):
        yield list(group)


def _checkpoint(version: int, *files: LogFile) -> Checkpoint:
    return Checkpoint(version=version, files=files, modified=max(file.modified for file in files))


def _version(checkpoint: Checkpoint) -> int:
    return checkpoint.version


def _gaps(present: Iterable[int], after: int, up_to: int) -> list[tuple[int, int]]:
    """The first and last version of each gap."""
    gaps = []
    for version in (*sorted(present), up_to + 1):
        if version > after + 1:
            gaps.append((after + 1, version - 1))
        after = version
    return gaps


def _shown(gaps: list[tuple[int, int]]) -> str:
    texts = [str(first) if first == last else f"{first} to {last}" for first, last in gaps[:_SHOWN]]
    return ", ".join(texts) + (" …" if len(gaps) > _SHOWN else "")
