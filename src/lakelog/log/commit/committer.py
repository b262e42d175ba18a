"""The one way in which anything is ever committed.

A commit is a list of drafts, one per table. Inside one database transaction, always in this order: take the tables'
locks, read and compare their heads and the catalog's format, lock the leases of the writes that brought the files, read
the clock, insert the version, insert the actions, move the heads by one, end the leases, commit.
"""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from lakelog.catalog.base import (
    Catalog,
    OutcomeUnknown,
    Parameters,
    Row,
    Session,
    Transaction,
    now_ms,
)
from lakelog.catalog.deadlines import Deadline, limited, sharing, uncounted
from lakelog.catalog.install import check_format
from lakelog.errors import (
    CommitOutcomeUnknown,
    ConcurrencyError,
    ConfigurationError,
    DatabaseError,
    DatasetNotFoundError,
    LakelogError,
    LakelogTimeoutError,
    PrivilegeError,
    ValidationError,
    Violation,
)
from lakelog.log.commit.draft import Draft
from lakelog.log.commit.durability import DataSync
from lakelog.log.commit.one_round_trip import commit_small, version_row
from lakelog.log.commit.outcomes import CommitResult, Committed, Conflict, Outcome, Watcher
from lakelog.log.commit.removes import LiveFile
from lakelog.log.commit.times import AheadOfTheClock
from lakelog.log.state import Head, States, TableState
from lakelog.telemetry import CommitRecord, count_failed_watch, log_safely

LOOKED_UP = 8192
"""Paths that one statement looks up."""

_PATIENCE = 1.0
"""Seconds for which a commit that stands waits for the catalog on behalf of what watches it, which can go on later."""

_PAUSE = 0.1
"""Seconds between two questions to a database that was lost."""


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a commit finds once it has its locks."""

    heads: list[Head]
    """Of the drafts' tables."""
    live: list[dict[str, LiveFile]]
    """Of each draft, the live rows of the paths that it touches."""
    time: int
    """The one time of the commit on all its tables: after that of every head."""


