"""Lakes whose steps can be put into an order with those of another: see ``tests.contract.interleaving``."""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from lakelog import Lake
from lakelog.catalog.base import SmallCommit, Stands
from lakelog.catalog.sqlite import catalog as sqlite
from lakelog.changes import leases as writes
from lakelog.changes import restore, retry
from lakelog.changes.staging_directory import OwnDirectory
from lakelog.upkeep import vacuum
from tests.contract.interleaving import Step, step
from tests.contract.upkeep_tables import WEEKS, move_clock
from tests.fixtures.lakes import COLUMNS

FILES = "files"
WRITTEN = "files of writes"
"""What lies in the directories of writes, of which each has its own."""

_OWN = {"dl_writes"}
"""Tables in which everybody changes rows of their own, and reads those of others."""

_NAME = re.compile(rf"\b(?:{'|'.join(COLUMNS)})\b")
_CHANGE = re.compile(r"\b(?:INSERT INTO|DELETE FROM|(?<!FOR )UPDATE)\b")


def watch(lake: Lake) -> None:
    """Makes a step of every transaction, and a small one of every statement outside of them: each sees one state."""
    catalog: Any = lake.committer.catalog
    session, begin, commit_at_once, note = catalog.session, catalog.begin, catalog.commit_at_once, catalog.note

    @contextmanager
    def watched_session() -> Iterator[_Session]:
        with session() as found:
            yield _Session(found)

    def watched_begin(*arguments: Any) -> _Transaction:
        with ExitStack() as stack:
            touched = stack.enter_context(step())
            return _Transaction(begin(*arguments), touched, stack.pop_all())

    def watched_commit_at_once(commit: SmallCommit, timeout: float) -> Stands | None:
        with step() as touched:
            stands: Stands | None = commit_at_once(commit, timeout)
            (touched.reads if stands is None else touched.changes).update(commit.rows, ["dl_tables"])
            return stands

    def watched_note(statement: str, *arguments: Any) -> Any:
        with step() as touched:
            _tell(touched, statement)
            return note(statement, *arguments)

    catalog.session, catalog.begin, catalog.note = watched_session, watched_begin, watched_note
    catalog.commit_at_once = watched_commit_at_once


def step_by_step(patched: pytest.MonkeyPatch) -> None:
    """Makes a step of what operations do to files, and lets them wait for nothing but their turn."""
    for owner, name, touched in (
        # What a vacuum asks before it looks at files can only refuse it, so that all of it is one step.
        (vacuum._Vacuum, "__init__", Step()),
        (vacuum, "list_files", Step(reads={FILES, WRITTEN})),
        (vacuum, "_delete", Step(changes={FILES})),
        (restore, "missing_files", Step(reads={FILES})),
        (OwnDirectory, "discard", Step(adds={WRITTEN})),
    ):
        patched.setattr(owner, name, _as_step(getattr(owner, name), touched))
    patched.setattr(retry, "_LONGEST", 0.0)
    patched.setattr(sqlite, "_LONGEST_TURN", 0.0)
    # To a vacuum all files are old, so that what keeps them is the log and the writes in flight, and not the clock.
    move_clock(patched, WEEKS)
    patched.setattr(writes, "LEASE", writes.LEASE + WEEKS)


def _as_step(function: Callable[..., Any], touches: Step) -> Callable[..., Any]:
    def stepping(*arguments: Any, **options: Any) -> Any:
        with step() as touched:
            touched.reads.update(touches.reads)
            touched.changes.update(touches.changes)
            touched.adds.update(touches.adds)
            return function(*arguments, **options)

    return stepping


def _tell(touched: Step, statement: str) -> None:
    names = set(_NAME.findall(statement))
    if _CHANGE.search(statement):
        touched.changes.update(names - _OWN)
        touched.adds.update(names & _OWN)
    else:
        touched.reads.update(names)


class _Session:
    def __init__(self, session: Any) -> None:
        self._session = session

    def fetch(self, statement: str, *arguments: Any) -> Any:
        return self._run(self._session.fetch, statement, *arguments)

    def fetch_arrow(self, statement: str, *arguments: Any, **options: Any) -> Any:
        return self._run(self._session.fetch_arrow, statement, *arguments, **options)

    def _run(self, run: Callable[..., Any], statement: str, *arguments: Any, **options: Any) -> Any:
        with step(small=True) as touched:
            _tell(touched, statement)
            return run(statement, *arguments, **options)


class _Transaction:
    """One step from its begin to its end. If it is rolled back, it has changed nothing."""

    def __init__(self, transaction: Any, touched: Step, open_step: ExitStack) -> None:
        self._transaction = transaction
        self._touched = touched
        self._open_step = open_step
        self._said = Step()

    @property
    def waited(self) -> float:
        return float(self._transaction.waited)

    def fetch(self, statement: str, *arguments: Any) -> Any:
        _tell(self._said, statement)
        return self._transaction.fetch(statement, *arguments)

    def fetch_each(self, *queries: tuple[str, Any]) -> Any:
        for statement, _ in queries:
            _tell(self._said, statement)
        return self._transaction.fetch_each(*queries)

    def execute(self, statement: str, *arguments: Any) -> None:
        _tell(self._said, statement)
        self._transaction.execute(statement, *arguments)

    def insert(self, table: str, rows: Any) -> None:
        self._said.changes.add(table)
        self._transaction.insert(table, rows)

    def give_up(self, statement: str, *arguments: Any) -> Any:
        _tell(self._said, statement)
        return self._transaction.give_up(statement, *arguments)

    def commit(self) -> None:
        self._transaction.commit()
        self._touched.changes.update(self._said.changes)
        self._touched.adds.update(self._said.adds)

    def rollback(self) -> None:
        """Everybody calls it at the end, also after a commit."""
        self._transaction.rollback()
        self._touched.reads.update(self._said.reads)
        self._open_step.close()
