"""What went wrong in SQLite, in our own words."""

import apsw

from lakelog.errors import DatabaseError


class translated:
    """Turns apsw's errors into ours, by class."""

    __slots__ = ("_where",)

    def __init__(self, table: str | None = None) -> None:
        self._where = f" in {table}" if table else ""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, apsw.Error):
            raise self._ours(error) from error

    def _ours(self, error: apsw.Error) -> DatabaseError:
        if isinstance(error, apsw.ConstraintError):
            return DatabaseError(f"a row broke a constraint{self._where}", _constraint(error), str(error))
        for kind, message in _MEANINGS.items():
            if isinstance(error, kind):
                return DatabaseError(message, None, str(error))
        return DatabaseError(f"SQLite failed{self._where}", None, str(error))


_DAMAGED = "the SQLite file is damaged: stop, and keep a copy of it"

_MEANINGS: dict[type[apsw.Error], str] = {
    apsw.BusyError: "the SQLite file is locked by a program other than Lakelog",
    apsw.FullError: "the disk of the catalog is full; nothing was committed",
    apsw.NotADBError: "the file is not a SQLite database",
    apsw.CorruptError: _DAMAGED,
    apsw.CantOpenError: "the SQLite file cannot be opened",
    apsw.ReadOnlyError: "the disk of the catalog takes no writes; nothing was committed",
}


def _constraint(error: apsw.ConstraintError) -> str:
    # The message names the constraint or its columns after the first colon; it is shown, never decided on.
    return str(error).partition(": ")[2] or "unknown"


def damaged_value(error: Exception) -> DatabaseError:
    """For a text that is not UTF-8, or a value of another type than its column: SQLite does not look at either."""
    return DatabaseError(_DAMAGED, None, str(error))