class Committer:
    """Commits drafts to a catalog. Never retries."""

    def __init__(self, catalog: Catalog, timeout: float, durability: str = "full") -> None:
        self.catalog = catalog
        self.data = DataSync(catalog, durability)
        self.states = States(catalog)
        self.timeout = timeout
        self.watcher: Watcher | None = None
        self._ahead = AheadOfTheClock()

    def commit(self, drafts: Sequence[Draft], unchanged: Mapping[int, int] = MappingProxyType({})) -> Outcome:
        """All drafts or none, and only while the tables of ``unchanged`` are at these versions.

        Raises ``ValidationError`` before anything is locked where it can.
        """
        tables = [draft.table_id for draft in drafts] + list(unchanged)
        if len(set(tables)) < len(tables):
            raise ValidationError("commit", [Violation("drafts", "a table can be in a commit only once")])
        with CommitRecord(_names(drafts), drafts[0].description.operation) as record:
            outcome = self._commit(drafts, unchanged, record)
            if isinstance(outcome, Conflict):
                record.outcome = "conflict"
        if not isinstance(outcome, Conflict):
            self.tell(drafts)
        return outcome

    def check(self, table_id: int, expected: int | None) -> None:
        """Raises ``LakelogError`` if a table takes no commits. For when no lock is held."""
        if self.watcher is not None:
            self.watcher.check(table_id, expected)

    def tell(self, drafts: Sequence[Draft]) -> None:
        """Tells that drafts are committed, for which their locks are gone. Never raises: the commits stand."""
        committed = [draft.committed for draft in drafts if draft.committed is not None]
        try:
            self._ahead.warn(drafts)
            if self.watcher is not None:
                with sharing(_PATIENCE):
                    self.watcher.told(committed)
        except Exception:
            names = ", ".join(f"{each.result.table!r} at version {each.result.version}" for each in committed)
            count_failed_watch()
            log_safely("%s: committed, but what watches commits has failed", names)

    def now(self, session: Session) -> int:
        """The time by which commits and leases go, in milliseconds: the server's, where the database has one."""
        return int(session.fetch(self.catalog.queries["clock"], {"now": now_ms()})[0][0])

    def _commit(self, drafts: Sequence[Draft], unchanged: Mapping[int, int], record: CommitRecord) -> Outcome:
        commit_id = str(uuid.uuid4())
        with sharing(self.timeout) as deadline:
            for draft in drafts:
                self.check(draft.table_id, draft.expected)
            bases: list[TableState | None] = []
            for draft in drafts:
                base = self._base(draft)
                if isinstance(base, Conflict):
                    return base
                bases.append(base)
            self.data.locate(drafts)
            left = deadline.left
        with uncounted():
            self.data.before_commit(drafts)
        deadline = Deadline(limited(left))
        if len(drafts) == 1 and not unchanged:
            small = commit_small(self, drafts[0], bases[0], commit_id, record, deadline)
            if small is not None:
                return [small]
        expected = {draft.table_id: draft.expected for draft in drafts if not draft.anywhere} | dict(unchanged)
        tables = list({*_sources(drafts), *unchanged, *(draft.table_id for draft in drafts)})
        transaction = self.catalog.begin(tables, commit_id, deadline.left, expected)
        try:
            outcome = self.write(transaction, drafts, bases, commit_id, record, unchanged)
            if isinstance(outcome, Conflict):
                return outcome
            return self.finish(transaction, drafts, outcome, commit_id, record)
        finally:
            transaction.rollback()

    def write(
        self,
        transaction: Transaction,
        drafts: Sequence[Draft],
        bases: Sequence[TableState | None],
        commit_id: str,
        record: CommitRecord,
        unchanged: Mapping[int, int] = MappingProxyType({}),
    ) -> Outcome:
        """Everything between the locks and COMMIT."""
        looked = self._look(transaction, drafts, bases, unchanged)
        record.waited = transaction.waited
        if isinstance(looked, Conflict):
            return looked
        problems = [
            problem
            for draft, found in zip(drafts, looked.live, strict=True)
            for problem in _live_problems(draft, found)
        ]
        problems += self._txn_problems(transaction, drafts)
        problems += self._vacuumed_problems(transaction, drafts)
        if problems:
            raise ValidationError("commit", problems)
        results = [
            self._write_table(transaction, draft, base, head, found, looked.time, commit_id, record)
            for draft, base, head, found in zip(drafts, bases, looked.heads, looked.live, strict=True)
        ]
        for directory in _leases(drafts):
            transaction.execute(self.catalog.queries["end_lease"], {"directory": directory})
        return results

    def finish(
        self,
        transaction: Transaction,
        drafts: Sequence[Draft],
        results: list[CommitResult],
        commit_id: str,
        record: CommitRecord,
    ) -> list[CommitResult]:
        """COMMIT, and the answer to the question whether it happened."""
        try:
            transaction.commit()
        except OutcomeUnknown as lost:
            self.found_after(lost, commit_id, [result.table for result in results], record)
        record.outcome = "committed"
        for draft in drafts:
            self.states.put(draft.state)
        return results

    def status(self, commit_id: str) -> list[CommitResult]:
        """Where a commit stands: one result for each table, none if it does not and never will.

        Raises ``CommitOutcomeUnknown`` if the database cannot tell within the timeout.
        """
        rows = self.settled(commit_id, self.catalog.queries["commit_by_id"], {"commit_id": commit_id})
        return [
            CommitResult(table_id=table_id, table=name, version=version, committed_at=committed_at, commit_id=commit_id)
            for table_id, name, version, committed_at, _ in rows
        ]

    def head(self, session: Session, table_id: int) -> Head:
        """A live table's head. Raises ``DatasetNotFoundError``."""
        return self._live_head(session.fetch(self.catalog.queries["table_by_id"], {"table_id": table_id}), table_id)

    def line_up(self, transaction: Transaction, tables: Sequence[int]) -> None:
        """Waits where those wait who take any head, if they have a line of their own. Comes before several locks."""
        for table_id in tables if self.catalog.has_line else ():
            transaction.execute(self.catalog.queries["line_up"], {"table_id": table_id})

    def lock(
        self, transaction: Transaction, table_id: int, expected: int | None, *, hidden: bool = False
    ) -> Head | Conflict:
        """A live table's head with its lock, unless another one is expected. Raises ``DatasetNotFoundError``.

        With ``hidden``, that of a dropped one, too.
        """
        queries, key = self.catalog.queries, {"table_id": table_id, "expected": expected}
        asked = [(queries["line_up"], {"table_id": table_id})] if expected is None and self.catalog.has_line else []
        *_, rows = transaction.fetch_each(*asked, (queries["lock_head"], key))
        return self._locked(transaction, rows, table_id, expected, hidden=hidden)

    def _locked(
        self,
        transaction: Transaction,
        rows: list[Row],
        table_id: int,
        expected: int | None,
        *,
        hidden: bool = False,
    ) -> Head | Conflict:
        if rows:
            # A process that was there before an upgrade must not write what it takes for the format.
            check_format(rows[0][len(Head._fields)], repr(self.catalog))
            return self._live_head(rows, table_id, hidden=hidden)
        found = transaction.give_up(self.catalog.queries["table_by_id"], {"table_id": table_id})
        head = self._live_head(found, table_id, hidden=hidden)
        return Conflict(head.name, table_id, head.version if expected is None else expected, head.version)

    def _live_head(self, rows: list[Row], table_id: int, *, hidden: bool = False) -> Head:
        if not rows:
            raise DatasetNotFoundError(f"there is no dataset with id {table_id}")
        head = Head(*rows[0][: len(Head._fields)])
        if head.dropped_at is not None and not hidden:
            raise DatasetNotFoundError(f"dataset {head.name!r} (id {table_id}) was dropped")
        self._refuse_another(head)
        self.states.names[table_id] = head.name
        return head

    def _refuse_another(self, head: Head) -> None:
        """Refuses a table that has the id of one that was seen before, and is another one."""
        # One that is being created may have the id of one whose creation was undone.
        if head.version < 0:
            return
        known = self.states.created.setdefault(head.table_id, head.created_at)
        if known != head.created_at:
            self.states.forget(head.table_id)
            raise ConcurrencyError(
                f"table id {head.table_id} is {head.name!r} now, which was created at another time than the table that "
                "this process has seen under it: the catalog was restored or replaced. Nothing was committed: connect "
                "again, and ask for the table by its name"
            )

    def _base(self, draft: Draft) -> TableState | Conflict | None:
        """The state that a draft builds on, against which it is checked here, outside of any lock."""
        base = self.states.known(draft.table_id, draft.expected)
        if base is None:
            with self.catalog.session() as session:
                head = self.head(session, draft.table_id)
                if head.version != draft.expected:
                    return Conflict(head.name, head.table_id, draft.expected, head.version)
                base = self.states.of_head(session, head) if head.version >= 0 else None
        problems = draft.settle(base)
        if problems:
            with self.catalog.session() as session:
                head = self.head(session, draft.table_id)
            if head.version != draft.expected and not (draft.anywhere and base is not None and _same_rules(head, base)):
                return Conflict(head.name, head.table_id, draft.expected, head.version)
            raise ValidationError(f"commit to {head.name!r}", problems)
        return base

    def _look(
        self,
        transaction: Transaction,
        drafts: Sequence[Draft],
        bases: Sequence[TableState | None],
        unchanged: Mapping[int, int],
    ) -> _Looked | Conflict:
        """Locks, heads and time, and the live rows of the paths that the drafts touch, in one round trip if it can."""
        queries = self.catalog.queries
        wanted = {draft.table_id: None if draft.anywhere else draft.expected for draft in drafts}
        # A vacuum of a table that files are taken over from waits until they are, or is known by then.
        expected = sorted({**dict.fromkeys(_sources(drafts)), **unchanged, **wanted}.items())
        lines = sorted(draft.table_id for draft in drafts if draft.anywhere and self.catalog.has_line)
        asked: list[tuple[str, dict[str, Any]]] = [(queries["line_up"], {"table_id": table_id}) for table_id in lines]
        asked += [(queries["lock_head"], {"table_id": table_id, "expected": version}) for table_id, version in expected]
        leases = _leases(drafts)
        asked += [(queries["lock_lease"], {"directory": directory}) for directory in leases]
        asked.append((queries["clock"], {"now": now_ms()}))
        lookups = [(draft, list(_path_lists(draft))) for draft in drafts]
        for draft, lists in lookups:
            asked += [
                (queries["live_paths"], {"table_id": draft.table_id, "paths": paths})
                if len(paths) > 1
                else (queries["live_path"], {"table_id": draft.table_id, "path": paths[0]})
                for paths in lists
            ]
        answers = iter(transaction.fetch_each(*asked)[len(lines) :])
        heads: dict[int, Head] = {}
        hidden = {draft.table_id for draft in drafts if draft.imported}
        for table_id, version in expected:
            head = self._locked(transaction, next(answers), table_id, version, hidden=table_id in hidden)
            if isinstance(head, Conflict):
                return head
            heads[table_id] = head
        for draft, base in zip(drafts, bases, strict=True):
            head = heads[draft.table_id]
            if conflict := self._moved(draft, base, head):
                return conflict
            draft.move_to(head.version)
        if lost := [directory for directory in leases if not next(answers)]:
            raise LakelogError(
                f"the write to {lost[0]} is not registered any more: a vacuum has taken its lease back, and may have "
                "deleted its files. Nothing was committed: write again"
            )
        ((clock,),) = next(answers)
        live = [{path: LiveFile(*rest) for _ in lists for path, *rest in next(answers)} for _, lists in lookups]
        after_all = max(head.committed_at for head in heads.values()) + 1
        return _Looked([heads[draft.table_id] for draft in drafts], live, max(clock, after_all))

    def _moved(self, draft: Draft, base: TableState | None, head: Head) -> Conflict | None:
        """Whether a draft cannot stand on the head, which is the expected one, or another if it may stand anywhere."""
        if head.version < draft.expected:
            self.states.forget(head.table_id)
        elif base is None or _same_rules(head, base):
            return None
        elif head.version == draft.expected:
            self.states.forget(head.table_id)
            raise ConcurrencyError(
                f"version {head.version} of table {head.name!r} (id {head.table_id}) is not the one that this process "
                "has seen: the catalog was restored or replaced. Nothing was committed: read the table again and repeat"
            )
        return Conflict(head.name, head.table_id, draft.expected, head.version)

    def _txn_problems(self, transaction: Transaction, drafts: Sequence[Draft]) -> list[Violation]:
        """An application's progress never goes back, and never stands still."""
        asked = [(draft, txn) for draft in drafts if not draft.imported for txn in draft.txns]
        if not asked:
            return []
        statement = self.catalog.queries["txn_version"]
        answers = transaction.fetch_each(
            *(
                (statement, {"table_id": draft.table_id, "app_id": txn.app_id, "version": draft.expected})
                for draft, txn in asked
            )
        )
        return [
            Violation(
                f"txn {txn.app_id}", f"version {txn.version} is not after {rows[0][0]}, which is already committed"
            )
            for (_, txn), rows in zip(asked, answers, strict=True)
            if rows and rows[0][0] >= txn.version
        ]

    def _vacuumed_problems(self, transaction: Transaction, drafts: Sequence[Draft]) -> list[Violation]:
        """Files that come back from an older version, while a vacuum has begun to delete those of it, or may have."""
        found = []
        queries = self.catalog.queries
        for draft in drafts:
            version = draft.inherited.version
            if version is None:
                continue
            key = {"table_id": draft.inherited.table_id or draft.table_id, "version": version}
            rows = transaction.fetch(queries["kept_version"], key)
            if not rows:
                # Files that no version is known to have had are deleted without a word about versions.
                message = "has expired, and a vacuum may have begun to delete its files"
                found.append(Violation(f"version {version}", message))
            elif rows[0][3]:
                lost = {path for (path,) in transaction.fetch(queries["lost_files"], key)}
                message = f"may be vacuumed; files from version {rows[0][1]} on are kept"
                # A clone has names of its own for them, and takes all.
                taken = lost if draft.inherited.table_id is not None else lost.intersection(_added_paths(draft))
                found += [Violation(f"{path} of version {version}", message) for path in sorted(taken)]
        return found

    def _write_table(
        self,
        transaction: Transaction,
        draft: Draft,
        base: TableState | None,
        head: Head,
        live: dict[str, LiveFile],
        now: int,
        commit_id: str,
        record: CommitRecord,
    ) -> CommitResult:
        queries = self.catalog.queries
        elsewhere = draft.description.committed_at
        committed_at = now if elsewhere is None else max(elsewhere, head.committed_at + 1)
        versions = version_row(draft, commit_id, committed_at)
        transaction.insert("dl_table_versions", [versions])
        written: dict[str, Any] = {"dl_table_versions": [versions]}
        key = {"table_id": draft.table_id, "version": draft.version}
        if len(draft.removes):
            removed = draft.removes.rows(draft.table_id, draft.version, committed_at, live)
            transaction.insert("dl_remove_files", removed)
            written["dl_remove_files"] = removed
            transaction.execute(queries["close_removed"], key)
            record.rows["dl_remove_files"] = len(draft.removes)
        removed_paths = set(draft.removes.paths) if live else set()
        for path, file in live.items():
            if path not in removed_paths:
                replaced = {"table_id": draft.table_id, "version": file.version, "ordinal": file.ordinal}
                transaction.execute(queries["close_file"], {**replaced, "removed_version": draft.version})
        for table, rows in draft.rows(base, live):
            transaction.insert(table, rows)
            written[table] = rows
            record.rows[table] = record.rows.get(table, 0) + len(rows)
        transaction.execute(
            queries["advance_head"],
            {
                **key,
                "committed_at": committed_at,
                "metadata_version": draft.state.metadata.version,
                "protocol_version": draft.state.protocol_version,
            },
        )
        result = CommitResult(
            table_id=draft.table_id,
            table=head.name,
            version=draft.version,
            committed_at=committed_at,
            commit_id=commit_id,
        )
        few = all(isinstance(rows, list) for rows in written.values())
        draft.committed = Committed(
            result=result, location=head.location, state=draft.state, rows=written if few else None
        )
        return result

    def settled(
        self, commit_id: str, statement: str, parameters: Parameters, lost: OutcomeUnknown | None = None
    ) -> list[Row]:
        """What a statement finds when the commit of this id stands or never will; asks while the database comes back.

        ``lost`` limits the time for that to what the commit has left. Raises ``CommitOutcomeUnknown`` when the time is
        over, and ``PrivilegeError`` for who must not write: a commit that is not there has to be kept from coming.
        """
        deadline = Deadline(self.timeout if lost is None or lost.left is None else lost.left)
        while True:
            try:
                with self.catalog.settled(commit_id, deadline.left) as session:
                    rows = session.fetch(statement, parameters)
            except (DatabaseError, ConfigurationError, LakelogTimeoutError, OutcomeUnknown) as error:
                if isinstance(error, PrivilegeError):
                    raise
                if deadline.left <= _PAUSE:
                    raise CommitOutcomeUnknown(commit_id, (), str(error)) from error
            else:
                return rows
            time.sleep(_PAUSE)

    def found_after(
        self, lost: OutcomeUnknown, commit_id: str, tables: Sequence[str], record: CommitRecord
    ) -> list[Row]:
        """What is known of a commit that stands, though its answer was lost. Raises if it does not, or nobody knows."""
        record.outcome = "unknown"
        try:
            rows = self.settled(commit_id, self.catalog.queries["commit_by_id"], {"commit_id": commit_id}, lost)
        except (CommitOutcomeUnknown, PrivilegeError) as error:
            raise CommitOutcomeUnknown(commit_id, tables, f"{lost}; {error.detail}") from error
        if not rows:
            record.outcome = "error"
            raise DatabaseError(
                f"the database was lost while it was committing {commit_id}, and has rolled it back: nothing was "
                f"committed, and the commit may be repeated. Cause: {lost}"
            ) from lost
        return rows


