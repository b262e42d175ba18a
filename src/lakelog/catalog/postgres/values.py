"""How values travel to and from PostgreSQL: as texts, as arrays, and by COPY without a Python object per row."""

import io
import select
from collections.abc import Sequence
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
from psycopg.copy import LibpqWriter
from psycopg.generators import send

from lakelog.catalog.base import Parameters

_CHUNK = 8192
_MOST = (1 << 31) - 1
"""Bytes in a block of Arrow's reader of CSV."""

_SQL_TYPES = {
    pa.int64(): "bigint",
    pa.int32(): "integer",
    pa.string(): "text",
    pa.bool_(): "boolean",
    pa.float64(): "double precision",
    pa.binary(): "bytea",
}

# Characters that neither a path nor JSON can hold unescaped: nothing needs quoting, whatever it contains.
_QUOTE, _DELIMITER = "\x01", "\x02"


def copy_in(connection: Any, table: str, rows: Any) -> None:
    """An Arrow table into a table, as CSV that Arrow writes."""
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="all_valid")
    cursor = connection.cursor()
    target = f"{table} ({', '.join(rows.column_names)})"
    with cursor.copy(f"COPY {target} FROM STDIN (FORMAT csv)", writer=_FlushingWriter(cursor)) as copy:
        for batch in rows.to_batches(max_chunksize=_CHUNK):
            text = io.BytesIO()
            pyarrow.csv.write_csv(batch, text, options)
            copy.write(text.getbuffer())


def copy_out(connection: Any, statement: str, parameters: Parameters, schema: Any, before: str = "") -> Any:
    """The rows of a query, by COPY, whose text Arrow reads: no Python object per row.

    ``before`` begins a transaction for it, which ends with it.
    """
    copy = f"COPY ({statement}) TO STDOUT (FORMAT csv, DELIMITER E'\\x02', QUOTE E'\\x01')"
    asked = psycopg.ClientCursor(connection).mogrify(copy, parameters)
    text, longest = connection.copy_out(f"{before}; {asked}; COMMIT" if before else asked)
    if not text:
        return schema.empty_table()
    # Block by block: to read all at once, Arrow takes the process down where it cannot start a thread.
    return pyarrow.csv.open_csv(
        pa.BufferReader(pa.py_buffer(text)),
        # Arrow refuses a row that is longer than a block.
        pyarrow.csv.ReadOptions(
            column_names=schema.names, block_size=min(max(len(text) // 8, 1 << 20, longest), _MOST)
        ),
        pyarrow.csv.ParseOptions(
            delimiter=_DELIMITER,
            quote_char=_QUOTE,
            newlines_in_values=True,
            ignore_empty_lines=False,  # the null of a single column
        ),
        pyarrow.csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    ).read_all()


class _FlushingWriter(LibpqWriter):
    """Sends what it is given. libpq would keep all of it, and move it in memory whenever it sends a part."""

    def write(self, data: Any) -> None:
        super().write(data)
        self.connection.wait(send(self._pgconn))


def array_literal(values: Sequence[Any]) -> str:
    """A column of values as the text of a PostgreSQL array."""
    return "{" + ",".join([_element(value) for value in values]) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f'"\\\\x{value.hex()}"' if isinstance(value, bytes) else str(value)


def as_text(value: Any) -> str | None:
    """A value as text, so that psycopg sees one type and prepares one statement."""
    if value is None or isinstance(value, str):
        return value
    return f"\\x{value.hex()}" if isinstance(value, bytes) else str(value)


def sql_type(field: Any) -> str:
    """A column's type in PostgreSQL."""
    return "uuid" if field.name == "commit_id" else _SQL_TYPES[field.type]


def ready(descriptor: int, event: int, timeout: int | None) -> bool:
    """As ``select.select``, which cannot watch a descriptor past 1,023."""
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(timeout))
