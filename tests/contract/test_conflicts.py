"""Two writers, one step at a time: which winners a loser can commit on top of, and what the table holds then."""

import re
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from lakelog import CommitResult, ConcurrencyError, DatasetNotFoundError, Lake, VersionConflict
from lakelog.actions import Action, AddFile, Metadata, Protocol, RemoveFile, Txn
from lakelog.changes.conflicts import Found, Reads, find_conflict
from lakelog.changes.retry import back_off
from lakelog.log.commit.files import AddFiles, RemoveFiles
from lakelog.schema import to_delta_json
from tests.contract.lost_races import BASE, FIRST, SECOND, Setting, Write, file, prepared, removes
from tests.contract.samples import SCHEMA, VECTOR, commit, paths, table
from tests.fixtures.lakes import Place, catalog_rows
from tests.invariants import check_invariants

WIDER = pa.schema([*SCHEMA, ("more", pa.string())])

NEW = file("new", FIRST, 0)


def losers(metadata: Metadata) -> dict[str, Write]:
    ones = removes("1a", "1b")
    wider = replace(metadata, schema_string=to_delta_json(WIDER))
    return {
        "append": Write([NEW]),
        "append with a new column": Write([NEW, wider]),
        "change of columns": Write([wider]),
        "overwrite": Write([NEW, *removes("1a", "1b", "2a", "2b")], Reads(everything=True)),
        "replaceWhere by partition": Write([NEW, *ones], Reads(predicates=(f"day = DATE'{FIRST}'",))),
        "replaceWhere by statistics": Write([NEW, *removes("1a")], Reads(predicates=("id < 10",))),
        "dynamic overwrite": Write([NEW, *ones], Reads(partitions=({"day": FIRST},))),
        "delete": Write([NEW, *removes("1a")], Reads(predicates=("id = 5",), files=frozenset({"1a"}))),
        "scan": Write([NEW], Reads(files=frozenset({"1a"}))),
        "insert if absent": Write([NEW], Reads(predicates=("id < 10",))),
        "constraint": Write([wider], Reads(everything=True)),
        "compaction": Write(
            [replace(NEW, data_change=False), *removes("1a", "1b", data_change=False)],
            Reads(everything=True, predicates=("id < 20",), files=frozenset({"1a", "1b"}), data_change=False),
        ),
    }


LOSERS = [
    "append",
    "append with a new column",
    "change of columns",
    "overwrite",
    "replaceWhere by partition",
    "replaceWhere by statistics",
    "dynamic overwrite",
    "delete",
    "scan",
    "insert if absent",
    "constraint",
    "compaction",
]
ALL = set(LOSERS)
READS_ALL = {"overwrite", "constraint"}
READS_DAY = {"replaceWhere by partition", "dynamic overwrite"} | READS_ALL
READS_IDS = {"replaceWhere by statistics", "delete", "insert if absent"} | READS_ALL
READS_ROWS = READS_DAY | READS_IDS
NAMES_1B = {"overwrite", "replaceWhere by partition", "dynamic overwrite", "compaction"}
NAMES_1A = NAMES_1B | {"replaceWhere by statistics", "delete", "scan"}


class Win(NamedTuple):
    """The winner's commits, and the losers that they stand in the way of."""

    commits: Callable[[Metadata], list[Sequence[Action]]]
    stops: set[str]
    why: str = ""


def rewritten(path: str, day: str, low: int, *inputs: str) -> list[Action]:
    return [file(path, day, low, data_change=False), *removes(*inputs, data_change=False)]


