"""Whether commits that came in between stand in the way of a commit that was prepared on an older version.

A write reads only what it must read to decide what it does. The loser of a race may commit on top of the winners if
it would have read and done the same there. Each winner is looked at by itself:

    the winner                          stands in the way of
    ----------------------------------  --------------------------------------------------------------------------
    changed metadata or protocol        every loser: it was planned for another schema. If the loser changes them,
                                        too, the two are never merged silently
    recorded progress of an app         a loser that records or read the progress of the same app
    added, removed or replaced a file   a loser that names this path: it read, rewrites or removes that very file
    added rows                          a loser that read where they can lie: the whole table; a predicate that the
                                        file's statistics and partition values do not rule out; one of its partitions
    removed rows                        the same
    rewrote rows that were there        no more losers than those which name the removed files
    did anything else                   nobody

    the loser                           reads
    ----------------------------------  --------------------------------------------------------------------------
    append                              nothing
    append with new columns             nothing: they are null in the rows that a winner appended
    change of columns or properties     nothing; a change that has to hold for every row (a promotion to string that
                                        rewrites files, a constraint) the whole table
    overwrite                           the whole table, and the files that it removes
    replaceWhere                        its predicate, and the files that it removes
    dynamic overwrite                   the partitions that it writes, and the files that it removes
    delete, update, merge               their predicates, and the files that they scanned
    compaction                          its input files, and nothing else (``data_change=False``)

"Added rows" and "removed rows" are actions with ``dataChange``, also of a file that a later winner removed again. A
file without statistics can hold anything. So does, for this question, a predicate that cannot be analysed match, and a
partition value that cannot be told from another equal it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakelog.changes.partition_values import PartitionValues, files_in
from lakelog.errors import ValidationError
from lakelog.log.commit.committer import Committer
from lakelog.log.pruning.plan import KeyQuery
from lakelog.log.pruning.predicate import Everything, Nothing, Predicate
from lakelog.log.snapshot.snapshot import search_plan
from lakelog.log.state import TableMetadata

_KEY = pa.schema([("version", pa.int64()), ("ordinal", pa.int32())])
_TOUCHED = pa.schema(
    [
        ("touched_by", pa.int64()),
        *_KEY,
        ("added", pa.bool_()),
        ("data_change", pa.bool_()),
        ("path", pa.string()),
        ("partition_values", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """What a write had to look at to decide what it does. An append looks at nothing."""

    everything: bool = False
    """The whole table: overwrite."""
    predicates: tuple[str | Predicate, ...] = ()
    """The rows that match one of these, as ``Snapshot.files`` takes them: replaceWhere, delete, update, merge."""
    partitions: tuple[PartitionValues, ...] = ()
    """Whole partitions, by physical names and serialised values: dynamic overwrite."""
    files: frozenset[str] = frozenset()
    """The paths of files that it scanned, rewrites, removes or adds again."""
    data_change: bool = True
    """False for compaction, which only needs its files to be there still."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A commit that stands in the way."""

    version: int
    operation: str
    reason: str
    """What it did that the other commit cannot live with, in words that follow its name."""

    def __str__(self) -> str:
        return f"version {self.version} ({self.operation}) {self.reason}"


def find_conflict(
    committer: Committer,
    table_id: int,
    base_version: int,
    head_version: int,
    reads: Reads,
    *,
    apps: Iterable[str] = frozenset(),
    changes_metadata: bool = False,
) -> Found | None:
    """The first commit after ``base_version``, up to ``head_version``, that such a write conflicts with.

    ``apps`` are the applications whose progress the write records or has read. ``changes_metadata`` says that it
    changes metadata or protocol itself, which changes only the words.
    """
    between = _Between(committer, table_id, base_version, head_version)
    apps = frozenset(apps)
    found = between.change_of_rules(changes_metadata) or between.progress(apps)
    if found is None and (reads.files or _read_rows(reads)):
        found = between.change_of_files(reads)
    if found is None and (apps or reads.files or _read_rows(reads)):
        # Asked last: of commits that had expired by then, not everything was found.
        found = between.forgotten()
    return None if found is None else between.described(*found)


def _read_rows(reads: Reads) -> bool:
    return reads.data_change and bool(reads.everything or reads.predicates or reads.partitions)


_EXPIRED = "expired"
_FORGOTTEN = "follows a version that has expired, which this commit was prepared on: nobody knows what came in between"


