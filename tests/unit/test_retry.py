"""The loop around a commit: how often it tries, how long it waits, and what it leaves alone."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from lakelog.actions import Metadata, Protocol, RemoveFile, Txn
from lakelog.changes import retry as retry_module
from lakelog.changes.conflicts import Found, Reads
from lakelog.changes.retry import Prepared, back_off, commit_with_retries
from lakelog.errors import CommitOutcomeUnknown, ConcurrencyError, DatabaseError, ValidationError, VersionConflict
from lakelog.log.commit.committer import Committer
from lakelog.log.commit.draft import Description, Draft
from lakelog.log.commit.outcomes import CommitResult, Conflict
from lakelog.log.state import Head


class Scripted:
    """A committer whose commits end as they are told to: by a conflict with a head, an error, or a commit."""

    def __init__(self, *outcomes: int | BaseException | None) -> None:
        self.outcomes = iter(outcomes)
        self.tried: list[int] = []
        self.anywhere: list[bool] = []
        self.head_version = -1
        self.catalog = self
        self.states = self

    def commit(self, drafts: list[Draft], unchanged: dict[int, int]) -> list[CommitResult] | Conflict:
        (draft,) = drafts
        self.tried.append(draft.expected)
        self.anywhere.append(draft.anywhere)
        outcome = next(self.outcomes)
        if isinstance(outcome, BaseException):
            raise outcome
        if outcome is not None:
            self.head_version = outcome
            return Conflict("events", 7, draft.expected, outcome)
        return [CommitResult(table_id=7, table="events", version=draft.version, committed_at=0, commit_id="c")]

    @contextmanager
    def session(self) -> Iterator[None]:
        yield None

    def head(self, session: None, table_id: int) -> Head:
        return Head(table_id, "events", "/events", self.head_version, 0, 0, 0, 0, None)

    def of_head(self, session: None, head: Head) -> None:
        assert head.version == self.head_version


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What was asked about winners. None of them conflicts."""
    asked: list[dict[str, Any]] = []

    def find(committer: Any, table_id: int, base: int, head: int, reads: Reads, **options: Any) -> None:
        asked.append({"range": (base, head), "reads": reads, **options})

    monkeypatch.setattr(retry_module, "find_conflict", find)
    return asked


def run(
    script: Scripted,
    *actions: Any,
    reads: Reads | None = None,
    retries: int = 0,
    pause: Callable[[int], None] = lambda retry: None,
    **said: Any,
) -> CommitResult:
    def draft_for(expected: int) -> Draft:
        description = Description(operation="WRITE", operation_parameters={}, extra={})
        return Draft(7, expected, list(actions), description)

    change = Prepared(table_id=7, base_version=3, draft_for=draft_for, reads=reads or Reads(), **said)
    return commit_with_retries(cast(Committer, script), [change], retries=retries, pause=pause)[0]


def test_a_commit_that_wins_is_tried_once(checks: list[Any]) -> None:
    script = Scripted(None)
    assert run(script, retries=10).version == 4
    assert (script.tried, checks) == ([3], [])


@pytest.mark.parametrize("options", [{}, {"retries": 0}], ids=["by default", "said"])
def test_nobody_retries_unasked(checks: list[Any], options: dict[str, int]) -> None:
    script = Scripted(5)
    with pytest.raises(VersionConflict) as caught:
        run(script, **options)
    assert (caught.value.expected, caught.value.actual) == (3, 5)
    assert (script.tried, checks) == ([3], [])


def test_each_retry_builds_on_the_head_and_looks_only_at_new_winners(checks: list[Any]) -> None:
    script = Scripted(5, 6, 9, None)
    assert run(script, retries=3).version == 10
    assert script.tried == [3, 5, 6, 9]
    assert [each["range"] for each in checks] == [(3, 5), (5, 6), (6, 9)]


def test_retries_are_counted(checks: list[Any]) -> None:
    script = Scripted(4, 5, 6, None)
    with pytest.raises(VersionConflict) as caught:
        run(script, retries=2)
    assert (caught.value.expected, caught.value.actual) == (5, 6)
    assert script.tried == [3, 4, 5]


def test_a_pause_comes_before_each_retry_and_before_the_look_at_the_head(checks: list[Any]) -> None:
    script = Scripted(4, 15, None)
    pauses: list[int] = []

    def pause(retry: int) -> None:
        pauses.append(retry)
        assert len(checks) == retry - 1
        script.head_version += 10

    assert run(script, reads=Reads(everything=True), retries=2, pause=pause).version == 26
    assert pauses == [1, 2]
    assert [each["range"] for each in checks] == [(3, 14), (14, 25)]