WINNERS = {
    "nothing": Win(lambda _: [[]], set()),
    "append inside": Win(lambda _: [[file("w", FIRST, 0)]], READS_ROWS, "added w"),
    "append outside": Win(lambda _: [[file("w", SECOND, 20)]], READS_ALL, "added w"),
    "append of the day, other ids": Win(lambda _: [[file("w", FIRST, 90)]], READS_DAY, "added w"),
    "append of the ids, other day": Win(lambda _: [[file("w", SECOND, 0)]], READS_IDS, "added w"),
    "append without statistics": Win(lambda _: [[file("w", SECOND)]], READS_IDS, "added w"),
    "append of many": Win(
        lambda _: [[file(f"w{number}", SECOND, 20 + number) for number in range(300)] + [file("w", FIRST, 5)]],
        READS_ROWS,
        "added w",
    ),
    "append, then another": Win(lambda _: [[file("v", SECOND, 20)], [file("w", FIRST, 0)]], READS_ROWS, "added"),
    "append, then its compaction": Win(
        lambda _: [[file("w", FIRST, 0)], rewritten("v", FIRST, 0, "w")], READS_ROWS, "added w"
    ),
    "append, then its removal": Win(lambda _: [[file("w", FIRST, 0)], removes("w")], READS_ROWS, "added w"),
    "remove inside": Win(lambda _: [removes("1a")], READS_ROWS | NAMES_1A, "removed 1a"),
    "remove of the day": Win(lambda _: [removes("1b")], READS_DAY | NAMES_1B, "removed 1b"),
    "remove outside": Win(lambda _: [removes("2b")], READS_ALL, "removed 2b"),
    "compaction inside": Win(lambda _: [rewritten("w", FIRST, 0, "1a", "1b")], NAMES_1A, "removed 1"),
    "compaction of the day": Win(lambda _: [rewritten("w", FIRST, 10, "1b")], NAMES_1B, "removed 1b"),
    "compaction outside": Win(lambda _: [rewritten("w", SECOND, 20, "2a", "2b")], {"overwrite"}, "removed 2"),
    "compaction, then a removal of its rows": Win(
        lambda _: [rewritten("w", SECOND, 20, "2a"), removes("w")], READS_ALL, "removed (2a|w)"
    ),
    "a vector on a file": Win(
        lambda _: [[file("1a", FIRST, 0, deletion_vector=VECTOR), *removes("1a")]], READS_ROWS | NAMES_1A, "1a"
    ),
    "a file again": Win(
        lambda _: [[file("1a", FIRST, 0, data_change=False, tags={"seen": "yes"})]], NAMES_1A, "added 1a"
    ),
    "metadata": Win(lambda was: [[replace(was, description="other")]], ALL, "changed the table's metadata"),
    "metadata, then an append": Win(
        lambda was: [[replace(was, description="other")], [file("w", SECOND, 20)]], ALL, "metadata"
    ),
    "the same new column": Win(
        lambda was: [[replace(was, schema_string=to_delta_json(WIDER))]], ALL, "changed the table's metadata"
    ),
    "protocol": Win(lambda _: [[Protocol(min_reader_version=1, min_writer_version=3)]], ALL, "the table's protocol"),
    "the same app": Win(lambda _: [[Txn(app_id="stream", version=1)]], ALL, "application 'stream'"),
    "another app": Win(lambda _: [[Txn(app_id="batch", version=1)]], set()),
}


@pytest.mark.parametrize("winner", WINNERS)
def test_a_loser_commits_on_top_of_what_it_did_not_read(
    lake: Lake, other_lake: Lake, place: Place, winner: str
) -> None:
    win = WINNERS[winner]
    stopped = set()
    # The rules are the same on all databases: on the slowest, each winner meets a third of the losers.
    first = list(WINNERS).index(winner) % 3
    tried = LOSERS[first::3] if place.backend == "duckdb" else LOSERS
    for loser in tried:
        setting = prepared(lake, other_lake, loser)
        write = losers(setting.metadata)[loser]
        write = replace(write, actions=[*write.actions, Txn(app_id="stream", version=2)])
        setting.win(*win.commits(setting.metadata))
        files, head = setting.live(), setting.dataset.version
        columns = set(setting.dataset.schema().names)
        outcome: CommitResult | ConcurrencyError
        try:
            outcome = setting.lose(write)
        except ConcurrencyError as error:
            outcome = error
        if isinstance(outcome, ConcurrencyError):
            stopped.add(loser)
            assert not isinstance(outcome, VersionConflict), loser
            assert re.search(rf"version \d+ \(WIN\) .*{win.why}", str(outcome)), loser
            assert setting.dataset.version == head, loser
        else:
            assert outcome.version == head + 1, loser
            files -= {action.path for action in write.actions if isinstance(action, RemoveFile)}
            files |= {action.path for action in write.actions if isinstance(action, AddFile)}
            columns |= {"more"} if any(isinstance(action, Metadata) for action in write.actions) else set()
        assert setting.live() == files, loser
        assert set(setting.dataset.schema().names) == columns, loser
    assert stopped == win.stops.intersection(tried)
    check_invariants(lake)


