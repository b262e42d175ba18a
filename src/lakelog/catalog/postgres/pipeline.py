"""Statements that travel to PostgreSQL in one piece, below psycopg's cursors.

psycopg sends each statement of a pipeline as soon as it is executed. The server begins with the first while the client
still binds the second, holds locks meanwhile, and is woken up for each of them.
"""

import itertools
import re
from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import psycopg
from psycopg import errors as pg
from psycopg import pq
from psycopg.generators import send
from psycopg.waiting import Wait

from lakelog.catalog.base import Parameters

_PARAMETER = re.compile(r"%\((\w+)\)s|%%")
_numbers = itertools.count()

Named = dict[bytes, bytes]
"""The names of statements that a session has prepared, by their texts."""


def send_piece(connection: Any, statements: Sequence[tuple[str, Parameters]], named: Named | None) -> list[Any]:
    """The results of a transaction's statements in psycopg's notation, BEGIN first, in order, if none of them fails.

    Each is prepared at its first use, and kept in ``named``; none is where that is None. Raises psycopg's errors, of
    which those that ``error_from_result`` makes are the server's own words.
    """
    try:
        return _sent(connection, statements, named)
    except pg.InvalidSqlStatementName:
        if not named:
            raise
        # Whoever has the session besides may let go of all that is prepared there: psycopg does so after a rollback.
        named.clear()
        connection.execute("ROLLBACK")
        return _sent(connection, statements, named)


def _sent(connection: Any, statements: Sequence[tuple[str, Parameters]], named: Named | None) -> list[Any]:
    bound = [(text, _bound(parameters, names)) for (text, names), parameters in map(_numbered, statements)]
    pgconn = connection.pgconn
    try:
        pgconn.enter_pipeline_mode()
        asked = [step for text, values in bound for step in _queue(pgconn, text, values, named)]
        pgconn.pipeline_sync()
        found, refusal = connection.wait(_exchanged(pgconn))
        for (text, name), result in zip(asked, found, strict=False):
            if name is not None and named is not None and result.status == pq.ExecStatus.COMMAND_OK:
                named[text] = name
        if pgconn.status == pq.ConnStatus.OK:
            pgconn.exit_pipeline_mode()
    except BaseException:
        # What is on its way cannot be told from the answers to what comes next.
        with suppress(psycopg.Error):
            connection.close()
        raise
    if refusal is not None:
        raise pg.error_from_result(refusal)
    return [result for (_, name), result in zip(asked, found, strict=True) if name is None]


def _queue(
    pgconn: Any, text: bytes, values: Sequence[bytes | None], named: Named | None
) -> list[tuple[bytes, bytes | None]]:
    """What the server is asked for: to prepare a statement, under a name, and to execute it."""
    # BEGIN and COMMIT have nothing to plan.
    if named is None or not values:
        pgconn.send_query_params(text, values)
        return [(text, None)]
    name = named.get(text)
    if name is not None:
        pgconn.send_query_prepared(name, values)
        return [(text, None)]
    name = b"lakelog_%d" % next(_numbers)
    pgconn.send_prepare(name, text)
    pgconn.send_query_prepared(name, values)
    return [(text, name), (text, None)]


def _exchanged(pgconn: Any) -> Generator[Any, Any, tuple[list[Any], Any]]:
    """All results up to the end of the piece, or of the connection, and the first that is an error."""
    found: list[Any] = []
    error = None
    yield from send(pgconn)
    while True:
        try:
            while pgconn.is_busy():
                yield Wait.R
                pgconn.consume_input()
        except psycopg.OperationalError:
            if error is None:
                raise
            # The server has said why it ended the session.
            return found, error
        result = pgconn.get_result()
        if result is None:
            continue
        if result.status == pq.ExecStatus.PIPELINE_SYNC:
            return found, error
        found.append(result)
        if error is None and result.status == pq.ExecStatus.FATAL_ERROR:
            error = result
        if pgconn.status == pq.ConnStatus.BAD:
            return found, error


def _numbered(statement: tuple[str, Parameters]) -> tuple[tuple[bytes, tuple[str, ...]], Parameters]:
    text, parameters = statement
    return _by_number(text), parameters


@lru_cache(1024)
def _by_number(statement: str) -> tuple[bytes, tuple[str, ...]]:
    """A statement with the server's own placeholders, and the names in the order of their numbers."""
    names: dict[str, int] = {}

    def placed(match: re.Match[str]) -> str:
        return "%" if match[1] is None else f"${names.setdefault(match[1], len(names) + 1)}"

    return _PARAMETER.sub(placed, statement).encode(), tuple(names)


def _bound(parameters: Parameters, names: Sequence[str]) -> list[bytes | None]:
    return [None if (value := parameters[name]) is None else str(value).encode() for name in names]
