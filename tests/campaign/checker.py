"""Finds what no correct log can show in a history, in the manner of Jepsen and Elle.

A log is totally ordered by its versions, so no search for an order is needed: each claim is checked against the order
that the log itself states. Commits of several tables and reads of several tables tie these orders together; with what
happened before what in real time they must form no cycle.
"""

import bisect
import itertools
from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from tests.campaign.history import Commit, Digest, History, Read, Told, Write


class Wrong(Enum):
    """In what way a history is wrong."""

    GAP = "versions are not dense"
    LOST = "an acknowledged commit is not there"
    MOVED = "a commit is not what its writer was told"
    TWICE = "a write was committed twice"
    PHANTOM = "a write that was told to have failed is there"
    STRANGER = "a commit that nobody made is there"
    HALF = "a part of a write is there, and a part is not"
    TIME = "the times of commits do not fit their order"
    DISORDER = "a write that ended before another one began comes after it"
    STALE = "a read lacks a commit that was acknowledged before it began"
    FUTURE = "a read shows a commit that began after it ended"
    DIRTY = "a read shows a commit that is not the one of that version"
    BACK = "a read shows less than a read before it"
    SPLIT = "a read shows a part of a commit to several tables"
    FILES = "the live files of a read do not follow from the commits"
    CYCLE = "no order of all writes and reads explains what they saw"


LOSSES = frozenset({Wrong.LOST, Wrong.GAP, Wrong.HALF})
"""What was committed is not there, or not all of it. With all else, a writer or a reader was told wrongly."""


@dataclass(frozen=True, slots=True)
class Finding:
    wrong: Wrong
    what: str

    @property
    def is_loss(self) -> bool:
        return self.wrong in LOSSES

    def __str__(self) -> str:
        return f"{self.wrong.value}: {self.what}"


def check(history: History) -> list[Finding]:
    """Everything that is wrong with a history; nothing, if it is right."""
    found = list(_check_versions(history))
    owners = _owners(history.writes)
    placed, findings = _place(history, owners)
    found += findings
    found += _check_told(history.writes, placed)
    found += _check_ids(history)
    found += _check_order(placed)
    found += _check_reads(history, placed)
    # It says less of what is wrong than the others, and follows from most of them.
    return found or list(_check_cycles(history, placed))


Placed = dict[str, list[tuple[int, Write]]]
"""By table, the versions and whose they are, in order."""


def _check_versions(history: History) -> Iterator[Finding]:
    for table, commits in _by_table(history.log).items():
        first = history.first.get(table, 1)
        expected = list(range(first, first + len(commits)))
        if [commit.version for commit in commits] != expected:
            yield Finding(Wrong.GAP, f"{table} has versions {_ranges(commit.version for commit in commits)}")
        for before, after in itertools.pairwise(commits):
            if after.committed_at <= before.committed_at:
                yield Finding(
                    Wrong.TIME,
                    f"{table} version {after.version} is of {after.committed_at}, and the one before it of "
                    f"{before.committed_at}",
                )


def _owners(writes: Iterable[Write]) -> dict[tuple[str, str], Write]:
    return {(table, path): write for write in writes for table, paths in write.adds.items() for path in paths}


def _place(history: History, owners: Mapping[tuple[str, str], Write]) -> tuple[Placed, list[Finding]]:
    """Whose each commit is, by the files that it adds."""
    placed: Placed = {}
    found = []
    for table, commits in _by_table(history.log).items():
        for commit in commits:
            mine = {id(owner): owner for path in commit.adds if (owner := owners.get((table, path))) is not None}
            strange = [path for path in commit.adds if (table, path) not in owners]
            if strange or len(mine) != 1:
                found.append(Finding(Wrong.STRANGER, f"{table} version {commit.version} adds {commit.adds[:3]}"))
                continue
            (write,) = mine.values()
            if set(commit.adds) != set(write.adds[table]) or set(commit.removes) != set(write.removes.get(table, ())):
                found.append(
                    Finding(Wrong.HALF, f"{table} version {commit.version} has other files than {_named(write)} gave")
                )
            placed.setdefault(table, []).append((commit.version, write))
    return placed, found