def test_the_base_itself_is_no_winner(setting: Setting) -> None:
    reads = Reads(everything=True, files=frozenset({"2a", "w"}))
    for actions in (
        removes("2a"),
        [file("w", FIRST, 0)],
        [Txn(app_id="stream", version=1)],
        [replace(setting.metadata, description="x")],
        [Protocol(min_reader_version=1, min_writer_version=3)],
    ):
        setting.win(actions, [])
        head = setting.dataset.version
        asked = setting.lake.committer, setting.dataset.id
        assert find_conflict(*asked, head - 2, head, reads, apps=["stream"]) is not None
        assert find_conflict(*asked, head - 1, head, reads, apps=["stream"]) is None
        assert find_conflict(*asked, head - 2, head - 2, reads, apps=["stream"]) is None


def test_a_conflict_changes_nothing(setting: Setting) -> None:
    setting.win(removes("1a"))
    before = catalog_rows(setting.lake)
    with pytest.raises(ConcurrencyError):
        setting.lose(Write([NEW, *removes("1a")]))
    assert catalog_rows(setting.lake) == before


@pytest.mark.parametrize("winner", ["append outside", "remove inside", "metadata"])
def test_without_retries_every_lost_race_is_a_version_conflict(setting: Setting, winner: str) -> None:
    setting.win(*WINNERS[winner].commits(setting.metadata))
    with pytest.raises(VersionConflict) as caught:
        setting.lose(Write([NEW]), retries=0)
    assert (caught.value.expected, caught.value.actual) == (setting.base, setting.dataset.version)


def test_a_conflict_says_what_happened_and_what_to_do(setting: Setting) -> None:
    setting.win([file("other", SECOND, 20)], [file("x", FIRST, 0)])
    with pytest.raises(ConcurrencyError) as caught:
        setting.lose(Write([NEW], Reads(predicates=("id < 10", "id = 70"))))
    assert str(caught.value) == (
        f"conflict on table 'events' (id {setting.dataset.id}): version 3 (WIN) added x, which can hold rows that "
        "this commit read: id < 10 or id = 70. The commit was prepared on version 1 and nothing of it was committed: "
        "read the table again, at version 3, and repeat the write if it still applies."
    )


def test_two_changes_of_metadata_are_never_merged(setting: Setting) -> None:
    setting.win([replace(setting.metadata, description="theirs")])
    with pytest.raises(ConcurrencyError, match="as this commit does: the two are never merged silently"):
        setting.lose(Write([replace(setting.metadata, description="mine")]))
    with pytest.raises(ConcurrencyError, match="for which this commit was not planned"):
        setting.lose(Write([NEW]))


def test_the_first_commit_in_the_way_is_named(setting: Setting) -> None:
    setting.win([file("v", SECOND, 20)], removes("1b"), [file("w", FIRST, 0)], removes("1a"))
    assert setting.find(Reads(files=frozenset({"1a"}))) == Found(
        version=5, operation="WIN", reason="removed 1a, which this commit read or removes"
    )
    found = setting.find(Reads(predicates=("id < 10",), files=frozenset({"1a"})))
    assert found is not None
    assert (found.version, found.operation) == (4, "WIN")
    assert str(found).startswith("version 4 (WIN) added w, ")


def test_a_winner_that_comes_during_the_retries_is_looked_at_too(setting: Setting) -> None:
    meanwhile = [[file("v", SECOND, 20)], [file("w", SECOND, 30)], removes("1a")]
    with pytest.raises(ConcurrencyError, match=r"version 4 .* removed 1a"):
        setting.lose(Write([NEW, *removes("1a")], Reads(predicates=("id < 10",))), retries=5, meanwhile=meanwhile)
    assert setting.live() == {"1b", "2a", "2b", "v", "w"}
    setting.lose(Write([NEW]), meanwhile=[[file("x", SECOND, 30)]])
    assert setting.live() == {"1b", "2a", "2b", "v", "w", "x", "new"}
    check_invariants(setting.lake)


