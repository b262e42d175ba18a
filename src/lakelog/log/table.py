"""``Table``: a handle on a table of a catalog. ``Dataset``, which people hold, is one with more to it."""

from datetime import datetime
from typing import TYPE_CHECKING

from lakelog.errors import ValidationError, VersionNotFoundError, Violation
from lakelog.log.snapshot.snapshot import Changes, Commit, Snapshot, milliseconds_of, moment, read_changes
from lakelog.strict_json import describe, is_text

if TYPE_CHECKING:
    from lakelog.catalog.base import Session
    from lakelog.log.commit.committer import Committer
    from lakelog.log.state import Head


class Table:
    """A handle on a table. It stays valid when the table is renamed."""

    def __init__(self, committer: "Committer", head: "Head") -> None:
        self.committer = committer
        self.id = head.table_id
        self.name = head.name
        self.location = head.location

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, id={self.id}, location={self.location!r})"

    @property
    def version(self) -> int:
        """The head now."""
        with self.committer.catalog.session() as session:
            head = self.committer.head(session, self.id)
            # A commit that builds on this version will need what it is.
            return self.committer.states.of_head(session, head).version

    @property
    def first_version(self) -> int:
        """The oldest version: 0, unless older ones have expired here or in the Delta log that was imported."""
        with self.committer.catalog.session() as session:
            return self._first(session)[0]

    def snapshot(self, version: int | None = None, timestamp: datetime | str | int | None = None) -> Snapshot:
        """The table at its head, at a version, or as it was at a time."""
        if version is not None and timestamp is not None:
            raise ValidationError("snapshot", [Violation("version", "give a version or a timestamp, not both")])
        with self.committer.catalog.session() as session:
            head = self.committer.head(session, self.id)
            if timestamp is not None:
                version = self._version_at(session, milliseconds_of(timestamp), head)
            if version is not None:
                self._check(session, version, head)
            if version is None or version == head.version:
                return Snapshot(self.committer, head, self.committer.states.of_head(session, head))
            return Snapshot(self.committer, head, self.committer.states.load(session, self.id, version))

    def history(self, limit: int | None = None) -> list[Commit]:
        """The commits, newest first."""
        with self.committer.catalog.session() as session:
            head = self.committer.head(session, self.id)
            rows = session.fetch(
                self.committer.catalog.queries["history"],
                {
                    "table_id": self.id,
                    "first": 0,
                    "last": head.version,
                    "limit": head.version + 1 if limit is None else min(_count(limit), head.version + 1),
                },
            )
        return [Commit.of(row) for row in rows]

    def txn_version(self, app_id: str) -> int | None:
        """The last version that an application recorded with its writes, or None."""
        if not is_text(app_id):
            raise ValidationError("txn version", [Violation("app_id", f"expected a text, got {describe(app_id)}")])
        statement = self.committer.catalog.queries["txn_version"]
        with self.committer.catalog.session() as session:
            head = self.committer.head(session, self.id)
            key = {"table_id": self.id, "app_id": app_id, "version": head.version}
            rows = session.fetch(statement, key)
        return int(rows[0][0]) if rows else None

    def changes(self, from_version: int, to_version: int | None = None) -> Changes:
        """What the commits from one version to another did, both included."""
        with self.committer.catalog.session() as session:
            head = self.committer.head(session, self.id)
            last = head.version if to_version is None else to_version
            self._check(session, from_version, head)
            self._check(session, last, head)
        if from_version > last:
            message = f"from_version {from_version} is after to_version {last}"
            raise ValidationError("changes", [Violation("from_version", message)])
        return read_changes(self.committer, self.id, from_version, last)

    def _check(self, session: "Session", version: int, head: "Head") -> None:
        if not isinstance(version, int) or isinstance(version, bool):
            raise ValidationError("version", [Violation("version", f"expected an integer, got {describe(version)}")])
        if version == head.version:
            return
        first, _ = self._first(session)
        if not first <= version < head.version:
            raise VersionNotFoundError(
                f"dataset {head.name!r} has no version {version}: its versions are {first} to {head.version}"
            )

    def _version_at(self, session: "Session", milliseconds: int, head: "Head") -> int:
        key = {"table_id": self.id, "time": milliseconds}
        rows = session.fetch(self.committer.catalog.queries["version_at_time"], key)
        if rows:
            return min(int(rows[0][0]), head.version)
        first, committed_at = self._first(session)
        missing = "did not exist" if first == 0 else "has no version that was current"
        raise VersionNotFoundError(
            f"dataset {head.name!r} {missing} at {moment(milliseconds).isoformat()}: "
            f"its version {first} was committed at {moment(committed_at).isoformat()}"
        )

    def _first(self, session: "Session") -> tuple[int, int]:
        """The oldest version, and when it was committed."""
        version, committed_at = session.fetch(self.committer.catalog.queries["first_version"], {"table_id": self.id})[0]
        return int(version), int(committed_at)


def _count(limit: int) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
        raise ValidationError("history", [Violation("limit", f"expected a count, got {describe(limit)}")])
    return limit