class _Between:
    """The commits after one version, up to another. Each question is answered by a version and a reason."""

    def __init__(self, committer: Committer, table_id: int, base: int, head: int) -> None:
        self._committer = committer
        self._queries = committer.catalog.queries
        self._table_id = table_id
        self._head = head
        self._range = {"table_id": table_id, "version": base, "last": head}

    def described(self, version: int, reason: str) -> Found:
        key = {"table_id": self._table_id, "first": version, "last": version, "limit": 1}
        with self._committer.catalog.session() as session:
            rows = session.fetch(self._queries["history"], key)
        return Found(version=version, operation=rows[0][4] if rows else "expired", reason=reason)

    def forgotten(self) -> tuple[int, str] | None:
        key = {"table_id": self._table_id, "version": self._range["version"]}
        with self._committer.catalog.session() as session:
            return None if session.fetch(self._queries["kept_version"], key) else (self._head, _FORGOTTEN)

    def change_of_rules(self, changes_metadata: bool) -> tuple[int, str] | None:
        with self._committer.catalog.session() as session:
            rows = session.fetch(self._queries["rule_changes"], self._range)
        if not rows:
            return None
        if any(row[1] == _EXPIRED for row in rows):
            return self._head, _FORGOTTEN
        version = min(row[0] for row in rows)
        changed = " and ".join(sorted(row[1] for row in rows if row[0] == version))
        if changes_metadata:
            return version, f"changed the table's {changed}, as this commit does: the two are never merged silently"
        return version, f"changed the table's {changed}, for which this commit was not planned"

    def progress(self, apps: Iterable[str]) -> tuple[int, str] | None:
        found: list[tuple[int, str]] = []
        with self._committer.catalog.session() as session:
            for app in sorted(apps):
                ((version,),) = session.fetch(self._queries["txn_between"], {**self._range, "app_id": app})
                if version is not None:
                    found.append((version, f"recorded progress of application {app!r}, as this commit does"))
        return min(found, default=None)

    def change_of_files(self, reads: Reads) -> tuple[int, str] | None:
        with self._committer.catalog.session() as session:
            touched = session.fetch_arrow(self._queries["touched_files"], self._range, _TOUCHED)
        found: list[tuple[int, str]] = []

        def note(rows: Any, reason: str) -> None:
            if rows.num_rows:
                first = rows.slice(pc.index(rows["touched_by"], pc.min(rows["touched_by"])).as_py(), 1).to_pylist()[0]
                did = "added" if first["added"] else "removed"
                found.append((first["touched_by"], f"{did} {first['path']}, {reason}"))

        if reads.files:
            named = pc.is_in(touched["path"], pa.array(list(reads.files), pa.string()))
            note(touched.filter(named), "which this commit read or removes")
        changed = touched.filter(touched["data_change"])
        if changed.num_rows and _read_rows(reads):
            if reads.everything:
                note(changed, "and this commit read the whole table")
            elif reads.partitions:
                metadata = self._metadata()
                inside = files_in(changed, reads.partitions, metadata, unsure=True)
                note(inside, "in a partition that this commit overwrites")
            if reads.predicates:
                matching = self._matching(changed, reads.predicates)
                read = " or ".join(map(str, reads.predicates))
                note(matching, f"which can hold rows that this commit read: {read}")
        return min(found, key=lambda each: each[0], default=None)

    def _metadata(self) -> TableMetadata:
        """The head's, which is also the base's: no commit in between has changed it."""
        with self._committer.catalog.session() as session:
            return self._committer.states.load(session, self._table_id, self._head).metadata

    def _matching(self, touched: Any, predicates: tuple[str | Predicate, ...]) -> Any:
        """Of the touched files those that pruning keeps for one of the predicates."""
        with self._committer.catalog.session() as session:
            state = self._committer.states.load(session, self._table_id, self._head)
        try:
            plan = search_plan(self._committer, state, predicates)
        except ValidationError:
            plan = Everything()
        if isinstance(plan, Everything):
            return touched
        if isinstance(plan, Nothing):
            return touched.slice(0, 0)
        keys = _TouchedKeys(self._queries, plan)
        with self._committer.catalog.session() as session:
            statement = self._queries.fill("touched_keys", kept=keys.sql)
            kept = session.fetch_arrow(statement, self._range | keys.parameters, _KEY)
        return touched.join(kept, _KEY.names, join_type="left semi")


class _TouchedKeys(KeyQuery):
    """The same search among the files that were touched, live or not."""

    def _positive(self, sql: str, complement: bool) -> str:
        return f"{'EXCEPT' if complement else 'INTERSECT'}\nSELECT version, ordinal FROM (\n{sql}\n) AS k"