def test_retries_end(setting: Setting) -> None:
    scan = Write([NEW], Reads(files=frozenset({"1a"})))
    arrivals = [[file(f"w{number}", SECOND, 20)] for number in range(4)]
    with pytest.raises(VersionConflict):
        setting.lose(scan, retries=3, meanwhile=arrivals)
    assert "new" not in setting.live()
    again = replace(setting, base=setting.dataset.version)
    arrivals = [[file(f"x{number}", SECOND, 20)] for number in range(3)]
    assert again.lose(scan, retries=3, meanwhile=arrivals).version == again.base + 4


def test_an_append_that_may_be_tried_again_loses_no_race(setting: Setting) -> None:
    """It waits for the lock, and stands on whatever the head is then."""
    result = setting.lose(Write([NEW]), retries=1, meanwhile=[[file("w0", SECOND, 20)]])
    assert result.version == setting.base + 2
    assert setting.live() == {"1a", "1b", "2a", "2b", "w0", "new"}
    assert setting.dataset.history(1)[0].version == result.version
    check_invariants(setting.lake)


def test_an_append_does_not_stand_on_rules_that_it_was_not_checked_against(setting: Setting) -> None:
    wider = replace(setting.metadata, schema_string=to_delta_json(WIDER))
    with pytest.raises(ConcurrencyError, match="changed the table's metadata"):
        setting.lose(Write([NEW]), retries=5, meanwhile=[[wider]])
    assert "new" not in setting.live()
    protocol = Protocol(min_reader_version=1, min_writer_version=3)
    late = replace(setting, base=setting.dataset.version)
    with pytest.raises(ConcurrencyError, match="protocol"):
        late.lose(Write([NEW]), retries=5, meanwhile=[[protocol]])
    check_invariants(setting.lake)


def test_a_base_version_that_does_not_exist_yet_is_not_tried_again(setting: Setting) -> None:
    ahead = replace(setting, base=setting.base + 5)
    with pytest.raises(VersionConflict, match="does not exist yet"):
        ahead.lose(Write([NEW]), retries=3, pause=lambda retry: pytest.fail("there is nothing to wait for"))


def test_a_dropped_table_ends_the_retries(setting: Setting) -> None:
    setting.win([file("w", SECOND, 20)])
    scan = Write([NEW], Reads(files=frozenset({"1a"})))
    with pytest.raises(DatasetNotFoundError):
        setting.lose(scan, pause=lambda retry: setting.other.drop_dataset("events"))


def test_files_may_come_in_bulk(setting: Setting) -> None:
    setting.win([file("w", SECOND, 20)], rewritten("v", SECOND, 20, "w"))
    bulk: list[Any] = [
        AddFiles(pa.table({"path": ["new"], "size": [1], "partition_values": [f'{{"day":"{FIRST}"}}']})),
        RemoveFiles(pa.table({"path": ["1a", "1b"]})),
    ]
    setting.lose(Write(bulk, Reads(partitions=({"day": FIRST},))))
    assert setting.live() == {"new", "2a", "2b", "v"}
    setting.win(removes("new"))
    late = replace(setting, base=setting.dataset.version - 1)
    with pytest.raises(ConcurrencyError, match="removed new"):
        late.lose(Write([file("z", FIRST, 0), RemoveFiles(pa.table({"path": ["new"]}))]))  # type: ignore[list-item]


def test_eight_appenders_and_a_compaction_all_get_through(connect: Callable[..., Lake]) -> None:
    lakes = [connect() for _ in range(9)]
    dataset = table(lakes[0], partition_by=["day"])
    base = commit(lakes[0], dataset, *BASE).version
    start = threading.Barrier(len(lakes))

    def write(number: int) -> int:
        setting = Setting(lakes[number], lakes[number], dataset, base)
        start.wait()
        if number == 8:
            return setting.lose(Write(rewritten("c", FIRST, 0, "1a", "1b")), retries=100, pause=back_off).version
        return setting.lose(Write([file(f"n{number}", FIRST, 0)]), retries=100, pause=back_off).version

    with ThreadPoolExecutor(len(lakes)) as pool:
        versions = sorted(pool.map(write, range(len(lakes))))
    assert versions == list(range(base + 1, base + 10))
    assert set(paths(dataset.snapshot().files())) == {"2a", "2b", "c", *(f"n{number}" for number in range(8))}
    check_invariants(lakes[0])