def _path_lists(draft: Draft) -> Iterator[list[str]]:
    """The paths that a draft touches, in lists that a statement can take."""
    few: list[str] = []
    for paths in (draft.removes.paths, draft.adds.paths):
        for start in range(0, len(paths), LOOKED_UP):
            part = paths[start : start + LOOKED_UP]
            part = part if isinstance(part, list) else part.to_pylist()
            if len(part) < LOOKED_UP and len(few) < LOOKED_UP:
                few += part
            else:
                yield part
    if few:
        yield list(dict.fromkeys(few))


def _same_rules(head: Head, state: TableState) -> bool:
    return (head.metadata_version, head.protocol_version) == (state.metadata.version, state.protocol_version)


def _live_problems(draft: Draft, live: dict[str, LiveFile]) -> Iterator[Violation]:
    """Removes of files that are not live, and adds of live files that need a remove first."""
    if len(draft.removes):
        for path, vector in draft.removes.vectors.items():
            if path not in live:
                yield Violation(f"remove {path}", f"is not a live file at version {draft.expected}")
            elif live[path].vector != vector:
                yield Violation(f"remove {path}", f"has deletion vector {vector}, the live file {live[path].vector}")
    if live and draft.adds.count:
        removed = set(draft.removes.paths)
        vectors = draft.adds.vectors
        added = _added_paths(draft)
        for path, file in live.items():
            if path in added and path not in removed and file.vector != vectors.get(path):
                yield Violation(
                    f"add {path}", "is live with another deletion vector: remove that one in the same commit"
                )


def _added_paths(draft: Draft) -> set[str]:
    paths = draft.adds.paths
    return set(paths if isinstance(paths, list) else paths.to_pylist())


def _sources(drafts: Sequence[Draft]) -> set[int]:
    """Other tables that files are taken over from."""
    return {draft.inherited.table_id for draft in drafts if draft.inherited.table_id is not None}


def _leases(drafts: Sequence[Draft]) -> list[str]:
    """In the order in which all commits lock them."""
    return sorted({directory for draft in drafts for directory in draft.leases})


def _names(drafts: Sequence[Draft]) -> str:
    return ", ".join(str(draft.table_id) for draft in drafts)