def test_an_append_that_may_be_tried_again_does_not_pause_and_stands_on_any_head(checks: list[Any]) -> None:
    script = Scripted(4, None)
    run(script, retries=1, pause=lambda retry: pytest.fail("it has the lock to wait for"))
    assert script.anywhere == [True, True]


def test_an_append_that_may_not_be_tried_again_stands_where_it_was_prepared_or_nowhere(checks: list[Any]) -> None:
    script = Scripted(4)
    with pytest.raises(VersionConflict):
        run(script)
    assert script.anywhere == [False]


@pytest.mark.parametrize(
    "said",
    [
        {"reads": Reads(predicates=("id = 1",))},
        {"reads": Reads(partitions=({"day": "1"},))},
        {"reads": Reads(files=frozenset({"a"}))},
        {"apps": frozenset({"stream"})},
        {"changes_metadata": True},
    ],
)
def test_what_has_read_anything_stands_only_on_heads_that_were_looked_at(
    checks: list[Any], said: dict[str, Any]
) -> None:
    script = Scripted(4, None)
    run(script, retries=1, **said)
    assert script.anywhere == [False, False]


def test_pauses_grow_at_random_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[tuple[float, float]] = []
    slept: list[float] = []

    def uniform(low: float, high: float) -> float:
        ranges.append((low, high))
        return high / 2

    monkeypatch.setattr(retry_module.random, "uniform", uniform)
    monkeypatch.setattr(retry_module.time, "sleep", slept.append)
    for retry in (1, 2, 3, 4, 100, 10_000):
        back_off(retry)
    assert [low for low, _ in ranges] == [0] * 6
    assert [high for _, high in ranges] == [0.02, 0.04, 0.08, 0.16, 2.0, 2.0]
    assert slept == [high / 2 for _, high in ranges]


@pytest.mark.parametrize(
    "error",
    [
        CommitOutcomeUnknown("id", ["events"], "lost"),
        DatabaseError("broke"),
        ValidationError("commit", []),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("before", [(), (4,)], ids=["at once", "in a retry"])
def test_errors_pass_through(checks: list[Any], error: Any, before: tuple[int, ...]) -> None:
    script = Scripted(*before, error)
    with pytest.raises(type(error)) as caught:
        run(script, retries=5)
    assert caught.value is error
    assert len(script.tried) == len(before) + 1


def test_a_winner_in_the_way_ends_it_with_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Found(version=5, operation="DELETE", reason="removed x, which this commit read or removes")
    monkeypatch.setattr(retry_module, "find_conflict", lambda *_, **__: found)
    script = Scripted(6)
    with pytest.raises(
        ConcurrencyError, match=r"version 5 \(DELETE\) removed x.*prepared on version 3.*at version 6"
    ) as caught:
        run(script, retries=5)
    assert not isinstance(caught.value, VersionConflict)
    assert script.tried == [3]


def test_what_the_draft_shows_need_not_be_said(checks: list[Any]) -> None:
    reads = Reads(predicates=("id = 1",), files=frozenset({"a"}))
    run(
        Scripted(4, None),
        RemoveFile(path="b"),
        Txn(app_id="s", version=1),
        reads=reads,
        retries=1,
        apps=frozenset({"t"}),
    )
    (check,) = checks
    assert check["reads"] == Reads(predicates=("id = 1",), files=frozenset({"a", "b"}))
    assert check["apps"] == {"s", "t"}
    assert check["changes_metadata"] is False


@pytest.mark.parametrize(
    ("actions", "said", "expected"),
    [
        ([], False, False),
        ([], True, True),
        ([Metadata(id="m", schema_string='{"type":"struct","fields":[]}')], False, True),
        ([Protocol(min_reader_version=1, min_writer_version=2)], False, True),
    ],
    ids=["neither", "said", "metadata", "protocol"],
)
def test_a_draft_that_changes_the_rules_says_so(
    checks: list[Any], actions: list[Any], said: bool, expected: bool
) -> None:
    run(Scripted(4, None), *actions, retries=1, changes_metadata=said)
    assert checks[0]["changes_metadata"] is expected


def test_each_retry_is_logged(checks: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "lakelog.retry"):
        run(Scripted(5, 6, None), retries=10)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "events: version 4 was taken by another commit, trying version 6 (retry 1 of 10)"),
        ("INFO", "events: version 6 was taken by another commit, trying version 7 (retry 2 of 10)"),
    ]