def _check_told(writes: Iterable[Write], placed: Placed) -> Iterator[Finding]:
    found: dict[int, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for table, versions in placed.items():
        for version, write in versions:
            found[id(write)][table].append(version)
    yield from _check_batches(write for write in writes if id(write) in found)
    for write in writes:
        there = found.get(id(write), {})
        for table, versions in there.items():
            if len(versions) > 1:
                yield Finding(Wrong.TWICE, f"{_named(write)} is in versions {versions} of {table}")
            if write.expected.get(table, versions[0]) != versions[0]:
                yield Finding(
                    Wrong.MOVED,
                    f"{_named(write)} asked to be version {write.expected[table]} of {table}, and is {versions}",
                )
        if there and there.keys() != write.tables:
            yield Finding(
                Wrong.HALF, f"{_named(write)} is in {sorted(there)} and not in {sorted(write.tables - there.keys())}"
            )
        if write.told is Told.FAILED and there:
            yield Finding(Wrong.PHANTOM, f"{_named(write)} is in {dict(there)}")
        if write.told is not Told.COMMITTED:
            continue
        for table in sorted(write.tables):
            if write.versions.get(table) != write.expected.get(table, write.versions.get(table)):
                yield Finding(
                    Wrong.MOVED,
                    f"{_named(write)} asked to be version {write.expected[table]} of {table}, and was told that it is "
                    f"{write.versions.get(table)}",
                )
            if table not in there:
                yield Finding(Wrong.LOST, f"{_named(write)}, told to be version {write.versions.get(table)} of {table}")
            elif write.versions.get(table) not in there[table]:
                yield Finding(
                    Wrong.MOVED,
                    f"{_named(write)}, told to be version {write.versions.get(table)} of {table}, is {there[table]}",
                )


def _check_batches(there: Iterable[Write]) -> Iterator[Finding]:
    seen: dict[str, dict[int, Write]] = defaultdict(dict)
    for write in there:
        if write.batch is None:
            continue
        application, number = write.batch
        if number in seen[application]:
            other = seen[application][number]
            yield Finding(Wrong.TWICE, f"batch {number} of {application} is {_named(other)} and {_named(write)}")
        seen[application][number] = write
    for application, batches in seen.items():
        missing = sorted(set(range(1, max(batches))) - batches.keys())
        if missing:
            yield Finding(Wrong.LOST, f"batches {missing[:5]} of {application} are not there, and later ones are")


def _check_ids(history: History) -> Iterator[Finding]:
    """What the log says of commits besides their files: ids and times are those that writers were told."""
    log = {(commit.table, commit.version): commit for commit in history.log}
    for write in history.writes:
        for table, version in write.versions.items():
            commit = log.get((table, version))
            if commit is None or write.told is not Told.COMMITTED:
                continue
            if write.commit_id not in (None, commit.commit_id):
                yield Finding(Wrong.MOVED, f"{_named(write)} has the id {commit.commit_id} in {table}")
            if table in write.times and write.times[table] != commit.committed_at:
                yield Finding(Wrong.TIME, f"{_named(write)} was told {write.times}, and is of {commit.committed_at}")
    for commit_id, commits in _grouped_by_id(history.log).items():
        if len({commit.committed_at for commit in commits}) > 1:
            tables = {commit.table: commit.committed_at for commit in commits}
            yield Finding(Wrong.TIME, f"commit {commit_id} has several times: {tables}")


def _check_order(placed: Placed) -> Iterator[Finding]:
    for table, versions in placed.items():
        latest: Write | None = None
        for version, write in versions:
            # Of one whose end is not known, only the beginning says something.
            if latest is not None and write.told is Told.COMMITTED and write.ended < latest.began:
                yield Finding(Wrong.DISORDER, f"{table} version {version}, {_named(write)}, is after {_named(latest)}")
            if latest is None or write.began > latest.began:
                latest = write


def _check_reads(history: History, placed: Placed) -> Iterator[Finding]:
    now = [read for read in history.reads if read.at is None]
    yield from _check_stale(now, history.writes)
    yield from _check_future(now, placed)
    yield from _check_shown(history)
    yield from _check_back(now)
    yield from _check_split(history.reads, placed)
    yield from _check_past(history)
    yield from _check_files(history)


def _check_stale(reads: Iterable[Read], writes: Iterable[Write]) -> Iterator[Finding]:
    acknowledged: dict[str, list[tuple[float, int]]] = defaultdict(list)
    for write in writes:
        if write.told is Told.COMMITTED:
            for table, version in write.versions.items():
                acknowledged[table].append((write.ended, version))
    ends: dict[str, list[float]] = {}
    highest: dict[str, list[int]] = {}
    for table, pairs in acknowledged.items():
        pairs.sort()
        ends[table] = [end for end, _ in pairs]
        highest[table] = list(itertools.accumulate((version for _, version in pairs), max))
    for read in reads:
        for table, version in read.versions.items():
            before = bisect.bisect_left(ends.get(table, []), read.began)
            if before and highest[table][before - 1] > version:
                yield Finding(
                    Wrong.STALE, f"{_named(read)} shows version {version} of {table} after {highest[table][before - 1]}"
                )


def _check_future(reads: Iterable[Read], placed: Placed) -> Iterator[Finding]:
    began = {(table, version): write.began for table, versions in placed.items() for version, write in versions}
    for read in reads:
        for table, version in read.versions.items():
            if began.get((table, version), read.ended) > read.ended:
                yield Finding(Wrong.FUTURE, f"{_named(read)} shows version {version} of {table}")


def _check_shown(history: History) -> Iterator[Finding]:
    """What reads show is in the log, and as they show it: nothing of a commit that was rolled back."""
    log = {(commit.table, commit.version): commit for commit in history.log}
    last = {table: commits[-1].version for table, commits in _by_table(history.log).items()}
    for read in history.reads:
        for table, version in read.versions.items():
            end = last.get(table, history.first.get(table, 1) - 1)
            if version > end:
                yield Finding(Wrong.FUTURE, f"{_named(read)} shows version {version} of {table}, which ends at {end}")
        for table, shown in read.times.items():
            commit = log.get((table, read.versions[table]))
            if commit is not None and commit.committed_at != shown:
                yield Finding(
                    Wrong.DIRTY,
                    f"{_named(read)} shows version {commit.version} of {table} as of {shown}, and it is of "
                    f"{commit.committed_at}",
                )


def _check_back(reads: Iterable[Read]) -> Iterator[Finding]:
    by_end = sorted(reads, key=lambda read: read.ended)
    passed = 0
    seen: dict[str, tuple[int, Read]] = {}
    for read in sorted(by_end, key=lambda read: read.began):
        while passed < len(by_end) and by_end[passed].ended < read.began:
            for table, version in by_end[passed].versions.items():
                if version > seen.get(table, (-1, read))[0]:
                    seen[table] = (version, by_end[passed])
            passed += 1
        for table, version in read.versions.items():
            if table in seen and seen[table][0] > version:
                yield Finding(
                    Wrong.BACK,
                    f"{_named(read)} shows version {version} of {table}, {_named(seen[table][1])} {seen[table][0]}",
                )


def _check_split(reads: Iterable[Read], placed: Placed) -> Iterator[Finding]:
    """Of each pair of tables, which version of one came with which of the other, and that no read lies between."""
    versions: dict[int, dict[str, int]] = defaultdict(dict)
    for table, pairs in placed.items():
        for version, write in pairs:
            if len(write.tables) > 1:
                versions[id(write)][table] = version
    together: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for found in versions.values():
        for one, other in itertools.permutations(found, 2):
            together[one, other].append((found[one], found[other]))
    for pairs in together.values():
        pairs.sort()
    for read in reads:
        for one, other in itertools.permutations(read.versions, 2):
            pairs = together.get((one, other), [])
            # The last common commit that the read has of one table: it must have it of the other, too.
            last = bisect.bisect_right(pairs, (read.versions[one], 1 << 62))
            if last and pairs[last - 1][1] > read.versions[other]:
                yield Finding(
                    Wrong.SPLIT,
                    f"{_named(read)} shows version {pairs[last - 1][0]} of {one}, and of {other} only "
                    f"{read.versions[other]} and not {pairs[last - 1][1]}, of the same commit",
                )


def _check_past(history: History) -> Iterator[Finding]:
    """A read of a time shows the last version of that time."""
    times = {
        table: [(commit.committed_at, commit.version) for commit in commits]
        for table, commits in _by_table(history.log).items()
    }
    for read in history.reads:
        if read.at is None:
            continue
        for table, version in read.versions.items():
            before = bisect.bisect_right(times.get(table, []), (read.at, 1 << 62))
            expected = times[table][before - 1][1] if before else history.first.get(table, 1) - 1
            if version != expected:
                yield Finding(
                    Wrong.TIME, f"{_named(read)} shows version {version} of {table} at {read.at}, not {expected}"
                )


def _check_files(history: History) -> Iterator[Finding]:
    live: dict[tuple[str, int], Digest] = {}
    for table, commits in _by_table(history.log).items():
        digest = Digest()
        live[table, history.first.get(table, 1) - 1] = digest
        for commit in commits:
            digest = digest.minus(commit.removes).plus(commit.adds)
            live[table, commit.version] = digest
    for read in history.reads:
        for table, files in read.files.items():
            expected = live.get((table, read.versions[table]))
            if expected != files:
                yield Finding(
                    Wrong.FILES,
                    f"{_named(read)} lists {files.count} files of {table} at version {read.versions[table]}, "
                    f"by the commits it has {None if expected is None else expected.count}",
                )


def _check_cycles(history: History, placed: Placed) -> Iterator[Finding]:
    """Writes and reads must have an order that agrees with every table's versions and with real time."""
    after: dict[Hashable, list[Hashable]] = defaultdict(list)
    nodes: dict[Hashable, Write | Read] = {}
    for table, pairs in placed.items():
        for _, write in pairs:
            nodes[id(write)] = write
        for (_, before), (_, later) in itertools.pairwise(pairs):
            after[id(before)].append(id(later))
        at = dict(pairs)
        for read in history.reads:
            version = read.versions.get(table)
            if read.at is not None or version is None:
                continue
            nodes[id(read)] = read
            if version in at:
                after[id(at[version])].append(id(read))
            if version + 1 in at:
                after[id(read)].append(id(at[version + 1]))
    _add_real_time(after, nodes)
    incoming: dict[Hashable, int] = defaultdict(int)
    for targets in after.values():
        for target in targets:
            incoming[target] += 1
    ready = deque(node for node in {*after, *incoming} if not incoming[node])
    done = set()
    while ready:
        node = ready.popleft()
        done.add(node)
        for target in after[node]:
            incoming[target] -= 1
            if not incoming[target]:
                ready.append(target)
    tied = [nodes[node] for node in nodes if node not in done]
    if tied:
        yield Finding(Wrong.CYCLE, ", ".join(_named(each) for each in tied[:6]))


def _add_real_time(after: dict[Hashable, list[Hashable]], nodes: Mapping[Hashable, Write | Read]) -> None:
    """Edges from what ended to what began later, through the moments at which something ended, one after another."""
    ended = sorted(
        (each.ended, node) for node, each in nodes.items() if isinstance(each, Read) or each.told is Told.COMMITTED
    )
    ends = [end for end, _ in ended]
    for number, (_, node) in enumerate(ended):
        after[node].append(("moment", number))
        if number:
            after["moment", number - 1].append(("moment", number))
    for node, each in nodes.items():
        before = bisect.bisect_left(ends, each.began)
        if before:
            after["moment", before - 1].append(node)


def _by_table(log: Iterable[Commit]) -> dict[str, list[Commit]]:
    found: dict[str, list[Commit]] = defaultdict(list)
    for commit in sorted(log, key=lambda commit: (commit.table, commit.version)):
        found[commit.table].append(commit)
    return found


def _grouped_by_id(log: Iterable[Commit]) -> dict[str, list[Commit]]:
    found: dict[str, list[Commit]] = defaultdict(list)
    for commit in log:
        found[commit.commit_id].append(commit)
    return found


def _ranges(versions: Iterable[int]) -> str:
    """Numbers for people: 1-4, 6."""
    parts: list[list[int]] = []
    for version in versions:
        if parts and version == parts[-1][-1] + 1:
            parts[-1] = [parts[-1][0], version]
        else:
            parts.append([version])
    return ", ".join("-".join(map(str, part)) for part in parts)


def _named(each: Write | Read) -> str:
    if isinstance(each, Read):
        return f"the read of {each.actor} from {each.began:.6f} to {each.ended:.6f}"
    files = next(iter(each.adds.values()))[:1]
    return f"the write of {each.actor} from {each.began:.6f} to {each.ended:.6f} ({', '.join(files)})"
