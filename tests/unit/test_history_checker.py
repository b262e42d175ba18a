"""The checker of histories finds each way in which a history can be wrong, and nothing in one that is right."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.campaign.checker import Wrong, check
from tests.campaign.history import Commit, Digest, History, Read, Told, Write

TABLES = ("a", "b")


def right_history(seed: int, steps: int = 60) -> History:
    """What a correct log could show: everything takes effect at some moment between its begin and its end."""
    rng = random.Random(seed)
    live: dict[str, list[str]] = {table: [] for table in TABLES}
    head = dict.fromkeys(TABLES, 0)
    files = dict.fromkeys(TABLES, Digest())
    times: dict[int, tuple[dict[str, int], dict[str, Digest]]] = {}
    since: dict[str, int] = {}
    writes, reads, log = [], [], []
    for step in range(steps):
        moment = step + 1.0
        began, ended = moment - rng.random() * 3, moment + rng.random() * 3
        actor = f"actor-{rng.randrange(4)}"
        if rng.random() < 0.4:
            at = rng.choice(sorted(times)) if times and rng.random() < 0.3 else None
            shown = rng.sample(TABLES, rng.choice((1, 2)))
            versions, digests = (head, files) if at is None else times[at]
            reads.append(
                Read(
                    actor=actor,
                    began=began,
                    ended=ended,
                    versions={table: versions[table] for table in shown},
                    files={table: digests[table] for table in shown},
                    times={table: since[table] for table in shown if table in since} if at is None else {},
                    at=at,
                )
            )
            continue
        tables = rng.sample(TABLES, rng.choice((1, 1, 2)))
        told = rng.choice((Told.COMMITTED, Told.COMMITTED, Told.COMMITTED, Told.FAILED, Told.UNKNOWN))
        there = told is Told.COMMITTED or (told is Told.UNKNOWN and rng.random() < 0.5)
        adds = {table: tuple(f"{step}-{number}" for number in range(rng.choice((1, 2)))) for table in tables}
        removes = {table: tuple(live[table][:1]) for table in tables if rng.random() < 0.3}
        commit_id, time = f"id-{step}", 1000 + step * 10
        write = Write(
            actor=actor,
            began=began,
            ended=ended,
            told=told,
            adds=adds,
            removes=removes if there else {},
            commit_id=commit_id,
        )
        if there:
            for table in tables:
                head[table] += 1
                since[table] = time
                gone = removes.get(table, ())
                live[table] = [path for path in live[table] if path not in gone] + list(adds[table])
                files = files | {table: files[table].minus(gone).plus(adds[table])}
                log.append(
                    Commit(
                        table=table,
                        version=head[table],
                        commit_id=commit_id,
                        committed_at=time,
                        adds=adds[table],
                        removes=gone,
                    )
                )
            times[time] = (dict(head), dict(files))
            if told is Told.COMMITTED:
                write = replace(
                    write,
                    versions={table: head[table] for table in tables},
                    times=dict.fromkeys(tables, time),
                    expected={table: head[table] for table in tables} if rng.random() < 0.5 else {},
                )
        writes.append(write)
    return History(writes=tuple(writes), reads=tuple(reads), log=tuple(log))


@pytest.mark.parametrize("seed", range(50))
def test_a_right_history_has_nothing_wrong(seed: int) -> None:
    assert check(right_history(seed)) == []


def acknowledged(history: History, tables: int = 1) -> list[Write]:
    return [each for each in history.writes if each.told is Told.COMMITTED and len(each.tables) == tables]


def in_middle(found: list[Write]) -> Write:
    return found[len(found) // 2]


def with_writes(history: History, *changed: tuple[Write, Write]) -> History:
    found = history.writes
    for before, after in changed:
        found = tuple(after if each is before else each for each in found)
    return replace(history, writes=found)


def with_log(history: History, keep: Callable[[Commit], Commit | None]) -> History:
    return replace(history, log=tuple(kept for each in history.log if (kept := keep(each)) is not None))


def commits_of(history: History, write: Write) -> list[Commit]:
    return [each for each in history.log if each.commit_id == write.commit_id]


def read_of(history: History, table: str, version: int, began: float, ended: float, actor: str = "reader") -> Read:
    """A read of one table, with the files that this version has."""
    files = Digest()
    for commit in history.log:
        if commit.table == table and commit.version <= version:
            files = files.minus(commit.removes).plus(commit.adds)
    return Read(actor=actor, began=began, ended=ended, versions={table: version}, files={table: files})


def with_reads(history: History, *reads: Read) -> History:
    return replace(history, reads=history.reads + reads)


def gap(history: History) -> History:
    version = in_middle(acknowledged(history)).versions
    ((table, hole),) = version.items()
    return with_log(
        history,
        lambda each: replace(each, version=each.version + 1) if each.table == table and each.version > hole else each,
    )


def lost(history: History) -> History:
    """The last commit of a table goes without a trace, so that versions stay dense."""
    last = max((each for each in acknowledged(history)), key=lambda each: (each.ended, each.began))
    ((table, _),) = last.versions.items()
    head = max(each.version for each in history.log if each.table == table)
    gone = replace(last, versions={table: head + 1}, adds={table: ("gone",)}, times={}, began=1e6, ended=1e6 + 1)
    return replace(history, writes=(*history.writes, gone))


def moved(history: History) -> History:
    write = in_middle(acknowledged(history))
    ((table, version),) = write.versions.items()
    return with_writes(history, (write, replace(write, versions={table: version + 1}, times={})))


def another_id(history: History) -> History:
    write = in_middle(acknowledged(history))
    return with_writes(history, (write, replace(write, commit_id="another")))


def twice(history: History) -> History:
    write = in_middle(acknowledged(history))
    ((table, version),) = write.versions.items()
    last = max((each for each in history.log if each.table == table), key=lambda each: each.version)
    again = replace(
        next(each for each in history.log if (each.table, each.version) == (table, version)),
        version=last.version + 1,
        committed_at=last.committed_at + 1,
    )
    return replace(history, log=(*history.log, again))


def batch_twice(history: History) -> History:
    one, other = acknowledged(history)[:2]
    return with_writes(history, *((each, replace(each, batch=("a stream", 1))) for each in (one, other)))


def batch_missing(history: History) -> History:
    """The third batch is there, and the second one is not."""
    one, other = acknowledged(history)[:2]
    return with_writes(
        history, (one, replace(one, batch=("a stream", 1))), (other, replace(other, batch=("a stream", 3)))
    )


def told_another_version(history: History) -> History:
    """A writer that asked for a version was told that it has a later one, which is true."""
    write = in_middle(acknowledged(history))
    ((table, version),) = write.versions.items()
    return with_writes(history, (write, replace(write, expected={table: version - 1})))


def another_version(history: History) -> History:
    """The same of a replacement whose outcome its writer was never told."""
    write = next(each for each in acknowledged(history) if any(each.removes.values()))
    ((table, version),) = write.versions.items()
    silent = replace(write, told=Told.UNKNOWN, versions={}, times={}, expected={table: version - 1})
    return with_writes(history, (write, silent))


def phantom(history: History) -> History:
    write = in_middle(acknowledged(history))
    return with_writes(history, (write, replace(write, told=Told.FAILED, versions={}, times={})))


def stranger(history: History) -> History:
    table = TABLES[0]
    last = max((each for each in history.log if each.table == table), key=lambda each: each.version)
    commit = replace(
        last, version=last.version + 1, committed_at=last.committed_at + 1, adds=("nobody's",), commit_id="nobody's"
    )
    return replace(history, log=(*history.log, commit))


def half_of_the_tables(history: History) -> History:
    """A commit of two tables is the last of one of them, and is taken out of it."""
    table = TABLES[0]
    head = max(each.version for each in history.log if each.table == table)
    other = max(each.version for each in history.log if each.table == TABLES[1])
    write = Write(
        actor="pair",
        began=1e6,
        ended=1e6 + 1,
        told=Told.UNKNOWN,
        adds={table: ("pair-a",), TABLES[1]: ("pair-b",)},
    )
    commit = Commit(
        table=TABLES[1], version=other + 1, commit_id="pair", committed_at=1 << 40, adds=("pair-b",), removes=()
    )
    assert head
    return replace(history, writes=(*history.writes, write), log=(*history.log, commit))


def half_of_the_files(history: History) -> History:
    write = next(each for each in acknowledged(history) if len(next(iter(each.adds.values()))) > 1)
    ((table, version),) = write.versions.items()
    return with_log(
        history,
        lambda each: replace(each, adds=each.adds[:1]) if (each.table, each.version) == (table, version) else each,
    )


def without_removal(history: History) -> History:
    write = next(each for each in acknowledged(history) if any(each.removes.values()))
    return with_log(
        history,
        lambda each: replace(each, removes=()) if each.commit_id == write.commit_id else each,
    )


def time_runs_back(history: History) -> History:
    ((table, version),) = in_middle(acknowledged(history)).versions.items()
    return with_log(
        history,
        lambda each: replace(each, committed_at=1) if (each.table, each.version) == (table, version) else each,
    )


def two_times(history: History) -> History:
    pair = in_middle(acknowledged(history, tables=2))
    shifted = with_log(
        history,
        lambda each: (
            replace(each, committed_at=each.committed_at + 1)
            if each.commit_id == pair.commit_id and each.table == TABLES[0]
            else each
        ),
    )
    return with_writes(shifted, (pair, replace(pair, times={})))


def past_is_another(history: History) -> History:
    read = next(each for each in history.reads if each.at is not None and max(each.versions.values()) > 1)
    wrong = replace(read, versions={table: max(version - 1, 0) for table, version in read.versions.items()}, files={})
    return replace(history, reads=tuple(wrong if each is read else each for each in history.reads))


def disorder(history: History) -> History:
    """Two writes of a table change places that did not overlap."""
    table = TABLES[0]
    found = [each for each in acknowledged(history) if table in each.tables]
    one, other = found[0], found[-1]
    first, last = one.versions[table], other.versions[table]
    assert one.ended < other.began
    swapped = {first: last, last: first}
    times = {each.version: each.committed_at for each in history.log if each.table == table}
    moved_log = with_log(
        history,
        lambda each: (
            replace(each, version=swapped[each.version], committed_at=times[swapped[each.version]])
            if each.table == table and each.version in swapped
            else each
        ),
    )
    return with_writes(
        moved_log,
        (one, replace(one, versions={table: last}, times={table: times[last]})),
        (other, replace(other, versions={table: first}, times={table: times[first]})),
    )


def stale(history: History) -> History:
    write = acknowledged(history)[-1]
    ((table, version),) = write.versions.items()
    return with_reads(history, read_of(history, table, version - 1, write.ended + 1, write.ended + 2))


def future(history: History) -> History:
    write = in_middle(acknowledged(history))
    ((table, version),) = write.versions.items()
    return with_reads(history, read_of(history, table, version, write.began - 2, write.began - 1))


def beyond_the_end(history: History) -> History:
    """A read shows a version that the log does not have, as one that was rolled back."""
    table = TABLES[0]
    head = max(each.version for each in history.log if each.table == table)
    read = read_of(history, table, head + 1, 1e6, 1e6 + 1)
    return with_reads(history, replace(read, files={}))


def dirty(history: History) -> History:
    """Another commit has taken the version of one that was rolled back, and that a reader was shown."""
    write = in_middle(acknowledged(history))
    ((table, version),) = write.versions.items()
    read = read_of(history, table, version, write.began, write.ended)
    return with_reads(history, replace(read, times={table: write.times[table] - 1}))


def back(history: History) -> History:
    """Two reads, one after the other, during a write that was never told: the later one has forgotten it."""
    table = TABLES[0]
    head = max(each.version for each in history.log if each.table == table)
    last = max(each.committed_at for each in history.log)
    write = Write(actor="slow", began=1e6, ended=2e6, told=Told.UNKNOWN, adds={table: ("slow",)})
    commit = Commit(table=table, version=head + 1, commit_id="slow", committed_at=last + 1, adds=("slow",), removes=())
    longer = replace(history, writes=(*history.writes, write), log=(*history.log, commit))
    return with_reads(
        longer,
        read_of(longer, table, head + 1, 1e6 + 1, 1e6 + 2),
        read_of(longer, table, head, 1e6 + 3, 1e6 + 4, actor="another reader"),
    )


def split(history: History) -> History:
    pair = in_middle(acknowledged(history, tables=2))
    one, other = TABLES
    read = Read(
        actor="reader",
        began=pair.began,
        ended=pair.ended,
        versions={one: pair.versions[one], other: pair.versions[other] - 1},
        files={},
    )
    return with_reads(history, read)


def other_files(history: History) -> History:
    read = next(each for each in history.reads if any(files.count for files in each.files.values()))
    table = next(table for table, files in read.files.items() if files.count)
    wrong = replace(read, files={table: read.files[table].plus(["more"])})
    return replace(history, reads=tuple(wrong if each is read else each for each in history.reads))


def cycle(_: History) -> History:
    """Two writes of two tables at once, which the tables put in different orders."""
    writes = tuple(
        Write(
            actor=actor,
            began=1,
            ended=9,
            told=Told.COMMITTED,
            adds={table: (f"{actor}-{table}",) for table in TABLES},
            versions={"a": 1 + number, "b": 2 - number},
            commit_id=actor,
        )
        for number, actor in enumerate(("one", "other"))
    )
    log = tuple(
        Commit(
            table=table,
            version=version,
            commit_id=f"{table}-{version}",
            committed_at=version * 10,
            adds=write.adds[table],
            removes=(),
        )
        for write in writes
        for table, version in write.versions.items()
    )
    return History(writes=tuple(replace(each, commit_id=None) for each in writes), reads=(), log=log)


WRONG: list[tuple[Wrong, Callable[[History], History]]] = [
    (Wrong.GAP, gap),
    (Wrong.LOST, lost),
    (Wrong.MOVED, moved),
    (Wrong.MOVED, another_id),
    (Wrong.TWICE, twice),
    (Wrong.MOVED, told_another_version),
    (Wrong.MOVED, another_version),
    (Wrong.TWICE, batch_twice),
    (Wrong.LOST, batch_missing),
    (Wrong.PHANTOM, phantom),
    (Wrong.STRANGER, stranger),
    (Wrong.HALF, half_of_the_tables),
    (Wrong.HALF, half_of_the_files),
    (Wrong.HALF, without_removal),
    (Wrong.TIME, time_runs_back),
    (Wrong.TIME, two_times),
    (Wrong.TIME, past_is_another),
    (Wrong.DISORDER, disorder),
    (Wrong.STALE, stale),
    (Wrong.FUTURE, future),
    (Wrong.FUTURE, beyond_the_end),
    (Wrong.DIRTY, dirty),
    (Wrong.BACK, back),
    (Wrong.SPLIT, split),
    (Wrong.FILES, other_files),
    (Wrong.CYCLE, cycle),
]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("wrong", "spoil"), WRONG, ids=[spoil.__name__ for _, spoil in WRONG])
def test_each_kind_of_wrong_history_is_found(wrong: Wrong, spoil: Callable[[History], History], seed: int) -> None:
    found = check(spoil(right_history(seed, steps=120)))
    assert wrong in {each.wrong for each in found}, found


def test_every_kind_of_finding_has_a_wrong_history() -> None:
    assert {wrong for wrong, _ in WRONG} == set(Wrong)
